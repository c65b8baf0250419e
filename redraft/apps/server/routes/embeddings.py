"""POST /v1/embeddings."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from redraft.apps.server.bodies.fields import with_settings
from redraft.apps.server.bodies.schemas import _IGNORED, _Name, _Prompts
from redraft.apps.server.errors import _ApiError, _bad_request, _JsonObject
from redraft.apps.server.jobs import RequestLimits, _chosen_model, _Job, _require_cost, _spelled_out
from redraft.apps.server.routes.route import Route
from redraft.tasks.arguments.settings import require_prompts

if TYPE_CHECKING:
    from redraft.apps.server.records import _Work
    from redraft.tasks.engine.model import TextModel


@with_settings(ignored=_IGNORED)
class EmbeddingBody(Route):
    """POST /v1/embeddings: a vector for each text, the mean of the network's states."""

    path = "/v1/embeddings"
    kind = "list"
    model: _Name | None = None
    input: _Prompts
    dimensions: int | None = None
    encoding_format: Literal["float", "base64"] | None = None

    def job(self, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
        model, texts = _chosen_model(models, self.model), require_prompts("input", self.input)
        width = model["embedding_width"]
        if width is None:
            message = f"{model['id']} writes vectors and has no states of tokens, so it makes no embeddings"
            raise _ApiError(404, "embeddings_not_found", "model", message)
        if self.dimensions not in (None, width):
            raise _bad_request("dimensions", f"embeddings of {model['id']} have {width} dimensions; leave it out")
        cost = sum(map(len, _spelled_out(texts))) / 3
        _require_cost(cost, limits, "input")
        names = {"": "input", "texts": "input", "prompts": "input", "max_new_tokens": "input"}
        return _Job(model, f"{__name__}:_embed", {"texts": texts}, cost, names=names)

    def response(self, job: _Job, record: _JsonObject) -> _JsonObject:
        vectors = record["vectors"]
        if self.encoding_format == "base64":
            vectors = [base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode() for vector in vectors]
        data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
        usage = {"prompt_tokens": record["tokens"], "total_tokens": record["tokens"]}
        return {"object": "list", "data": data, "model": job.model["id"], "usage": usage}


def _embed(model: TextModel, arguments: _JsonObject) -> _Work:
    """Computes the vector of each text."""
    from redraft.tasks.embedding import embed

    texts = arguments["texts"]
    tokens = sum(len(model.prompt_ids(text)) for text in texts)
    record = {"vectors": embed(model, texts).tolist(), "tokens": tokens, "nfe": 1.0, "seconds": 0.0}
    return lambda _: record
