"""When a row is over: an end token or a stop string, and nothing unwritten before it."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser, DenoiserWrapper


@runtime_checkable
class VectorReader(Protocol):
    """A denoiser that knows which tokens vectors stand for; `DiffusionLM` is one."""

    def to_tokens(self, canvas: Canvas) -> Canvas:
        """The canvas in tokens."""
        ...

    def to_vectors(self, canvas: Canvas) -> Canvas:
        """The inverse: a canvas of tokens as the denoiser reads it."""
        ...


def stop_rows(canvas: Canvas, end: int | None, written: Tensor | int, denoise: Denoiser) -> Canvas:
    """Finishes rows that have written the end token or a stop string: the rest is fixed, as end tokens or padding.

    `written`, (B, L) or a number of columns, marks what is no longer noise, which might look like the end token.
    """
    ending = canvas.context.ending if canvas.context.place is None else None  # a window does not hold the whole text
    if end is None and ending is None:
        return canvas
    if isinstance(written, int):
        written = torch.arange(canvas.z.shape[1], device=canvas.z.device) < written
    denoise = _innermost(denoise)
    tokens = _read(denoise, canvas)
    ends = (tokens.z == end) & ~canvas.fixed & written if end is not None else torch.zeros_like(canvas.fixed)
    after = ends.cumsum(-1) - ends.int() > 0
    if ending is not None:
        after = after | ending(tokens.z, canvas.fixed, written.expand_as(canvas.fixed))
    return _padded(canvas, after) if end is None else _filled(canvas, tokens, after, end, denoise)


def may_stop(stop: bool, canvas: Canvas) -> bool:
    """Whether rows may end early: at their end token, or at a stop string."""
    return stop or (canvas.context.ending is not None and canvas.context.place is None)


def _filled(canvas: Canvas, tokens: Canvas, after: Tensor, end: int, denoise: Denoiser) -> Canvas:
    full = replace(tokens, z=torch.full_like(tokens.z, end))
    z = denoise.to_vectors(full).z if canvas.z.dim() == 3 and isinstance(denoise, VectorReader) else full.z
    done = replace(canvas, fixed=canvas.fixed | ~after).write(z)
    return replace(done, fixed=canvas.fixed | after)


def _innermost(denoise: Denoiser) -> Denoiser:
    """The denoiser inside all guidance: it knows the tokens."""
    while isinstance(denoise, DenoiserWrapper):
        denoise = denoise.denoise
    return denoise


def _padded(canvas: Canvas, after: Tensor) -> Canvas:
    pad = canvas.context.pad
    context = replace(canvas.context, pad=after if pad is None else pad | after)
    return replace(canvas, fixed=canvas.fixed | after, context=context) if bool(after.any()) else canvas


def _read(denoise: Denoiser, canvas: Canvas) -> Canvas:
    """The canvas in tokens."""
    if canvas.z.dim() == 2:
        return canvas
    if isinstance(denoise, VectorReader):
        return denoise.to_tokens(canvas)
    raise ValueError(f"{type(denoise).__name__} cannot tell which vectors are the end token; leave out stop")
