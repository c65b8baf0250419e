"""One transformer for every method: GPT-2, Llama, Qwen and the DiT of the diffusion papers are settings of it."""

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
from redraft.models.networks.forward_pass import ForwardPass, PassExecutor, PassOutput
from redraft.models.networks.incremental import _grow_buffer, _run_row
from redraft.models.networks.kv_cache import CachedStates, KeyValue, KeyValueCache, TokenPositions
from redraft.models.networks.layers import (
    Block,
    EncodedSource,
    GapHead,
    LayerInputs,
    Norm,
    QueryPositions,
    TimeEmbedding,
    _modulation,
)
from redraft.models.networks.linear import LoraEmbedding, init_weights


class Transformer(nn.Module):
    """(B, L) ids, the noise level and a context → (B, L, D) hidden states; `logits` is the output layer.

    Instead of ids it may read (B, L, `ports.reads`) vectors.
    """

    def __init__(self, config: TransformerConfig, ports: NetworkIO) -> None:
        super().__init__()
        self.config, self.ports = config, ports
        self.recompute = False  # gradient checkpointing: set by the training loop
        self.merger: PassExecutor | None = None  # many writers on one network: set by the server
        self.even = False  # whether a token gets the same bits in any company: set with packed weights
        least = 0 if ports.vectors else config.ids or 0
        self.embedding = _embedding(config, ports, max(ports.reads, least))
        self.nothing = None if ports.cross is None else nn.Parameter(torch.zeros(ports.cross))  # no source
        self.position = nn.Embedding(config.positions, config.width) if config.positions else None
        self.time = TimeEmbedding(config.time, config.classes) if config.time else None
        self.blocks = nn.ModuleList(Block(config, ports.cross) for _ in range(config.layers))
        self.norm = Norm(config, config.width)
        self.modulation = nn.Linear(config.time, 2 * config.width) if config.time else None
        own = None if config.tied else ports.writes
        self.output = None if own is None else nn.Linear(config.width, max(own, least), bias=config.head_bias)
        self.gaps = None if config.gaps is None else GapHead(config, config.gaps)
        self.initialise()

    def forward(
        self,
        tokens: Tensor,
        level: Tensor | None = None,
        context: Context = Context(),
        at: Tensor | None = None,
    ) -> Tensor:
        """level: (B, 1) or (B, L) noise level in the network's own units; ignored by a network that does not see time.

        With a cache, `context.place` says where the tokens stand; those that the cache holds there are not seen. With
        `at`, N numbers row · L + column in the order of rows, only the states there are computed and returned, (N, D):
        the last block has only their queries.
        """
        pattern = self.config.pattern
        if context.label is not None and self.config.classes is None:
            raise ValueError("this network has no labels; give none, or set classes=how many")
        if context.cond is not None and self.ports.cross is None:
            raise ValueError("this network reads no source; give none, or build the model with an encoder")
        _require_place(tokens, context)
        if context.pattern is not None:  # the row as it stands
            _require_whole(context)
            return self._run(tokens, level, context, at)[0]
        if isinstance(pattern, Causal):
            return (self._continued if self.ports.start is None else self._causal)(tokens, context, at)
        if isinstance(pattern, BlockCausal) and context.clean is not None:
            return self._two_streams(tokens, level, context, pattern, at)
        said = _past(context).said
        if said is not None and context.place is not None:
            h = said.again(tokens, level, context.place)
            if h is not None:
                return h if at is None else h.flatten(0, 1)[at]
        return self._run(tokens, level, context, at)[0]

    def with_gaps(self, tokens: Tensor, level: Tensor | None, context: Context = Context()) -> tuple[Tensor, Tensor]:
        """(B, L) ids → (B, L, D) hidden states, and what they predict for the gap before each token (see `GapHead`).

        The gap at the end of a text needs a token after it too: append one, say padding, to the ids.
        """
        if self.gaps is None:
            raise ValueError("this network has no layer for gaps; insertion needs TransformerConfig(gaps=longest gap)")
        _require_whole(context)
        stand = TokenPositions.of(None, tokens, KeyValueCache())
        sight = AttentionMask.of(Full(), stand.place, 0, stand.keys, context.pad)
        h, time, _ = self._trunk(ForwardPass(tokens, level, stand, sight, context))
        return self.norm(h, *_modulation(self.modulation, time, 2)), self.gaps(h, time)

    @torch.no_grad()
    def absorb(
        self, tokens: Tensor, context: Context = Context(), level: Tensor | None = None, *, unfinished: bool = False
    ) -> KeyValueCache:
        """Tokens enter the cache at their places, and the state of the last one, which may predict the next.

        Under full attention that is an approximation: what is read later is not seen by the tokens in the cache.
        level: the noise level, for tokens that are not finished; None: they are clean.
        unfinished: whether a block of a block-causal network will change, so that what is kept of it is approximate.
        """
        _require_place(tokens, context)
        past, pad, place = _past(context), context.pad, context.place
        if isinstance(self.config.pattern, Causal) and self.ports.start is not None:
            tokens, pad, place = _begun(tokens, pad, place, self.ports.start, past)
            past = replace(past, before=1)
        if tokens.shape[1] == 0:
            return past
        if self._leanly(tokens, context, pad, past, place):
            return self._absorb_row(tokens, past, place)
        level = torch.zeros(tokens.shape[0], 1, device=tokens.device) if level is None else level
        h, kept, missing = self._run(self._seen(tokens), level, replace(context, pad=pad, cache=past, place=place))
        layers = tuple((k.contiguous(), v.contiguous()) for k, v in kept)  # not views of all that a layer computed
        if unfinished and isinstance(self.config.pattern, BlockCausal):
            held = _read_last(tokens, h, place, 0)
            return KeyValueCache(layers, missing, past.ahead, exact=False, said=held and replace(held, level=level))
        if not isinstance(self.config.pattern, Full):
            said = _read_last(tokens, h, place, past.before) if isinstance(self.config.pattern, Causal) else None
            return KeyValueCache(layers, missing, _ahead(h, pad, past.ahead), past.before, past.exact, said)
        whole = context.place is None and tokens.dim() == 2
        said = CachedStates(tokens, None if self.time is None else level, h) if whole else None
        return KeyValueCache(layers, missing, _ahead(h, pad, past.ahead), exact=False, said=said)

    def read_on(self, tokens: Tensor, past: KeyValueCache = KeyValueCache()) -> tuple[Tensor, KeyValueCache]:
        """Tokens right behind those of a cache, under causal attention whatever the network's own is.

        (B, L) → (B, L, D) their states, and the cache with them: of a network adapted from a causal one, adapter off,
        what the causal one reads.
        """
        place = torch.arange(past.columns, past.columns + tokens.shape[1], device=tokens.device)[None]
        h, kept, missing = self._run(tokens, None, Context(cache=past, place=place, pattern=Causal()))
        return h, KeyValueCache(tuple(kept), missing)

    def _leanly(
        self, tokens: Tensor, context: Context, pad: Tensor | None, past: KeyValueCache, place: Tensor | None
    ) -> bool:
        """Whether these are the next tokens of one row of a plain causal network, in fp32 on a CPU."""
        c, (B, L) = self.config, tokens.shape[:2]
        plain = isinstance(c.pattern, Causal) and not c.qk_norm and self.ports.cross is None and self.merger is None
        alone = (
            B == 1
            and pad is None
            and past.missing is None
            and tokens.is_cpu
            and not self.training
            and not torch.is_autocast_enabled("cpu")
        )
        return plain and alone and (0 if place is None else int(place[0, 0])) == past.columns and (self.even or L < 65)

    def _absorb_row(self, tokens: Tensor, past: KeyValueCache, place: Tensor | None) -> KeyValueCache:
        h = self.embedding(self._seen(tokens[0]))
        if self.position is not None:
            at = torch.arange(past.columns, past.columns + len(h), device=h.device)
            h = h + self.position(_require_known_positions(at, None, self.position.num_embeddings))
        shelf = _grow_buffer(past, self.config, len(h), h)
        parts = h[None].split(64, 1) if self.even else (h[None],)
        blocks = cast("list[Block]", list(self.blocks))
        states = self.norm(torch.cat([_run_row(blocks, part, shelf, even=self.even) for part in parts], 1))
        said = _read_last(tokens, states, place, past.before)
        return KeyValueCache(shelf.layers(), None, states[:, -1:], past.before, past.exact, said, shelf, shelf.cuts)

    @torch.no_grad()
    def peek(self, h: Tensor, past: KeyValueCache) -> Tensor:
        """(1, n, D) embedded inputs right after what a causal network has read → their states; the cache stays."""
        shelf = _grow_buffer(past, self.config, h.shape[1], h)
        filled = shelf.filled
        states = _run_row(cast("list[Block]", list(self.blocks)), h, shelf, even=self.even)
        shelf.filled = filled
        return self.norm(states)

    def logits(self, h: Tensor) -> Tensor:
        """(…, D) → (…, V)"""
        return self.read_out(h) if self.merger is None else self.merger.logits(h)

    def read_out(self, h: Tensor) -> Tensor:
        """The output layer, for these states alone."""
        return F.linear(h, self.embedding.weight) if self.output is None else self.output(h)

    def _source(self, context: Context, like: Tensor) -> EncodedSource | None:
        """What cross attention reads: the encoded source, or the learned state that stands for none."""
        if self.nothing is None:
            return None
        if context.cond is None:
            return EncodedSource(self.nothing.expand(len(like), 1, -1), None)
        pad = context.cond_pad
        return EncodedSource(context.cond, None if pad is None else ~pad[:, None, None])

    def _causal(self, tokens: Tensor, context: Context, at: Tensor | None) -> Tensor:
        """Hidden states that predict each token from those before it: slot i holds token i − 1."""
        past, pad, place = _past(context), context.pad, context.place
        if past.ahead is not None and place is not None:
            h = past.ahead
            if tokens.shape[1] > 1:
                short = replace(context, pad=None if pad is None else pad[:, :-1], place=place[:, :-1] + 1)
                later = self._run(tokens[:, :-1], None, short)[0]
                h = torch.cat([h.to(later.dtype), later], 1)
            return h if at is None else h.flatten(0, 1)[at]
        _require_whole(context)
        stream = tokens if context.clean is None else context.clean
        slots = F.pad(stream[:, :-1], (1, 0), value=self.ports.start)
        shifted = replace(context, pad=None if pad is None else F.pad(pad[:, :-1], (1, 0)), cache=None)
        return self._run(slots, None, shifted, at)[0]

    def _continued(self, tokens: Tensor, context: Context, at: Tensor | None) -> Tensor:
        """Hidden states of the row as it stands."""
        stream = tokens if context.clean is None else context.clean
        return self._run(self._seen(stream), None, context, at)[0]

    def _seen(self, tokens: Tensor) -> Tensor:
        """The ids of a row as it stands, any for the mask: it has no embedding, and nobody looks back at it."""
        return tokens.clamp(max=self.embedding.weight.shape[0] - 1) if self.ports.start is None else tokens

    def _two_streams(
        self, tokens: Tensor, level: Tensor | None, context: Context, pattern: BlockCausal, at: Tensor | None
    ) -> Tensor:
        """Block diffusion trained in one pass: [noisy; clean], both at positions 0..L−1; the noisy half is read."""
        assert context.clean is not None
        _require_whole(context)
        (B, L), pad = tokens.shape[:2], context.pad
        pos = torch.arange(L, device=tokens.device)
        if level is not None:
            level = F.pad(level.expand(B, L), (0, L))
        columns = torch.arange(2 * L, device=tokens.device)
        sight = AttentionMask.of(
            pattern.streams(pos), columns, 0, 2 * L, None if pad is None else torch.cat([pad, pad], 1)
        )
        both = torch.cat([tokens, context.clean], 1)
        at_noisy = torch.arange(B * L, device=tokens.device) if at is None else at
        asked = QueryPositions.of(self.stream_places(at_noisy, L, pattern.block), B, 2 * L)
        stand = TokenPositions(B, pos.repeat(2), 2 * L, 0)
        h = self._layers(ForwardPass(both, level, stand, sight, context, at=asked))[0]
        return h.unflatten(0, (B, L)) if at is None else h

    def stream_places(self, at: Tensor, length: int, block: int) -> Tensor:
        """Numbers row · L + column of states → row · 2L + column in [noisy; clean].

        With `NetworkIO.finished` the state before a block, which predicts its first token, is that of the clean stream.
        """
        row, column = at // length, at % length
        clean = (column % block == block - 1) if self.ports.finished else torch.zeros_like(at)
        return row * 2 * length + column + clean * length

    def _run(
        self, tokens: Tensor, level: Tensor | None, context: Context, at: Tensor | None = None
    ) -> tuple[Tensor, list[KeyValue], Tensor | None]:
        """One stream, at its places among what the cache holds; also all keys and values, and which are missing."""
        past = _past(context)
        stand = TokenPositions.of(context.place, tokens, past)
        missing = stand.missing(past, context.pad)
        pattern = context.pattern if isinstance(context.pattern, AttentionPattern) else self.config.pattern
        sight = AttentionMask.of(pattern, stand.place, stand.first or 0, stand.keys, missing)
        asked = None if at is None else QueryPositions.of(at, *tokens.shape[:2])
        h, kept = self._layers(ForwardPass(tokens, level, stand, sight, context, past, asked))
        return h, kept, missing

    def _layers(self, one: ForwardPass) -> tuple[Tensor, list[KeyValue]]:
        """Normed hidden states (B, L, D), or (N, D) where asked, and each layer's keys and values."""
        h, time, kept = self._trunk(one)
        return self.norm(h, *_modulation(self.modulation, time, 2)), kept

    def _trunk(self, one: ForwardPass) -> PassOutput:
        return self.trunk(one) if self.merger is None else self.merger.trunk(one)

    def trunk(self, one: ForwardPass) -> PassOutput:
        """All layers but the last norm, for this pass alone."""
        c, stand, at, h = self.config, one.stand, one.at, self.embedding(one.tokens)
        if self.position is not None:
            h = h + self.position(_require_known_positions(stand.place, one.context.pad, self.position.num_embeddings))
        h = dropout(h, c.dropout, self.training)
        rotary = None if c.rotary is None else RotaryEmbedding.of(stand.place, c.head_width, c.rotary, c.slowed)
        time = None if self.time is None else self.time(_level(one.level), one.context.label)
        mask = None if one.sight is None else one.sight.mask(c.head_width)
        view = LayerInputs(stand, time, rotary, one.sight, mask, self._source(one.context, one.tokens))
        kept = []
        for i, block in enumerate(self.blocks):
            args = (h, view, one.past.layer(i), at if i == c.layers - 1 else None)
            h, new = checkpoint(block, *args, use_reentrant=False) if self.recompute else block(*args)
            kept.append(new)
        return PassOutput(h, time if at is None or time is None else time.at(at), kept)

    @torch.no_grad()
    def initialise(self) -> None:
        """Every layer sets its first weights, in the order of `named_parameters`, so that a seed gives one network.

        Matrices are scaled by fan-in; those that write into the residual start smaller, modulation and output at zero.
        """
        if self.nothing is not None:
            self.nothing.normal_(0, 0.02)
        self._initialise_inputs()
        for layer in (self.time, *self.blocks, self.norm):
            if layer is not None:
                layer.initialise()
        for last in (self.modulation, self.output):
            if last is not None:
                init_weights(last, 0)
        if self.gaps is not None:
            self.gaps.initialise()

    def _initialise_inputs(self) -> None:
        """Vectors are noisy, so positions count more at first."""
        vectors = self.ports.vectors
        init_weights(self.embedding, 0.1 * self.ports.reads**-0.5 if vectors else 0.02)
        if self.position is not None:
            init_weights(self.position, 0.5 if vectors else 0.02)

    def hidden_matrices(self) -> list[nn.Parameter]:
        """The matrices of all blocks that stand between hidden states."""
        return [p for block in cast("Iterable[Block]", self.blocks) for p in block.matrices()]


