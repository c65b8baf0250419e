"""Probabilities of answers against enumeration: one pass, every answer of the vocabulary written down."""

from __future__ import annotations

import itertools
import json
import math
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import redraft_here

import redraft
from redraft.core import ByteTokenizer, Interpolating
from redraft.models import BlockCausal, Causal
from redraft.tasks import ArgumentError, count_calls
from tests.tasks.test_generate import MODEL, WORDS, model_of


def said(template: str) -> torch.Tensor:
    """(holes, V) log-probabilities of all masked positions, straight from the model."""
    canvas = MODEL.compose([template])
    with torch.no_grad():
        return MODEL.eval().predict(canvas.z, canvas.time(torch.ones(1, 1)), canvas.context).at(~canvas.fixed).double()


def test_probabilities_are_those_of_enumeration() -> None:
    words = WORDS.words[:6]
    answers = [" ".join(pair) for pair in itertools.product(words, repeat=2)]
    with count_calls(MODEL) as counted:
        (found,) = redraft.choose(MODEL, "the [[?]] sat on the mat.", answers)
    assert counted.rows == 1
    log_p = said("the [[2]] sat on the mat.")
    expected = {a: math.exp(float(sum(log_p[i, t] for i, t in enumerate(WORDS.encode(a))))) for a in answers}
    for answer, p, log in zip(answers, found.probabilities, found.log_probs, strict=True):
        assert p == pytest.approx(expected[answer] / sum(expected.values()), rel=1e-5)
        assert log == pytest.approx(math.log(expected[answer]), abs=1e-5)
    assert found.best == max(expected, key=lambda answer: expected[answer])
    assert set(found.tokens) == {2}


def test_all_answers_together_are_certain() -> None:
    """Every token that may stand in the middle of a text, unknown words included, sums to one."""
    (found,) = redraft.choose(MODEL, "a [[?]].", [*WORDS.words])
    rest = said("a [[1]].")[0, WORDS.unknown].exp()
    assert sum(map(math.exp, found.log_probs)) + float(rest) == pytest.approx(1, abs=1e-5)
    assert sum(found.probabilities) == pytest.approx(1)


def test_answers_of_other_lengths_have_canvases_of_their_own() -> None:
    with count_calls(MODEL) as counted:
        found = redraft.choose(MODEL, "the [[?]] sat.", ["cat", "mat", "big cat"])
    assert counted.rows == 2
    assert not found.comparable
    one, two = said("the [[1]] sat."), said("the [[2]] sat.")
    cat, big = WORDS.encode("cat")[0], WORDS.encode("big")[0]
    scores = [one[0, cat], one[0, WORDS.encode("mat")[0]], two[0, big] + two[1, cat]]
    assert found[0].probabilities == pytest.approx(torch.stack(scores).softmax(0).tolist(), rel=1e-5)


def test_several_holes_and_templates_share_the_pass() -> None:
    with count_calls(MODEL) as counted:
        found = redraft.choose(MODEL, ["the [[?]] sat on [[?]] mat.", "a [[?]] [[2]]."], ["cat", "big"])
    assert counted.rows == 3 == len(found)
    assert [each.hole for each in found] == [0, 1, 0]
    assert found.comparable
    alone = redraft.choose(MODEL, "a [[?]] [[2]].", ["cat", "big"])
    assert alone[0].probabilities == pytest.approx(found[2].probabilities, rel=1e-5)
    own = redraft.choose(MODEL, "the [[?]] sat on [[?]] mat.", [["cat", "big"], ["a", "the"]])
    assert own[1].answers == ("a", "the")


@pytest.mark.parametrize(
    ("template", "answers", "line"),
    [
        ("the cat", ["a", "the"], "has no hole for the answers; write [[?]]"),
        ("the [[x]] [[?]]", ["a", "the"], "the hole [[x]] is invalid; write [[?]]"),
        ("the [[*]] [[?]]", ["a", "the"], "the hole [[*]] is invalid"),
        ("the [[?]]", "cat", "answers='cat': give a list of texts"),
        ("the [[?]]", ["cat"], "give 2 to 10,000 answers"),
        ("the [[?]]", ["cat", "cat"], "answers without duplicates"),
        ("the [[?]]", [["cat", "mat"], ["a", "the"]], "2 lists for 1 holes"),
        ("the [[?]]", ["cat", 7], "give one list for each"),
        ("the [[?]]", ["cat", ""], "the answer '' has no tokens"),
        ("the [[?]]", ["cat", "zebra"], "this model does not know 'zebra'"),
        ([], ["cat", "mat"], "templates=[]: give at least one text"),
    ],
)
def test_wrong_questions_are_one_clear_line(template: Any, answers: Any, line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line)) as error:
        redraft.choose(MODEL, template, answers)
    assert "\n" not in str(error.value)
    assert isinstance(error.value, ArgumentError) or "zebra" in line


def next_to(model: redraft.DiffusionLM, ids: list[int], hidden: int) -> torch.Tensor:
    """(hidden, V) what the network says of as many masks behind these ids; no cache, nothing clean beside the row."""
    z = torch.tensor([[*ids, *[WORDS.vocab.masked] * hidden]])
    where = torch.arange(z.shape[1])[None] >= len(ids)
    with torch.no_grad():
        return model.eval().predict(z, where.double(), redraft.Context()).at(where).double()


