"""Output of a command: results on stdout, everything else on stderr. With several workers only the first one prints."""

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

from redraft.training.progress import is_first_worker

if TYPE_CHECKING:
    from redraft.training.runs.run import Run


def emit(record: Mapping[str, Any], json: bool, text: str) -> None:
    """Print one result: with `json` the record as a JSON object, else the text."""
    if is_first_worker():
        print(jsonlib.dumps(_finite(record), allow_nan=False) if json else text, flush=True)


def print_note(text: str) -> None:
    """Print a note to stderr; ignored if stderr is closed."""
    if is_first_worker():
        print_error(text)


def print_error(text: str) -> None:
    """Print a line to stderr, if it is still open."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        from redraft.apps.cli.streams import detach_streams

        detach_streams(sys.stderr)


def program_name() -> str:
    """Return how to call the command from here: "redraft", or its path if it is not on PATH."""
    return "redraft" if shutil.which("redraft") else os.path.relpath(Path(sys.executable).with_name("redraft"))


def generate_command(run: Run, directory: object) -> str:
    """Return the arguments of `redraft` that generate a text with a trained model; seq2seq models get a --source."""
    source = ' --source "TEXT"' if run.framing.conditional and run.model.network.classes is None else ""
    return f"generate {quote(str(directory))}{source} --watch"


def _finite(value: Any) -> Any:
    """Replace nan and inf by None, since JSON has neither."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def require_svg(flag: str, file: Path | None) -> None:
    """Raise if a file is given and is not the path of an .svg file in an existing directory."""
    if file is not None and (file.suffix != ".svg" or file.is_dir() or not file.absolute().parent.is_dir()):
        raise ValueError(f"{flag} {file!s:.80}: give the path of an .svg file in an existing directory")
