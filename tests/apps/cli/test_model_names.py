"""What a command line can name: shipped models wherever a directory is taken, samplers, windows; and wrong names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import table

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


@table(
    ("words", "said"),
    [
        (("genrate",), "there is no command 'genrate'; did you mean generate?"),
        (("generate", "--sampler", "greedy"), "did you mean --sampler confidence --temperature 0?"),
        (("generate", "--sampler", "confidense"), "did you mean confidence?"),
        (("generate", "--epochs", 3), "--epochs is not an option of this command (a typo?) (see"),
        (("train", "mdlm_tiny", "--epochs", 3), "did you mean --steps (a step is one --batch)?"),
        (("train", "mdlm_tiny", "--lr", 1), "did you mean --optimizer.lr?"),
        (("train", "mdlm_tiny", "--width", 8), "did you mean --model.network.width?"),
        (("generate", "--num-return-sequences", 3), "did you mean --n?"),
        (("generate", "gpt2"), "or a model of the Hugging Face hub: hf:gpt2"),
        (("generate", "stroy"), "did you mean story, a model that ships with Redraft?"),
        (("generate", "--steps", 10**9), "--steps 1000000000: it must be from 1 to 1,000,000"),
        (("train", "mdlm_tiny", "--steps", 10**9), "--steps 1000000000: it must be from 1 to 100,000,000"),
        (("compare", "--steps", 10**9), "--steps 1000000000: it must be from 1 to 100,000,000"),
        (("generate", "--device", "gpu"), "--device gpu: it must be auto, cpu, cuda, cuda:1"),
        (("generate", "--device", "cuda:7"), "the device cuda:7 cannot be used: torch finds"),
        (("train", "mdlm_tiny", "--device", "cuda:7"), "the device cuda:7 cannot be used: torch finds"),
        (("train", "mdlm_tiny", "--data", "--steps", 1), "--data needs a value"),
        (("train", "mdlm_tiny", "--data", ""), "--data '' is an empty name"),
    ],
)
def test_a_wrong_word_gets_the_right_hint(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    out, err = say(*words, code=2)
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["generate", "infill", "train", "adapt", "serve", "play", "eval", "compare"])
def test_the_device_is_an_option_of_what_computes(say: Say, verb: str) -> None:
    assert "--device auto|cpu|cuda|cuda:N|mps" in say(verb, "--help")[0]


def test_a_model_is_opened_where_the_flag_says(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best device would be a GPU that fails; --device cpu avoids it, in writing and in training."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: None)  # for optimizers
    words = ("generate", "--max-new-tokens", 2, "--steps", 1, "--end-token", "never")
    with pytest.raises((AssertionError, RuntimeError), match=r"CUDA|NVIDIA"):
        say(*words)
    assert len(say(*words, "--device", "cpu")[0].split()) == 2
    small = ("--steps", 1, "--batch", 2, "--eval-rows", 1, "--samples", 0, "--quiet", "--precision", "fp32")
    assert "step 1" in say("train", "mdlm_tiny", *small, "--device", "cpu", "--out", tmp_path / "one")[0]
