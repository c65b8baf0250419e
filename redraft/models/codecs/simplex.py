"""A codec without weights that maps tokens to the corners of a simplex (SSD-LM)."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from redraft.core.ops import token_nll
from redraft.core.vocab import ABOVE_ZERO, FINITE, Vocab, require_range
from redraft.models.codecs.base import Codec, CodecConfig


@dataclass(frozen=True)
class Simplex(CodecConfig):
    """x = 2·onehot − 1 ∈ {−1, 1}^V, and the network reads softmax(K·z) (Han et al. 2023, K = 5).

    The paper scales data and noise by K; here both have unit scale, and K only scales what the network reads.
    """

    sharpness: float = 5.0  # K, the factor by which z is scaled before the softmax
    names = True

    def __post_init__(self) -> None:
        require_range(self, ABOVE_ZERO, FINITE, "sharpness")

    def vectors(self, vocab: Vocab) -> int:
        return vocab.size

    def build(self, vocab: Vocab) -> SimplexCodec:
        return SimplexCodec(self, vocab)


class SimplexCodec(Codec):
    """The codec that `Simplex` configures; see its documentation."""

    def __init__(self, config: Simplex, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.width = config, vocab.size

    def encode(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return 2 * F.one_hot(tokens, self.width).float() - 1

    def logits(self, z: Tensor) -> Tensor:
        """K·z, whose softmax is what the network reads."""
        return self.config.sharpness * z

    def nll(self, z: Tensor, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return token_nll(self.logits(z), tokens)

    def decode(self, z: Tensor) -> Tensor:
        return z.argmax(-1)

    def network_input(self, z: Tensor) -> Tensor:
        return self.logits(z).softmax(-1)

    def project(self, x: Tensor) -> Tensor:
        return 2 * F.one_hot(x.argmax(-1), self.width).to(x.dtype) - 1
