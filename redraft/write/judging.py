"""Holes of an adapted model: its adapter proposes from both sides, the causal model without it judges."""

from __future__ import annotations

import torch
from torch import Tensor

from redraft.heads import Shift
from redraft.model import DiffusionLM
from redraft.networks import adapter_off, lora_layers
from redraft.objectives import causal_nats
from redraft.samplers import ProposeAndJudge
from redraft.types import Batch
from redraft.write.models import Opened
from redraft.write.settings import Infilling

_OWN = ("sampler", "steps", "threshold", "top_k", "top_p", "min_p", "repetition_penalty", "decode_block", "cache")


def by_both_models(it: Opened, asked: Infilling) -> ProposeAndJudge | None:
    """Fills holes with both models of an adapted one; None: the model is none, or another way is asked for."""
    model, plain = it.model, Infilling()
    both = isinstance(model.config.head, Shift) and model.block is None and bool(lora_layers(model))
    if not both or asked.ruled or asked.alternatives or any(getattr(asked, n) != getattr(plain, n) for n in _OWN):
        return None
    return ProposeAndJudge(CausalJudge(model), temperature=0.0 if asked.temperature is None else asked.temperature)


class CausalJudge:
    """log p of whole rows by the causal model that an adapter was trained on."""

    def __init__(self, model: DiffusionLM) -> None:
        self.model = model

    def __call__(self, z: Tensor, pad: Tensor | None) -> Tensor:
        """(B, L) → (B,)"""
        with torch.no_grad(), adapter_off(self.model):
            nats = causal_nats(self.model, Batch.of(z, pad))
        return -(nats if pad is None else nats.masked_fill(pad, 0.0)).double().sum(-1)
