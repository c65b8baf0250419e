"""Chooses the length of a hole: the one that makes the given text after it most likely.

A hole of n tokens shifts the given text after it by n positions. log p(text after | text before, n) has the usual bound
of the model, with the hole as noise at all times. Every length scores the same given tokens under the same distribution
over texts, so bounds are compared without dividing by a length. Several holes are searched from left to right with a
beam.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from redraft.core.batch import Batch, BatchOrigin
from redraft.tasks.engine.model import TextModel
from redraft.training.heldout import likelihood

_SHORTLIST = 8  # candidates that are compared with all draws
_BEAM = 4  # candidates kept for the next hole
_ROWS = 64  # batch size
_MOST_LENGTHS = 512  # possible lengths of one hole


def _max_row_length(model: TextModel) -> int | None:
    """Maximum row length: that of training, or the network's positions; None if there is no limit."""
    return model.full_row_length or model.lm.config.network.positions


class _SizedHoles(NamedTuple):
    """Lengths of the first holes, and −log p of the given text after the first hole, in nats."""

    sizes: tuple[int, ...]
    before: float = 0.0  # nats of the given text before the last of these holes
    nats: float = 0.0  # nats of the given text before the next hole


def _cost(candidate: _SizedHoles) -> float:
    return candidate.nats


@dataclass(frozen=True)
class _LengthSearch:
    """A beam search over the lengths of holes between given parts of a text."""

    model: TextModel
    parts: Sequence[tuple[int, ...]]  # ids of each part; one part more than holes
    choices: Sequence[Sequence[int]]  # possible lengths of each hole, increasing
    most: int  # maximum number of tokens in all holes together

    def best(self, draws: int = 4, seed: int = 0) -> tuple[_SizedHoles, ...]:
        """The best candidates for the lengths of all holes, most likely first."""
        beam: tuple[_SizedHoles, ...] = (_SizedHoles(()),)
        for hole, sizes in enumerate(self.choices):
            most = self.most - sum(later[0] for later in self.choices[hole + 1 :])
            candidates = [
                _SizedHoles((*c.sizes, n), c.nats, c.nats) for c in beam for n in sizes if sum(c.sizes) + n <= most
            ]
            if self.parts[hole + 1] and len(candidates) > 1:
                candidates = self._ranked(candidates, 1, seed)[:_SHORTLIST]  # a single draw rules most of them out
                candidates = self._ranked(candidates, draws, seed)[:_BEAM]
            beam = tuple(candidates)
        return beam

    def _ranked(self, candidates: Sequence[_SizedHoles], draws: int, seed: int) -> list[_SizedHoles]:
        """Adds the cost of the part after the last hole; returns the most likely candidate first."""
        added = self._nats([candidate.sizes for candidate in candidates], draws, seed)
        return sorted(
            (_SizedHoles(c.sizes, c.before, c.before + nats) for c, nats in zip(candidates, added, strict=True)),
            key=_cost,
        )

    def _nats(self, sizes: Sequence[tuple[int, ...]], draws: int, seed: int) -> list[float]:
        """Upper bounds of −log p of the part after the last hole, for each choice of sizes."""
        rows = [self._row(row_sizes) for row_sizes in sizes]
        width = max(self.model.full_row_length or 0, *(len(row.ids) for row in rows))
        batches = [self._batch(rows[i : i + _ROWS], width) for i in range(0, len(rows), _ROWS)]
        result = likelihood(self.model.lm, batches, draws=draws, seed=seed, texts=[""] * len(rows))
        nats: list[float] = result.row_nats.tolist()
        return nats

    def _row(self, sizes: tuple[int, ...]) -> _Row:
        """The parts up to the one after the last sized hole, with holes of these sizes between them."""
        ids: list[int] = []
        for part, size in zip(self.parts, sizes, strict=False):
            ids += [*part, *[_HOLE] * size]
        return _Row([*ids, *self.parts[len(sizes)]], len(ids))

    def _batch(self, rows: Sequence[_Row], width: int) -> Batch:
        """Fills rows up to `width`: with unknown tokens if the model only ever saw full rows, else with padding."""
        device, after = next(self.model.lm.parameters()).device, _HOLE if self.model.full_row_length else _PADDING
        ids = torch.tensor([[*row.ids, *[after] * (width - len(row.ids))] for row in rows], device=device)
        begin = torch.tensor([[row.begin] for row in rows], device=device)
        learn = (ids >= 0) & (torch.arange(width, device=device) >= begin)
        unknown, pad, filler = ids == _HOLE, ids == _PADDING, self.model.lm.config.vocab.filler
        sample = torch.zeros(len(rows), dtype=torch.int64, device=device)  # all rows share the noise of each position
        tokens = ids.masked_fill(unknown | pad, filler)
        return Batch(tokens, learn, pad if bool(pad.any()) else None, unknown, origin=BatchOrigin(sample))


class _Row(NamedTuple):
    ids: list[int]
    begin: int  # column of the part to score


_HOLE, _PADDING = -1, -2  # placeholders for ids
