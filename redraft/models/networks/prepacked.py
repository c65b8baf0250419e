"""Weights in the packed layout of oneDNN: several rows cost little more than one, and each rounds as if it were alone.

Together with the batch-invariant attention of `incremental`, a causal network then gives a token the same bits whether
it is read alone or with others, so that speculative decoding writes exactly the text of plain decoding.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core.hardware.batch_invariance import least_invariant_rows
from redraft.models.networks.layers import Block
from redraft.models.networks.linear import LoraLinear, _LoraWrapper
from redraft.models.networks.transformer import Transformer

# minimum number of rows for batch-invariant products, by (inputs, outputs, threads); None if no number is enough
_LEAST: dict[tuple[int, ...], int | None] = {}


class PrepackedLinear(nn.Module):
    """y = W·h + b in fp32, batch-invariant: the bits of a row depend on that row alone.

    That may need a minimum number of rows; inputs with fewer are padded.
    """

    batch_invariant = True

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        if not torch.backends.mkldnn.is_available():
            raise ValueError("weights=packed needs oneDNN, which this build of torch lacks; leave it out")
        self.outputs, self.inputs = weight.shape
        self.register_buffer("bias", None if bias is None else bias.detach().float().clone())
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().float().contiguous(), 16)
        key = (self.inputs, self.outputs, torch.get_num_threads())
        if key not in _LEAST:
            _LEAST[key] = least_invariant_rows(self._product, self.inputs)
        least = _LEAST[key]
        if least is None:
            raise ValueError(
                f"on this CPU the rounding of a {self.inputs} × {self.outputs} product depends on the number of rows, "
                "even with packed weights; leave out weights=packed"
            )
        self.least = least

    def _product(self, rows: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self.bias, "none", [], "")
        return product

    def forward(self, h: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs) fp32"""
        flat = h.reshape(-1, self.inputs).float()
        rows = len(flat)
        if rows < self.least:
            flat = F.pad(flat, (0, 0, 0, self.least - rows))
        return self._product(flat)[:rows].view(*h.shape[:-1], -1)


def replace_linears(blocks: Iterable[nn.Module], kind: type[nn.Module]) -> None:
    """Replace every linear layer of these blocks by one of type `kind`, in place; LoRA adapters are kept."""
    for block in cast("Iterable[Block]", blocks):
        for part, name in ((block.attention, "qkv"), (block.attention, "out"), (block.mlp, "up"), (block.mlp, "down")):
            layer = getattr(part, name)
            new = kind(layer.weight, layer.bias)
            setattr(part, name, _LoraWrapper(new, layer) if isinstance(layer, LoraLinear) else new)


def prepack(network: Transformer) -> Transformer:
    """Pack the matrices of the blocks and of the output layer, in place; return the network."""
    replace_linears(network.blocks, PrepackedLinear)
    return _prepack_output(network)


def _prepack_output(network: Transformer) -> Transformer:
    """Pack the output layer, which makes `Row` batch-invariant, in place; return the network."""
    network.replace_output(PrepackedLinear(*output_weights(network)))
    return network


def output_weights(network: Transformer) -> tuple[Tensor, Tensor | None]:
    """(V, D) weight and (V,) bias of the output layer, which may be the embedding."""
    layer = network.output
    return (network.embedding.weight, None) if layer is None else (layer.weight, layer.bias)
