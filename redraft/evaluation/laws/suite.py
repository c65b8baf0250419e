"""The proof: every built-in process, or those of a user's file, held to the laws of its kind.

A kind is a file of this room with `_laws(process)`, which yields one row per law, and `_built_in()`, the processes that
`redraft check` tries. Each has a toy of its own whose best denoiser is known exactly.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import TypeVar

from redraft.core.processes.base import TokenProcess
from redraft.core.processes.gaussian import Gaussian
from redraft.core.processes.insertion import Insertion
from redraft.evaluation.laws import enumeration, gaussian, insertion, solvers, tokens
from redraft.evaluation.laws.law import Law

_P = TypeVar("_P")


def check_process(process: TokenProcess | Gaussian) -> Iterator[Law]:
    """All laws on one process, on the toy of its kind."""
    match process:
        case Gaussian():
            return gaussian._laws(process)
        case Insertion():
            return insertion._laws(process)
        case _:
            return tokens._laws(process)


def check_all(processes: Iterable[TokenProcess | Gaussian]) -> Iterator[Law]:
    """All laws on each process."""
    return _each(check_process, processes)


def check_built_in() -> Iterator[Law]:
    """All laws of every kind, on the built-in processes."""
    yield from _each(tokens._laws, tokens._built_in())
    yield from _each(insertion._laws, insertion._built_in())
    yield from _each(gaussian._laws, gaussian._built_in())
    yield from _each(solvers._laws, solvers._built_in())


def _each(laws: Callable[[_P], Iterator[Law]], processes: Iterable[_P]) -> Iterator[Law]:
    for process in processes:
        yield from laws(process)


def processes_of(module: ModuleType) -> list[TokenProcess]:
    """Each process class that a user's module defines, on the toy vocabulary."""
    classes = [c for _, c in inspect.getmembers(module, inspect.isclass) if issubclass(c, TokenProcess)]
    own = [c for c in classes if c.__module__ == module.__name__]
    if not own:
        raise ValueError(f"{module.__file__} defines no subclass of redraft.TokenProcess; nothing to check")
    return [_on_toy(c) for c in own]


def _on_toy(cls: type[TokenProcess]) -> TokenProcess:
    missing = [m for m in getattr(cls, "__abstractmethods__", ())]
    if missing:
        lacks = ", ".join(sorted(missing))
        raise ValueError(f"{cls.__name__} lacks {lacks}; see redraft.TokenProcess for what they do")
    try:
        return cls(vocab=enumeration.VOCAB)  # type: ignore[call-arg]
    except TypeError as error:
        raise ValueError(f"cannot make {cls.__name__}(vocab=…): {error}; give its other fields defaults") from error
