"""POST /v1/completions and /v1/fim/completions: texts that begin with a prompt, edited texts, and controlled texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, PrivateAttr, model_validator

from redraft.apps.server.bodies.schemas import OpenAIBody, _Prompts, _Text
from redraft.apps.server.errors import _bad_request, _JsonObject
from redraft.apps.server.jobs import RequestLimits, _Job, _spelled_out, _text_job
from redraft.apps.server.options import _keep_alternatives, _options
from redraft.apps.server.responses import _completion_choices, _ResponseHeader, _texts_body
from redraft.apps.server.routes.infill import _hole_job
from redraft.apps.server.routes.route import Route
from redraft.apps.server.streams import EventStream, _CompletionStream
from redraft.tasks.arguments.setting import ArgumentError
from redraft.tasks.arguments.settings import ControlSettings, GenerationSettings, RewriteSettings, require_prompts

if TYPE_CHECKING:
    from redraft.apps.server.records import _SendFrame, _Work
    from redraft.tasks.engine.model import TextModel

_CONTROLS = ("attributes", "length", "pos", "scale")


class FimBody(Route, OpenAIBody):
    """POST /v1/fim/completions, as in Mistral's API: the text between a prompt and a suffix."""

    path = "/v1/fim/completions"
    kind = "text_completion"
    prompt: _Text
    suffix: _Text | None = None

    def job(self, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
        return _completion_job(self, self.prompt, self.suffix, 0, models, limits)

    def event_stream(self, job: _Job, accept: str) -> EventStream | None:
        return _CompletionStream(self.header(job), self) if self.stream else None

    def header(self, job: _Job) -> _ResponseHeader:
        return _ResponseHeader("cmpl", self.kind, job.model["id"])

    def response(self, job: _Job, record: _JsonObject) -> _JsonObject:
        return _texts_body(self.header(job), record, _completion_choices(record, self))


class CompletionBody(Route, OpenAIBody):
    """POST /v1/completions"""

    path = "/v1/completions"
    kind = "text_completion"
    prompt: _Prompts = ""
    suffix: _Text | None = Field(None, description="Text after the part to generate.")
    echo: bool | None = Field(None, description="Repeat the prompt; max_tokens may then be 0.")
    best_of: int | None = Field(None, ge=1, le=128)
    logprobs: int | None = Field(
        None,
        ge=0,
        le=5,
        description="Log-probability of each token when it was written, plus this many alternatives. With echo also of "
        "the tokens of the prompt, each given those before it, for causal models.",
    )

    _only_echoes: bool = PrivateAttr(False)

    @model_validator(mode="wrap")
    @classmethod
    def _allow_no_tokens(cls, content: Any, validate: Callable[[Any], Self]) -> Self:
        only = isinstance(content, dict) and content.get("echo") is True and content.get("max_tokens") == 0
        body = validate({name: content[name] for name in content if name != "max_tokens"} if only else content)
        body._only_echoes = only
        return body

    def job(self, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
        if (self.best_of or 1) not in (1, self.n or 1):
            raise _bad_request(
                "best_of", "best_of is not supported; request n texts and choose one of them", "unsupported_parameter"
            )
        job = _completion_job(self, self.prompt, self.suffix, self.logprobs or 0, models, limits)
        if self._only_echoes and "prompts" in job.arguments:
            job = replace(job, action=f"{__name__}:_echo", arguments=job.arguments | {"n": self.n or 1})
        if not self.echo or self.logprobs is None:
            return job
        if "prompts" not in job.arguments:
            raise _bad_request("logprobs", "logprobs with echo score a prompt; leave out suffix and start_text")
        return replace(job, arguments=job.arguments | {"score": self.logprobs})

    def event_stream(self, job: _Job, accept: str) -> EventStream | None:
        return _CompletionStream(self.header(job), self, echo=bool(self.echo)) if self.stream else None

    def header(self, job: _Job) -> _ResponseHeader:
        return _ResponseHeader("cmpl", self.kind, job.model["id"])

    def response(self, job: _Job, record: _JsonObject) -> _JsonObject:
        return _texts_body(self.header(job), record, _completion_choices(record, self, echo=bool(self.echo)))


def _completion_job(
    body: OpenAIBody,
    prompt: Any,
    suffix: str | None,
    top: int,
    models: Sequence[_JsonObject],
    limits: RequestLimits,
) -> _Job:
    """Builds the job of a completion; `top` is the number of alternatives to record for each token."""
    options, names = _options(body)
    _keep_alternatives("logprobs", top, options, names)
    if "start_text" in options:
        return _rewrite_job(body, models, limits, options, names)
    if any(name in options for name in _CONTROLS):
        return _control_job(body, models, limits, options, names)
    if suffix is not None:
        if not isinstance(prompt, str):
            raise _bad_request("prompt", "a suffix needs a single prompt; send a string instead of a list")
        size = options.pop("max_new_tokens", None)
        holes = [(0, None) if size is None else (size, size)]
        return _hole_job(models, body, [prompt, suffix], holes, options, names, limits)
    prompts = require_prompts("prompt", prompt)
    arguments, texts = {"prompts": prompts, "options": options}, _spelled_out(prompts)
    return _text_job(models, body, f"{__name__}:_generate", arguments, GenerationSettings, names, limits, texts)


def _rewrite_job(
    body: OpenAIBody,
    models: Sequence[_JsonObject],
    limits: RequestLimits,
    options: _JsonObject,
    names: dict[str, str],
) -> _Job:
    """Builds a job that edits a text in place: it is noised up to `strength` and denoised; pinned words stay."""
    text = options.pop("start_text")
    _require_alone(body, "start_text, which is a whole text")
    names |= {"": "diffusion.start_text", "texts": "diffusion.start_text"}
    arguments = {"text": text, "options": options}
    size = max(1, len(text) // 3) * options.get("candidates", 1)
    return _text_job(models, body, f"{__name__}:_rewrite", arguments, RewriteSettings, names, limits, [text], size)


def _control_job(
    body: OpenAIBody,
    models: Sequence[_JsonObject],
    limits: RequestLimits,
    options: _JsonObject,
    names: dict[str, str],
) -> _Job:
    """Builds a job that generates a text with given attributes, length or parts of speech."""
    _require_alone(body, f"{', '.join(_CONTROLS)}, which describe a whole text")
    names |= {name: f"diffusion.{name}" for name in _CONTROLS} | {"": "diffusion.attributes"}
    size = options.get("length") or len(options.get("pos", "").split()) or None
    arguments = {"options": options}
    return _text_job(models, body, f"{__name__}:_control", arguments, ControlSettings, names, limits, [""], size)


def _require_alone(body: OpenAIBody, what: str) -> None:
    """Raises if a request for a whole text also has a prompt, a suffix or max_tokens."""
    for name in ("prompt", "suffix", "max_tokens"):
        if getattr(body, name):
            raise _bad_request(name, f"{name} cannot be combined with {what}; leave it out")


# --- in the model process ---


def _generate(model: TextModel, arguments: _JsonObject) -> _Work:
    """Generates texts that begin with each prompt."""
    from redraft.apps.server.records import _greedy_sampler, _run_plans
    from redraft.tasks.generation import plan_generation

    settings = GenerationSettings(**_greedy_sampler(model, arguments["options"]))
    prompts = arguments["prompts"]
    plan, scores = plan_generation(model, prompts, settings), _prompt_scores(model, prompts, arguments.get("score"))

    def run(send: _SendFrame) -> _JsonObject:
        record = _run_plans(model, [plan], arguments, send)
        for text in record["texts"] if scores else ():
            text["prompt_scores"] = scores[text["row"] // settings.n]
        return record

    return run


def _echo(model: TextModel, arguments: _JsonObject) -> _Work:
    """Generates nothing, and scores the prompts if that is requested."""
    from redraft.apps.server.records import _record
    from redraft.tasks.engine.result import TextResult, TextResults

    prompts, n = arguments["prompts"], arguments["n"]
    scores, results = _prompt_scores(model, prompts, arguments.get("score")), []
    for row in range(n * len(prompts)):
        ids = model.prompt_ids(prompts[row // n])
        text, none = model.tokenizer.decode(ids), (None,) * len(ids)
        given, step = (True,) * len(ids), (0,) * len(ids)
        result = TextResult(text, ids, given, none, step, "length", row, text, tokenizer=model.tokenizer)
        results.append(result)
    record = _record(TextResults(tuple(results), len(scores) / len(results), 0.0, 0, run=model.name))
    for text in record["texts"] if scores else ():
        text["prompt_scores"] = scores[text["row"] // n]
    return lambda _: record


def _prompt_scores(model: TextModel, prompts: Sequence[Any], top: int | None) -> list[_JsonObject]:
    """Scores the tokens of each prompt with their `top` alternatives; an empty list if `top` is None."""
    from redraft.tasks.prompt_scores import score_prompt, scores_prompts

    if top is None:
        return []
    if not scores_prompts(model):
        raise ArgumentError(
            "logprobs",
            "this model does not read left to right, so the tokens of a prompt have no log-probabilities; "
            "use logprobs without echo, or /v1/score",
        )
    results = (score_prompt(model, prompt, top) for prompt in prompts)
    return [
        {
            "pieces": [*each.pieces],
            "log_probs": [None if value is None else round(value, 6) for value in each.log_probs],
            "top": [[(text, round(value, 6)) for text, value in likely] for likely in each.top],
        }
        for each in results
    ]


def _rewrite(model: TextModel, arguments: _JsonObject) -> _Work:
    """Edits a text in place."""
    from redraft.apps.server.records import _greedy_sampler, _run_plans
    from redraft.tasks.rewriting import plan_rewrite

    settings = RewriteSettings(**_greedy_sampler(model, arguments["options"]))
    plans = plan_rewrite(model, arguments["text"], settings)
    return lambda send: _run_plans(model, plans, arguments, send, settings.candidates)


def _control(model: TextModel, arguments: _JsonObject) -> _Work:
    """Generates texts with the requested attributes, length and parts of speech."""
    from redraft.apps.server.records import _greedy_sampler, _run_plans
    from redraft.tasks.controlled.controlled import plan_control

    plan = plan_control(model, ControlSettings(**_greedy_sampler(model, arguments["options"])))
    return lambda send: _run_plans(model, [plan], arguments, send)
