"""Encoders: a state for each token that depends on the others; latent codecs read it and never change it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from redraft.core import ops
from redraft.core.canvas import Context
from redraft.core.randomness import Rng
from redraft.core.vocab import MAX_WIDTH, Vocab, require_range
from redraft.models.codecs.modules.corruption import mask_tokens
from redraft.models.codecs.modules.size import TransformerSize
from redraft.models.networks.config import NetworkIO
from redraft.models.networks.transformer import Transformer


class Encoder(nn.Module, ABC):
    """(B, L) ids → (B, L, width) states; every subclass is final."""

    width: int

    @abstractmethod
    def forward(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        """(B, L, width), without gradient"""

    @abstractmethod
    def words(self, tokens: Tensor) -> Tensor:
        """(B, L, width) input vectors: one for each token, regardless of the others"""

    @abstractmethod
    def losses(self, tokens: Tensor, pad: Tensor | None, *, rng: Rng) -> dict[str, Tensor]:
        """(B, L) nats by name, for an encoder that learns beside its codec; empty for a pretrained one."""


class EncoderConfig(ABC):
    """An encoder without its weights; every subclass is a final frozen dataclass."""

    @property
    @abstractmethod
    def states(self) -> int:
        """The width of its states."""

    @abstractmethod
    def build(self, vocab: Vocab) -> Encoder: ...


@dataclass(frozen=True)
class MaskedLM(EncoderConfig):
    """A small encoder of our own, trained on the corpus at hand by guessing masked tokens (BERT)."""

    length: int  # maximum number of tokens
    size: TransformerSize = TransformerSize()
    share: float = 0.2  # of the tokens that are to be guessed

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "length")
        if not 0 < self.share < 1:
            raise ValueError(f"share={self.share}; some tokens must be masked and some not: use 0 < share < 1")

    @property
    def states(self) -> int:
        return self.size.width

    def build(self, vocab: Vocab) -> MaskedEncoder:
        return MaskedEncoder(self, vocab)


class MaskedEncoder(Encoder):
    def __init__(self, config: MaskedLM, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.vocab, self.width = config, vocab, config.states
        self.network = Transformer(config.size.network(config.length), NetworkIO(vocab.size, vocab.size))

    def forward(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            return self.network(tokens, None, Context(pad=pad))

    def words(self, tokens: Tensor) -> Tensor:
        return self.network.embedding(tokens)

    def guesses(self, tokens: Tensor, where: Tensor, pad: Tensor | None = None) -> Tensor:
        """(B, L) bool → (N, V) logits of the tokens there"""
        places = where.flatten().nonzero().squeeze(-1)
        return self.network.logits(self.network(tokens, None, Context(pad=pad), places))

    def losses(self, tokens: Tensor, pad: Tensor | None, *, rng: Rng) -> dict[str, Tensor]:
        """Cross-entropy of the masked tokens, divided by their share: nats per masked token."""
        where, seen = mask_tokens(tokens, self.config.share, self.vocab, rng=rng)
        nats = ops.nll(self.guesses(seen, where, pad), tokens[where])
        return {"masked": torch.zeros(where.shape, device=where.device).masked_scatter(where, nats / self.config.share)}
