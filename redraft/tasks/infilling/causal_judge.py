"""Holes of an adapted model: its adapter proposes from both sides, the causal model without it judges."""

from __future__ import annotations

import torch
from torch import Tensor

from redraft.core import ops
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.heads import Shift
from redraft.models.networks.kv_cache import KeyValueCache
from redraft.models.networks.linear import lora_disabled, lora_layers
from redraft.tasks.arguments.settings import InfillSettings
from redraft.tasks.engine.model import TextModel
from redraft.tasks.infilling.propose_and_judge import ProposeAndJudge

_FIRST = "nothing predicts the first token of a text; put a word before the first hole"
_AFTER = 64  # tokens behind the last hole that are judged: what stands further away says next to nothing about a hole
_OWN = ("sampler", "steps", "threshold", "top_k", "top_p", "min_p", "repetition_penalty", "decode_block", "cache")


def _judged_sampler(it: TextModel, asked: InfillSettings) -> ProposeAndJudge | None:
    """Fills holes with both models of an adapted one; None: the model is none, or another way is asked for."""
    model, plain = it.lm, InfillSettings()
    both = isinstance(model.config.head, Shift) and model.block is None and bool(lora_layers(model))
    if not both or asked.ruled or asked.alternatives or any(getattr(asked, n) != getattr(plain, n) for n in _OWN):
        return None
    judge = CausalJudge(model)
    return ProposeAndJudge(
        judge,
        temperature=0.0 if asked.temperature is None else asked.temperature,
        next_token=judge.next_token_log_probs,
    )


class CausalJudge:
    """log p of candidates for the holes of one row, by the causal model that an adapter was trained on.

    What all of them begin with is read once, by its keys and values, and is no part of the score: it is the same for
    all. Behind the last token in which they differ at most `after` tokens are judged; None: all of them.
    """

    def __init__(self, model: DiffusionLM, after: int | None = _AFTER) -> None:
        self.lm, self.after = model, after

    def __call__(self, z: Tensor, pad: Tensor | None) -> Tensor:
        """(K, L) → (K,)"""
        columns = ops.flat_positions((z != z[:1]).any(0)).tolist()
        if not columns:
            return torch.zeros(len(z), dtype=torch.float64, device=z.device)
        first, end = columns[0], z.shape[1] if pad is None else int((~pad[0]).sum())  # rows are padded at their end
        if first == 0:
            raise ValueError(_FIRST)
        end = end if self.after is None else min(end, columns[-1] + 1 + self.after)
        with torch.no_grad(), lora_disabled(self.lm):
            return self.continuation_log_probs(*self.lm.network.read_on(z[:1, :first]), z[:, first:end])

    def next_token_log_probs(self, z: Tensor, column: int) -> Tensor:
        """(K, L) → (K, V) log p of the token in a column, given those before it; the mask is none."""
        if column == 0:
            raise ValueError(_FIRST)
        network, differ = self.lm.network, ops.flat_positions((z[:, :column] != z[:1, :column]).any(0)).tolist()
        first = differ[0] if differ else column
        with torch.no_grad(), lora_disabled(self.lm):
            states, cache = network.read_on(z[:1, :first])
            if differ:
                rows = torch.zeros(len(z), dtype=torch.int64, device=z.device)
                states, _ = network.read_on(z[:, first:column], cache.rows(rows))
            logits = network.logits(states[:, -1]).double()
        return ops.exclude(logits, self.lm.config.vocab.masked).log_softmax(-1).expand(len(z), -1)

    def continuation_log_probs(self, given: Tensor, cache: KeyValueCache, z: Tensor) -> Tensor:
        """(1, M, D) states and cache of the text before, (K, N) what may follow → (K,) log p of each; adapter off."""
        network = self.lm.network
        states, _ = network.read_on(z[:, :-1], cache.rows(torch.zeros(len(z), dtype=torch.int64, device=z.device)))
        states = torch.cat([given[:, -1:].expand(len(z), -1, -1), states], 1)
        logits = ops.exclude(network.logits(states.flatten(0, 1)), self.lm.config.vocab.masked)
        return -ops.nll(logits, z.flatten()).view(z.shape).double().sum(-1)
