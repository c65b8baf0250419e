"""`choose`: how likely each of a few answers is in the holes of a text, from one pass of the network."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor

from redraft.model import eval_mode
from redraft.processes import Masked, Remask
from redraft.types import Canvas
from redraft.write.models import Model, Opened, as_opened
from redraft.write.sampling import batch_size
from redraft.write.settings import ArgumentError, require_texts
from redraft.write.templates import HOLE

_EXAMPLE = '"The sky is [[?]]."'
MOST_ANSWERS = 10_000


@dataclass(frozen=True)
class Chosen:
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
    """log of the product of what the network says of each token of an answer, in nats."""
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
class Choices(Sequence[Chosen]):
    """The holes of one call, in the order of the text, and what they cost; a sequence of `Chosen`."""

    choices: tuple[Chosen, ...]
    nfe: float
    """Rows that the network read, per hole."""
    seconds: float
    """Time spent on reading."""
    comparable: bool
    """True: in each hole all answers have the same number of tokens, so probabilities are those of the network given
    that the hole is one of them. False: answers of different lengths were read on canvases of their own, and count as
    if every length were equally likely before."""
    run: str = ""
    """The digest of the run or model."""

    @overload
    def __getitem__(self, index: int) -> Chosen: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Chosen, ...]: ...

    def __getitem__(self, index: int | slice) -> Chosen | tuple[Chosen, ...]:
        return self.choices[index]

    def __len__(self) -> int:
        return len(self.choices)

    def to_json(self) -> list[dict[str, Any]]:
        """One object per hole."""
        cost = {"nfe": self.nfe, "seconds": self.seconds, "comparable": self.comparable, "run": self.run}
        return [each.to_json() | cost for each in self.choices]


def choose(model: Model, templates: str | Sequence[str], answers: Sequence[str] | Sequence[Sequence[str]]) -> Choices:
    """How likely each answer is in the holes [[?]] of the templates: yes or no, a class, a score from 1 to 5.

    model: a trained model of mask noise with full attention, or the directory of one.
    templates: a text with holes [[?]], or a list of them; holes [[n]] of n tokens stay unknown.
    answers: the answers of every hole, or a list of them for each hole of a template.

    For an answer of n tokens (the tokenizer's own) the hole has n masked tokens, and so have all other holes as many as
    their longest answer. Its score is Σ log x̂_i(token_i) over these n positions, from one pass; positions count as
    independent. Probabilities are the scores of one hole, normalised. If all answers have the same n, they are exactly
    the network's P(answer | one of the answers); otherwise see `Choices.comparable`.
    """
    it, found = as_opened(model), require_texts("templates", templates)
    _require_masks(it)
    asked = [question for template in found for question in _questions(it, template, answers)]
    clock = time.perf_counter()
    with eval_mode(it.model), torch.no_grad():
        choices = tuple(_answered(it, asked))
    lengths = [set(map(len, question.ids)) for question in asked]
    rows = sum(map(len, lengths))
    same = all(len(each) == 1 for each in lengths)
    return Choices(choices, rows / len(asked), time.perf_counter() - clock, same, it.name)


@dataclass(frozen=True)
class _Question:
    """A hole, its answers and what stands around it."""

    template: str
    hole: int
    answers: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...]
    pieces: tuple[str | int, ...]  # the text around, with other holes
    at: int  # which of the pieces is the hole

    def row(self, size: int, it: Opened) -> list[str | int]:
        """The pieces with a hole of so many tokens, and the rest of a row that the network wants to see."""
        pieces = [size if i == self.at else piece for i, piece in enumerate(self.pieces)]
        given = [it.used(piece) for piece in pieces if isinstance(piece, str)]
        begin = it.model.config.vocab.bos is not None  # counted in every piece
        used = sum(given) - (len(given) - 1) * begin + sum(piece for piece in pieces if isinstance(piece, int))
        rest = max(0, (it.always or 0) - used)
        return [*pieces, rest] if rest else pieces


def _require_masks(it: Opened) -> None:
    process = it.model.process
    if not isinstance(process.process if isinstance(process, Remask) else process, Masked):
        raise ValueError(f"choose reads masked holes, but this model has {type(process).__name__} noise; use infill")
    if it.model.block is not None:
        raise ValueError(
            "choose looks at both sides of a hole, but this network writes from left to right; compare whole texts"
        )
    if it.model.encoder is not None or it.answers:
        raise ValueError("this model answers sources and cannot fill holes; use redraft generate DIR --source TEXT")


def _questions(it: Opened, template: str, answers: Sequence[Any]) -> Iterator[_Question]:
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
        yield _Question(template, number, own, tokens, pieces, at)


def _lists(answers: Sequence[Any], holes: int) -> list[tuple[str, ...]]:
    """The answers of each hole."""
    if isinstance(answers, str) or not isinstance(answers, Sequence):
        raise ArgumentError("answers", f"answers={answers!r:.60}: give a list of texts, or such a list for each hole")
    many = [each for each in answers if not isinstance(each, str)]
    if many and (len(many) < len(answers) or len(answers) != holes):
        raise ArgumentError("answers", f"answers=…: {len(answers)} lists for {holes} holes; give one list for each")
    lists = [tuple(require_texts("answers", each)) for each in (answers if many else [answers] * holes)]
    for each in lists:
        if len(each) < 2 or len(set(each)) < len(each) or len(each) > MOST_ANSWERS:
            raise ArgumentError("answers", f"answers={list(each)!r:.60}: give at least two answers, each of them once")
    return lists


def _ids(it: Opened, answer: str) -> list[int]:
    it.used(answer)  # every word is known
    ids = it.tokenizer.encode(answer)
    if not ids:
        raise ArgumentError("answers", f"the answer {answer!r} has no tokens; an answer is at least one")
    return ids


def _answered(it: Opened, asked: Sequence[_Question]) -> Iterator[Chosen]:
    """Every hole, once for each length of its answers."""
    rows = [(number, size) for number, each in enumerate(asked) for size in sorted(set(map(len, each.ids)))]
    pieces = [asked[number].row(size, it) for number, size in rows]
    length = max(it.used("") + sum(p if isinstance(p, int) else it.used(p) for p in row) for row in pieces)
    batch = batch_size(it, it.sampler, length)
    scores: dict[tuple[int, ...], float] = {}
    for begin in range(0, len(rows), batch):
        some = rows[begin : begin + batch]
        holes = [asked[number].at for number, _ in some]
        for (number, size), said in zip(some, _read(it, pieces[begin : begin + batch], holes), strict=True):
            for i, ids in enumerate(asked[number].ids):
                if len(ids) == size:
                    scores[number, i] = float(said[range(size), list(ids)].double().sum())
    for number, question in enumerate(asked):
        log_p = torch.tensor([scores[number, i] for i in range(len(question.answers))], dtype=torch.float64)
        lengths = tuple(map(len, question.ids))
        chances = tuple(log_p.softmax(0).tolist())
        yield Chosen(question.template, question.hole, question.answers, chances, tuple(log_p.tolist()), lengths)


def _read(it: Opened, pieces: Sequence[Sequence[str | int]], at: Sequence[int]) -> list[Tensor]:
    """Per row (n, V) what the network says of its hole, at the time at which nothing is written yet."""
    canvas: Canvas = it.model.compose(pieces)
    free = ~canvas.fixed
    where = torch.zeros_like(free)
    sizes = []
    for row, (parts, hole) in enumerate(zip(pieces, at, strict=True)):
        before = sum(part for part in parts[:hole] if isinstance(part, int))
        size = parts[hole]
        assert isinstance(size, int)
        where[row, free[row].nonzero().squeeze(-1)[before : before + size]] = True
        sizes.append(size)
    t = torch.ones(len(free), 1, dtype=torch.float64, device=free.device)
    return list(it.model(canvas.z, canvas.time(t), canvas.context).at(where).split(sizes))
