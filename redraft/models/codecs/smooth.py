"""The codec of COSMOS: a compressed latent space, trained to be smooth and decoded in parallel."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core.ops import token_nll
from redraft.core.randomness import Rng
from redraft.core.vocab import FINITE, MAX_WIDTH, Vocab, require_range
from redraft.models.codecs.base import Codec, CodecConfig
from redraft.models.codecs.modules.corruption import add_random_noise, drop_features, drop_positions, require_fraction
from redraft.models.codecs.modules.encoder import EncoderConfig
from redraft.models.codecs.modules.perceiver import Resampler
from redraft.models.codecs.modules.size import TransformerSize
from redraft.models.codecs.modules.standardize import Standardizer


@dataclass(frozen=True)
class Smoothing:
    """Corruption in training that makes the latents robust; set all fields to 0 for none."""

    positions: float = 0.3  # fraction of positions whose activations are hidden from the compressor
    noise: float = 0.7  # maximum δ: activations become √(1 − δ²)·h + δ·ξ
    features: float = 0.4  # fraction of latent features that are hidden from the decompressor

    def __post_init__(self) -> None:
        for name in ("positions", "noise", "features"):
            require_fraction(name, getattr(self, name))

    def corrupt_activations(self, h: Tensor, *, rng: Rng) -> Tensor:
        """(B, L, ·) activations with positions dropped and noise added."""
        for_dropping, for_noise = rng.split(2)
        return add_random_noise(drop_positions(h, self.positions, rng=for_dropping), self.noise, rng=for_noise)[0]

    def corrupt_latents(self, z: Tensor, *, rng: Rng) -> Tensor:
        """(B, N, D) latents with features dropped."""
        return drop_features(z, self.features, rng=rng)


@dataclass(frozen=True)
class Smooth(CodecConfig):
    """x = norm(Resampler(h)), h = (Enc(w) − μ)/σ; ĥ = Resampler'(x), and p(w | x) = Π_l softmax(W·ĥ_l) (COSMOS, 2025).

    The loss is −log p(w | x') + m·mean_D (ĥ − h)², where x' comes from corrupted activations and is corrupted itself,
    while h is the clean activation. The squared error keeps texts of similar meaning close, which cross-entropy alone
    would not.
    """

    encoder: EncoderConfig
    length: int  # maximum number of tokens
    count: int = 16  # N, the number of latents
    width: int = 64  # D, the width of the latents
    compressor: TransformerSize = TransformerSize()
    decompressor: TransformerSize = TransformerSize()
    mse: float = 1.0  # m, the weight of the squared error
    smoothing: Smoothing = Smoothing()

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "length", "count", "width")
        require_range(self, 0, FINITE, "mse")

    def vectors(self, vocab: Vocab) -> int:
        return self.width

    def build(self, vocab: Vocab) -> SmoothCodec:
        return SmoothCodec(self, vocab)


class SmoothCodec(Codec):
    """The codec that `Smooth` configures; see its documentation."""

    frozen = True

    def __init__(self, config: Smooth, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.width, states = config, config.width, config.encoder.states
        self.latents = config.count
        self.encoder = config.encoder.build(vocab)
        self.standard = Standardizer(states)
        self.compressor = Resampler(
            config.compressor, reads=states, length=config.length, writes=config.width, count=config.count
        )
        self.decompressor = Resampler(
            config.decompressor, reads=config.width, length=config.count, writes=states, count=config.length
        )
        self.output = nn.Linear(states, vocab.size)

    def encode(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return self.compress(self.standard(self.encoder(tokens, pad)), pad)

    def compress(self, h: Tensor, pad: Tensor | None = None) -> Tensor:
        """(B, L, ·) activations → (B, N, D) latents, each with mean 0 and variance 1 over its features."""
        return F.layer_norm(self.compressor(h, pad), (self.width,))

    def nll(self, z: Tensor, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return token_nll(self.output(self._decompress(z, tokens)), tokens)

    def decode(self, z: Tensor) -> Tensor:
        return self.logits(z).argmax(-1)

    def logits(self, z: Tensor) -> Tensor:
        return self.output(self.decompressor(z))

    def losses(self, tokens: Tensor, pad: Tensor | None, *, rng: Rng) -> dict[str, Tensor]:
        for_encoder, for_activations, for_latents = rng.split(3)
        states, smoothing = self.encoder(tokens, pad), self.config.smoothing
        h = self.standard(states).detach()
        z = self.compress(smoothing.corrupt_activations(h, rng=for_activations), pad)
        h_hat = self._decompress(smoothing.corrupt_latents(z, rng=for_latents), tokens)
        return self.encoder.losses(tokens, pad, rng=for_encoder) | {
            "statistics": self.standard.nll(states),
            "reconstruction": token_nll(self.output(h_hat), tokens),
            "activations": self.config.mse * (h_hat - h).square().mean(-1),
        }

    def _decompress(self, z: Tensor, tokens: Tensor) -> Tensor:
        """(B, N, D) latents → (B, L, ·) predicted activations of these tokens"""
        return self.decompressor(z)[:, : tokens.shape[1]]
