"""Weight formats for faster inference on a CPU: int8, fp16, fp32 in oneDNN's layout, and 8 bits for onnxruntime."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Literal, TypeAlias, cast, get_args

import torch
from torch import nn

from redraft.core.hardware.forked import run_forked
from redraft.models.checkpoints import cache, serialization
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.networks import onnx_graph
from redraft.models.networks.executors.onnx import Onnx
from redraft.models.networks.int8 import Int8Linear, quantize_int8
from redraft.models.networks.prepacked import Fp16Linear, InvariantLinear, PrepackedLinear, prepack
from redraft.models.parts.base import Part

WeightFormat: TypeAlias = Literal["fp16", "int8", "onnx", "packed"]
_PACKED: dict[str, type[InvariantLinear]] = {kind.kind: kind for kind in (PrepackedLinear, Fp16Linear)}


def with_weight_format(model: DiffusionLM, weights: str) -> DiffusionLM:
    """Convert the large matrices of a model to "fp16", "int8" or "packed", in place; return the model.

    "onnx" leaves the matrices as they are, and returns the same model run by onnxruntime with 8-bit weights.
    """
    if weights not in get_args(WeightFormat):
        raise ValueError(f"weights={weights!r}; use fp16, int8, onnx, packed, or None for the weights as they are")
    if not model.network.embedding.weight.is_cpu or model.network.embedding.weight.dtype != torch.float32:
        raise ValueError(f"weights={weights} is for fp32 models on a CPU; load the model without dtype and device")
    if weights == "onnx":
        return _on_onnx(model)
    if weights == "int8":
        return _to_int8(model)
    _pack_parts(model, _PACKED[weights])
    prepack(model.network, _PACKED[weights])
    return model


def weight_format(model: DiffusionLM) -> WeightFormat | None:
    """The format of a model's large matrices; None if they have not been converted."""
    if isinstance(model.network.executor, Onnx):
        return "onnx"
    kinds = {type(module) for module in model.network.modules()}
    if Int8Linear in kinds:
        return "int8"
    return "fp16" if Fp16Linear in kinds else "packed" if PrepackedLinear in kinds else None


def _to_int8(model: DiffusionLM) -> DiffusionLM:
    """Convert to int8, after a trial in a child process that shows whether this CPU supports int8 products."""
    trial = run_forked(_int8_product)
    if trial.trouble and trial.tried:
        raise ValueError(f"weights=int8: a product with bf16 {trial.trouble} on this CPU; leave it out")
    _pack_parts(model, Int8Linear)
    quantize_int8(model.network)
    return model


def _on_onnx(model: DiffusionLM) -> DiffusionLM:
    """Bind the model to `Onnx`; its graphs are written into the cache once."""
    network = model.network
    onnx_graph.require_exportable(network)
    if missing := [name for name in ("onnx", "onnxruntime") if find_spec(name) is None]:
        raise ValueError(f"weights=onnx needs more packages ({missing[0]}): pip install 'redraft[fast]'")
    sums = hashlib.sha256()
    for name, weight in sorted(network.state_dict().items()):
        sums.update(name.encode())
        sums.update(weight.contiguous().view(torch.uint8).numpy().data)
    key: serialization.JSON = {
        "version": onnx_graph.GRAPH_VERSION,
        "network": serialization.to_json(network.config),
        "weights": sums.hexdigest(),
    }
    folder = cache.cached_folder("onnx", key, lambda draft: onnx_graph.write_graphs(network, draft))
    return model.on(Onnx.open(folder / onnx_graph.LAYERS, folder / onnx_graph.OUTPUT, network))


def _pack_parts(model: DiffusionLM, kind: type[nn.Module]) -> None:
    for part in cast("Iterable[Part]", model.parts.values()):
        part.pack(model.network, kind)


def _int8_product() -> float:
    return float(Int8Linear(torch.ones(64, 64))(torch.ones(1, 64)).sum())
