"""Request bodies: what each route accepts, validated in one place. OpenAPI is generated from the same classes.

Arguments of OpenAI are at the top level; our own are under `diffusion`, with the field names of `GenerationSettings`.
Unsupported arguments are rejected by name; none is silently ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from redraft.apps.server.bodies.fields import MAX_TEXT, Extras, InfillExtras, StrictModel, setting_field
from redraft.apps.server.bodies.structure import StructuredBody
from redraft.tasks.arguments.settings import CorrectSettings, GenerationSettings, ScoreSettings

_Texts = Annotated[str, Field(max_length=MAX_TEXT)] | Annotated[list[str], Field(min_length=1, max_length=64)]
_Pieces = Annotated[  # texts, numbers (holes with that many tokens) and null (a hole of any length)
    list[str | int | None],
    Field(min_length=1, max_length=256, description="Texts, lengths of holes, null: any length."),
]


class StreamOptions(StrictModel):
    """Options of a streamed response."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class CommonBody(StrictModel):
    """Parameters of all routes that generate text."""

    model: str | None = Field(None, max_length=500, description="Name of a model; the first one by default.")
    max_tokens: Annotated[int | None, setting_field(GenerationSettings, "max_new_tokens", "max_tokens")] = None
    temperature: Annotated[float | None, setting_field(GenerationSettings, "temperature")] = None
    top_p: Annotated[float | None, setting_field(GenerationSettings, "top_p")] = None
    seed: Annotated[int | None, setting_field(GenerationSettings, "seed")] = None
    n: Annotated[int | None, setting_field(GenerationSettings, "n")] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = Field(None, max_length=1000, description="Not used.")


class OpenAIBody(CommonBody, StructuredBody):
    """Parameters of OpenAI's routes; the penalties and logit_bias only accept their neutral values."""

    stop: Annotated[str | list[str] | None, setting_field(GenerationSettings, "stop")] = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    diffusion: Extras | None = None  # type: ignore[valid-type]


class CompletionBody(OpenAIBody):
    """POST /v1/completions"""

    prompt: _Texts = ""
    suffix: str | None = Field(None, max_length=MAX_TEXT, description="Text after the part to generate.")
    echo: bool | None = None
    best_of: int | None = Field(None, ge=1, le=128)
    logprobs: int | None = Field(
        None, ge=0, le=5, description="Log-probability of each token when it was written, plus this many alternatives."
    )


class TextPart(StrictModel):
    """A part of the content of a message."""

    type: Literal["text"]
    text: str = Field(max_length=MAX_TEXT)


class Message(StrictModel):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, Field(max_length=MAX_TEXT)] | Annotated[list[TextPart], Field(max_length=256)]
    name: str | None = Field(None, max_length=200)

    @property
    def plain(self) -> dict[str, str]:
        """Role and text, with the role developer replaced by system."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ChatBody(OpenAIBody):
    """POST /v1/chat/completions"""

    messages: Annotated[list[Message], Field(min_length=1, max_length=1024)]
    max_completion_tokens: Annotated[
        int | None, setting_field(GenerationSettings, "max_new_tokens", "max_completion_tokens")
    ] = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None


class FimBody(OpenAIBody):
    """POST /v1/fim/completions, as in Mistral's API: the text between a prompt and a suffix."""

    prompt: str = Field(max_length=MAX_TEXT)
    suffix: str | None = Field(None, max_length=MAX_TEXT)


class InfillBody(CommonBody):
    """POST /v1/infill: fill the holes of a template such as "She opened the [[6]] and left.", or of pieces."""

    template: str | None = Field(None, max_length=MAX_TEXT, description="Text with holes, such as [[6]] for 6 tokens.")
    pieces: _Pieces | None = None
    diffusion: InfillExtras | None = None  # type: ignore[valid-type]


class ChooseBody(StrictModel):
    """POST /v1/choose: the probability of each answer in the holes [[?]] of a text."""

    model: str | None = Field(None, max_length=500)
    template: str = Field(max_length=MAX_TEXT)
    answers: (
        Annotated[list[str], Field(min_length=2, max_length=256)]
        | Annotated[list[list[str]], Field(min_length=1, max_length=64)]
    )


class ScoreBody(StrictModel):
    """POST /v1/score: the bits of each text."""

    model: str | None = Field(None, max_length=500)
    texts: _Texts
    draws: Annotated[int | None, setting_field(ScoreSettings, "draws", most=64)] = None
    seed: Annotated[int | None, setting_field(ScoreSettings, "seed")] = None


class CorrectBody(StrictModel):
    """POST /v1/correct: texts with their spelling corrected."""

    model: str | None = Field(None, max_length=500)
    texts: _Texts
    words: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=50_000)] | None = Field(
        None, description="Known words; by default those stored with the model, else those of its training data."
    )
    noise: Annotated[float | None, setting_field(CorrectSettings, "noise")] = None
    keep: Annotated[list[str] | None, setting_field(CorrectSettings, "keep")] = None
    names: Annotated[bool | None, setting_field(CorrectSettings, "names")] = None
    confidence: Annotated[float | None, setting_field(CorrectSettings, "confidence")] = None


class TraceBody(CompletionBody):
    """POST /v1/diffusion/trace: every canvas of a completion, a chat or an infilling."""

    template: str | None = Field(None, max_length=MAX_TEXT)
    pieces: _Pieces | None = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=1024)] | None = None
    format: Literal["ndjson", "sse"] | None = None
