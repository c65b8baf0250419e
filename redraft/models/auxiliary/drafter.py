"""Networks that draft a block of tokens for a causal one, in one pass, from what that has read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core.vocab import require_range
from redraft.models.networks.attention import Full, RotaryEmbedding
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.kv_cache import KeyValue, KeyValueCache, TokenPositions
from redraft.models.networks.layers import Block, LayerInputs, Norm
from redraft.models.networks.linear import init_weights, lora_enabled, lora_layers
from redraft.models.networks.prepacked import PrepackedLinear, output_weights, replace_linears
from redraft.models.networks.transformer import Transformer


@dataclass(frozen=True)
class SideDrafter:
    """A small network beside the causal one, whose states, embedding and output layer it shares (DFlash, 2026)."""

    block: int = 8  # tokens of a draft, at most
    layers: int = 1
    bigram: int = 64  # rank of what a drafted token says about the next one (DSpark, 2026); 0: nothing
    words: int | None = None  # only ids below are drafted: byte-pair tokenizers count the usual ones first; None: all

    def __post_init__(self) -> None:
        require_range(self, 1, 1024, "block")
        require_range(self, 1, 2**24, "words")
        require_range(self, 1, 4096, "layers")
        require_range(self, 0, 4096, "bigram")

    def build(self, config: TransformerConfig, words: int, mask: int | None) -> SideDrafterNetwork:
        return SideDrafterNetwork(self, config, words, mask)


@dataclass(frozen=True)
class SelfDrafter:
    """The causal network itself: it reads masks behind the text, and only there its adapter is on (gated LoRA).

    Elsewhere, and for all other uses, it is the network without its adapter, bit for bit.
    """

    block: int = 8  # masks of a draft, at most
    bigram: int = 64  # as for `SideDrafter`

    def __post_init__(self) -> None:
        require_range(self, 1, 1024, "block")
        require_range(self, 0, 4096, "bigram")

    def build(self, config: TransformerConfig, words: int, mask: int | None) -> SelfDrafterNetwork:
        if config.lora is None:
            raise ValueError("a network drafts for itself by an adapter, but this one has none; give it lora=Lora(…)")
        return SelfDrafterNetwork(self, config, words, mask)


DraftConfig: TypeAlias = SideDrafter | SelfDrafter


class DraftNetwork(nn.Module, ABC):
    """States of the tokens after an anchor, the last token that is known; and what each says about the next."""

    ahead: int  # how many tokens after the anchor the causal network says itself, in the same pass

    def __init__(self, config: DraftConfig, width: int, words: int, mask: int | None, known: int) -> None:
        super().__init__()
        self.block, self.words, self.mask = config.block, words, mask
        self.masks = nn.Parameter(torch.zeros(config.block, width))
        self.before = nn.Embedding(known, config.bigram) if config.bigram else None
        self.after = nn.Linear(config.bigram, words, bias=False) if config.bigram else None

    @torch.no_grad()
    def initialise(self) -> None:
        """First weights; tokens say nothing about the next ones at first."""
        self.masks.normal_(0, 0.02)
        if self.before is not None and self.after is not None:
            init_weights(self.before, 0.1)
            init_weights(self.after, 0)

    @abstractmethod
    def block_states(self, network: Transformer, read: KeyValueCache, tokens: Tensor, anchors: Tensor) -> Tensor:
        """(B, A, block, D) the states behind each anchor (A,), for training.

        read: what the network has kept of the clean rows (B, L) `tokens`. State k of anchor a is of the token at
        a + 1 + `ahead` + k.
        """

    def follows(self, previous: Tensor) -> Tensor | None:
        """(…,) ids → (…, words) to be added to the logits of the next tokens; None: nothing"""
        if self.before is None or self.after is None:
            return None
        return F.linear(self.before.weight[previous], self.after.weight)

    def logits(self, network: Transformer, states: Tensor) -> Tensor:
        """(…, D) → (…, words) by the output layer of the causal network; the mask is never drafted"""
        raw = self._read_out(network, states)
        if self.mask is None or self.mask >= self.words:
            return raw
        return raw.index_fill(-1, torch.tensor([self.mask], device=raw.device), -1e9)  # finite: 0 · ∞ is no loss

    def _read_out(self, network: Transformer, states: Tensor) -> Tensor:
        return network.logits(states)[..., : self.words]


class SideDrafterNetwork(DraftNetwork):
    """Each known token is an item: the state that predicted it, and its embedding. Masks attend to items and masks."""

    ahead = 0

    def __init__(self, config: SideDrafter, network: TransformerConfig, words: int, mask: int | None) -> None:
        super().__init__(config, network.width, min(words, config.words or words), mask, words)
        self.output: PrepackedLinear | None = (
            None  # of the words that it drafts, packed; None: the causal network's own
        )
        self.few = self.words < words
        own = replace(network, layers=config.layers, pattern=Full(), rotary=network.rotary or 10_000.0, positions=None)
        own = replace(own, dropout=0.0, lora=None, qk_norm=False, time=None, classes=None, gaps=None)
        self.config = own
        self.norm_word, self.norm = Norm(own, own.width), Norm(own, own.width)
        self.fuse = nn.Linear(2 * own.width, own.width, bias=False)
        self.blocks = nn.ModuleList(Block(own) for _ in range(config.layers))
        self.initialise()

    @torch.no_grad()
    def initialise(self) -> None:
        super().initialise()
        init_weights(self.fuse)
        for block in self._layers:
            block.initialise()

    @property
    def _layers(self) -> Iterable[Block]:
        return cast("Iterable[Block]", self.blocks)

    def _read_out(self, network: Transformer, states: Tensor) -> Tensor:
        if not self.few:
            return super()._read_out(network, states)
        if self.output is not None:
            return self.output(states)
        weight, bias = output_weights(network)
        return F.linear(states, weight[: self.words], None if bias is None else bias[: self.words])

    def pack(self, network: Transformer, kind: type[nn.Module]) -> None:
        """Its matrices as layers of this kind, to draft faster; called before the network's own are packed."""
        if self.few:
            weight, bias = output_weights(network)
            self.output = PrepackedLinear(weight[: self.words], None if bias is None else bias[: self.words])
        replace_linears(self.blocks, kind)

    def items(self, network: Transformer, states: Tensor, tokens: Tensor) -> Tensor:
        """(B, n, D) states that predicted tokens (B, n) → (B, n, D)"""
        return self.fuse(torch.cat([states, self.norm_word(network.embedding(tokens))], -1))

    def keys(self, items: Tensor, place: Tensor) -> list[KeyValue]:
        """Keys and values of items at places (n,), for each layer."""
        rotary = self._rotary(place)
        return [_keys(block, items, rotary) for block in self._layers]

    def drafted(self, keys: list[KeyValue], last: Tensor, place: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, M, D) states of M masks at places (M,) behind items; `last`: (B, M, D) the item at each one's anchor."""
        rows, held = len(last), keys[0][0].shape[2]
        number = torch.arange(last.shape[1], device=last.device) % self.block
        stand = TokenPositions(rows, place, held + last.shape[1], held)
        view = LayerInputs(stand, None, self._rotary(place), None, mask)
        h = last + self.masks[number]
        for block, past in zip(self._layers, keys, strict=True):
            h, _ = block(h, view, past)
        return self.norm(h)

    def block_states(self, network: Transformer, read: KeyValueCache, tokens: Tensor, anchors: Tensor) -> Tensor:
        first = 1 - read.before  # nothing predicts the first token of a plain causal network
        states = predictor_states(read, tokens.shape[1])[:, first:]
        items = self.items(network, states, tokens[:, first:])
        place = torch.arange(first, tokens.shape[1], device=tokens.device)
        mask = _blocks_see(anchors, place, self.block, causal=False)
        last = items[:, anchors - first].repeat_interleave(self.block, 1)
        ahead = torch.arange(1, self.block + 1, device=tokens.device)
        h = self.drafted(self.keys(items, place), last, (anchors[:, None] + ahead).flatten(), mask)
        return h.unflatten(1, (len(anchors), self.block))

    def _rotary(self, place: Tensor) -> RotaryEmbedding:
        assert self.config.rotary is not None
        return RotaryEmbedding.of(place, self.config.head_width, self.config.rotary, self.config.slowed)


