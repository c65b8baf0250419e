"""The checks behind `redraft check`: the laws on every built-in process, or on what a user's file defines.

Laws come in kinds, each a file of this folder with `_laws(process)`, which yields one result per law, and
`_built_in()`, the processes to check. Each kind has a toy problem of its own whose best denoiser is known exactly.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, TypeVar

from redraft.core.processes.base import TokenProcess
from redraft.core.processes.gaussian import Gaussian
from redraft.core.processes.insertion import Insertion
from redraft.core.processes.masked import Pick
from redraft.decoding.samplers.base import Sampler
from redraft.evaluation.laws import enumeration, gaussian, insertion, samplers, solvers, tokens
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


def check_all(pieces: Iterable[TokenProcess | Sampler | Pick]) -> Iterator[Law]:
    """Yield the result of every law on each process, sampler and pick."""
    return _on_each(_check_piece, pieces)


def _check_piece(piece: TokenProcess | Sampler | Pick) -> Iterator[Law]:
    match piece:
        case Sampler():
            return samplers._laws(piece)
        case Pick():
            return samplers._pick_laws(piece)
        case _:
            return check_process(piece)


def check_built_in() -> Iterator[Law]:
    """Yield the result of every law on the built-in processes."""
    yield from _on_each(tokens._laws, tokens._built_in())
    yield from _on_each(insertion._laws, insertion._built_in())
    yield from _on_each(gaussian._laws, gaussian._built_in())
    yield from _on_each(solvers._laws, solvers._built_in())


def _on_each(laws: Callable[[_P], Iterator[Law]], processes: Iterable[_P]) -> Iterator[Law]:
    for process in processes:
        yield from laws(process)


def find_pieces(module: ModuleType) -> list[TokenProcess | Sampler | Pick]:
    """Build each process, on the toy vocabulary, and each sampler and pick whose class a user's module defines."""
    kinds = (TokenProcess, Sampler, Pick)
    classes = [c for _, c in inspect.getmembers(module, inspect.isclass) if issubclass(c, kinds)]
    defined_here = [c for c in classes if c.__module__ == module.__name__]
    if not defined_here:
        raise ValueError(
            f"{module.__file__} defines no subclass of redraft.TokenProcess, redraft.Sampler or redraft.core.Pick, "
            "so there is nothing to check; define one"
        )
    return [_build_on_toy(c) for c in defined_here]


def _build_on_toy(cls: type[TokenProcess | Sampler | Pick]) -> TokenProcess | Sampler | Pick:
    base = next(base for base in (TokenProcess, Sampler, Pick) if issubclass(cls, base))
    missing = [m for m in getattr(cls, "__abstractmethods__", ())]
    if missing:
        names = ", ".join(sorted(missing))
        raise ValueError(f"{cls.__name__} does not define {names}; see {base.__name__} for what they do")
    fields: dict[str, Any] = {"vocab": enumeration.VOCAB} if base is TokenProcess else {}
    try:
        return cls(**fields)
    except TypeError as error:
        given = "vocab=…" if fields else ""
        raise ValueError(f"cannot make {cls.__name__}({given}): {error}; give its other fields defaults") from error
