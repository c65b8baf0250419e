"""A learned vector for each token (Diffusion-LM, DiffuSeq, GENIE)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.codecs.base import Codec, CodecConfig, token_nll
from redraft.types import Vocab


@dataclass(frozen=True)
class Embedding(CodecConfig):
    """E: V → ℝ^D, learnt with the denoiser, and p(w | z) = softmax(E·z + b) (Li et al. 2022, eq. 2).

    With `unit` all vectors have the norm √D: then only directions are learnt, and no vector can shrink towards the
    others, which the squared error alone would want (Difformer, CDCD).
    """

    width: int = 16
    unit: bool = True
    names = True

    def vectors(self, vocab: Vocab) -> int:
        return self.width

    def build(self, vocab: Vocab) -> EmbeddingCodec:
        return EmbeddingCodec(self, vocab)


class EmbeddingCodec(Codec):
    def __init__(self, config: Embedding, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.width = config, config.width
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(vocab.size, config.width)))
        self.bias = nn.Parameter(torch.zeros(vocab.size))

    @property
    def table(self) -> Tensor:
        """(V, D)"""
        return self.width**0.5 * F.normalize(self.weight, dim=-1) if self.config.unit else self.weight

    def encode(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return F.embedding(tokens, self.table)

    def logits(self, z: Tensor) -> Tensor:
        """(…, D) → (…, V)"""
        return F.linear(z, self.table, self.bias)

    def nll(self, z: Tensor, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return token_nll(self.logits(z), tokens)

    def decode(self, z: Tensor) -> Tensor:
        return self.logits(z).argmax(-1)

    def project(self, x: Tensor) -> Tensor:
        return self.table[torch.cdist(x.flatten(0, -2), self.table).argmin(-1)].view_as(x)
