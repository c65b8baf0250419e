"""The state of a model's drafter during decoding, updated from what the causal network has read."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from redraft.core.canvas import Context
from redraft.models.auxiliary.drafter import DraftNetwork, SelfDrafterNetwork, SideDrafterNetwork
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.networks.kv_cache import KeyValue, KeyValueCache


@dataclass(eq=False)
class DraftState:
    """What a model's drafter has cached about one row; call `observe` after each pass of the causal model."""

    model: DiffusionLM = field(repr=False)
    _keys: list[KeyValue] = field(default_factory=list, repr=False)  # keys and values of the items, for each layer
    _new: list[tuple[Tensor, Tensor]] = field(default_factory=list, repr=False)  # states not yet cached, their tokens
    _end: int | None = None  # number of tokens observed; None before the first

    def fresh(self) -> DraftState:
        """An empty state, for another row."""
        return DraftState(self.model)

    @property
    def drafter(self) -> DraftNetwork:
        if self.model.drafter is None:
            raise ValueError("this model has no drafter; train one: redraft adapt DIR --draft beside --out …")
        return self.model.drafter

    @property
    def target_tokens(self) -> int:
        """Number of tokens at the beginning of a draft that the causal model itself predicts."""
        return self.drafter.target_tokens

    @property
    def max_tokens(self) -> int:
        """Maximum number of tokens in a draft."""
        return self.drafter.block + self.drafter.target_tokens

    def observe(self, z: Tensor, context: Context) -> None:
        """Take the hidden states of new tokens from the cache.

        z: (1, n) the text so far; the causal network has read all of it but the last token.
        """
        if not isinstance(self.drafter, SideDrafterNetwork):
            return
        cache = _cache(context)
        read = None if cache is None else cache.outputs
        if read is None or read.first + read.states.shape[1] != z.shape[1] - 1:
            raise ValueError("a drafter needs the states of all tokens up to the last one; this cache lacks some")
        self._new.append((read.states, z[:, read.first + 1 :]))
        self._end = z.shape[1]

    @torch.no_grad()
    def logits(self, z: Tensor, context: Context, count: int) -> Tensor | None:
        """(1, ≤ count, words) logits of the next tokens, each independent of the other drafted tokens.

        None if the causal network has not read the text up to the last token of z.
        """
        drafter, network, count = self.drafter, self.model.network, min(count, self.max_tokens)
        if isinstance(drafter, SelfDrafterNetwork):
            cache = _cache(context)
            if cache is None or cache.columns - cache.start_columns != z.shape[1] - 1:
                return None
            return drafter.logits(network, drafter.draft_states(network, z[:, -1:], cache, count - 1))
        assert isinstance(drafter, SideDrafterNetwork)
        if self._end != z.shape[1]:
            return None
        last = self._cache_new_items(drafter, z)
        position = torch.arange(z.shape[1], z.shape[1] + count, device=z.device)
        return drafter.logits(network, drafter.draft_states(self._keys, last.expand(-1, count, -1), position))

    def bigram_logits(self, previous: Tensor) -> Tensor | None:
        """(1,) a drafted token → (1, words) to be added to the logits of the next; None without bigram logits."""
        with torch.no_grad():
            return self.drafter.bigram_logits(previous)

    def _cache_new_items(self, drafter: SideDrafterNetwork, z: Tensor) -> Tensor:
        """Add the new tokens' keys and values to the cache; return the item of the last token, (1, 1, D)."""
        states, tokens = (torch.cat(parts, 1) for parts in zip(*self._new, strict=True))
        self._new.clear()
        items = drafter.items(self.model.network, states, tokens)
        position = torch.arange(z.shape[1] - tokens.shape[1], z.shape[1], device=z.device)
        new = drafter.keys(items, position)
        old = self._keys or [(k[:, :, :0], v[:, :, :0]) for k, v in new]
        self._keys = [(torch.cat([k, k2], 2), torch.cat([v, v2], 2)) for (k, v), (k2, v2) in zip(old, new, strict=True)]
        return items[:, -1:]


def _cache(context: Context) -> KeyValueCache | None:
    return context.cache if isinstance(context.cache, KeyValueCache) else None
