"""Packed weights, of fp32 in oneDNN's layout or fp16: each row of a product rounds as if it were alone.

Together with the batch-invariant attention of `Row`, a causal network then gives a token the same bits whether
it is read alone or with others, so that speculative decoding writes exactly the text of plain decoding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core.hardware.batch_invariance import least_invariant_rows
from redraft.models.networks.layers import Block
from redraft.models.networks.linear import LoraLinear, _LoraWrapper
from redraft.models.networks.transformer import Transformer

# minimum number of rows for batch-invariant products, by (layer, inputs, outputs, threads); None if no number is enough
_LEAST: dict[tuple[object, ...], int | None] = {}


class InvariantLinear(nn.Module, ABC):
    """y = W·h + b in fp32, batch-invariant: the bits of a row depend on that row alone.

    That may need a minimum number of rows; inputs with fewer are padded.
    """

    batch_invariant = True
    kind: ClassVar[str]  # the name of the weight format

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.outputs, self.inputs = weight.shape
        self._pack(weight.detach().float().contiguous(), None if bias is None else bias.detach().float().clone())
        key = (type(self), self.inputs, self.outputs, torch.get_num_threads())
        if key not in _LEAST:
            _LEAST[key] = least_invariant_rows(self._product, self.inputs)
        least = _LEAST[key]
        if least is None:
            raise ValueError(
                f"on this CPU the rounding of a {self.inputs} × {self.outputs} product depends on the number of rows, "
                f"even with {self.kind} weights; leave out weights={self.kind}"
            )
        self.least = least

    @abstractmethod
    def _pack(self, weight: Tensor, bias: Tensor | None) -> None:
        """Store fp32 weights (outputs, inputs) and bias (outputs,) in this format."""

    @abstractmethod
    def _product(self, rows: Tensor) -> Tensor:
        """(n, inputs) → (n, outputs)"""

    def forward(self, h: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs) fp32"""
        flat = h.reshape(-1, self.inputs).float()
        rows = len(flat)
        if rows < self.least:
            flat = F.pad(flat, (0, 0, 0, self.least - rows))
        return self._product(flat)[:rows].view(*h.shape[:-1], -1)


class PrepackedLinear(InvariantLinear):
    """fp32 weights in oneDNN's layout: several rows cost little more than one."""

    kind = "packed"

    def _pack(self, weight: Tensor, bias: Tensor | None) -> None:
        if not torch.backends.mkldnn.is_available():
            raise ValueError("weights=packed needs oneDNN, which this build of torch lacks; leave it out")
        self.register_buffer("bias", bias)
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, 16)

    def _product(self, rows: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self.bias, "none", [], "")
        return product


class Fp16Linear(InvariantLinear):
    """fp16 weights and fp32 rows (FBGEMM): reading a row's weights takes half as long, and nothing else is rounded."""

    kind = "fp16"

    def _pack(self, weight: Tensor, bias: Tensor | None) -> None:
        if torch.backends.quantized.engine not in ("fbgemm", "x86"):
            raise ValueError("weights=fp16 needs FBGEMM, which this build of torch lacks; use packed")
        if float(weight.abs().max()) > torch.finfo(torch.float16).max:
            raise ValueError("weights=fp16: a weight is beyond 65504, the largest number of fp16; use packed")
        self._packed = torch.ops.quantized.linear_prepack_fp16(weight, bias)

    def _product(self, rows: Tensor) -> Tensor:
        product: Tensor = torch.ops.quantized.linear_dynamic_fp16(rows, self._packed)
        return product


def replace_linears(blocks: Iterable[nn.Module], kind: type[nn.Module]) -> None:
    """Replace every linear layer of these blocks by one of type `kind`, in place; LoRA adapters are kept."""
    for block in cast("Iterable[Block]", blocks):
        for part, name in ((block.attention, "qkv"), (block.attention, "out"), (block.mlp, "up"), (block.mlp, "down")):
            layer = getattr(part, name)
            new = kind(layer.weight, layer.bias)
            setattr(part, name, _LoraWrapper(new, layer) if isinstance(layer, LoraLinear) else new)


def prepack(network: Transformer, kind: type[InvariantLinear] = PrepackedLinear) -> Transformer:
    """Pack the matrices of the blocks and of the output layer, in place; return the network."""
    replace_linears(network.blocks, kind)
    return _prepack_output(network, kind)


def _prepack_output(network: Transformer, kind: type[InvariantLinear] = PrepackedLinear) -> Transformer:
    """Pack the output layer, which makes `Row` batch-invariant, in place; return the network."""
    network.replace_output(kind(*output_weights(network)))
    return network


def output_weights(network: Transformer) -> tuple[Tensor, Tensor | None]:
    """(V, D) weight and (V,) bias of the output layer, which may be the embedding."""
    layer = network.output
    return (network.embedding.weight, None) if layer is None else (layer.weight, layer.bias)
