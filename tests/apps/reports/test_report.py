"""`redraft report`: a page about any run, made by the command itself."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import redraft_here
from test_page import Balance

from redraft import fit
from redraft.training import Run, presets
from redraft.training.runs import variations


def report(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return redraft_here("report", *words)


def small(run: Run) -> Run:
    return replace(variations._shrunken(run), steps=4, batch=2, log_every=1, eval_every=2, eval_rows=2, samples=1)


@pytest.mark.parametrize("name", ["mdlm_tiny", "ar_tiny", "diffuseq_tiny"])
def test_the_page_of_a_run(name: str, tmp_path: Path) -> None:
    fit(small(presets.PRESETS[name]()), tmp_path / "run", quiet=True)
    found = report(tmp_path / "run", "--rows", "4", "--draws", "1", "--samples", "2", "--json")
    assert found.returncode == 0, found.stderr
    page = Path(json.loads(found.stdout)["path"])
    assert page == tmp_path / "run" / "run.html"
    text = page.read_text("utf-8")
    Balance(text)  # sound HTML
    for heading in ("From noise to text", "Learning", "The first 2 texts", "The run", "Next steps"):
        assert f"<h2>{heading}</h2>" in text
    assert ("above the truth" in text) == (name != "diffuseq_tiny")
    assert ("exactly, 4 held-out rows" in text) == (name == "ar_tiny")
    assert "https://" not in text


def test_the_page_of_the_model_that_comes_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = report("story", "--rows", "2", "--draws", "1", "--samples", "1")
    assert (found.returncode, found.stdout) == (0, "story.html\n"), found.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["story.html"]


def test_wrong_input(tmp_path: Path) -> None:
    for words, said in (
        (["nowhere"], "is not a directory"),
        ([tmp_path], "is not a model"),
        (["nowhere", "--rows", "0"], "--rows 0: it must be from 1"),
        (["nowhere", "--samples", "0"], "--samples 0: it must be from 1"),
        ([], "DIR is missing"),
    ):
        found = report(*words)
        assert (found.returncode, found.stdout) == (2, "")
        assert said in found.stderr
        assert "Traceback" not in found.stderr
