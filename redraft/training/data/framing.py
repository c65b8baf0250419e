"""Framings: how documents become rows of `length` token ids."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from redraft.core.batch import Batch
from redraft.core.condition import Condition
from redraft.core.text.tokenizers import Tokenizer
from redraft.core.vocab import MAX_WIDTH, Vocab, require_range
from redraft.training.data.sources import Corpus, DataError, DataStats, InfiniteCorpus, Split

_Ids = NDArray[np.int32]
_Offsets = NDArray[np.int64]  # row i is ids[offsets[i]:offsets[i + 1]]


class Framing(ABC):
    """How documents become rows of `length` ids; every subclass is a final frozen dataclass."""

    length: int
    conditional = False  # True if every row depends on a given source or label
    answers_texts = True  # False if rows have no room for a text to answer
    separates_sources = False  # True if source and target are encoded apart from each other
    in_chat = False  # True if a chat template renders the source, which is then part of the text of a result
    whole_documents = True  # False if rows begin and end anywhere in a document

    @property
    @abstractmethod
    def padded(self) -> bool:
        """Whether rows may be shorter than `length`."""

    @abstractmethod
    def rows(self, source: Corpus | InfiniteCorpus, split: Split, tokenizer: Tokenizer) -> FramedRows:
        """Returns the rows of one split."""

    def text_row(self, ids: list[int], vocab: Vocab) -> list[int]:
        """Returns the row of one text without padding; raises if the model cannot read a text of this length."""
        bos, eos = ([] if token is None else [token] for token in (vocab.bos, vocab.eos))
        return [*bos, *ids, *eos, *eos * self.end_tokens(len([*bos, *ids, *eos]))]

    def end_tokens(self, used: int) -> int:
        """Returns how many learned end tokens fill a row after its first `used` tokens."""
        return 0

    def prompt(self, context: Sequence[int], start: Sequence[int]) -> list[int]:
        """Returns what precedes an answer in its row: the context and the start token."""
        return [*start, *context]

    def context_room(self, capacity: int) -> int:
        """Returns how many tokens of a context the model reads if `capacity` tokens of the row are left."""
        return capacity

    def with_given_sources(self) -> Framing:
        """Returns a copy whose rows never score their source, even if training does."""
        return self

    def chat_turn(self, source: str, tokenizer: Tokenizer) -> list[int] | None:
        """Returns the ids of a source as the first turn of a chat; None if rows are no chats."""
        return None


@dataclass(frozen=True)
class DocumentRows(Framing):
    """One document per row: [bos] document [eos] padding, with bos and eos if the vocabulary has them.

    A document that does not fit is cut, without eos since it has not ended, or left out; both are counted. With
    `fill_with_eos` the rest of a row is eos instead of padding and learned like any token, so the model learns where
    texts end on a canvas of fixed length (LLaDA). These end tokens follow from the text, so they add no bits.
    """

    length: int
    cut: bool = True  # cut documents that are too long; False leaves them out
    fill_with_eos: bool = False  # fill rows with eos instead of padding

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "length")

    @property
    def padded(self) -> bool:
        return not self.fill_with_eos

    def rows(self, source: Corpus | InfiniteCorpus, split: Split, tokenizer: Tokenizer) -> FramedRows:
        if isinstance(source, InfiniteCorpus):
            return self._infinite(source, split, tokenizer)
        return _finite(source, split, tokenizer, self, given=int(tokenizer.vocab.bos is not None))

    def _infinite(self, source: InfiniteCorpus, split: Split, tokenizer: Tokenizer) -> FramedRows:
        if not self.cut:
            raise DataError(
                f"{type(source).__name__} is infinite, so no document can be left out; use DocumentRows({self.length})"
            )
        tally, vocab = DataStats(), tokenizer.vocab

        def row(index: int) -> _Row:
            tally.documents += 1
            ids = self.frame(tokenizer.encode(source.document(split, index)), vocab, tally)
            return _Row(ids, int(vocab.bos is not None))

        return FramedRows(None, row, self, vocab, tally)

    def text_row(self, ids: list[int], vocab: Vocab) -> list[int]:
        row = super().text_row(ids, vocab)
        if self.fill_with_eos and len(row) > self.length:
            raise ValueError(f"a text of {len(ids):,} tokens is longer than the rows of this model, {self.length}")
        return row

    def end_tokens(self, used: int) -> int:
        return max(0, self.length - used) if self.fill_with_eos else 0

    def lay(self, documents: Iterable[list[int]], vocab: Vocab, tally: DataStats) -> tuple[_Ids, _Offsets]:
        """Returns all rows, without padding, in one array, and the offset of each row."""
        framed = [np.asarray(self.frame(ids, vocab, tally), np.int32) for ids in documents]
        rows = [row for row in framed if len(row)]
        tally.dropped += len(framed) - len(rows)
        return np.concatenate([_NOTHING, *rows]), np.cumsum([0, *map(len, rows)])

    def frame(self, ids: list[int], vocab: Vocab, tally: DataStats) -> list[int]:
        """Returns the row of one document without padding; empty if the document is left out."""
        tally.tokens += len(ids)
        bos, eos = ([] if token is None else [token] for token in (vocab.bos, vocab.eos))
        row = [*bos, *ids, *eos]
        if len(row) <= self.length:
            return row + eos * (self.length - len(row)) if self.fill_with_eos else row
        tally.cut += self.cut
        return row[: self.length] if self.cut else []


@dataclass(frozen=True)
class PackedRows(Framing):
    """Rows cut from all documents, joined with eos between them; tokens after the last full row are only counted.

    Each row of an infinite corpus has its own documents and begins at a different position in them.
    """

    length: int
    whole_documents = False

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "length")

    @property
    def padded(self) -> bool:
        return False

    def rows(self, source: Corpus | InfiniteCorpus, split: Split, tokenizer: Tokenizer) -> FramedRows:
        if isinstance(source, InfiniteCorpus):
            return self._infinite(source, split, tokenizer)
        return _finite(source, split, tokenizer, self)

    def _infinite(self, source: InfiniteCorpus, split: Split, tokenizer: Tokenizer) -> FramedRows:
        tally, vocab, eos = DataStats(), tokenizer.vocab, tokenizer.vocab.eos
        if eos is None:
            raise _NO_EOS

        def row(index: int) -> _Row:
            skipped, ids = int(self.length * (index * _GOLDEN_RATIO % 1)), list[int]()
            for document in itertools.count(2 * self.length * index):  # even empty documents fill the row
                ids += [*tokenizer.encode(source.document(split, document)), eos]
                tally.documents += 1
                if len(ids) >= skipped + self.length:
                    break
            return _Row(ids[skipped : skipped + self.length])

        return FramedRows(None, row, self, vocab, tally)

    def text_row(self, ids: list[int], vocab: Vocab) -> list[int]:
        return ids

    def lay(self, documents: Iterable[list[int]], vocab: Vocab, tally: DataStats) -> tuple[_Ids, _Offsets]:
        """Returns all rows in one array, and the offset of each row."""
        parts = [_NOTHING]
        for index, ids in enumerate(documents):
            if index and vocab.eos is None:
                raise _NO_EOS
            tally.tokens += len(ids)
            parts.append(np.asarray([vocab.eos, *ids] if index else ids, np.int32))
        joined = np.concatenate(parts)
        rows, tally.tail = divmod(len(joined), self.length)
        return joined[: rows * self.length], np.arange(rows + 1) * self.length


_SPLITS: dict[Split, str] = {"train": "training", "valid": "held-out", "test": "test"}
_NOTHING: _Ids = np.empty(0, np.int32)
_NO_EOS = DataError("packing needs eos between documents, but this tokenizer has none; give it an eos")
_GOLDEN_RATIO = (math.sqrt(5) - 1) / 2  # its multiples spread evenly between integers


def _finite(
    source: Corpus, split: Split, tokenizer: Tokenizer, framing: DocumentRows | PackedRows, given: int = 0
) -> FramedRows:
    """Tokenizes all documents of a split into one array."""
    tally, vocab = DataStats(), tokenizer.vocab
    ids, offsets = framing.lay((tokenizer.encode(text) for text in source.documents(split, tally)), vocab, tally)
    _require_some_rows(len(offsets) - 1, split, framing, tally)
    return FramedRows(len(offsets) - 1, lambda i: _Row(ids[offsets[i] : offsets[i + 1]], given), framing, vocab, tally)


def _require_some_rows(count: int, split: Split, framing: Framing, tally: DataStats) -> None:
    """Raises if a split has no rows."""
    if not count:
        raise DataError(
            f"the {_SPLITS[split]} text has {tally.tokens:,} tokens in {tally.documents:,} documents, which fill no "
            f"row of {framing.length:,}; give more text, or use shorter rows (length)"
        )


class _Row(NamedTuple):
    """A sample without padding."""

    ids: Sequence[int] | _Ids
    given: int = 0  # number of leading tokens that are not learned; a count, since bos and eos may have the same id
    source: Sequence[int] | _Ids | None = None  # source for an encoder; None without one
    label: int | None = None  # index of its class; None without classes


@dataclass(frozen=True)
class FramedRows:
    """The rows of a split, framed when they are taken."""

    size: int | None  # number of rows; None if infinite
    row: Callable[[int], _Row]  # index → row
    framing: Framing
    vocab: Vocab
    tally: DataStats

    def __post_init__(self) -> None:
        if self.framing.padded and self.vocab.pad is None and self.vocab.eos is None:
            raise DataError(
                "padding needs an id, but this tokenizer has neither pad nor eos; give it one, or use PackedRows"
            )

    def take(self, indices: Iterable[int]) -> Batch:
        """Returns the rows at these indices as a batch; all tokens but padding and given ones are learned."""
        rows = [self.row(index) for index in indices]
        tokens, pad = pad_rows([row.ids for row in rows], self.framing.length, self.vocab)
        learn = ~pad & (torch.arange(self.framing.length) >= torch.tensor([row.given for row in rows])[:, None])
        batch = Batch(tokens, learn, pad if self.framing.padded else None)
        return replace(batch, condition=self._condition(rows))

    def _condition(self, rows: Sequence[_Row]) -> Condition:
        labels = [row.label for row in rows if row.label is not None]
        label = torch.tensor(labels) if labels else None
        sources = [row.source for row in rows if row.source is not None]
        if not sources:
            return Condition(label)
        return Condition(label, *pad_rows(sources, max(map(len, sources)), self.vocab))


def pad_rows(rows: Sequence[Sequence[int] | _Ids], length: int, vocab: Vocab) -> tuple[Tensor, Tensor]:
    """Returns (B, length) ids and (B, length) bool: True on padding."""
    tokens = np.full((len(rows), length), vocab.filler, np.int64)
    for line, row in zip(tokens, rows, strict=True):
        line[: len(row)] = row
    pad = np.arange(length) >= np.array([len(row) for row in rows])[:, None]
    return torch.from_numpy(tokens), torch.from_numpy(pad)
