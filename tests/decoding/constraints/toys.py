"""Small vocabularies on which every text can be written down."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft import Canvas, Context, Prediction, Vocab
from redraft.core import CharTokenizer, TablePrediction

LETTERS = CharTokenizer("ab", ("eos", "mask"))
VOCAB = LETTERS.vocab


@dataclass(frozen=True)
class Said:
    """A denoiser that always says the same of each position, whatever it sees."""

    log_p: Tensor  # (L, V)
    block: int | None = None

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        return TablePrediction(self.log_p.expand(len(z), *self.log_p.shape))

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return context


def said(length: int, seed: int, vocab: Vocab = VOCAB, sharp: float = 1.0) -> Tensor:
    """(L, V) log-probabilities, none on the mask."""
    log_p = sharp * torch.randn(length, vocab.size, generator=torch.Generator().manual_seed(seed))
    if vocab.mask is not None:
        log_p[:, vocab.mask] = -torch.inf
    return log_p.log_softmax(-1)


def blank(length: int, rows: int = 1, given: dict[int, int] | None = None) -> Canvas:
    """Masks, and given tokens by their places."""
    z, fixed = torch.full((rows, length), VOCAB.masked), torch.zeros(rows, length, dtype=torch.bool)
    for place, token in (given or {}).items():
        z[:, place], fixed[:, place] = token, True
    return Canvas(z, fixed)


def text_of(ids: list[int]) -> str | None:
    """The text of a row: letters, then end tokens alone; None if it is none."""
    body = list(itertools.takewhile(lambda token: token != VOCAB.eos, ids))
    if any(token != VOCAB.eos for token in ids[len(body) :]) or VOCAB.mask in body:
        return None
    return "".join(LETTERS.alphabet[token] for token in body)


def matching(pattern: str, length: int) -> Iterator[tuple[int, ...]]:
    """All rows of so many tokens whose text matches, in Python's own words."""
    for ids in itertools.product(range(3), repeat=length):
        text = text_of(list(ids))
        if text is not None and re.fullmatch(pattern, text):
            yield ids


def law(log_p: Tensor, pattern: str, given: dict[int, int] | None = None) -> dict[tuple[int, ...], float]:
    """The factorized law given that the text matches, by enumeration; given tokens count as certain."""
    given = given or {}
    weights = {
        ids: float(sum(log_p[i, token].double() for i, token in enumerate(ids) if i not in given))
        for ids in matching(pattern, len(log_p))
        if all(ids[i] == token for i, token in given.items())
    }
    total = torch.tensor(list(weights.values()), dtype=torch.float64).logsumexp(0).exp().item()
    return {ids: float(torch.tensor(w, dtype=torch.float64).exp()) / total for ids, w in weights.items()}


def chi_square(found: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> float:
    """How many standard deviations Pearson's statistic lies above its mean; impossible rows are an error."""
    assert set(found) <= set(expected)
    n = sum(found.values())
    pooled = {ids: p for ids, p in expected.items() if n * p >= 5}
    rest = n - sum(found[ids] for ids in pooled), n * (1 - sum(pooled.values()))
    terms = [(found[ids] - n * p) ** 2 / (n * p) for ids, p in pooled.items()]
    terms += [(rest[0] - rest[1]) ** 2 / rest[1]] if rest[1] >= 5 else []
    degrees = len(terms) - 1
    return (sum(terms) - degrees) / math.sqrt(2 * max(degrees, 1))
