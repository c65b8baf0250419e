"""Which precision, whatever the CPU does: traps, hangs, slow and fast bf16 are injected into the child of the trial."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import pytest
import torch
import train_child as child

from redraft.core import Precision, PrecisionError, block_shapes, choose_precision
from redraft.core.hardware import forked, precision
from redraft.core.hardware.precision import _BELOW_AMX, _ISA_ENV, _PRECISION_ENV, _TYPICAL_SHAPES
from redraft.training import (
    fit,
    loop as train,
    setup,
    state,
)
from redraft.training.distributed import (
    _Workers,
)

Trial = Callable[[object], float]


def traps(_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGILL)
    raise AssertionError("unreachable")


def traps_with_tiles(_: object) -> float:
    return 0.5 if os.environ.get(_ISA_ENV) == _BELOW_AMX else traps(_)


def slow_without_tiles(_: object) -> float:
    return 1.7 if os.environ.get(_ISA_ENV) == _BELOW_AMX else traps(_)


def hangs(_: object) -> float:
    time.sleep(60)
    return 0.0


def ratio(value: float) -> Trial:
    return lambda _: value


Inject = Callable[[Trial], None]


@pytest.fixture
def inject(monkeypatch: pytest.MonkeyPatch) -> Inject:
    """Another CPU: what its trial does, in the child. Nothing is known and nothing is set yet."""
    monkeypatch.setattr(precision, "_known", {})
    monkeypatch.delenv(_PRECISION_ENV, raising=False)
    monkeypatch.setenv(_ISA_ENV, "")  # so that it is restored whatever the trial sets
    monkeypatch.delenv(_ISA_ENV)
    return lambda trial: monkeypatch.setattr(precision, "_bf16_time_ratio", trial)


needs_fork = pytest.mark.skipif(not forked._can_fork(), reason="no fork")


@needs_fork
@pytest.mark.parametrize(
    ("trial", "name", "words", "isa"),
    [
        (ratio(0.45), "bf16", "bf16 takes 0.45 × the time of fp32", None),
        (ratio(0.95), "fp32", "bf16 takes 0.95 × the time of fp32", None),
        (ratio(100.0), "fp32", "bf16 takes 100.00 × the time of fp32", None),
        (traps, "fp32", "a bf16 product dies of SIGILL", None),
        (
            traps_with_tiles,
            "bf16",
            f"0.50 × the time of fp32 here, with {_ISA_ENV}={_BELOW_AMX}; without, it dies",
            _BELOW_AMX,
        ),
        (slow_without_tiles, "fp32", f"1.70 × the time of fp32 here, with {_ISA_ENV}={_BELOW_AMX}", _BELOW_AMX),
    ],
)
def test_auto_on_every_kind_of_cpu(inject: Inject, trial: Trial, name: str, words: str, isa: str | None) -> None:
    inject(trial)
    choice = choose_precision()
    assert choice.name == name
    assert words in choice.reason
    assert os.environ.get(_ISA_ENV) == isa


@needs_fork
def test_a_hang_is_fp32(inject: Inject, monkeypatch: pytest.MonkeyPatch) -> None:
    inject(hangs)
    monkeypatch.setattr(precision, "_TRIAL_SECONDS", 0.1)
    assert choose_precision() == Precision("fp32", "a bf16 product does not end within 0.1 seconds")


@needs_fork
def test_an_instruction_set_of_the_users_is_left_alone(inject: Inject, monkeypatch: pytest.MonkeyPatch) -> None:
    inject(traps_with_tiles)
    monkeypatch.setenv(_ISA_ENV, "AVX512_CORE_AMX")
    assert choose_precision().name == "fp32"
    assert os.environ[_ISA_ENV] == "AVX512_CORE_AMX"


@needs_fork
def test_a_trial_is_remembered_for_its_shapes(inject: Inject, tmp_path: Path) -> None:
    def count(shapes: object) -> float:
        with (tmp_path / "trials").open("a") as file:
            file.write(f"{shapes}\n")
        return 0.5

    inject(count)
    for shapes in (_TYPICAL_SHAPES, _TYPICAL_SHAPES, block_shapes(8, 16, 32), _TYPICAL_SHAPES):
        assert choose_precision(shapes=shapes).name == "bf16"
    assert (tmp_path / "trials").read_text().splitlines() == [str(_TYPICAL_SHAPES), "((8, 16, 32), (8, 16, 16))"]
    assert block_shapes(10**6, 8192, 10**5) == ((256, 512, 2048), (256, 512, 512))


@needs_fork
def test_who_asks_first(inject: Inject, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run, then the environment, then how a resumed run began, then the trial."""
    inject(ratio(1.7))
    assert choose_precision("fp32") == Precision("fp32", "the run asks for fp32")
    assert choose_precision("bf16") == Precision(
        "bf16", "the run asks for bf16; bf16 takes 1.70 × the time of fp32 here"
    )
    assert choose_precision(held="bf16").reason == "the run began in bf16; bf16 takes 1.70 × the time of fp32 here"
    assert choose_precision(held="fp32").name == "fp32"
    monkeypatch.setenv(_PRECISION_ENV, "bf16")
    assert choose_precision(held="fp32").reason.startswith("REDRAFT_PRECISION=bf16; ")
    assert choose_precision("fp32").name == "fp32"
    monkeypatch.setenv(_PRECISION_ENV, "fp32")
    assert choose_precision(held="bf16") == Precision("fp32", "REDRAFT_PRECISION=fp32")
    monkeypatch.setenv(_PRECISION_ENV, "auto")
    assert choose_precision().name == "fp32"


