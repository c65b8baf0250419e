from .generation import Wanted as Wanted, Writer as Writer
from .report import Estimated as Estimated, Report as Report
from .requests import Request as Request, RowLayout as RowLayout
from .scoring import (
    AnswerScore as AnswerScore,
    Scorer as Scorer,
    Unwatched as Unwatched,
    Watch as Watch,
    greedy as greedy,
)
from .tasks import (
    TaskFigure as TaskFigure,
    evaluate_tasks as evaluate_tasks,
    language_model as language_model,
    require_package as require_package,
)
