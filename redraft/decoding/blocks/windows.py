"""Windows: a range of columns of some rows of a canvas."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core.canvas import Canvas, Context
from redraft.core.randomness import Rng


@dataclass(frozen=True)
class _Window:
    """Columns of a canvas for an inner sampler to write, which sees nothing else.

    The columns may differ between rows, and rows with nothing to write are left out.
    """

    row: Tensor | None  # (R,) indices of the rows; None for all rows
    column: Tensor  # (1, n) if all rows have the same columns, else (R, n); columns beyond the canvas are padding
    lo: int | None  # first column if all rows have the same columns; None if they differ

    @classmethod
    def of(cls, row: list[int], first: list[int], size: int, canvas: Canvas) -> _Window:
        """The window of `size` columns from column `first` of each row, or fewer if the canvas is too short."""
        device, lo = canvas.z.device, min(first)
        index = None if len(row) == len(canvas.z) else torch.tensor(row, device=device)
        size = min(size, canvas.z.shape[1] - lo)
        if lo == max(first):
            return cls(index, torch.arange(lo, lo + size, device=device)[None], lo)
        return cls(index, torch.tensor(first, device=device)[:, None] + torch.arange(size, device=device), None)

    def rows(self, index: list[int]) -> _Window:
        """The window of the rows at `index`."""
        at = torch.tensor(index, device=self.column.device)
        column = self.column if self.lo is not None else self.column[at]
        return _Window(at if self.row is None else self.row[at], column, self.lo)

    def context(self, context: Context, index: list[int]) -> Context:
        """The context of the rows at `index`."""
        return context.rows(torch.tensor(index, device=self.column.device))

    def keys(self, rng: Rng, size: int | None = None) -> Rng:
        """Return random keys that draw what the whole rows would draw at these columns.

        size: tokens per block, to derive a key for the block that each row is at; None if there are no such blocks.
        """
        rng = rng if self.row is None else rng.rows(self.row)
        if size is not None:
            rng = rng.fold(self.lo // size if self.lo is not None else self.column[:, 0] // size)
        return rng.at(self.column)

    def whole(self, canvas: Canvas) -> Canvas:
        """Return the rows of the window, with all their columns."""
        return canvas if self.row is None else canvas.rows(self.row)

    def cut(self, whole: Canvas, context: Context) -> Canvas:
        """Cut the window out of its rows, to be read with this context."""
        if self.lo is not None:
            future = None if whole.future is None else whole.future[:, self.lo :][:, : self.column.shape[1]]
            return replace(whole.window(self.lo, self.lo + self.column.shape[1], context), future=future)
        at, beyond = self._clamped_columns(whole)
        pad, constraints = _gather_columns(whole.context.pad, at), whole.context.constraints
        context = replace(context, pad=beyond if pad is None else pad | beyond, positions=self.column)
        context = context.with_constraints(
            no_end_token=_gather_columns(constraints.no_end_token, at),
            rules=None if constraints.rules is None else constraints.rules.window(whole.z, self.column),
        )
        z = whole.z.take_along_dim(at if whole.z.dim() == 2 else at[..., None], 1)
        return Canvas(z, whole.fixed.gather(1, at) | beyond, context, _gather_columns(whole.future, at))

    def paste(self, canvas: Canvas, inner: Canvas) -> Canvas:
        """Return the canvas with the tokens of `inner` written at the columns of the window."""
        if self.lo is not None and self.row is None:
            return canvas.paste(inner, self.lo)
        written = canvas.write(self.put(canvas.z, inner.z))
        if inner.confidence is None:
            return written
        confidence = inner.confidence.new_zeros(canvas.fixed.shape) if canvas.confidence is None else canvas.confidence
        return replace(written, confidence=self.put(confidence, inner.confidence))

    def put(self, old: Tensor, new: Tensor) -> Tensor:
        """(B, L, …) `old` with `new`, (R, n, …), written at the columns of the window."""
        index = torch.arange(len(new), device=new.device) if self.row is None else self.row
        row, column = torch.broadcast_tensors(index[:, None], self.column)
        inside = column < old.shape[1]
        return old.index_put((row[inside], column[inside]), new[inside])

    def _clamped_columns(self, whole: Canvas) -> tuple[Tensor, Tensor]:
        """(R, n) columns clamped to the canvas, and (R, n) bool which were beyond it."""
        column = self.column.expand(len(whole.z), -1)
        return column.clamp(max=whole.z.shape[1] - 1), column >= whole.z.shape[1]


def _gather_columns(a: Tensor | None, at: Tensor) -> Tensor | None:
    return None if a is None else a.gather(1, at)
