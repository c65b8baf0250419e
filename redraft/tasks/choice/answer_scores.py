"""What a network says of answers in holes: masked ones in one pass, or from left to right, block after block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.core.batch import Batch
from redraft.core.canvas import Canvas
from redraft.tasks.arguments.rules import ArgumentError
from redraft.tasks.engine.model import TextModel
from redraft.tasks.engine.sampler_choice import batch_size

_AnswerScores = dict[tuple[int, int], float]  # (number of the question, number of the answer) → nats


@dataclass(frozen=True)
class _HoleQuestion:
    """A hole, its answers and what stands around it."""

    template: str
    hole: int
    answers: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...]
    pieces: tuple[str | int, ...]  # the text around, with other holes
    at: int  # which of the pieces is the hole

    @property
    def lengths(self) -> set[int]:
        """How many tokens answers have."""
        return set(map(len, self.ids))

    def row(self, size: int, it: TextModel) -> list[str | int]:
        """The pieces with a hole of so many tokens, and the rest of a row that the network wants to see."""
        pieces = [size if i == self.at else piece for i, piece in enumerate(self.pieces)]
        given = [it.token_count(piece) for piece in pieces if isinstance(piece, str)]
        begin = it.lm.config.vocab.bos is not None  # counted in every piece
        used = sum(given) - (len(given) - 1) * begin + sum(piece for piece in pieces if isinstance(piece, int))
        rest = max(0, (it.full_row_length or 0) - used)
        return [*pieces, rest] if rest else pieces


def _score_bidirectional(it: TextModel, asked: Sequence[_HoleQuestion]) -> tuple[_AnswerScores, int]:
    """The score of each answer, Σ log x̂ over the masked hole, and how many rows were read: one for each length."""
    rows = [(number, size) for number, each in enumerate(asked) for size in sorted(each.lengths)]
    pieces = [asked[number].row(size, it) for number, size in rows]
    length = max(
        it.token_count("") + sum(p if isinstance(p, int) else it.token_count(p) for p in row) for row in pieces
    )
    batch = batch_size(it, it.sampler, length)
    scores: _AnswerScores = {}
    for begin in range(0, len(rows), batch):
        some = rows[begin : begin + batch]
        holes = [asked[number].at for number, _ in some]
        for (number, size), said in zip(some, _read(it, pieces[begin : begin + batch], holes), strict=True):
            for i, ids in enumerate(asked[number].ids):
                if len(ids) == size:
                    scores[number, i] = float(said[range(size), list(ids)].double().sum())
    return scores, len(rows)


def _read(it: TextModel, pieces: Sequence[Sequence[str | int]], at: Sequence[int]) -> list[Tensor]:
    """Per row (n, V) what the network says of its hole, at the time at which nothing is written yet."""
    canvas: Canvas = it.lm.compose(pieces)
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
    return list(it.lm(canvas.z, canvas.time(t), canvas.context).at(where).split(sizes))


def _score_left_to_right(it: TextModel, asked: Sequence[_HoleQuestion]) -> tuple[_AnswerScores, int]:
    """The score of each answer by a network that writes from left to right, and how many rows were read.

    Causal: log P(answer and the given text after it | the text before), by the chain rule, exactly: a row for each
    answer. Blocks: Σ log x̂ over the masked hole, given the blocks before and the rest of its own; a row for all answers
    that agree in earlier blocks.
    """
    rows = [row for number, question in enumerate(asked) for row in _rows(it, number, question)]
    length = max(
        it.token_count("") + sum(len(p) if isinstance(p, tuple) else it.token_count(p) for p in row.pieces)
        for row in rows
    )
    size, scores = batch_size(it, it.sampler, length), _AnswerScores()
    for begin in range(0, len(rows), size):
        some = rows[begin : begin + size]
        for row, said in zip(some, _said(it, some), strict=True):
            for answer, ids in row.answers:
                tokens = said.tokens.clone()
                tokens[: len(ids)] = torch.tensor(ids)
                scores[row.question, answer] = float(said.log_x.gather(1, tokens[:, None]).double().sum())
    return scores, len(rows)


@dataclass(frozen=True)
class _Row:
    """A text with one answer in its hole, and the answers that can be told from reading it."""

    question: int
    answers: tuple[tuple[int, tuple[int, ...]], ...]  # their numbers and ids
    pieces: tuple[str | tuple[int, ...], ...]
    hole: int  # which of the pieces is the answer


def _rows(it: TextModel, number: int, question: _HoleQuestion) -> Iterator[_Row]:
    before, after = question.pieces[: question.at], question.pieces[question.at + 1 :]
    if any(isinstance(piece, int) for piece in before):
        raise ArgumentError(
            "templates",
            f"{question.template!r:.60}: this network reads from left to right, so nothing can be said behind a hole "
            "that is not filled; ask about one hole at a time, the first one first",
        )
    known = [str(piece) for piece in before]
    given = after[: next((i for i, piece in enumerate(after) if isinstance(piece, int)), len(after))]
    begin = len(it.tokenizer.encode("".join(known))) + (it.lm.config.vocab.bos is not None)
    alike: dict[tuple[int, ...], list[tuple[int, tuple[int, ...]]]] = {}
    for answer, ids in enumerate(question.ids):
        alike.setdefault(_earlier(it, ids, begin, bool(given and given[0])), []).append((answer, ids))
    for answers in alike.values():
        yield _Row(number, tuple(answers), (*known, answers[0][1], *map(str, given)), len(known))


def _earlier(it: TextModel, ids: tuple[int, ...], begin: int, text_follows: bool) -> tuple[int, ...]:
    """What the last block of an answer is read behind, and its length: answers that have both share a row."""
    block = it.lm.block or 1
    if block == 1 and text_follows:
        return ids
    last = (begin + len(ids) - 1) // block * block
    return (len(ids), *ids[: max(0, last - begin)])


@dataclass(frozen=True)
class _Said:
    log_x: Tensor  # (n, V) at the hole, and behind it where that counts
    tokens: Tensor  # (n,) what stands there


def _said(it: TextModel, rows: Sequence[_Row]) -> list[_Said]:
    """What the network says of each row, given what stands to the left."""
    whole: Canvas = it.lm.compose([row.pieces for row in rows])
    hole = ~it.lm.compose([[len(p) if i == row.hole else p for i, p in enumerate(row.pieces)] for row in rows]).fixed
    pad = torch.zeros_like(hole) if whole.context.pad is None else whole.context.pad
    scored = (hole.cumsum(-1) > 0) & ~pad if it.lm.block == 1 else hole
    batch = Batch(whole.z, scored, whole.context.pad)
    if not torch.equal(it.lm.learnable(batch).learn, scored):
        raise ArgumentError("templates", "nothing predicts the first token of a row: begin the template with text")
    z, t = whole.z.masked_fill(scored, it.lm.process.vocab.masked), scored.double()
    said = it.lm(z, t, it.lm.context(batch)).at(scored)
    counts = scored.sum(-1).tolist()
    return [_Said(*both) for both in zip(said.split(counts), whole.z[scored].cpu().split(counts), strict=True)]