class SelfDrafterNetwork(DraftNetwork):
    """The vectors of the masks; all else is the causal network, with its adapter on."""

    ahead = 1

    def __init__(self, config: SelfDrafter, network: TransformerConfig, words: int, mask: int | None) -> None:
        super().__init__(config, network.width, words, mask, words)
        self.initialise()

    def block_states(self, network: Transformer, read: KeyValueCache, tokens: Tensor, anchors: Tensor) -> Tensor:
        c, rows, before = network.config, len(tokens), read.before
        slot = (anchors[:, None] + before + torch.arange(1, self.block + 1, device=tokens.device)).flatten()
        if c.positions is not None:
            slot = slot.clamp(max=c.positions - 1)  # masks beyond the last position teach nothing
        h = self.placed(network, self.masks.repeat(len(anchors), 1)[None], slot).expand(rows, -1, -1)
        columns = torch.arange(-before, tokens.shape[1], device=tokens.device)
        rotary = None if c.rotary is None else RotaryEmbedding.of(slot, c.head_width, c.rotary, c.slowed)
        mask = _blocks_see(anchors, columns, self.block, causal=True)
        view = LayerInputs(TokenPositions(rows, slot, len(columns) + len(slot), len(columns)), None, rotary, None, mask)
        with lora_enabled(network):
            for i, block in enumerate(cast("Iterable[Block]", network.blocks)):
                h, _ = block(h, view, read.layer(i))
        return network.norm(h).unflatten(1, (len(anchors), self.block))

    def placed(self, network: Transformer, h: Tensor, slot: Tensor) -> Tensor:
        """(1, n, D) inputs at slots (n,), with the network's own positions if it has some."""
        return h if network.position is None else h + network.position(slot)

    def drafted(self, network: Transformer, newest: Tensor, past: KeyValueCache, masks: int) -> Tensor:
        """(1, 1 + masks, D) states of the newest token (1, 1), not yet read, and of masks behind it.

        The first is the causal network's own state, bit for bit; what it has read stays as it is.
        """
        h = torch.cat([network.embedding(newest), self.masks[None, :masks]], 1)
        slot = torch.arange(past.columns, past.columns + 1 + masks, device=h.device)
        gate = (torch.arange(1 + masks, device=h.device) > 0)[None]
        with lora_enabled(network, gate=gate):
            return network.peek(self.placed(network, h, slot), past)


