"""Models that come with the package: small enough to answer within seconds of installation.

Each is a directory beside this file, as `redraft.runs.export` writes it; `recipes/shipped.py` makes them.
"""

from __future__ import annotations

from pathlib import Path

STORY = "story"  # the one that is used where no model is named


def shipped_folder(name: str | Path) -> Path | None:
    """The directory of a model that comes with the package; None if none has this name, or a directory of yours has."""
    found = Path(__file__).with_name(str(name)) if str(name) in (STORY,) else None
    return None if found is None or Path(name).is_dir() else found
