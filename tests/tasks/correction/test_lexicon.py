"""The recipe of a lexicon: Penn tags become Universal ones, unknown words are told by their form."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "recipes"))

import control

LINES = [
    ";;; a list",
    "pub NN",
    "Chinese JJ",
    "near IN",
    "rated VBN",
    "the DT",
    "London NNP",
    ". .",
    "who WP",
    "can MD",
]


def test_words_have_kinds() -> None:
    said = ["The", "pub", "near", "London", ",", "cosily", "rated", "5", ";", "family-friendly", "Alimentum", "can"]
    found = control.lexicon(said, control.penn(LINES))
    assert found["The"] == "DET", "in lower case it is known"
    kinds = {"pub": "NOUN", "near": "ADP", "London": "PROPN", ",": "PUNCT", "rated": "VERB", "can": "AUX"}
    assert {word: found[word] for word in kinds} == kinds
    forms = {"cosily": "ADV", "5": "NUM", ";": "PUNCT", "family-friendly": "ADJ", "Alimentum": "PROPN"}
    assert {word: found[word] for word in forms} == forms


def test_without_the_list_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "text.txt").write_text("The pub.")
    with pytest.raises(SystemExit, match="pip install textblob"):
        control.lexicon_main([str(tmp_path / "text.txt"), "--write", str(tmp_path / "lexicon.json")])
