"""Training learns; whatever stops it, it goes on to the very bits of the unbroken run."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
import train_child as child
from torch import Tensor, nn

from redraft.core import Precision, choose_precision
from redraft.models import DiffusionLM
from redraft.training import (
    Loader,
    Run,
    TokenCrossEntropy,
    TrainingError,
    TrainStep,
    build_optimizers,
    fit,
    load_rows,
    loop as train,
)
from redraft.training.distributed import (
    _Workers,
)
from redraft.training.loop import (
    _optimizer_step,
)
from redraft.training.runs.loading import (
    load_newest,
)
from redraft.training.state import (
    _TrainState,
)

small, metrics = child.small, child.metrics
ALONE = _Workers(0, 1, torch.device("cpu"))
RICH = {"micro_batches": 2, "muon": 0.02, "dropout": 0.1, "time": 8}  # all that could be forgotten in a checkpoint


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    found = child.Lives(tmp_path_factory.mktemp("lives"))
    yield found
    found.close()


def assert_same_bits(a: Path, b: Path) -> None:
    """The same bytes of weights, averages, moments, config and state; and the same log."""
    assert child.end(a) == child.end(b)


def assert_every_sample_once(out: Path, steps: int) -> None:
    """All steps are there, with eight samples each, and every epoch has every sample once."""
    taken = child.taken(out)
    assert sorted(taken) == list(range(1, steps + 1))
    samples = [n for step in sorted(taken) for rank in sorted(taken[step]) for n in taken[step][rank]]
    assert len(samples) == 8 * steps
    for epoch in range(len(samples) // child.ROWS):
        first, last = epoch * child.ROWS, (epoch + 1) * child.ROWS
        assert sorted(samples[first:last]) == list(range(first, last))


# --- killed and gone on ---


@pytest.mark.parametrize("seed", range(5))
def test_killed_at_a_random_moment(lives: Any, seed: int) -> None:
    chance, run = random.Random(seed), RICH if seed % 2 else {}
    out = lives.folder / f"random-{seed}"
    for first, last in ((1, 10), (11, 19)):
        moment = [chance.randint(first, last), chance.uniform(0, 0.02)]
        assert lives.live(out, run, after=moment) == -signal.SIGKILL
    assert lives.live(out, run) == 0
    assert_same_bits(out, lives.whole(run))
    assert_every_sample_once(out, 20)


def test_killed_before_any_file_operation(lives: Any) -> None:
    """Between checkpoint and log, between draft and name, while the log is cut: every 9th of all operations."""
    run, deaths = {"steps": 6, "save_every": 2, "log_every": 1, "eval_every": 3}, 0
    for event in count(1, 9):
        out = lives.folder / f"event-{event}"
        if lives.live(out, run, event=event) == 0:
            break
        deaths += 1
        lives.live(out, run, event=event // 2 + 3)  # a second death while it goes on
        assert lives.live(out, run) == 0
        assert_same_bits(out, lives.whole(run))
        shutil.rmtree(out)
    assert deaths >= 10


@pytest.mark.parametrize("run", [{}, RICH], ids=["plain", "rich"])
def test_sigterm_saves_and_ends(lives: Any, run: dict[str, Any]) -> None:
    """At a step at which neither log nor checkpoint was due."""
    out = lives.folder / f"term-{len(run)}"
    assert lives.live(out, run, term=7) == 128 + signal.SIGTERM
    assert load_newest(out).step == 7
    assert lives.live(out, run, term=10) == 143
    assert lives.live(out, run) == 0
    assert_same_bits(out, lives.whole(run))
    assert_every_sample_once(out, 20)


def after_step(monkeypatch: pytest.MonkeyPatch, step: int, act: Callable[[], None]) -> None:
    """Something happens right after that step."""
    usual = train._optimizer_step

    def wrapped(run: Run, state: _TrainState, *rest: Any) -> float:
        norm = usual(run, state, *rest)
        if state.step == step:
            act()
        return norm

    monkeypatch.setattr(train, "_optimizer_step", wrapped)


def test_sigint_saves_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = small(tmp_path)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        after_step(patch, 5, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            fit(run, tmp_path / "broken", quiet=True)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert load_newest(tmp_path / "broken").step == 5
    for out in (tmp_path / "broken", tmp_path / "whole"):
        fit(run, out, quiet=True)
    assert_same_bits(tmp_path / "broken", tmp_path / "whole")


def test_a_second_signal_acts_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    after_step(monkeypatch, 5, impatient)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            fit(small(tmp_path), tmp_path / "out", quiet=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert load_newest(tmp_path / "out").step == 4  # no checkpoint of step 5


def test_a_damaged_checkpoint_costs_steps_not_bits(tmp_path: Path) -> None:
    run = small(tmp_path)
    for out in (tmp_path / "whole", tmp_path / "damaged"):
        fit(run, out, quiet=True)
    file = tmp_path / "damaged" / "step-00000020" / "raw.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    fit(run, tmp_path / "damaged", quiet=True)
    assert_same_bits(tmp_path / "damaged", tmp_path / "whole")


def test_a_torn_log_is_mended(tmp_path: Path) -> None:
    """Lines from after the checkpoint, and half a line, as a kill leaves them."""
    run, out = small(tmp_path), tmp_path / "out"
    fit(run, out, quiet=True)
    shutil.rmtree(out / "step-00000020")
    log, before = out / "metrics.jsonl", metrics(out)
    log.write_text(log.read_text() + '{"step": 21, "train_bi')
    fit(run, out, quiet=True)
    assert metrics(out) == before


def test_kernels_are_repeatable_while_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    after_step(monkeypatch, 1, lambda: seen.append(torch.are_deterministic_algorithms_enabled()))
    fit(small(tmp_path, steps=1), tmp_path / "out", quiet=True)
    assert seen == [True]
    assert not torch.are_deterministic_algorithms_enabled()  # the caller's setting is its own again


# --- one step ---


def begin(run: Run) -> tuple[_TrainState, TrainStep]:
    torch.manual_seed(run.seed)
    model = DiffusionLM(run.model, run.tokenizer)
    ema = {n: p.detach().clone() for n, p in model.named_parameters()}
    return _TrainState(model, ema, build_optimizers(model, run.optimizer), choose_precision(run.precision)), TrainStep(
        model, run.objective
    )


def weights(state: _TrainState) -> dict[str, Tensor]:
    return {n: p.detach().clone() for n, p in state.model.named_parameters()}


def batches(run: Run) -> Iterator[Any]:
    return Loader(load_rows(run.data, "train", run.tokenizer, run.framing), run.batch, run.seed).batches()


def test_the_average_is_its_formula(tmp_path: Path) -> None:
    """ē ← d ē + (1 − d) w with d = min(ema, (1 + k)/(10 + k)) at step k."""
    run = small(tmp_path)
    state, step = begin(run)
    expected, rows = dict(state.ema), batches(run)
    for k in range(1, 13):
        _optimizer_step(run, state, step, [next(rows)], ALONE)
        decay = min(0.9, (1 + k) / (10 + k))
        expected = {n: decay * expected[n] + (1 - decay) * w for n, w in weights(state).items()}
    for name, average in state.ema.items():
        assert torch.allclose(average, expected[name], atol=1e-6)
    assert not torch.allclose(state.ema["network.output.weight"], weights(state)["network.output.weight"], atol=1e-4)


def test_long_gradients_are_clipped(tmp_path: Path) -> None:
    """With an eps that drowns the second moment, AdamW moves by lr · gradient / eps."""
    base = small(tmp_path)
    moved = {}
    for clip in (1e-3, 1e-1):
        run = replace(base, optimizer=replace(base.optimizer, clip=clip, eps=1e3, weight_decay=0.0, warmup=0, lr=1.0))
        state, step = begin(run)
        before = weights(state)
        norm = _optimizer_step(run, state, step, [next(batches(run))], ALONE)
        assert norm > 0.1  # what is told is the norm before clipping
        moved[clip] = math.sqrt(sum(float((w - before[n]).square().sum()) for n, w in weights(state).items()))
    assert moved[1e-3] == pytest.approx(1e-3 / 1e3, rel=0.05)
    assert moved[1e-1] == pytest.approx(1e-1 / 1e3, rel=0.05)


def spoil_gradient(loss: Tensor) -> Tensor:
    loss = loss.clone()
    loss.register_hook(lambda g: g * torch.nan)
    return loss


SPOILS: dict[str, Callable[[Tensor], Tensor]] = {
    "loss of nan": lambda loss: loss * torch.nan,
    "loss of inf": lambda loss: loss + torch.inf,
    r"loss of [0-9.]+ nats and a gradient norm of nan": spoil_gradient,
}


@pytest.mark.parametrize("message", SPOILS)
def test_a_number_that_is_none_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    run, out = small(tmp_path), tmp_path / "out"
    usual, calls = TokenCrossEntropy.__call__, count(1)

    def spoiled(self: TokenCrossEntropy, *args: Any) -> Tensor:
        loss = usual(self, *args)
        return SPOILS[message](loss) if next(calls) == 7 else loss

    with monkeypatch.context() as patch:
        patch.setattr(TokenCrossEntropy, "__call__", spoiled)
        with pytest.raises(TrainingError, match=f"step 7 has a {message}.*nothing was saved"):
            fit(run, out, quiet=True)
    assert load_newest(out).step == 4
    assert [line["step"] for line in metrics(out)] == [3, 6]
    fit(run, out, quiet=True)
    fit(run, tmp_path / "whole", quiet=True)
    assert_same_bits(out, tmp_path / "whole")


def test_a_refused_step_leaves_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = small(tmp_path)
    state, step = begin(run)
    rows = batches(run)
    _optimizer_step(run, state, step, [next(rows)], ALONE)
    kept = {file: dict(named) for file, named in copies(state).items()}
    usual = TokenCrossEntropy.__call__
    monkeypatch.setattr(TokenCrossEntropy, "__call__", lambda self, *args: usual(self, *args) * torch.nan)
    with pytest.raises(TrainingError, match="step 2"):
        _optimizer_step(run, state, step, [next(rows)], ALONE)
    assert state.step == 1
    for file, named in copies(state).items():
        assert all(torch.equal(tensor, kept[file][name]) for name, tensor in named.items())


def copies(state: _TrainState) -> dict[str, dict[str, Tensor]]:
    return {file: {n: t.clone() for n, t in named.items()} for file, named in state.tensors().items()}


# --- whole runs ---


def assert_close(a: Path, b: Path, tolerance: float) -> None:
    """Weights and averages differ by so much at most, as a share of the largest entry of their tensor."""
    first, second = load_newest(a), load_newest(b)
    assert first.step == second.step
    for file in ("raw", "model"):
        for name, tensor in first.tensors[file].items():
            scale = float(tensor.abs().max())
            assert float((tensor - second.tensors[file][name]).abs().max()) <= tolerance * scale, (file, name)


def test_it_learns(tmp_path: Path) -> None:
    """Texts that go round a b c d: held-out bits far below the two of single characters."""
    (tmp_path / "corpus.txt").write_text("\n".join(("abcd" * 4)[i % 4 : i % 4 + 8 + i % 3] for i in range(40)))
    run = small(tmp_path, steps=200, save_every=200, eval_every=200, batch=16, muon=0.02)
    fit(replace(run, optimizer=replace(run.optimizer, lr=0.02)), tmp_path / "out", quiet=True)
    assert metrics(tmp_path / "out")[-1]["valid_bits_per_char"] < 1


def test_parts_of_a_batch_add_up(tmp_path: Path) -> None:
    """Rows have different lengths and 8 does not split into 3: shares of tokens, not means of means."""
    for micro in (1, 3):
        fit(small(tmp_path, micro_batches=micro), tmp_path / f"micro-{micro}", quiet=True)
    assert_close(tmp_path / "micro-1", tmp_path / "micro-3", 1e-5)


def test_recomputing_changes_no_bit(tmp_path: Path) -> None:
    for recompute in (False, True):
        fit(small(tmp_path, recompute=recompute, dropout=0.1), tmp_path / str(recompute), quiet=True)
    assert_close(tmp_path / "False", tmp_path / "True", 0.0)


def test_half_precision_is_for_matrix_products_only(bf16: Precision, tmp_path: Path) -> None:
    for precision in ("fp32", "bf16"):
        fit(small(tmp_path, steps=4, precision=precision), tmp_path / precision, quiet=True)
    assert {t.dtype for named in load_newest(tmp_path / "bf16").tensors.values() for t in named.values()} == {
        torch.float32
    }
    assert_close(tmp_path / "fp32", tmp_path / "bf16", 0.05)
    with pytest.raises(AssertionError):
        assert_close(tmp_path / "fp32", tmp_path / "bf16", 1e-6)


def test_compiled_blocks_compute_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without code generation, which takes a minute; what is traced is what it would get."""
    compiled: list[nn.Module] = []
    usual = nn.Module.compile

    def compile_eagerly(module: nn.Module) -> None:
        compiled.append(module)
        usual(module, backend="aot_eager")

    monkeypatch.setattr(nn.Module, "compile", compile_eagerly)
    fit(small(tmp_path, steps=3), tmp_path / "plain", quiet=True)
    assert compiled == []
    fit(small(tmp_path, steps=3, compile=True), tmp_path / "compiled", quiet=True)
    assert len(compiled) == 2
    assert_close(tmp_path / "plain", tmp_path / "compiled", 1e-5)


