"""What a verb says and where: results on stdout, everything else on stderr; of several workers the first one alone."""

from __future__ import annotations

import json as jsonlib
import os
import sys
from collections.abc import Mapping
from typing import Any


def emit(record: Mapping[str, Any], json: bool, text: str) -> None:
    """One result: an object, or a text to be read."""
    if first():
        print(jsonlib.dumps(record) if json else text, flush=True)


def note(text: str) -> None:
    """A word beside the result."""
    if first():
        print(text, file=sys.stderr, flush=True)


def first() -> bool:
    """Whether this is the only process of a command, or the first of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"
