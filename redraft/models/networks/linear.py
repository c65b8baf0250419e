"""Linear layers: several fused into one product, and LoRA adapters, which are trained while the weights are frozen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core.vocab import ABOVE_ZERO, FINITE, require_range


@dataclass(frozen=True)
class LoraConfig:
    """A LoRA adapter on the matrices of all blocks: W + (alpha/rank)·B·A, with W frozen (Hu et al. 2021)."""

    rank: int = 16
    alpha: float = 32.0
    mask_row: bool = False  # also learn a change to the embedding of the mask

    def __post_init__(self) -> None:
        require_range(self, 1, 4096, "rank")
        require_range(self, ABOVE_ZERO, FINITE, "alpha")


class LoraLinear(nn.Linear):
    """A linear layer with a LoRA adapter: y = W·h + b + gate·(alpha/rank)·B·A·h.

    B starts at zero, so initially the adapter changes nothing. It acts only at the positions of `gate`; elsewhere, and
    while the adapter is off, the output is W·h + b bit for bit.
    """

    def __init__(self, inputs: int, outputs: int, bias: bool, lora: LoraConfig) -> None:
        super().__init__(inputs, outputs, bias)
        self.scale, self.on = lora.alpha / lora.rank, True
        self.gate: Tensor | None = None  # (B, L) bool: positions where the adapter acts; None for all
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
        """(outputs, inputs) the matrix with the adapter merged into it."""
        return self.weight + self.scale * self.lora_b @ self.lora_a


class _LoraWrapper(nn.Module):
    """A LoRA adapter around an inference-only form of a layer's weights (int8, packed)."""

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
        flat, index = h.reshape(-1, h.shape[-1]), self.gate.flatten().nonzero().squeeze(-1)
        change = F.linear(F.linear(flat[index], self.lora_a), self.lora_b) * self.scale
        return y.view(len(flat), -1).index_add(0, index, change).view_as(y)


class _Embedding(nn.Embedding):
    """An embedding that is not initialized on the meta device, where drawing imports the compiler of torch for 2 s."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()


class LoraEmbedding(_Embedding):
    """A frozen embedding with a learned change to the mask's row; the change starts at zero and can be switched off."""

    def __init__(self, ids: int, width: int, mask: int) -> None:
        super().__init__(ids, width)
        self.mask, self.on = mask, True
        self.lora_row = nn.Parameter(torch.zeros(width))

    def forward(self, ids: Tensor) -> Tensor:
        h = super().forward(ids)
        return h + (ids == self.mask)[..., None] * self.lora_row if self.on else h

    @torch.no_grad()
    def merged(self) -> Tensor:
        """(ids, width) the table with the change merged into it."""
        return self.weight.index_add(0, torch.tensor([self.mask], device=self.weight.device), self.lora_row[None])


def lora_parameters(module: nn.Module) -> list[nn.Parameter]:
    """The parameters of the LoRA adapters in a module; empty if it has none."""
    rows = [part.lora_row for part in module.modules() if isinstance(part, LoraEmbedding)]
    return [*rows, *(p for layer in lora_layers(module) for p in (layer.lora_a, layer.lora_b))]


def lora_layers(module: nn.Module) -> list[LoraLinear | _LoraWrapper]:
    """The linear layers with a LoRA adapter in a module."""
    return [part for part in module.modules() if isinstance(part, LoraLinear | _LoraWrapper)]


@contextmanager
def lora_enabled(module: nn.Module, on: bool = True, gate: Tensor | None = None) -> Iterator[None]:
    """Switch all adapters of a module on (or off) inside the context; with a gate (B, L), only at its positions."""
    layers = lora_layers(module)
    embeddings = [part for part in module.modules() if isinstance(part, LoraEmbedding)]
    layers_before = [(layer.on, layer.gate) for layer in layers]
    embeddings_before = [embedding.on for embedding in embeddings]
    for layer in layers:
        layer.on, layer.gate = on, gate
    for embedding in embeddings:
        embedding.on = on
    try:
        yield
    finally:
        for layer, (was_on, gate_before) in zip(layers, layers_before, strict=True):
            layer.on, layer.gate = was_on, gate_before
        for embedding, was_on in zip(embeddings, embeddings_before, strict=True):
            embedding.on = was_on


@contextmanager
def lora_disabled(module: nn.Module) -> Iterator[None]:
    """Switch all adapters of a module off inside the context, which leaves the base network."""
    with lora_enabled(module, on=False):
        yield


def init_weights(layer: nn.Linear | nn.Embedding, std: float | None = None) -> None:
    """Initialize a layer: normal weights with deviation `std` (1/√inputs if None) and zero bias; 0 draws nothing."""
    if layer.weight.is_meta:
        return
    if std == 0:
        layer.weight.zero_()
    else:
        layer.weight.normal_(0, layer.weight.shape[1] ** -0.5 if std is None else std)
    if isinstance(layer, nn.Linear) and layer.bias is not None:
        layer.bias.zero_()
    if isinstance(layer, LoraLinear):
        layer.lora_a.normal_(0, layer.weight.shape[1] ** -0.5)


def _init_residual(layer: nn.Linear, layers: int) -> None:
    """Initialize a layer that writes into the residual stream; the more layers there are, the smaller its weights."""
    init_weights(layer, (layer.in_features * 2 * layers) ** -0.5)


class _FusedLinear(nn.Linear):
    """Linear layers with the same input, fused into one matrix product; `layer(h, 0, 1)` computes only the first."""

    def __init__(self, inputs: int, sizes: Sequence[int], bias: bool = True) -> None:
        super().__init__(inputs, sum(sizes), bias)
        self.sizes = tuple(sizes)

    def forward(self, h: Tensor, first: int = 0, end: int | None = None) -> Tensor:
        """(…, inputs) → (…, outputs of the layers first..end − 1)"""
        if first == 0 and end is None:
            return super().forward(h)
        lo, hi = sum(self.sizes[:first]), sum(self.sizes[:end])
        return F.linear(h, self.weight[lo:hi], None if self.bias is None else self.bias[lo:hi])
