"""`redraft models`: shipped, cached and trained models, and what each can do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from redraft.apps.cli import VERBS
from redraft.models import shipped

Say = Callable[..., tuple[str, str]]
ALL = ["generate", "infill", "choose", "correct", "rewrite", "control", "score"]


def test_models_are_listed_with_what_they_can_do(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shipped, "has_smol", lambda: False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert "No trained models in runs" in say("models")[0]
    downloaded = tmp_path / "hub" / "models--org--name" / "snapshots" / "1a" / "config.json"
    downloaded.parent.mkdir(parents=True)
    downloaded.write_text("{}")
    small = ("--steps", 1, "--batch", 2, "--eval-rows", 1, "--samples", 0, "--quiet")
    say("train", "genie_tiny", *small, "--out", "runs/deep/pairs")
    (tmp_path / "runs" / "torn").mkdir()
    (tmp_path / "runs" / "torn" / "run.json").write_text("{")
    lines = map(json.loads, say("models", "--json")[0].splitlines())
    story, smol, cached, pairs, torn = lines
    assert (story["name"], story["origin"], story["tasks"], story["parameters"]) == ("story", "shipped", ALL, 507_136)
    assert (smol["tasks"], smol["origin"]) == ([], "shipped")
    assert shipped.INSTALL_SMOL in smol["note"]
    assert (cached["name"], cached["origin"]) == ("hf:org/name", "cached")
    assert (pairs["name"], pairs["tasks"], pairs["needs"]) == ("runs/deep/pairs", ["generate", "rewrite"], "source")
    assert pairs["step"] == 1
    assert torn["note"].startswith("cannot be used: ")
    out, _ = say("models", "runs/deep")
    assert out.splitlines()[0] == "Shipped"
    assert "Trained, in runs/deep" in out
    assert out.splitlines()[-1].endswith("generate rewrite  (needs --source)")
    assert "nowhere is not a directory" in say("models", "nowhere", code=2)[1]


def test_a_chat_model_says_so(say: Say) -> None:
    if not shipped.has_smol():
        pytest.skip("smol is not installed")
    _, smol, *_ = map(json.loads, say("models", "--json")[0].splitlines())
    assert smol["tasks"] == ALL
    assert smol["note"] == "(generate --chat)"
    assert smol["parameters"] > 10**8


@pytest.mark.parametrize("verb", ["generate", "infill", "choose", "score", "serve", "play", "eval", "show", "noise"])
def test_help_names_the_shipped_models(say: Say, verb: str) -> None:
    assert set(shipped.NAMES) <= set(re.findall(r"\w+", say(verb, "--help")[0]))


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_help_fits_the_terminal(say: Say, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """No line is broken, no default is empty, and groups have names for people."""
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in ([], *([verb] for verb in VERBS), ["train", "mdlm_tiny"]):
        out, _ = say(*words, "--help-all")
        assert [line for line in out.splitlines() if len(line) >= columns] == []
        assert not re.search(r"default: *[\])]", out), words
        lines = out.partition("Results go to")[0].splitlines()
        groups = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
        assert all(re.fullmatch(r"[A-Z][a-z ]+:", group) for group in groups), groups
