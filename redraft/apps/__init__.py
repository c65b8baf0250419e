"""Applications: the command line, the server with its playground, and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.apps.cli.arguments import flagged as flagged, parse_verb as parse_verb
    from redraft.apps.cli.commands.adapt import AdaptModel as AdaptModel
    from redraft.apps.cli.commands.correct import CorrectTexts as CorrectTexts
    from redraft.apps.cli.commands.exchange import Export as Export, Import as Import
    from redraft.apps.cli.commands.measure.check import Check as Check, Demo as Demo, Doctor as Doctor
    from redraft.apps.cli.commands.measure.compare import Compare as Compare
    from redraft.apps.cli.commands.measure.eval import Eval as Eval
    from redraft.apps.cli.commands.measure.levels import Levels as Levels
    from redraft.apps.cli.commands.measure.noise import Noise as Noise
    from redraft.apps.cli.commands.measure.picture import Picture as Picture
    from redraft.apps.cli.commands.measure.probe import Probe as Probe
    from redraft.apps.cli.commands.report import ReportRun as ReportRun
    from redraft.apps.cli.commands.serve import Play as Play, Serve as Serve
    from redraft.apps.cli.commands.show import Show as Show
    from redraft.apps.cli.commands.train import Train as Train
    from redraft.apps.cli.commands.write import (
        Choose as Choose,
        Control as Control,
        Generate as Generate,
        Infill as Infill,
        Rewrite as Rewrite,
        ScoreTexts as ScoreTexts,
    )
    from redraft.apps.cli.output import say as say
    from redraft.apps.cli.streams import let_go as let_go, prepare as prepare
    from redraft.apps.cli.user_code import blamed as blamed
    from redraft.apps.reports.comparison import Told as Told, write_comparison as write_comparison
    from redraft.apps.reports.noising import Noisy as Noisy, noised as noised
    from redraft.apps.reports.page import Command as Command
    from redraft.apps.reports.pictures import picture as picture, strip as strip
    from redraft.apps.reports.report import Measured as Measured, Sizes as Sizes, write_report as write_report
    from redraft.apps.reports.score_field import (
        Scene as Scene,
        exact_scene as exact_scene,
        learned_scene as learned_scene,
        score_error as score_error,
        score_of as score_of,
        score_picture as score_picture,
    )
    from redraft.apps.reports.watch import (
        Frame as Frame,
        Token as Token,
        display as display,
        frames as frames,
        styled as styled,
    )
    from redraft.apps.server.app import Door as Door, build as build
    from redraft.apps.server.errors import ApiError as ApiError
    from redraft.apps.server.jobs import Bounds as Bounds
    from redraft.apps.server.launch import Serving as Serving, serve as serve
    from redraft.apps.server.request_queue import Desk as Desk, Ledger as Ledger, Room as Room
    from redraft.apps.server.scheduler import (
        Author as Author,
        Cancelled as Cancelled,
        Ended as Ended,
        NotFinite as NotFinite,
        Switchboard as Switchboard,
        TooLate as TooLate,
    )
    from redraft.apps.server.supervisor import ONE_ORDER as ONE_ORDER, Care as Care, Supervisor as Supervisor

__getattr__, __dir__, __all__ = attach(__name__, __file__)
