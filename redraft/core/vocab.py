"""The vocabulary of a token process, and range checks for settings."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import cached_property

ABOVE_ZERO, BELOW_ONE, FINITE = sys.float_info.min, math.nextafter(1.0, 0.0), sys.float_info.max  # open ends


MAX_WIDTH = 2**24  # limit for layers and rows, far beyond any network; a product of two fits into int64


_ENDS = {ABOVE_ZERO: "above 0", BELOW_ONE: "below 1", FINITE: "finite", math.inf: ""}


def require_range(value: object, least: float, most: float, *names: str) -> None:
    """Raises if one of the named fields is NaN or outside [least, most]; None passes."""
    for name in names:
        if (number := getattr(value, name)) is not None and not least <= number <= most:
            raise ValueError(f"{name}={number}; it must be {_range_text(least, most)}")


def _range_text(least: float, most: float) -> str:
    """A range in words, as the settings of commands show it: "from 1 to 4,096", "at least 1", "above 0 and below 1"."""
    if least not in _ENDS and most not in _ENDS:
        return f"from {least:,} to {most:,}"
    ends = (_ENDS.get(least, f"at least {least:,}"), _ENDS.get(most, f"at most {most:,}"))
    return " and ".join(filter(None, ends))


@dataclass(frozen=True)
class Vocab:
    """The V states of a token process, and which of them are special."""

    size: int  # V, the number of states including the mask
    mask: int | None = None
    bos: int | None = None
    eos: int | None = None
    pad: int | None = None

    def __post_init__(self) -> None:
        for name in ("mask", "bos", "eos", "pad"):
            if (token := getattr(self, name)) is not None and not 0 <= token < self.size:
                raise ValueError(f"{name}={token} is not one of the {self.size} ids 0..{self.size - 1}")

    @property
    def masked(self) -> int:
        """The id of the mask; raises if the vocabulary has none."""
        if self.mask is None:
            raise ValueError("this vocabulary has no mask token; mask noise needs one: Vocab(size, mask=id)")
        return self.mask

    @property
    def filler(self) -> int:
        """The id written where there is no token: pad, else eos, else 0."""
        return next((token for token in (self.pad, self.eos) if token is not None), 0)

    @property
    def start(self) -> int:
        """The id before the first token, for causal networks: the mask, else filler."""
        return self.filler if self.mask is None else self.mask

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The ids that never occur inside a text: bos, eos and pad, sorted."""
        return tuple(sorted({token for token in (self.bos, self.eos, self.pad) if token is not None}))
