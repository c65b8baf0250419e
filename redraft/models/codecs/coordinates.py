"""Points as they are: text spells their numbers, and the diffusion works on these. No weights, nothing to learn.

"-1.204 +0.731" is a point of the plane. So a row of text stands for a plain vector, and all that works for text works
for points: training, likelihood, sampling. A text is a cell of the grid of its last decimal, which has a probability.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.core.vocab import ABOVE_ZERO, FINITE, Vocab, require_range
from redraft.models.codecs.base import Codec, CodecConfig

POINT_ALPHABET = "0123456789+-. "  # the alphabet of points
_DECIMALS = 3
CELL_SIZE = 10.0**-_DECIMALS  # points closer than this are spelt alike
_FURTHEST = 10 - CELL_SIZE
_LETTERS = 1 + 1 + 1 + _DECIMALS  # sign, digit, point, decimals


def format_point(point: Sequence[float]) -> str:
    """ "-1.204 +0.731"; numbers are held within ±9.999, and there is no -0.000"""
    return " ".join(f"{_held(number):+.{_DECIMALS}f}" for number in point)


def _held(number: float) -> float:
    return 0.0 if math.isnan(number) else round(min(_FURTHEST, max(-_FURTHEST, number)), _DECIMALS) + 0.0


def parse_point(text: str) -> tuple[float, ...] | None:
    """The inverse of `format_point`; None if the text is no point in exactly this spelling."""
    try:
        point = tuple(float(word) for word in text.split(" "))
    except ValueError:
        return None
    return point if format_point(point) == text else None


def point_length(width: int) -> int:
    """How many letters a point of `width` numbers has."""
    return width * (_LETTERS + 1) - 1


@dataclass(frozen=True)
class Coordinates(CodecConfig):
    """x = the numbers that a row spells; p(w | z) is the mass of the cell of w under N(z, noise²), z at t → 0.

    Plain DDPM (Ho et al. 2020): the diffusion of vectors, with nothing around it. The tokenizer must be
    `CharTokenizer(POINT_ALPHABET, ())`.
    """

    width: int = 2  # D
    noise: float = math.exp(-4)  # of z at the clean end of the process: log-SNR 8

    def __post_init__(self) -> None:
        require_range(self, 1, 1024, "width")
        require_range(self, ABOVE_ZERO, FINITE, "noise")

    def vectors(self, vocab: Vocab) -> int:
        return self.width

    def build(self, vocab: Vocab) -> CoordinatesCodec:
        return CoordinatesCodec(self)


class CoordinatesCodec(Codec):
    latents = 1
    parallel = False

    def __init__(self, config: Coordinates) -> None:
        super().__init__()
        self.config, self.width = config, config.width

    def encode(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        """(B, L) ids of `POINT_ALPHABET` → (B, 1, D)"""
        length = point_length(self.width)
        if tokens.shape[1] != length:
            raise ValueError(f"a point of {self.width} numbers has {length} letters, not {tokens.shape[1]}")
        letters = torch.cat([tokens, tokens[:, :1]], 1).view(len(tokens), self.width, _LETTERS + 1)
        digits = letters[..., [1, *range(3, _LETTERS)]].clamp(max=9)
        size = (digits * self._powers(tokens.device)).sum(-1) * CELL_SIZE
        sign = torch.where(letters[..., 0] == POINT_ALPHABET.index("-"), -1.0, 1.0)
        return (sign * size)[:, None].float()

    def decode(self, z: Tensor) -> Tensor:
        spelt = (format_point(point) for point in z[:, 0].tolist())
        return torch.tensor([[POINT_ALPHABET.index(letter) for letter in text] for text in spelt], device=z.device)

    def nll(self, z: Tensor, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        """Nats of the cell, in the column of the first letter: the others follow with it."""
        off = (self.encode(tokens) - z).double()
        far = -off.abs()  # both ends of the cell on the side where the normal distribution keeps its digits
        low, high = (torch.special.log_ndtr((far + side * CELL_SIZE / 2) / self.config.noise) for side in (-1, 1))
        nats = -(high + (-(low - high).exp()).log1p()).sum((1, 2)).to(z.dtype)
        return torch.cat([nats[:, None], nats.new_zeros(len(tokens), tokens.shape[1] - 1)], 1)

    @staticmethod
    def _powers(device: torch.device) -> Tensor:
        return 10 ** torch.arange(_DECIMALS, -1, -1, device=device)
