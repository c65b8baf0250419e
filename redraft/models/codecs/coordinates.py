"""A codec for points: a row of text spells the coordinates of a point, and the diffusion works on these numbers.

"-1.204 +0.731" is a point in the plane. A row of text thus encodes a plain vector, and training, likelihood and
sampling work for points as for text. The codec has no weights. A text stands for the grid cell around its point, whose
size is one unit of the last decimal, so that it has a probability.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.core.vocab import ABOVE_ZERO, FINITE, Vocab, require_range
from redraft.models.codecs.base import Codec, CodecConfig

POINT_ALPHABET = "0123456789+-. "
_DECIMALS = 3
CELL_SIZE = 10.0**-_DECIMALS  # width of a grid cell, the step of the last decimal
_LARGEST = 10 - CELL_SIZE  # largest absolute value of a coordinate
_CHARACTERS = 1 + 1 + 1 + _DECIMALS  # characters of a coordinate: sign, digit, point, decimals


def format_point(point: Sequence[float]) -> str:
    """Format a point as "-1.204 +0.731"; numbers are clamped to ±9.999, and zero is always +0.000."""
    return " ".join(f"{_clamp(number):+.{_DECIMALS}f}" for number in point)


def _clamp(number: float) -> float:
    return 0.0 if math.isnan(number) else round(min(_LARGEST, max(-_LARGEST, number)), _DECIMALS) + 0.0


def parse_point(text: str) -> tuple[float, ...] | None:
    """Parse the text of a point; None if it is not exactly in the form of `format_point`."""
    try:
        point = tuple(float(word) for word in text.split(" "))
    except ValueError:
        return None
    return point if format_point(point) == text else None


def point_length(width: int) -> int:
    """Number of characters in the text of a point with `width` coordinates."""
    return width * (_CHARACTERS + 1) - 1


@dataclass(frozen=True)
class Coordinates(CodecConfig):
    """x = the numbers that a row spells; p(w | z) is the mass of the cell of w under N(z, noise²), with z at t → 0.

    This makes the model a plain DDPM (Ho et al. 2020) on vectors. The tokenizer must be
    `CharTokenizer(POINT_ALPHABET, ())`.
    """

    width: int = 2  # D, the number of coordinates
    noise: float = math.exp(-4)  # standard deviation of z at the clean end of the process (log-SNR 8)

    def __post_init__(self) -> None:
        require_range(self, 1, 1024, "width")
        require_range(self, ABOVE_ZERO, FINITE, "noise")

    def vectors(self, vocab: Vocab) -> int:
        return self.width

    def build(self, vocab: Vocab) -> CoordinatesCodec:
        return CoordinatesCodec(self)


class CoordinatesCodec(Codec):
    """The codec that `Coordinates` configures; see its documentation."""

    latents = 1
    parallel = False

    def __init__(self, config: Coordinates) -> None:
        super().__init__()
        self.config, self.width = config, config.width

    def encode(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        """(B, L) ids of `POINT_ALPHABET` → (B, 1, D) coordinates"""
        length = point_length(self.width)
        if tokens.shape[1] != length:
            raise ValueError(f"a point of {self.width} numbers has {length} characters, not {tokens.shape[1]}")
        characters = torch.cat([tokens, tokens[:, :1]], 1).view(len(tokens), self.width, _CHARACTERS + 1)
        digits = characters[..., [1, *range(3, _CHARACTERS)]].clamp(max=9)
        size = (digits * self._powers(tokens.device)).sum(-1) * CELL_SIZE
        sign = torch.where(characters[..., 0] == POINT_ALPHABET.index("-"), -1.0, 1.0)
        return (sign * size)[:, None].float()

    def decode(self, z: Tensor) -> Tensor:
        texts = (format_point(point) for point in z[:, 0].tolist())
        return torch.tensor([[POINT_ALPHABET.index(char) for char in text] for text in texts], device=z.device)

    def nll(self, z: Tensor, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        """(B, L) nats of the cell, all in the first column."""
        distance = (
            -(self.encode(tokens) - z).double().abs()
        )  # negative: the lower tail of the normal loses no precision
        low, high = (torch.special.log_ndtr((distance + side * CELL_SIZE / 2) / self.config.noise) for side in (-1, 1))
        nats = -(high + (-(low - high).exp()).log1p()).sum((1, 2)).to(z.dtype)
        return torch.cat([nats[:, None], nats.new_zeros(len(tokens), tokens.shape[1] - 1)], 1)

    @staticmethod
    def _powers(device: torch.device) -> Tensor:
        return 10 ** torch.arange(_DECIMALS, -1, -1, device=device)
