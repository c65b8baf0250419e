"""POST /v1/diffusion/trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from redraft.apps.server.bodies.schemas import _Text
from redraft.apps.server.errors import _JsonObject
from redraft.apps.server.jobs import RequestLimits, _Job
from redraft.apps.server.responses import _usage
from redraft.apps.server.routes.chat import ChatBody, _Messages
from redraft.apps.server.routes.completions import CompletionBody
from redraft.apps.server.routes.infill import _Pieces, _template_job
from redraft.apps.server.streams import _DONE, EventStream, _ndjson, _sse
from redraft.tasks.arguments.settings import GenerationSettings


class TraceBody(CompletionBody):
    """POST /v1/diffusion/trace: every canvas of a completion, a chat or an infilling."""

    path = "/v1/diffusion/trace"
    template: _Text | None = None
    pieces: _Pieces | None = None
    messages: _Messages | None = None
    format: Literal["ndjson", "sse"] | None = None

    def job(self, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
        """Returns the job of an infilling, a chat or a completion, depending on which fields are set."""
        if self.template is not None or self.pieces is not None:
            return _template_job(self, self.template, self.pieces, models, limits)
        if self.messages is not None:
            shared = set(ChatBody.model_fields) - {"logprobs"}
            content = self.model_dump(exclude_unset=True, by_alias=True, include=shared)
            return ChatBody.model_validate(content).job(models, limits)
        return super().job(models, limits)

    def event_stream(self, job: _Job, accept: str) -> EventStream | None:
        """Streams every canvas as NDJSON, or as SSE if the client asks for that."""
        return _TraceStream(job, self.format == "sse" or (self.format is None and "text/event-stream" in accept))


@dataclass(frozen=True)
class _TraceStream(EventStream):
    """Every canvas, then the record, one JSON object per line or per event."""

    job: _Job
    sse: bool
    frames = "trace"

    @property
    def media_type(self) -> str:  # type: ignore[override]
        return "text/event-stream" if self.sse else "application/x-ndjson"

    @property
    def keep_alive(self) -> bytes:  # type: ignore[override]
        return super().keep_alive if self.sse else b"\n"

    def start(self) -> Iterator[bytes]:
        seed = self.job.arguments["options"].get("seed", GenerationSettings.seed)  # options: what differs from defaults
        yield self._line({"type": "start", "model": self.job.model["id"], "seed": seed})

    def frame(self, event: _JsonObject) -> Iterator[bytes]:
        yield self._line({"type": "frame"} | {key: event[key] for key in event if key not in ("event", "id")})

    def finish(self, record: _JsonObject) -> Iterator[bytes]:
        yield from self._end({"type": "done", **record, "usage": _usage(record)})

    def fail(self, error: _JsonObject) -> Iterator[bytes]:
        yield from self._end({"type": "error"} | error)

    def _line(self, content: _JsonObject) -> bytes:
        return _sse(content) if self.sse else _ndjson(content)

    def _end(self, content: _JsonObject) -> Iterator[bytes]:
        yield self._line(content)
        if self.sse:
            yield _DONE
