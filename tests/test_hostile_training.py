"""Training and loading with what a careless or a hostile user gives them: one clear line, and nothing is lost."""

from __future__ import annotations

import math
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

import redraft.train
from redraft.bar import Bar
from redraft.cli import main
from redraft.cli.train import _leave
from redraft.lock import FILE, Busy, only_writer
from redraft.networks.attention import Causal
from redraft.networks.transformer import TransformerConfig
from redraft.presets import PRESETS
from redraft.run import Optimiser, Run
from redraft.text import Bytes, Tokenizer
from redraft.types import Vocab

ELSEWHERE = {"stop", "start", "seed", "temperature"}  # ids are no sizes; temperatures are tested with the samplers


def preset(name: str) -> Run:
    takes = signature(PRESETS[name]).parameters
    return PRESETS[name](**({"tokenizer": Bytes()} if "tokenizer" in takes else {}))


def numbers(value: Any) -> Iterator[tuple[Any, str, int | float]]:
    """Every number at any depth of a run that a flag could set: its holder, its name, its value."""
    if not is_dataclass(value) or isinstance(value, Tokenizer | Vocab):
        return
    for field in fields(value):
        held = getattr(value, field.name)
        if type(held) in (int, float):
            yield value, field.name, held
        yield from numbers(held)


# Settings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_no_number_of_a_preset_may_be_nonsense(name: str) -> None:
    """Not a number, and counts below zero, are refused by whatever holds them, before anything is built."""
    tried = 0
    for holder, field, value in numbers(preset(name)):
        if field in ELSEWHERE:
            continue
        with pytest.raises(ValueError):
            replace(holder, **{field: math.nan if isinstance(value, float) else -1})
        tried += 1
    assert tried > 20


@pytest.mark.parametrize(
    "wrong",
    [
        *({name: number} for name in ("lr", "muon", "eps", "weight_decay") for number in (math.nan, math.inf, -1e-3)),
        *({"ema": number} for number in (math.nan, 2.0, -0.1)),
        *({"floor": number} for number in (math.nan, -1.0, 1.5)),
        *({"clip": number} for number in (math.nan, -1.0, 0.0)),
        *({"betas": pair} for pair in ((0.9, 1.0), (math.nan, 0.9), (-0.1, 0.9))),
        {"warmup": -5},
    ],
    ids=str,
)
def test_an_optimiser_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"^{next(iter(wrong))}=.*must be"):
        Optimiser(**wrong)


def test_an_optimiser_may_stand_still_and_need_not_clip() -> None:
    assert Optimiser(lr=0.0, clip=math.inf, ema=1.0, floor=0.0, muon=0.0).warmup == 0


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_would_wrap_around(seed: int) -> None:
    with pytest.raises(ValueError, match=r"seed=.*at least 0 and at most"):
        replace(PRESETS["mdlm_tiny"](), seed=seed)


@pytest.mark.parametrize("name", ["width", "layers", "heads", "kv_heads", "head_dim", "hidden", "positions", "time"])
@pytest.mark.parametrize("size", [0, -1, 10**12])
def test_a_network_has_sizes_that_can_be(name: str, size: int) -> None:
    with pytest.raises(ValueError, match=f"^{name}={size}; it must be"):
        replace(TransformerConfig(8), **{name: size})  # type: ignore[arg-type]


def test_a_causal_network_begins_with_an_id_it_has() -> None:
    with pytest.raises(ValueError, match="one of its 8 ids; got time=None, start=8"):
        TransformerConfig(8, pattern=Causal(8))


# One writer per directory -------------------------------------------------------------------------------------------

SMALL = [
    *("--steps", "4", "--batch", "4", "--eval-rows", "4", "--samples", "1", "--precision", "fp32"),
    *("--model.network.width", "16", "--model.network.layers", "1", "--model.network.heads", "2"),
]


