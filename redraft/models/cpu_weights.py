"""Forms of a model's weights that are faster on a CPU: int8, and fp32 as oneDNN lays it out."""

from __future__ import annotations

from typing import Literal

import torch

from redraft.core.hardware.forked import run_forked
from redraft.models.auxiliary.drafter import SideDrafterNetwork
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.networks.int8 import Int8Linear, quantize_int8
from redraft.models.networks.prepacked import PrepackedLinear, prepack


def with_weight_format(model: DiffusionLM, weights: str) -> DiffusionLM:
    """The model with its large matrices in another form, int8 or packed, changed in place."""
    if weights not in ("int8", "packed"):
        raise ValueError(f"weights={weights!r}; there is int8, packed, or None for the weights as they are")
    if not model.network.embedding.weight.is_cpu or model.network.embedding.weight.dtype != torch.float32:
        raise ValueError(f"{weights} weights are for CPUs and models of fp32; load the model without dtype and device")
    if weights == "int8":
        return to_int8(model)
    if isinstance(model.drafter, SideDrafterNetwork):
        model.drafter.pack(model.network, PrepackedLinear)
    prepack(model.network)
    return model


def weight_format(model: DiffusionLM) -> Literal["int8", "packed"] | None:
    """In which form its large matrices are; None: as they were trained."""
    kinds = {type(module) for module in model.network.modules()}
    return "int8" if Int8Linear in kinds else "packed" if PrepackedLinear in kinds else None


def to_int8(model: DiffusionLM) -> DiffusionLM:
    """The model with its large matrices in int8, changed in place; a trial in a child shows whether this CPU can."""
    tried = run_forked(_int8_product)
    if tried.trouble and tried.tried:
        raise ValueError(f"int8 weights: a product with bf16 {tried.trouble} on this CPU; leave out weights=int8")
    if isinstance(model.drafter, SideDrafterNetwork):
        model.drafter.pack(model.network, Int8Linear)
    quantize_int8(model.network)
    return model


def _int8_product() -> float:
    return float(Int8Linear(torch.ones(64, 64))(torch.ones(1, 64)).sum())
