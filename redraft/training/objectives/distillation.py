"""The objective of drafters: what a causal model will say, a block of tokens ahead, from its own soft targets."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core.batch import Batch, Loss
from redraft.core.canvas import Context
from redraft.core.randomness import Rng
from redraft.core.vocab import ABOVE_ZERO, FINITE, require_range
from redraft.models.auxiliary.drafter import DraftNetwork, SelfDrafterNetwork, predictor_states
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.networks.linear import lora_parameters


@dataclass(frozen=True)
class DrafterObjective:
    """Trains the drafter of a causal model alone: Σ_k e^{−k/decay}·KL(p(· | x_<i) ‖ q_k), at blocks behind anchors.

    p is what the model itself says of token i, from the pass that its drafter reads anyway. Anchors stand `stride`
    tokens apart, beginning one place later in each step. Later tokens of a block count less: they are accepted only
    behind those before them (DFlash).
    """

    decay: float = 4.0
    temperature: float = 1.0  # of p: that of the texts to be written; low for greedy ones, where only the argmax counts
    stride: int | None = None  # tokens from anchor to anchor; None: the blocks of a row touch each other

    def __post_init__(self) -> None:
        require_range(self, ABOVE_ZERO, FINITE, "decay", "temperature")
        require_range(self, 1, 2**20, "stride")

    def learns(self, model: DiffusionLM) -> list[nn.Parameter]:
        """The parameters to train: the drafter's, and the adapter where the model drafts for itself."""
        drafter = _drafter(model)
        return [*drafter.parameters(), *(lora_parameters(model) if isinstance(drafter, SelfDrafterNetwork) else [])]

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        drafter, network, tokens = _drafter(model), model.network.eval(), batch.tokens
        read = network.absorb(tokens, Context(pad=batch.pad))
        anchors = self._anchors(drafter, batch, read.before)
        place = anchors[:, None] + 1 + drafter.ahead + torch.arange(drafter.block, device=tokens.device)
        inside = (place < tokens.shape[1]).flatten()
        at = place.flatten()[inside]
        states = drafter.block_states(network, read, tokens, anchors).flatten(1, 2)[:, inside]
        with torch.no_grad():
            said = drafter.logits(network, predictor_states(read, tokens.shape[1])[:, at]).float()
            log_p = (said / self.temperature).log_softmax(-1)
        log_q = _said(drafter, model, states, tokens[:, at - 1])
        apart = (log_p.exp() * (log_p - log_q)).sum(-1)
        number = torch.arange(drafter.block, device=tokens.device).repeat(len(anchors))[inside]
        nats = torch.where(batch.learn[:, at], apart * torch.exp(-number / self.decay), 0.0).sum(-1)
        return Loss.of(batch.learn.sum(-1), total, draft=nats)

    def _anchors(self, drafter: DraftNetwork, batch: Batch, before: int) -> Tensor:
        """(A,) the places of the last known tokens."""
        stride, first = self.stride or drafter.block, 1 - before
        last = batch.tokens.shape[1] - 1 - drafter.ahead
        if last <= first:
            raise ValueError(f"rows of {batch.tokens.shape[1]} tokens leave nothing to draft; use longer ones")
        found = torch.arange(first + batch.step % min(stride, last - first), last, stride, device=batch.tokens.device)
        learnt = F.pad(batch.learn.any(0), (0, drafter.block)).unfold(0, drafter.block, 1).any(-1)
        taught = found[learnt[found + 1 + drafter.ahead]]  # a prompt teaches nothing
        return taught if len(taught) else found[:1]


def _drafter(model: DiffusionLM) -> DraftNetwork:
    if model.drafter is None:
        raise ValueError("this model has no drafter to train; give its config drafter=Beside() or Itself()")
    return model.drafter


def _said(drafter: DraftNetwork, model: DiffusionLM, states: Tensor, previous: Tensor) -> Tensor:
    """(B, N, words) log-probabilities of the drafter, given the tokens right before"""
    raw, follows = drafter.logits(model.network, states).float(), drafter.follows(previous)
    return (raw if follows is None else raw + follows.float()).log_softmax(-1)
