"""Applications: the command line, the server with its playground, and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.apps.cli.arguments import name_flags as name_flags, parse_verb as parse_verb
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
    from redraft.apps.cli.output import print_error as print_error
    from redraft.apps.cli.streams import detach_streams as detach_streams, prepare_streams as prepare_streams
    from redraft.apps.cli.user_code import user_code_location as user_code_location
    from redraft.apps.reports.comparison import ComparisonData as ComparisonData, write_comparison as write_comparison
    from redraft.apps.reports.noising import NoisyText as NoisyText, noise_text as noise_text
    from redraft.apps.reports.page import Command as Command
    from redraft.apps.reports.pictures import picture as picture, strip as strip
    from redraft.apps.reports.report import (
        ReportSizes as ReportSizes,
        RunReport as RunReport,
        write_report as write_report,
    )
    from redraft.apps.reports.score_field import (
        ScoreScene as ScoreScene,
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
    from redraft.apps.server.app import AccessPolicy as AccessPolicy, build_app as build_app
    from redraft.apps.server.errors import ApiError as ApiError
    from redraft.apps.server.jobs import RequestLimits as RequestLimits
    from redraft.apps.server.launch import ServerConfig as ServerConfig, serve as serve
    from redraft.apps.server.request_queue import (
        QueueLimits as QueueLimits,
        RequestLedger as RequestLedger,
        RequestQueue as RequestQueue,
    )
    from redraft.apps.server.scheduler import (
        BatchScheduler as BatchScheduler,
        Cancelled as Cancelled,
        DeadlineExceeded as DeadlineExceeded,
        NonFiniteOutput as NonFiniteOutput,
        RequestEnded as RequestEnded,
        ScheduledRequest as ScheduledRequest,
    )
    from redraft.apps.server.supervisor import (
        Supervisor as Supervisor,
        SupervisorTimeouts as SupervisorTimeouts,
    )

__getattr__, __dir__, __all__ = attach(__name__, __file__)
