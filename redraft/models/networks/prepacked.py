"""Weights in the layout of oneDNN: several rows cost little more than one, and each rounds as if it were alone.

With the attention of `lean`, which reads each token's keys by themselves, a causal network then gives a token the same
bits whether it is read alone or with others: speculation writes exactly the text of plain decoding.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core.hardware.batch_invariance import least_invariant_rows
from redraft.models.networks.layers import Block
from redraft.models.networks.linear import LoraLinear, LoraWrapper
from redraft.models.networks.transformer import Transformer

_LEAST: dict[tuple[int, ...], int | None] = {}  # measured once for each shape and number of threads


class PrepackedLinear(nn.Module):
    """y = W·h + b in fp32. The bits of a row depend on that row alone; fewer rows than that needs are filled up."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        if not torch.backends.mkldnn.is_available():
            raise ValueError("packed weights need oneDNN, which this build of torch lacks; leave out weights=packed")
        self.outputs, self.inputs = weight.shape
        self.register_buffer("bias", None if bias is None else bias.detach().float().clone())
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().float().contiguous(), 16)
        key = (self.inputs, self.outputs, torch.get_num_threads())
        if key not in _LEAST:
            _LEAST[key] = least_invariant_rows(self._product, self.inputs)
        found = _LEAST[key]
        if found is None:
            raise ValueError(
                f"products of {self.inputs} × {self.outputs} round by the number of rows on this CPU, packed or not; "
                "leave out weights=packed"
            )
        self.least = found

    def _product(self, rows: Tensor) -> Tensor:
        found: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self.bias, "none", [], "")
        return found

    def forward(self, h: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs) fp32"""
        flat = h.reshape(-1, self.inputs).float()
        rows = len(flat)
        if rows < self.least:
            flat = F.pad(flat, (0, 0, 0, self.least - rows))
        return self._product(flat)[:rows].view(*h.shape[:-1], -1)


def replace_linears(blocks: Iterable[nn.Module], kind: type[nn.Module]) -> None:
    """Every matrix of these blocks as a layer of this kind; adapters stay around it."""
    for block in cast("Iterable[Block]", blocks):
        for part, name in ((block.attention, "qkv"), (block.attention, "out"), (block.mlp, "up"), (block.mlp, "down")):
            layer = getattr(part, name)
            new = kind(layer.weight, layer.bias)
            setattr(part, name, LoraWrapper(new, layer) if isinstance(layer, LoraLinear) else new)


def prepack(network: Transformer) -> Transformer:
    """The network with its matrices packed, changed in place."""
    replace_linears(network.blocks, PrepackedLinear)
    return _prepack_output(network)


def _prepack_output(network: Transformer) -> Transformer:
    """The network with a packed output layer, read evenly from now on: a token gets the same bits in any company."""
    network.output, network.even = PrepackedLinear(*output_weights(network)), True  # type: ignore[assignment]
    return network


def output_weights(network: Transformer) -> tuple[Tensor, Tensor | None]:
    """(V, D) and (V,) of the output layer, which may be the embedding."""
    layer = network.output
    return (network.embedding.weight, None) if layer is None else (layer.weight, layer.bias)
