"""Applications: the command line, the server with its playground, and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.apps.cli.arguments import flagged, parse_verb
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
    from redraft.apps.cli.output import say
    from redraft.apps.cli.streams import let_go, prepare
    from redraft.apps.cli.user_code import blamed
    from redraft.apps.reports.comparison import Told, write_comparison
    from redraft.apps.reports.noising import Noisy, noised
    from redraft.apps.reports.page import Command
    from redraft.apps.reports.pictures import picture, strip
    from redraft.apps.reports.report import Measured, Sizes, write_report
    from redraft.apps.reports.score_field import Scene, exact_scene, learned_scene, score_error, score_of, score_picture
    from redraft.apps.reports.watch import display, frames, styled
    from redraft.apps.server.app import Door, build
    from redraft.apps.server.errors import ApiError
    from redraft.apps.server.jobs import Bounds
    from redraft.apps.server.launch import Serving, serve
    from redraft.apps.server.request_queue import Desk, Ledger, Room
    from redraft.apps.server.scheduler import Author, Cancelled, Ended, NotFinite, Switchboard, TooLate
    from redraft.apps.server.supervisor import ONE_ORDER, Care, Supervisor

__getattr__, __dir__, __all__ = attach(__name__)
