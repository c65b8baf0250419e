"""Records the matrix products of a piece of code as it runs, then repeats them back to back.

That is the least time the code could take on this machine if everything else were free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

OPERANDS = {"mm": slice(2), "bmm": slice(2), "addmm": slice(1, 3), "baddbmm": slice(1, 3)}
FUSED = "_scaled_dot_product_"  # attention: two products forward, four backward


@dataclass(frozen=True)
class Operand:
    """A matrix, or a batch of them: how it lies in memory decides the speed of its products."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, a: Tensor) -> Operand:
        return cls(tuple(a.shape), a.stride(), a.dtype)

    @classmethod
    def batch(cls, count: int, rows: int, columns: int, dtype: torch.dtype) -> Operand:
        return cls((count, rows, columns), (rows * columns, columns, 1), dtype)

    @property
    def transposed(self) -> Operand:
        (*n, a, b), (*m, x, y) = self.shape, self.stride
        return Operand((*n, b, a), (*m, y, x), self.dtype)

    def make(self) -> Tensor:
        reach = 1 + sum((n - 1) * step for n, step in zip(self.shape, self.stride, strict=True))
        return torch.randn(reach).to(self.dtype).as_strided(self.shape, self.stride)


@dataclass(frozen=True)
class Product:
    left: Operand
    right: Operand

    @property
    def flops(self) -> int:
        *batch, rows, inner = self.left.shape
        return 2 * rows * inner * self.right.shape[-1] * (batch[0] if batch else 1)


class Recorder(TorchDispatchMode):
    """Notes every matrix product that runs inside it, those of the fused attention kernel one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[Product] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in OPERANDS:
            self.products.append(Product(*map(Operand.of, args[OPERANDS[name]])))
        elif name.startswith(FUSED):
            self.products += backward(*args[1:4]) if "backward" in name else forward(*args[:3])
        return func(*args, **(kwargs or {}))


def forward(q: Tensor, k: Tensor, v: Tensor) -> list[Product]:
    """Attention (B, H, L, d): scores, then the mean of values."""
    query, key, value, score, _ = _attention(q, k, v)
    return [Product(query, key.transposed), Product(score, value)]


def backward(q: Tensor, k: Tensor, v: Tensor) -> list[Product]:
    """The gradients of values, weights, queries and keys."""
    query, key, value, score, out = _attention(q, k, v)
    first = [Product(score.transposed, out), Product(out, value.transposed)]
    return [*first, Product(score, key), Product(score.transposed, query)]


def _attention(q: Tensor, k: Tensor, v: Tensor) -> list[Operand]:
    """Queries, keys, values, scores and output, a matrix for each row and head."""
    (B, H, n, d), (m, e) = q.shape, v.shape[2:]
    return [Operand.batch(B * H, *shape, q.dtype) for shape in ((n, d), (m, d), (m, e), (n, m), (n, e))]


def recorded(job: Callable[[], Any]) -> list[Product]:
    with Recorder() as recorder:
        job()
    return recorder.products


def flops(products: Sequence[Product]) -> int:
    return sum(product.flops for product in products)


def repeated(products: Sequence[Product]) -> Callable[[], None]:
    """All of them, one after another, on numbers made beforehand and into memory held beforehand."""
    matrices = {o: o.make() for p in products for o in (p.left, p.right)}
    results = {p: torch.empty(*p.left.shape[:-1], p.right.shape[-1], dtype=p.left.dtype) for p in products}

    def run() -> None:
        for p in products:
            multiply = torch.mm if len(p.left.shape) == 2 else torch.bmm
            multiply(matrices[p.left], matrices[p.right], out=results[p])

    return run