def gate_lora_to_masks(network: Transformer) -> None:
    """Switches the adapters of a network off; drafting switches them on where it needs them."""
    for layer in lora_layers(network):
        layer.on = False


def predictor_states(read: KeyValueCache, length: int) -> Tensor:
    """(B, L, D) the states that predict each token of rows that were read whole; 0 where nothing does."""
    assert read.said is not None
    states = read.said.states
    return states[:, :length] if read.before else F.pad(states, (0, 0, 1, 0))[:, :length]


def _keys(block: Block, items: Tensor, rotary: RotaryEmbedding) -> KeyValue:
    """(B, n, D) → keys and values (B, Hkv, n, d) of a layer"""
    c = block.attention.config
    both = block.attention.qkv(block.norm1(items))[..., c.heads * c.head_width :]
    k, v = (a.unflatten(-1, (-1, c.head_width)).transpose(1, 2) for a in both.chunk(2, -1))
    return rotary(k), v


def _blocks_see(anchors: Tensor, columns: Tensor, block: int, *, causal: bool) -> Tensor:
    """(M, columns + M) bool: masks see what stands at their anchor or before it, and masks of their own block."""
    number = torch.arange(len(anchors) * block, device=anchors.device)
    same = number[:, None] // block == number // block
    return torch.cat(
        [anchors[number // block][:, None] >= columns, same & (number[:, None] >= number) if causal else same], 1
    )
