"""Taggers: networks that predict tags of words, such as parts of speech, for guidance and look-ahead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from redraft.core.canvas import Context
from redraft.core.vocab import require_range
from redraft.models.networks.config import NetworkIO, TransformerConfig
from redraft.models.networks.patterns import Causal, Full
from redraft.models.networks.transformer import Transformer


@dataclass(frozen=True)
class TagSet:
    """The tags that a tagger predicts, such as parts of speech, and the tag of every token.

    Tokens without a tag (special tokens, words that are not in the lexicon) have the index `none`.
    """

    names: tuple[str, ...]  # name of each tag
    of: tuple[int, ...]  # (V,) index of each token's tag
    layers: int = 1  # number of layers of the tagger

    def __post_init__(self) -> None:
        require_range(self, 1, 4096, "layers")
        if not self.names or len(set(self.names)) < len(self.names):
            raise ValueError(f"tag names {', '.join(self.names) or '(none)'}; give at least one, each of them once")
        if wrong := [index for index in self.of if not 0 <= index <= self.none]:
            raise ValueError(f"a token has the tag {wrong[0]}; use 0 to {self.none}, where {self.none} means no tag")

    @property
    def none(self) -> int:
        """The index that means "no tag"."""
        return len(self.names)

    @classmethod
    def of_words(cls, words: Sequence[str], size: int, lexicon: Mapping[str, str], layers: int = 1) -> TagSet:
        """The tags of a vocabulary of `size` ids, which are the `words` and then special tokens, from a lexicon."""
        names = tuple(sorted(Counter(lexicon[word] for word in words if word in lexicon)))
        tags = [lexicon.get(word) for word in words]
        of = [len(names) if tag is None else names.index(tag) for tag in tags]
        return cls(names, (*of, *[len(names)] * (size - len(of))), layers)


class Tagger(nn.Module):
    """(B, L, D) noisy vectors or (B, L, V) one-hot noisy tokens → (B, L, tags + 1) logits of the clean tokens' tags.

    It reads one-hot tokens, so that their gradient approximates the effect of every substitution
    (`FirstOrderClassifier`).
    """

    def __init__(self, config: TransformerConfig, reads: int, tags: TagSet) -> None:
        super().__init__()
        plain = replace(
            config, pattern=Full(), layers=tags.layers, classes=None, dropout=0.0, tied=False, padded_vocab=None
        )
        self.network = Transformer(plain, NetworkIO(reads, tags.none + 1, vectors=True))

    def forward(self, x: Tensor, level: Tensor | None = None, pad: Tensor | None = None) -> Tensor:
        return self.network.logits(self.network(x, level, Context(pad=pad))).float()


class FutureTagger(nn.Module):
    """A causal network for the tags of future tokens: p(y_{i+1} … y_L | x_1 … x_i), by the chain rule.

    It reads the tokens of the prefix and then the tags themselves, and predicts the next tag at each step. A position
    without a required tag is read as the id `free` and does not count.
    """

    def __init__(self, config: TransformerConfig, size: int, tags: TagSet) -> None:
        super().__init__()
        self.size, self.free = size, size + tags.none + 1
        plain = replace(config, pattern=Causal(), layers=tags.layers, dropout=0.0, tied=False, padded_vocab=None)
        self.network = Transformer(plain, NetworkIO(self.free + 2, tags.none + 1, start=self.free + 1))

    def forward(self, ids: Tensor) -> Tensor:
        """(B, L) ids, a tag being read as the id `size` + tag → (B, L, tags + 1) logits of the tag at each position."""
        return self.network.logits(self.network(ids)).float()

    def future_log_prob(self, prefix: Tensor, candidates: Tensor, wanted: Tensor) -> Tensor:
        """(B, C) log-probability of the wanted tags after each candidate.

        prefix: (B, n) ids of the text so far.
        candidates: (B, C) ids that may come next.
        wanted: (A,) tags of the tokens after the candidate; −1 for any.
        """
        if not len(wanted):
            return torch.zeros(candidates.shape, device=candidates.device)
        prefixes = prefix.repeat_interleave(candidates.shape[1], 0)
        tags = torch.where(wanted < 0, self.free, self.size + wanted).expand(len(prefixes), -1)
        logits = self(torch.cat([prefixes, candidates.reshape(-1, 1), tags], 1))[:, prefix.shape[1] + 1 :]
        log_p = logits.log_softmax(-1).gather(-1, wanted.clamp(min=0).expand(len(tags), -1)[..., None]).squeeze(-1)
        return log_p.masked_fill(wanted < 0, 0.0).sum(-1).view_as(candidates)
