"""What a verb says and where: results on stdout, everything else on stderr; of several workers the first one alone."""

from __future__ import annotations

import json as jsonlib
import math
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redraft.training.runs.run import Run


def emit(record: Mapping[str, Any], json: bool, text: str) -> None:
    """One result: an object, or a text to be read."""
    if is_first_worker():
        print(jsonlib.dumps(_finite(record), allow_nan=False) if json else text, flush=True)


def print_note(text: str) -> None:
    """A word beside the result; where nobody can read it, the result matters more."""
    if is_first_worker():
        print_error(text)


def print_error(text: str) -> None:
    """One line on stderr, if stderr still takes one."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        from redraft.apps.cli.streams import detach_streams

        detach_streams(sys.stderr)


def program_name() -> str:
    """How the reader of a page calls us from here."""
    return "redraft" if shutil.which("redraft") else os.path.relpath(Path(sys.executable).with_name("redraft"))


def generate_command(run: Run, place: object) -> str:
    """The rest of the command that lets a trained model write; one that answers is given a source."""
    source = ' --source "TEXT"' if run.framing.asked and run.model.network.classes is None else ""
    return f"generate {quote(str(place))}{source} --watch"


def is_first_worker() -> bool:
    """Whether this is the only process of a command, or the first of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def _finite(value: Any) -> Any:
    """The same without nan and inf, which JSON lacks: null."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
