"""The transformer of every method; GPT-2, Llama, Qwen and the DiT of the diffusion papers are settings of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol, cast, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from redraft.core.canvas import Context
from redraft.core.ops import dropout
from redraft.models.networks.attention import (
    AttentionMask,
    AttentionPattern,
    BlockCausal,
    Causal,
    Full,
    RotaryEmbedding,
)
from redraft.models.networks.config import NetworkIO, TransformerConfig
from redraft.models.networks.forward_pass import ForwardPass, PassOutput, _PassExecutor
from redraft.models.networks.incremental import _grow_buffer, _run_row
from redraft.models.networks.kv_cache import KeyValue, KeyValueCache, TokenPositions, _CachedStates, _KeyValueBuffer
from redraft.models.networks.layers import (
    Block,
    LayerInputs,
    Norm,
    _EncodedSource,
    _GapHead,
    _modulation,
    _QueryPositions,
    _TimeEmbedding,
)
from redraft.models.networks.linear import LoraEmbedding, init_weights


class Transformer(nn.Module):
    """A transformer: (B, L) ids, noise levels and a context → (B, L, D) hidden states; `logits` is its output layer.

    Networks for vectors read (B, L, `io.reads`) vectors instead of ids.
    """

    def __init__(self, config: TransformerConfig, io: NetworkIO) -> None:
        super().__init__()
        self.config, self.io = config, io
        self.recompute = False  # gradient checkpointing; set by the training loop
        self.executor: _PassExecutor | None = None  # batches the passes of concurrent requests; set by the server
        self.batch_invariant = False  # a token gets the same bits whatever is read with it; set with packed weights
        least = 0 if io.vectors else config.padded_vocab or 0
        self.embedding = _embedding(config, io, max(io.reads, least))
        self.nothing = None if io.cross is None else nn.Parameter(torch.zeros(io.cross))  # the state of "no source"
        self.position = nn.Embedding(config.positions, config.width) if config.positions else None
        self.time = _TimeEmbedding(config.time, config.classes) if config.time else None
        self.blocks = nn.ModuleList(Block(config, io.cross) for _ in range(config.layers))
        self.norm = Norm(config, config.width)
        self.modulation = nn.Linear(config.time, 2 * config.width) if config.time else None
        outputs = None if config.tied else io.writes
        self.output = None if outputs is None else nn.Linear(config.width, max(outputs, least), bias=config.head_bias)
        self.gaps = None if config.gaps is None else _GapHead(config, config.gaps)
        self.initialize()

    def forward(
        self,
        tokens: Tensor,
        level: Tensor | None = None,
        context: Context = Context(),
        at: Tensor | None = None,
    ) -> Tensor:
        """Return the hidden states (B, L, D), or (N, D) at the query positions `at`.

        level: (B, 1) or (B, L) noise levels in the network's own units; ignored if the network does not see the time.
        context: with a cache, `context.positions` gives the positions of the tokens; they replace cached tokens there.
        at: (N,) indices row · L + column, ordered by row; the last block computes only these states.
        """
        pattern = self.config.pattern
        if context.label is not None and self.config.classes is None:
            raise ValueError("this network has no class labels; leave them out, or set classes in its config")
        if context.source is not None and self.io.cross is None:
            raise ValueError("this network reads no source; leave it out, or build the model with an encoder")
        _require_positions(tokens, context)
        if context.pattern is not None:  # another attention pattern needs no start token and no second stream
            _require_whole(context)
            return self._run(tokens, level, context, at)[0]
        if isinstance(pattern, Causal):
            return (self._unshifted if self.io.start is None else self._shifted)(tokens, context, at)
        if isinstance(pattern, BlockCausal) and context.clean is not None:
            return self._two_streams(tokens, level, context, pattern, at)
        cached = _past(context).outputs
        if cached is not None and context.positions is not None:
            h = cached.reuse(tokens, level, context.positions)
            if h is not None:
                return h if at is None else h.flatten(0, 1)[at]
        return self._run(tokens, level, context, at)[0]

    def with_gaps(self, tokens: Tensor, level: Tensor | None, context: Context = Context()) -> tuple[Tensor, Tensor]:
        """(B, L) ids → (B, L, D) hidden states, and the outputs of `_GapHead` for the gap before each token.

        For the gap at the end of a text, append one more token (such as padding) to the ids.
        """
        if self.gaps is None:
            raise ValueError("this network has no head for gaps; insertion needs TransformerConfig(gaps=longest gap)")
        _require_whole(context)
        positions = TokenPositions.of(None, tokens, KeyValueCache())
        attention = AttentionMask.of(Full(), positions.values, 0, positions.keys, context.pad)
        h, time, _ = self._trunk(ForwardPass(tokens, level, positions, attention, context))
        return self.norm(h, *_modulation(self.modulation, time, 2)), self.gaps(h, time)

    @torch.no_grad()
    def absorb(
        self, tokens: Tensor, context: Context = Context(), level: Tensor | None = None, *, unfinished: bool = False
    ) -> KeyValueCache:
        """Return the cache with these tokens added at their positions, and with the state of the last one.

        Under full attention the cache is approximate: its tokens do not attend to tokens that are read later.

        level: noise levels of the tokens; None if they are clean.
        unfinished: whether a block of a block-causal network will still change, so that its cache is approximate.
        """
        _require_positions(tokens, context)
        past, pad, position = _past(context), context.pad, context.positions
        if isinstance(self.config.pattern, Causal) and self.io.start is not None:
            tokens, pad, position = _prepend_start(tokens, pad, position, self.io.start, past)
            past = replace(past, start_columns=1)
        if tokens.shape[1] == 0:
            return past
        if self._can_run_incrementally(tokens, pad, past, position):
            return self._absorb_row(tokens, past, position)
        level = torch.zeros(tokens.shape[0], 1, device=tokens.device) if level is None else level
        context = replace(context, pad=pad, cache=past, positions=position)
        h, key_values, missing = self._run(self._embeddable(tokens), level, context)
        layers = tuple((k.contiguous(), v.contiguous()) for k, v in key_values)  # a view would keep all of qkv alive
        if unfinished and isinstance(self.config.pattern, BlockCausal):
            outputs = _cached_states(tokens, h, position, 0)
            outputs = outputs and replace(outputs, level=level)
            return KeyValueCache(layers, missing, past.last_state, exact=False, outputs=outputs)
        last_state = _last_state(h, pad, past.last_state)
        if not isinstance(self.config.pattern, Full):
            causal, start = isinstance(self.config.pattern, Causal), past.start_columns
            outputs = _cached_states(tokens, h, position, start) if causal else None
            return KeyValueCache(layers, missing, last_state, start, past.exact, outputs)
        whole = position is None and tokens.dim() == 2
        outputs = _CachedStates(tokens, None if self.time is None else level, h) if whole else None
        return KeyValueCache(layers, missing, last_state, exact=False, outputs=outputs)

    def extend(self, tokens: Tensor, past: KeyValueCache = KeyValueCache()) -> tuple[Tensor, KeyValueCache]:
        """(B, L) tokens right after those of a cache → (B, L, D) states, and the cache with these tokens added.

        Attention is causal whatever the network's own pattern. For a network adapted from a causal one, with its
        adapter off, these are the states of the causal network.
        """
        position = torch.arange(past.columns, past.columns + tokens.shape[1], device=tokens.device)[None]
        h, key_values, missing = self._run(tokens, None, Context(cache=past, positions=position, pattern=Causal()))
        return h, KeyValueCache(tuple(key_values), missing)

    def _can_run_incrementally(
        self, tokens: Tensor, pad: Tensor | None, past: KeyValueCache, position: Tensor | None
    ) -> bool:
        """Whether these are the next tokens of a single row of a plain causal network, in fp32 on a CPU."""
        c, (B, L) = self.config, tokens.shape[:2]
        plain = isinstance(c.pattern, Causal) and not c.qk_norm and self.io.cross is None and self.executor is None
        single = (
            B == 1
            and pad is None
            and past.missing is None
            and tokens.is_cpu
            and not self.training
            and not torch.is_autocast_enabled("cpu")
        )
        at_end = (0 if position is None else int(position[0, 0])) == past.columns
        return plain and single and at_end and (self.batch_invariant or L < 65)

    def _absorb_row(self, tokens: Tensor, past: KeyValueCache, position: Tensor | None) -> KeyValueCache:
        h = self.embedding(self._embeddable(tokens[0]))
        if self.position is not None:
            slots = torch.arange(past.columns, past.columns + len(h), device=h.device)
            h = h + self.position(_require_known_positions(slots, None, self.position.num_embeddings))
        buffer = _grow_buffer(past, self.config, len(h), h)
        parts = h[None].split(64, 1) if self.batch_invariant else (h[None],)
        states = self.norm(torch.cat([self._run_row(part, buffer) for part in parts], 1))
        layers, start = buffer.layers(), past.start_columns
        outputs = _cached_states(tokens, states, position, start)
        return KeyValueCache(layers, None, states[:, -1:], start, past.exact, outputs, buffer, buffer.crops)

    @torch.no_grad()
    def peek(self, h: Tensor, past: KeyValueCache) -> Tensor:
        """(1, n, D) embedded inputs right after the tokens of a cache → (1, n, D) states; the cache is unchanged."""
        buffer = _grow_buffer(past, self.config, h.shape[1], h)
        filled = buffer.filled
        states = self._run_row(h, buffer)
        buffer.filled = filled
        return self.norm(states)

    def _run_row(self, h: Tensor, buffer: _KeyValueBuffer) -> Tensor:
        return _run_row(cast("list[Block]", list(self.blocks)), h, buffer, batch_invariant=self.batch_invariant)

    def logits(self, h: Tensor) -> Tensor:
        """(…, D) states → (…, V) logits, possibly batched with those of other requests."""
        return self.project(h) if self.executor is None else self.executor.logits(h)

    def project(self, h: Tensor) -> Tensor:
        """(…, D) states → (…, V) logits, without batching."""
        return F.linear(h, self.embedding.weight) if self.output is None else self.output(h)

    def _source(self, context: Context, like: Tensor) -> _EncodedSource | None:
        """The input of cross attention: the encoded source, or the learned state of "no source"."""
        if self.nothing is None:
            return None
        if context.source is None:
            return _EncodedSource(self.nothing.expand(len(like), 1, -1), None)
        pad = context.source_pad
        return _EncodedSource(context.source, None if pad is None else ~pad[:, None, None])

    def _shifted(self, tokens: Tensor, context: Context, at: Tensor | None) -> Tensor:
        """Hidden states of a causal network with a start token: slot i holds token i − 1 and predicts token i."""
        past, pad, position = _past(context), context.pad, context.positions
        if past.last_state is not None and position is not None:
            h = past.last_state
            if tokens.shape[1] > 1:
                shorter = replace(context, pad=None if pad is None else pad[:, :-1], positions=position[:, :-1] + 1)
                later = self._run(tokens[:, :-1], None, shorter)[0]
                h = torch.cat([h.to(later.dtype), later], 1)
            return h if at is None else h.flatten(0, 1)[at]
        _require_whole(context)
        stream = tokens if context.clean is None else context.clean
        slots = F.pad(stream[:, :-1], (1, 0), value=self.io.start)
        shifted = replace(context, pad=None if pad is None else F.pad(pad[:, :-1], (1, 0)), cache=None)
        return self._run(slots, None, shifted, at)[0]

    def _unshifted(self, tokens: Tensor, context: Context, at: Tensor | None) -> Tensor:
        """Hidden states of a causal network without a start token: slot i holds token i and predicts token i + 1."""
        stream = tokens if context.clean is None else context.clean
        return self._run(self._embeddable(stream), None, context, at)[0]

    def _embeddable(self, tokens: Tensor) -> Tensor:
        """The ids, with the mask replaced by any id if it has no embedding; tokens before it do not attend to it."""
        return tokens.clamp(max=self.embedding.weight.shape[0] - 1) if self.io.start is None else tokens

    def _two_streams(
        self, tokens: Tensor, level: Tensor | None, context: Context, pattern: BlockCausal, at: Tensor | None
    ) -> Tensor:
        """Hidden states of the noisy half of [noisy; clean], both at positions 0..L−1: block diffusion in one pass."""
        assert context.clean is not None
        _require_whole(context)
        (B, L), pad = tokens.shape[:2], context.pad
        pos = torch.arange(L, device=tokens.device)
        if level is not None:
            level = F.pad(level.expand(B, L), (0, L))
        columns = torch.arange(2 * L, device=tokens.device)
        both_pad = None if pad is None else torch.cat([pad, pad], 1)
        attention = AttentionMask.of(pattern.streams(pos), columns, 0, 2 * L, both_pad)
        both = torch.cat([tokens, context.clean], 1)
        at_noisy = torch.arange(B * L, device=tokens.device) if at is None else at
        query = _QueryPositions.of(self.stream_index(at_noisy, L, pattern.block), B, 2 * L)
        positions = TokenPositions(B, pos.repeat(2), 2 * L, 0)
        h = self._layers(ForwardPass(both, level, positions, attention, context, at=query))[0]
        return h.unflatten(0, (B, L)) if at is None else h

    def stream_index(self, at: Tensor, length: int, block: int) -> Tensor:
        """(N,) indices row · L + column → indices row · 2L + column in [noisy; clean].

        With `NetworkIO.finished`, the state that predicts the first token of a block is taken from the clean half.
        """
        row, column = at // length, at % length
        clean = (column % block == block - 1) if self.io.finished else torch.zeros_like(at)
        return row * 2 * length + column + clean * length

    def _run(
        self, tokens: Tensor, level: Tensor | None, context: Context, at: Tensor | None = None
    ) -> tuple[Tensor, list[KeyValue], Tensor | None]:
        """Run one stream; return its states, all keys and values, and (B, keys) the empty columns (None if none is)."""
        past = _past(context)
        positions = TokenPositions.of(context.positions, tokens, past)
        missing = positions.missing(past, context.pad)
        pattern = context.pattern if isinstance(context.pattern, AttentionPattern) else self.config.pattern
        attention = AttentionMask.of(pattern, positions.values, positions.first or 0, positions.keys, missing)
        query = None if at is None else _QueryPositions.of(at, *tokens.shape[:2])
        h, key_values = self._layers(ForwardPass(tokens, level, positions, attention, context, past, query))
        return h, key_values, missing

    def _layers(self, forward_pass: ForwardPass) -> tuple[Tensor, list[KeyValue]]:
        """Normed hidden states (B, L, D), or (N, D) at the query positions, and each layer's keys and values."""
        h, time, key_values = self._trunk(forward_pass)
        return self.norm(h, *_modulation(self.modulation, time, 2)), key_values

    def _trunk(self, forward_pass: ForwardPass) -> PassOutput:
        return self.trunk(forward_pass) if self.executor is None else self.executor.trunk(forward_pass)

    def trunk(self, forward_pass: ForwardPass) -> PassOutput:
        """Run all layers but the last norm, without batching."""
        c, positions, context = self.config, forward_pass.positions, forward_pass.context
        at, attention, h = forward_pass.at, forward_pass.attention, self.embedding(forward_pass.tokens)
        if self.position is not None:
            h = h + self.position(_require_known_positions(positions.values, context.pad, self.position.num_embeddings))
        h = dropout(h, c.dropout, self.training)
        rotary = (
            None if c.rotary is None else RotaryEmbedding.of(positions.values, c.head_width, c.rotary, c.rope_scaling)
        )
        time = None if self.time is None else self.time(_require_level(forward_pass.level), context.label)
        mask = None if attention is None else attention.mask(c.head_width)
        source = self._source(context, forward_pass.tokens)
        inputs, key_values = LayerInputs(positions, time, rotary, attention, mask, source), []
        for i, block in enumerate(self.blocks):
            args = (h, inputs, forward_pass.past.layer(i), at if i == c.layers - 1 else None)
            h, new = checkpoint(block, *args, use_reentrant=False) if self.recompute else block(*args)
            key_values.append(new)
        return PassOutput(h, time if at is None or time is None else time.at(at), key_values)

    @torch.no_grad()
    def initialize(self) -> None:
        """Initialize all layers, in the order of `named_parameters`, so that a seed determines the network.

        Matrices are scaled by fan-in. Those that write into the residual stream start smaller; modulation and output
        start at zero.
        """
        if self.nothing is not None:
            self.nothing.normal_(0, 0.02)
        self._initialize_inputs()
        for layer in (self.time, *self.blocks, self.norm):
            if layer is not None:
                layer.initialize()
        for last in (self.modulation, self.output):
            if last is not None:
                init_weights(last, 0)
        if self.gaps is not None:
            self.gaps.initialize()

    def _initialize_inputs(self) -> None:
        """Initialize embedding and positions; positions weigh more with vectors, because these are noisy."""
        vectors = self.io.vectors
        init_weights(self.embedding, 0.1 * self.io.reads**-0.5 if vectors else 0.02)
        if self.position is not None:
            init_weights(self.position, 0.5 if vectors else 0.02)

    def hidden_matrices(self) -> list[nn.Parameter]:
        """The matrices of all blocks that map hidden states to hidden states."""
        return [p for block in cast("Iterable[Block]", self.blocks) for p in block.matrices()]


