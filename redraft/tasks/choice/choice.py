"""`choose`: the probabilities of given answers in the holes of a text."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from redraft.core.text.boundaries import split_joint_tokens
from redraft.core.text.shading import table_html
from redraft.models.causal_base import is_adapted
from redraft.models.diffusion_lm import eval_mode
from redraft.tasks.arguments.settings import require_texts
from redraft.tasks.choice.answer_scores import (
    _AnswerScores,
    _score_bidirectional,
    _score_left_to_right,
    _score_without_adapter,
)
from redraft.tasks.choice.hole_questions import _hole_questions, _HoleQuestion
from redraft.tasks.engine.model import ModelOrPath, TextModel, as_text_model
from redraft.tasks.engine.result import Results

_ChoiceKind = Literal["masked", "causal", "blocks"]
_Scorer = Callable[[TextModel, Sequence[_HoleQuestion]], tuple[_AnswerScores, int]]


@dataclass(frozen=True)
class ChoiceResult:
    """One hole and the probabilities of its answers."""

    template: str
    """The text with holes."""
    hole: int
    """Index of the hole among the template's holes [[?]], from 0."""
    answers: tuple[str, ...]
    """The answers as given."""
    probabilities: tuple[float, ...]
    """Probability of each answer given that it is one of these; they sum to 1."""
    log_probs: tuple[float, ...]
    """Score of each answer in nats: the sum of its tokens' log-probabilities (see `ChoiceResults.kind`)."""
    tokens: tuple[int, ...]
    """Number of tokens in the hole with each answer. Tokens that all answers share count as given text."""

    @property
    def best(self) -> str:
        """The most likely answer, or the first one of a tie."""
        return self.answers[max(range(len(self.answers)), key=lambda i: self.probabilities[i])]

    @property
    def ranked(self) -> list[tuple[str, float]]:
        """The answers with their probabilities, the most likely first."""
        return sorted(zip(self.answers, self.probabilities, strict=True), key=lambda pair: -pair[1])

    def __str__(self) -> str:
        return "  ".join(f"{answer} {p:.3f}" for answer, p in self.ranked)

    def _repr_html_(self) -> str:
        """A table in a notebook."""
        return table_html(("answer", "probability"), [(answer, f"{p:.1%}") for answer, p in self.ranked])

    def to_json(self) -> dict[str, Any]:
        """A JSON object that begins with the best answer."""
        first = {"best": self.best, "template": self.template, "hole": self.hole}
        names = ("answers", "probabilities", "log_probs", "tokens")
        return first | {name: list(getattr(self, name)) for name in names}


@dataclass(frozen=True)
class ChoiceResults(Results[ChoiceResult]):
    """The holes of one call in text order, and their cost; a sequence of `ChoiceResult`."""

    nfe: float
    """Rows passed through the network, per hole."""
    seconds: float
    """Scoring time, without loading the model."""
    comparable: bool
    """True if the network is causal, or all answers of each hole have the same number of tokens: probabilities are then
    the network's own, given that the hole is one of the answers. False if answers of different lengths were read on
    separate canvases, which treats all lengths as equally likely a priori."""
    kind: _ChoiceKind = "masked"
    """How answers were scored. masked: from the masked hole and all text around it, in one pass. causal: answer and
    given text after it, exactly, by the chain rule, with a row per answer; also for adapted models. blocks: from the
    masked hole, the blocks before it and its own block. In masked and blocks, tokens of an answer in the same block
    count as independent."""
    run: str = ""
    """Digest of the run, or of the model if it has none."""

    def to_json(self) -> list[dict[str, Any]]:
        """One object per hole, each with the cost of the call."""
        cost = {
            "nfe": self.nfe,
            "seconds": self.seconds,
            "comparable": self.comparable,
            "kind": self.kind,
            "run": self.run,
        }
        return [choice.to_json() | cost for choice in self]


