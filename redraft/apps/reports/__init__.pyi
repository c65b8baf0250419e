from .comparison import Told as Told, write_comparison as write_comparison
from .noising import Noisy as Noisy, noised as noised
from .page import Command as Command
from .pictures import picture as picture, strip as strip
from .report import Measured as Measured, Sizes as Sizes, write_report as write_report
from .score_field import (
    Scene as Scene,
    exact_scene as exact_scene,
    learned_scene as learned_scene,
    score_error as score_error,
    score_of as score_of,
    score_picture as score_picture,
)
from .watch import display as display, frames as frames, styled as styled
