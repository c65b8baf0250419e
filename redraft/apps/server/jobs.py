"""From a body to a job: what the model process is asked to do, checked as far as it can be without a model."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redraft.apps.server.errors import ApiError, _bad_request, _JsonObject, _unknown_model
from redraft.apps.server.schemas import (
    ChatBody,
    ChooseBody,
    CommonBody,
    CompletionBody,
    CorrectBody,
    FimBody,
    InfillBody,
    OpenAIBody,
    ScoreBody,
    StrictModel,
    TraceBody,
)
from redraft.tasks.arguments.aliases import ALIASES, settings_from
from redraft.tasks.arguments.rules import ArgumentError
from redraft.tasks.arguments.settings import (
    ControlSettings,
    CorrectSettings,
    DecodingSettings,
    GenerationSettings,
    InfillSettings,
    RewriteSettings,
)
from redraft.tasks.arguments.templates import Hole, Template

_META = re.compile(r"([.^$*+?{}\[\]\\|()&~#-])")
_WISHES = ("attributes", "length", "pos", "scale")
_CLIENTS = {
    "": "prompt",  # the text that was given
    "max_new_tokens": "max_tokens",
    "prompts": "prompt",
    "templates": "template",
    **{name: name for name in ("n", "seed", "temperature", "top_p", "texts", "draws", "answers", "stop")},
}


@dataclass(frozen=True)
class RequestLimits:
    """What one request may ask for."""

    tokens: int = 8192
    """Tokens to write in one text."""
    steps: int = 10_000
    cost: float = 2e7
    """tokens × steps × texts: what the network reads."""
    pattern: int = 2000
    """Characters of a pattern or schema."""
    repeats: int = 20_000
    """Characters that a pattern may stand for, when its counts are written out."""
    depth: int = 24
    """Levels of a JSON schema."""


@dataclass(frozen=True)
class _Job:
    """What the model process is asked to do."""

    model: _JsonObject
    verb: str
    given: _JsonObject
    cost: float = 0.0
    slow: bool = False  # rules are to be compiled
    names: Mapping[str, str] = field(default_factory=dict)  # our arguments, as the client calls them

    @property
    def message(self) -> _JsonObject:
        return {"model": self.model["id"], "verb": self.verb, "given": self.given, "slow": self.slow}


def _chosen_model(models: Sequence[_JsonObject], name: str | None) -> _JsonObject:
    """The model of that name; the first one if none is named."""
    found = models[0] if name is None else next((each for each in models if each["id"] == name), None)
    if found is None:
        raise _unknown_model(name or "", [each["id"] for each in models])
    return found


def _completion_job(body: CompletionBody | FimBody, models: Sequence[_JsonObject], bounds: RequestLimits) -> _Job:
    _require_neutral(body)
    if isinstance(body, CompletionBody) and (body.best_of or 1) not in (1, body.n or 1):
        raise _bad_request(
            "best_of", "best_of is not supported; ask for n texts and choose one yourself", "unsupported_parameter"
        )
    options, names = _options(body)
    if isinstance(body, CompletionBody):
        _keep_alternatives("logprobs", body.logprobs or 0, options, names)
    if "start_text" in options:
        return _rewrite_job(body, models, bounds, options, names)
    if any(name in options for name in _WISHES):
        return _control_job(body, models, bounds, options, names)
    if body.suffix is not None:
        if not isinstance(body.prompt, str):
            raise _bad_request("prompt", "a suffix goes with one prompt, not with a list of them")
        size = options.pop("max_new_tokens", None)
        holes = [(0, None) if size is None else (size, size)]
        return _hole_job(models, body, [body.prompt, body.suffix], holes, options, names, bounds)
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    return _job(
        models, body, "generate", {"prompts": prompts, "options": options}, GenerationSettings, names, bounds, prompts
    )


def _keep_alternatives(param: str, count: int, options: _JsonObject, names: dict[str, str]) -> None:
    """Log-probabilities of other tokens than the written one need their alternatives."""
    if count > 1 or (count and param == "top_logprobs"):
        options["alternatives"] = max(count, options.get("alternatives", 0))
        names["alternatives"] = param


def _rewrite_job(
    body: CompletionBody | FimBody,
    models: Sequence[_JsonObject],
    bounds: RequestLimits,
    options: _JsonObject,
    names: dict[str, str],
) -> _Job:
    """A text is edited in place: noised up to a strength, and written again; pinned words stay."""
    text = options.pop("start_text")
    _require_alone(body, "start_text, which is the whole text")
    names |= {"": "diffusion.start_text", "texts": "diffusion.start_text"}
    given = {"text": text, "options": options}
    size = max(1, len(text) // 3) * options.get("candidates", 1)
    return _job(models, body, "rewrite", given, RewriteSettings, names, bounds, [text], size)


def _control_job(
    body: CompletionBody | FimBody,
    models: Sequence[_JsonObject],
    bounds: RequestLimits,
    options: _JsonObject,
    names: dict[str, str],
) -> _Job:
    """A text as wished: its attributes, its length, the part of speech of every word."""
    _require_alone(body, f"{', '.join(_WISHES)}, which are about a whole text")
    names |= {name: f"diffusion.{name}" for name in _WISHES} | {"": "diffusion.attributes"}
    size = options.get("length") or len(options.get("pos", "").split()) or None
    return _job(models, body, "control", {"options": options}, ControlSettings, names, bounds, [""], size)


def _require_alone(body: CompletionBody | FimBody, what: str) -> None:
    """Raises if a text that is asked for as a whole is also asked for in parts."""
    for name, value in (("prompt", body.prompt), ("suffix", body.suffix), ("max_tokens", body.max_tokens)):
        if value:
            raise _bad_request(name, f"{name} does not go with {what}; leave it out")


def _chat_job(body: ChatBody, models: Sequence[_JsonObject], bounds: RequestLimits) -> _Job:
    _require_neutral(body)
    for name in ("tools", "tool_choice", "parallel_tool_calls"):
        if getattr(body, name) not in (None, [], "none"):
            raise _bad_request(name, f"{name} is not supported: these models call no tools", "unsupported_parameter")
    if body.top_logprobs and not body.logprobs:
        raise _bad_request("top_logprobs", "top_logprobs goes with logprobs=true")
    if body.max_tokens is not None and body.max_completion_tokens is not None:
        raise _bad_request(
            "max_completion_tokens", "max_tokens and max_completion_tokens mean the same; give one of them"
        )
    options, names = _options(body)
    if body.max_completion_tokens is not None:
        options["max_new_tokens"], names["max_new_tokens"] = body.max_completion_tokens, "max_completion_tokens"
    _keep_alternatives("top_logprobs", body.top_logprobs or 0, options, names)
    messages = [message.said for message in body.messages]
    names |= {"": "messages", "prompts": "messages", "source": "messages"}
    given = {"messages": messages, "options": options}
    texts = ["\n".join(message["content"] for message in messages)]
    return _job(models, body, "chat", given, GenerationSettings, names, bounds, texts)


def _infill_job(body: InfillBody | TraceBody, models: Sequence[_JsonObject], bounds: RequestLimits) -> _Job:
    if (body.template is None) == (body.pieces is None):
        raise _bad_request("template", "give either a template with holes [[n]], or pieces: texts and numbers")
    if body.max_tokens is not None:
        raise _bad_request("max_tokens", "the holes say how many tokens are written; leave max_tokens out")
    options, names = _options(body)
    where = "template" if body.template is not None else "pieces"
    names |= {"": where, "templates": where, "max_new_tokens": where}
    try:
        template = Template.parse(body.template) if body.template is not None else _typed(body.pieces or [])
    except ArgumentError as error:
        raise _as_api_error(error, names) from None
    holes = [(hole.least, hole.most) for hole in template.holes]
    return _hole_job(models, body, template.parts, holes, options, names, bounds)


def _hole_job(
    models: Sequence[_JsonObject],
    body: CommonBody,
    parts: Sequence[str],
    holes: Sequence[tuple[int, int | None]],
    options: _JsonObject,
    names: Mapping[str, str],
    bounds: RequestLimits,
) -> _Job:
    """The holes between given parts are filled."""
    given = {"parts": list(parts), "holes": list(holes), "options": options}
    room = options.get("room", 32)
    size = sum((room if isinstance(room, int) else 32) if most is None else most for _, most in holes)
    return _job(models, body, "infill", given, InfillSettings, names, bounds, ["".join(parts)], size)


def _typed(pieces: Sequence[str | int | None]) -> Template:
    """Texts, numbers and null as a template: nothing in a text is a hole."""
    parts, holes = [""], []
    for piece in pieces:
        if isinstance(piece, str):
            parts[-1] += piece
        elif isinstance(piece, bool) or (piece is not None and piece < 1):
            raise _bad_request("pieces", "a hole has at least one token; null is one of any length")
        else:
            parts.append("")
            holes.append(Hole(0 if piece is None else piece, piece))
    return Template(tuple(parts), tuple(holes))


def _choose_job(body: ChooseBody, models: Sequence[_JsonObject], bounds: RequestLimits) -> _Job:
    given = {"template": body.template, "answers": body.answers}
    answers = [answer for each in body.answers for answer in ([each] if isinstance(each, str) else each)]
    cost = len(answers) * (len(body.template) + max(map(len, answers), default=0)) / 3
    _require_cost(cost, bounds, "answers")
    return _Job(_chosen_model(models, body.model), "choose", given, cost, names=_CLIENTS | {"": "template"})


def _score_job(body: ScoreBody, models: Sequence[_JsonObject], bounds: RequestLimits) -> _Job:
    texts = [body.texts] if isinstance(body.texts, str) else body.texts
    options = {name: value for name in ("draws", "seed") if (value := getattr(body, name)) is not None}
    model = _chosen_model(models, body.model)
    cost = sum(max(len(text) / 3, model["length"] or 0) for text in texts) * (body.draws or 4)
    _require_cost(cost, bounds, "texts")
    return _Job(model, "score", {"texts": texts, "options": options}, cost, names=_CLIENTS | {"": "texts"})


def _correct_job(body: CorrectBody, models: Sequence[_JsonObject], bounds: RequestLimits) -> _Job:
    texts = [body.texts] if isinstance(body.texts, str) else body.texts
    names = ("noise", "keep", "names", "confidence")
    options = {name: value for name in names if (value := getattr(body, name)) is not None}
    try:
        settings_from(CorrectSettings, options)
    except ArgumentError as error:
        raise _as_api_error(error, {}) from None
    cost = 16.0 * sum(map(len, texts))  # each word is read a few times
    _require_cost(cost, bounds, "texts")
    given = {"texts": texts, "words": body.words, "options": options}
    return _Job(_chosen_model(models, body.model), "correct", given, cost, names=_CLIENTS | {"": "texts"})


def _trace_job(body: TraceBody, models: Sequence[_JsonObject], bounds: RequestLimits) -> _Job:
    """Of an infilling, a conversation or a completion, whichever is asked for."""
    if body.template is not None or body.pieces is not None:
        return _infill_job(body, models, bounds)
    if body.messages is not None:
        shared = body.model_dump(exclude_unset=True, by_alias=True, include=set(ChatBody.model_fields) - {"logprobs"})
        return _chat_job(ChatBody.model_validate(shared), models, bounds)
    return _completion_job(body, models, bounds)


def _job(
    models: Sequence[_JsonObject],
    body: CommonBody,
    verb: str,
    given: _JsonObject,
    kind: type[Any],
    names: Mapping[str, str],
    bounds: RequestLimits,
    texts: Sequence[str],
    holes: int | None = None,
) -> _Job:
    """A job whose arguments are those of `kind`, checked, with its cost."""
    model, options = _chosen_model(models, body.model), given["options"]
    try:
        asked = settings_from(kind, options)
    except ArgumentError as error:
        raise _as_api_error(error, names) from None
    _require_rules(asked, names, bounds)
    new = holes or options.get("max_new_tokens") or model["length"] or 128
    _require_size(names["max_new_tokens"], new, bounds)
    if (asked.steps or 0) > bounds.steps:
        raise _bad_request(names["steps"], f"{asked.steps:.3g} steps are too many; use at most {bounds.steps:,}")
    steps = asked.steps or model["steps"] or 128
    tokens = sum(new + (0 if model["block"] else len(text) / 3) for text in texts)
    cost = tokens * min(steps, new if model["block"] is None else steps) * (body.n or 1)
    _require_cost(cost, bounds, names["max_new_tokens"])
    return _Job(model, verb, given, cost, asked.ruled, names)


def _as_api_error(error: ArgumentError, names: Mapping[str, str]) -> ApiError:
    return _bad_request(names.get(error.argument, error.argument), str(error))


def _options(body: CommonBody) -> tuple[_JsonObject, dict[str, str]]:
    """The keyword arguments of `redraft.generate` or `infill`, and how the client calls each of them."""
    options: _JsonObject = {"seed": secrets.randbits(31) if body.seed is None else body.seed}
    for ours, theirs in (
        ("n", "n"),
        ("max_new_tokens", "max_tokens"),
        ("temperature", "temperature"),
        ("top_p", "top_p"),
    ):
        if (value := getattr(body, theirs)) is not None:
            options[ours] = value
    if (stop := getattr(body, "stop", None)) is not None:
        options["stop"] = stop
    extras: StrictModel | None = getattr(body, "diffusion", None)
    own = {} if extras is None else extras.model_dump(exclude_none=True, by_alias=True)
    names = dict(_CLIENTS) | {
        name: f"diffusion.{name}" for name in GenerationSettings.__dataclass_fields__ if name not in _CLIENTS
    }
    names |= {name: f"diffusion.{name}" for name in own} | {"room": "diffusion.room"}
    names |= {ALIASES[name].name: f"diffusion.{name}" for name in own if name in ALIASES}
    if (choices := own.pop("choices", None)) is not None:
        own["pattern"] = _one_of(choices, own)
        names["pattern"] = "diffusion.choices"
    if (schema := _schema(body)) is not None:
        own["schema"], names["schema"] = schema, "response_format"
    if isinstance(own.get("schema"), dict):
        own["schema"] = json.dumps(own["schema"])
    _take_vllm(own, names)
    if own.get("draft") not in (None, "lookup"):
        raise _bad_request("diffusion.draft", "directories of the server are not for its clients; use draft='lookup'")
    return options | own, names


def _take_vllm(own: _JsonObject, names: dict[str, str]) -> None:
    """vLLM's names for what a canvas holds already."""
    for theirs, ours in (("diffusion_seed_canvas", "start_text"), ("diffusion_pinned", "pinned")):
        if theirs in own:
            if ours in own:
                raise _bad_request(f"diffusion.{theirs}", f"{theirs} and {ours} mean the same; give one of them")
            own[ours], names[ours] = own.pop(theirs), f"diffusion.{theirs}"
    if own.pop("diffusion_read_only", False):
        raise _bad_request(
            "diffusion.diffusion_read_only", "/v1/score reads a text without changing it", "unsupported_value"
        )
    own.pop("diffusion_constrained", None)  # rules are always obeyed
    for name in ("strength", "pinned", "candidates"):
        if name in own and "start_text" not in own:
            raise _bad_request(names[name], f"{name} is about a text to edit; give it as diffusion.start_text")


