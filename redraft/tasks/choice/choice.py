"""`choose`: how likely each of a few answers is in the holes of a text."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import torch

from redraft.core.processes.masked import Masked
from redraft.core.processes.remasking import Remask
from redraft.models.diffusion_lm import eval_mode
from redraft.tasks.arguments.rules import ArgumentError
from redraft.tasks.arguments.settings import require_texts
from redraft.tasks.arguments.templates import HOLE
from redraft.tasks.choice.answer_scores import _AnswerScores, _HoleQuestion, _score_bidirectional, _score_left_to_right
from redraft.tasks.engine.model import ModelOrPath, TextModel, as_text_model

_EXAMPLE = '"The sky is [[?]]."'
_MOST_ANSWERS = 10_000
_ChoiceKind = Literal["masked", "causal", "blocks"]


@dataclass(frozen=True)
class ChoiceResult:
    """One hole and its answers."""

    template: str
    """The text with holes."""
    hole: int
    """The number of the hole among those with answers, from 0."""
    answers: tuple[str, ...]
    """The answers, as they were given."""
    probabilities: tuple[float, ...]
    """How likely each is, given that it is one of them; they sum to 1."""
    log_probs: tuple[float, ...]
    """log of the product of what the network says of each token of an answer, in nats; see `ChoiceResults.kind`."""
    tokens: tuple[int, ...]
    """How many tokens each answer has."""

    @property
    def best(self) -> str:
        """The likeliest answer; of equally likely ones the first."""
        return self.answers[max(range(len(self.answers)), key=lambda i: self.probabilities[i])]

    def to_json(self) -> dict[str, Any]:
        """Plain values, the best answer first."""
        first = {"best": self.best, "template": self.template, "hole": self.hole}
        names = ("answers", "probabilities", "log_probs", "tokens")
        return first | {name: list(getattr(self, name)) for name in names}


@dataclass(frozen=True)
class ChoiceResults(Sequence[ChoiceResult]):
    """The holes of one call, in the order of the text, and what they cost; a sequence of `ChoiceResult`."""

    choices: tuple[ChoiceResult, ...]
    nfe: float
    """Rows that the network read, per hole."""
    seconds: float
    """Time spent on reading."""
    comparable: bool
    """True: in each hole all answers have the same number of tokens, or the network is causal, so probabilities are
    those of the network given that the hole is one of them. False: answers of different lengths were read on canvases
    of their own, and count as if every length were equally likely before."""
    kind: _ChoiceKind = "masked"
    """What was read. masked: the masked hole and all that stands around it, in one pass. causal: answer and given text
    after it by the chain rule, exactly, a row for each answer. blocks: the masked hole, what stands before it and in
    its own block, but no later one. In masked and blocks the tokens of an answer in a block count as independent."""
    run: str = ""
    """The digest of the run or model."""

    @overload
    def __getitem__(self, index: int) -> ChoiceResult: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[ChoiceResult, ...]: ...

    def __getitem__(self, index: int | slice) -> ChoiceResult | tuple[ChoiceResult, ...]:
        return self.choices[index]

    def __len__(self) -> int:
        return len(self.choices)

    def to_json(self) -> list[dict[str, Any]]:
        """One object per hole."""
        cost = {
            "nfe": self.nfe,
            "seconds": self.seconds,
            "comparable": self.comparable,
            "kind": self.kind,
            "run": self.run,
        }
        return [each.to_json() | cost for each in self.choices]


def choose(
    model: ModelOrPath, templates: str | Sequence[str], answers: Sequence[str] | Sequence[Sequence[str]]
) -> ChoiceResults:
    """How likely each answer is in the holes [[?]] of the templates: yes or no, a class, a score from 1 to 5.

    model: a trained model of mask noise, or the directory of one.
    templates: a text with holes [[?]], or a list of them; holes [[n]] of n tokens stay unknown.
    answers: the answers of every hole, or a list of them for each hole of a template.

    For an answer of n tokens (the tokenizer's own) the hole has n masked tokens, and so have all other holes as many as
    their longest answer. Its score is Σ log x̂_i(token_i) over these n positions, from one pass; positions count as
    independent. Probabilities are the scores of one hole, normalised. If all answers have the same n, they are exactly
    the network's P(answer | one of the answers); otherwise see `ChoiceResults.comparable`.
    A causal network reads each answer and the given text after it; the score is log P(both | the text before), exactly.
    A network of blocks reads the hole behind the blocks before it. `ChoiceResults.kind` says which it was.
    """
    it, found = as_text_model(model), require_texts("templates", templates)
    _require_masks(it)
    asked = [question for template in found for question in _questions(it, template, answers)]
    clock, block = time.perf_counter(), it.lm.block
    with eval_mode(it.lm), torch.no_grad():
        scores, rows = (_score_bidirectional if block is None else _score_left_to_right)(it, asked)
    choices = tuple(_chosen(question, number, scores) for number, question in enumerate(asked))
    same = block == 1 or all(len(question.lengths) == 1 for question in asked)
    kind: _ChoiceKind = "masked" if block is None else "causal" if block == 1 else "blocks"
    return ChoiceResults(choices, rows / len(asked), time.perf_counter() - clock, same, kind, it.name)


def _chosen(question: _HoleQuestion, number: int, scores: _AnswerScores) -> ChoiceResult:
    log_p = torch.tensor([scores[number, i] for i in range(len(question.answers))], dtype=torch.float64)
    chances, nats = tuple(log_p.softmax(0).tolist()), tuple(log_p.tolist())
    return ChoiceResult(
        question.template, question.hole, question.answers, chances, nats, tuple(map(len, question.ids))
    )


def _require_masks(it: TextModel) -> None:
    process = it.lm.process
    if not isinstance(process.process if isinstance(process, Remask) else process, Masked):
        raise ValueError(f"choose reads masked holes, but this model has {type(process).__name__} noise; use infill")
    if it.lm.encoder is not None or it.needs_source:
        raise ValueError("this model answers sources and cannot fill holes; use redraft generate DIR --source TEXT")


def _questions(it: TextModel, template: str, answers: Sequence[Any]) -> Iterator[_HoleQuestion]:
    parts = HOLE.split(template)
    holes = [i for i in range(1, len(parts), 2) if parts[i] == "?"]
    if not holes:
        raise ArgumentError("templates", f"{template!r:.60} has no hole with answers; write [[?]], as in {_EXAMPLE}")
    for hole in parts[1::2]:
        if hole != "?" and not (hole.isdecimal() and 0 < int(hole[:9]) < 10**6):
            raise ArgumentError("templates", f"the hole [[{hole:.20}]] is neither [[?]] nor [[n]] of n tokens")
    lists = _lists(answers, len(holes))
    ids = [tuple(tuple(_ids(it, answer)) for answer in each) for each in lists]
    longest = iter([max(map(len, each)) for each in ids])
    pieces = tuple(part if i % 2 == 0 else next(longest) if part == "?" else int(part) for i, part in enumerate(parts))
    for number, (at, own, tokens) in enumerate(zip(holes, lists, ids, strict=True)):
        yield _HoleQuestion(template, number, own, tokens, pieces, at)


def _lists(answers: Sequence[Any], holes: int) -> list[tuple[str, ...]]:
    """The answers of each hole."""
    if isinstance(answers, str) or not isinstance(answers, Sequence):
        raise ArgumentError("answers", f"answers={answers!r:.60}: give a list of texts, or such a list for each hole")
    many = [each for each in answers if not isinstance(each, str)]
    if many and (len(many) < len(answers) or len(answers) != holes):
        raise ArgumentError("answers", f"answers=…: {len(answers)} lists for {holes} holes; give one list for each")
    lists = [tuple(require_texts("answers", each)) for each in (answers if many else [answers] * holes)]
    for each in lists:
        if len(each) < 2 or len(set(each)) < len(each) or len(each) > _MOST_ANSWERS:
            raise ArgumentError("answers", f"answers={list(each)!r:.60}: give at least two answers, each of them once")
    return lists


def _ids(it: TextModel, answer: str) -> list[int]:
    it.token_count(answer)  # every word is known
    ids = it.tokenizer.encode(answer)
    if not ids:
        raise ArgumentError("answers", f"the answer {answer!r} has no tokens; an answer is at least one")
    return ids
