"""Reads a text once with a causal model, then scores words in the place of others by going back to where they begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.text.tokenizers import Tokenizer
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.networks.kv_cache import KeyValueCache

_AFTER = 5  # tokens after a word that are scored with it


@dataclass(frozen=True, eq=False)
class _Reading:
    """A text that was read: its tokens, the log-probabilities after each of them, and the cache."""

    text: str
    begin: int  # characters before this one are context that never changes
    ids: tuple[int, ...]
    log_probs: Tensor  # (L, V) of the token after each one
    cache: KeyValueCache

    def nats(self, first: int, end: int) -> float:
        """−log p of the tokens first … end."""
        columns = torch.arange(first, end)
        return -float(self.log_probs[columns - 1, torch.tensor(self.ids[first:end])].sum()) if end > first else 0.0


@dataclass(frozen=True)
class _Variants:
    """A word and others in its place, as tokens: those up to `first` and the last ones are the same in all of them."""

    rows: tuple[tuple[int, ...], ...]  # from `first` on; row 0 has the word of the reading
    first: int
    same: int  # tokens at the end that all rows share

    def differing(self, row: int) -> tuple[int, ...]:
        """The tokens of a row before the shared ones."""
        return self.rows[row][: len(self.rows[row]) - self.same]


@dataclass(frozen=True, eq=False)
class _CausalReader:
    """A causal model that reads texts from the start of a document."""

    lm: DiffusionLM
    tokenizer: Tokenizer
    start: int  # a token that begins documents

    def read(self, text: str, begin: int = 0) -> _Reading:
        """Reads a text in one call."""
        ids = (self.start, *self.tokenizer.encode(text))
        states, cache = self.lm.network.extend(torch.tensor([ids], device=self.device))
        return _Reading(text, begin, ids, self._logits(states[0]).log_softmax(-1), cache)

    def variants(self, reading: _Reading, start: int, end: int, others: Sequence[str]) -> _Variants:
        """The tokens of the text, and of the text with other words in the place of characters start … end."""
        before, after = reading.text[:start], reading.text[end:]
        rows = [reading.ids, *((self.start, *self.tokenizer.encode(f"{before}{word}{after}")) for word in others)]
        shortest = min(map(len, rows))  # at least one token of each row differs
        first = min(shortest - 1, *(_common_prefix(rows[0], row) for row in rows[1:]))
        ends = (_common_prefix(rows[0][first:][::-1], row[first:][::-1]) for row in rows[1:])
        same = min(shortest - first - 1, *ends)
        return _Variants(tuple(row[first:] for row in rows), first, same)

    def log_probs(self, reading: _Reading, variants: _Variants, rows: Sequence[int]) -> list[float]:
        """log p of some rows of variants, up to a few tokens after the word."""
        after = min(variants.same, _AFTER)
        ids = [(*variants.differing(row), *variants.rows[row][len(variants.differing(row)) :][:after]) for row in rows]
        scores = reading.log_probs[variants.first - 1, torch.tensor([row[0] for row in ids])]
        width = max(map(len, ids))
        if width > 1:
            tokens = torch.tensor([[*row, *[self.start] * (width - len(row))] for row in ids], device=self.device)
            scores = scores + self._continued(reading.cache.crop(variants.first), tokens, [len(row) for row in ids])
        return [float(score) for score in scores]

    def own_log_prob(self, reading: _Reading, variants: _Variants) -> float:
        """log p of the row that was read, up to the same tokens after the word as `log_probs`; costs nothing."""
        end = variants.first + len(variants.differing(0)) + min(variants.same, _AFTER)
        return -reading.nats(variants.first, end)

    def _continued(self, cache: KeyValueCache, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        """(K, N) tokens after a cache → (K,) log p of all but the first, each row up to its length."""
        states, _ = self.lm.network.extend(tokens[:, :-1], cache.rows(torch.zeros(len(tokens), dtype=torch.int64)))
        logits, targets = self._logits(states.flatten(0, 1)), tokens[:, 1:]
        log_p = -ops.nll(logits, targets.flatten()).view(targets.shape).double()
        counted = torch.arange(1, tokens.shape[1], device=self.device) < torch.tensor(lengths)[:, None]
        return (log_p * counted).sum(-1)

    def _logits(self, states: Tensor) -> Tensor:
        logits, mask = self.lm.network.logits(states).float(), self.lm.config.vocab.mask
        return logits if mask is None or mask >= logits.shape[-1] else ops.exclude(logits, mask)

    @property
    def device(self) -> torch.device:
        return next(self.lm.parameters()).device


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of tokens that two rows share at their beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