def _one_of(choices: Sequence[str], own: _JsonObject) -> str:
    if "pattern" in own:
        raise _bad_request("diffusion.choices", "choices and pattern both say what the text is; give one of them")
    if not choices or not all(choices):
        raise _bad_request("diffusion.choices", "give at least one choice, none of them empty")
    return "|".join(_META.sub(r"\\\1", choice) for choice in choices)


def _schema(body: CommonBody) -> str | None:
    asked = getattr(body, "response_format", None)
    if asked is None or asked.type == "text":
        return None
    if asked.json_schema is None:
        raise _bad_request("response_format", "response_format of type json_schema needs json_schema: {schema: {...}}")
    return json.dumps(asked.json_schema.schema_)


def _require_neutral(body: OpenAIBody) -> None:
    """OpenAI's arguments that have no meaning here may only have the value that changes nothing."""
    for name in ("presence_penalty", "frequency_penalty", "logit_bias"):
        if getattr(body, name) not in (None, 0, 0.0, {}):
            raise _bad_request(
                name, f"{name} is not supported; use diffusion.repetition_penalty", "unsupported_parameter"
            )


def _require_size(param: str, tokens: int, bounds: RequestLimits) -> None:
    if tokens > bounds.tokens:
        raise _bad_request(param, f"{tokens:.9g} tokens are too many; ask for at most {bounds.tokens:,}", "too_large")


