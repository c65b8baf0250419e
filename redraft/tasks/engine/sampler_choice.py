"""Builds the requested sampler, and chooses how many rows to decode at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from redraft.core.canvas import Canvas
from redraft.core.tunable import Setting
from redraft.decoding.blocks.approximate_cache import ApproximateCache, DualCache, PrefixCache
from redraft.decoding.blocks.blocks import Blocks
from redraft.decoding.blocks.strides import SlidingWindow
from redraft.decoding.guidance.filters import LogitFilter
from redraft.decoding.registry import SAMPLER_NAMES, SOLVER_NAMES, as_sampler, named_sampler
from redraft.decoding.samplers.base import Sampler, SamplerWrapper
from redraft.decoding.samplers.guided import GuidedSampler
from redraft.tasks.arguments.setting import ArgumentError
from redraft.tasks.arguments.settings import DecodingSettings
from redraft.tasks.engine.model import TextModel

_FILTERS = (
    *("top_k", "top_p", "min_p", "repetition_penalty"),
    *("frequency_penalty", "presence_penalty", "logit_bias", "temperature"),
)
_MOST_STEPS = (
    100_000  # a hundred times what papers take: the error of a grid, which falls as 1/steps, is far below chance
)


def choose_sampler(
    model: TextModel, settings: DecodingSettings, hidden: int | None = None
) -> tuple[Sampler, tuple[str, ...]]:
    """The sampler of the run, or the one named in the settings, with their options applied; and notes for the user.

    Block-causal networks get any named sampler wrapped in `Blocks`. If the number of tokens to write (`hidden`) is
    known, steps beyond the number that can change anything are dropped.
    """
    sampler, notes = _requested_sampler(model, settings.sampler), tuple[str, ...]()
    if settings.decode_block is not None:
        sampler = _in_blocks(model, sampler, settings.decode_block)
    if settings.cache != "own":
        sampler = _with_cache(model, sampler, settings)
    if settings.window is not None:
        sampler = _in_windows(sampler, settings.window, settings)
        hidden = settings.window if hidden is None else min(hidden, settings.window)
    if settings.steps is not None:
        most = _MOST_STEPS if hidden is None else _cap_steps(model, sampler, hidden)
        sampler = _with_setting(sampler, "steps", min(settings.steps, most))
        if settings.steps > most:
            notes = (f"steps={settings.steps}: more than {most:,} would change nothing here; using {most:,}",)
    if settings.threshold is not None:
        sampler = _with_setting(sampler, "threshold", settings.threshold)
    sampler = _at_temperature(sampler, settings)
    return (_ending_last(model, sampler) if settings.end_token == "last" else sampler), notes


def _requested_sampler(model: TextModel, requested: object) -> Sampler:
    """The sampler of the run ("own"), the one of this name or of a pick, or the one given."""
    if requested == "own":
        return model.sampler
    if not isinstance(requested, str):
        return _given_sampler(requested)
    if (requested in SOLVER_NAMES) != model.lm.process.vectors and requested != "ancestral":
        kind = "vectors" if model.lm.process.vectors else "tokens"
        names = ", ".join(["ancestral", *SOLVER_NAMES] if model.lm.process.vectors else SAMPLER_NAMES)
        raise ArgumentError("sampler", f"sampler={requested!r}: this model draws {kind}; use one of {names}")
    named = named_sampler(requested)
    return named if model.lm.block is None else Blocks(named, stop=True)


def _given_sampler(given: object) -> Sampler:
    try:
        return as_sampler(given)
    except TypeError:
        raise ArgumentError(
            "sampler", f"sampler={given!r}: it must be a name, or an object derived from redraft.Sampler or Pick"
        ) from None


def _ending_last(model: TextModel, sampler: Sampler) -> Sampler:
    """The sampler with a pick that writes end tokens last, including tokens that end a chat turn."""
    end = model.lm.config.vocab.eos
    changed = sampler.with_end_tokens_last(tuple(sorted({*model.turn_ends, *(() if end is None else (end,))})))
    if changed is None:
        raise ArgumentError("end_token", "end_token='last' needs the sampler confidence, margin or entropy")
    return changed


def forbid_end_token(canvas: Canvas) -> Canvas:
    """The canvas, with end tokens forbidden everywhere."""
    return canvas.with_constraints(no_end_token=torch.ones_like(canvas.fixed))


def _at_temperature(sampler: Sampler, settings: DecodingSettings) -> Sampler:
    """Sets the temperature of the pick, or 1 if the filter applies the temperature instead."""
    if settings.temperature is None:
        return sampler
    if settings.temperature > 0 and not sampler.has_setting("temperature"):
        return sampler
    return _with_setting(sampler, "temperature", 1.0 if _warmed(settings) else settings.temperature)


def _warmed(settings: DecodingSettings) -> bool:
    """Whether the filter applies the temperature, which must come before top-k, top-p and min-p."""
    dropping = any(value is not None for value in (settings.top_k, settings.top_p, settings.min_p))
    return dropping and bool(settings.temperature)


def _with_filters(model: TextModel, sampler: Sampler, settings: DecodingSettings) -> Sampler:
    """The sampler with the requested filters, which apply before rules do."""
    temperature = settings.temperature if _warmed(settings) or not sampler.has_setting("temperature") else None
    chosen = LogitFilter(
        repetition=1.0 if settings.repetition_penalty is None else settings.repetition_penalty,
        temperature=1.0 if temperature is None else temperature,
        top_k=settings.top_k,
        top_p=1.0 if settings.top_p is None else settings.top_p,
        min_p=0.0 if settings.min_p is None else settings.min_p,
        frequency=settings.frequency_penalty or 0.0,
        presence=settings.presence_penalty or 0.0,
        bias=settings.token_biases,
    )
    if chosen == LogitFilter():
        return sampler
    if model.lm.process.vectors:
        name = next(name for name in _FILTERS if _given(settings, name))
        raise ArgumentError(name, f"{name}=… filters tokens; this model draws vectors: leave it out")
    _require_countable(model, settings, chosen)
    return GuidedSampler(sampler, chosen)


def _require_countable(model: TextModel, settings: DecodingSettings, chosen: LogitFilter) -> None:
    """Raises if penalties could not tell which tokens were written, or if a biased token does not exist."""
    process = model.lm.process
    if chosen.penalizes and (process.grows or not process.fills_masks):
        name = "frequency_penalty" if chosen.frequency else "presence_penalty"
        noise = type(process).__name__
        raise ArgumentError(
            name,
            f"{name}=… counts the tokens written so far, which {noise} does not keep; it needs a model with mask noise",
        )
    size = model.lm.config.vocab.size
    if unknown := [token for token, _ in chosen.bias if token >= size]:
        raise ArgumentError("logit_bias", f"logit_bias=…: there is no token {unknown[0]}; ids are from 0 to {size - 1}")


def _given(settings: DecodingSettings, name: str) -> bool:
    return getattr(settings, name) is not None


def _in_blocks(model: TextModel, sampler: Sampler, size: int) -> Sampler:
    """The sampler, decoding left to right in blocks of `size` tokens; its steps then count per block."""
    if model.lm.block not in (None, size):
        raise ArgumentError(
            "decode_block", f"decode_block={size}: this network has blocks of {model.lm.block}; leave it out"
        )
    return sampler.in_blocks(size) or Blocks(sampler, decode_block=size, stop=True)


def _in_windows(sampler: Sampler, window: int, settings: DecodingSettings) -> SlidingWindow:
    """The sampler, writing window after window; its steps then count per window."""
    stop = sampler.stops_at_end_token and settings.end_token != "never"
    return SlidingWindow(sampler, window, settings.stride or max(1, window // 2), stop=stop)


def _with_cache(model: TextModel, sampler: Sampler, settings: DecodingSettings) -> Sampler:
    """The block sampler with the requested cache."""
    name, full = settings.cache, model.lm.block is None
    kind: bool | ApproximateCache = name == "exact"
    if name in ("prefix", "dual"):
        kind = (PrefixCache if name == "prefix" else DualCache)(settings.refresh)
    if kind and full == (name == "exact"):
        reason = "full attention, so no cache is exact" if full else "blocks, so its cache is exact"
        better = "dual" if full else "exact"
        raise ArgumentError("cache", f"cache={name!r}: this network has {reason}; use cache={better!r}")
    cached = sampler.with_cache(kind)
    if cached is None and kind:
        raise ArgumentError("cache", f"cache={name!r}: a cache needs decoding in blocks; set decode_block=… too")
    return sampler if cached is None else cached


def _cap_steps(model: TextModel, sampler: Sampler, hidden: int) -> int:
    """The number of steps beyond which more steps make no noticeable difference.

    `Unmask` writes at least one token per step, so it needs no more steps than tokens. For a time grid, the only error
    under mask noise comes from tokens that fall into the same step; with 1,000 steps per token this is rare.
    """
    if not model.lm.process.fills_masks:
        return _MOST_STEPS
    at_once = min(size for size in (hidden, model.lm.block, sampler.block_size) if size is not None)
    single = at_once == 1 and model.lm.config.network.time is None  # one token, drawn from the same x̂ at any time
    return at_once if single or sampler.writes_every_step else min(_MOST_STEPS, 1000 * at_once)


def batch_size(model: TextModel, sampler: Sampler | None, length: int, room: int = 0, most: int = 64) -> int:
    """Number of rows of `length` tokens to decode together. Raises if not even one fits the network or the memory.

    `room` is the number of tokens that insertion may add; it is reduced if the network has fewer positions.
    """
    lm, positions = model.lm, model.lm.config.network.positions
    whole = lm.codec is None or lm.codec.latents is None
    if positions is not None:
        room = max(0, min(room, positions - length))
    longest = length if sampler is None else sampler.longest_read(length)
    if positions is not None and whole and longest > positions:
        raise ValueError(
            f"{longest} tokens are too many: this network has {positions} positions; write fewer tokens, or window "
            f"after window with window={positions - 1}"
        )
    needed, free = (length + room) * model.bytes_per_token, model.free_memory
    if free is None:
        return most
    if needed > free:
        raise ValueError(
            f"a row of {length:,} tokens needs about {needed / 1e9:,.1f} GB of memory, but only {free / 1e9:,.1f} GB "
            "are free; write fewer tokens"
        )
    return int(min(most, max(1, free // 2 // needed)))


@dataclass(frozen=True)
class _TruncatedSampler(SamplerWrapper):
    """A sampler that decodes whole rows, and marks all but the first `size` tokens as padding."""

    sampler: Sampler
    size: int

    def __call__(self, denoise: Any, process: Any, canvas: Canvas, *, rng: Any) -> Iterator[Canvas]:
        rest = torch.arange(canvas.z.shape[1], device=canvas.z.device).expand_as(canvas.fixed) >= self.size
        for written in self.sampler(denoise, process, canvas, rng=rng):
            yield replace(written, context=replace(written.context, pad=rest))


def _with_setting(sampler: Sampler, name: Setting, value: float) -> Sampler:
    """The sampler with another value of a setting; raises an ArgumentError if it has no such setting."""
    if sampler.has_setting(name):
        return sampler.with_setting(name, value)
    alternatives = {
        "steps": "any sampler but first-hitting",
        "temperature": "one with a pick, such as confidence",
        "threshold": "threshold or klass",
    }
    raise ArgumentError(name, f"{sampler} has no {name}; use sampler=… to choose {alternatives[name]}")
