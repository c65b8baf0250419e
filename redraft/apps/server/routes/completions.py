"""POST /v1/completions and /v1/fim/completions: texts that begin with a prompt, edited texts, and controlled texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from redraft.apps.server.bodies.schemas import OpenAIBody, _Text, _Texts
from redraft.apps.server.errors import _bad_request, _JsonObject
from redraft.apps.server.jobs import RequestLimits, _Job, _text_job
from redraft.apps.server.options import _keep_alternatives, _options
from redraft.apps.server.responses import (
    EventStream,
    _completion_choices,
    _CompletionStream,
    _ResponseHeader,
    _texts_body,
)
from redraft.apps.server.routes.infill import _hole_job
from redraft.apps.server.routes.route import Route
from redraft.tasks.arguments.settings import ControlSettings, GenerationSettings, RewriteSettings

if TYPE_CHECKING:
    from redraft.apps.server.records import _Work
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
        return _CompletionStream(self.header(job), False, self) if self.stream else None

    def header(self, job: _Job) -> _ResponseHeader:
        return _ResponseHeader("cmpl", self.kind, job.model["id"])

    def response(self, job: _Job, record: _JsonObject) -> _JsonObject:
        return _texts_body(self.header(job), record, _completion_choices(record, self))


class CompletionBody(Route, OpenAIBody):
    """POST /v1/completions"""

    path = "/v1/completions"
    kind = "text_completion"
    prompt: _Texts = ""
    suffix: _Text | None = Field(None, description="Text after the part to generate.")
    echo: bool | None = None
    best_of: int | None = Field(None, ge=1, le=128)
    logprobs: int | None = Field(
        None, ge=0, le=5, description="Log-probability of each token when it was written, plus this many alternatives."
    )

    def job(self, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
        if (self.best_of or 1) not in (1, self.n or 1):
            raise _bad_request(
                "best_of", "best_of is not supported; request n texts and choose one of them", "unsupported_parameter"
            )
        return _completion_job(self, self.prompt, self.suffix, self.logprobs or 0, models, limits)

    def event_stream(self, job: _Job, accept: str) -> EventStream | None:
        stream = _CompletionStream(self.header(job), False, self, self._echoed(job))
        return stream if self.stream else None

    def header(self, job: _Job) -> _ResponseHeader:
        return _ResponseHeader("cmpl", self.kind, job.model["id"])

    def response(self, job: _Job, record: _JsonObject) -> _JsonObject:
        return _texts_body(self.header(job), record, _completion_choices(record, self, self._echoed(job)))

    def _echoed(self, job: _Job) -> list[str]:
        """Returns the prompt of each text if prompts are to be included."""
        prompts = job.arguments.get("prompts") or job.arguments.get("parts", [""])[:1]
        return [text for text in prompts for _ in range(self.n or 1)] if self.echo else []


def _completion_job(
    body: OpenAIBody,
    prompt: str | Sequence[str],
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
    prompts = [prompt] if isinstance(prompt, str) else [*prompt]
    arguments = {"prompts": prompts, "options": options}
    return _text_job(models, body, f"{__name__}:_generate", arguments, GenerationSettings, names, limits, prompts)


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
    plan = plan_generation(model, arguments["prompts"], settings)
    return lambda send: _run_plans(model, [plan], arguments, send)


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
