"""Which sampler writes, as it was asked for, and how many rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import torch

from redraft.core.canvas import Canvas
from redraft.core.processes.base import TokenProcess
from redraft.core.processes.masked import Masked
from redraft.decoding.blocks.approximate_cache import ApproximateCache, DualCache, PrefixCache
from redraft.decoding.blocks.blocks import Blocks
from redraft.decoding.blocks.multi_block import MultiBlock
from redraft.decoding.blocks.strides import SlidingWindow
from redraft.decoding.guidance.filters import LogitFilter
from redraft.decoding.picks.order import AnyOrder, EndTokensLast, LeftToRight, RankedPick
from redraft.decoding.samplers.ancestral import Ancestral, FirstHitting
from redraft.decoding.samplers.base import Sampler, sampler_layers
from redraft.decoding.samplers.editing import SDEdit
from redraft.decoding.samplers.guided import GuidedSampler, PromptGuidedSampler
from redraft.decoding.samplers.registry import SAMPLERS
from redraft.decoding.samplers.unmask import Unmask
from redraft.tasks.arguments.rules import ArgumentError
from redraft.tasks.arguments.settings import DecodingSettings
from redraft.tasks.engine.model import TextModel

MOST_STEPS = (
    100_000  # a hundred times what papers take: the error of a grid, which falls as 1/steps, is far below chance
)


def choose_sampler(
    it: TextModel, decoding: DecodingSettings, hidden: int | None = None
) -> tuple[Sampler, tuple[str, ...]]:
    """The run's own sampler or one by name, and what there is to note; networks that write blocks do so with any.

    More steps than can change anything are not taken, where it is known how many tokens a row has to get.
    """
    kind: Any = decoding.sampler
    sampler = it.sampler if kind == "own" else SAMPLERS[kind] if isinstance(kind, str) else kind
    notes: tuple[str, ...] = ()
    if kind in SAMPLERS and it.lm.block is not None:
        sampler = Blocks(sampler, stop=True)
    if decoding.decode_block is not None:
        sampler = _in_blocks(it, sampler, decoding.decode_block)
    if decoding.cache != "own":
        sampler = _with_cache(it, sampler, decoding)
    if decoding.steps is not None:
        most = MOST_STEPS if hidden is None else _cap_steps(it, sampler, hidden)
        sampler = _set(sampler, "steps", min(decoding.steps, most))
        if decoding.steps > most:
            notes = (f"steps={decoding.steps}: more than {most:,} would change nothing here; using {most:,}",)
    if decoding.threshold is not None:
        sampler = _set(sampler, "threshold", decoding.threshold)
    sampler = _at_temperature(sampler, decoding)
    return (_ending_last(it, sampler) if decoding.end_token == "last" else sampler), notes


def _ending_last(it: TextModel, sampler: Any) -> Any:
    """The sampler with a pick that leaves end tokens, also those of a turn, for last."""
    inside = next((name for name in ("sampler", "pick") if hasattr(sampler, name)), None)
    if isinstance(sampler, Unmask) and isinstance(sampler.pick, RankedPick):
        end = it.lm.config.vocab.eos
        ends = tuple(sorted({*it.turn_ends, *(() if end is None else (end,))}))
        return replace(sampler, pick=EndTokensLast(sampler.pick.temperature, sampler.pick, ends))
    if inside != "sampler":
        raise ArgumentError("end_token", "end_token='last' is for the samplers confidence, margin and entropy")
    return replace(sampler, sampler=_ending_last(it, sampler.sampler))


def forbid_end_token(canvas: Canvas) -> Canvas:
    """The canvas, on which no end token may be written."""
    inside = torch.ones_like(canvas.fixed)
    return replace(canvas, context=replace(canvas.context, inside=inside))


def _at_temperature(sampler: Sampler, decoding: DecodingSettings) -> Sampler:
    """The pick draws at the temperature, unless a filter does so before it drops tokens; 0 is always the pick's."""
    if decoding.temperature is None:
        return sampler
    if decoding.temperature > 0 and not _has(sampler, "temperature"):
        return sampler
    return _set(sampler, "temperature", 1.0 if _warmed(decoding) else decoding.temperature)


def _warmed(decoding: DecodingSettings) -> bool:
    """Whether the filter has the temperature: it comes before top-k, top-p and min-p."""
    dropping = any(value is not None for value in (decoding.top_k, decoding.top_p, decoding.min_p))
    return dropping and bool(decoding.temperature)


def _with_filters(it: TextModel, sampler: Sampler, decoding: DecodingSettings) -> Sampler:
    """The sampler with the filters that were asked for; on the denoiser they come inside of rules."""
    heat = decoding.temperature if _warmed(decoding) or not _has(sampler, "temperature") else None
    chosen = LogitFilter(
        repetition=1.0 if decoding.repetition_penalty is None else decoding.repetition_penalty,
        temperature=1.0 if heat is None else heat,
        top_k=decoding.top_k,
        top_p=1.0 if decoding.top_p is None else decoding.top_p,
        min_p=0.0 if decoding.min_p is None else decoding.min_p,
    )
    if chosen == LogitFilter():
        return sampler
    if not isinstance(it.lm.process, TokenProcess):
        name = next(n for n in ("top_k", "top_p", "min_p", "repetition_penalty", "temperature") if _given(decoding, n))
        raise ArgumentError(name, f"{name}=… filters tokens; this model draws vectors: leave it out")
    return GuidedSampler(sampler, chosen)


def _given(decoding: DecodingSettings, name: str) -> bool:
    return getattr(decoding, name) is not None


