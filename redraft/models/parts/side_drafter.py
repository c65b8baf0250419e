"""The side drafter: a small network that reads the causal network's states (DFlash, 2026)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core.canvas import Context
from redraft.core.vocab import require_range
from redraft.models.networks.attention import RotaryEmbedding
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.kv_cache import KeyValue, KeyValueCache, TokenPositions
from redraft.models.networks.layers import Block, LayerInputs, Norm
from redraft.models.networks.linear import init_weights
from redraft.models.networks.patterns import Full
from redraft.models.networks.prepacked import PrepackedLinear, output_weights, replace_linears
from redraft.models.networks.transformer import Transformer
from redraft.models.parts.base import WholeModel
from redraft.models.parts.config import WholeConfig
from redraft.models.parts.drafter import DraftConfig, DraftNetwork, DraftState, _block_mask, predictor_states


@dataclass(frozen=True)
class SideDrafter(DraftConfig):
    """A small separate network that uses the causal network's states, embedding and output layer (DFlash, 2026)."""

    block: int = 8  # maximum number of tokens in a draft
    layers: int = 1
    bigram: int = 64  # rank of the bigram logits, which depend on the previous drafted token (DSpark, 2026); 0 for none
    words: int | None = None  # draft only ids below this (BPE ids are ordered by frequency); None for all ids

    def __post_init__(self) -> None:
        require_range(self, 1, 1024, "block")
        require_range(self, 1, 2**24, "words")
        require_range(self, 1, 4096, "layers")
        require_range(self, 0, 4096, "bigram")

    def build(self, config: WholeConfig) -> _SideDrafterNetwork:
        return _SideDrafterNetwork(self, config.network, config.io.writes or 0, config.vocab.mask)