def _embedding(config: TransformerConfig, io: NetworkIO, size: int) -> nn.Linear | nn.Embedding:
    if config.lora is not None and config.lora.mask_row and io.mask is not None:
        return LoraEmbedding(size, config.width, io.mask)
    return (nn.Linear if io.vectors else nn.Embedding)(size, config.width)


@contextmanager
def record_layer_states(network: Transformer) -> Iterator[list[Tensor]]:
    """Record the output of each layer, (B, L, D) or (N, D) at query positions, in the list that the context yields.

    The output of the last layer is normed.
    """
    states: list[Tensor] = []
    last = len(network.blocks) - 1
    hooks = [
        block.register_forward_hook(
            lambda _, __, out, i=i: states.append(network.norm(out[0]) if i == last else out[0])
        )
        for i, block in enumerate(network.blocks)
    ]
    try:
        yield states
    finally:
        for hook in hooks:
            hook.remove()


@runtime_checkable
class _HasHiddenMatrices(Protocol):
    """A module that knows which of its matrices map hidden states to hidden states."""

    def hidden_matrices(self) -> list[nn.Parameter]: ...


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """The matrices between hidden states, in all networks of a model; Muon trains these."""
    return [p for module in model.modules() if isinstance(module, _HasHiddenMatrices) for p in module.hidden_matrices()]


