"""The laws: every process and sampler against exact enumeration on a toy language.

The toy has three words and sequences of three, with an arbitrary joint distribution; its best denoiser is known by
enumeration (`Oracle`), so that bounds must equal the entropy and samplers must reproduce the joint. Texts of varying
length and vectors have toys of their own. `redraft check` runs all laws on the built-in processes, or on those of a
user's file.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from types import ModuleType

from redraft.laws import gaussian as check_gaussian
from redraft.laws import sentences as check_insertion
from redraft.laws import solvers as check_solvers
from redraft.laws.insertion import insertion_laws
from redraft.laws.row import Row
from redraft.laws.tokens import (
    VOCAB,
    WORDS,
    Toy,
    block_laws,
    bound_laws,
    closed_form_laws,
    forward_laws,
    remask_laws,
    reverse_laws,
    sampling_laws,
    score_laws,
)
from redraft.processes import (
    BandJumps,
    Gaussian,
    Hybrid,
    Insertion,
    Interpolating,
    Markov,
    Masked,
    MaskJumps,
    Remask,
    Rescale,
    Star,
    TokenProcess,
    UniformNoise,
)
from redraft.schedules import (
    Cosine,
    CosineSquared,
    Polynomial,
)
from redraft.types import Vocab


def check(process: TokenProcess | Gaussian) -> Iterator[Row]:
    """All laws on one process, on the toy language."""
    if isinstance(process, Gaussian):
        held_to = check_solvers if process == check_solvers.PROCESS else check_gaussian
        yield from held_to.laws(process)
        return
    if isinstance(process, Insertion):
        yield from insertion_laws(process)
        return
    toy = Toy.of()
    if isinstance(process, Remask):
        yield from remask_laws(process, toy)
        return
    yield from forward_laws(process)
    yield from reverse_laws(process)
    yield from bound_laws(process, toy)
    yield from closed_form_laws(process, toy)
    yield from block_laws(process, toy)
    yield from sampling_laws(process, toy)
    if isinstance(process, Masked) or (isinstance(process, Interpolating) and process.mixing == UniformNoise()):
        yield from score_laws(process)


def built_in() -> list[TokenProcess | Gaussian]:
    return [
        Masked(VOCAB),
        Masked(VOCAB, Cosine()),
        Interpolating(Vocab(WORDS), mixing=UniformNoise()),
        # equal steps of this schedule are those that suit the square-root ends of hybrid noise
        Interpolating(VOCAB, CosineSquared(), Hybrid(0.2)),
        Markov(VOCAB, MaskJumps()),
        Markov(VOCAB, BandJumps(0.8)),
        Remask(Masked(VOCAB), Rescale(0.3)),
        Remask(Masked(VOCAB), Star()),
        Remask(Interpolating(Vocab(WORDS)), Star()),
        # equal steps of this schedule are small at the end, where the last step inserts nothing
        Insertion(check_insertion.VOCAB, Polynomial(2.0), Polynomial(2.0)),
        *check_gaussian.built_in(),
        check_solvers.PROCESS,
    ]


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
        return cls(vocab=VOCAB)  # type: ignore[call-arg]
    except TypeError as error:
        raise ValueError(f"cannot make {cls.__name__}(vocab=…): {error}; give its other fields defaults") from error


def check_all(processes: Iterable[TokenProcess | Gaussian]) -> Iterator[Row]:
    for process in processes:
        yield from check(process)