def test_a_wrong_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_PRECISION_ENV, "fp8")
    with pytest.raises(PrecisionError, match="REDRAFT_PRECISION=fp8: it must be fp32, bf16 or auto"):
        choose_precision()
    assert choose_precision("fp32").name == "fp32"


@needs_fork
@pytest.mark.parametrize(
    ("wish", "variable", "held", "words"),
    [
        (
            "bf16",
            None,
            None,
            "the run asks for bf16, but .* dies of SIGILL .* use --precision fp32 .*ONEDNN_MAX_CPU_ISA=",
        ),
        ("auto", "bf16", None, "REDRAFT_PRECISION=bf16, but .* dies of SIGILL .* set REDRAFT_PRECISION=fp32"),
        ("auto", None, "bf16", "the run began in bf16, but .* or set REDRAFT_PRECISION=fp32: no longer bit for bit"),
    ],
)
def test_bf16_that_cannot_be(
    inject: Inject, monkeypatch: pytest.MonkeyPatch, wish: str, variable: str | None, held: str | None, words: str
) -> None:
    inject(traps)
    if variable:
        monkeypatch.setenv(_PRECISION_ENV, variable)
    with pytest.raises(PrecisionError, match=words):
        choose_precision(wish, held=held)  # type: ignore[arg-type]


@needs_fork
def test_bf16_that_needs_fewer_instructions(inject: Inject) -> None:
    inject(slow_without_tiles)
    assert choose_precision("bf16").name == "bf16"
    assert os.environ[_ISA_ENV] == _BELOW_AMX


