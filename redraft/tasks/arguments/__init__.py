"""Arguments of the tasks, shared by Python, the command line and the server. Needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.tasks.arguments.aliases import ALIASES, settings_from
    from redraft.tasks.arguments.settings import (
        MOST_ROWS,
        MOST_SEED,
        ArgumentError,
        Controlling,
        Correcting,
        Decoding,
        Generation,
        Infilling,
        Rewriting,
        Scoring,
        optional,
        out_of_range,
        require_texts,
        short,
        wrong_seed,
    )
    from redraft.tasks.arguments.templates import Hole, Template, require_holes

__getattr__, __dir__, __all__ = attach(__name__)
