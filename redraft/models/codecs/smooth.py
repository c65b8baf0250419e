"""COSMOS: a compressed latent space, trained to be smooth and decoded in parallel."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core.ops import token_nll
from redraft.core.randomness import Rng
from redraft.core.vocab import FINITE, MAX_WIDTH, Vocab, require_range
from redraft.models.codecs.base import Codec, CodecConfig
from redraft.models.codecs.modules.corruption import add_random_noise, drop_features, drop_positions, require_share
from redraft.models.codecs.modules.encoder import EncoderConfig
from redraft.models.codecs.modules.perceiver import Resampler
from redraft.models.codecs.modules.size import TransformerSize
from redraft.models.codecs.modules.standardize import Standardizer


@dataclass(frozen=True)
class Smoothing:
    """The corruption that makes latents robust while they are learnt; all zero: none."""

    places: float = 0.3  # share of the activations that are hidden from the compressor
    noise: float = 0.7  # δ: activations become √(1 − δ²)·h + δ·ξ, with any δ up to this
    features: float = 0.4  # share of the numbers of the latents that are hidden from the decompressor

    def __post_init__(self) -> None:
        for name in ("places", "noise", "features"):
            require_share(name, getattr(self, name))

    def activations(self, h: Tensor, *, rng: Rng) -> Tensor:
        early, late = rng.split(2)
        return add_random_noise(drop_positions(h, self.places, rng=early), self.noise, rng=late)[0]

    def latents(self, z: Tensor, *, rng: Rng) -> Tensor:
        return drop_features(z, self.features, rng=rng)


@dataclass(frozen=True)
class Smooth(CodecConfig):
    """x = norm(Resampler(h)), h = (Enc(w) − μ)/σ; ĥ = Resampler'(x), and p(w | x) = Π_l softmax(W·ĥ_l) (COSMOS, 2025).

    Trained by −log p(w | x') + m·mean_D (ĥ − h)² on corrupted activations and latents, while h is the clean activation:
    the squared error keeps texts of similar meaning close, which cross-entropy alone would not.
    """

    encoder: EncoderConfig
    length: int  # maximum number of tokens
    count: int = 16  # N
    width: int = 64  # D
    compressor: TransformerSize = TransformerSize()
    decompressor: TransformerSize = TransformerSize()
    mse: float = 1.0  # m
    smoothing: Smoothing = Smoothing()

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "length", "count", "width")
        require_range(self, 0, FINITE, "mse")

    def vectors(self, vocab: Vocab) -> int:
        return self.width

    def build(self, vocab: Vocab) -> SmoothCodec:
        return SmoothCodec(self, vocab)


class SmoothCodec(Codec):
    frozen = True

    def __init__(self, config: Smooth, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.width, states = config, config.width, config.encoder.states
        self.latents = config.count
        self.encoder = config.encoder.build(vocab)
        self.standard = Standardizer(states)
        self.compressor = Resampler(
            config.compressor, reads=states, places=config.length, gives=config.width, count=config.count
        )
        self.decompressor = Resampler(
            config.decompressor, reads=config.width, places=config.count, gives=states, count=config.length
        )
        self.output = nn.Linear(states, vocab.size)

    def encode(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return self.compress(self.standard(self.encoder(tokens, pad)), pad)

    def compress(self, h: Tensor, pad: Tensor | None = None) -> Tensor:
        """(B, L, ·) activations → (B, N, D) latents of mean 0 and variance 1 each"""
        return F.layer_norm(self.compressor(h, pad), (self.width,))

    def nll(self, z: Tensor, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return token_nll(self.output(self._decompressed(z, tokens)), tokens)

    def decode(self, z: Tensor) -> Tensor:
        return self.logits(z).argmax(-1)

    def logits(self, z: Tensor) -> Tensor:
        return self.output(self.decompressor(z))

    def losses(self, tokens: Tensor, pad: Tensor | None, *, rng: Rng) -> dict[str, Tensor]:
        first, early, late = rng.split(3)
        states, smoothing = self.encoder(tokens, pad), self.config.smoothing
        h = self.standard(states).detach()
        z = smoothing.latents(self.compress(smoothing.activations(h, rng=early), pad), rng=late)
        guess = self._decompressed(z, tokens)
        return self.encoder.losses(tokens, pad, rng=first) | {
            "statistics": self.standard.nll(states),
            "reconstruction": token_nll(self.output(guess), tokens),
            "activations": self.config.mse * (guess - h).square().mean(-1),
        }

    def _decompressed(self, z: Tensor, tokens: Tensor) -> Tensor:
        """(B, L, ·) the activations of these tokens"""
        return self.decompressor(z)[:, : tokens.shape[1]]
