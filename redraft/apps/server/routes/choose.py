"""POST /v1/choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from redraft.apps.server.bodies.schemas import _Name, _Text
from redraft.apps.server.errors import _JsonObject
from redraft.apps.server.jobs import RequestLimits, _chosen_model, _Job, _require_cost
from redraft.apps.server.options import _CLIENT_NAMES
from redraft.apps.server.routes.route import Route

if TYPE_CHECKING:
    from redraft.apps.server.records import _Work
    from redraft.tasks.engine.model import TextModel


class ChooseBody(Route):
    """POST /v1/choose: the probability of each answer in the holes [[?]] of a text."""

    path = "/v1/choose"
    kind = "choose"
    model: _Name | None = None
    template: _Text
    answers: (
        Annotated[list[str], Field(min_length=2, max_length=256)]
        | Annotated[list[list[str]], Field(min_length=1, max_length=64)]
    )

    def job(self, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
        answers = [answer for item in self.answers for answer in ([item] if isinstance(item, str) else item)]
        cost = len(answers) * (len(self.template) + max(map(len, answers), default=0)) / 3
        _require_cost(cost, limits, "answers")
        model, arguments = _chosen_model(models, self.model), {"template": self.template, "answers": self.answers}
        return _Job(model, f"{__name__}:_choose", arguments, cost, names=_CLIENT_NAMES | {"": "template"})


def _choose(model: TextModel, arguments: _JsonObject) -> _Work:
    """Computes the probability of each answer."""
    from redraft.tasks.choice.choice import choose

    def run(_: object) -> _JsonObject:
        result = choose(model, arguments["template"], arguments["answers"])
        return {"choices": result.to_json(), "nfe": result.nfe, "seconds": result.seconds}

    return run
