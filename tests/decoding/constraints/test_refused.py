"""What cannot be obeyed is one clear line, before the network is asked."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch

import redraft
from redraft import Constrained, Json, Masked, Regex, Rule, constrain
from redraft.core import CharTokenizer
from redraft.decoding import Banned, Length, OneOf, Required, hole_mask
from redraft.decoding.constraints import compiler
from redraft.decoding.constraints.token_bytes import _token_bytes
from tests.decoding.constraints.test_outputs import BPE, WORDS, model_of
from tests.decoding.constraints.toys import LETTERS, VOCAB, Said, blank, said


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: Regex(7), "7 is not a pattern; give a string"),
        (lambda: Regex("\ud800"), "a pattern has a lone surrogate"),
        (lambda: Json([1]), "the JSON schema is [1]; give an object"),
        (lambda: Json("{"), "the JSON schema is not JSON"),
        (lambda: Json({"a": {1}}), "the JSON schema is not JSON"),
        (lambda: OneOf(), "OneOf() is empty; give at least one text"),
        (lambda: Banned(""), "Banned got an empty word, which every text contains"),
        (lambda: Length(-1), "least=-1; it must be a whole number of tokens, 0 or more"),
        (lambda: Length(5, 2), "least=5 is above most=2; it must be at most 2"),
        (lambda: Length(5) & Length(0, 2) and (Length(5) & Length(0, 2)).length, "least=5 is above most=2"),
    ],
)
def test_a_wrong_rule_is_refused(make: Callable[[], Rule], line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line)) as error:
        make()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (Regex("("), "the pattern '(' cannot be read: unbalanced brackets"),
        (Regex("a)|(b"), "cannot be read"),
        (Regex(r"(?=a)a"), "look-around or a backreference"),
        (Regex(r"(a)\1"), "a backreference, which are not supported"),
        (Regex(r"\bcat\b"), r"has \b, which depends on neighboring text"),
        (Regex("[a&&b]"), "matches no text at all"),
        (Regex("a" * 30_000), "has 30,013 characters"),
        (Json({"type": "tuple"}), "'type' at # is 'tuple', which is not a JSON type"),
        (Regex("cat") & Banned("cat"), "no text obeys all of"),
        (Regex("the zebra"), "the vocabulary cannot spell any text that obeys Regex(pattern='the zebra')"),
        (Regex("(cat ){20}cat"), "has at least 21 tokens, but there is room for 6"),
        (Regex("cat") & Length(3), "no text of 6 tokens obeys"),
        (Length(9), "at least 9 tokens, but there is room for 6"),
    ],
)
def test_a_rule_that_nothing_obeys_is_refused(rule: Rule, line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line)) as error:
        constrain(model_of(WORDS).canvas(new=6), rule, WORDS)
    assert "\n" not in str(error.value)


def test_given_text_may_contradict() -> None:
    with pytest.raises(ValueError, match=r"no text of 6 tokens with the given 'big dog' obeys"):
        constrain(model_of(WORDS).canvas("big dog", new=4), Regex("the .*"), WORDS)


def test_a_hole_in_the_middle_cannot_end_early() -> None:
    canvas = model_of(WORDS).compose(["the [[3]] sat"])
    with pytest.raises(ValueError, match="and the text cannot end before them"):
        constrain(canvas, OneOf("cat"), WORDS, hole_mask(canvas))
    with pytest.raises(ValueError, match="index=1; it must be the index of a hole in every row, below 1"):
        hole_mask(canvas, 1)


def test_without_an_end_token_the_room_is_filled() -> None:
    letters = CharTokenizer("ab")
    canvas = redraft.Canvas(torch.full((1, 4), 2), torch.zeros(1, 4, dtype=torch.bool))
    assert constrain(canvas, Regex("(ab){2}"), letters).context.constraints.rules is not None
    with pytest.raises(ValueError, match="the text cannot end before them"):
        constrain(canvas, Regex("ab"), letters)


def test_two_rules_need_columns_of_their_own() -> None:
    canvas = constrain(blank(4), Regex("a*"), LETTERS)
    with pytest.raises(ValueError, match="two rules cover the same columns; join them with &"):
        constrain(canvas, Regex("a*"), LETTERS)


def test_a_rule_that_nobody_obeys_is_noticed() -> None:
    model = model_of(WORDS)
    canvas = constrain(model.canvas(new=4), Length(2, 3), WORDS)
    with pytest.raises(ValueError, match="the canvas has constraints, but the model is not wrapped"):
        redraft.decoding.final_canvas(redraft.Unmask(2)(model, model.process, canvas, rng=redraft.rng(0)))
    plain = blank(2)
    with pytest.raises(ValueError, match="the canvas has no constraint"):
        Constrained(Masked(VOCAB))(Said(said(2, 0))).predict(plain.z, torch.ones(1, 1), plain.context)


@pytest.mark.parametrize(
    "sampler",
    [redraft.decoding.SelfCorrection(), redraft.decoding.Euler(), redraft.decoding.NoisedPrompt(redraft.Ancestral(2))],
    ids=str,
)
def test_samplers_that_write_token_by_token_are_refused(sampler: Any) -> None:
    process = redraft.Interpolating(VOCAB)
    canvas = constrain(blank(3), Regex("a*"), LETTERS)
    with pytest.raises(ValueError, match="cannot obey rules"):
        redraft.decoding.final_canvas(
            sampler(Constrained(process)(Said(said(3, 0))), process, canvas, rng=redraft.rng(0))
        )


def test_other_noise_is_refused() -> None:
    with pytest.raises(ValueError, match="scale=-1; it must be at least 0"):
        Constrained(redraft.Gaussian(WORDS.vocab), -1)
    canvas = constrain(blank(2), Regex("a*"), LETTERS)
    markov: Any = redraft.Markov(VOCAB, redraft.core.UniformRates())
    with pytest.raises(ValueError, match="Markov noise cannot obey rules"):
        Constrained(markov)(Said(said(2, 0))).predict(canvas.z, torch.ones(1, 2), canvas.context)


def test_the_package_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=re.escape("pip install 'redraft[patterns]'")):
        constrain(blank(3), Regex("a{3}|b(a|b)"), LETTERS)
    monkeypatch.setitem(sys.modules, "outlines_core", ModuleType("outlines_core"))
    constrain(blank(3), OneOf("ab") | Required("b"), LETTERS)  # needs no package


def test_a_tokenizer_that_joins_otherwise_is_refused() -> None:
    definition = json.loads(BPE.definition) | {"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}
    with pytest.raises(ValueError, match="constraints do not support a tokenizer with the decoder WordPiece"):
        _token_bytes(replace(BPE, definition=json.dumps(definition)))
