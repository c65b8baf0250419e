"""Log-probabilities of answers in holes: from one pass over masked holes, or left to right, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.core.batch import Batch
from redraft.core.canvas import Canvas
from redraft.models.networks.linear import lora_disabled
from redraft.tasks.arguments.setting import ArgumentError
from redraft.tasks.choice.hole_questions import _HoleQuestion, _MaskedRow
from redraft.tasks.engine.model import TextModel
from redraft.tasks.engine.sampler_choice import batch_size
from redraft.tasks.infilling.causal_judge import _CausalJudge

_ROWS = 64  # batch size
_AnswerScores = dict[tuple[int, int], float]  # (index of the question, index of the answer) → nats


def _score_bidirectional(model: TextModel, questions: Sequence[_HoleQuestion]) -> tuple[_AnswerScores, int]:
    """Scores each answer by Σ log x̂ over the masked hole; also returns the number of rows read, one per length."""
    rows = [(index, size) for index, question in enumerate(questions) for size in sorted(question.lengths)]
    masked = [questions[index].row(size, model.full_row_length or 0) for index, size in rows]
    batch = batch_size(model, model.sampler, max(row.length for row in masked))
    scores: _AnswerScores = {}
    for begin in range(0, len(rows), batch):
        part = rows[begin : begin + batch]
        predictions = _predict_holes(model, masked[begin : begin + batch])
        for (index, size), log_probs in zip(part, predictions, strict=True):
            for i, ids in enumerate(questions[index].ids):
                if len(ids) == size:
                    scores[index, i] = float(log_probs[range(size), list(ids)].double().sum())
    return scores, len(rows)


def _predict_holes(model: TextModel, rows: Sequence[_MaskedRow]) -> list[Tensor]:
    """For each row (n, V) log x̂ of its hole at time 1, when nothing is written yet."""
    canvas: Canvas = model.lm.compose([row.pieces for row in rows])
    free = ~canvas.fixed
    where = torch.zeros_like(free)
    for index, row in enumerate(rows):
        where[index, free[index].nonzero().squeeze(-1)[row.before : row.before + row.size]] = True
    t = torch.ones(len(free), 1, dtype=torch.float64, device=free.device)
    pred = model.lm.predict(canvas.z, canvas.time(t), canvas.context)
    return list(pred.at(where).split([row.size for row in rows]))


def _score_without_adapter(model: TextModel, questions: Sequence[_HoleQuestion]) -> tuple[_AnswerScores, int]:
    """Scores answers by the causal network of an adapted model: log P(answer and the given text after it), exactly.

    Also returns the number of rows read, one per answer; the text before a hole is read once.
    """
    lm, scores = model.lm, _AnswerScores()
    judge, device = _CausalJudge(lm), next(lm.parameters()).device
    with lora_disabled(lm):
        for index, question in enumerate(questions):
            batch_size(model, None, len(question.prefix) + max(question.lengths) + len(question.suffix))
            prefix = lm.network.extend(torch.tensor([question.prefix], device=device))
            for size in question.lengths:
                same = [i for i, ids in enumerate(question.ids) if len(ids) == size]
                for some in (same[begin : begin + _ROWS] for begin in range(0, len(same), _ROWS)):
                    rows = torch.tensor([[*question.ids[i], *question.suffix] for i in some], device=device)
                    log_p = judge.continuation_log_probs(*prefix, rows)
                    scores.update(((index, i), p) for i, p in zip(some, log_p.tolist(), strict=True))
    return scores, sum(len(question.ids) for question in questions)


def _score_left_to_right(model: TextModel, questions: Sequence[_HoleQuestion]) -> tuple[_AnswerScores, int]:
    """Scores each answer with a network that writes left to right; also returns the number of rows read.

    Causal: log P(answer and the given text after it | the text before), exactly, by the chain rule; one row per answer.
    Blocks: Σ log x̂ over the masked hole, given earlier blocks and the rest of its own; answers that agree in earlier
    blocks share a row.
    """
    rows = [row for index, question in enumerate(questions) for row in _rows(model, index, question)]
    length = max(sum(map(len, row.pieces)) for row in rows)
    size, scores = batch_size(model, model.sampler, length), _AnswerScores()
    for begin in range(0, len(rows), size):
        part = rows[begin : begin + size]
        for row, prediction in zip(part, _predict_rows(model, part), strict=True):
            for answer, ids in row.answers:
                tokens = prediction.tokens.clone()
                tokens[: len(ids)] = torch.tensor(ids)
                scores[row.question, answer] = float(prediction.log_x.gather(1, tokens[:, None]).double().sum())
    return scores, len(rows)


@dataclass(frozen=True)
class _Row:
    """A text with one answer in its hole, and all answers that can be scored by reading it."""

    question: int
    answers: tuple[tuple[int, tuple[int, ...]], ...]  # index and ids of each answer
    pieces: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # text before the hole, answer, text after it


def _rows(model: TextModel, index: int, question: _HoleQuestion) -> Iterator[_Row]:
    prefix, suffix = question.prefix, question.suffix
    groups: dict[tuple[int, ...], list[tuple[int, tuple[int, ...]]]] = {}
    for answer, ids in enumerate(question.ids):
        groups.setdefault(_group_key(model, ids, len(prefix), bool(suffix)), []).append((answer, ids))
    for answers in groups.values():
        yield _Row(index, tuple(answers), (prefix, answers[0][1], suffix))


def _group_key(model: TextModel, ids: tuple[int, ...], begin: int, text_follows: bool) -> tuple[int, ...]:
    """Length of an answer and its tokens before its last block; answers with the same key share a row."""
    block = model.lm.block or 1
    if block == 1 and text_follows:
        return ids
    last = (begin + len(ids) - 1) // block * block
    return (len(ids), *ids[: max(0, last - begin)])


@dataclass(frozen=True)
class _ScoredTokens:
    """The network's prediction at the hole, and for causal networks at the text after it."""

    log_x: Tensor  # (n, V) log-probabilities
    tokens: Tensor  # (n,) ids in the row


def _predict_rows(model: TextModel, rows: Sequence[_Row]) -> list[_ScoredTokens]:
    """Predicts the scored tokens of each row from the text to their left."""
    lm = model.lm
    whole: Canvas = lm.compose([row.pieces for row in rows])
    hole = ~lm.compose([[before, len(answer), after] for before, answer, after in (row.pieces for row in rows)]).fixed
    pad = torch.zeros_like(hole) if whole.context.pad is None else whole.context.pad
    scored = (hole.cumsum(-1) > 0) & ~pad if lm.block == 1 else hole
    batch = Batch(whole.z, scored, whole.context.pad)
    if not torch.equal(lm.config.learnable(batch).learn, scored):
        raise ArgumentError("templates", "nothing predicts the first token of a row: begin the template with text")
    z, t = whole.z.masked_fill(scored, lm.process.vocab.masked), scored.double()
    log_x = lm.predict(z, t, lm.read(batch).context).at(scored)
    counts = scored.sum(-1).tolist()
    return [_ScoredTokens(*pair) for pair in zip(log_x.split(counts), whole.z[scored].cpu().split(counts), strict=True)]
