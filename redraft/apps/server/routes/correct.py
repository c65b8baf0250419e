"""POST /v1/correct."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from redraft.apps.server.bodies.fields import with_settings
from redraft.apps.server.bodies.schemas import _Name, _Texts
from redraft.apps.server.errors import _JsonObject
from redraft.apps.server.jobs import RequestLimits, _chosen_model, _Job, _require_cost
from redraft.apps.server.options import _CLIENT_NAMES
from redraft.apps.server.routes.route import Route
from redraft.tasks.arguments.settings import CorrectSettings, require_texts

if TYPE_CHECKING:
    from redraft.apps.server.records import _Work
    from redraft.tasks.engine.model import TextModel

_Words = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=50_000)]


@with_settings(CorrectSettings, most={"keep": 1000})
class CorrectBody(Route):
    """POST /v1/correct: texts with their spelling corrected."""

    path = "/v1/correct"
    kind = "correct"
    model: _Name | None = None
    texts: _Texts
    words: _Words | None = Field(
        None, description="Known words; by default those stored with the model, else those of its training data."
    )

    def job(self, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
        model, options = _chosen_model(models, self.model), {name: value for _, name, value in self.settings()}
        texts = require_texts("texts", self.texts)
        cost = 16.0 * sum(map(len, texts))  # the network reads each word several times
        _require_cost(cost, limits, "texts")
        arguments = {"texts": texts, "words": self.words, "options": options}
        return _Job(model, f"{__name__}:_correct", arguments, cost, names=_CLIENT_NAMES | {"": "texts"})


def _correct(model: TextModel, arguments: _JsonObject) -> _Work:
    """Corrects the spelling of each text."""
    from redraft.tasks.correction.correction import correct

    def run(_: object) -> _JsonObject:
        result = correct(model, arguments["texts"], words=arguments["words"], **arguments["options"])
        return {"corrections": result.to_json(), "nfe": result.nfe, "seconds": result.seconds}

    return run