def test_a_directory_belongs_to_one_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    fit(small(tmp_path, steps=2), out, quiet=True)
    with pytest.raises(TrainingError, match=r"holds another run .* choose another directory"):
        fit(small(tmp_path, steps=3), out, quiet=True)


def test_half_a_run_file_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between writing it and naming it."""

    def die(*_: object) -> None:
        raise SystemExit(9)

    run, out = small(tmp_path, steps=1), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", die)
        with pytest.raises(SystemExit):
            fit(run, out, quiet=True)
    assert {path.name for path in out.iterdir()} == {".lock", "run.tmp"}
    (out / "run.tmp").write_text('{"hash": "')
    fit(run, out, quiet=True)
    assert not (out / "run.tmp").exists()


def test_a_finished_run_is_only_read(tmp_path: Path) -> None:
    run, out = small(tmp_path, steps=3), tmp_path / "out"
    first = fit(run, out, quiet=True)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    again = fit(run, out, quiet=True)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert not again.training
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


def test_the_log_tells_what_happens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = small(tmp_path, steps=8, log_every=3, eval_every=5), tmp_path / "out"
    fit(run, out)
    told = capsys.readouterr()
    assert told.out == ""
    assert "bits/token" in told.err
    assert "tokens/s" in told.err
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], "samples" in line) for line in lines] == [
        (3, False), (5, True), (6, False), (8, False), (8, True)
    ]  # fmt: skip
    assert lines[0]["learning_rate"] == pytest.approx(3e-3 * 3 / 5)
    assert lines[0]["tokens_per_second"] > 0
    assert lines[1].keys() == {"step", "valid_bound_bits_per_token", "valid_bits_per_char", "samples"}
    assert len(lines[1]["samples"]) == 1
    saved = json.loads((out / "run.json").read_text())
    assert saved["run"] == load_newest(out).documents["config"]
    fit(run, tmp_path / "quiet", quiet=True)
    assert capsys.readouterr() == ("", "")


def test_tensorboard_must_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match="tensorboard=True needs tensorboard: pip install"):
        fit(small(tmp_path, tensorboard=True), tmp_path / "out", quiet=True)


def test_tensorboard_gets_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[str, float, int]] = []
    closed: list[bool] = []

    class Writer:
        def __init__(self, folder: str, purge_step: int) -> None:
            assert (folder, purge_step) == (str(tmp_path / "out" / "tensorboard"), 1)

        def add_scalar(self, name: str, value: float, step: int) -> None:
            found.append((name, value, step))

        def close(self) -> None:
            closed.append(True)

    module = types.ModuleType("tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    fit(small(tmp_path, steps=3, tensorboard=True), tmp_path / "out", quiet=True)
    expected = [(n, v, line["step"]) for line in metrics(tmp_path / "out") for n, v in line.items()]
    numbers = [entry for entry in expected if isinstance(entry[1], float)]
    assert [entry for entry in found if entry[0] != "tokens_per_second"] == numbers
    assert closed == [True]


@pytest.mark.parametrize("most", [1.0, 100.0])
def test_clipping_is_that_of_torch(most: float) -> None:
    """Gradients below the limit are left as they are, to the bit."""

    def weights() -> list[torch.nn.Parameter]:
        made = [torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(2, 2))]
        for i, p in enumerate(made):
            p.grad = torch.arange(p.numel(), dtype=torch.float32).view_as(p) + i
        return [*made, torch.nn.Parameter(torch.zeros(1))]  # one that learns nothing

    ours, theirs = weights(), weights()
    assert train._clip_gradients(ours, most) == float(torch.nn.utils.clip_grad_norm_(theirs, most))
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(ours[:2], theirs[:2], strict=True))
    assert ours[2].grad is None
