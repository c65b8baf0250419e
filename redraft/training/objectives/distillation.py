"""The objective for drafters: predict a block of a causal model's next tokens, distilled from its own distributions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core.batch import Batch, Loss
from redraft.core.canvas import Context
from redraft.core.randomness import Rng
from redraft.core.vocab import ABOVE_ZERO, FINITE, require_range
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.parts.drafter import DraftNetwork, predictor_states


@dataclass(frozen=True)
class DrafterObjective:
    """Trains only the drafter of a causal model: Σ_k e^{−k/decay}·KL(p(· | x_<i) ‖ q_k), over blocks after anchors.

    p is the model's own distribution of token i, from the pass whose states the drafter reads anyway. Anchors are
    `stride` tokens apart and shift by one position per step. Later tokens of a block weigh less, since they are
    accepted only if all tokens before them are (DFlash).
    """

    decay: float = 4.0  # tokens over which the weight falls by a factor e
    temperature: float = 1.0  # temperature of p, as in decoding; low for greedy decoding, where only the argmax counts
    stride: int | None = None  # tokens between anchors; None for adjacent blocks

    def __post_init__(self) -> None:
        require_range(self, ABOVE_ZERO, FINITE, "decay", "temperature")
        require_range(self, 1, 2**20, "stride")

    def trained_parameters(self, model: DiffusionLM) -> list[nn.Parameter]:
        """The parameters to train: the drafter's, plus the adapter for a `SelfDrafter`."""
        return model.part(DraftNetwork).trained_parameters(model)

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        drafter, network, tokens = model.part(DraftNetwork), model.network.eval(), batch.tokens
        read = network.absorb(tokens, Context(pad=batch.pad))
        anchors = self._anchors(drafter, batch, read.start_columns)
        positions = anchors[:, None] + 1 + drafter.target_tokens + torch.arange(drafter.block, device=tokens.device)
        inside = (positions < tokens.shape[1]).flatten()
        at = positions.flatten()[inside]
        states = drafter.block_states(network, read, tokens, anchors).flatten(1, 2)[:, inside]
        with torch.no_grad():
            logits = drafter.logits(network, predictor_states(read, tokens.shape[1])[:, at]).float()
            log_p = (logits / self.temperature).log_softmax(-1)
        log_q = _draft_log_probs(drafter, model, states, tokens[:, at - 1])
        kl = (log_p.exp() * (log_p - log_q)).sum(-1)
        index = torch.arange(drafter.block, device=tokens.device).repeat(len(anchors))[inside]
        nats = torch.where(batch.learn[:, at], kl * torch.exp(-index / self.decay), 0.0).sum(-1)
        return Loss.of(batch.learn.sum(-1), total, draft=nats)

    def _anchors(self, drafter: DraftNetwork, batch: Batch, before: int) -> Tensor:
        """(A,) positions of the last known token before each block"""
        stride, first = self.stride or drafter.block, 1 - before
        last = batch.tokens.shape[1] - 1 - drafter.target_tokens
        if last <= first:
            raise ValueError(f"rows of {batch.tokens.shape[1]} tokens leave nothing to draft; use longer rows")
        offset = batch.origin.step % min(stride, last - first)
        anchors = torch.arange(first + offset, last, stride, device=batch.tokens.device)
        learned = F.pad(batch.learn.any(0), (0, drafter.block)).unfold(0, drafter.block, 1).any(-1)
        useful = anchors[learned[anchors + 1 + drafter.target_tokens]]  # a block inside a prompt has no loss
        return useful if len(useful) else anchors[:1]


def _draft_log_probs(drafter: DraftNetwork, model: DiffusionLM, states: Tensor, previous: Tensor) -> Tensor:
    """(B, N, words) log-probabilities of the drafter, given the preceding tokens `previous` (B, N)"""
    raw, bigram = drafter.logits(model.network, states).float(), drafter.bigram_logits(previous)
    return (raw if bigram is None else raw + bigram.float()).log_softmax(-1)
