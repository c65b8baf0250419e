"""Taggers: which kind of word stands at each place, of noisy rows, or of what is to come behind a beginning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from redraft.core.canvas import Context
from redraft.core.vocab import require_range
from redraft.models.networks.attention import Causal, Full
from redraft.models.networks.config import NetworkIO, TransformerConfig
from redraft.models.networks.transformer import Transformer


@dataclass(frozen=True)
class TagSet:
    """The kinds of words that a tagger tells apart, say parts of speech, and the kind of every token.

    Tokens of no kind (special ones, words that a lexicon does not know) have the number `none`.
    """

    names: tuple[str, ...]
    of: tuple[int, ...]  # (V,) the number of each token's kind
    layers: int = 1  # of the tagger of noisy rows

    def __post_init__(self) -> None:
        require_range(self, 1, 4096, "layers")
        if not self.names or len(set(self.names)) < len(self.names):
            raise ValueError(f"kinds need names, each of its own; got {', '.join(self.names) or 'none'}")
        if wrong := [number for number in self.of if not 0 <= number <= self.none]:
            raise ValueError(f"a token has the kind {wrong[0]}; kinds have the numbers 0 to {self.none} (none of them)")

    @property
    def none(self) -> int:
        return len(self.names)

    @classmethod
    def of_words(cls, words: Sequence[str], size: int, lexicon: Mapping[str, str], layers: int = 1) -> TagSet:
        """The kinds that a lexicon says of a vocabulary: `words` first, special tokens behind them."""
        names = tuple(sorted(Counter(lexicon[word] for word in words if word in lexicon)))
        said = [lexicon.get(word) for word in words]
        of = [len(names) if kind is None else names.index(kind) for kind in said]
        return cls(names, (*of, *[len(names)] * (size - len(of))), layers)


class Tagger(nn.Module):
    """(B, L, D) noisy vectors or (B, L, V) one-hot noisy tokens → (B, L, kinds + 1) logits of the clean token's kind.

    It reads one-hot tokens, so that its gradient says what every other token would do (`FirstOrderClassifier`).
    """

    def __init__(self, config: TransformerConfig, reads: int, kinds: TagSet) -> None:
        super().__init__()
        plain = replace(config, pattern=Full(), layers=kinds.layers, classes=None, dropout=0.0, tied=False, ids=None)
        self.network = Transformer(plain, NetworkIO(reads, kinds.none + 1, vectors=True))

    def forward(self, x: Tensor, level: Tensor | None = None, pad: Tensor | None = None) -> Tensor:
        return self.network.logits(self.network(x, level, Context(pad=pad))).float()


class FutureTagger(nn.Module):
    """What kinds follow a beginning: p(y_{i+1} … y_L | x_1 … x_i), by one causal network and the chain rule.

    It reads the tokens of the beginning, then the kinds themselves, and always says the kind of the next place; the
    product is the probability of all that is wanted. A kind that is free is read as `free` and not counted.
    """

    def __init__(self, config: TransformerConfig, size: int, kinds: TagSet) -> None:
        super().__init__()
        self.size, self.free = size, size + kinds.none + 1
        plain = replace(config, pattern=Causal(), layers=kinds.layers, dropout=0.0, tied=False, ids=None)
        self.network = Transformer(plain, NetworkIO(self.free + 2, kinds.none + 1, start=self.free + 1))

    def forward(self, read: Tensor) -> Tensor:
        """(B, L) tokens, or `size` + kinds → (B, L, kinds + 1) logits of the kind at each place, given those before"""
        return self.network.logits(self.network(read)).float()

    def rest(self, prefix: Tensor, candidates: Tensor, wanted: Tensor) -> Tensor:
        """(B, n) tokens, (B, C) tokens that might follow, (A,) kinds wanted behind them (−1: free) → (B, C) log p."""
        if not len(wanted):
            return torch.zeros(candidates.shape, device=candidates.device)
        begun = prefix.repeat_interleave(candidates.shape[1], 0)
        then = torch.where(wanted < 0, self.free, self.size + wanted).expand(len(begun), -1)
        logits = self(torch.cat([begun, candidates.reshape(-1, 1), then], 1))[:, prefix.shape[1] + 1 :]
        said = logits.log_softmax(-1).gather(-1, wanted.clamp(min=0).expand(len(then), -1)[..., None]).squeeze(-1)
        return said.masked_fill(wanted < 0, 0.0).sum(-1).view_as(candidates)
