"""Converts request bodies to jobs for the model process; checks everything that needs no model."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redraft.apps.server.bodies.fields import StrictModel
from redraft.apps.server.bodies.schemas import (
    ChatBody,
    ChooseBody,
    CommonBody,
    CompletionBody,
    CorrectBody,
    FimBody,
    InfillBody,
    OpenAIBody,
    ScoreBody,
    TraceBody,
)
from redraft.apps.server.bodies.structure import _structure
from redraft.apps.server.errors import _ApiError, _bad_request, _JsonObject, _unknown_model
from redraft.tasks.arguments.aliases import ALIASES, settings_from
from redraft.tasks.arguments.setting import ArgumentError, changed_settings
from redraft.tasks.arguments.settings import (
    ControlSettings,
    DecodingSettings,
    GenerationSettings,
    InfillSettings,
    RewriteSettings,
)
from redraft.tasks.arguments.templates import Hole, Template

_META = re.compile(r"([.^$*+?{}\[\]\\|()&~#-])")
_CONTROLS = ("attributes", "length", "pos", "scale")
_CLIENT_NAMES = {  # our argument → parameter of the request
    "": "prompt",  # the input text
    "max_new_tokens": "max_tokens",
    "prompts": "prompt",
    "templates": "template",
    **{name: name for name in ("n", "seed", "temperature", "top_p", "texts", "draws", "answers", "stop")},
}


@dataclass(frozen=True)
class RequestLimits:
    """Limits of a single request."""

    tokens: int = 8192
    """Maximum number of tokens to generate in one text."""
    steps: int = 10_000
    """Maximum number of sampling steps."""
    cost: float = 2e7
    """Maximum of tokens × steps × texts, the number of tokens that the network processes."""
    pattern: int = 2000
    """Maximum length of a pattern in characters; a schema may be ten times as long."""
    repeats: int = 20_000
    """Maximum length of a pattern in characters once its counts {m,n} are expanded."""
    depth: int = 24
    """Maximum nesting depth of a JSON schema."""


@dataclass(frozen=True)
class _Job:
    """A request to the model process."""

    model: _JsonObject
    action: str
    arguments: _JsonObject
    cost: float = 0.0  # tokens that the network will process
    needs_compiling: bool = False  # True if it has constraints to compile
    names: Mapping[str, str] = field(default_factory=dict)  # our argument → parameter of the request

    @property
    def message(self) -> _JsonObject:
        return {
            "model": self.model["id"],
            "action": self.action,
            "arguments": self.arguments,
            "needs_compiling": self.needs_compiling,
        }


def _chosen_model(models: Sequence[_JsonObject], name: str | None) -> _JsonObject:
    """Returns the model of this name, or the first one if name is None."""
    model = models[0] if name is None else next((info for info in models if info["id"] == name), None)
    if model is None:
        raise _unknown_model(name or "", [info["id"] for info in models])
    return model


def _completion_job(body: CompletionBody | FimBody, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
    _require_neutral(body)
    if isinstance(body, CompletionBody) and (body.best_of or 1) not in (1, body.n or 1):
        raise _bad_request(
            "best_of", "best_of is not supported; request n texts and choose one of them", "unsupported_parameter"
        )
    options, names = _options(body)
    if isinstance(body, CompletionBody):
        _keep_alternatives("logprobs", body.logprobs or 0, options, names)
    if "start_text" in options:
        return _rewrite_job(body, models, limits, options, names)
    if any(name in options for name in _CONTROLS):
        return _control_job(body, models, limits, options, names)
    if body.suffix is not None:
        if not isinstance(body.prompt, str):
            raise _bad_request("prompt", "a suffix needs a single prompt; send a string instead of a list")
        size = options.pop("max_new_tokens", None)
        holes = [(0, None) if size is None else (size, size)]
        return _hole_job(models, body, [body.prompt, body.suffix], holes, options, names, limits)
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    return _job(
        models, body, "generate", {"prompts": prompts, "options": options}, GenerationSettings, names, limits, prompts
    )


def _keep_alternatives(param: str, count: int, options: _JsonObject, names: dict[str, str]) -> None:
    """Requests the alternatives of each token if log-probabilities of other tokens are wanted."""
    if count > 1 or (count and param == "top_logprobs"):
        options["alternatives"] = max(count, options.get("alternatives", 0))
        names["alternatives"] = param


def _rewrite_job(
    body: CompletionBody | FimBody,
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
    return _job(models, body, "rewrite", arguments, RewriteSettings, names, limits, [text], size)


def _control_job(
    body: CompletionBody | FimBody,
    models: Sequence[_JsonObject],
    limits: RequestLimits,
    options: _JsonObject,
    names: dict[str, str],
) -> _Job:
    """Builds a job that generates a text with given attributes, length or parts of speech."""
    _require_alone(body, f"{', '.join(_CONTROLS)}, which describe a whole text")
    names |= {name: f"diffusion.{name}" for name in _CONTROLS} | {"": "diffusion.attributes"}
    size = options.get("length") or len(options.get("pos", "").split()) or None
    return _job(models, body, "control", {"options": options}, ControlSettings, names, limits, [""], size)


def _require_alone(body: CompletionBody | FimBody, what: str) -> None:
    """Raises if a request for a whole text also has a prompt, a suffix or max_tokens."""
    for name, value in (("prompt", body.prompt), ("suffix", body.suffix), ("max_tokens", body.max_tokens)):
        if value:
            raise _bad_request(name, f"{name} cannot be combined with {what}; leave it out")


def _chat_job(body: ChatBody, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
    _require_neutral(body)
    for name in ("tools", "tool_choice", "parallel_tool_calls"):
        if getattr(body, name) not in (None, [], "none"):
            raise _bad_request(
                name,
                f"{name} is not supported, as these models cannot call tools; leave it out",
                "unsupported_parameter",
            )
    if body.top_logprobs and not body.logprobs:
        raise _bad_request("top_logprobs", "top_logprobs needs logprobs=true; set it, too")
    if body.max_tokens is not None and body.max_completion_tokens is not None:
        raise _bad_request(
            "max_completion_tokens", "max_tokens and max_completion_tokens mean the same; use only one of them"
        )
    options, names = _options(body)
    if body.max_completion_tokens is not None:
        options["max_new_tokens"], names["max_new_tokens"] = body.max_completion_tokens, "max_completion_tokens"
    _keep_alternatives("top_logprobs", body.top_logprobs or 0, options, names)
    messages = [message.plain for message in body.messages]
    names |= {"": "messages", "prompts": "messages", "source": "messages"}
    arguments = {"messages": messages, "options": options}
    texts = ["\n".join(message["content"] for message in messages)]
    return _job(models, body, "chat", arguments, GenerationSettings, names, limits, texts)


def _infill_job(body: InfillBody | TraceBody, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
    if (body.template is None) == (body.pieces is None):
        raise _bad_request(
            "template", "give either a template with holes [[n]], or pieces (texts and numbers), not both"
        )
    if body.max_tokens is not None:
        raise _bad_request("max_tokens", "the holes set the number of tokens; leave max_tokens out")
    options, names = _options(body)
    param = "template" if body.template is not None else "pieces"
    names |= {"": param, "templates": param, "max_new_tokens": param}
    try:
        template = Template.parse(body.template) if body.template is not None else _pieces_template(body.pieces or [])
    except ArgumentError as error:
        raise _as_api_error(error, names) from None
    holes = [(hole.least, hole.most) for hole in template.holes]
    return _hole_job(models, body, template.parts, holes, options, names, limits)


def _hole_job(
    models: Sequence[_JsonObject],
    body: CommonBody,
    parts: Sequence[str],
    holes: Sequence[tuple[int, int | None]],
    options: _JsonObject,
    names: Mapping[str, str],
    limits: RequestLimits,
) -> _Job:
    """Builds a job that fills the holes between given parts."""
    arguments = {"parts": list(parts), "holes": list(holes), "options": options}
    room = options.get("room", 32)
    size = sum((room if isinstance(room, int) else 32) if most is None else most for _, most in holes)
    return _job(models, body, "infill", arguments, InfillSettings, names, limits, ["".join(parts)], size)


def _pieces_template(pieces: Sequence[str | int | None]) -> Template:
    """Returns the template of texts, hole sizes and null (any size); [[n]] in a text is not a hole."""
    parts, holes = [""], []
    for piece in pieces:
        if isinstance(piece, str):
            parts[-1] += piece
        elif isinstance(piece, bool) or (piece is not None and piece < 1):
            raise _bad_request("pieces", "a hole needs at least 1 token; use null for any length")
        else:
            parts.append("")
            holes.append(Hole(0 if piece is None else piece, piece))
    return Template(tuple(parts), tuple(holes))


def _choose_job(body: ChooseBody, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
    arguments = {"template": body.template, "answers": body.answers}
    answers = [answer for item in body.answers for answer in ([item] if isinstance(item, str) else item)]
    cost = len(answers) * (len(body.template) + max(map(len, answers), default=0)) / 3
    _require_cost(cost, limits, "answers")
    return _Job(_chosen_model(models, body.model), "choose", arguments, cost, names=_CLIENT_NAMES | {"": "template"})


def _score_job(body: ScoreBody, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
    texts = [body.texts] if isinstance(body.texts, str) else body.texts
    options = {name: value for name in ("draws", "seed") if (value := getattr(body, name)) is not None}
    model = _chosen_model(models, body.model)
    cost = sum(max(len(text) / 3, model["length"] or 0) for text in texts) * (body.draws or 4)
    _require_cost(cost, limits, "texts")
    return _Job(model, "score", {"texts": texts, "options": options}, cost, names=_CLIENT_NAMES | {"": "texts"})


def _correct_job(body: CorrectBody, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
    texts = [body.texts] if isinstance(body.texts, str) else body.texts
    names = ("noise", "keep", "names", "confidence")
    options = {name: value for name in names if (value := getattr(body, name)) is not None}
    cost = 16.0 * sum(map(len, texts))  # the network reads each word several times
    _require_cost(cost, limits, "texts")
    arguments = {"texts": texts, "words": body.words, "options": options}
    return _Job(_chosen_model(models, body.model), "correct", arguments, cost, names=_CLIENT_NAMES | {"": "texts"})


def _trace_job(body: TraceBody, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
    """Builds the job of an infilling, a chat or a completion, depending on which fields are set."""
    if body.template is not None or body.pieces is not None:
        return _infill_job(body, models, limits)
    if body.messages is not None:
        shared = body.model_dump(exclude_unset=True, by_alias=True, include=set(ChatBody.model_fields) - {"logprobs"})
        return _chat_job(ChatBody.model_validate(shared), models, limits)
    return _completion_job(body, models, limits)


def _job(
    models: Sequence[_JsonObject],
    body: CommonBody,
    action: str,
    arguments: _JsonObject,
    kind: type[Any],
    names: Mapping[str, str],
    limits: RequestLimits,
    texts: Sequence[str],
    holes: int | None = None,
) -> _Job:
    """Builds a job after checking its options against `kind`, the class of settings, and the limits."""
    model, options = _chosen_model(models, body.model), arguments["options"]
    try:
        settings = settings_from(kind, options)
    except ArgumentError as error:
        raise _as_api_error(error, names) from None
    arguments |= {"options": changed_settings(settings)}
    _require_rules(settings, names, limits)
    new = holes or options.get("max_new_tokens") or model["length"] or 128
    _require_size(names["max_new_tokens"], new, limits)
    if (settings.steps or 0) > limits.steps:
        raise _bad_request(names["steps"], f"{settings.steps:.3g} steps are too many; use at most {limits.steps:,}")
    steps = settings.steps or model["steps"] or 128
    tokens = sum(new + (0 if model["block"] else len(text) / 3) for text in texts)
    cost = tokens * min(steps, new if model["block"] is None else steps) * (body.n or 1)
    _require_cost(cost, limits, names["max_new_tokens"])
    return _Job(model, action, arguments, cost, settings.ruled, names)


def _as_api_error(error: ArgumentError, names: Mapping[str, str]) -> _ApiError:
    """Converts an error about one of our arguments to one about the parameter of the request."""
    return _bad_request(names.get(error.argument, error.argument), str(error))


def _options(body: CommonBody) -> tuple[_JsonObject, dict[str, str]]:
    """Returns the keyword arguments for `redraft.generate` or `infill`, and the request parameter of each."""
    options: _JsonObject = {"seed": secrets.randbits(31) if body.seed is None else body.seed}
    for name, client_name in (
        ("n", "n"),
        ("max_new_tokens", "max_tokens"),
        ("temperature", "temperature"),
        ("top_p", "top_p"),
    ):
        if (value := getattr(body, client_name)) is not None:
            options[name] = value
    if (stop := getattr(body, "stop", None)) is not None:
        options["stop"] = stop
    extras: StrictModel | None = getattr(body, "diffusion", None)
    own = {} if extras is None else extras.model_dump(exclude_none=True, by_alias=True)
    names = dict(_CLIENT_NAMES) | {
        name: f"diffusion.{name}" for name in GenerationSettings.__dataclass_fields__ if name not in _CLIENT_NAMES
    }
    names |= {name: f"diffusion.{name}" for name in own} | {"room": "diffusion.room"}
    names |= {ALIASES[name].name: f"diffusion.{name}" for name in own if name in ALIASES}
    names["choices"] = "diffusion.choices"
    if isinstance(body, OpenAIBody) and (structure := _structure(body)) is not None:
        name, own[name], names[name] = structure
    if (choices := own.pop("choices", None)) is not None:
        own["pattern"] = _one_of(choices, own, names["choices"])
        names["pattern"] = names["choices"]
    if isinstance(own.get("schema"), dict):
        own["schema"] = json.dumps(own["schema"])
    _rename_vllm_parameters(own, names)
    if own.get("draft") not in (None, "lookup"):
        raise _bad_request("diffusion.draft", "clients cannot name directories of the server; use draft='lookup'")
    return options | own, names


def _rename_vllm_parameters(own: _JsonObject, names: dict[str, str]) -> None:
    """Renames vLLM's parameters for editing a text to ours; raises if both are given."""
    for vllm_name, name in (("diffusion_seed_canvas", "start_text"), ("diffusion_pinned", "pinned")):
        if vllm_name in own:
            if name in own:
                message = f"{vllm_name} and {name} mean the same; use only one of them"
                raise _bad_request(f"diffusion.{vllm_name}", message)
            own[name], names[name] = own.pop(vllm_name), f"diffusion.{vllm_name}"
    if own.pop("diffusion_read_only", False):
        raise _bad_request(
            "diffusion.diffusion_read_only",
            "diffusion_read_only must be false; use /v1/score to score a text without changing it",
            "unsupported_value",
        )
    own.pop("diffusion_constrained", None)  # constraints are always enforced
    for name in ("strength", "pinned", "candidates"):
        if name in own and "start_text" not in own:
            raise _bad_request(names[name], f"{name} needs a text to edit; give it as diffusion.start_text")


