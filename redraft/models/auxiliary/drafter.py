"""Drafters for speculative decoding: they draft a block of tokens in one pass from a causal network's hidden states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core.vocab import require_range
from redraft.models.networks.attention import RotaryEmbedding
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.executors.row import peek
from redraft.models.networks.kv_cache import KeyValue, KeyValueCache, TokenPositions
from redraft.models.networks.layers import Block, LayerInputs, Norm
from redraft.models.networks.linear import init_weights, lora_enabled, lora_layers
from redraft.models.networks.patterns import Full
from redraft.models.networks.prepacked import PrepackedLinear, output_weights, replace_linears
from redraft.models.networks.transformer import Transformer


@dataclass(frozen=True)
class SideDrafter:
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

    def build(self, config: TransformerConfig, words: int, mask: int | None) -> SideDrafterNetwork:
        """The network that drafts for a causal network with this config, `words` ids and this mask."""
        return SideDrafterNetwork(self, config, words, mask)


@dataclass(frozen=True)
class SelfDrafter:
    """The causal network as its own drafter: it reads masks after the text, and a LoRA adapter acts only there.

    At all other positions, and in all other uses, it is the network without its adapter, bit for bit.
    """

    block: int = 8  # maximum number of masks in a draft
    bigram: int = 64  # rank of the bigram logits, as in `SideDrafter`; 0 for none

    def __post_init__(self) -> None:
        require_range(self, 1, 1024, "block")
        require_range(self, 0, 4096, "bigram")

    def build(self, config: TransformerConfig, words: int, mask: int | None) -> SelfDrafterNetwork:
        """The network that drafts for a causal network with this config, `words` ids and this mask."""
        if config.lora is None:
            raise ValueError("SelfDrafter needs a LoRA adapter, and this network has none; give it lora=LoraConfig(…)")
        return SelfDrafterNetwork(self, config, words, mask)


DraftConfig: TypeAlias = SideDrafter | SelfDrafter


class DraftNetwork(nn.Module, ABC):
    """A network that predicts the tokens after an anchor, the last given token.

    It has a hidden state for each drafted token, and bigram logits, which depend on the token before.
    """

    target_tokens: int  # number of tokens after the anchor that the causal network itself predicts in the same pass

    def __init__(self, config: DraftConfig, width: int, words: int, mask: int | None, vocab_size: int) -> None:
        super().__init__()
        self.block, self.words, self.mask = config.block, words, mask
        self.masks = nn.Parameter(torch.zeros(config.block, width))
        self.before = nn.Embedding(vocab_size, config.bigram) if config.bigram else None
        self.after = nn.Linear(config.bigram, words, bias=False) if config.bigram else None

    @torch.no_grad()
    def initialize(self) -> None:
        """Initialize the weights; the bigram logits start at zero."""
        self.masks.normal_(0, 0.02)
        if self.before is not None and self.after is not None:
            init_weights(self.before, 0.1)
            init_weights(self.after, 0)

    @abstractmethod
    def block_states(self, network: Transformer, read: KeyValueCache, tokens: Tensor, anchors: Tensor) -> Tensor:
        """(B, A, block, D) the states after each anchor (A,), for training.

        State k of anchor a predicts the token at position a + 1 + `target_tokens` + k.

        read: the network's cache of the clean rows `tokens` (B, L).
        """

    def bigram_logits(self, previous: Tensor) -> Tensor | None:
        """(…,) ids → (…, words) to be added to the logits of the next tokens; None without bigram logits."""
        if self.before is None or self.after is None:
            return None
        return F.linear(self.before.weight[previous], self.after.weight)

    def logits(self, network: Transformer, states: Tensor) -> Tensor:
        """(…, D) states → (…, words) logits, by the output layer of the causal network; the mask is never drafted."""
        raw = self._project(network, states)
        if self.mask is None or self.mask >= self.words:
            return raw
        return raw.index_fill(-1, torch.tensor([self.mask], device=raw.device), -1e9)  # with −∞ the loss would be nan

    def _project(self, network: Transformer, states: Tensor) -> Tensor:
        return network.logits(states)[..., : self.words]


class SideDrafterNetwork(DraftNetwork):
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
        """Replace the drafter's linear layers by ones of type `kind`, in place.

        Must be called before the causal network's own layers are replaced.
        """
        if self.drafts_fewer_ids:
            weight, bias = output_weights(network)
            self.output = PrepackedLinear(weight[: self.words], None if bias is None else bias[: self.words])
        replace_linears(self.blocks, kind)

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


class SelfDrafterNetwork(DraftNetwork):
    """Mask embeddings and bigram weights; the causal network itself, with its adapter on, does the rest."""

    target_tokens = 1

    def __init__(self, config: SelfDrafter, network: TransformerConfig, words: int, mask: int | None) -> None:
        super().__init__(config, network.width, words, mask, words)
        self.initialize()

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


def gate_lora_to_masks(network: Transformer) -> None:
    """Switch the adapters of a network off; the drafter switches them on at its masks."""
    for layer in lora_layers(network):
        layer.on = False


def predictor_states(read: KeyValueCache, length: int) -> Tensor:
    """(B, L, D) the state that predicts each token, from the cache of whole rows; 0 if no state predicts it."""
    assert read.outputs is not None
    states = read.outputs.states
    return states[:, :length] if read.start_columns else F.pad(states, (0, 0, 1, 0))[:, :length]


def _keys(block: Block, items: Tensor, rotary: RotaryEmbedding) -> KeyValue:
    """(B, n, D) items → keys and values (B, Hkv, n, d) of a layer."""
    c = block.attention.config
    both = block.attention.qkv(block.norm1(items))[..., c.heads * c.head_width :]
    k, v = (a.unflatten(-1, (-1, c.head_width)).transpose(1, 2) for a in both.chunk(2, -1))
    return rotary(k), v


def _block_mask(anchors: Tensor, columns: Tensor, block: int, *, causal: bool) -> Tensor:
    """(M, columns + M) bool attention mask for the masks of all anchors' blocks.

    A mask attends to the text up to its anchor and to masks of its own block, only to earlier ones if causal.
    """
    index = torch.arange(len(anchors) * block, device=anchors.device)
    to_text = anchors[index // block][:, None] >= columns
    to_masks = index[:, None] // block == index // block
    return torch.cat([to_text, to_masks & (index[:, None] >= index) if causal else to_masks], 1)