def _has(value: Any, name: str) -> bool:
    """Whether a sampler, what it is built around, or its pick has such a field."""
    if not is_dataclass(value):
        return False
    inside = next((f.name for f in fields(value) if f.name in ("sampler", name, "pick")), None)
    return inside == name or (inside is not None and _has(getattr(value, inside), name))


def _in_blocks(it: TextModel, sampler: Sampler, size: int) -> Sampler:
    """A sampler that writes left to right in blocks of `size` tokens; steps then count per block."""
    if it.lm.block not in (None, size):
        raise ArgumentError(
            "decode_block", f"decode_block={size}: this network writes blocks of {it.lm.block}; leave it out"
        )
    if isinstance(sampler, Blocks):
        return replace(sampler, decode_block=size)
    return Blocks(sampler, decode_block=size, stop=True)


def _with_cache(it: TextModel, sampler: Sampler, decoding: DecodingSettings) -> Sampler:
    """A sampler that writes in blocks, with another cache."""
    name, full = decoding.cache, it.lm.block is None
    kind: bool | ApproximateCache = name == "exact"
    if name in ("prefix", "dual"):
        kind = (PrefixCache if name == "prefix" else DualCache)(decoding.refresh)
    if kind and full == (name == "exact"):
        other = "full attention, so no cache is exact" if full else "blocks, so its cache is exact"
        better = "dual" if full else "exact"
        raise ArgumentError("cache", f"cache={name!r}: this network has {other}; use cache={better!r}")
    if isinstance(sampler, Blocks):
        return replace(sampler, cache=kind)
    if kind:
        raise ArgumentError("cache", f"cache={name!r}: a cache is for writing left to right; say decode_block=… too")
    return sampler


def _cap_steps(it: TextModel, sampler: Sampler, hidden: int) -> int:
    """As many steps as can change anything that one could notice.

    `Unmask` writes one token at each step at least. On a grid of a thousand steps for each token of mask noise two
    tokens hardly ever fall into the same step, and that they do is all that is wrong with a grid.
    """
    parts = list(sampler_layers(sampler))
    if not isinstance(it.lm.process, Masked):
        return MOST_STEPS
    sizes = [it.lm.block, *(part.decode_block for part in parts if isinstance(part, Blocks))]
    at_once = min([hidden, *(size for size in sizes if size is not None)])
    alone = at_once == 1 and it.lm.config.network.time is None  # one token, drawn from the same x̂ at any time
    by_turns = alone or any(isinstance(part, Unmask) for part in parts)
    return at_once if by_turns else min(MOST_STEPS, 1000 * at_once)


def _starts_from_draft(sampler: Sampler) -> bool:
    """Whether it begins with a draft."""
    return any(isinstance(part, SDEdit) for part in sampler_layers(sampler))


def _draws_exactly(part: Any) -> bool:
    """Whether a layer of a sampler draws what the prediction says: no filter, no pick that looks at what it drew."""
    if isinstance(part, Unmask | MultiBlock):
        return isinstance(part.pick, AnyOrder | LeftToRight) and part.pick.temperature == 1
    if isinstance(part, GuidedSampler):
        return not isinstance(part.guidance, LogitFilter)
    return isinstance(part, Ancestral | _TruncatedSampler | Blocks | FirstHitting | PromptGuidedSampler | SlidingWindow)


def batch_size(it: TextModel, sampler: Sampler | None, length: int, room: int = 0, most: int = 64) -> int:
    """How many rows of so many tokens are written together; refuses those that network or memory cannot hold.

    `room` is what insertion may write besides; a network of fewer positions makes it smaller.
    """
    model, known = it.lm, it.lm.config.network.positions
    whole = model.codec is None or model.codec.latents is None
    if known is not None:
        room = max(0, min(room, known - length))
    if (
        known is not None
        and whole
        and length > known
        and not any(isinstance(s, SlidingWindow) for s in sampler_layers(sampler))
    ):
        raise ValueError(f"{length} tokens are too many: this network knows {known} positions; write fewer tokens")
    need, free = (length + room) * it.bytes_per_token, it.free_memory
    if free is None:
        return most
    if need > free:
        raise ValueError(
            f"a row of {length:,} tokens needs about {need / 1e9:,.1f} GB of memory, but only {free / 1e9:,.1f} GB "
            "are free; write fewer tokens"
        )
    return int(min(most, max(1, free // 2 // need)))


@dataclass(frozen=True)
class _TruncatedSampler:
    """A sampler that writes whole rows, of which the first `size` tokens are wanted: the rest becomes padding."""

    sampler: Sampler
    size: int

    def __call__(self, denoise: Any, process: Any, canvas: Canvas, *, rng: Any) -> Iterator[Canvas]:
        rest = torch.arange(canvas.z.shape[1], device=canvas.z.device).expand_as(canvas.fixed) >= self.size
        for written in self.sampler(denoise, process, canvas, rng=rng):
            yield replace(written, context=replace(written.context, pad=rest))


_T = TypeVar("_T")


def with_steps(sampler: _T, steps: int) -> _T:
    """The sampler, or the one it is built around, with another number of steps; an ArgumentError if it has none."""
    return _set(sampler, "steps", steps)


def _set(value: _T, name: str, to: float) -> _T:
    """A sampler with a field of what it is built around, or of its own, replaced."""
    names = {field.name for field in fields(value)}  # type: ignore[arg-type]
    for inside in ("sampler", name, "pick"):
        if inside in names:
            changed = to if inside == name else _set(getattr(value, inside), name, to)
            return replace(value, **{inside: changed})  # type: ignore[type-var]
    able = {
        "steps": "all samplers but first-hitting",
        "temperature": "those of a pick, such as confidence,",
        "threshold": "the samplers threshold and klass",
    }
    raise ArgumentError(name, f"{value} has no {name}; {able[name]} have: sampler=… chooses one")
