"""Commands: a frozen dataclass each, whose fields are its flags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.apps.cli.commands.adapt import AdaptModel
    from redraft.apps.cli.commands.correct import CorrectTexts
    from redraft.apps.cli.commands.exchange import Export, Import
    from redraft.apps.cli.commands.measure.check import Check, Demo
    from redraft.apps.cli.commands.measure.compare import Compare
    from redraft.apps.cli.commands.measure.doctor import Doctor
    from redraft.apps.cli.commands.measure.eval import Eval
    from redraft.apps.cli.commands.measure.levels import Levels
    from redraft.apps.cli.commands.measure.noise import Noise
    from redraft.apps.cli.commands.measure.picture import Picture
    from redraft.apps.cli.commands.measure.probe import Probe
    from redraft.apps.cli.commands.play import Play
    from redraft.apps.cli.commands.report import ReportRun
    from redraft.apps.cli.commands.serve import Serve
    from redraft.apps.cli.commands.show import Show
    from redraft.apps.cli.commands.train import Train
    from redraft.apps.cli.commands.write import Choose, Control, Generate, Infill, Rewrite, ScoreTexts

__getattr__, __dir__, __all__ = attach(__name__)
