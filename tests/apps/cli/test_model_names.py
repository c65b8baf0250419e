"""What a command line can name: shipped models wherever a directory is taken, samplers, windows; and wrong names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from redraft.decoding import SAMPLER_NAMES, SOLVER_NAMES
from redraft.models.diffusion_lm import DiffusionLM
from redraft.tasks import generate
from redraft.training import presets

Say = Callable[..., tuple[str, str]]


def test_shipped_models_are_named_like_directories(say: Say, tmp_path: Path) -> None:
    assert "Masked; 2 × 128" in say("show", "story")[0]
    errors = ("gstar_tiny", "--base", "story", "--steps", 1, "--samples", 0, "--eval-rows", 1, "--quiet")
    say("train", *errors, "--batch", 2, "--out", tmp_path / "errors")
    assert json.loads(say("show", tmp_path / "errors", "--json")[0])["config"]["base"] == "story"


def test_unknown_words_are_not_noised(say: Say) -> None:
    out, err = say("noise", "story", "Anna met xyzzy", code=2)
    assert out == ""
    assert "does not know 'met', 'xyzzy'" in err


def test_texts_of_any_length_are_written_in_windows(say: Say) -> None:
    """The error for too long a text names the way, and the way works; rules apply to whole texts only."""
    _, err = say("generate", "story", "--max-new-tokens", 150, code=2)
    assert "150 tokens are too many: this network has 69 positions" in err
    assert "window after window with --window 68" in err
    words = ("generate", "story", "--max-new-tokens", 150, "--steps", 4, "--end-token", "never")
    (line,) = say(*words, "--window", 68, "--stride", 51, "--json")[0].splitlines()
    assert json.loads(line)["text"].count(" ") > 68
    assert "it must be at most --window" in say(*words, "--stride", 51, code=2)[1]
    assert "rules apply to whole texts" in say(*words, "--window", 68, "--required", "Anna", code=2)[1]


def test_every_named_sampler_writes_with_its_kind_of_model() -> None:
    run = presets.mdlm_tiny()
    tokens = DiffusionLM(run.model, run.tokenizer).eval()
    for name in ("gibbs", "remdm", "star"):
        assert len(generate(tokens, "One", sampler=name, max_new_tokens=6, steps=8)) == 1, name
    run = presets.diffusion_lm_tiny()
    vectors = DiffusionLM(run.model, run.tokenizer).eval()
    for name in SOLVER_NAMES:
        assert len(generate(vectors, "One", sampler=name, max_new_tokens=6, steps=2)) == 1, name
    with pytest.raises(ValueError, match=r"this model draws vectors; use one of ancestral, .*ddim"):
        generate(vectors, "One", sampler="gibbs", max_new_tokens=6)
    with pytest.raises(ValueError, match="this model draws tokens; use one of ancestral, first-hitting"):
        generate(tokens, "One", sampler="heun", max_new_tokens=6)
    assert not SAMPLER_NAMES.keys() & SOLVER_NAMES.keys()


def test_points_have_no_characters(say: Say, tmp_path: Path) -> None:
    say(
        "train",
        "points_tiny",
        "--steps",
        1,
        "--samples",
        0,
        "--eval-rows",
        4,
        "--batch",
        4,
        "--out",
        tmp_path / "points",
        "--quiet",
    )
    out = say("eval", tmp_path / "points", "--rows", 8, "--samples", 0)[0]
    assert "bits per point" in out
    assert "char" not in out
    assert "token" not in out
