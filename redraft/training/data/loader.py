"""Rows to batches, in a fixed order that a resumed run continues."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from redraft.core.batch import Batch
from redraft.core.text.tokenizers import Tokenizer
from redraft.training.data.framing import FramedRows, Framing
from redraft.training.data.sources import _T, Corpus, DataError, InfiniteCorpus, Split


def load_rows(source: Corpus | InfiniteCorpus, split: Split, tokenizer: Tokenizer, framing: Framing) -> FramedRows:
    """The framed rows of one split: a finite corpus is tokenised now and held in memory, an endless one as read."""
    return framing.rows(source, split, tokenizer)


@lru_cache(maxsize=4)
def epoch_order(size: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order of an epoch: rows sorted by the raw words of Philox under the key (seed, epoch).

    Raw words, because NumPy keeps them the same between versions, which it does not promise for `permutation`.
    """
    words = np.random.Philox(key=seed % 2**64 | epoch << 64).random_raw(size)
    order = np.argsort(words, kind="stable")
    order.flags.writeable = False  # shared by all callers
    return order


@dataclass(frozen=True)
class Loader:
    """Batches for one worker from an endless sequence of samples: epoch after epoch, each in its own order.

    A step that starts at sample n takes samples n .. n + batch − 1 of that sequence, whichever worker asks; they are
    cut into world × micro stretches, and each worker takes `micro` neighbouring ones, one after another. So the number
    of samples consumed is all one needs to resume, also with another number of workers.
    """

    rows: FramedRows
    batch: int  # rows of a global step
    seed: int = 0
    rank: int = 0
    world: int = 1
    micro: int = 1  # stretches of a worker per step: gradient accumulation

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise DataError(f"rank={self.rank} is not one of the {self.world} workers 0..{self.world - 1}")
        if self.batch < self.world * self.micro:
            raise DataError(
                f"batch={self.batch} leaves a stretch empty; use world × micro = {self.world * self.micro} rows or more"
            )

    def batches(self, consumed: int = 0) -> Iterator[Batch]:
        """Batches from the given sample on, without end; `micro` of them make one step."""
        while True:
            for part in range(self.rank * self.micro, (self.rank + 1) * self.micro):
                yield self.stretch(consumed, part)
            consumed += self.batch

    def stretch(self, start: int, part: int) -> Batch:
        """One stretch of the step that starts at sample `start`."""
        parts = self.world * self.micro
        first, last = self.batch * part // parts, self.batch * (part + 1) // parts
        samples = [self._sample(start + place) for place in range(first, last)]
        batch = self.rows.take([index for _, index in samples])
        return replace(
            batch,
            sample=torch.tensor([name for name, _ in samples]),
            first=first,
            total=self.batch,
            step=start // self.batch,
        )

    def _sample(self, number: int) -> tuple[int, int]:
        """The name of a sample, epoch × size + row, and its row."""
        size = self.rows.size
        if size is None:
            return number, number
        epoch, place = divmod(number, size)
        index = int(epoch_order(size, self.seed, epoch)[place])
        return epoch * size + index, index


def first_batches(rows: FramedRows, count: int, batch: int = 64) -> list[Batch]:
    """The first `count` rows in their own order, or all if there are fewer."""
    total = count if rows.size is None else min(count, rows.size)
    stretches = [range(first, min(first + batch, total)) for first in range(0, total, batch)]
    return [replace(rows.take(s), sample=torch.tensor(s), first=s.start, total=total) for s in stretches]


def prefetch(items: Iterable[_T], depth: int = 4) -> Iterator[_T]:
    """The same items in the same order, made ahead by one thread that ends with this iterator; errors surface here."""
    source = iter(items)
    with ThreadPoolExecutor(1, "prefetch") as thread:
        pending = deque(thread.submit(_one, source) for _ in range(depth))
        while item := pending.popleft().result():
            pending.append(thread.submit(_one, source))
            yield item[0]


def _one(items: Iterator[_T]) -> list[_T]:
    """The next item in a list, which is empty at the end."""
    return list(islice(items, 1))
