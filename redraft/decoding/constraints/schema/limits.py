"""How much of a schema's texts is kept: smaller limits make smaller automata, never other rules."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class _Limits:
    """Texts beyond these limits are not written."""

    recursion: int = 4  # levels of objects and arrays that contain themselves
    untyped: int = 2  # levels of values about which the schema says nothing
    characters: int = 64  # characters of a string whose length is counted
    items: int = 8  # items of an array whose length is counted
    optional_depth: int | None = None  # level above which optional properties are written; None for all levels
    largest: int = 20_000  # states of the automaton
    work: int = 80_000  # steps of the compiler, in units of its budget


_TIERS = (
    _Limits(recursion=6, largest=5_000),
    _Limits(largest=12_000),
    _Limits(recursion=3, untyped=1, characters=32, items=4, largest=12_000),
    _Limits(recursion=2, untyped=1, characters=24, items=2, work=160_000),
    _Limits(recursion=1, untyped=1, characters=12, items=2, work=160_000),
    _Limits(recursion=1, untyped=1, characters=12, items=1, work=160_000),
    _Limits(recursion=1, untyped=1, characters=12, items=1, optional_depth=3),
    _Limits(recursion=1, untyped=1, characters=12, items=1, optional_depth=2),
    _Limits(recursion=1, untyped=1, characters=12, items=1, optional_depth=1),
    _Limits(recursion=1, untyped=1, characters=12, items=1, optional_depth=0),
)
_TRIAL = _Limits(recursion=2, untyped=1, characters=24, items=2, largest=5_000, work=10_000)  # to find what is too much
