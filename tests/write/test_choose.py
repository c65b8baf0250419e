"""Probabilities of answers against enumeration: one pass, every answer of the vocabulary written down."""

from __future__ import annotations

import itertools
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import redraft
from redraft.networks import BlockCausal
from redraft.processes import Interpolating
from redraft.write import ArgumentError, calls
from tests.write.test_generate import MODEL, WORDS, model_of


def said(template: str) -> torch.Tensor:
    """(holes, V) log-probabilities of all masked positions, straight from the model."""
    canvas = MODEL.infill(template)
    with torch.no_grad():
        return MODEL.eval()(canvas.z, canvas.time(torch.ones(1, 1)), canvas.context).at(~canvas.fixed).double()


def test_probabilities_are_those_of_enumeration() -> None:
    words = WORDS.words[:6]
    answers = [" ".join(pair) for pair in itertools.product(words, repeat=2)]
    with calls(MODEL) as counted:
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
    with calls(MODEL) as counted:
        found = redraft.choose(MODEL, "the [[?]] sat.", ["cat", "mat", "big cat"])
    assert counted.rows == 2
    assert not found.comparable
    one, two = said("the [[1]] sat."), said("the [[2]] sat.")
    cat, big = WORDS.encode("cat")[0], WORDS.encode("big")[0]
    scores = [one[0, cat], one[0, WORDS.encode("mat")[0]], two[0, big] + two[1, cat]]
    assert found[0].probabilities == pytest.approx(torch.stack(scores).softmax(0).tolist(), rel=1e-5)


def test_several_holes_and_templates_share_the_pass() -> None:
    with calls(MODEL) as counted:
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
        ("the cat", ["a", "the"], "has no hole with answers; write [[?]]"),
        ("the [[x]] [[?]]", ["a", "the"], "the hole [[x]] is neither [[?]] nor [[n]]"),
        ("the [[*]] [[?]]", ["a", "the"], "the hole [[*]] is neither"),
        ("the [[?]]", "cat", "answers='cat': give a list of texts"),
        ("the [[?]]", ["cat"], "give at least two answers"),
        ("the [[?]]", ["cat", "cat"], "each of them once"),
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


def test_other_models_are_refused() -> None:
    with pytest.raises(ValueError, match="writes from left to right"):
        redraft.choose(model_of(BlockCausal(4)), "a [[?]]", ["cat", "mat"])
    with pytest.raises(ValueError, match="choose reads masked holes, but this model has Interpolating noise"):
        redraft.choose(model_of(process=Interpolating(WORDS.vocab)), "a [[?]]", ["cat", "mat"])


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "redraft.cli", *words], capture_output=True, text=True, check=False)


def test_the_shell_chooses_too(tmp_path: Path) -> None:
    redraft.export(tmp_path / "model", MODEL)
    found = run("choose", str(tmp_path / "model"), "the [[?]] sat.", "--answers", "cat", "mat", "--json")
    assert found.returncode == 0, found.stderr
    expected = redraft.choose(MODEL, "the [[?]] sat.", ["cat", "mat"])[0]
    assert json.loads(found.stdout)["probabilities"] == pytest.approx(list(expected.probabilities), rel=1e-4)
    wrong = run("choose", str(tmp_path / "model"), "the cat sat.", "--answers", "cat", "mat")
    assert wrong.returncode == 2
    assert "has no hole with answers" in wrong.stderr
    assert "Traceback" not in wrong.stderr
