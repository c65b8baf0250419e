"""Calls the user's function and checks the results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from redraft.core.randomness import rng
from redraft.core.schedules.base import Schedule
from redraft.core.schedules.tokens import Cosine, CosineSquared, Linear, Polynomial
from redraft.evaluation.referee.arrays import _generator_for, _to_tensor
from redraft.evaluation.referee.denoisers import _AuditDenoiser
from redraft.evaluation.referee.insertions import _InsertionDenoiser
from redraft.evaluation.referee.verdict import AuditEffort

_FEW = 1e-3  # fraction of rows that may not be finite

_SCHEDULES: dict[str, Schedule] = {
    "linear": Linear(),
    "cosine": Cosine(),
    "squared cosine": CosineSquared(),
    "t²": Polynomial(2.0),
}


def _parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's arguments."""
    return tuple(inspect.signature(function).parameters)


def _require_parameters(
    function: Callable[..., Any], what: str, needed: tuple[str, ...], extra: tuple[str, ...]
) -> None:
    """Raise an error if a function does not have the arguments of its kind."""
    given = _parameters_of(function)
    optional = {name for name, p in inspect.signature(function).parameters.items() if p.default is not p.empty}
    if given[: len(needed)] != needed or not set(given[len(needed) :]) <= {*extra, *optional}:
        more = f" (and may take {', '.join(extra)})" if extra else ""
        raise ValueError(
            f"{_name_of(function)}({', '.join(given)}): {what} takes ({', '.join(needed)}){more}; rename its arguments"
        )


def _name_of(thing: Any) -> str:
    """The name of a function, or of a callable object, in a verdict."""
    return str(getattr(thing, "__name__", type(thing).__name__))


class _CallSample(NamedTuple):
    """The result of one call on many copies of every sequence, averaged over the copies."""

    mean: Tensor  # (N,) mean over the copies
    variance: Tensor  # (N,) variance between the copies


def _sequence_calls(
    function: Callable[..., Any],
    denoise: _AuditDenoiser | _InsertionDenoiser,
    effort: AuditEffort,
    copies: int,
    **settings: Any,
) -> Iterator[_CallSample]:
    """Call a function of (x, denoise, rng) repeatedly on shuffled copies of every sequence of the language.

    Rows of one call may share random numbers (stratified times), so only different calls are independent.
    """
    x = denoise.language.toy.sequences
    generator, given = _generator_for(function, effort.seed)
    for keys in rng(effort.seed).steps():
        order = keys.uniform(copies * len(x))[0].argsort()
        each = torch.arange(len(x)).repeat(copies)[order]
        result = function(given(x[each]), denoise, generator, **settings)
        rows = torch.empty(len(order), dtype=torch.float64)
        rows[order] = _rows_of(result, x[each], _name_of(function))
        table = rows.view(copies, len(x))
        mean = table.nanmean(0)
        yield _CallSample(mean, (table - mean).square().nanmean(0))


def _copies_per_call(denoise: _AuditDenoiser | _InsertionDenoiser, effort: AuditEffort) -> int:
    """Return how many copies of each sequence a call gets; fewer where the denoiser computes a posterior per row."""
    batch = effort.batch // (1 if denoise.noise is None and denoise.length < 10 else 4)
    return max(2, batch // len(denoise.language.toy.p))


def _rows_of(result: Any, x: Tensor, name: str) -> Tensor:
    """(B,) float64 results of a function for rows x; a few that are not finite become nan."""
    rows = _to_tensor(result, f"the result of {name}")
    if rows.shape != x.shape[:1]:
        advice = "sum over the tokens of each row, and do not average over the batch"
        raise ValueError(f"{name} returned shape {tuple(rows.shape)}; it must be (B,) = ({len(x)},): {advice}")
    wrong = ~rows.isfinite()
    if int(wrong.sum()) <= _FEW * len(rows):  # torch.rand is exactly zero once in 2²⁴ draws
        return torch.where(wrong, torch.nan, rows.double())
    row = int(wrong.nonzero()[0])
    raise ValueError(f"{name} returned {float(rows[row])} for x = {x[row].tolist()}; it must return finite nats")


def _seen_masks(denoise: _AuditDenoiser | _InsertionDenoiser) -> str:
    """Name the numbers of masks that the denoiser was never asked about; empty if all of them occurred."""
    if denoise.noise is not None or denoise.counts is None:
        return ""
    never = [n for n in range(1, denoise.length + 1) if not denoise.counts[n]]
    rows = f"{', '.join(map(str, never))} of {denoise.length} tokens masked"
    return f"; it never asks about rows with {rows}" if never else ""