class _SideDrafterNetwork(DraftNetwork):
    """Transformer blocks in which masks attend to each other and to the items of the text.

    The item of a token is made from the state that predicted it and from its embedding.
    """

    target_tokens = 0

    def __init__(self, config: SideDrafter, network: TransformerConfig, words: int, mask: int | None) -> None:
        super().__init__(config, network.width, min(words, config.words or words), mask, words)
        self.output: PrepackedLinear | None = None  # prepacked rows of the drafted ids; None for the network's own
        self.drafts_fewer_ids = self.words < words
        own = replace(network, layers=config.layers, pattern=Full(), rotary=network.rotary or 10_000.0, positions=None)
        own = replace(own, dropout=0.0, lora=None, qk_norm=False, time=None, classes=None, gaps=None)
        self.config = own
        self.norm_word, self.norm = Norm(own, own.width), Norm(own, own.width)
        self.fuse = nn.Linear(2 * own.width, own.width, bias=False)
        self.blocks = nn.ModuleList(Block(own) for _ in range(config.layers))
        self.initialize()

    @torch.no_grad()
    def initialize(self) -> None:
        super().initialize()
        init_weights(self.fuse)
        for block in self._layers:
            block.initialize()

    @property
    def _layers(self) -> Iterable[Block]:
        return cast("Iterable[Block]", self.blocks)

    def _project(self, network: Transformer, states: Tensor) -> Tensor:
        if not self.drafts_fewer_ids:
            return super()._project(network, states)
        if self.output is not None:
            return self.output(states)
        weight, bias = output_weights(network)
        return F.linear(states, weight[: self.words], None if bias is None else bias[: self.words])

    def pack(self, network: Transformer, kind: type[nn.Module]) -> None:
        if self.drafts_fewer_ids:
            weight, bias = output_weights(network)
            self.output = PrepackedLinear(weight[: self.words], None if bias is None else bias[: self.words])
        replace_linears(self.blocks, kind)

    def state(self, model: WholeModel) -> _SideDraftState:
        return _SideDraftState(model)

    def items(self, network: Transformer, states: Tensor, tokens: Tensor) -> Tensor:
        """(B, n, D) the items of tokens (B, n), from the states (B, n, D) that predicted them."""
        return self.fuse(torch.cat([states, self.norm_word(network.embedding(tokens))], -1))

    def keys(self, items: Tensor, position: Tensor) -> list[KeyValue]:
        """Keys and values of items at positions (n,), for each layer."""
        rotary = self._rotary(position)
        return [_keys(block, items, rotary) for block in self._layers]

    def draft_states(self, keys: list[KeyValue], last: Tensor, position: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, M, D) states of M masks at positions (M,), given the keys and values of the items.

        last: (B, M, D) the item at the anchor of each mask.
        mask: (M, items + M) bool attention mask; None if no pair is masked.
        """
        rows, items = len(last), keys[0][0].shape[2]
        index = torch.arange(last.shape[1], device=last.device) % self.block
        positions = TokenPositions(rows, position, items + last.shape[1], items)
        inputs = LayerInputs(positions, None, self._rotary(position), None, mask)
        h = last + self.masks[index]
        for block, past in zip(self._layers, keys, strict=True):
            h, _ = block(h, inputs, past)
        return self.norm(h)

    def block_states(self, network: Transformer, read: KeyValueCache, tokens: Tensor, anchors: Tensor) -> Tensor:
        first = 1 - read.start_columns  # without a start token, no state predicts the first token
        states = predictor_states(read, tokens.shape[1])[:, first:]
        items = self.items(network, states, tokens[:, first:])
        position = torch.arange(first, tokens.shape[1], device=tokens.device)
        mask = _block_mask(anchors, position, self.block, causal=False)
        last = items[:, anchors - first].repeat_interleave(self.block, 1)
        offset = torch.arange(1, self.block + 1, device=tokens.device)
        h = self.draft_states(self.keys(items, position), last, (anchors[:, None] + offset).flatten(), mask)
        return h.unflatten(1, (len(anchors), self.block))

    def _rotary(self, position: Tensor) -> RotaryEmbedding:
        assert self.config.rotary is not None
        return RotaryEmbedding.of(position, self.config.head_width, self.config.rotary, self.config.rope_scaling)


@dataclass(eq=False)
class _SideDraftState(DraftState):
    """The keys and values of a row's items, and the states of the tokens that have none yet."""

    _keys: list[KeyValue] = field(default_factory=list, repr=False)  # keys and values of the items, for each layer
    _new: list[tuple[Tensor, Tensor]] = field(default_factory=list, repr=False)  # states not yet cached, their tokens
    _end: int | None = None  # number of tokens observed; None before the first

    def observe(self, z: Tensor, context: Context) -> None:
        read = KeyValueCache.of(context).outputs
        if read is None or read.first + read.states.shape[1] != z.shape[1] - 1:
            raise ValueError("a drafter needs the states of all tokens up to the last one; this cache lacks some")
        self._new.append((read.states, z[:, read.first + 1 :]))
        self._end = z.shape[1]

    @torch.no_grad()
    def logits(self, z: Tensor, context: Context, count: int) -> Tensor | None:
        if self._end != z.shape[1]:
            return None
        drafter, count = self.model.part(_SideDrafterNetwork), min(count, self.max_tokens)
        last = self._cache_new_items(drafter, z)
        position = torch.arange(z.shape[1], z.shape[1] + count, device=z.device)
        states = drafter.draft_states(self._keys, last.expand(-1, count, -1), position)
        return drafter.logits(self.model.network, states)

    def _cache_new_items(self, drafter: _SideDrafterNetwork, z: Tensor) -> Tensor:
        """Add the new tokens' keys and values to the cache; return the item of the last token, (1, 1, D)."""
        states, tokens = (torch.cat(parts, 1) for parts in zip(*self._new, strict=True))
        self._new.clear()
        items = drafter.items(self.model.network, states, tokens)
        position = torch.arange(z.shape[1] - tokens.shape[1], z.shape[1], device=z.device)
        new = drafter.keys(items, position)
        old = self._keys or [(k[:, :, :0], v[:, :, :0]) for k, v in new]
        self._keys = [(torch.cat([k, k2], 2), torch.cat([v, v2], 2)) for (k, v), (k2, v2) in zip(old, new, strict=True)]
        return items[:, -1:]


def _keys(block: Block, items: Tensor, rotary: RotaryEmbedding) -> KeyValue:
    """(B, n, D) items → keys and values (B, Hkv, n, d) of a layer."""
    c = block.attention.config
    both = block.attention.qkv(block.norm1(items))[..., c.heads * c.head_width :]
    k, v = (a.unflatten(-1, (-1, c.head_width)).transpose(1, 2) for a in both.chunk(2, -1))
    return rotary(k), v
