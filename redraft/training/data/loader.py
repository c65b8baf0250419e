"""Batches of rows, in a reproducible order that a resumed run continues."""

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

from redraft.core.batch import Batch, BatchOrigin
from redraft.core.text.tokenizers import Tokenizer
from redraft.training.data.framing import FramedRows, Framing
from redraft.training.data.sources import _T, Corpus, DataError, InfiniteCorpus, Split


def load_rows(source: Corpus | InfiniteCorpus, split: Split, tokenizer: Tokenizer, framing: Framing) -> FramedRows:
    """Returns the framed rows of one split: a finite corpus is tokenized now, an infinite one row by row when read."""
    return framing.rows(source, split, tokenizer)


@lru_cache(maxsize=4)
def _epoch_order(size: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Returns the row order of an epoch: rows sorted by raw Philox words under the key (seed, epoch).

    NumPy guarantees the raw words across versions, but not the result of `permutation`.
    """
    words = np.random.Philox(key=seed % 2**64 | epoch << 64).random_raw(size)
    order = np.argsort(words, kind="stable")
    order.flags.writeable = False  # shared by all callers
    return order


@dataclass(frozen=True)
class Loader:
    """Batches for one worker, from an infinite sequence of samples: epoch after epoch, each in its own order.

    A step that starts at sample n takes samples n .. n + batch − 1 of that sequence, for any number of workers. They
    are split into world × micro parts, and each worker takes `micro` adjacent ones in turn. The number of samples
    consumed is therefore enough to resume, even with a different number of workers.
    """

    rows: FramedRows
    batch: int  # rows of a global step
    seed: int = 0
    rank: int = 0
    world: int = 1
    micro: int = 1  # micro-batches per worker and step (gradient accumulation)

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise DataError(
                f"rank={self.rank}; it must be from 0 to {self.world - 1}, one for each of the {self.world} workers"
            )
        if self.batch < self.world * self.micro:
            raise DataError(
                f"batch={self.batch} leaves a micro-batch empty; "
                f"use world × micro = {self.world * self.micro} rows or more"
            )

    def batches(self, consumed: int = 0) -> Iterator[Batch]:
        """Yields batches forever, starting after `consumed` samples; `micro` of them make one step."""
        while True:
            for part in range(self.rank * self.micro, (self.rank + 1) * self.micro):
                yield self._micro_batch(consumed, part)
            consumed += self.batch

    def _micro_batch(self, start: int, part: int) -> Batch:
        """Returns micro-batch `part`, counted over all workers, of the step that starts at sample `start`."""
        parts = self.world * self.micro
        first, last = self.batch * part // parts, self.batch * (part + 1) // parts
        samples = [self._sample(start + offset) for offset in range(first, last)]
        batch = self.rows.take([index for _, index in samples])
        keys = torch.tensor([key for key, _ in samples])
        return replace(batch, origin=BatchOrigin(keys, first, self.batch, start // self.batch))

    def _sample(self, number: int) -> tuple[int, int]:
        """Returns the key of a sample, epoch × size + row, and the index of its row."""
        size = self.rows.size
        if size is None:
            return number, number
        epoch, position = divmod(number, size)
        index = int(_epoch_order(size, self.seed, epoch)[position])
        return epoch * size + index, index


def first_batches(rows: FramedRows, count: int, batch: int = 64) -> list[Batch]:
    """Returns the first `count` rows in their original order, or all rows if there are fewer."""
    total = count if rows.size is None else min(count, rows.size)
    ranges = [range(first, min(first + batch, total)) for first in range(0, total, batch)]
    return [replace(rows.take(r), origin=BatchOrigin(torch.tensor(r), r.start, total)) for r in ranges]


def prefetch(items: Iterable[_T], depth: int = 4) -> Iterator[_T]:
    """Yields the items in order while one thread prepares the next ones; exceptions of that thread are raised here."""
    source = iter(items)
    with ThreadPoolExecutor(1, "prefetch") as thread:
        pending = deque(thread.submit(_one, source) for _ in range(depth))
        while item := pending.popleft().result():
            pending.append(thread.submit(_one, source))
            yield item[0]


def _one(items: Iterator[_T]) -> list[_T]:
    """Returns a list of the next item, or an empty list at the end."""
    return list(islice(items, 1))
