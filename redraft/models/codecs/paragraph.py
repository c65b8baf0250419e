"""The codec of PLANNER: a variational paragraph embedder and an autoregressive decoder."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from redraft.core import randomness
from redraft.core.canvas import Context
from redraft.core.randomness import Rng
from redraft.core.vocab import FINITE, MAX_WIDTH, Vocab, require_range
from redraft.models.codecs.base import Codec, CodecConfig
from redraft.models.codecs.modules.corruption import require_fraction, substitute_tokens
from redraft.models.codecs.modules.decoder import AutoregressiveDecoder
from redraft.models.codecs.modules.size import TransformerSize
from redraft.models.networks.config import NetworkIO
from redraft.models.networks.transformer import Transformer


@dataclass(frozen=True)
class Paragraph(CodecConfig):
    """q(x | w) = N(μ, σ²) with μ = tanh(A·h), ln σ² = B·h of the first N states h (Zhang et al. 2023, "PLANNER", §3).

    The loss is −log p(w | x) + β·KL(q ‖ N(0, I)), both in nats of the whole text; β = 1 is the evidence bound. (The
    released code adds 10⁻⁵ times the KL summed over the batch to the mean cross-entropy; in our units that is β = 10⁻⁵
    times the number of tokens in its batch.) A fraction of the embedder's input tokens is replaced by random ones, and
    the decoder must reproduce the clean text, so similar texts get similar latents. The diffusion works on μ.
    """

    length: int  # maximum number of tokens
    count: int = 16  # N, the number of latents
    width: int = 32  # D, the width of the latents
    embedder: TransformerSize = TransformerSize()
    decoder: TransformerSize = TransformerSize()
    beta: float = 0.1  # weight of the KL
    noise: float = 0.3  # fraction of input tokens replaced in training
    forget: float = 0.0  # fraction of previous tokens hidden from the decoder in training

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "length", "count", "width")
        require_fraction("noise", self.noise)
        require_fraction("forget", self.forget)
        if not 0 <= self.beta <= FINITE:
            raise ValueError(f"beta={self.beta}; the weight of the KL must be 0 or more (1: the evidence bound)")

    def vectors(self, vocab: Vocab) -> int:
        return self.width

    def build(self, vocab: Vocab) -> ParagraphCodec:
        return ParagraphCodec(self, vocab)


class ParagraphCodec(Codec):
    """The codec that `Paragraph` configures; see its documentation."""

    frozen = True
    parallel = False

    def __init__(self, config: Paragraph, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.vocab, self.width = config, vocab, config.width
        self.latents = config.count
        self.embedder = Transformer(config.embedder.network(config.length), NetworkIO(vocab.size))
        self.mean, self.log_variance = (nn.Linear(config.embedder.width, config.width) for _ in range(2))
        self.decoder = AutoregressiveDecoder(config.decoder, config.width, config.length, vocab)

    def posterior(self, tokens: Tensor, pad: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """μ and ln σ² of the latents, each (B, N, D)."""
        if tokens.shape[1] < self.config.count:
            raise ValueError(
                f"rows of {tokens.shape[1]} tokens are too short for {self.config.count} latents; use rows of at least "
                f"{self.config.count} tokens, or lower count"
            )
        h = self.embedder(tokens, None, Context(pad=pad))[:, : self.config.count]
        return self.mean(h).tanh(), self.log_variance(h)

    def encode(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return self.posterior(tokens, pad)[0]

    def nll(self, z: Tensor, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return self.decoder.nll(z, tokens, pad)

    def decode(self, z: Tensor) -> Tensor:
        return self.decoder.decode(z)

    def losses(self, tokens: Tensor, pad: Tensor | None, *, rng: Rng) -> dict[str, Tensor]:
        for_tokens, for_noise, for_forgetting = rng.split(3)
        noisy = substitute_tokens(tokens, self.config.noise, self.vocab, rng=for_tokens)
        mean, log_variance = self.posterior(noisy, pad)
        z = mean + (log_variance / 2).exp() * randomness.normal_like(mean, for_noise)
        kl = _kl_to_standard_normal(mean, log_variance).sum((1, 2))
        return {
            "reconstruction": self.decoder.nll_with_forgetting(z, tokens, pad, self.config.forget, rng=for_forgetting),
            "kl": self.config.beta * _spread_over_tokens(kl, tokens, pad),
        }


def _spread_over_tokens(nats: Tensor, tokens: Tensor, pad: Tensor | None) -> Tensor:
    """(B,) nats per row → (B, L) nats, spread evenly over the tokens of each row."""
    not_pad = torch.ones_like(tokens, dtype=torch.bool) if pad is None else ~pad
    return torch.where(not_pad, nats[:, None] / not_pad.sum(-1, keepdim=True).clamp(min=1), 0.0)


def _kl_to_standard_normal(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(μ, σ²) ‖ N(0, 1)) = ½(μ² + σ² − 1 − ln σ²), elementwise."""
    return (mean.square() + torch.expm1(log_variance) - log_variance) / 2
