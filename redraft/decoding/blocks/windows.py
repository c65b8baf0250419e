"""Windows: some columns of some rows of a canvas; and approximate caches, which let full attention read windows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core.canvas import Canvas, Context
from redraft.core.randomness import Rng


@dataclass(frozen=True)
class Window:
    """Columns of a canvas, to be written by an inner sampler that sees nothing else.

    Rows may have their columns at different places, and rows with nothing to write are left out.
    """

    row: Tensor | None  # (R,) numbers of the rows; None: all of them
    column: Tensor  # (1, n) if all rows have the same columns, else (R, n); columns beyond the canvas are padding
    lo: int | None  # the first column, if all rows have the same

    @classmethod
    def of(cls, row: list[int], first: list[int], size: int, canvas: Canvas) -> Window:
        """From column `first` of each row on, `size` columns, but no more than the canvas has."""
        device, lo = canvas.z.device, min(first)
        number = None if len(row) == len(canvas.z) else torch.tensor(row, device=device)
        size = min(size, canvas.z.shape[1] - lo)
        if lo == max(first):
            return cls(number, torch.arange(lo, lo + size, device=device)[None], lo)
        return cls(number, torch.tensor(first, device=device)[:, None] + torch.arange(size, device=device), None)

    def rows(self, index: list[int]) -> Window:
        """The same for some of its rows."""
        at = torch.tensor(index, device=self.column.device)
        column = self.column if self.lo is not None else self.column[at]
        return Window(at if self.row is None else self.row[at], column, self.lo)

    def context(self, context: Context, index: list[int]) -> Context:
        """What the network sees of some of its rows."""
        return context.rows(torch.tensor(index, device=self.column.device))

    def keys(self, rng: Rng, size: int | None = None) -> Rng:
        """The keys of its rows, to draw what whole rows would draw there; with `size` those of its blocks."""
        rng = rng if self.row is None else rng.rows(self.row)
        if size is not None:
            rng = rng.fold(self.lo // size if self.lo is not None else self.column[:, 0] // size)
        return rng.at(self.column)

    def whole(self, canvas: Canvas) -> Canvas:
        """The rows of the window, with all their columns."""
        return canvas if self.row is None else canvas.rows(self.row)

    def cut(self, whole: Canvas, context: Context) -> Canvas:
        """The window of these rows, to be read with this context."""
        if self.lo is not None:
            waiting = None if whole.waiting is None else whole.waiting[:, self.lo :][:, : self.column.shape[1]]
            return replace(whole.window(self.lo, self.lo + self.column.shape[1], context), waiting=waiting)
        at, beyond = self._at(whole)
        pad, marks = _taken(whole.context.pad, at), whole.context.marks
        context = replace(
            context,
            pad=beyond if pad is None else pad | beyond,
            inside=_taken(whole.context.inside, at),
            place=self.column,
            marks=None if marks is None else marks.window(whole.z, self.column),
        )
        z = whole.z.take_along_dim(at if whole.z.dim() == 2 else at[..., None], 1)
        return Canvas(z, whole.fixed.gather(1, at) | beyond, context, _taken(whole.waiting, at))

    def paste(self, canvas: Canvas, inner: Canvas) -> Canvas:
        """The canvas with what the inner sampler wrote."""
        if self.lo is not None and self.row is None:
            return canvas.paste(inner, self.lo)
        written = canvas.write(self.put(canvas.z, inner.z))
        if inner.confidence is None:
            return written
        old = inner.confidence.new_zeros(canvas.fixed.shape) if canvas.confidence is None else canvas.confidence
        return replace(written, confidence=self.put(old, inner.confidence))

    def put(self, old: Tensor, new: Tensor) -> Tensor:
        """(B, L, …) with (R, n, …) at the columns of the window."""
        number = torch.arange(len(new), device=new.device) if self.row is None else self.row
        row, column = torch.broadcast_tensors(number[:, None], self.column)
        real = column < old.shape[1]
        return old.index_put((row[real], column[real]), new[real])

    def _at(self, whole: Canvas) -> tuple[Tensor, Tensor]:
        """(R, n) columns, the last one for those beyond the canvas; and which those are."""
        column = self.column.expand(len(whole.z), -1)
        return column.clamp(max=whole.z.shape[1] - 1), column >= whole.z.shape[1]


def _taken(a: Tensor | None, at: Tensor) -> Tensor | None:
    return None if a is None else a.gather(1, at)
