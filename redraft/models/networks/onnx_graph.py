"""A causal network as two ONNX graphs with 8-bit weights, for the executor `Onnx`: its layers, and its output layer.

A matrix is stored in blocks of 64 weights with one scale each. onnxruntime also rounds the input of a matrix to 8 bits,
block by block, and its integer products give a row the same bits whatever other rows it computes. Its attention does
not: a single query takes another path than several. So one more query, a copy of the last one, is always added and its
output dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.models.networks.layers import MLP, Block, Norm, _Attention
from redraft.models.networks.linear import LoraLinear
from redraft.models.networks.prepacked import output_weights
from redraft.models.networks.transformer import Transformer

GRAPH_VERSION = 1  # raised whenever the graphs change
LAYERS, OUTPUT = "layers.onnx", "output.onnx"
_BLOCK = 64  # weights that share a scale
_OPSETS = {"": 21, "com.microsoft": 1}


def require_exportable(network: Transformer) -> None:
    """Raise if the network is not a plain causal one."""
    if not network.config.pattern.causal or network.io.cross is not None or network.io.vectors:
        raise ValueError("weights=onnx is for causal models of text; use fp16, int8 or packed, or leave it out")
    if network.config.head_width % 16:
        raise ValueError(f"weights=onnx needs a head width of 16, 32, …; this network has {network.config.head_width}")


def write_graphs(network: Transformer, folder: Path) -> None:
    """Write `LAYERS` and `OUTPUT`, each with a file of weights, into a folder."""
    import onnx

    for name, graph in ((LAYERS, _layers(network)), (OUTPUT, _output(network))):
        onnx.save(graph.model(), str(folder / name), save_as_external_data=True, location=f"{Path(name).stem}.bin")


@torch.no_grad()
def _layers(network: Transformer) -> _Graph:
    """h, last, total, cos, sin, keys and values before → states before the last norm; keys and values after.

    last, total: the last position, and the number of keys, both with the added query.
    """
    c, graph = network.config, _Graph()
    h = graph.input("h", [1, "tokens", c.width])
    graph.input("last", [1], np.int32)
    graph.input("total", [], np.int32)
    for name in ("cos", "sin") if c.rotary is not None else ():
        graph.input(name, ["positions", c.head_width // 2])
    change = None
    for i, block in enumerate(cast("Iterable[Block]", network.blocks)):
        h, x = graph.added_and_normed(block.norm1, h, change)
        h, x = graph.added_and_normed(block.norm2, h, _attention(graph, block.attention, x, i))
        change = _mlp(graph, block.mlp, x)
    assert change is not None
    graph.output("states", graph.node("Add", h, change), [1, "tokens", c.width])
    return graph


@torch.no_grad()
def _output(network: Transformer) -> _Graph:
    """Normed states (rows, D) → logits (rows, V)."""
    graph, (weight, bias) = _Graph(), output_weights(network)
    logits = graph.linear(weight, bias, graph.input("states", ["rows", weight.shape[1]]))
    graph.output("logits", logits, ["rows", len(weight)])
    return graph


def _attention(graph: _Graph, attention: _Attention, x: str, layer: int) -> str:
    c, d = attention.config, attention.config.head_width
    qkv = graph.layer(attention.qkv, x)
    if attention.q_norm is not None and attention.k_norm is not None:
        qkv = _normed_heads(graph, attention, qkv)
    last = graph.node("Slice", qkv, graph.ints(-1), graph.ints(2**62), graph.ints(1))
    qkv = graph.node("Concat", qkv, last, axis=1)
    past = [graph.input(f"past_{name}_{layer}", [1, c.groups, "columns", d]) for name in ("keys", "values")]
    rotary = ["cos", "sin"] if c.rotary is not None else []
    settings = {"num_heads": c.heads, "kv_num_heads": c.groups, "do_rotary": len(rotary) // 2}
    mixed, *new = graph.nodes(
        "GroupQueryAttention", [qkv, "", "", *past, "last", "total", *rotary], 3, "com.microsoft", **settings
    )
    for name, value in zip(("keys", "values"), new, strict=True):
        graph.output(f"{name}_{layer}", value, [1, c.groups, "columns", d])
    return graph.layer(attention.out, graph.node("Slice", mixed, graph.ints(0), graph.ints(-1), graph.ints(1)))


def _normed_heads(graph: _Graph, attention: _Attention, qkv: str) -> str:
    """The same with norms on each head of queries and keys."""
    c, d = attention.config, attention.config.head_width
    sizes = graph.ints(c.heads * d, c.groups * d, c.groups * d)
    q, k, v = graph.nodes("Split", [qkv, sizes], 3, axis=-1)
    parts = []
    for norm, part in ((attention.q_norm, q), (attention.k_norm, k)):
        heads = graph.norm(cast(Norm, norm), graph.node("Reshape", part, graph.ints(0, 0, -1, d)))
        parts.append(graph.node("Reshape", heads, graph.ints(0, 0, -1)))
    return graph.node("Concat", *parts, v, axis=-1)


def _mlp(graph: _Graph, mlp: MLP, x: str) -> str:
    up = graph.layer(mlp.up, x)
    if not mlp.gated:
        return graph.layer(mlp.down, graph.node("Gelu", up, approximate="tanh"))
    gate, value = graph.nodes("Split", [up], 2, axis=-1, num_outputs=2)
    (silu,) = graph.nodes("QuickGelu", [gate], 1, "com.microsoft", alpha=1.0)
    return graph.layer(mlp.down, graph.node("Mul", silu, value))


@dataclass
class _Graph:
    """A graph under construction; values are names."""

    made: list[Any] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)

    def model(self) -> Any:
        from onnx import helper, numpy_helper

        tensors = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.made, "redraft", self.inputs, self.outputs, tensors)
        opsets = [helper.make_opsetid(domain, version) for domain, version in _OPSETS.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def input(self, name: str, shape: list[int | str], dtype: type = np.float32) -> str:
        self.inputs.append(_value(name, shape, dtype))
        return name

    def output(self, name: str, value: str, shape: list[int | str]) -> None:
        """Name a value, which no node reads, and make it an output."""
        node = next(node for node in reversed(self.made) if value in node.output)
        node.output[list(node.output).index(value)] = name
        self.outputs.append(_value(name, shape, np.float32))

    def nodes(self, kind: str, inputs: list[str], outputs: int, domain: str = "", **settings: Any) -> list[str]:
        names = [f"{kind}_{len(self.made)}_{i}" for i in range(outputs)]
        self.made.append(_node(kind, inputs, names, domain, **settings))
        return names

    def node(self, kind: str, *inputs: str, **settings: Any) -> str:
        return self.nodes(kind, list(inputs), 1, **settings)[0]

    def constant(self, value: Tensor) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = value.detach().contiguous().numpy()
        return name

    def ints(self, *values: int) -> str:
        return self.constant(torch.tensor(values))

    def norm(self, norm: Norm, x: str) -> str:
        kind = "LayerNormalization" if norm.center else "SimplifiedLayerNormalization"
        weights = [self.constant(part) for part in (norm.weight, norm.bias) if part is not None]
        return self.node(kind, x, *weights, axis=-1, epsilon=norm.eps)

    def added_and_normed(self, norm: Norm, h: str, change: str | None) -> tuple[str, str]:
        """h + change, and its norm; for RMSNorm from one kernel."""
        if change is None:
            return h, self.norm(norm, h)
        if norm.center or norm.bias is not None:
            h = self.node("Add", h, change)
            return h, self.norm(norm, h)
        kind, inputs = "SkipSimplifiedLayerNormalization", [h, change, self.constant(norm.weight)]
        normed, _, _, h = self.nodes(kind, inputs, 4, "com.microsoft", epsilon=norm.eps)
        return h, normed

    def layer(self, layer: nn.Linear, x: str) -> str:
        weight = layer.merged() if isinstance(layer, LoraLinear) and layer.on else layer.weight
        return self.linear(weight, layer.bias, x)

    def linear(self, weight: Tensor, bias: Tensor | None, x: str) -> str:
        outputs, inputs = weight.shape
        packed, scales = (self.constant(part) for part in _quantized(weight))
        sizes = {"K": inputs, "N": outputs, "bits": 8, "block_size": _BLOCK, "accuracy_level": 4}  # 4: 8-bit inputs
        (y,) = self.nodes("MatMulNBits", [x, packed, scales], 1, "com.microsoft", **sizes)
        return y if bias is None else self.node("Add", y, self.constant(bias.float()))


def _quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(N, K) weights → (N, blocks, 64) uint8, which stand for scale · (number − 128), and (N · blocks) scales."""
    blocks = F.pad(weight.detach().float(), (0, -weight.shape[1] % _BLOCK)).unflatten(1, (-1, _BLOCK))
    scale = (blocks.abs().amax(-1) / 127).clamp(min=1e-12)
    return (blocks / scale[..., None]).round().add(128).to(torch.uint8), scale.flatten()


def _value(name: str, shape: list[int | str], dtype: type) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def _node(kind: str, inputs: list[str], outputs: list[str], domain: str = "", **settings: Any) -> Any:
    from onnx import helper

    return helper.make_node(kind, inputs, outputs, domain=domain, **settings)
