"""Models included in the package, small enough to use right after installation.

Each is a directory next to this file, written by `redraft.training.export` or, for an adapter, by `write_adapter`.
`recipes/shipped.py` makes story, `recipes/ship_smol.py` makes smol.
"""

from __future__ import annotations

from pathlib import Path

STORY = "story"  # default model of commands that need one
SMOL = "smol"  # adapter for SmolLM2-135M-Instruct that lets it fill holes
NAMES = (STORY, SMOL)


def shipped_folder(name: str | Path) -> Path | None:
    """Return the directory of an included model; None if no model has this name, or if a local directory has it."""
    folder = Path(__file__).with_name(str(name)) if str(name) in NAMES else None
    return None if folder is None or Path(name).is_dir() or not folder.is_dir() else folder
