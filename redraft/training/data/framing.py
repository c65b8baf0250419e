"""Framings: how documents become rows of L ids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from redraft.core.batch import Batch
from redraft.core.text.tokenizers import Tokenizer
from redraft.core.vocab import MAX_WIDTH, Vocab, require_range
from redraft.training.data.sources import Corpus, DataError, DataStats, InfiniteCorpus, Split

_Ids = NDArray[np.int32]
_Places = NDArray[np.int64]  # row i is ids[places[i]:places[i + 1]]


class Framing(ABC):
    """How documents become rows of `length` ids; every subclass is a final frozen dataclass."""

    length: int
    asked = False  # True: every row answers a given source or label; no text is written from scratch

    @property
    @abstractmethod
    def padded(self) -> bool:
        """Whether rows may be shorter than `length`."""

    @abstractmethod
    def rows(self, source: Corpus | InfiniteCorpus, split: Split, tokenizer: Tokenizer) -> FramedRows:
        """The rows of one split."""


@dataclass(frozen=True)
class DocumentRows(Framing):
    """One document per row: [bos] document [eos] padding, with bos and eos where the vocabulary has them.

    A document that does not fit is cut (without eos: it has not ended) or left out; both are counted. With `tail` the
    rest of a row is filled with eos instead of padding, learnt like any token: the model then learns where texts end on
    a canvas of fixed length (LLaDA). Since the tail follows from the text, a row has no more bits than its document.
    """

    length: int
    cut: bool = True
    tail: bool = False

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "length")

    @property
    def padded(self) -> bool:
        return not self.tail

    def rows(self, source: Corpus | InfiniteCorpus, split: Split, tokenizer: Tokenizer) -> FramedRows:
        if isinstance(source, InfiniteCorpus):
            return self._endless(source, split, tokenizer)
        return _finite(source, split, tokenizer, self, given=int(tokenizer.vocab.bos is not None))

    def _endless(self, source: InfiniteCorpus, split: Split, tokenizer: Tokenizer) -> FramedRows:
        if not self.cut:
            raise _endless_error(source, self)
        tally, vocab = DataStats(), tokenizer.vocab

        def row(index: int) -> Row:
            tally.documents += 1
            ids = self.frame(tokenizer.encode(source.document(split, index)), vocab, tally)
            return Row(ids, int(vocab.bos is not None))

        return FramedRows(None, row, self, vocab, tally)

    def lay(self, documents: Iterable[list[int]], vocab: Vocab, tally: DataStats) -> tuple[_Ids, _Places]:
        """All rows without their padding in one array."""
        framed = [np.asarray(self.frame(ids, vocab, tally), np.int32) for ids in documents]
        rows = [row for row in framed if len(row)]
        tally.dropped += len(framed) - len(rows)
        return np.concatenate([_NOTHING, *rows]), np.cumsum([0, *map(len, rows)])

    def frame(self, ids: list[int], vocab: Vocab, tally: DataStats) -> list[int]:
        """The row of one document without its padding; nothing if the document is left out."""
        tally.tokens += len(ids)
        bos, eos = ([] if token is None else [token] for token in (vocab.bos, vocab.eos))
        row = [*bos, *ids, *eos]
        if len(row) <= self.length:
            return row + eos * (self.length - len(row)) if self.tail else row
        tally.cut += self.cut
        return row[: self.length] if self.cut else []


@dataclass(frozen=True)
class PackedRows(Framing):
    """All documents one after another, eos between them, cut into full rows; the rest that fills no row is counted."""

    length: int

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "length")

    @property
    def padded(self) -> bool:
        return False

    def rows(self, source: Corpus | InfiniteCorpus, split: Split, tokenizer: Tokenizer) -> FramedRows:
        if isinstance(source, InfiniteCorpus):
            raise _endless_error(source, self)
        return _finite(source, split, tokenizer, self)

    def lay(self, documents: Iterable[list[int]], vocab: Vocab, tally: DataStats) -> tuple[_Ids, _Places]:
        """All rows in one array."""
        parts = [_NOTHING]
        for number, ids in enumerate(documents):
            if number and vocab.eos is None:
                raise DataError("packing needs eos between documents and this tokenizer has none; give it one")
            tally.tokens += len(ids)
            parts.append(np.asarray([vocab.eos, *ids] if number else ids, np.int32))
        joined = np.concatenate(parts)
        rows, tally.tail = divmod(len(joined), self.length)
        return joined[: rows * self.length], np.arange(rows + 1) * self.length


_NOTHING: _Ids = np.empty(0, np.int32)


def _endless_error(source: InfiniteCorpus, framing: Framing) -> DataError:
    """The error of a framing that needs all documents at once."""
    return DataError(f"{type(source).__name__} has no end: every document is a row; use DocumentRows({framing.length})")


def _finite(
    source: Corpus, split: Split, tokenizer: Tokenizer, framing: DocumentRows | PackedRows, given: int = 0
) -> FramedRows:
    """All documents of a split, tokenised now and held as one array."""
    tally, vocab = DataStats(), tokenizer.vocab
    ids, places = framing.lay((tokenizer.encode(text) for text in source.documents(split, tally)), vocab, tally)
    require_some_rows(len(places) - 1, split, framing, tally)
    return FramedRows(len(places) - 1, lambda i: Row(ids[places[i] : places[i + 1]], given), framing, vocab, tally)


def require_some_rows(count: int, split: Split, framing: Framing, tally: DataStats) -> None:
    if not count:
        raise DataError(f"{split} fills no row of {framing.length} tokens; give it more text or shorter rows: {tally}")


class Row(NamedTuple):
    """One sample without padding."""

    ids: Sequence[int] | _Ids
    given: int = 0  # number of leading tokens that are not learnt; not by id: bos and eos may be the same
    source: Sequence[int] | _Ids | None = None  # what an encoder reads, beside the row
    label: int | None = None  # the number of its class


@dataclass(frozen=True)
class FramedRows:
    """Framed samples by number."""

    size: int | None  # None: no end
    row: Callable[[int], Row]
    framing: Framing
    vocab: Vocab
    tally: DataStats

    def __post_init__(self) -> None:
        if self.framing.padded and self.vocab.pad is None and self.vocab.eos is None:
            raise DataError("padding needs an id and this tokenizer has neither pad nor eos; give it one or use Packed")

    def take(self, indices: Iterable[int]) -> Batch:
        """Some rows as a batch; everything is learnt but padding and given tokens."""
        rows = [self.row(index) for index in indices]
        tokens, pad = pad_rows([row.ids for row in rows], self.framing.length, self.vocab)
        learn = ~pad & (torch.arange(self.framing.length) >= torch.tensor([row.given for row in rows])[:, None])
        batch = Batch(tokens, learn, pad if self.framing.padded else None)
        if labels := [row.label for row in rows if row.label is not None]:
            batch = replace(batch, label=torch.tensor(labels))
        sources = [row.source for row in rows if row.source is not None]
        if not sources:
            return batch
        source, source_pad = pad_rows(sources, max(map(len, sources)), self.vocab)
        return replace(batch, source=source, source_pad=source_pad)


def pad_rows(rows: Sequence[Sequence[int] | _Ids], length: int, vocab: Vocab) -> tuple[Tensor, Tensor]:
    """(B, length) ids, and where there is padding."""
    tokens = np.full((len(rows), length), vocab.filler, np.int64)
    for line, row in zip(tokens, rows, strict=True):
        line[: len(row)] = row
    pad = np.arange(length) >= np.array([len(row) for row in rows])[:, None]
    return torch.from_numpy(tokens), torch.from_numpy(pad)
