"""The self-drafter: the causal network itself, with an adapter that acts only at masks after the text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from redraft.core.canvas import Context
from redraft.core.vocab import require_range
from redraft.models.networks.attention import RotaryEmbedding
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.executors.row import peek
from redraft.models.networks.kv_cache import KeyValueCache, TokenPositions
from redraft.models.networks.layers import Block, LayerInputs
from redraft.models.networks.linear import lora_enabled, lora_parameters
from redraft.models.networks.transformer import Transformer
from redraft.models.parts.base import WholeModel
from redraft.models.parts.config import WholeConfig
from redraft.models.parts.drafter import DraftConfig, DraftNetwork, DraftState, _block_mask


@dataclass(frozen=True)
class SelfDrafter(DraftConfig):
    """The causal network as its own drafter: it reads masks after the text, and a LoRA adapter acts only there.

    At all other positions, and in all other uses, it is the network without its adapter, bit for bit.
    """

    block: int = 8  # maximum number of masks in a draft
    bigram: int = 64  # rank of the bigram logits, as in `SideDrafter`; 0 for none
    owns_adapter = True

    def __post_init__(self) -> None:
        require_range(self, 1, 1024, "block")
        require_range(self, 0, 4096, "bigram")

    def require(self, config: WholeConfig) -> None:
        super().require(config)
        if config.network.lora is None:
            raise ValueError("SelfDrafter() needs an adapter, and this network has none; give it lora=LoraConfig(…)")

    def build(self, config: WholeConfig) -> _SelfDrafterNetwork:
        return _SelfDrafterNetwork(self, config.network, config.io.writes or 0, config.vocab.mask)


class _SelfDrafterNetwork(DraftNetwork):
    """Mask embeddings and bigram weights; the causal network itself, with its adapter on, does the rest."""

    target_tokens = 1

    def __init__(self, config: SelfDrafter, network: TransformerConfig, words: int, mask: int | None) -> None:
        super().__init__(config, network.width, words, mask, words)
        self.initialize()

    def trained_parameters(self, model: WholeModel) -> list[nn.Parameter]:
        """The drafter's own parameters, and the adapter."""
        return [*super().trained_parameters(model), *lora_parameters(model.network)]

    def state(self, model: WholeModel) -> _SelfDraftState:
        return _SelfDraftState(model)

    def block_states(self, network: Transformer, read: KeyValueCache, tokens: Tensor, anchors: Tensor) -> Tensor:
        c, rows, start = network.config, len(tokens), read.start_columns
        slot = (anchors[:, None] + start + torch.arange(1, self.block + 1, device=tokens.device)).flatten()
        if c.positions is not None:
            slot = slot.clamp(max=c.positions - 1)  # masks beyond the last position have no loss
        h = self._add_positions(network, self.masks.repeat(len(anchors), 1)[None], slot).expand(rows, -1, -1)
        columns = torch.arange(-start, tokens.shape[1], device=tokens.device)
        rotary = None if c.rotary is None else RotaryEmbedding.of(slot, c.head_width, c.rotary, c.rope_scaling)
        mask = _block_mask(anchors, columns, self.block, causal=True)
        positions = TokenPositions(rows, slot, len(columns) + len(slot), len(columns))
        inputs = LayerInputs(positions, None, rotary, None, mask)
        with lora_enabled(network):
            for i, block in enumerate(cast("Iterable[Block]", network.blocks)):
                h, _ = block(h, inputs, read.layer(i))
        return network.norm(h).unflatten(1, (len(anchors), self.block))

    def _add_positions(self, network: Transformer, h: Tensor, slot: Tensor) -> Tensor:
        """(1, n, D) inputs at slots (n,), plus the network's learned positions if it has any."""
        return h if network.position is None else h + network.position(slot)

    def draft_states(self, network: Transformer, newest: Tensor, past: KeyValueCache, masks: int) -> Tensor:
        """(1, 1 + masks, D) states of the newest token (1, 1), not cached yet, and of the masks after it.

        The first is the causal network's own state, bit for bit. The cache is unchanged.
        """
        h = torch.cat([network.embedding(newest), self.masks[None, :masks]], 1)
        slot = torch.arange(past.columns, past.columns + 1 + masks, device=h.device)
        gate = (torch.arange(1 + masks, device=h.device) > 0)[None]
        with lora_enabled(network, gate=gate):
            return peek(network, self._add_positions(network, h, slot), past)


@dataclass(eq=False)
class _SelfDraftState(DraftState):
    """Nothing of its own: the drafter reads the cache of the causal network."""

    @torch.no_grad()
    def logits(self, z: Tensor, context: Context, count: int) -> Tensor | None:
        cache, count = KeyValueCache.of(context), min(count, self.max_tokens)
        if not cache.layers or cache.columns - cache.start_columns != z.shape[1] - 1:
            return None
        drafter, network = self.model.part(_SelfDrafterNetwork), self.model.network
        return drafter.logits(network, drafter.draft_states(network, z[:, -1:], cache, count - 1))
