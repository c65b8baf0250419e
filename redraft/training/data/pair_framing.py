"""Framings of pairs: rows in which a source is given and a target is learned.

The source stands before the target in the same row (`PairRows`, as in DiffuSeq; `ChatRows`), or an encoder reads it
(`EncoderRows`, as in GENIE; `SpanRows`, the pre-training of GENIE, which needs no pairs). If the source is always one
of a few names, it can be the class of the target instead (`LabeledRows`, as in LD4TG).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from redraft.core import randomness
from redraft.core.text.chat_template import prompt_ids, question_encoder
from redraft.core.text.tokenizers import Tokenizer
from redraft.core.vocab import MAX_WIDTH, Vocab, require_range
from redraft.training.data.framing import DocumentRows, FramedRows, Framing, _require_some_rows, _Row
from redraft.training.data.pairs import HasClasses, InfinitePairs, Pair, PairCorpus, class_names
from redraft.training.data.sources import (
    Corpus,
    DataError,
    DataStats,
    InfiniteCorpus,
    Split,
)

_T = TypeVar("_T")


@dataclass(frozen=True)
class PairRows(Framing):
    """Source and target in one row: source [bos] target [eos] …; the source and bos are given.

    The given part stays clean while the target is noised: the partial noising of DiffuSeq (Gong et al. 2023, §3.1).
    With `fill_with_eos` the rest of the row is eos, learned like any token, which models the length. With `joint` the
    source is noised and learned as well, and given only in sampling: the ablation of partial noising.
    """

    length: int
    source: int = 64  # maximum number of source tokens
    fill_with_eos: bool = True
    joint: bool = False
    conditional = separates_sources = True

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "length")
        if not 0 < self.source < self.length - 1:
            raise ValueError(
                f"length={self.length} leaves no room for a target after source={self.source} tokens; raise length"
            )

    @property
    def padded(self) -> bool:
        return not self.fill_with_eos

    def prompt(self, context: Sequence[int], start: Sequence[int]) -> list[int]:
        return [*context, *start]

    def context_room(self, capacity: int) -> int:
        return min(capacity, self.source)

    def with_given_sources(self) -> PairRows:
        return replace(self, joint=False)

    def rows(self, source: Corpus | InfiniteCorpus, split: Split, tokenizer: Tokenizer) -> FramedRows:
        if tokenizer.vocab.bos is None:
            raise DataError("a pair in one row needs bos between its texts, but this tokenizer has none; give it a bos")
        return _of_pairs(self, source, split, tokenizer)

    def frame(self, source: list[int], target: list[int], vocab: Vocab, tally: DataStats) -> _Row:
        """Returns the row of one pair without padding."""
        before = _truncate(source, self.source, tally)
        rest = DocumentRows(self.length - len(before), fill_with_eos=self.fill_with_eos).frame(target, vocab, tally)
        return _row([*before, *rest], 0 if self.joint else len(before) + 1)


@dataclass(frozen=True)
class ChatRows(Framing):
    """A question in the chat template of the tokenizer, and its answer: `prompt answer [eos] [eos] …`

    The fine-tuning of LLaDA (Nie et al. 2025, §2.3): the prompt stays clean, and the end tokens that fill the row are
    noised and learned like any token. A fraction `shorten` of the rows is cut to a random length, fixed for each row,
    so that the model also sees shorter rows (1 % in LLaDA's pre-training).
    """

    length: int
    shorten: float = 0.01
    seed: int = 0
    conditional = in_chat = True

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "length")
        require_range(self, 0, 1, "shorten")

    @property
    def padded(self) -> bool:
        return self.shorten > 0

    def rows(self, source: Corpus | InfiniteCorpus, split: Split, tokenizer: Tokenizer) -> FramedRows:
        if tokenizer.template is None or tokenizer.vocab.eos is None:
            raise DataError(
                "ChatRows needs a tokenizer with a chat template and eos; use the tokenizer.json of a chat model"
            )
        prompt = question_encoder(tokenizer)

        def frame(index: int, pair: Pair, tally: DataStats) -> _Row:
            return self.frame(index, prompt(pair.source), tokenizer.encode(pair.target), tokenizer.vocab, tally)

        return _framed(self, frame, source, split, tokenizer.vocab)

    def chat_turn(self, source: str, tokenizer: Tokenizer) -> list[int]:
        return prompt_ids(tokenizer, [{"role": "user", "content": source}])

    def frame(self, index: int, prompt: list[int], answer: list[int], vocab: Vocab, tally: DataStats) -> _Row:
        """Returns the row of pair `index` without padding."""
        if len(prompt) >= self.length:
            raise DataError(
                f"a prompt of {len(prompt)} tokens leaves no room for an answer; use rows longer than {self.length}"
            )
        tally.tokens += len(prompt) + len(answer)
        tally.cut += len(prompt) + len(answer) + 1 > self.length
        row = [*prompt, *answer, *[_require_eos(vocab)] * self.length][: self.length]
        coin, fraction = randomness.rng(self.seed, 1).fold(index).uniform(2)[0].tolist()
        if coin < self.shorten:
            row = row[: len(prompt) + 1 + int(fraction * (self.length - len(prompt)))]
        return _row(row, len(prompt))


@dataclass(frozen=True)
class EncoderRows(Framing):
    """The target in the row; the source, ended by eos, is read by an encoder (GENIE)."""

    length: int
    source: int = 64  # maximum number of source tokens, including eos
    fill_with_eos: bool = True
    conditional = separates_sources = True

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "length", "source")

    @property
    def padded(self) -> bool:
        return not self.fill_with_eos

    def context_room(self, capacity: int) -> int:
        return self.source - 1

    def rows(self, source: Corpus | InfiniteCorpus, split: Split, tokenizer: Tokenizer) -> FramedRows:
        return _of_pairs(self, source, split, tokenizer)

    def frame(self, source: list[int], target: list[int], vocab: Vocab, tally: DataStats) -> _Row:
        """Returns the row of one pair without padding."""
        before = [*_truncate(source, self.source - 1, tally), _require_eos(vocab)]
        row = DocumentRows(self.length, fill_with_eos=self.fill_with_eos).frame(target, vocab, tally)
        return _row(row, int(vocab.bos is not None), before)


@dataclass(frozen=True)
class LabeledRows(Framing):
    """The target in the row, with the index of its class, for networks with class labels (LD4TG, UDLM)."""

    length: int
    fill_with_eos: bool = True
    conditional = True
    answers_texts = False

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "length")

    @property
    def padded(self) -> bool:
        return not self.fill_with_eos

    def rows(self, source: Corpus | InfiniteCorpus, split: Split, tokenizer: Tokenizer) -> FramedRows:
        if (classes := class_names(source)) is None:
            name = type(source).__name__
            raise DataError(
                f"{name} has texts but no classes, which LabeledRows needs; use data with classes, such as JsonlClasses"
            )
        indices = {name: index for index, name in enumerate(classes)}

        def frame(_: int, pair: Pair, tally: DataStats) -> _Row:
            return self.frame(indices[pair.source], tokenizer.encode(pair.target), tokenizer.vocab, tally)

        return _framed(self, frame, source, split, tokenizer.vocab)

    def frame(self, label: int, target: list[int], vocab: Vocab, tally: DataStats) -> _Row:
        """Returns the row of one text without padding."""
        row = DocumentRows(self.length, fill_with_eos=self.fill_with_eos).frame(target, vocab, tally)
        return _row(row, int(vocab.bos is not None))._replace(label=label)


@dataclass(frozen=True)
class SpanRows(Framing):
    """A span of each document is the target; the source is the document with a single mask in place of the span.

    Continuous paragraph denoising, the pre-training of GENIE (Lin et al. 2023, §3.3). The span, the fraction
    `span_fraction` of the document, starts at a random position, fixed for each document.
    """

    length: int
    source: int = 64  # maximum number of tokens of a document, including eos
    span_fraction: float = 0.3  # length of the span as a fraction of the document
    fill_with_eos: bool = True
    seed: int = 0
    conditional = True
    answers_texts = False

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "length")
        if not 0 < self.span_fraction < 1 or self.source < 3:
            raise ValueError(
                f"span_fraction={self.span_fraction}, source={self.source}; use 0 < span_fraction < 1 and source >= 3"
            )

    @property
    def padded(self) -> bool:
        return not self.fill_with_eos

    def rows(self, source: Corpus | InfiniteCorpus, split: Split, tokenizer: Tokenizer) -> FramedRows:
        def frame(index: int, text: str, tally: DataStats) -> _Row:
            return self.frame(index, tokenizer.encode(text), tokenizer.vocab, tally)

        if isinstance(source, InfiniteCorpus):
            return _infinite(self, lambda index: source.document(split, index), frame, tokenizer.vocab)
        return _finite(self, source.documents, frame, split, tokenizer.vocab)

    def frame(self, index: int, ids: list[int], vocab: Vocab, tally: DataStats) -> _Row:
        """Returns the row of document `index` without padding."""
        ids = _truncate(ids, self.source - 1, tally)
        size = max(1, round(self.span_fraction * len(ids)))
        begin = int(float(randomness.rng(self.seed, 1).fold(index).uniform(1)) * (len(ids) - size + 1))
        before = [*ids[:begin], vocab.masked, *ids[begin + size :], _require_eos(vocab)]
        row = DocumentRows(self.length, fill_with_eos=self.fill_with_eos).frame(ids[begin : begin + size], vocab, tally)
        return _row(row, int(vocab.bos is not None), before)


def _of_pairs(
    framing: PairRows | EncoderRows, source: Corpus | InfiniteCorpus, split: Split, tokenizer: Tokenizer
) -> FramedRows:
    def frame(_: int, pair: Pair, tally: DataStats) -> _Row:
        return framing.frame(tokenizer.encode(pair.source), tokenizer.encode(pair.target), tokenizer.vocab, tally)

    return _framed(framing, frame, source, split, tokenizer.vocab)


def _framed(
    framing: Framing,
    frame: Callable[[int, Pair, DataStats], _Row],
    source: Corpus | InfiniteCorpus | HasClasses,
    split: Split,
    vocab: Vocab,
) -> FramedRows:
    if isinstance(source, InfinitePairs):
        return _infinite(framing, lambda index: source.pair(split, index), frame, vocab)
    if isinstance(source, PairCorpus):
        return _finite(framing, source.pairs, frame, split, vocab)
    raise DataError(
        f"{type(source).__name__} has texts but no pairs of source and target, which {type(framing).__name__} needs; "
        "use JsonlPairs or CsvPairs"
    )


def _infinite(
    framing: Framing, make: Callable[[int], _T], frame: Callable[[int, _T, DataStats], _Row], vocab: Vocab
) -> FramedRows:
    tally = DataStats()

    def row(index: int) -> _Row:
        tally.documents += 1
        return frame(index, make(index), tally)

    return FramedRows(None, row, framing, vocab, tally)


def _finite(
    framing: Framing,
    read: Callable[[Split, DataStats], Iterable[_T]],
    frame: Callable[[int, _T, DataStats], _Row],
    split: Split,
    vocab: Vocab,
) -> FramedRows:
    tally = DataStats()
    rows = [frame(index, item, tally) for index, item in enumerate(read(split, tally))]
    _require_some_rows(len(rows), split, framing, tally)
    return FramedRows(len(rows), rows.__getitem__, framing, vocab, tally)


def _truncate(ids: list[int], most: int, tally: DataStats) -> list[int]:
    tally.cut += len(ids) > most
    return ids[:most]


def _require_eos(vocab: Vocab) -> int:
    """Returns the end token; raises if there is none."""
    if vocab.eos is None:
        raise DataError("sources and answers end with eos, but this tokenizer has none; give it an eos")
    return vocab.eos


def _row(ids: list[int], given: int, source: list[int] | None = None) -> _Row:
    """Returns a row of arrays, which take a fifth of the memory of lists."""
    return _Row(np.asarray(ids, np.int32), given, None if source is None else np.asarray(source, np.int32))
