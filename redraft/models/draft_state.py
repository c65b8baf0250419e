"""How a model's drafter is asked while a text is written: what the causal network has read is its memory."""

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
    """What the drafter of a model knows of one row; the causal model tells it after each pass (`saw`)."""

    model: DiffusionLM = field(repr=False)
    _keys: list[KeyValue] = field(default_factory=list, repr=False)
    _heard: list[tuple[Tensor, Tensor]] = field(default_factory=list, repr=False)  # states, and what they predicted
    _end: int | None = None  # place after the last token it knows

    def fresh(self) -> DraftState:
        """The same, without a row."""
        return DraftState(self.model)

    @property
    def drafter(self) -> DraftNetwork:
        if self.model.drafter is None:
            raise ValueError("this model has no drafter; train one: redraft adapt DIR --draft beside --out …")
        return self.model.drafter

    @property
    def ahead(self) -> int:
        """How many tokens of a draft the causal model says itself."""
        return self.drafter.ahead

    @property
    def longest(self) -> int:
        """Tokens of a draft, at most."""
        return self.drafter.block + self.drafter.ahead

    def saw(self, z: Tensor, context: Context) -> None:
        """(1, n) the text so far, all of it but the last token read by the causal network."""
        if not isinstance(self.drafter, SideDrafterNetwork):
            return
        read = _read(context)
        if read is None or read.said is None or read.said.first + read.said.states.shape[1] != z.shape[1] - 1:
            raise ValueError("a drafter needs the states of all tokens up to the last one; this cache has lost some")
        first = read.said.first + 1
        self._heard.append((read.said.states, z[:, first:]))
        self._end = z.shape[1]

    @torch.no_grad()
    def logits(self, z: Tensor, context: Context, count: int) -> Tensor | None:
        """(1, ≤ count, words) of the next tokens, each as if nothing were known of those before; None: not yet."""
        drafter, network, count = self.drafter, self.model.network, min(count, self.longest)
        if isinstance(drafter, SelfDrafterNetwork):
            read = _read(context)
            if read is None or read.columns - read.before != z.shape[1] - 1:
                return None
            return drafter.logits(network, drafter.drafted(network, z[:, -1:], read, count - 1))
        assert isinstance(drafter, SideDrafterNetwork)
        if self._end != z.shape[1]:
            return None
        last = self._learn(drafter, z)
        place = torch.arange(z.shape[1], z.shape[1] + count, device=z.device)
        return drafter.logits(network, drafter.drafted(self._keys, last.expand(-1, count, -1), place))

    def follows(self, previous: Tensor) -> Tensor | None:
        """(1,) a drafted token → (1, words) to be added to the logits of the next; None: nothing"""
        with torch.no_grad():
            return self.drafter.follows(previous)

    def _learn(self, drafter: SideDrafterNetwork, z: Tensor) -> Tensor:
        """(1, 1, D) the item of the last token; keys and values of all new ones join the others."""
        states, tokens = (torch.cat(parts, 1) for parts in zip(*self._heard, strict=True))
        self._heard.clear()
        items = drafter.items(self.model.network, states, tokens)
        place = torch.arange(z.shape[1] - tokens.shape[1], z.shape[1], device=z.device)
        new = drafter.keys(items, place)
        old = self._keys or [(k[:, :, :0], v[:, :, :0]) for k, v in new]
        self._keys = [(torch.cat([k, k2], 2), torch.cat([v, v2], 2)) for (k, v), (k2, v2) in zip(old, new, strict=True)]
        return items[:, -1:]


def _read(context: Context) -> KeyValueCache | None:
    return context.cache if isinstance(context.cache, KeyValueCache) else None