def _one_of(choices: Sequence[str], own: _JsonObject, name: str) -> str:
    """Returns a regular expression that matches exactly these texts."""
    if "pattern" in own:
        raise _bad_request(name, "choices and pattern cannot be combined; use only one of them")
    if not choices or not all(choices):
        raise _bad_request(name, "choices must not be empty or contain an empty text; give at least one")
    return "|".join(_META.sub(r"\\\1", choice) for choice in choices)


def _require_neutral(body: OpenAIBody) -> None:
    """Raises if an unsupported argument of OpenAI has a value other than its neutral one."""
    for name in ("presence_penalty", "frequency_penalty", "logit_bias"):
        if getattr(body, name) not in (None, 0, 0.0, {}):
            raise _bad_request(
                name, f"{name} is not supported; use diffusion.repetition_penalty", "unsupported_parameter"
            )


def _require_size(param: str, tokens: int, limits: RequestLimits) -> None:
    if tokens > limits.tokens:
        raise _bad_request(param, f"{tokens:.9g} tokens are too many; request at most {limits.tokens:,}", "too_large")


def _require_cost(cost: float, limits: RequestLimits, param: str) -> None:
    if cost > limits.cost:
        raise _bad_request(
            param,
            f"tokens × steps × texts is {cost:.3g}; the limit of this server is {limits.cost:.3g}, so request less",
            "too_large",
        )


