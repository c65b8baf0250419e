"""Early stopping: a row ends at an end token or a stop string once everything before it is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser, DenoiserWrapper


@runtime_checkable
class _VectorReader(Protocol):
    """A denoiser that converts between tokens and vectors, such as `DiffusionLM`."""

    def to_tokens(self, canvas: Canvas) -> Canvas:
        """Decode a canvas of vectors to tokens."""
        ...

    def to_vectors(self, canvas: Canvas) -> Canvas:
        """Encode a canvas of tokens to vectors."""
        ...


def stop_rows(canvas: Canvas, end: int | None, written: Tensor | int, denoise: Denoiser) -> Canvas:
    """Finish rows with an end token or a stop string: fix everything after it, as end tokens or padding.

    end: id of the end token; None to stop at stop strings only.
    written: (B, L) bool, or a number of leading columns. The rest is still noise, which might look like an end token.
    """
    stops = (
        canvas.context.constraints.stop_strings if canvas.context.positions is None else None
    )  # windows do not hold the whole text
    if end is None and stops is None:
        return canvas
    if isinstance(written, int):
        written = torch.arange(canvas.z.shape[1], device=canvas.z.device) < written
    denoise = _innermost(denoise)
    tokens = _token_canvas(denoise, canvas)
    ends = (tokens.z == end) & ~canvas.fixed & written if end is not None else torch.zeros_like(canvas.fixed)
    after = ends.cumsum(-1) - ends.int() > 0
    if stops is not None:
        after = after | stops(tokens.z, canvas.fixed, written.expand_as(canvas.fixed))
    return _pad_after_end(canvas, after) if end is None else _fill_with_end_tokens(canvas, tokens, after, end, denoise)


def may_stop(stop: bool, canvas: Canvas) -> bool:
    """Whether rows may end early, at an end token or a stop string."""
    return stop or (canvas.context.constraints.stop_strings is not None and canvas.context.positions is None)


def _fill_with_end_tokens(canvas: Canvas, tokens: Canvas, after: Tensor, end: int, denoise: Denoiser) -> Canvas:
    """Write and fix end tokens at `after`, (B, L) bool; `tokens` is the canvas in tokens."""
    full = replace(tokens, z=torch.full_like(tokens.z, end))
    z = denoise.to_vectors(full).z if canvas.z.dim() == 3 and isinstance(denoise, _VectorReader) else full.z
    done = replace(canvas, fixed=canvas.fixed | ~after).write(z)
    return replace(done, fixed=canvas.fixed | after)


def _innermost(denoise: Denoiser) -> Denoiser:
    """Return the denoiser inside all guidance, which can decode vectors."""
    while isinstance(denoise, DenoiserWrapper):
        denoise = denoise.denoise
    return denoise


def _pad_after_end(canvas: Canvas, after: Tensor) -> Canvas:
    """Turn the positions `after`, (B, L) bool, into fixed padding."""
    pad = canvas.context.pad
    context = replace(canvas.context, pad=after if pad is None else pad | after)
    return replace(canvas, fixed=canvas.fixed | after, context=context) if bool(after.any()) else canvas


def _token_canvas(denoise: Denoiser, canvas: Canvas) -> Canvas:
    """Return the canvas in tokens, decoded if it holds vectors."""
    if canvas.z.dim() == 2:
        return canvas
    if isinstance(denoise, _VectorReader):
        return denoise.to_tokens(canvas)
    raise ValueError(f"{type(denoise).__name__} cannot decode vectors to find the end token; leave out stop")
