"""Comparison: several methods under one budget, measured alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.evaluation.comparison.budget import TIMED, Budget, Fitted, budgeted, fitted, seconds_per_step
    from redraft.evaluation.comparison.comparison import Comparison, over_seeds, summaries, text_of
    from redraft.evaluation.comparison.measurement import (
        Effort,
        measured,
        quality,
        share_of,
        unseen_bits,
        write_and_judge,
    )
    from redraft.evaluation.comparison.methods import Method, Ready, Recipe
    from redraft.evaluation.comparison.row_file import (
        CpuTime,
        RowFile,
        commit,
        cpu,
        derived,
        file_config,
        machine_name,
        require_units,
    )

__getattr__, __dir__, __all__ = attach(__name__)
