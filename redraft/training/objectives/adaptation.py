"""Adaptation: a causal model becomes one that fills masks (Gong et al. 2024, "DiffuGPT and DiffuLLaMA")."""

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
from redraft.models.networks.attention import AnnealedCausal, AttentionPattern, Causal
from redraft.models.networks.linear import lora_disabled, lora_parameters
from redraft.models.networks.transformer import record_layer_states
from redraft.training.objectives.losses import Bound, LossTerm
from redraft.training.objectives.objective import sum_rows
from redraft.training.objectives.time_samplers import StratifiedTimes, TimeSampler


@dataclass(frozen=True)
class AdaptationObjective:
    """The bound of mask noise, Σ (1/t)·CE over masked tokens, while attention opens from causal to full.

    In step k of the first `anneal` ones a token sees each later token with probability k/anneal, drawn once for the
    batch; then all. `ar` times the causal model's own loss on the clean row keeps it a causal model, too. `align`
    times 1 − cos of its states and those of the causal model on the clean row, in all layers, at the positions that
    predict masked tokens (REPR-ALIGN), helps where there is little text; it needs an adapter, without which the model
    is its own teacher.
    """

    anneal: int = 0  # steps; 0: full attention from the beginning
    ar: float = 0.0
    align: float = 0.0
    loss: LossTerm = Bound()
    times: TimeSampler = StratifiedTimes()

    def __post_init__(self) -> None:
        require_range(self, 0, 10**9, "anneal")
        require_range(self, 0, FINITE, "ar", "align")

    def learns(self, model: DiffusionLM) -> list[nn.Parameter]:
        """The adapters, if there are some, else all weights."""
        if self.anneal and model.block is not None:
            raise ValueError(
                f"anneal={self.anneal} opens attention to the whole row; blocks have their own: leave it out"
            )
        adapters = lora_parameters(model)
        if self.align and not adapters:
            raise ValueError("align needs an adapter: without one the model is its own teacher; give --lora RANK too")
        return adapters or list(model.parameters())

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        early, late = rng.split(2)
        first = torch.zeros(batch.tokens.shape[1], dtype=torch.bool, device=batch.tokens.device)
        first[0] = True  # nothing predicts the first token of a row
        batch = replace(batch, learn=batch.learn & ~first)
        given = ~batch.learn if batch.pad is None else ~batch.learn & ~batch.pad
        times = self.loss.grid(self.times(batch, rng=early))
        times = times._replace(t=torch.where(given, 0.0, times.t))
        noised = model.process.noise(batch.tokens, times.t, pad=batch.pad, rng=late)
        context = replace(model.context(batch), pattern=self.pattern(batch))
        with record_layer_states(model.network) as seen:
            nats = self.loss(model.process, model(noised.z, noised.t, context), noised, times)
        parts = {"diffusion": sum_rows(nats, batch.learn)}
        if self.ar:
            parts["ar"] = self.ar * sum_rows(causal_nats(model, batch), batch.learn)
        if self.align:
            parts["align"] = self.align * sum_rows(_apart(model, batch, noised.z, seen), batch.learn)
        return Loss.of(batch.learn.sum(-1), total, **parts)

    def pattern(self, batch: Batch) -> AttentionPattern | None:
        """Whom tokens see in this step; None: as the network has it."""
        if batch.step >= self.anneal:
            return None
        length = batch.tokens.shape[1]
        one = Rng(torch.full_like(batch.tokens[:1, 0], batch.step)).fold(length)  # the same for all rows and workers
        return AnnealedCausal(one.uniform(length, length)[0] < (batch.step + 1) / self.anneal)


def causal_nats(model: DiffusionLM, batch: Batch) -> Tensor:
    """(B, L) −log p of each token given those before it, under causal attention; 0 for the first."""
    states = model.network(batch.tokens, None, Context(pad=batch.pad, pattern=Causal()))
    logits = model.network.logits(states[:, :-1]).flatten(0, 1)
    loss = ops.nll(ops.exclude(logits, model.config.vocab.masked), batch.tokens[:, 1:].flatten()).view(len(states), -1)
    return F.pad(loss, (1, 0))


def _apart(model: DiffusionLM, batch: Batch, z: Tensor, seen: list[Tensor]) -> Tensor:
    """(B, L) 1 − cos of the states that predict masked tokens and those of the causal model, the mean over all layers.

    seen: the states of all layers of the pass over the rows of z that have masks; its last layer had only the states
    that were asked for. The causal model reads the clean rows.
    """
    hidden = z == model.config.vocab.masked
    if not bool(hidden.any()):
        return torch.zeros_like(z, dtype=torch.float32)
    rows = ops.flat_positions(hidden.any(-1))
    pad = None if batch.pad is None else batch.pad[rows]
    with torch.no_grad(), lora_disabled(model), record_layer_states(model.network) as taught:
        model.network(batch.tokens[rows], None, Context(pad=pad, pattern=Causal()))
    at = ops.flat_positions(hidden[rows]) - 1  # the state of the token before predicts a token
    apart = torch.zeros(len(at), device=z.device)
    ours_at = at if model.block is None else model.network.stream_places(at, z.shape[1], model.block)
    for ours, theirs in zip(seen, taught, strict=True):
        ours = ours if ours.dim() == 2 else ours.flatten(0, 1)[ours_at]
        apart = apart + 1 - F.cosine_similarity(ours.float(), theirs.flatten(0, 1)[at].float(), dim=-1)
    found = apart.new_zeros(z.numel()).index_copy(0, ops.flat_positions(hidden), apart / len(taught))
    return found.view(z.shape)
