"""Whether a matrix product gives each row the same bits for any batch size (batch invariance).

BLAS libraries choose other kernels for few rows, and some split the sum over many numbers when there are several
threads; both change last bits. `MKL_CBWR=AVX512,STRICT` in the environment of a process, before its first product,
makes MKL keep one order; otherwise products of at least 16 rows are often alike. Which of the two holds is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

_ROWS = (1, 2, 3, 4, 5, 8, 12, 15, 16, 17, 24, 31, 32, 48, 57, 64, 96, 128, 160, 192, 256)
_LEAST = (1, 2, 16, 32)


@torch.no_grad()
def batch_invariant_rows(shapes: Iterable[tuple[int, int]]) -> int | None:
    """The smallest number of rows at which products of these shapes (inputs, outputs) become batch-invariant.

    With that many rows or more, the bits of a row do not depend on the others. None if that is never so. Measured in
    fp32 on the CPU, with the threads that torch has now.
    """
    minimums = [_steady(*shape) for shape in sorted(set(shapes))]
    return None if None in minimums else max((rows for rows in minimums if rows is not None), default=1)


def _steady(inputs: int, outputs: int) -> int | None:
    x, w = (_matrix(n, inputs) for n in (_ROWS[-1], min(outputs, 4096)))
    whole = F.linear(x, w)
    unlike = max((rows for rows in _ROWS if not torch.equal(F.linear(x[:rows], w), whole[:rows])), default=0)
    return next((least for least in _LEAST if least > unlike), None)


@torch.no_grad()
def least_invariant_rows(product: Callable[[Tensor], Tensor], inputs: int, most: int = 64) -> int | None:
    """The smallest number of rows, up to 8, at which a product becomes batch-invariant; tested up to `most` rows.

    This must hold at any row index: rows are also compared as the first of `least` rows. None if it never holds.
    """
    x = _matrix(most, inputs)
    whole = product(x)
    for least in (1, 2, 4, 8):
        sizes = [rows for rows in (least, 3, 5, 9, 16, 33) if rows >= least]
        alone = all(torch.equal(product(x[i : i + least])[0], whole[i]) for i in (1, 7, most - least))
        if alone and all(torch.equal(product(x[:rows]), whole[:rows]) for rows in sizes):
            return least
    return None


def _matrix(rows: int, columns: int) -> Tensor:
    """A matrix with numbers of all magnitudes, so that differences in rounding show."""
    return torch.arange(rows * columns).float().mul(12.9898).sin().mul(43.7585).frac().view(rows, columns)
