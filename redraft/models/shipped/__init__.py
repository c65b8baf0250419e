"""Models that come with the package: small enough to answer within seconds of installation.

Each is a directory beside this file, as `redraft.training.export` or, for an adapter, `write_adapter` writes it;
`recipes/shipped.py` and `recipes/adapt.py` make them.
"""

from __future__ import annotations

from pathlib import Path

STORY = "story"  # the one that is used where no model is named
SMOL = "smol"  # an adapter of SmolLM2-135M-Instruct, which fills holes (recipes/ship_smol.py)


def shipped_folder(name: str | Path) -> Path | None:
    """The directory of a model that comes with the package; None if none has this name, or a directory of yours has."""
    found = Path(__file__).with_name(str(name)) if str(name) in (STORY, SMOL) else None
    return None if found is None or Path(name).is_dir() or not found.is_dir() else found
