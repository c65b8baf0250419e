"""Tokenizers made for a text, and whether a tokenizer can spell a text."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path

from redraft.core.text.tokenizers import (
    UNKNOWN,
    ByteTokenizer,
    CharTokenizer,
    HubTokenizer,
    Special,
    Tokenizer,
    WordTokenizer,
    train_bpe,
)
from redraft.training.data.annotations import as_annotated
from redraft.training.data.pairs import PairCorpus
from redraft.training.data.sources import Corpus, DataError, DataStats, InfiniteCorpus

_SPECIALS: tuple[Special, ...] = ("eos", "pad", "mask")
_SIZES = {"words": 8192, "bpe": 2048}  # default vocabulary sizes
_MOST_UNKNOWN = 0.2  # fraction of unknown tokens above which training would be meaningless


def make_tokenizer(choice: str, text: Corpus | InfiniteCorpus) -> Tokenizer:
    """Returns the tokenizer of a choice: chars, bytes, words, words:N, bpe, bpe:N, or the path of a tokenizer.json.

    Tokenizers of characters, words and byte pairs are trained on the training split of the text.
    """
    kind, _, size = choice.partition(":")
    specials: tuple[Special, ...] = ("bos", *_SPECIALS) if isinstance(text, PairCorpus) else _SPECIALS
    if choice == "chars":
        return CharTokenizer.collect(training_texts(text), specials)
    if choice == "bytes":
        return ByteTokenizer(specials)
    if kind in _SIZES and (size.isdecimal() or kind == choice):
        train = train_bpe if kind == "bpe" else WordTokenizer.collect
        return train(training_texts(text), int(size or _SIZES[kind]), specials)
    if not Path(choice).exists():
        raise DataError(f"{choice} is neither chars, bytes, words:N, bpe:N nor an existing tokenizer.json")
    try:
        return HubTokenizer.load(choice)
    except ValueError as error:  # includes errors of UTF-8 and of JSON
        raise DataError(f"{choice} cannot be used: {error}") from error


def training_texts(text: Corpus | InfiniteCorpus) -> Iterable[str]:
    """Returns texts to train a tokenizer on: the training split, or an infinite corpus's word list and 4096 texts."""
    if isinstance(text, PairCorpus):
        return chain.from_iterable(text.pairs("train", DataStats()))
    if not isinstance(text, InfiniteCorpus):
        return text.documents("train", DataStats())
    words = filter(None, [" ".join(as_annotated(text).words())])
    return chain(words, (text.document("train", index) for index in range(4096)))


def unknown_fraction(tokenizer: Tokenizer, texts: Iterable[str], most: int = 1000) -> float:
    """Returns which fraction of the tokens of the first `most` texts is the unknown one.

    Raises ValueError if the tokenizer has no unknown token and cannot spell a text.
    """
    unknown = count = 0
    for text in islice(texts, most):
        ids = tokenizer.encode(text)
        count += len(ids)
        unknown += sum(ids.count(token) for token in set(ids) if tokenizer.piece(token) == UNKNOWN)
    return unknown / max(1, count)


def spells(tokenizer: Tokenizer, text: Corpus | InfiniteCorpus) -> bool:
    """Whether a tokenizer has a token for every word of a text."""
    if isinstance(tokenizer, ByteTokenizer):
        return True
    try:
        return unknown_fraction(tokenizer, training_texts(text)) == 0
    except DataError:
        raise
    except ValueError:  # a character that is not in the alphabet
        return False


def require_spelling(tokenizer: Tokenizer, text: Corpus | InfiniteCorpus) -> None:
    """Raises if a tokenizer knows too few words of a text to train on it."""
    if not tokenizer.known_words:  # bytes and byte pairs spell everything, and characters raise when they cannot
        return
    fraction = unknown_fraction(tokenizer, training_texts(text), 100)
    if fraction > _MOST_UNKNOWN:
        raise DataError(
            f"{fraction:.0%} of the words of the text are not among the {len(tokenizer.known_words):,} words of the "
            "tokenizer, so it would learn from unknown words; choose a tokenizer for this text (bpe, or more words)"
        )
