"""Samplers by name, for the command line and the server.

A file of `picks/`, `samplers/` or `solvers/` may end with a dictionary `_NAMED` of samplers or picks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from redraft.core.lazy import named_value, read_names

if TYPE_CHECKING:
    from redraft.decoding.samplers.base import Sampler

_FOLDER = Path(__file__).parent
SAMPLER_NAMES = {  # name → module
    **read_names("redraft.decoding.samplers", _FOLDER / "samplers"),
    **read_names("redraft.decoding.picks", _FOLDER / "picks"),
}
SOLVER_NAMES = read_names("redraft.decoding.solvers", _FOLDER / "solvers")  # of those that draw vectors


def named_sampler(name: str) -> Sampler:
    """Return the sampler of this name."""
    return as_sampler(named_value(SAMPLER_NAMES | SOLVER_NAMES, name))


def as_sampler(given: Any) -> Sampler:
    """Return a sampler as it is, and the sampler of a pick; raises TypeError for anything else."""
    from redraft.core.processes.masked import Pick
    from redraft.decoding.samplers.base import Sampler
    from redraft.decoding.samplers.unmask import Unmask

    if isinstance(given, Pick):
        return Unmask(None, given) if given.adaptive else Unmask(pick=given)
    if not isinstance(given, Sampler):
        raise TypeError(f"{type(given).__name__} is neither a sampler nor a pick")
    return given
