"""The transformer of every method; GPT-2, Llama, Qwen and the DiT of the diffusion papers are settings of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core.canvas import Context
from redraft.models.networks.config import NetworkIO, TransformerConfig
from redraft.models.networks.executors.base import Executor
from redraft.models.networks.executors.dense import Dense
from redraft.models.networks.executors.row import Row
from redraft.models.networks.forward_pass import ForwardPass, PassOutput, Query, _EncodedSource, _TimeEmbeddings
from redraft.models.networks.kv_cache import KeyValueCache
from redraft.models.networks.layers import Block, Norm, _GapHead, _modulation, _TimeEmbedding
from redraft.models.networks.linear import LoraEmbedding, _Embedding, init_weights
from redraft.models.networks.patterns import AttentionPattern, Causal, Full, read_plainly


class Transformer(nn.Module):
    """A transformer: (B, L) ids, noise levels and a context → (B, L, D) hidden states; `logits` is its output layer.

    Networks for vectors read (B, L, `io.reads`) vectors instead of ids.
    """

    def __init__(self, config: TransformerConfig, io: NetworkIO) -> None:
        super().__init__()
        self.config, self.io = config, io
        self.executor: Executor = Row(Dense())
        self._counters: list[Callable[[int], None]] = []  # called with the number of rows of each pass
        least = 0 if io.vectors else config.padded_vocab or 0
        self.embedding = _embedding(config, io, max(io.reads, least))
        self.nothing = None if io.cross is None else nn.Parameter(torch.zeros(io.cross))  # the state of "no source"
        self.position = _Embedding(config.positions, config.width) if config.positions else None
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
        query = self._query(tokens, level, context, at)
        own, pattern = self.config.pattern, cast("AttentionPattern | None", context.pattern)
        stream = own.stream(query) if pattern is None else own.stream_with(query, pattern)
        return stream.states(None if stream.forward_pass is None else self.run(stream.forward_pass).h)

    def with_gaps(self, tokens: Tensor, level: Tensor | None, context: Context = Context()) -> tuple[Tensor, Tensor]:
        """(B, L) ids → (B, L, D) hidden states, and the outputs of `_GapHead` for the gap before each token.

        For the gap at the end of a text, append one more token (such as padding) to the ids.
        """
        if self.gaps is None:
            raise ValueError("this network has no head for gaps; insertion needs TransformerConfig(gaps=longest gap)")
        query = self._query(tokens, level, replace(context, cache=None))
        query.require_whole()
        read = read_plainly(query, Full()).forward_pass
        assert read is not None
        h, time, *_ = self._trunk(read)
        return self._normed(h, time), self.gaps(h, time)

    @torch.no_grad()
    def absorb(
        self, tokens: Tensor, context: Context = Context(), level: Tensor | None = None, *, unfinished: bool = False
    ) -> KeyValueCache:
        """Return the cache with these tokens added at their positions, and with the state of the last one.

        Under full attention the cache is approximate: its tokens do not attend to tokens that are read later.

        level: noise levels of the tokens; None if they are clean.
        unfinished: whether a block of a block-causal network will still change, so that its cache is approximate.
        """
        level = torch.zeros(tokens.shape[0], 1, device=tokens.device) if level is None else level
        pattern = self.config.pattern
        query = pattern.cache_query(self._query(tokens, level, context))
        if query.tokens.shape[1] == 0:
            return query.past
        read = ForwardPass.of(pattern, query.tokens, level, query.context, query.past)
        read = replace(read, extends_cache=True)
        return pattern.next_cache(read, self.run(read), unfinished=unfinished)

    def extend(self, tokens: Tensor, past: KeyValueCache = KeyValueCache()) -> tuple[Tensor, KeyValueCache]:
        """(B, L) tokens right after those of a cache → (B, L, D) states, and the cache with these tokens added.

        Attention is causal whatever the network's own pattern. For a network adapted from a causal one, with its
        adapter off, these are the states of the causal network.
        """
        position = torch.arange(past.columns, past.columns + tokens.shape[1], device=tokens.device)[None]
        read = ForwardPass.of(Causal(), tokens, None, Context(positions=position), past)
        output = self.run(read)
        return output.h, KeyValueCache(tuple(output.key_values), read.missing)

    def on(self, executor: Executor) -> Transformer:
        """The same weights, run by another executor."""
        twin = copy(self)
        twin.executor = executor
        return twin

    @property
    def batch_invariant(self) -> bool:
        """Whether the output for a token is bit-identical, whatever else is in the batch, as with packed weights."""
        return bool(getattr(self.output, "batch_invariant", False))

    def run(self, forward_pass: ForwardPass) -> PassOutput:
        """Run one pass; its states are normed."""
        output = self._trunk(forward_pass)
        return output._replace(h=self._normed(output.h, output.time))

    def _trunk(self, forward_pass: ForwardPass) -> PassOutput:
        for count in self._counters:
            count(len(forward_pass.tokens))
        return self.executor.trunk(self, forward_pass)

    def _normed(self, h: Tensor, time: _TimeEmbeddings | None) -> Tensor:
        return cast(Tensor, self.norm(h, *_modulation(self.modulation, time, 2)))

    def logits(self, h: Tensor) -> Tensor:
        """(…, D) states → (…, V) logits, possibly batched with those of other requests."""
        return self.executor.logits(self, h)

    def project(self, h: Tensor) -> Tensor:
        """(…, D) states → (…, V) logits, computed at once, not together with other requests."""
        return F.linear(h, self.embedding.weight) if self.output is None else self.output(h)

    def replace_output(self, layer: nn.Module) -> None:
        """Use another form of the output layer's weights, for inference."""
        self.output = cast(nn.Linear, layer)

    def counting(self, count: Callable[[int], None]) -> AbstractContextManager[None]:
        """Call `count` with the number of rows of each pass of the caller, while the context is open."""
        return self.executor.counting(self, count)

    @contextmanager
    def count_rows(self, count: Callable[[int], None]) -> Iterator[None]:
        """Call `count` with the number of rows of each pass, while the context is open."""
        self._counters.append(count)
        try:
            yield
        finally:
            self._counters.remove(count)

    def embed(self, tokens: Tensor, position: Tensor) -> Tensor:
        """Tokens at positions of the same shape, or one that broadcasts → their embeddings (…, D).

        In a plain causal network the mask has no embedding; any other id will do, as no token attends to a later mask.
        """
        if self.io.start is None:
            tokens = tokens.clamp(max=self.embedding.weight.shape[0] - 1)
        h: Tensor = self.embedding(tokens)
        return h if self.position is None else h + self.position(position)

    def embed_times(self, level: Tensor | None, label: Tensor | None) -> _TimeEmbeddings | None:
        """Noise levels and labels → their embeddings; None if the network does not see the time."""
        if self.time is None:
            return None
        if level is None:
            raise ValueError("this network sees the time (adaLN); give it noise levels of shape (B, 1) or (B, L)")
        return cast(_TimeEmbeddings, self.time(level, label))

    def encoded_source(self, context: Context, like: Tensor) -> _EncodedSource | None:
        """The input of cross attention: the encoded source, or the learned state of "no source"."""
        if self.nothing is None:
            return None
        if context.condition.source is None:
            return _EncodedSource(self.nothing.expand(len(like), 1, -1), None)
        pad = context.condition.source_pad
        return _EncodedSource(context.condition.source, None if pad is None else ~pad[:, None, None])

    def _query(self, tokens: Tensor, level: Tensor | None, context: Context, at: Tensor | None = None) -> Query:
        if context.condition.label is not None and self.config.classes is None:
            raise ValueError("this network has no class labels; leave them out, or set classes in its config")
        if context.condition.source is not None and self.io.cross is None:
            raise ValueError("this network reads no source; leave it out, or build the model with an encoder")
        past = KeyValueCache.of(context)
        _require_positions(tokens, context, past)
        return Query(tokens, level, context, past, at, self.io.start, self.io.finished)

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
    return (nn.Linear if io.vectors else _Embedding)(size, config.width)


def _require_positions(tokens: Tensor, context: Context, past: KeyValueCache) -> None:
    positions, (B, L) = context.positions, tokens.shape[:2]
    if positions is not None and tuple(positions.shape) not in ((1, L), (B, L)):
        shape = tuple(positions.shape)
        raise ValueError(f"positions has shape {shape}; it must be ({B}, {L}), or (1, {L}) for all rows")
    if positions is None and past.columns:
        raise ValueError("the cache already holds tokens; give the positions of the new ones as Context(positions=…)")
