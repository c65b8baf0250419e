"""The causal model inside one that was adapted to fill holes: the same weights without the adapter."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import cast
from weakref import WeakKeyDictionary

import torch
from torch import nn

from redraft.models.cpu_weights import weight_format, with_weight_format
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.networks.layers import Block
from redraft.models.networks.linear import _LoraWrapper, lora_layers
from redraft.models.networks.patterns import Causal

_BASES: WeakKeyDictionary[DiffusionLM, dict[bool, DiffusionLM]] = WeakKeyDictionary()


def is_adapted(model: DiffusionLM) -> bool:
    """Whether it is a causal model with an adapter that sees both sides; with the adapter off it is causal again."""
    return model.config.head.shifts and model.block is None and bool(lora_layers(model))


def causal_base(model: DiffusionLM, fp16: bool = False) -> DiffusionLM:
    """The causal model that an adapter was trained on, made once. It shares its weights with the adapted model.

    fp16: copy its matrices to fp16 if this CPU has fast products of them; making the copy costs as much as 80 tokens
    """
    bases = _BASES.setdefault(model, {})
    if fp16 not in bases:
        bases[fp16] = _build_base(model, fp16)
    return bases[fp16]


def _build_base(model: DiffusionLM, fp16: bool) -> DiffusionLM:
    weight = model.network.embedding.weight
    if fp16 and weight_format(model) is None and weight.is_cpu and weight.dtype == torch.float32:
        with suppress(ValueError):  # this CPU has no such products
            return with_weight_format(_with_shared_weights(model), "fp16")
    return _with_shared_weights(model)


@torch.no_grad()
def _with_shared_weights(model: DiffusionLM) -> DiffusionLM:
    """The causal model on the weights of the adapted one; tables lose their last row, that of the mask."""
    config = replace(model.config, network=replace(model.config.network, pattern=Causal(), lora=None), parts=())
    with torch.device("meta"):
        base = DiffusionLM(config, model.tokenizer)
    blocks = zip(*(cast("Iterable[Block]", network.blocks) for network in (base.network, model.network)), strict=True)
    for own, adapted in blocks:
        for name in ("attention.qkv", "attention.out", "mlp.up", "mlp.down"):
            if isinstance(layer := adapted.get_submodule(name), _LoraWrapper):
                own.set_submodule(name, layer.inner)
    if weight_format(model) is not None:
        base.network.replace_output(cast(nn.Module, model.network.output))
    weights = dict(model.named_parameters())
    shared = {name: weights[name][: len(p)] for name, p in base.named_parameters()}
    base.load_state_dict(shared, strict=False, assign=True)
    return base.on(model.network.executor).eval()