def _require_cost(cost: float, bounds: RequestLimits, param: str) -> None:
    if cost > bounds.cost:
        raise _bad_request(
            param,
            f"this costs {cost:.3g} tokens × steps × texts, more than the {bounds.cost:.3g} of this server",
            "too_large",
        )


def _require_rules(asked: DecodingSettings, names: Mapping[str, str], bounds: RequestLimits) -> None:
    """Rules that would take long to compile are refused before anybody tries."""
    for pattern in asked.every_pattern:
        _require_pattern(pattern, names["pattern"], bounds)
    if asked.schema is not None:
        _require_schema(asked.schema, names["schema"], bounds)


def _require_pattern(pattern: str, param: str, bounds: RequestLimits) -> None:
    if len(pattern) > bounds.pattern:
        raise _bad_request(
            param, f"a pattern of {len(pattern):,} characters is too long; use at most {bounds.pattern:,}", "too_large"
        )
    if (size := _expanded_length(pattern)) > bounds.repeats:
        raise _bad_request(
            param,
            f"the pattern stands for {size:.3g} characters when its counts are written out; use smaller counts",
            "too_large",
        )


def _expanded_length(pattern: str) -> float:
    """About how many characters a pattern has if its counts {m,n} are written out; nested ones multiply."""
    sizes, closed = [0.0], 1.0  # of the groups that are open; of what stands right before
    for token in re.finditer(r"\\.|\[(?:\\.|[^\]\\])*\]|\{(\d{1,9})(?:,(\d{0,9}))?\}|.", pattern, re.DOTALL):
        text = token[0]
        if text == "(":
            sizes.append(0.0)
        elif text == ")" and len(sizes) > 1:
            closed = max(1.0, sizes.pop())
            sizes[-1] += closed
        elif token[1] is not None:
            more = closed * (max(int(token[1]), int(token[2] or 0)) - 1)
            sizes[-1] += max(0.0, more)
            closed += max(0.0, more)
        elif text not in "*+?|":
            closed = 1.0
            sizes[-1] += 1
    return sum(sizes)


def _require_schema(schema: str, param: str, bounds: RequestLimits) -> None:
    try:
        value = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise _bad_request(param, f"the schema is not JSON: {str(error)[:100]}") from None
    if (size := len(json.dumps(value))) > 10 * bounds.pattern:
        raise _bad_request(
            param, f"a schema of {size:,} characters is too long; use at most {10 * bounds.pattern:,}", "too_large"
        )
    if (depth := _depth(value)) > bounds.depth:
        raise _bad_request(param, f"a schema of {depth} levels is too deep; use at most {bounds.depth}", "too_large")


def _depth(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if parts is None else 1 + max(map(_depth, parts), default=0)
