"""POST /tokenize and /detokenize, as in vLLM: a text as token ids, and back. lm-eval needs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from redraft.apps.server.bodies.schemas import _Ids, _Name, _Text
from redraft.apps.server.errors import _JsonObject
from redraft.apps.server.jobs import RequestLimits, _chosen_model, _Job
from redraft.apps.server.routes.route import Route

if TYPE_CHECKING:
    from redraft.apps.server.records import _Work
    from redraft.tasks.engine.model import TextModel


class TokenizeBody(Route):
    """POST /tokenize: the ids of a text. A special token gets its id only if its spelling is the whole text."""

    path = "/tokenize"
    kind = "tokens"
    model: _Name | None = None
    prompt: _Text
    add_special_tokens: bool | None = None

    def job(self, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
        arguments = {"text": self.prompt, "start": self.add_special_tokens is not False}
        return _Job(_chosen_model(models, self.model), f"{__name__}:_tokenize", arguments, 1.0, names={"": "prompt"})

    def response(self, job: _Job, record: _JsonObject) -> _JsonObject:
        tokens = record["tokens"]
        return {"count": len(tokens), "max_model_len": job.model["positions"], "tokens": tokens}


class DetokenizeBody(Route):
    """POST /detokenize: the text of ids."""

    path = "/detokenize"
    kind = "text"
    model: _Name | None = None
    tokens: _Ids

    def job(self, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
        names = {"": "tokens", "prompts": "tokens"}
        return _Job(
            _chosen_model(models, self.model), f"{__name__}:_detokenize", {"ids": self.tokens}, 1.0, names=names
        )

    def response(self, job: _Job, record: _JsonObject) -> _JsonObject:
        return {"prompt": record["text"]}


def _tokenize(model: TextModel, arguments: _JsonObject) -> _Work:
    """Encodes a text, with the start token of the model if `start`."""
    text, bos = arguments["text"], model.lm.config.vocab.bos
    special = model.tokenizer.id_of(text) if text in model.tokenizer.special_texts else None
    start = [bos] if arguments["start"] and bos is not None else []
    tokens = [special] if special is not None else [*start, *model.tokenizer.encode(text)]
    return lambda _: {"tokens": tokens, "nfe": 0.0, "seconds": 0.0}


def _detokenize(model: TextModel, arguments: _JsonObject) -> _Work:
    """Decodes ids."""
    text = model.tokenizer.decode(model.prompt_ids(arguments["ids"]))
    return lambda _: {"text": text, "nfe": 0.0, "seconds": 0.0}
