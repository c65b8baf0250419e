"""The languages of an audit: all of them can be enumerated, so their entropies are known exactly.

Opening sentences of real texts are too many for that, so their language is a sample: some of them, equally likely.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

import torch
from torch import Tensor

from redraft.core.randomness import rng
from redraft.evaluation.laws.enumeration import ToyLanguage
from redraft.training.data.sources import InfiniteCorpus
from redraft.training.presets.tiny import mdlm_tiny

_SAME = 0.95  # probability that a bit equals the one before
_LONGEST = 3
_SENTENCES = 32


@dataclass(frozen=True)
class _AuditLanguage:
    """An enumerable language with a name."""

    name: str
    words: int
    toy: ToyLanguage

    @property
    def length(self) -> int:
        """Tokens per row."""
        return self.toy.sequences.shape[1]

    def index(self, x: Tensor) -> Tensor:
        """(B, L) → (B,) index of each row among the sequences; N for a row that is not in the language."""
        ids = int(self.toy.sequences.max()) + 1
        place = ids ** torch.arange(self.length - 1, -1, -1)
        where = torch.full((ids**self.length,), len(self.toy.p))
        where[(self.toy.sequences * place).sum(-1)] = torch.arange(len(self.toy.p))
        words = ((x >= 0) & (x < ids)).all(-1)
        return torch.where(words, where[(x * place).sum(-1) * words], len(self.toy.p))


def _audit_languages() -> tuple[_AuditLanguage, ...]:
    """Three words in rows of one and of three, correlated bits, and sentences of zero to three words."""
    return (
        _AuditLanguage("one word", 3, ToyLanguage.of(length=1)),
        _AuditLanguage("three words", 3, ToyLanguage.of()),
        _AuditLanguage("four correlated bits", 2, _correlated_bits(4)),
        _AuditLanguage("sentences with an end token", 3, _sentences()),
    )


@cache
def _opening_language() -> _AuditLanguage:
    """Opening sentences of the texts that tiny presets learn, one token per word."""
    corpus = mdlm_tiny().data
    assert isinstance(corpus, InfiniteCorpus)
    openings = [corpus.document("train", i).partition(".")[0].split() for i in range(_SENTENCES)]
    ids = {word: i for i, word in enumerate(sorted({word for words in openings for word in words}))}
    rows = torch.tensor([[ids[word] for word in words] for words in openings])
    sequences, counts = rows.unique(dim=0, return_counts=True)
    return _AuditLanguage("opening sentences", len(ids), ToyLanguage(sequences, counts.double() / len(rows)))


@cache
def _growing_language() -> _AuditLanguage:
    """Texts of zero to three words, for processes that insert tokens; id 3 follows the last word, 2 is the mask."""
    toy = _sentences()
    texts = torch.where(toy.sequences == 2, 3, toy.sequences)
    return _AuditLanguage("texts of zero to three words", 2, ToyLanguage(texts, toy.p))


def _correlated_bits(length: int) -> ToyLanguage:
    """Return the language of bits that usually repeat the bit before."""
    rows = torch.tensor(list(product(range(2), repeat=length)))
    first = torch.tensor([0.6, 0.4], dtype=torch.float64)[rows[:, 0]]
    same = (rows[:, 1:] == rows[:, :-1]).double()
    return ToyLanguage(rows, first * (_SAME * same + (1 - _SAME) * (1 - same)).prod(-1))


def _sentences() -> ToyLanguage:
    """Sentences of two words, filled up with end tokens (id 2)."""
    lengths = range(_LONGEST + 1)
    rows = [[*words, *[2] * (_LONGEST - n)] for n in lengths for words in product(range(2), repeat=n)]
    weights = rng(1).uniform(len(rows))[0] ** 2 + 0.1
    return ToyLanguage(torch.tensor(rows), weights / weights.sum())