CAUSAL, BLOCKS = model_of(Causal(start=WORDS.vocab.size - 1)), model_of(BlockCausal(4))
BOS = [WORDS.vocab.bos or 0]


def test_causal_answers_are_exact_with_the_text_after_them() -> None:
    answers = ["cat", "big cat", "mat on a"]
    with count_calls(CAUSAL) as counted:
        found = redraft.choose(CAUSAL, "the [[?]] sat on.", answers)
    assert counted.rows == 3
    assert found.kind == "causal"
    assert found.to_json()[0]["kind"] == "causal"
    assert found.comparable
    for answer, log in zip(answers, found[0].log_probs, strict=True):
        row, begin = [*BOS, *WORDS.encode(f"the {answer} sat on.")], len(BOS) + 1
        expected = sum(float(next_to(CAUSAL, row[:i], 1)[0, row[i]]) for i in range(begin, len(row)))
        assert log == pytest.approx(expected, abs=1e-4)
    assert found[0].probabilities == pytest.approx(torch.tensor(found[0].log_probs).softmax(0).tolist(), rel=1e-4)


def test_causal_answers_at_the_end_sum_to_one() -> None:
    """All pairs of words, and whatever is no word: P(first)·P(second | first) in one row for each first."""
    words = [*WORDS.words]
    answers = [" ".join(pair) for pair in itertools.product(words, repeat=2)]
    with count_calls(CAUSAL) as counted:
        (found,) = redraft.choose(CAUSAL, "the [[?]]", answers)
    assert counted.rows == len(words)
    rest, total = [i for i in range(WORDS.vocab.size) if i not in set(WORDS.encode(" ".join(words)))], 0.0
    given = [*BOS, *WORDS.encode("the")]
    first = next_to(CAUSAL, given, 1)[0].exp()
    for word in words:
        total += float(
            first[WORDS.encode(word)[0]] * next_to(CAUSAL, [*given, *WORDS.encode(word)], 1)[0].exp()[rest].sum()
        )
    assert sum(map(math.exp, found.log_probs)) + total + float(first[rest].sum()) == pytest.approx(1, abs=1e-4)


def test_blocks_are_read_one_behind_the_other() -> None:
    """A hole in one block takes a row; one that reaches into the next is read given its own first part."""
    with count_calls(BLOCKS) as counted:
        inside = redraft.choose(BLOCKS, "the [[?]]", ["cat sat", "big mat"])
    assert counted.rows == 1
    assert inside.kind == "blocks"
    left = [*BOS, *WORDS.encode("the")]
    said = next_to(BLOCKS, left, 2)
    ids = [WORDS.encode(answer) for answer in ("cat sat", "big mat")]
    assert inside[0].log_probs == pytest.approx([float(said[0, a] + said[1, b]) for a, b in ids], abs=1e-4)
    answers = ["cat mat", "cat big", "on mat"]
    with count_calls(BLOCKS) as counted:
        across = redraft.choose(
            BLOCKS, "the cat [[?]]", answers
        )  # with the start token, one place is left of the block
    assert counted.rows == 2  # the first word decides what the second is read behind
    left = [*BOS, *WORDS.encode("the cat")]
    for answer, log in zip(answers, across[0].log_probs, strict=True):
        a, b = WORDS.encode(answer)
        expected = next_to(BLOCKS, left, 1)[0, a] + next_to(BLOCKS, [*left, a], 1)[0, b]
        assert log == pytest.approx(float(expected), abs=1e-3)


def test_unicode_answers_of_several_tokens() -> None:
    model, answers = model_of(tokenizer=ByteTokenizer()), ["é", "日本", "a b", "😀"]
    (found,) = redraft.choose(model, "x [[?]] y", answers)
    assert found.tokens == tuple(len(answer.encode()) for answer in answers)
    assert sum(found.probabilities) == pytest.approx(1)
    (causal,) = redraft.choose(
        model_of(Causal(start=ByteTokenizer().vocab.size - 1), tokenizer=ByteTokenizer()), "x [[?]] y", answers
    )
    assert causal.answers == tuple(answers)


def test_other_models_are_refused() -> None:
    with pytest.raises(ArgumentError, match="cannot predict a hole that follows an unfilled one"):
        redraft.choose(CAUSAL, "a [[2]] [[?]]", ["cat", "mat"])
    with pytest.raises(ArgumentError, match="ask about one hole at a time, the first one first"):
        redraft.choose(BLOCKS, "a [[?]] on [[?]]", ["cat", "mat"])
    with pytest.raises(ValueError, match="choose needs a model with mask noise, but this one has Interpolating"):
        redraft.choose(model_of(process=Interpolating(WORDS.vocab)), "a [[?]]", ["cat", "mat"])


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return redraft_here(*words)


def test_the_shell_chooses_too(tmp_path: Path) -> None:
    redraft.export(tmp_path / "model", MODEL)
    found = run("choose", str(tmp_path / "model"), "the [[?]] sat.", "--answers", "cat", "mat", "--json")
    assert found.returncode == 0, found.stderr
    expected = redraft.choose(MODEL, "the [[?]] sat.", ["cat", "mat"])[0]
    assert json.loads(found.stdout)["probabilities"] == pytest.approx(list(expected.probabilities), rel=1e-4)
    wrong = run("choose", str(tmp_path / "model"), "the cat sat.", "--answers", "cat", "mat")
    assert wrong.returncode == 2
    assert "has no hole for the answers" in wrong.stderr
    assert "Traceback" not in wrong.stderr
