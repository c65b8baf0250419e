"""The checks behind `redraft check`: the laws on every built-in process, or on those in a user's file.

Laws come in kinds, each a file of this folder with `_laws(process)`, which yields one result per law, and
`_built_in()`, the processes to check. Each kind has a toy problem of its own whose best denoiser is known exactly.
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
    """Yield the result of every law on one process, on the toy problem of its kind."""
    match process:
        case Gaussian():
            return gaussian._laws(process)
        case Insertion():
            return insertion._laws(process)
        case _:
            return tokens._laws(process)


def check_all(processes: Iterable[TokenProcess | Gaussian]) -> Iterator[Law]:
    """Yield the result of every law on each process."""
    return _on_each(check_process, processes)


def check_built_in() -> Iterator[Law]:
    """Yield the result of every law on the built-in processes."""
    yield from _on_each(tokens._laws, tokens._built_in())
    yield from _on_each(insertion._laws, insertion._built_in())
    yield from _on_each(gaussian._laws, gaussian._built_in())
    yield from _on_each(solvers._laws, solvers._built_in())


def _on_each(laws: Callable[[_P], Iterator[Law]], processes: Iterable[_P]) -> Iterator[Law]:
    for process in processes:
        yield from laws(process)


def find_processes(module: ModuleType) -> list[TokenProcess]:
    """Build each process class that a user's module defines, with the toy vocabulary."""
    classes = [c for _, c in inspect.getmembers(module, inspect.isclass) if issubclass(c, TokenProcess)]
    defined_here = [c for c in classes if c.__module__ == module.__name__]
    if not defined_here:
        raise ValueError(
            f"{module.__file__} defines no subclass of redraft.TokenProcess, so there is nothing to check; define one"
        )
    return [_build_on_toy(c) for c in defined_here]


def _build_on_toy(cls: type[TokenProcess]) -> TokenProcess:
    missing = [m for m in getattr(cls, "__abstractmethods__", ())]
    if missing:
        names = ", ".join(sorted(missing))
        raise ValueError(f"{cls.__name__} does not define {names}; see redraft.TokenProcess for what they do")
    try:
        return cls(vocab=enumeration.VOCAB)  # type: ignore[call-arg]
    except TypeError as error:
        raise ValueError(f"cannot make {cls.__name__}(vocab=…): {error}; give its other fields defaults") from error
