"""Encoders of latent codecs: they give each token a state that depends on its context, and are frozen there."""

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

    width: int  # width of the states

    @abstractmethod
    def forward(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        """(B, L) ids → (B, L, width) states, without gradient"""

    @abstractmethod
    def token_vectors(self, tokens: Tensor) -> Tensor:
        """(B, L) ids → (B, L, width) input vectors, which do not depend on the context."""

    @abstractmethod
    def losses(self, tokens: Tensor, pad: Tensor | None, *, rng: Rng) -> dict[str, Tensor]:
        """(B, L) loss terms by name, for an encoder that is trained along with its codec; empty if pretrained."""


class EncoderConfig(ABC):
    """The configuration of an encoder; every subclass is a final frozen dataclass."""

    @property
    @abstractmethod
    def states(self) -> int:
        """The width of the states."""

    @abstractmethod
    def build(self, vocab: Vocab) -> Encoder:
        """Build the encoder for a vocabulary."""


@dataclass(frozen=True)
class MaskedLM(EncoderConfig):
    """A small encoder that is trained on the corpus as a masked language model (BERT)."""

    length: int  # maximum number of tokens
    size: TransformerSize = TransformerSize()
    mask_fraction: float = 0.2  # fraction of the tokens to predict

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "length")
        if not 0 < self.mask_fraction < 1:
            raise ValueError(
                f"mask_fraction={self.mask_fraction}; the fraction of masked tokens must be above 0 and below 1"
            )

    @property
    def states(self) -> int:
        return self.size.width

    def build(self, vocab: Vocab) -> MaskedEncoder:
        return MaskedEncoder(self, vocab)


class MaskedEncoder(Encoder):
    """The encoder that `MaskedLM` configures; see its documentation."""

    def __init__(self, config: MaskedLM, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.vocab, self.width = config, vocab, config.states
        self.network = Transformer(config.size.network(config.length), NetworkIO(vocab.size, vocab.size))

    def forward(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            return self.network(tokens, None, Context(pad=pad))

    def token_vectors(self, tokens: Tensor) -> Tensor:
        return self.network.embedding(tokens)

    def predict(self, tokens: Tensor, where: Tensor, pad: Tensor | None = None) -> Tensor:
        """(B, L) corrupted ids and (B, L) bool positions → (N, V) logits of the clean tokens there."""
        at = where.flatten().nonzero().squeeze(-1)
        return self.network.logits(self.network(tokens, None, Context(pad=pad), at))

    def losses(self, tokens: Tensor, pad: Tensor | None, *, rng: Rng) -> dict[str, Tensor]:
        """(B, L) cross-entropy of the predicted tokens, divided by their fraction: its mean is per predicted token."""
        where, corrupted = mask_tokens(tokens, self.config.mask_fraction, self.vocab, rng=rng)
        nats = ops.nll(self.predict(corrupted, where, pad), tokens[where])
        return {
            "masked": torch.zeros(where.shape, device=where.device).masked_scatter(
                where, nats / self.config.mask_fraction
            )
        }
