"""The harness: any model of ours under lm-eval, log-likelihoods as bounds with their error or exact."""

from redraft.harness.report import Estimated, Report
from redraft.harness.rows import Request, RowLayout
from redraft.harness.scores import AnswerScore, Scorer, Unwatched, Watch, greedy
from redraft.harness.tasks import TaskFigure, evaluate_tasks, language_model, require_package
from redraft.harness.writing import Wanted, Writer
