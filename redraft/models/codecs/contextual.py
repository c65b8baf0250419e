"""The codec of TEncDM: an encoder's states as latents, one per token, read by a parallel decoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core.batch import Batch
from redraft.core.ops import token_nll
from redraft.core.randomness import Rng
from redraft.core.vocab import FINITE, MAX_WIDTH, Vocab, require_range
from redraft.models.codecs.base import Codec, CodecConfig
from redraft.models.codecs.modules.corruption import add_random_noise, require_fraction
from redraft.models.codecs.modules.decoder import ParallelDecoder
from redraft.models.codecs.modules.encoder import EncoderConfig
from redraft.models.codecs.modules.size import TransformerSize
from redraft.models.codecs.modules.standardize import Standardizer

_COUNTED = 20_000  # number of rows whose tokens are counted, to initialize the bias


@dataclass(frozen=True)
class Contextual(CodecConfig):
    """x = (Enc(w) − μ)/σ, and p(w | z) = Π_l p(w_l | z) (Shabalin et al. 2024, "TEncDM", §4).

    bos and eos are represented by their input vectors, rescaled to the norm √D, because their states would carry the
    meaning of the whole text. The decoder is trained on √(1 − σ²)·x + σ·ξ with σ up to `noise`, because a denoiser's
    output is never quite clean.

    With `tied`, the decoder outputs a vector y, and the tokens are predicted with the encoder's own input vectors e_w:
    softmax(e_w·y + b_w). b is initialized from token frequencies. This makes use of a pretrained encoder's knowledge of
    its tokens. Such a decoder reads a·z instead of z = a·x + s·ξ, the best linear estimate of x. With almost no signal
    its input is almost zero, and it predicts frequencies.
    """

    encoder: EncoderConfig
    length: int  # maximum number of tokens
    decoder: TransformerSize = TransformerSize()
    noise: float = 0.7  # maximum σ
    tied: bool = False  # predict tokens with the encoder's input vectors
    spread: float = 1.0  # scale of the noise levels that the decoder is trained on, the d of `TanD`

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "length")
        require_fraction("noise", self.noise)
        if not 0 < self.spread <= FINITE:
            raise ValueError(
                f"spread={self.spread}; the scale of the noise levels must be above 0; use 1 for uniform angles"
            )

    def vectors(self, vocab: Vocab) -> int:
        return self.encoder.states

    def build(self, vocab: Vocab) -> ContextualCodec:
        return ContextualCodec(self, vocab)


class ContextualCodec(Codec):
    """The codec that `Contextual` configures; see its documentation."""

    frozen = True

    def __init__(self, config: Contextual, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.vocab, self.width = config, vocab, config.vectors(vocab)
        self.encoder = config.encoder.build(vocab)
        self.standard = Standardizer(self.width)
        self.decoder = ParallelDecoder(
            config.decoder, self.width, config.length, self.width if config.tied else vocab.size
        )
        self.bias = nn.Parameter(torch.zeros(vocab.size)) if config.tied else None

    @torch.no_grad()
    def fit_statistics(self, rows: Callable[[int], list[Batch]]) -> None:
        if self.bias is not None:
            tokens = torch.cat([batch.tokens[batch.learn] for batch in rows(_COUNTED)])
            counts = torch.bincount(tokens, minlength=self.vocab.size) + 0.1  # no token is impossible
            self.bias.copy_((counts / counts.sum()).log())

    def encode(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return self._latents(self.encoder(tokens, pad), tokens, pad)

    def nll(self, z: Tensor, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return token_nll(self._to_logits(self.decoder(z, pad)), tokens)

    def decode(self, z: Tensor) -> Tensor:
        return self.logits(z).argmax(-1)

    def logits(self, z: Tensor) -> Tensor:
        return self._to_logits(self.decoder(z))

    def decoder_input(self, z: Tensor, signal: Tensor) -> Tensor:
        return z if self.bias is None else signal * z

    def losses(self, tokens: Tensor, pad: Tensor | None, *, rng: Rng) -> dict[str, Tensor]:
        for_encoder, for_noise = rng.split(2)
        h = self.encoder(tokens, pad)
        x = self._latents(h, tokens, pad).detach()
        z, signal = add_random_noise(x, self.config.noise, self.config.spread, rng=for_noise)
        return self.encoder.losses(tokens, pad, rng=for_encoder) | {
            "statistics": self.standard.nll(h).masked_fill(self._is_special(tokens), 0),
            "reconstruction": self.nll(self.decoder_input(z, signal), tokens, pad),
        }

    def _to_logits(self, output: Tensor) -> Tensor:
        """(B, L, D) outputs of a tied decoder → (B, L, V) logits; the outputs of other decoders are logits already."""
        if self.bias is None:
            return output
        table = self.encoder.token_vectors(torch.arange(self.vocab.size, device=output.device)).detach()
        return F.linear(output, table, self.bias)

    def _latents(self, h: Tensor, tokens: Tensor, pad: Tensor | None) -> Tensor:
        """(B, L, D) standardized states; input vectors for bos and eos, zero for padding."""
        input_vectors = self.width**0.5 * F.normalize(self.encoder.token_vectors(tokens), dim=-1)
        x = torch.where(self._is_special(tokens)[..., None], input_vectors, self.standard(h))
        return x if pad is None else x.masked_fill(pad[..., None], 0)

    def _is_special(self, tokens: Tensor) -> Tensor:
        """(B, L) bool: True on bos and eos."""
        special = [token for token in (self.vocab.bos, self.vocab.eos) if token is not None]
        return torch.isin(tokens, torch.tensor(special, dtype=tokens.dtype, device=tokens.device))
