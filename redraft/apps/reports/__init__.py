"""Showing: texts as they are written, a run as a page, pictures, the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.apps.reports.comparison import Told, write_comparison
    from redraft.apps.reports.noising import Noisy, noised
    from redraft.apps.reports.page import Command
    from redraft.apps.reports.pictures import picture, strip
    from redraft.apps.reports.report import Measured, Sizes, write_report
    from redraft.apps.reports.score_field import Scene, exact_scene, learned_scene, score_error, score_of, score_picture
    from redraft.apps.reports.watch import display, frames, styled

__getattr__, __dir__, __all__ = attach(__name__)
