"""Scores fillings of a hole with a model: log p(filling | left, right)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from redraft.core.batch import Batch
from redraft.core.processes.base import Process
from redraft.core.processes.interpolating import Interpolating
from redraft.models.canvas_builder import VariableHole
from redraft.tasks.engine.model import TextModel
from redraft.tasks.engine.sampler_choice import batch_size
from redraft.training.data.framing import pad_rows
from redraft.training.heldout import likelihood

_MOST_TOKENS = 256  # row length for models without a run


class _WordHole(NamedTuple):
    """A hole: ids to its left, candidate fillings, ids to its right."""

    left: tuple[int, ...]
    fillings: tuple[tuple[int, ...], ...]
    right: tuple[int, ...]


@dataclass(frozen=True)
class _HoleScorer(ABC):
    """Scores fillings of holes with a model; every subclass is final."""

    model: TextModel
    time: float  # diffusion time of the observed text; 0 if its tokens count as clean

    @abstractmethod
    def __call__(self, holes: Sequence[_WordHole]) -> list[list[float]]:
        """Returns log p of each filling of each hole, up to a constant per hole."""

    @property
    def max_length(self) -> int:
        """Maximum number of tokens in a row."""
        return _longest_row(self.model)

    @property
    def start_ids(self) -> tuple[int, ...]:
        """The start token; empty if there is none."""
        bos = self.model.lm.config.vocab.bos
        return () if bos is None else (bos,)

    def cut(self, hole: _WordHole) -> _WordHole:
        """The hole with as much context on both sides as fits into a row."""
        spare = self.max_length - max(map(len, hole.fillings)) - len(self.start_ids)
        before = max(spare - len(hole.right), spare // 2)
        left = hole.left[-before:] if before > 0 else ()
        return _WordHole(left, hole.fillings, hole.right[: max(0, spare - len(left))])

    def batches(self, rows: Sequence[Sequence[object]], length: int) -> Iterator[range]:
        """Index ranges of batches of rows."""
        size = batch_size(self.model, None, max(1, min(length, self.max_length)))
        yield from (range(i, min(len(rows), i + size)) for i in range(0, len(rows), size))


class _Query(NamedTuple):
    """A row whose hole is filled up to some token: ids to the left, number of masked tokens, ids to the right."""

    left: tuple[int, ...]
    hidden: int
    right: tuple[int, ...]


@dataclass(frozen=True)
class _MaskedHoleScorer(_HoleScorer):
    """Mask or hybrid noise: Σ_j log x̂_j(filling_j | left, filling_<j, right), with the rest of the filling masked.

    Fillings of the same length share the rows of their common prefix, so all single-token words need one row. Unknown
    words on both sides are masked.
    """

    def __call__(self, holes: Sequence[_WordHole]) -> list[list[float]]:
        holes = [
            self.cut(_WordHole(self._mask_unknown(h.left), h.fillings, self._mask_unknown(h.right))) for h in holes
        ]
        log_probs: dict[_Query, dict[int, float]] = {}
        for hole in holes:
            for filling in hole.fillings:
                for query, token in _chain(hole, filling):
                    log_probs.setdefault(query, {})[token] = 0.0
        self._answer(log_probs)
        return [[sum(log_probs[q][token] for q, token in _chain(hole, f)) for f in hole.fillings] for hole in holes]

    def _mask_unknown(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        unknown, mask = self.model.tokenizer.unknown, self.model.lm.config.vocab.mask
        if unknown is None or mask is None:
            return ids
        return tuple(mask if token == unknown else token for token in ids)

    def _answer(self, answers: dict[_Query, dict[int, float]]) -> None:
        """Replaces the values of the queried tokens by their log-probabilities."""
        queries = sorted(answers, key=lambda q: len(q.left) + q.hidden + len(q.right))
        longest = max((len(q.left) + q.hidden + len(q.right) for q in queries), default=0)
        for part in self.batches(queries, longest):
            log_probs = self._read([queries[i] for i in part])
            for i, row in zip(part, log_probs, strict=True):
                tokens = list(answers[queries[i]])
                answers[queries[i]] = dict(zip(tokens, row[tokens].double().tolist(), strict=True))

    def _read(self, queries: Sequence[_Query]) -> Tensor:
        """(B, V) log x̂ of the first masked token of each row."""
        begin = self.start_ids
        rows: list[list[tuple[int, ...] | int | str | VariableHole]] = [
            [(*begin, *q.left), q.hidden, q.right, self._rest(q)] for q in queries
        ]
        canvas = self.model.lm.compose(rows)
        at = torch.tensor([len(begin) + len(q.left) for q in queries], device=canvas.z.device)
        where = torch.zeros_like(canvas.fixed).scatter(1, at[:, None], True)
        fraction = (~canvas.fixed).double().mean(-1, keepdim=True)
        t = fraction if self.time == 0 else torch.full_like(fraction, self.time)
        return self.model.lm.predict(canvas.z, canvas.time(t), canvas.context).at(where)

    def _rest(self, query: _Query) -> int:
        """Number of masked tokens after the text, for models with rows of fixed length."""
        framing = None if self.model.run is None else self.model.run.framing
        used = len(query.left) + query.hidden + len(query.right)
        return 0 if framing is None else framing.end_tokens(used)


def _chain(hole: _WordHole, filling: tuple[int, ...]) -> Iterator[tuple[_Query, int]]:
    for j, token in enumerate(filling):
        yield _Query(hole.left + filling[:j], len(filling) - j, hole.right), token


@dataclass(frozen=True)
class _UniformHoleScorer(_HoleScorer):
    """Uniform noise: x̂ at a position does not depend on its own token, so Σ_j log x̂_j(filling_j) takes one row."""

    def __call__(self, holes: Sequence[_WordHole]) -> list[list[float]]:
        cut = [self.cut(hole) for hole in holes]
        rows = [(hole, filling) for hole in cut for filling in hole.fillings]
        scores: list[float] = []
        for part in self.batches(rows, self.max_length):
            scores += self._read([rows[i] for i in part])
        iterator = iter(scores)
        return [[next(iterator) for _ in hole.fillings] for hole in cut]

    def _read(self, rows: Sequence[tuple[_WordHole, tuple[int, ...]]]) -> list[float]:
        begin = self.start_ids
        canvas = self.model.lm.compose([[(*begin, *hole.left, *filling, *hole.right)] for hole, filling in rows])
        where = torch.zeros_like(canvas.fixed)
        for row, (hole, filling) in enumerate(rows):
            first = len(begin) + len(hole.left)
            where[row, first : first + len(filling)] = True
        t = torch.full((len(rows), 1), self.time, dtype=torch.float64, device=canvas.z.device)
        log_probs = self.model.lm.predict(canvas.z, t, canvas.context).at(where)
        log_x = log_probs.gather(-1, canvas.z[where][:, None]).squeeze(-1).double()
        return [float(part.sum()) for part in log_x.split([len(filling) for _, filling in rows])]


@dataclass(frozen=True)
class _CausalHoleScorer(_HoleScorer):
    """Autoregressive models: the exact log p of the filling and the text after it."""

    def __call__(self, holes: Sequence[_WordHole]) -> list[list[float]]:
        cut = [self.cut(hole) for hole in holes]
        rows = [(hole, filling) for hole in cut for filling in hole.fillings]
        scores: list[float] = []
        for part in self.batches(rows, self.max_length):
            nats = likelihood(self.model.lm, [self._batch([rows[i] for i in part])], texts=[""] * len(part)).row_nats
            scores += (-nats).tolist()
        iterator = iter(scores)
        return [[next(iterator) for _ in hole.fillings] for hole in cut]

    def _batch(self, rows: Sequence[tuple[_WordHole, tuple[int, ...]]]) -> Batch:
        vocab, begin = self.model.lm.config.vocab, self.start_ids
        ids = [(*begin, *hole.left, *filling, *hole.right) for hole, filling in rows]
        tokens, pad = pad_rows(ids, max(map(len, ids)), vocab)
        first = torch.tensor([[len(begin) + len(hole.left)] for hole, _ in rows])
        learn = ~pad & (torch.arange(tokens.shape[1]) >= first)
        return Batch(tokens, learn, pad if bool(pad.any()) else None)


def _require_unconditional(model: TextModel) -> None:
    """Raises for models that need a source."""
    if "encoder" in model.lm.parts or model.needs_source:
        raise ValueError("this model answers a source and cannot correct texts; train one on plain text")


def _hole_scorer(model: TextModel, noise: float) -> _HoleScorer:
    """The scorer for a model. Raises if its process is not supported."""
    _require_unconditional(model)
    process = model.lm.process
    process = process.base
    if process.fills_masks and model.lm.block == 1:
        return _CausalHoleScorer(model, 0.0)
    if model.lm.block is None and process.fills_masks:
        return _MaskedHoleScorer(model, 0.0)
    if model.lm.block is None and isinstance(process, Interpolating):
        return (_MaskedHoleScorer if _masks_tokens(process) else _UniformHoleScorer)(
            model, _time_of_error_rate(process, noise)
        )
    raise ValueError(
        f"correct needs mask, uniform or hybrid noise with full attention, or an autoregressive model; this one "
        f"has {type(process).__name__} noise{'' if model.lm.block is None else ' in blocks'}"
    )


def _longest_row(model: TextModel) -> int:
    """Maximum number of tokens in a row."""
    positions, length = (
        model.lm.config.network.positions,
        _MOST_TOKENS if model.run is None else model.run.framing.length,
    )
    return length if positions is None else min(length, positions)


def _masks_tokens(process: Interpolating) -> bool:
    """Whether the noise masks tokens, so that the network was trained with masks."""
    return float(process.mix(torch.tensor(0.5)).mask) > 0


def _time_of_error_rate(process: Process, noise: float) -> float:
    """The time up to 0.5 at which the fraction `noise` of the visible tokens is wrong, by bisection."""
    low, high = 1e-6, 0.5
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if process.error_rate(middle) < noise else (low, middle)
    return high
