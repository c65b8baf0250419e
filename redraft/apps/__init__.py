"""Applications: the command line, the server with its playground, and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.apps.reports.charts import (
        Chart as Chart,
        Curve as Curve,
        Point as Point,
        chart_picture as chart_picture,
    )
    from redraft.apps.reports.noising import NoisyText as NoisyText, noise_text as noise_text
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
        score_picture as score_picture,
    )
    from redraft.apps.reports.svg import Svg as Svg, framed as framed, series_color as series_color
    from redraft.apps.reports.watch import (
        Frame as Frame,
        Token as Token,
        display as display,
        frames as frames,
    )
    from redraft.apps.server.app import AccessPolicy as AccessPolicy, build_app as build_app
    from redraft.apps.server.jobs import RequestLimits as RequestLimits
    from redraft.apps.server.launch import ServerConfig as ServerConfig, serve as serve
    from redraft.apps.server.request_queue import (
        QueueLimits as QueueLimits,
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
