from .cli.arguments import flagged as flagged, parse_verb as parse_verb
from .cli.commands.adapt import AdaptModel as AdaptModel
from .cli.commands.correct import CorrectTexts as CorrectTexts
from .cli.commands.exchange import Export as Export, Import as Import
from .cli.commands.measure.check import Check as Check, Demo as Demo, Doctor as Doctor
from .cli.commands.measure.compare import Compare as Compare
from .cli.commands.measure.eval import Eval as Eval
from .cli.commands.measure.levels import Levels as Levels
from .cli.commands.measure.noise import Noise as Noise
from .cli.commands.measure.picture import Picture as Picture
from .cli.commands.measure.probe import Probe as Probe
from .cli.commands.report import ReportRun as ReportRun
from .cli.commands.serve import Play as Play, Serve as Serve
from .cli.commands.show import Show as Show
from .cli.commands.train import Train as Train
from .cli.commands.write import (
    Choose as Choose,
    Control as Control,
    Generate as Generate,
    Infill as Infill,
    Rewrite as Rewrite,
    ScoreTexts as ScoreTexts,
)
from .cli.output import say as say
from .cli.streams import let_go as let_go, prepare as prepare
from .cli.user_code import blamed as blamed
from .reports.comparison import Told as Told, write_comparison as write_comparison
from .reports.noising import Noisy as Noisy, noised as noised
from .reports.page import Command as Command
from .reports.pictures import picture as picture, strip as strip
from .reports.report import Measured as Measured, Sizes as Sizes, write_report as write_report
from .reports.score_field import (
    Scene as Scene,
    exact_scene as exact_scene,
    learned_scene as learned_scene,
    score_error as score_error,
    score_of as score_of,
    score_picture as score_picture,
)
from .reports.watch import display as display, frames as frames, styled as styled
from .server.app import Door as Door, build as build
from .server.errors import ApiError as ApiError
from .server.jobs import Bounds as Bounds
from .server.launch import Serving as Serving, serve as serve
from .server.request_queue import Desk as Desk, Ledger as Ledger, Room as Room
from .server.scheduler import (
    Author as Author,
    Cancelled as Cancelled,
    Ended as Ended,
    NotFinite as NotFinite,
    Switchboard as Switchboard,
    TooLate as TooLate,
)
from .server.supervisor import ONE_ORDER as ONE_ORDER, Care as Care, Supervisor as Supervisor
