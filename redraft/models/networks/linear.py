"""Linear layers: several as one product, and with adapters of low rank, which learn while the weights stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.models.networks.config import LoraConfig, TransformerConfig


class LoraLinear(nn.Linear):
    """y = W·h + b + gate·(alpha/rank)·B·A·h; B begins at zero, so at first it is the layer without its adapter.

    `gate` says at which positions the adapter acts; elsewhere, and while it is off, the layer is W·h + b bit for bit.
    """

    def __init__(self, inputs: int, outputs: int, bias: bool, lora: LoraConfig) -> None:
        super().__init__(inputs, outputs, bias)
        self.scale, self.on = lora.alpha / lora.rank, True
        self.gate: Tensor | None = None  # (B, L) bool, for rows as they stand; None: everywhere
        self.lora_a = nn.Parameter(torch.zeros(lora.rank, inputs))
        self.lora_b = nn.Parameter(torch.zeros(outputs, lora.rank))

    def forward(self, h: Tensor) -> Tensor:
        y = super().forward(h)
        if not self.on:
            return y
        change = F.linear(F.linear(h, self.lora_a), self.lora_b) * self.scale
        return y + (change if self.gate is None else torch.where(self.gate.view(*h.shape[:-1], 1), change, 0.0))

    @torch.no_grad()
    def merged(self) -> Tensor:
        """(outputs, inputs) the matrix with its adapter."""
        return self.weight + self.scale * self.lora_b @ self.lora_a


class LoraWrapper(nn.Module):
    """The adapter of a layer around another form of its weights (int8, packed), which does not learn."""

    def __init__(self, inner: nn.Module, layer: LoraLinear) -> None:
        super().__init__()
        self.inner, self.scale, self.on, self.gate = inner, layer.scale, layer.on, layer.gate
        self.lora_a, self.lora_b = layer.lora_a, layer.lora_b

    def forward(self, h: Tensor) -> Tensor:
        y: Tensor = self.inner(h)
        if not self.on:
            return y
        if self.gate is None:
            return y + F.linear(F.linear(h, self.lora_a), self.lora_b) * self.scale
        flat, where = h.reshape(-1, h.shape[-1]), self.gate.flatten().nonzero().squeeze(-1)
        change = F.linear(F.linear(flat[where], self.lora_a), self.lora_b) * self.scale
        return y.view(len(flat), -1).index_add(0, where, change).view_as(y)


class LoraEmbedding(nn.Embedding):
    """An embedding of which only the mask's row learns: a change is added to it, zero at first and while it is off."""

    def __init__(self, ids: int, width: int, mask: int) -> None:
        super().__init__(ids, width)
        self.mask, self.on = mask, True
        self.lora_row = nn.Parameter(torch.zeros(width))

    def forward(self, ids: Tensor) -> Tensor:
        h = super().forward(ids)
        return h + (ids == self.mask)[..., None] * self.lora_row if self.on else h

    @torch.no_grad()
    def merged(self) -> Tensor:
        """(ids, width) the table with its changed row."""
        return self.weight.index_add(0, torch.tensor([self.mask], device=self.weight.device), self.lora_row[None])


def lora_parameters(module: nn.Module) -> list[nn.Parameter]:
    """All that an adapter consists of; empty without one."""
    rows = [part.lora_row for part in module.modules() if isinstance(part, LoraEmbedding)]
    return [*rows, *(p for layer in lora_layers(module) for p in (layer.lora_a, layer.lora_b))]


def lora_layers(module: nn.Module) -> list[LoraLinear | LoraWrapper]:
    return [part for part in module.modules() if isinstance(part, LoraLinear | LoraWrapper)]


@contextmanager
def lora_enabled(module: nn.Module, on: bool = True, gate: Tensor | None = None) -> Iterator[None]:
    """While it lasts, all adapters of a module are on, or off; with a gate (B, L) they act at its positions alone."""
    layers, rows = lora_layers(module), [part for part in module.modules() if isinstance(part, LoraEmbedding)]
    before = [(layer.on, layer.gate) for layer in layers], [row.on for row in rows]
    for layer in layers:
        layer.on, layer.gate = on, gate
    for row in rows:
        row.on = on
    try:
        yield
    finally:
        for layer, (was, gated) in zip(layers, before[0], strict=True):
            layer.on, layer.gate = was, gated
        for row, was in zip(rows, before[1], strict=True):
            row.on = was


@contextmanager
def lora_disabled(module: nn.Module) -> Iterator[None]:
    """While it lasts, the module is the one that was adapted."""
    with lora_enabled(module, on=False):
        yield


def init_weights(layer: nn.Linear | nn.Embedding, std: float | None = None) -> None:
    """Initial weights of a layer: normal with this deviation, by default 1/√inputs, zero bias; 0 draws nothing."""
    if std == 0:
        layer.weight.zero_()
    else:
        layer.weight.normal_(0, layer.weight.shape[1] ** -0.5 if std is None else std)
    if isinstance(layer, nn.Linear) and layer.bias is not None:
        layer.bias.zero_()
    if isinstance(layer, LoraLinear):
        layer.lora_a.normal_(0, layer.weight.shape[1] ** -0.5)


def _init_residual(layer: nn.Linear, layers: int) -> None:
    """The same for a layer that writes into the residual stream: smaller, the more layers there are."""
    init_weights(layer, (layer.in_features * 2 * layers) ** -0.5)


class FusedLinear(nn.Linear):
    """Linear layers with one input as one matrix product. Some of them can be computed alone: `layer(h, 0, 1)`."""

    def __init__(self, inputs: int, sizes: Sequence[int], bias: bool = True) -> None:
        super().__init__(inputs, sum(sizes), bias)
        self.sizes = tuple(sizes)

    def forward(self, h: Tensor, first: int = 0, end: int | None = None) -> Tensor:
        """(…, inputs) → (…, outputs of the layers first..end − 1)"""
        if first == 0 and end is None:
            return super().forward(h)
        lo, hi = sum(self.sizes[:first]), sum(self.sizes[:end])
        return F.linear(h, self.weight[lo:hi], None if self.bias is None else self.bias[lo:hi])


def _make_projection(config: TransformerConfig, inputs: int, sizes: list[int], bias: bool) -> nn.Linear:
    """A linear layer of a block, or several with one input as one, with an adapter if the network has them."""
    if config.lora is not None:
        return LoraLinear(inputs, sum(sizes), bias, config.lora)
    return nn.Linear(inputs, sizes[0], bias) if len(sizes) == 1 else FusedLinear(inputs, sizes, bias)
