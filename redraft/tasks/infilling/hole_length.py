"""How long a hole is: the length under which the model finds what follows the hole most likely.

A hole of n tokens puts the given text behind it n places further. With the hole itself unknown, log p(what follows |
what stands before, n) is a bound of the model like any other, in which the hole is noise at all times. All lengths are
events of the same distribution over texts, each with all its given tokens and no others, so the bounds are compared as
they are: nothing has to be divided by a length. Several holes are searched from left to right, keeping the best few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from redraft.core.batch import Batch
from redraft.tasks.engine.model import TextModel
from redraft.training.heldout import likelihood

_SHORTLIST = 8  # lengths that are compared carefully
_BEAM = 4  # of them are kept while the next hole is looked at
_ROWS = 64  # read at once
_MOST_LENGTHS = 512  # of one hole


def _max_row_length(it: TextModel) -> int | None:
    """How many tokens a row may have: as in training, or as many as the network can count; None: any number."""
    return it.full_row_length or it.lm.config.network.positions


class _SizedHoles(NamedTuple):
    """Lengths of the first holes, and −log p of the given text behind them, in nats."""

    sizes: tuple[int, ...]
    before: float = 0.0  # up to the last of these holes
    nats: float = 0.0  # up to the next one


def _cost(sized: _SizedHoles) -> float:
    return sized.nats


@dataclass(frozen=True)
class _LengthSearch:
    """Given parts of a text, and the holes between them."""

    it: TextModel
    parts: Sequence[tuple[int, ...]]  # ids, one part more than holes
    choices: Sequence[Sequence[int]]  # the lengths that each hole may have, in order
    most: int  # tokens of all holes together

    def best(self, draws: int = 4, seed: int = 0) -> tuple[_SizedHoles, ...]:
        """The likeliest lengths of all holes first, and a few that come next."""
        found: tuple[_SizedHoles, ...] = (_SizedHoles(()),)
        for hole, sizes in enumerate(self.choices):
            fitting = self.most - sum(each[0] for each in self.choices[hole + 1 :])
            grown = [
                _SizedHoles((*e.sizes, n), e.nats, e.nats) for e in found for n in sizes if sum(e.sizes) + n <= fitting
            ]
            if self.parts[hole + 1] and len(grown) > 1:
                grown = self._ranked(grown, 1, seed)[:_SHORTLIST]  # a rough look sorts most of them out
                grown = self._ranked(grown, draws, seed)[:_BEAM]
            found = tuple(grown)
        return found

    def _ranked(self, sized: Sequence[_SizedHoles], draws: int, seed: int) -> list[_SizedHoles]:
        """With the cost of the part behind the last hole, the likeliest first."""
        new = self._nats([each.sizes for each in sized], draws, seed)
        return sorted(
            (_SizedHoles(e.sizes, e.before, e.before + nats) for e, nats in zip(sized, new, strict=True)), key=_cost
        )

    def _nats(self, sizes: Sequence[tuple[int, ...]], draws: int, seed: int) -> list[float]:
        """−log p of the last part, at most, for each way to size the holes before it."""
        rows = [self._row(each) for each in sizes]
        width = max(self.it.full_row_length or 0, *(len(row.ids) for row in rows))
        batches = [self._batch(rows[i : i + _ROWS], width) for i in range(0, len(rows), _ROWS)]
        found = likelihood(self.it.lm, batches, draws=draws, seed=seed, texts=[""] * len(rows))
        nats: list[float] = found.row_nats.tolist()
        return nats

    def _row(self, sizes: tuple[int, ...]) -> _Row:
        """The parts up to the one behind the last hole, with holes of these sizes between them."""
        ids: list[int] = []
        for part, size in zip(self.parts, sizes, strict=False):
            ids += [*part, *[_HOLE] * size]
        return _Row([*ids, *self.parts[len(sizes)]], len(ids))

    def _batch(self, rows: Sequence[_Row], width: int) -> Batch:
        """What is behind the text is unknown where the network has always seen something there, else it is padding."""
        device, behind = next(self.it.lm.parameters()).device, _HOLE if self.it.full_row_length else _NOTHING
        ids = torch.tensor([[*row.ids, *[behind] * (width - len(row.ids))] for row in rows], device=device)
        begin = torch.tensor([[row.begin] for row in rows], device=device)
        learn = (ids >= 0) & (torch.arange(width, device=device) >= begin)
        unknown, pad, filler = ids == _HOLE, ids == _NOTHING, self.it.lm.config.vocab.filler
        same = torch.zeros(len(rows), dtype=torch.int64, device=device)  # the same noise for all, place by place
        tokens = ids.masked_fill(unknown | pad, filler)
        return Batch(tokens, learn, pad if bool(pad.any()) else None, same, unknown=unknown)


class _Row(NamedTuple):
    ids: list[int]
    begin: int  # of the part to be judged


_HOLE, _NOTHING = -1, -2
