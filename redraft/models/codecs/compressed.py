"""The codec of LD4TG: compresses an encoder's states to a few latents, which an autoregressive decoder reads."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from redraft.core.randomness import Rng
from redraft.core.vocab import MAX_WIDTH, Vocab, require_range
from redraft.models.codecs.base import Codec, CodecConfig
from redraft.models.codecs.modules.corruption import add_random_noise, require_fraction
from redraft.models.codecs.modules.decoder import AutoregressiveDecoder
from redraft.models.codecs.modules.encoder import EncoderConfig
from redraft.models.codecs.modules.perceiver import Resampler
from redraft.models.codecs.modules.size import TransformerSize


@dataclass(frozen=True)
class Compressed(CodecConfig):
    """x = √D·z/‖z‖ with z = Resampler(Enc(w)), N latents, and p(w | x) by the chain rule (Lovelace et al. 2022, §3).

    The encoder is frozen; the compressor and the decoder learn to reproduce the text. The decoder is trained on
    √(1 − σ²)·x + σ·ξ with σ up to `noise`. The paper adds no noise, but the likelihood bound ends in slightly noisy
    latents and needs it.
    """

    encoder: EncoderConfig
    length: int  # maximum number of tokens
    count: int = 16  # N, the number of latents
    width: int = 32  # D, the width of the latents
    compressor: TransformerSize = TransformerSize()
    decoder: TransformerSize = TransformerSize()
    noise: float = 0.0  # maximum σ
    forget: float = 0.0  # fraction of previous tokens hidden from the decoder in training

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "length", "count", "width")
        require_fraction("noise", self.noise)
        require_fraction("forget", self.forget)

    def vectors(self, vocab: Vocab) -> int:
        return self.width

    def build(self, vocab: Vocab) -> CompressedCodec:
        return CompressedCodec(self, vocab)


class CompressedCodec(Codec):
    """The codec that `Compressed` configures; see its documentation."""

    frozen = True
    parallel = False

    def __init__(self, config: Compressed, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.width = config, config.width
        self.latents = config.count
        self.encoder = config.encoder.build(vocab)
        self.compressor = Resampler(
            config.compressor,
            reads=config.encoder.states,
            length=config.length,
            writes=config.width,
            count=config.count,
        )
        self.decoder = AutoregressiveDecoder(config.decoder, config.width, config.length, vocab)

    def encode(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return self.width**0.5 * F.normalize(self.compressor(self.encoder(tokens, pad), pad), dim=-1)

    def nll(self, z: Tensor, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return self.decoder.nll(z, tokens, pad)

    def decode(self, z: Tensor) -> Tensor:
        return self.decoder.decode(z)

    def losses(self, tokens: Tensor, pad: Tensor | None, *, rng: Rng) -> dict[str, Tensor]:
        for_encoder, for_noise, for_forgetting = rng.split(3)
        z, _ = add_random_noise(self.encode(tokens, pad), self.config.noise, rng=for_noise)
        nats = self.decoder.nll_with_forgetting(z, tokens, pad, self.config.forget, rng=for_forgetting)
        return self.encoder.losses(tokens, pad, rng=for_encoder) | {"reconstruction": nats}