def _require_known_positions(position: Tensor, pad: Tensor | None, count: int) -> Tensor:
    """Return the positions, with 0 for padding; raise if one is beyond the `count` learned positions."""
    if position.dim() == 2 and pad is not None:
        position = position.masked_fill(pad, 0)
    last = int((position if position.dim() == 2 else position[-1:]).max()) if position.numel() else -1
    if last >= count:
        raise ValueError(f"{last + 1} tokens are too many: this network has {count} positions; use fewer tokens")
    return position


def _past(context: Context) -> KeyValueCache:
    cache = context.cache if isinstance(context.cache, KeyValueCache) else KeyValueCache()
    if cache.buffer is not None and not cache.buffer.still_holds(cache):
        raise ValueError("some tokens of this cache were cropped and overwritten; use the cropped cache")
    return cache


def cached_states(context: Context) -> Tensor | None:
    """(B, L, D) states of a causal network that predict the tokens `context.clean`, from the cache.

    None if the cache has not read these tokens in its last pass.
    """
    outputs = _past(context).outputs
    if outputs is None or context.positions is None or context.clean is None:
        return None
    return outputs.before(context.positions, context.clean)


def _require_positions(tokens: Tensor, context: Context) -> None:
    positions, (B, L) = context.positions, tokens.shape[:2]
    if positions is not None and tuple(positions.shape) not in ((1, L), (B, L)):
        shape = tuple(positions.shape)
        raise ValueError(f"positions has shape {shape}; it must be ({B}, {L}), or (1, {L}) for all rows")
    if context.positions is None and _past(context).columns:
        raise ValueError("the cache already holds tokens; give the positions of the new ones as Context(positions=…)")


