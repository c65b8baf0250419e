"""The harness: any model of ours under lm-eval, log-likelihoods as bounds with their error or exact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.evaluation.harness.generation import Wanted, Writer
    from redraft.evaluation.harness.report import Estimated, Report
    from redraft.evaluation.harness.requests import Request, RowLayout
    from redraft.evaluation.harness.scoring import AnswerScore, Scorer, Unwatched, Watch, greedy
    from redraft.evaluation.harness.tasks import TaskFigure, evaluate_tasks, language_model, require_package

__getattr__, __dir__, __all__ = attach(__name__)
