"""TEncDM: the states of an encoder as latents, one for each token, read by a parallel decoder."""

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
from redraft.models.codecs.modules.corruption import add_random_noise, require_share
from redraft.models.codecs.modules.decoder import ParallelDecoder
from redraft.models.codecs.modules.encoder import EncoderConfig
from redraft.models.codecs.modules.size import TransformerSize
from redraft.models.codecs.modules.standardize import Standardizer

_COUNTED = 20_000  # rows of the corpus whose tokens are counted


@dataclass(frozen=True)
class Contextual(CodecConfig):
    """x = (Enc(w) − μ)/σ, and p(w | z) = Π_l p(w_l | z) (Shabalin et al. 2024, "TEncDM", §4).

    bos and eos are represented by their input vectors, rescaled to the norm √D: they have no meaning of their own, and
    their states would carry that of the text. The decoder is trained on √(1 − σ²)·x + σ·ξ with σ up to `noise`, since a
    denoiser's output is never quite clean.

    With `tied` the decoder gives a vector y, which the encoder's own input vectors e_w name: softmax(e_w·y + b_w), b
    starting from how often tokens occur. A pretrained encoder of 30,000 tokens knows what they mean already. Such
    a decoder reads a·z instead of z = a·x + s·ξ, the best guess of x as long as nothing else is known: if there is next
    to no signal it sees next to nothing, and says frequencies.
    """

    encoder: EncoderConfig
    length: int  # maximum number of tokens
    decoder: TransformerSize = TransformerSize()
    noise: float = 0.7
    tied: bool = False
    spread: float = 1.0  # of noise levels: as in `TanD`

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "length")
        require_share("noise", self.noise)
        if not 0 < self.spread <= FINITE:
            raise ValueError(f"spread={self.spread}; how much noise a text takes must be above 0 (1: angles evenly)")

    def vectors(self, vocab: Vocab) -> int:
        return self.encoder.states

    def build(self, vocab: Vocab) -> ContextualCodec:
        return ContextualCodec(self, vocab)


class ContextualCodec(Codec):
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
    def survey(self, rows: Callable[[int], list[Batch]]) -> None:
        if self.bias is not None:
            tokens = torch.cat([batch.tokens[batch.learn] for batch in rows(_COUNTED)])
            counts = torch.bincount(tokens, minlength=self.vocab.size) + 0.1  # no token is impossible
            self.bias.copy_((counts / counts.sum()).log())

    def encode(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return self._latents(self.encoder(tokens, pad), tokens, pad)

    def nll(self, z: Tensor, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return token_nll(self._named(self.decoder(z, pad)), tokens)

    def decode(self, z: Tensor) -> Tensor:
        return self.logits(z).argmax(-1)

    def logits(self, z: Tensor) -> Tensor:
        return self._named(self.decoder(z))

    def weighed(self, z: Tensor, signal: Tensor) -> Tensor:
        return z if self.bias is None else signal * z

    def losses(self, tokens: Tensor, pad: Tensor | None, *, rng: Rng) -> dict[str, Tensor]:
        early, late = rng.split(2)
        h = self.encoder(tokens, pad)
        x = self._latents(h, tokens, pad).detach()
        z, signal = add_random_noise(x, self.config.noise, self.config.spread, rng=late)
        return self.encoder.losses(tokens, pad, rng=early) | {
            "statistics": self.standard.nll(h).masked_fill(self._specials(tokens), 0),
            "reconstruction": self.nll(self.weighed(z, signal), tokens, pad),
        }

    def _named(self, said: Tensor) -> Tensor:
        """What the decoder says, (B, L, V) logits or (B, L, D) vectors → (B, L, V)"""
        if self.bias is None:
            return said
        table = self.encoder.words(torch.arange(self.vocab.size, device=said.device)).detach()
        return F.linear(said, table, self.bias)

    def _latents(self, h: Tensor, tokens: Tensor, pad: Tensor | None) -> Tensor:
        specials = self.width**0.5 * F.normalize(self.encoder.words(tokens), dim=-1)
        x = torch.where(self._specials(tokens)[..., None], specials, self.standard(h))
        return x if pad is None else x.masked_fill(pad[..., None], 0)

    def _specials(self, tokens: Tensor) -> Tensor:
        """(B, L) bool: bos or eos, not a word"""
        known = [token for token in (self.vocab.bos, self.vocab.eos) if token is not None]
        return torch.isin(tokens, torch.tensor(known, dtype=tokens.dtype, device=tokens.device))
