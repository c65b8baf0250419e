from .adapt import AdaptModel as AdaptModel
from .correct import CorrectTexts as CorrectTexts
from .exchange import Export as Export, Import as Import
from .measure.check import Check as Check, Demo as Demo
from .measure.compare import Compare as Compare
from .measure.doctor import Doctor as Doctor
from .measure.eval import Eval as Eval
from .measure.levels import Levels as Levels
from .measure.noise import Noise as Noise
from .measure.picture import Picture as Picture
from .measure.probe import Probe as Probe
from .play import Play as Play
from .report import ReportRun as ReportRun
from .serve import Serve as Serve
from .show import Show as Show
from .train import Train as Train
from .write import (
    Choose as Choose,
    Control as Control,
    Generate as Generate,
    Infill as Infill,
    Rewrite as Rewrite,
    ScoreTexts as ScoreTexts,
)
