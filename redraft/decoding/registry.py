"""Samplers by name, for the command line and the server.

A file of `picks/`, `samplers/` or `solvers/` may end with a dictionary `NAMED` of samplers or picks. The names are read
from the source, so that `--help` lists them without importing torch.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redraft.decoding.samplers.base import Sampler

_NAMED = re.compile(r"^NAMED\b.*? = \{$(.*?)^\}$", re.MULTILINE | re.DOTALL)
_KEY = re.compile(r'^    "([^"]+)":', re.MULTILINE)


def _read_names(*folders: str) -> dict[str, str]:
    """Return the modules of the named samplers in these folders."""
    files = [file for folder in folders for file in sorted((Path(__file__).parent / folder).glob("*.py"))]
    tables = {f"redraft.decoding.{file.parent.name}.{file.stem}": file.read_text("utf-8") for file in files}
    return {
        key: module for module, text in tables.items() for block in _NAMED.findall(text) for key in _KEY.findall(block)
    }


SAMPLER_NAMES = _read_names("samplers", "picks")  # name → module
SOLVER_NAMES = _read_names("solvers")  # of those that draw vectors


def named_sampler(name: str) -> Sampler:
    """Return the sampler of this name."""
    return as_sampler(import_module((SAMPLER_NAMES | SOLVER_NAMES)[name]).NAMED[name])


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
