"""Showing: texts as they are written, a run as a page, pictures, the demo."""

from redraft.show.comparison import Told, write_comparison
from redraft.show.noising import Noisy, noised
from redraft.show.page import Command
from redraft.show.pictures import picture, strip
from redraft.show.report import Measured, Sizes, write_report
from redraft.show.score import Scene, exact_scene, learned_scene, score_error, score_of, score_picture
from redraft.show.watch import display, frames, styled
