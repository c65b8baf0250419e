"""What a model can do: the tasks whose requirements it meets."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from redraft.tasks.choice.choice import _require_masks
from redraft.tasks.controlled.controlled import _require_controllable
from redraft.tasks.correction.scorers import _hole_scorer
from redraft.tasks.engine.conditions import require_source_reader
from redraft.tasks.engine.model import TextModel
from redraft.tasks.infilling.infilling import _require_holes
from redraft.tasks.rewriting import _require_rewritable
from redraft.tasks.scoring import _require_unconditional
from redraft.training.objectives.parts import CodecObjective

_REQUIREMENTS: Mapping[str, Callable[[TextModel], object]] = {  # task → raises ValueError if the model cannot do it
    "generate": require_source_reader,
    "infill": _require_holes,
    "choose": _require_masks,
    "correct": lambda model: _hole_scorer(model, noise=0.03),
    "rewrite": _require_rewritable,
    "control": _require_controllable,
    "score": _require_unconditional,
}


def abilities(model: TextModel) -> tuple[str, ...]:
    """The tasks that a model can do; an outline of the model without weights is enough. A codec alone can do none.

    A task may still refuse an option, for example a rule that the model's noise cannot obey.
    """
    if model.run is not None and isinstance(model.run.objective, CodecObjective):
        return ()
    return tuple(task for task, require in _REQUIREMENTS.items() if _meets(require, model))


def _meets(require: Callable[[TextModel], object], model: TextModel) -> bool:
    try:
        require(model)
    except ValueError:
        return False
    return True
