"""POST /v1/score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from redraft.apps.server.bodies.fields import with_settings
from redraft.apps.server.bodies.schemas import _Name, _Texts
from redraft.apps.server.errors import _JsonObject
from redraft.apps.server.jobs import RequestLimits, _chosen_model, _Job, _require_cost
from redraft.apps.server.options import _CLIENT_NAMES
from redraft.apps.server.routes.route import Route
from redraft.tasks.arguments.settings import ScoreSettings, require_texts

if TYPE_CHECKING:
    from redraft.apps.server.records import _Work
    from redraft.tasks.engine.model import TextModel


@with_settings(ScoreSettings, most={"draws": 64})
class ScoreBody(Route):
    """POST /v1/score: the bits of each text."""

    path = "/v1/score"
    kind = "score"
    model: _Name | None = None
    texts: _Texts
    draws: int | None = None

    def job(self, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
        model, options = _chosen_model(models, self.model), {name: value for _, name, value in self.settings()}
        texts = require_texts("texts", self.texts)
        cost = sum(max(len(text) / 3, model["length"] or 0) for text in texts) * (self.draws or 4)
        _require_cost(cost, limits, "texts")
        arguments = {"texts": texts, "options": options}
        return _Job(model, f"{__name__}:_score", arguments, cost, names=_CLIENT_NAMES | {"": "texts"})


def _score(model: TextModel, arguments: _JsonObject) -> _Work:
    """Computes the bits of each text."""
    from redraft.tasks.scoring import score

    def run(_: object) -> _JsonObject:
        result = score(model, arguments["texts"], **arguments["options"])
        return {"scores": result.to_json(), "is_exact": result.exact, "nfe": result.nfe, "seconds": result.seconds}

    return run