def test_without_fork(inject: Inject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    inject(ratio(0.1))
    assert choose_precision() == Precision("fp32", "a bf16 product cannot be tried safely on this system (no fork)")
    assert choose_precision("bf16").reason.startswith("the run asks for bf16; not tried")


def test_on_gpus(inject: Inject, monkeypatch: pytest.MonkeyPatch) -> None:
    """No trial: what the driver says is so."""
    gpu = torch.device("cuda")
    monkeypatch.setattr(precision, "run_forked", lambda *_: pytest.fail("no trial on a GPU"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "an old GPU")
    for has, name in ((True, "bf16"), (False, "fp32")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, has=has: has)
        assert choose_precision(device=gpu).name == name
    with pytest.raises(PrecisionError, match="an old GPU has no bf16"):
        choose_precision("bf16", gpu)
    assert choose_precision(device=torch.device("mps")).name == "fp32"


@needs_fork
@pytest.mark.parametrize("before", ["", "torch.ones(500, 500) @ torch.ones(500, 500)"], ids=["fresh", "used"])
def test_auto_on_this_very_machine(before: str) -> None:
    """Whatever CPU it is: an answer with a reason, and then a product in that precision that does not crash."""
    code = (
        f"import torch; {before}\nfrom redraft.core import choose_precision\nc = choose_precision(); print(c)\n"
        "a = torch.ones(64, 64, dtype=c.dtype); assert float((a @ a).sum()) == 64**3"
    )
    clean = {k: v for k, v in os.environ.items() if k not in (_ISA_ENV, _PRECISION_ENV)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(("fp32 (", "bf16 ("))


# --- in a run ---


def recorded(out: Path) -> str:
    return json.loads((out / "run.json").read_text())["precision"]["name"]


@needs_fork
def test_a_run_says_and_records_it(inject: Inject, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inject(ratio(1.234))
    setup._printed.clear()
    run, out = child.small(tmp_path, steps=2, log_every=1, precision="auto"), tmp_path / "out"
    fit(run, out)
    fit(replace(run, seed=1, batch=7), tmp_path / "another")  # of other shapes
    assert capsys.readouterr().err.count("precision: ") == 1
    saved = json.loads((out / "run.json").read_text())["precision"]
    assert saved == {"name": "fp32", "reason": "bf16 takes 1.23 × the time of fp32 here"}
    assert [m.get("precision") for m in child.metrics(out) if "gradient_norm" in m] == ["fp32", "fp32"]


@needs_fork
def test_a_resumed_run_keeps_its_precision(
    inject: Inject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Begun where fp32 is faster, resumed where bf16 is: the same bits as without interruption."""
    inject(ratio(1.7))
    run, whole, out = child.small(tmp_path, steps=6, precision="auto"), tmp_path / "whole", tmp_path / "out"
    fit(run, whole, quiet=True)
    shorten(monkeypatch, 3, lambda: fit(run, out, quiet=True))
    monkeypatch.setattr(precision, "_known", {})
    inject(ratio(0.4))
    setup._printed.clear()
    fit(run, out)
    assert "precision: fp32 (the run began in fp32)" in capsys.readouterr().err
    assert child.end(out) == child.end(whole)


@needs_fork
def test_a_run_begun_in_bf16_where_bf16_traps(
    inject: Inject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inject(ratio(1.0))
    run, out = child.small(tmp_path, steps=6, precision="auto"), tmp_path / "out"
    shorten(monkeypatch, 3, lambda: fit(run, out, quiet=True))
    file = out / "run.json"
    file.write_text(file.read_text().replace('"name": "fp32"', '"name": "bf16"'))
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    monkeypatch.setattr(precision, "_known", {})
    inject(traps)
    with pytest.raises(PrecisionError, match="the run began in bf16"):
        fit(run, out, quiet=True)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    monkeypatch.setenv(_PRECISION_ENV, "fp32")
    fit(run, out)
    assert "until now bf16, so no longer bit for bit" in capsys.readouterr().err
    assert recorded(out) == "fp32"


@dataclass(frozen=True)
class Fellow(_Workers):
    """One of two workers; what the first says reaches the other."""

    said: list[int] = field(default_factory=list)

    def agree(self, number: int) -> int:
        if self.first:
            self.said.append(number)
        return self.said[-1]


@needs_fork
@pytest.mark.parametrize(("first", "other", "name"), [(0.5, 1.7, "bf16"), (1.7, 0.5, "fp32")])
def test_workers_follow_the_first(
    inject: Inject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, first: float, other: float, name: str
) -> None:
    run, said, found = child.small(tmp_path, precision="auto"), [], []
    for rank, value in enumerate((first, other)):
        monkeypatch.setattr(precision, "_known", {})
        inject(ratio(value))
        found.append(setup._agree_on_precision(run, Fellow(rank, 2, torch.device("cpu"), said), None).name)
    assert found == [name, name]


@needs_fork
def test_no_worker_waits_for_a_first_one_that_cannot(inject: Inject, tmp_path: Path) -> None:
    inject(traps)
    run, said = child.small(tmp_path, precision="bf16"), []
    with pytest.raises(PrecisionError, match="dies of SIGILL"):
        setup._agree_on_precision(run, Fellow(0, 2, torch.device("cpu"), said), None)
    with pytest.raises(PrecisionError, match="the first worker cannot"):
        setup._agree_on_precision(run, Fellow(1, 2, torch.device("cpu"), said), None)


def shorten(monkeypatch: pytest.MonkeyPatch, steps: int, training: Callable[[], object]) -> None:
    """Interrupts a training after some steps."""
    usual = train._optimizer_step

    def update(run: object, state: state._TrainState, *rest: object) -> float:
        norm = usual(run, state, *rest)  # type: ignore[arg-type]
        if state.step == steps:
            os.kill(os.getpid(), signal.SIGINT)
        return norm

    with monkeypatch.context() as patch:
        patch.setattr(train, "_optimizer_step", update)
        with pytest.raises(KeyboardInterrupt):
            training()


@needs_fork
def test_the_command_line_refuses_bf16_that_traps(
    inject: Inject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from redraft.apps.cli import main

    inject(traps)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["train", "mdlm_tiny", "--steps", "1", "--precision", "bf16"])
    assert end.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("redraft: the run asks for bf16, but a bf16 product dies of SIGILL on this CPU")
    assert _ISA_ENV in said
    assert "--precision fp32" in said
    assert list(tmp_path.rglob("*.json")) == []