def _require_whole(context: Context) -> None:
    if context.positions is not None:
        raise ValueError("in this mode the network reads whole rows from position 0; leave out Context(positions=…)")


def _prepend_start(
    tokens: Tensor, pad: Tensor | None, position: Tensor | None, start: int, past: KeyValueCache
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Tokens, padding and slots with a start token: it takes slot 0 (unless cached), and token i takes slot i + 1."""
    slot = 1 + (torch.arange(tokens.shape[1], device=tokens.device)[None] if position is None else position)
    if past.columns:
        return tokens, pad, slot
    return F.pad(tokens, (1, 0), value=start), None if pad is None else F.pad(pad, (1, 0)), F.pad(slot, (1, 0))


def _cached_states(tokens: Tensor, h: Tensor, slot: Tensor | None, start_columns: int) -> _CachedStates | None:
    """The states of tokens read in one pass; None if the rows have different positions."""
    if slot is not None and len(slot) > 1:
        return None
    return _CachedStates(tokens, None, h, -start_columns if slot is None else int(slot[0, 0]) - start_columns)


def _last_state(h: Tensor, pad: Tensor | None, old: Tensor | None) -> Tensor:
    """(B, 1, D) the state of the last token of each row; the old one for a row that is all padding."""
    if pad is None:
        return h[:, -1:]
    last = ((~pad).cumsum(1) * ~pad).argmax(1)
    new = h.take_along_dim(last[:, None, None], 1)
    return new if old is None else torch.where(pad.all(1)[:, None, None], old.to(new.dtype), new)


def _require_level(level: Tensor | None) -> Tensor:
    if level is None:
        raise ValueError("this network sees the time (adaLN); give it noise levels of shape (B, 1) or (B, L)")
    return level
