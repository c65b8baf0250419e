"""Parameters that routes share. OpenAPI is generated from the same classes.

Arguments of OpenAI are at the top level; our own are under `diffusion`, with the field names of `GenerationSettings`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from redraft.apps.server.bodies.fields import _MAX_TEXT, StrictModel, with_settings
from redraft.tasks.arguments.aliases import ALIASES
from redraft.tasks.arguments.settings import ControlSettings, GenerationSettings, RewriteSettings

_SAME = (  # have the same names in OpenAI's API
    *("n", "seed", "temperature", "top_p"),
    *("frequency_penalty", "presence_penalty", "logit_bias"),
)
_TOP = (*_SAME, "stop", "max_new_tokens")  # at the top level, as in OpenAI's API
_IGNORED = (  # these change nothing: nothing is stored or billed, and models do not reason
    *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
    *("reasoning_effort", "verbosity", "parallel_tool_calls"),
)
_Text = Annotated[str, Field(max_length=_MAX_TEXT)]
_Texts = _Text | Annotated[list[str], Field(min_length=1, max_length=64)]
_Ids = Annotated[list[int], Field(min_length=1, max_length=100_000)]
_Prompts = _Texts | _Ids | Annotated[list[_Ids], Field(min_length=1, max_length=64)]  # texts, or their ids
_Name = Annotated[str, Field(max_length=1000)]
_Choices = Annotated[list[str], Field(max_length=256, description="The generated text is one of these.")]


class StreamOptions(StrictModel):
    """Options of a streamed response."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class JsonSchema(StrictModel):
    """The JSON schema of a structured output."""

    name: _Name | None = None
    description: _Text | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(StrictModel):
    """The format of the text: free, any JSON object, or JSON that matches a schema exactly."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(StrictModel):
    """The structure of the text in vLLM's API; exactly one of them."""

    json_: str | dict[str, Any] | None = Field(None, alias="json", description="A JSON schema.")
    regex: _Text | None = None
    choice: _Choices | None = None
    json_object: bool | None = None


@with_settings(
    *(RewriteSettings, ControlSettings, GenerationSettings),
    without=(*_TOP, "chat", "lexicon", "classifier"),  # the last two name files of the server
    aliases=ALIASES,
    most={"candidates": 64, "attributes": 16, "pinned": 1000},
    diffusion_pinned="pinned",
)
class Extras(StrictModel):
    """Settings of generation, rewriting and control that OpenAI's arguments do not cover."""

    choices: _Choices | None = None
    start_text: _Text | None = Field(None, description="A text to edit in place.")
    diffusion_seed_canvas: _Text | None = Field(None, description="Name of start_text in vLLM.")
    diffusion_read_only: bool | None = Field(None, description="vLLM: must be false; /v1/score scores a text.")
    diffusion_constrained: bool | None = Field(None, description="vLLM: ignored; constraints are always enforced.")


@with_settings(
    GenerationSettings, only=_SAME, most={"n": 128, "temperature": 2}, ignored=_IGNORED, max_tokens="max_new_tokens"
)
class CommonBody(StrictModel):
    """Parameters of all routes that generate text."""

    model: _Name | None = Field(None, description="Name of a model; the first one by default.")
    n: int | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


@with_settings(GenerationSettings, only=["stop"], most={"stop": 16})
class OpenAIBody(CommonBody):
    """Parameters of OpenAI's routes."""

    stop: tuple[str, ...] | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: str | dict[str, Any] | None = Field(None, description="Name of structured_outputs.json in older vLLM.")
    guided_regex: _Text | None = Field(None, description="Name of structured_outputs.regex.")
    guided_choice: _Choices | None = Field(None, description="Name of structured_outputs.choice.")
    diffusion: Extras | None = None
