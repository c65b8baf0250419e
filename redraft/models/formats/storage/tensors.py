"""Tensors of other projects, read lazily: shape and dtype at once, values on demand and chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

_PIECE = 1 << 20  # elements read at a time


class TensorSource(Protocol):
    """A tensor that need not be in memory yet."""

    @property
    def shape(self) -> torch.Size: ...

    @property
    def dtype(self) -> torch.dtype: ...

    def pieces(self) -> Iterator[Tensor]:
        """Yield the values in order, as flat chunks."""
        ...


ForeignWeights: TypeAlias = Mapping[str, TensorSource | Tensor]
ForeignSettings: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class _TensorInMemory:
    """A tensor in memory, or computed on demand."""

    shape: torch.Size
    make: Callable[[], Tensor]  # returns the tensor
    dtype: torch.dtype = torch.float32

    def pieces(self) -> Iterator[Tensor]:
        return iter(self.make().reshape(-1).split(_PIECE))


@dataclass(frozen=True)
class _TensorInFile:
    """A tensor stored in a file."""

    file: Path
    offset: int  # byte at which the values start
    dtype: torch.dtype
    shape: torch.Size

    def pieces(self) -> Iterator[Tensor]:
        remaining = self.shape.numel()
        with open(self.file, "rb") as stream:
            stream.seek(self.offset)
            while remaining:
                piece = torch.empty(min(remaining, _PIECE), dtype=self.dtype)
                if stream.readinto(piece.view(torch.uint8).numpy().data) != piece.nbytes:
                    raise ValueError(f"{self.file} ends too early; download it again")
                yield piece
                remaining -= len(piece)


def as_tensor_source(tensor: TensorSource | Tensor) -> TensorSource:
    """Wrap a plain tensor as a `TensorSource`; return a `TensorSource` unchanged."""
    return _TensorInMemory(tensor.shape, lambda: tensor, tensor.dtype) if isinstance(tensor, Tensor) else tensor


def copy_into(out: Tensor, source: TensorSource) -> None:
    """Copy all values of `source` into `out`, a contiguous tensor with as many elements, converting to its dtype."""
    flat, start = out.view(-1), 0
    for piece in source.pieces():
        flat[start : start + len(piece)] = piece
        start += len(piece)


def same_values(a: TensorSource, b: TensorSource) -> bool:
    """Whether two tensors have equal shapes and values."""
    return a.shape == b.shape and all(map(torch.equal, a.pieces(), b.pieces()))


class LayoutError(ValueError):
    """Raised if weights or settings do not have the layout that their format requires."""


def shorten_list(names: Collection[str], most: int = 4) -> str:
    """Join sorted names, at most `most` of them: "a, b, c, d and 17 more"."""
    first = ", ".join(sorted(names)[:most])
    return first if len(names) <= most else f"{first} and {len(names) - most} more"