def _require_rules(settings: DecodingSettings, names: Mapping[str, str], limits: RequestLimits) -> None:
    """Raises if a constraint would take too long to compile."""
    for pattern in settings.every_pattern:
        _require_pattern(pattern, names["pattern"], limits)
    if settings.schema is not None:
        _require_schema(settings.schema, names["schema"], limits)


def _require_pattern(pattern: str, param: str, limits: RequestLimits) -> None:
    if len(pattern) > limits.pattern:
        raise _bad_request(
            param, f"a pattern of {len(pattern):,} characters is too long; use at most {limits.pattern:,}", "too_large"
        )
    if (size := _expanded_length(pattern)) > limits.repeats:
        raise _bad_request(
            param,
            f"the pattern has {size:.3g} characters once its counts are expanded; use smaller counts",
            "too_large",
        )


def _expanded_length(pattern: str) -> float:
    """Estimates the length of a pattern once its counts {m,n} are expanded; nested counts multiply."""
    sizes, last = [0.0], 1.0  # expanded lengths of the open groups and of the last item
    for token in re.finditer(r"\\.|\[(?:\\.|[^\]\\])*\]|\{(\d{1,9})(?:,(\d{0,9}))?\}|.", pattern, re.DOTALL):
        text = token[0]
        if text == "(":
            sizes.append(0.0)
        elif text == ")" and len(sizes) > 1:
            last = max(1.0, sizes.pop())
            sizes[-1] += last
        elif token[1] is not None:
            more = last * (max(int(token[1]), int(token[2] or 0)) - 1)
            sizes[-1] += max(0.0, more)
            last += max(0.0, more)
        elif text not in "*+?|":
            last = 1.0
            sizes[-1] += 1
    return sum(sizes)


def _require_schema(schema: str, param: str, limits: RequestLimits) -> None:
    try:
        value = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise _bad_request(param, f"the schema is not JSON: {str(error)[:100]}") from None
    if (size := len(json.dumps(value))) > 10 * limits.pattern:
        raise _bad_request(
            param, f"a schema of {size:,} characters is too long; use at most {10 * limits.pattern:,}", "too_large"
        )
    if (depth := _depth(value)) > limits.depth:
        raise _bad_request(param, f"a schema of {depth} levels is too deep; use at most {limits.depth}", "too_large")


def _depth(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if parts is None else 1 + max(map(_depth, parts), default=0)
