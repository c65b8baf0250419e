"""Adaptation of a causal model to masked diffusion (Gong et al. 2024, "DiffuGPT and DiffuLLaMA")."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core import ops
from redraft.core.batch import Batch, Loss
from redraft.core.canvas import Context
from redraft.core.randomness import Rng
from redraft.core.vocab import FINITE, require_range
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.networks.inspection import record_layer_states
from redraft.models.networks.linear import lora_disabled, lora_parameters
from redraft.models.networks.patterns import AnnealedCausal, AttentionPattern, Causal
from redraft.training.objectives.losses import Bound, LossTerm
from redraft.training.objectives.objective import _sum_rows
from redraft.training.objectives.time_samplers import StratifiedTimes, TimeSampler


@dataclass(frozen=True)
class AdaptationObjective:
    """The bound for mask noise, Σ (1/t)·CE over masked tokens, while attention opens from causal to full.

    In step k of the first `anneal` steps, a token sees each later token with probability k/anneal, drawn once for the
    batch; after that it sees all of them. `ar` adds the causal loss on the clean row, so that the model stays causal
    too. `align` adds 1 − cos between its states and those of the causal model on the clean row, in all layers, at the
    positions that predict masked tokens (REPR-ALIGN). It helps if there is little text, and needs an adapter: without
    one, the model would be its own teacher.
    """

    anneal: int = 0  # steps of annealing; 0 for full attention from the start
    ar: float = 0.0  # weight of the causal loss
    align: float = 0.0  # weight of the alignment loss
    loss: LossTerm = Bound()
    times: TimeSampler = StratifiedTimes()

    def __post_init__(self) -> None:
        require_range(self, 0, 10**9, "anneal")
        require_range(self, 0, FINITE, "ar", "align")

    def trained_parameters(self, model: DiffusionLM) -> list[nn.Parameter]:
        """The parameters to train: the adapters if there are any, otherwise all weights."""
        if self.anneal and model.block is not None:
            raise ValueError(
                f"anneal={self.anneal} opens attention to the whole row; a block-causal model keeps its own attention "
                "pattern: leave anneal out"
            )
        adapters = lora_parameters(model)
        if self.align and model.config.network.pattern.columns_before:
            raise ValueError(f"align={self.align} does not support models with a start token; leave it out")
        if self.align and not adapters:
            raise ValueError(
                "align needs an adapter: without one the model would be its own teacher; also give --lora RANK"
            )
        return adapters or list(model.parameters())

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        for_time, for_noise = rng.split(2)
        before = model.config.network.pattern.columns_before
        first = torch.zeros(batch.tokens.shape[1], dtype=torch.bool, device=batch.tokens.device)
        first[0] = before == 0  # without a start token, nothing predicts the first token of a row
        batch = replace(batch, learn=batch.learn & ~first)
        given = ~batch.learn if batch.pad is None else ~batch.learn & ~batch.pad
        times = self.loss.grid(self.times(batch, rng=for_time))
        times = times._replace(t=torch.where(given, 0.0, times.t))
        noised = model.process.noise(batch.tokens, times.t, pad=batch.pad, rng=for_noise)
        context = replace(model.read(batch).context, pattern=self.pattern(batch, before))
        with record_layer_states(model.network) as states:
            nats = self.loss(model.process, model.predict(noised.z, noised.t, context), noised, times)
        parts = {"diffusion": _sum_rows(nats, batch.learn)}
        if self.ar:
            parts["ar"] = self.ar * _sum_rows(_causal_nats(model, batch), batch.learn)
        if self.align:
            parts["align"] = self.align * _sum_rows(_alignment_loss(model, batch, noised.z, states), batch.learn)
        return Loss.of(batch.learn.sum(-1), total, **parts)

    def pattern(self, batch: Batch, before: int = 0) -> AttentionPattern | None:
        """The attention pattern of this step; None for the network's own. before: 1 if a start token is read too."""
        if batch.origin.step >= self.anneal:
            return None
        length, step = batch.tokens.shape[1] + before, batch.origin.step
        shared = Rng(torch.full_like(batch.tokens[:1, 0], step)).fold(length)  # the same for all rows and workers
        return AnnealedCausal(shared.uniform(length, length)[0] < (step + 1) / self.anneal)


def _causal_nats(model: DiffusionLM, batch: Batch) -> Tensor:
    """(B, L) −log p of each token given those before it, under causal attention; 0 if nothing predicts it"""
    states = model.network(batch.tokens, None, Context(pad=batch.pad, pattern=Causal()))
    first = 1 - model.config.network.pattern.columns_before  # the first token that a state predicts
    logits = model.network.logits(states[:, : states.shape[1] - first]).flatten(0, 1)
    loss = ops.nll(ops.exclude(logits, model.config.vocab.masked), batch.tokens[:, first:].flatten())
    return F.pad(loss.view(len(states), -1), (first, 0))


def _alignment_loss(model: DiffusionLM, batch: Batch, z: Tensor, states: list[Tensor]) -> Tensor:
    """(B, L) 1 − cos between the states that predict masked tokens and the causal model's states, averaged over layers.

    states: one tensor per layer, from the pass over those rows of z that have masks; the last layer has only the
    queried positions. The causal model reads the clean rows.
    """
    hidden = z == model.config.vocab.masked
    if not bool(hidden.any()):
        return torch.zeros_like(z, dtype=torch.float32)
    rows = ops.flat_positions(hidden.any(-1))
    pad = None if batch.pad is None else batch.pad[rows]
    with torch.no_grad(), lora_disabled(model), record_layer_states(model.network) as teacher_states:
        model.network(batch.tokens[rows], None, Context(pad=pad, pattern=Causal()))
    at = ops.flat_positions(hidden[rows]) - 1  # a token is predicted by the state of the token before it
    distance = torch.zeros(len(at), device=z.device)
    student_at = model.config.network.pattern.state_index(at, z.shape[1], model.network.io.finished)
    for student, teacher in zip(states, teacher_states, strict=True):
        student = student if student.dim() == 2 else student.flatten(0, 1)[student_at]
        distance = distance + 1 - F.cosine_similarity(student.float(), teacher.flatten(0, 1)[at].float(), dim=-1)
    mean = distance / len(teacher_states)
    return distance.new_zeros(z.numel()).index_copy(0, ops.flat_positions(hidden), mean).view(z.shape)
