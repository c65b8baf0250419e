"""What a newcomer types: English, without naming a model."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from conftest import Say

from redraft.apps.cli import models
from redraft.apps.cli.commands import correct, serve
from redraft.models.shipped import INSTALL_SMOL, has_smol

needs_smol = pytest.mark.skipif(not has_smol(), reason=f"needs the packages of smol: {INSTALL_SMOL}")


def only(out: str) -> dict[str, Any]:
    (line,) = out.splitlines()
    record = json.loads(line)
    assert isinstance(record, dict)
    return record


@needs_smol
def test_english_is_for_smol(say: Say) -> None:
    out, err = say("infill", "She opened the [[1]] and went into the house.")
    assert out == "She opened the door and went into the house.\n"
    assert err.startswith("model: smol (it knows English)")
    out, err = say("choose", "The capital of France is [[?]].", "--answers", "Paris", "London")
    assert out.startswith("Paris 0.9")
    out, err = say("score", "The weather is nice today.")
    assert "exactly" in err
    assert 30 < float(out.split()[0]) < 60, "bits"


@needs_smol
def test_the_guide_prints_what_it_says(say: Say) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "english.md").read_text("utf-8")
    shown = re.findall(r"^\$ redraft (.*)\n(.*\n)", guide, re.MULTILINE)
    assert len(shown) >= 4
    for command, printed in shown:
        assert say(*shlex.split(command))[0] == printed


@needs_smol
def test_a_hole_gets_a_word(say: Say) -> None:
    out, _ = say("infill", "I would like to [[?]] a cup of tea, please.")
    assert out == "I would like to have a cup of tea, please.\n"
    out, _ = say("infill", "I would like to [[?]] a cup of tea, please.", "--candidates", "3", "--json")
    words = only(out)["candidates"]
    assert next(iter(words)) == "have"
    assert list(words.values()) == sorted(words.values(), reverse=True)
    assert 0.5 < sum(words.values()) <= 1.0
    _, err = say("infill", "story", "One [[?]] day, Anna walked to the garden.", "--candidates", "3", code=2)
    assert "--candidates" in err
    assert len(err.splitlines()) == 1


@needs_smol
def test_english_is_corrected_without_a_flag(say: Say) -> None:
    out, err = say("correct", "I relly like teh weather tody.", "--explain")
    assert out == "I really like the weather today.\n"
    assert "teh → the (99" in err
    assert "“tody” is a word, but “today” fits the sentence" in err
    out, _ = say("correct", "She put the keys on there table. Siobhan calls `git chekout` in Leeds.", "--diff")
    assert out == "She put the keys on [-there-]{+their+} table. Siobhan calls `git chekout` in Leeds.\n"
    _, err = say("correct", "Der Hund läuft im Park und spielt mit seinem Ball.", code=2)
    assert "smol does not know the language of" in err


@needs_smol
def test_smol_writes_left_to_right(say: Say) -> None:
    words = ("generate", "The best way to learn a language is", "--new", "8", "--json")
    out, err = say(*words)
    one = only(out)
    assert "model: smol" in err
    assert "left to right" in err
    assert one["text"].startswith("The best way to learn a language is")
    assert sum(not given for given in one["is_prompt"]) == 8
    assert one["nfe"] == 8, "a pass for each token"
    out, _ = say(*words, "--n", "2")
    first, second = map(json.loads, out.splitlines())
    assert first["text"] == one["text"] != second["text"]


@needs_smol
def test_a_sampler_by_name_diffuses(say: Say) -> None:
    _, err = say("generate", "smol", "The best way", "--new", "4", "--sampler", "confidence")
    assert "tokens by confidence, " in err
    assert "left to right" not in err


@needs_smol
def test_it_continues_texts_and_says_so(say: Say) -> None:
    _, err = say("generate", "smol", code=2)
    assert "give it a beginning" in err


def test_the_words_of_the_stories_are_for_story(say: Say) -> None:
    out, err = say("infill", "One spring day, Anna walked to the [[1]].")
    assert out.startswith("One spring day, Anna walked to the ")
    assert ("model: story (it knows these words)" in err) == has_smol()
    out, err = say("generate")
    assert "spring" in out or "One " in out
    assert ("model: story (it needs no prompt)" in err) == has_smol()


@pytest.mark.parametrize(
    "words",
    [
        ("infill", "She opened the [[1]] and left the hotel."),
        ("generate", "Hello world, I am"),
        ("score", "Hello world, I am"),
        ("choose", "The capital is [[?]].", "--answers", "Paris", "London"),
        ("correct", "I relly like teh weather tody."),
    ],
)
def test_without_smol_one_line_says_what_to_install(
    words: tuple[str, ...], say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (models, correct):
        monkeypatch.setattr(module, "has_smol", lambda: False)
    _, err = say(*words, code=2)
    assert INSTALL_SMOL in err
    assert len(err.splitlines()) == 1


def test_the_server_has_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "has_smol", lambda: True)
    assert list(serve._name_models(())) == ["smol", "story"]
    monkeypatch.setattr(serve, "has_smol", lambda: False)
    assert list(serve._name_models(())) == ["story"]
