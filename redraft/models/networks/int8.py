"""int8 weights: a pass over a few tokens is limited by reading the weights, and these take a quarter of the memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from redraft.models.networks.prepacked import _prepack_output, replace_linears
from redraft.models.networks.transformer import Transformer


class Int8Linear(nn.Module):
    """y = W·h + b, where row i of W is scale_i · (integers from −127 to 127); h is rounded to bf16."""

    weight: Tensor  # (outputs, inputs) int8 matrix, W divided by the scale of its rows
    scale: Tensor  # (outputs,) bf16 scale of each row
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        scale = (weight.detach().float().abs().amax(1) / 127).clamp(min=1e-12).bfloat16()
        rounded = (weight.detach().float() / scale.float()[:, None]).round().clamp(-127, 127)
        self.register_buffer("weight", rounded.to(torch.int8))
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    def forward(self, h: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs) fp32"""
        flat = h.reshape(-1, h.shape[-1]).bfloat16()
        out = torch._weight_int8pack_mm(flat, self.weight, self.scale).float().view(*h.shape[:-1], -1)
        return out if self.bias is None else out + self.bias


def quantize_int8(network: Transformer) -> Transformer:
    """Quantize the matrices of the network's blocks to int8, in place; return the network.

    The embedding stays fp32 and the output layer is prepacked fp32, because int8 products come out in bf16, in which
    many logits would be equal. A row of such a product does not depend on the others, so the bits of a token do not
    depend on the batch.
    """
    replace_linears(network.blocks, Int8Linear)
    return _prepack_output(network)
