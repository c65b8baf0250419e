"""Infilling with an adapted model: with its adapter it proposes fillings, without it the causal model judges them."""

from __future__ import annotations

import torch
from torch import Tensor

from redraft.core import ops
from redraft.models.causal_base import is_adapted
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.networks.kv_cache import KeyValueCache
from redraft.models.networks.linear import lora_disabled
from redraft.tasks.arguments.settings import InfillSettings
from redraft.tasks.engine.model import TextModel
from redraft.tasks.infilling.propose_and_judge import ProposeAndJudge

_FIRST = "a causal model cannot predict the first token of a text; put a word before the first hole"
_AFTER = 64  # judged tokens after the last hole; those further away say almost nothing about a hole
_REPLACED = (
    *("sampler", "steps", "threshold", "top_k", "top_p", "min_p", "decode_block", "cache"),
    *("repetition_penalty", "frequency_penalty", "presence_penalty", "logit_bias"),
)


def _judged_sampler(model: TextModel, settings: InfillSettings) -> ProposeAndJudge | None:
    """The sampler that fills holes with both models; None for other models, or if settings choose another sampler."""
    lm, defaults = model.lm, InfillSettings()
    chosen = any(getattr(settings, name) != getattr(defaults, name) for name in _REPLACED)
    if not is_adapted(lm) or chosen or settings.alternatives:
        return None
    judge = _CausalJudge(lm)
    return ProposeAndJudge(
        judge,
        temperature=0.0 if settings.temperature is None else settings.temperature,
        next_token=judge.next_token_log_probs,
    )


class _CausalJudge:
    """Scores candidates for the holes of one row by log p under the causal model that the adapter was trained on.

    Their common prefix is read once into a key–value cache and left out of the score. After the last token in which
    candidates differ, at most `after` tokens are scored; all of them if `after` is None.
    """

    def __init__(self, model: DiffusionLM, after: int | None = _AFTER) -> None:
        self.lm, self.after = model, after

    def __call__(self, z: Tensor, pad: Tensor | None) -> Tensor:
        """(K, L) candidates → (K,) log p, up to a constant."""
        columns = ops.flat_positions((z != z[:1]).any(0)).tolist()
        if not columns:
            return torch.zeros(len(z), dtype=torch.float64, device=z.device)
        first, end = columns[0], z.shape[1] if pad is None else int((~pad[0]).sum())  # rows are padded at their end
        if first == 0:
            raise ValueError(_FIRST)
        end = end if self.after is None else min(end, columns[-1] + 1 + self.after)
        with torch.no_grad(), lora_disabled(self.lm):
            return self.continuation_log_probs(*self.lm.network.extend(z[:1, :first]), z[:, first:end])

    def next_token_log_probs(self, z: Tensor, column: int) -> Tensor:
        """(K, L) → (K, V) log p of the token in a column, given those before it; the mask token is excluded."""
        if column == 0:
            raise ValueError(_FIRST)
        network, differ = self.lm.network, ops.flat_positions((z[:, :column] != z[:1, :column]).any(0)).tolist()
        first = differ[0] if differ else column
        with torch.no_grad(), lora_disabled(self.lm):
            states, cache = network.extend(z[:1, :first])
            if differ:
                rows = torch.zeros(len(z), dtype=torch.int64, device=z.device)
                states, _ = network.extend(z[:, first:column], cache.rows(rows))
            logits = network.logits(states[:, -1]).double()
        return ops.exclude(logits, self.lm.config.vocab.masked).log_softmax(-1).expand(len(z), -1)

    def continuation_log_probs(self, given: Tensor, cache: KeyValueCache, z: Tensor) -> Tensor:
        """(1, M, D) states and cache of a prefix, (K, N) continuations → (K,) log p; the adapter must be off."""
        network = self.lm.network
        states, _ = network.extend(z[:, :-1], cache.rows(torch.zeros(len(z), dtype=torch.int64, device=z.device)))
        states = torch.cat([given[:, -1:].expand(len(z), -1, -1), states], 1)
        logits = ops.exclude(network.logits(states.flatten(0, 1)), self.lm.config.vocab.masked)
        return -ops.nll(logits, z.flatten()).view(z.shape).double().sum(-1)
