"""Every command and every Python block of the README and the guides runs: as it stands, but in small."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from redraft import check, cli, presets
from redraft.run import Run
from redraft.text import train_bpe
from redraft.train import fit

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
GUIDES = [page for page in (README, *sorted((ROOT / "docs").glob("*.md"))) if SHELL.search(page.read_text("utf-8"))]

SMALL_NETWORK = ["--model.network.width", "16", "--model.network.layers", "1", "--model.network.heads", "2"]
SMALL = {
    "train": [*SMALL_NETWORK, "--steps", "2", "--batch", "2", "--eval-rows", "2", "--samples", "1", "--quiet"],
    "generate": ["--steps", "4", "--new", "8"],
    "infill": ["--steps", "4"],
    "eval": ["--rows", "2", "--draws", "1", "--samples", "1"],
    "show": [],
    "check": [],
    "doctor": [],
}


def commands(page: Path) -> list[str]:
    return [line for block in SHELL.findall(page.read_text("utf-8")) for line in block.splitlines() if line]


(TORCHRUN,) = (line for line in commands(README) if line.startswith("torchrun"))


def tiny() -> Run:
    run = presets.mdlm_tiny()
    network = replace(run.model.network, width=16, layers=1, heads=2)
    return replace(run, model=replace(run.model, network=network), steps=2, batch=2, eval_rows=2, samples=1)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: Callable[[Path], None]) -> Path:
    """A directory with all that a reader is told to have: the demo's run, a published model, texts, a tokenizer."""
    published(tmp_path / "models" / "mdlm")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    fit(tiny(), "runs/demo", quiet=True)
    texts = [f"It was the {number}th day of a long and windy year." for number in range(200)]
    (tmp_path / "my_texts").mkdir()
    (tmp_path / "my_texts" / "days.txt").write_text("\n\n".join(texts))
    (tmp_path / "tokenizer.json").write_text(train_bpe(texts, 300).definition)
    return tmp_path


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_commands_run(page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(check, "check", check.forward_laws)  # all laws take minutes, and tests of their own
    monkeypatch.setattr(check, "built_in", lambda: [presets.Masked(check.VOCAB)])
    for command in commands(page):
        words = shlex.split(command)
        if words[0] == "redraft":
            cli.main([*words[1:], *SMALL[words[1]]])
            assert capsys.readouterr().out.strip(), f"{command} says nothing"
        elif words[0] == "make":
            subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, check=True, capture_output=True)
        elif words[0] == "python" and words[1].startswith("recipes/"):
            continue  # tests/test_recipes.py runs these
        elif words[0] in ("pip", "hf"):
            continue  # they need a network; tests/test_install.py holds them against the files
        else:
            assert command == TORCHRUN, f"teach this test {command!r}"


@pytest.mark.usefixtures("home")
def test_many_workers_run() -> None:
    """The line for many GPUs, with two workers of one thread each, on text that needs no network."""
    words = TORCHRUN.split()
    assert words[:4] == ["torchrun", "--standalone", "--nproc-per-node", "8"]
    start = [sys.executable, "-m", "torch.distributed.run", *words[1:3], "2", *words[4:]]
    small = [*SMALL["train"], "--data", "my_texts/days.txt", "--length", "16"]
    found = subprocess.run([*start, *small], capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    assert [line.count("bits per character") for line in found.stdout.splitlines()] == [1], "the first worker reports"


def test_commands_are_found() -> None:
    """The two commands, and all verbs that a newcomer needs."""
    found = commands(README)
    assert found[:2] == ["make demo", "make test"]
    assert {words[1] for words in map(str.split, found) if words[0] == "redraft"} >= SMALL.keys() - {"show", "doctor"}
    assert len(GUIDES) >= 4


def test_ten_lines_of_python_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they stand, but with a smaller preset."""
    monkeypatch.chdir(tmp_path)
    run = tiny()
    monkeypatch.setattr(presets, "mdlm_tiny", lambda: run)
    (block,) = PYTHON.findall(README.read_text("utf-8"))
    assert len([line for line in block.splitlines() if line]) == 10
    exec(compile(block, str(README), "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "One spring day, ▒ ▒ walked to the ▒."
    assert len(lines) == 1 + 16 + 1
    assert "▒" not in lines[16] + lines[17]


def test_targets_are_there() -> None:
    """What the README says `make` can do."""
    named = set(re.findall(r"`make ([\w-]+)`", README.read_text("utf-8")))
    assert named >= {"demo", "test", "bench"}
    for target in named:
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)