def _embedding(config: TransformerConfig, ports: NetworkIO, size: int) -> nn.Linear | nn.Embedding:
    if config.lora is not None and config.lora.mask_row and ports.mask is not None:
        return LoraEmbedding(size, config.width, ports.mask)
    return (nn.Linear if ports.vectors else nn.Embedding)(size, config.width)


@contextmanager
def record_layer_states(network: Transformer) -> Iterator[list[Tensor]]:
    """While it lasts, collects what each layer of a pass gives, (B, L, D) or (N, D) where asked; the last is normed."""
    seen: list[Tensor] = []
    last = len(network.blocks) - 1
    hooks = [
        block.register_forward_hook(lambda _, __, out, i=i: seen.append(network.norm(out[0]) if i == last else out[0]))
        for i, block in enumerate(network.blocks)
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


@runtime_checkable
class HasHiddenMatrices(Protocol):
    """A module with hidden layers, which can tell their matrices from those that read or write something else."""

    def hidden_matrices(self) -> list[nn.Parameter]: ...


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """The matrices between hidden states of all networks in a model: those that Muon trains."""
    return [p for module in model.modules() if isinstance(module, HasHiddenMatrices) for p in module.hidden_matrices()]


def _require_known_positions(place: Tensor, pad: Tensor | None, known: int) -> Tensor:
    """The places, all of which must be known; rows of different lengths may have padding beyond."""
    if place.dim() == 2 and pad is not None:
        place = place.masked_fill(pad, 0)
    last = int((place if place.dim() == 2 else place[-1:]).max()) if place.numel() else -1
    if last >= known:
        raise ValueError(f"{last + 1} tokens are too many: this network knows {known} positions; write fewer tokens")
    return place


def _past(context: Context) -> KeyValueCache:
    cache = context.cache if isinstance(context.cache, KeyValueCache) else KeyValueCache()
    if cache.shelf is not None and not cache.shelf.still_holds(cache):
        raise ValueError("some tokens of this cache were cropped and others took their place; use the cropped cache")
    return cache


def cached_states(context: Context) -> Tensor | None:
    """(B, L, D) of a causal network: the states that predict the tokens `clean`, if the cache has just read these."""
    said = _past(context).said
    if said is None or context.place is None or context.clean is None:
        return None
    return said.before(context.place, context.clean)


def _require_place(tokens: Tensor, context: Context) -> None:
    place, (B, L) = context.place, tokens.shape[:2]
    if place is not None and tuple(place.shape) not in ((1, L), (B, L)):
        raise ValueError(f"place must be ({B}, {L}) as the tokens, or (1, {L}) for all rows, not {tuple(place.shape)}")
    if context.place is None and _past(context).columns:
        raise ValueError("the cache holds tokens already; say where the new ones stand: Context(place=…)")


def _require_whole(context: Context) -> None:
    if context.place is not None:
        raise ValueError("here a network reads whole rows from their beginning: leave out Context(place=…)")


def _begun(
    tokens: Tensor, pad: Tensor | None, place: Tensor | None, start: int, past: KeyValueCache
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Tokens, padding and slots of a causal network: token i stands in slot i + 1, the start token in slot 0."""
    slot = 1 + (torch.arange(tokens.shape[1], device=tokens.device)[None] if place is None else place)
    if past.columns:
        return tokens, pad, slot
    return F.pad(tokens, (1, 0), value=start), None if pad is None else F.pad(pad, (1, 0)), F.pad(slot, (1, 0))


def _read_last(tokens: Tensor, h: Tensor, place: Tensor | None, before: int) -> CachedStates | None:
    """The states of tokens that a causal network has read in one pass, if all rows stand alike."""
    if place is not None and len(place) > 1:
        return None
    return CachedStates(tokens, None, h, -before if place is None else int(place[0, 0]) - before)


def _ahead(h: Tensor, pad: Tensor | None, old: Tensor | None) -> Tensor:
    """(B, 1, D) the state at the last token of each row; of a row that has none here the old one."""
    if pad is None:
        return h[:, -1:]
    last = ((~pad).cumsum(1) * ~pad).argmax(1)
    now = h.take_along_dim(last[:, None, None], 1)
    return now if old is None else torch.where(pad.all(1)[:, None, None], old.to(now.dtype), now)


def _level(level: Tensor | None) -> Tensor:
    if level is None:
        raise ValueError("this network sees time (adaLN): give it a noise level of shape (B, 1) or (B, L)")
    return level