def train(out: Path, *more: object, code: int = 0) -> None:
    """`redraft train mdlm_tiny`, as small as can be, within this process."""
    ended: object = 0
    try:
        main(["train", "mdlm_tiny", *SMALL, "--out", str(out), *map(str, more)])
    except SystemExit as end:
        ended = end.code
    assert ended == code


def test_two_trainings_never_share_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second one ends with one line that names the first, and leaves everything as it is; readers do not wait."""
    with only_writer(tmp_path / "run"):
        train(tmp_path / "run", "--quiet", code=2)
        said = capsys.readouterr().err.splitlines()[-1]
        assert f"is being written by process {os.getpid()} on {socket.gethostname()}; wait until it ends" in said
        assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]
    train(tmp_path / "run", "--quiet")
    with only_writer(tmp_path / "run"):
        before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
        train(tmp_path / "run", "--quiet", code=2)
        assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
        main(["show", str(tmp_path / "run")])
        main(["generate", str(tmp_path / "run"), "--new", "4"])


def test_a_lock_ends_with_its_holder(tmp_path: Path) -> None:
    """Killed without mercy, a holder leaves a file behind, but no lock."""
    code = "import sys\nfrom pathlib import Path\nfrom redraft.lock import only_writer\n"
    code += "with only_writer(Path(sys.argv[1])):\n print(1, flush=True)\n input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "1\n"
    with pytest.raises(Busy, match=f"written by process {holder.pid} on "), only_writer(tmp_path):
        raise AssertionError
    holder.kill()
    holder.communicate()
    assert str(holder.pid) in (tmp_path / FILE).read_text()
    with only_writer(tmp_path):
        assert (tmp_path / FILE).read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"


def test_a_training_that_cannot_begin_leaves_the_directory_of_another_alone(tmp_path: Path) -> None:
    """It has no claim on it yet, so that it looks fresh."""
    with only_writer(tmp_path / "run"):
        _leave(tmp_path / "run")
        assert (tmp_path / "run" / FILE).exists()
    _leave(tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Being asked to stop, and how far it is -------------------------------------------------------------------------------


def stopping(patch: pytest.MonkeyPatch, number: int) -> None:
    """A signal after the second step."""
    update = redraft.train.update

    def signalled(run: Run, state: Any, *rest: Any) -> float:
        norm = update(run, state, *rest)
        if state.step == 2:
            os.kill(os.getpid(), number)
        return norm

    patch.setattr(redraft.train, "update", signalled)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_training_says_what_it_saved(
    number: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    with monkeypatch.context() as patch:
        stopping(patch, number)
        train(tmp_path, code=code)
    signal.signal(signal.SIGINT, before)
    assert f"stopped, with a checkpoint at step 2 in {tmp_path}; the same command goes on" in capsys.readouterr().err
    train(tmp_path)
    assert "going on at step 2 of 4" in capsys.readouterr().err


def test_progress_without_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path / "loud")
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("training: ")]
    assert len(told) == 1  # a run of less than ten seconds: only its end
    assert re.fullmatch(
        r"training: step 4 of 4, loss \S+ bits/token, \S+ tokens/s; held out \S+ bits/char \(\+\S+\), "
        r"\d:\d\d:\d\d passed, 0:00:00 left",
        told[0],
    )
    train(tmp_path / "quiet", "--quiet")
    assert "training: " not in capsys.readouterr().err


def test_a_line_of_progress_comes_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Bar("training", 3, seconds=0.0)
    bar.update(1)
    bar.note = "loss 2 bits/token"
    bar.update(2)
    bar.close()
    one, two = capsys.readouterr().err.splitlines()
    assert one.startswith("training: step 1 of 3, 0:00:00 passed")
    assert two.startswith("training: step 2 of 3, loss 2 bits/token, 0:00:00 passed")
    Bar("training", 3, shown=False, seconds=0.0).update(1)
    assert capsys.readouterr().err == ""


def test_a_missing_package_is_told_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    train(tmp_path / "run", "--tensorboard", code=2)
    assert "tensorboard=True needs tensorboard: pip install" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
