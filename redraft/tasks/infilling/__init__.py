"""Infilling: the holes of a template, their lengths and their fillings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.tasks.infilling.causal_judge import CausalJudge
    from redraft.tasks.infilling.infilling import infill, infilling
    from redraft.tasks.infilling.propose_and_judge import NextToken, ProposeAndJudge, RowJudge

__getattr__, __dir__, __all__ = attach(__name__)
