"""Weights of other projects where they lie: shapes first, the numbers when they are wanted, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

_PIECE = 1 << 20  # numbers read at a time


class TensorSource(Protocol):
    """A tensor that need not be in memory."""

    @property
    def shape(self) -> torch.Size: ...

    @property
    def dtype(self) -> torch.dtype: ...

    def pieces(self) -> Iterator[Tensor]:
        """Its numbers in order, flat, a part at a time."""
        ...


ForeignWeights: TypeAlias = Mapping[str, TensorSource | Tensor]
ForeignSettings: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class TensorInMemory:
    """A tensor in memory, or one that is made when it is wanted."""

    shape: torch.Size
    make: Callable[[], Tensor]
    dtype: torch.dtype = torch.float32

    def pieces(self) -> Iterator[Tensor]:
        return iter(self.make().reshape(-1).split(_PIECE))


@dataclass(frozen=True)
class TensorInFile:
    """A tensor in a file, at a place that its header tells."""

    file: Path
    offset: int
    dtype: torch.dtype
    shape: torch.Size

    def pieces(self) -> Iterator[Tensor]:
        left = self.shape.numel()
        with open(self.file, "rb") as stream:
            stream.seek(self.offset)
            while left:
                part = torch.empty(min(left, _PIECE), dtype=self.dtype)
                if stream.readinto(part.view(torch.uint8).numpy().data) != part.nbytes:
                    raise ValueError(f"{self.file} ends too early")
                yield part
                left -= len(part)


def as_tensor_source(tensor: TensorSource | Tensor) -> TensorSource:
    """A tensor in memory as one of those that need not be."""
    return TensorInMemory(tensor.shape, lambda: tensor, tensor.dtype) if isinstance(tensor, Tensor) else tensor


def copy_into(out: Tensor, source: TensorSource) -> None:
    """Writes all numbers of a stored tensor into a contiguous one of as many, in its dtype."""
    flat, at = out.view(-1), 0
    for part in source.pieces():
        flat[at : at + len(part)] = part
        at += len(part)


def same_values(one: TensorSource, other: TensorSource) -> bool:
    """Whether two tensors hold the same numbers."""
    return one.shape == other.shape and all(map(torch.equal, one.pieces(), other.pieces()))


class LayoutError(ValueError):
    """Weights or settings that are not of the layout they were taken for."""


def shorten_list(names: Collection[str], most: int = 4) -> str:
    """ "a, b, c, d and 17 more" """
    first = ", ".join(sorted(names)[:most])
    return first if len(names) <= most else f"{first} and {len(names) - most} more"