def choose(
    model: ModelOrPath, templates: str | Sequence[str], answers: Sequence[str] | Sequence[Sequence[str]]
) -> ChoiceResults:
    """Compute the probability of each answer in the holes [[?]] of templates: yes or no, a class, a score from 1 to 5.

    The text before the hole, the answer and the text after it are tokenized as a whole: the tokens that all answers
    share at the beginning and at the end are given, and the n tokens between them are the hole. It does not matter
    where the hole is cut: "her [[?]]." with "cat" and "her[[?]]." with " cat" have the same score. Every other
    hole [[?]] gets as many tokens as its longest answer.

    The score of the answer is Σ log x̂_i(token_i) over its n positions, from one pass, which treats positions as
    independent. The probabilities of a hole are its normalized scores. If all its answers have the same n, they are
    exactly the network's P(answer | one of the answers); otherwise see `ChoiceResults.comparable`.

    A causal network reads each answer and the given text after it; the score is log P(both | the text before), exactly.
    So does a model adapted from a causal one, such as smol, with its adapter off, if there is text and no other hole
    before each hole.
    A block-causal network reads the hole after the blocks before it. `ChoiceResults.kind` says which method was used.

    Args:
        model: a trained model with mask noise, or its directory
        templates: a text with holes [[?]], or a list of them; holes [[n]] of n tokens stay masked
        answers: the answers of every hole, or one list of answers for each hole of a template
    """
    text_model, templates = as_text_model(model), require_texts("templates", templates)
    _require_masks(text_model)
    questions = [question for template in templates for question in _hole_questions(text_model, template, answers)]
    clock, (kind, score) = time.perf_counter(), _scorer(text_model, questions)
    with eval_mode(text_model.lm), torch.no_grad():
        scores, rows = score(text_model, questions)
    choices = tuple(_choice(question, index, scores) for index, question in enumerate(questions))
    comparable = kind == "causal" or all(len(question.lengths) == 1 for question in questions)
    return ChoiceResults(choices, rows / len(questions), time.perf_counter() - clock, comparable, kind, text_model.name)


def choose_next(
    model: TextModel, prompt: tuple[int, ...], before: str, answers: Sequence[str], after: str
) -> ChoiceResult:
    """Compute the probability of each answer in the hole of `before` [[?]] `after`, which follows the ids of a prompt.

    The text is tokenized as in `choose`.
    """
    _require_masks(model)
    joint = split_joint_tokens([tuple(model.tokenizer.encode_inside(f"{before}{text}{after}")) for text in answers])
    given, size = ((*prompt, *joint.before), joint.after), max(map(len, joint.inner))
    question = _HoleQuestion(f"{before}[[?]]{after}", 0, tuple(answers), joint.inner, given, (size,), 0)
    with eval_mode(model.lm), torch.no_grad():
        scores, _ = _scorer(model, [question])[1](model, [question])
    return _choice(question, 0, scores)


def _scorer(model: TextModel, questions: Sequence[_HoleQuestion]) -> tuple[_ChoiceKind, _Scorer]:
    """How the model scores answers. An adapted model is causal too, unless a hole has no text or a hole before it."""
    block = model.lm.block
    if block is not None:
        return ("causal" if block == 1 else "blocks"), _score_left_to_right
    if is_adapted(model.lm) and all(question.at == 0 and question.prefix for question in questions):
        return "causal", _score_without_adapter
    return "masked", _score_bidirectional


def _choice(question: _HoleQuestion, index: int, scores: _AnswerScores) -> ChoiceResult:
    log_p = torch.tensor([scores[index, i] for i in range(len(question.answers))], dtype=torch.float64)
    probabilities, nats = tuple(log_p.softmax(0).tolist()), tuple(log_p.tolist())
    lengths = tuple(map(len, question.ids))
    return ChoiceResult(question.template, question.hole, question.answers, probabilities, nats, lengths)


def _require_masks(model: TextModel) -> None:
    process = model.lm.process
    if not process.base.fills_masks:
        raise ValueError(f"choose needs a model with mask noise, but this one has {type(process).__name__}; use infill")
    if "encoder" in model.lm.parts or model.needs_source:
        raise ValueError("this model answers a source and cannot fill holes; use redraft generate DIR --source TEXT")
