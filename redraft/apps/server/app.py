"""The HTTP side: routes, access control, errors. It runs no model; requests go to the queue of the model process."""

from __future__ import annotations

import asyncio
import hmac
import re
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redraft.apps.server import jobs, responses
from redraft.apps.server.bodies.fields import Body, StrictModel, parse_body
from redraft.apps.server.bodies.schemas import (
    ChatBody,
    ChooseBody,
    CompletionBody,
    CorrectBody,
    FimBody,
    InfillBody,
    OpenAIBody,
    ScoreBody,
    TraceBody,
)
from redraft.apps.server.errors import (
    _ApiError,
    _bad_request,
    _from_worker_error,
    _JsonObject,
    _too_large,
    _unavailable,
)
from redraft.apps.server.jobs import RequestLimits, _Job
from redraft.apps.server.metrics import _ServerMetrics
from redraft.apps.server.request_queue import _QueuedRequest
from redraft.apps.server.supervisor import Supervisor
from redraft.tasks.arguments.settings import GenerationSettings

_PAGE = Path(__file__).with_name("playground")
_SMALL = 1 << 16  # bytes; bodies up to this size arrive with their headers
_HOSTS = re.compile(r"((127\.\d+\.\d+\.\d+|localhost|\[::1\])(:\d+)?)?")
_SECURITY = {
    "Content-Security-Policy": "default-src 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True)
class AccessPolicy:
    """API key, request size and keep-alive interval."""

    key: str | None = None
    """The API key; None to need no key, in which case only requests to a loopback address are accepted."""
    max_body: int = 1 << 20
    """Maximum size of a request body in bytes."""
    keep_alive: float = 10.0
    """Seconds without an event after which a stream sends a comment, so that clients do not time out."""


def build_app(
    supervisor: Supervisor, access: AccessPolicy = AccessPolicy(), limits: RequestLimits = RequestLimits()
) -> FastAPI:
    """Returns the ASGI app in front of a model process."""
    routes = _Routes(supervisor, access, limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await supervisor.start()
        yield
        await supervisor.close()

    app = FastAPI(title="Redraft", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_exception_handler(HTTPException, _http_error)  # type: ignore[arg-type]
    app.add_exception_handler(_ApiError, _api_error)  # type: ignore[arg-type]
    app.add_middleware(_AccessMiddleware, routes=routes)
    app.get("/v1/models")(routes.models)
    app.get("/v1/models/{name:path}")(routes.model)
    app.get("/health/live")(routes.live)
    app.get("/health/ready")(routes.is_ready)
    app.get("/metrics")(routes.prometheus)
    for path, kind, route in routes.posts():
        app.post(path, openapi_extra=_schema_of(kind), summary=(kind.__doc__ or "").partition("\n")[0])(route)
    for file in _PAGE.iterdir():
        app.get("/" if file.name == "index.html" else f"/{file.name}", include_in_schema=False)(_file_route(file))
    return app


def _file_route(file: Path) -> Callable[[], Awaitable[Response]]:
    async def send() -> Response:
        return FileResponse(file)

    return send


def _schema_of(kind: type[StrictModel]) -> _JsonObject:
    """Returns the OpenAPI description of the body of a route."""
    schema = kind.model_json_schema(by_alias=True)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": _inline_definitions(schema)}}}}


def _inline_definitions(schema: _JsonObject) -> _JsonObject:
    """Replaces references in the schema by the definitions they point to."""
    definitions = schema.pop("$defs", {})

    def walk(value: Any) -> Any:
        if isinstance(value, dict) and "$ref" in value:
            return walk(definitions[value["$ref"].rsplit("/", 1)[-1]])
        if isinstance(value, dict):
            return {key: walk(item) for key, item in value.items()}
        return [walk(item) for item in value] if isinstance(value, list) else value

    inlined: _JsonObject = walk(schema)
    return inlined


async def _http_error(_: Request, error: HTTPException) -> Response:
    """Converts errors of Starlette to the error format of this API."""
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request")
    param = "method" if error.status_code == 405 else "path"
    return _error_response(_ApiError(error.status_code, code, param, str(error.detail), dict(error.headers or {})))


async def _api_error(_: Request, error: _ApiError) -> Response:
    return _error_response(error)


def _error_response(error: _ApiError) -> JSONResponse:
    return JSONResponse(error.body, error.status, error.headers)


class _AccessMiddleware:
    """Wraps the whole app: checks access, adds security headers, records metrics, and turns exceptions into responses.

    It is plain ASGI middleware, so that a client that disconnects is noticed at once.
    """

    def __init__(self, app: ASGIApp, routes: _Routes) -> None:
        self.app, self.routes = app, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        request, start, status = Request(scope), time.perf_counter(), 0

        async def send_secured(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(_SECURITY)
            await send(message)

        try:
            self.routes.admit(request)
            self.routes.require_capacity(request)
            await self.app(scope, receive, send_secured)
        except _ApiError as error:
            await _error_response(error)(scope, receive, send_secured)
        except Exception as error:
            self.routes.supervisor.log(f"redraft serve: {type(error).__name__} in {scope['path']}")
            traceback.print_tb(error.__traceback__, limit=-6)  # locations in the code, no text of a request
            if not status:
                await _error_response(_from_worker_error({"kind": "internal", "message": type(error).__name__}))(
                    scope, receive, send_secured
                )
        finally:
            self.routes.metrics.count_response(scope["path"], status, time.perf_counter() - start)


class _Routes:
    """The routes, each a coroutine from a request to a response."""

    def __init__(self, supervisor: Supervisor, access: AccessPolicy, limits: RequestLimits) -> None:
        self.supervisor, self.queue, self.access, self.limits = supervisor, supervisor.queue, access, limits
        self.metrics = _ServerMetrics(supervisor)
        self.paths = {path for path, *_ in self.posts()}

    def posts(self) -> list[tuple[str, type[StrictModel], Callable[[Request], Awaitable[Response]]]]:
        """Returns path, body class and coroutine of every POST route."""

        def route(kind: type[Body], answer: Callable[[Body, Request], Awaitable[Response]]) -> Any:
            async def post(request: Request) -> Response:
                return await answer(parse_body(kind, await self._body(request)), request)

            return kind, post

        return [
            ("/v1/completions", *route(CompletionBody, self.completions)),
            ("/v1/fim/completions", *route(FimBody, self.completions)),
            ("/v1/chat/completions", *route(ChatBody, self.chat)),
            ("/v1/infill", *route(InfillBody, self.infill)),
            ("/v1/choose", *route(ChooseBody, self.choose)),
            ("/v1/score", *route(ScoreBody, self.score)),
            ("/v1/correct", *route(CorrectBody, self.correct)),
            ("/v1/diffusion/trace", *route(TraceBody, self.trace)),
        ]

    # --- admission ---

    def admit(self, request: Request) -> None:
        """Raises if the API key is wrong, or if the server has no key and the Host header is not a loopback address."""
        if self.access.key is None:
            if not _HOSTS.fullmatch(request.headers.get("host", "")):  # DNS rebinding by a web page
                raise _ApiError(
                    403, "wrong_host", "host", "without an API key this server only accepts requests to localhost"
                )
            return
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if request.url.path.startswith(("/v1/", "/metrics")) and not hmac.compare_digest(
            given.encode(), self.access.key.encode()
        ):
            raise _ApiError(401, "invalid_api_key", "authorization", "give the API key: Authorization: Bearer KEY")

    def require_capacity(self, request: Request) -> None:
        """Rejects a request before its body is read if the queue is full.

        Longer bodies are read first, because some clients only read the response after sending the whole body.
        """
        length = request.headers.get("content-length", "")
        if request.method == "POST" and request.url.path in self.paths and length.isdigit() and int(length) <= _SMALL:
            self.queue.require_capacity()

    async def _body(self, request: Request) -> bytes:
        """Returns the whole body; raises if it is not JSON or too long."""
        if not request.headers.get("content-type", "").lower().startswith("application/json"):
            raise _bad_request("content-type", "send JSON, with Content-Type: application/json", "invalid_content_type")
        content = bytearray()
        size = 0
        async for part in request.stream():
            size += len(part)
            content += part if size <= self.access.max_body else b""
            if size > 16 * self.access.max_body:  # read to the end if only a little too long, as some clients need it
                break
        if size <= self.access.max_body:
            return bytes(content)
        raise _too_large("body", f"the body is longer than {self.access.max_body:,} bytes; send less")

    # --- OpenAI's routes ---

    async def models(self) -> Response:
        return JSONResponse({"object": "list", "data": [self._card(model) for model in self._loaded_models()]})

    async def model(self, name: str) -> Response:
        return JSONResponse(self._card(jobs._chosen_model(self._loaded_models(), name)))

    def _loaded_models(self) -> list[_JsonObject]:
        if not self.supervisor.model_infos:
            raise _unavailable("loading", "the model is still loading; try again in a moment")
        return self.supervisor.model_infos

    def _card(self, info: _JsonObject) -> _JsonObject:
        """Returns a model in the format of OpenAI, with our own facts under `diffusion`."""
        own = {name: value for name, value in info.items() if name not in ("id", "created")}
        return {
            "id": info["id"],
            "object": "model",
            "created": info["created"],
            "owned_by": "redraft",
            "diffusion": own,
        }

    async def completions(self, body: CompletionBody | FimBody, request: Request) -> Response:
        job = jobs._completion_job(body, self._loaded_models(), self.limits)
        head = responses._ResponseHeader("cmpl", "text_completion", job.model["id"])
        prompts = job.arguments.get("prompts") or job.arguments.get("parts", [""])[:1]
        echo = [text for text in prompts for _ in range(body.n or 1)] if getattr(body, "echo", None) else []
        if body.stream:
            return self._streamed(job, responses._CompletionStream(head, False, _stops(body), body, echo), body)
        return JSONResponse(
            responses._completion_body(head, await self._record(job, request), body, _stops(body), echo)
        )

    async def chat(self, body: ChatBody, request: Request) -> Response:
        job = jobs._chat_job(body, self._loaded_models(), self.limits)
        head = responses._ResponseHeader(
            "chatcmpl", "chat.completion.chunk" if body.stream else "chat.completion", job.model["id"]
        )
        if body.stream:
            return self._streamed(job, responses._CompletionStream(head, True, _stops(body), body), body)
        return JSONResponse(responses._chat_body(head, await self._record(job, request), body, _stops(body)))

    # --- our own routes ---

    async def infill(self, body: InfillBody, request: Request) -> Response:
        job = jobs._infill_job(body, self._loaded_models(), self.limits)
        if body.stream:
            raise _bad_request(
                "stream", "an infilling cannot be streamed; use /v1/diffusion/trace instead", "unsupported_parameter"
            )
        head = responses._ResponseHeader("infill", "infill", job.model["id"])
        return JSONResponse(responses._infill_body(head, await self._record(job, request)))

    async def choose(self, body: ChooseBody, request: Request) -> Response:
        job = jobs._choose_job(body, self._loaded_models(), self.limits)
        head = responses._ResponseHeader("choose", "choose", job.model["id"])
        return JSONResponse(head.body() | await self._record(job, request))

    async def score(self, body: ScoreBody, request: Request) -> Response:
        job = jobs._score_job(body, self._loaded_models(), self.limits)
        head = responses._ResponseHeader("score", "score", job.model["id"])
        return JSONResponse(head.body() | await self._record(job, request))

    async def correct(self, body: CorrectBody, request: Request) -> Response:
        job = jobs._correct_job(body, self._loaded_models(), self.limits)
        head = responses._ResponseHeader("correct", "correct", job.model["id"])
        return JSONResponse(head.body() | await self._record(job, request))

    async def trace(self, body: TraceBody, request: Request) -> Response:
        """Streams every canvas as NDJSON, or as SSE if the client asks for that."""
        job = jobs._trace_job(body, self._loaded_models(), self.limits)
        sse = body.format == "sse" or (body.format is None and "text/event-stream" in request.headers.get("accept", ""))
        queued = self._submit(job, frames="trace")
        write = responses._sse if sse else responses._ndjson

        async def lines() -> AsyncIterator[bytes]:
            seed = job.arguments["options"].get("seed", GenerationSettings.seed)  # options: what differs from defaults
            yield write({"type": "start", "model": job.model["id"], "seed": seed})
            async for event in self._events(queued):
                if event is None:
                    yield responses._KEEP_ALIVE if sse else b"\n"
                elif event["event"] == "frame":
                    yield write({"type": "frame"} | {k: v for k, v in event.items() if k not in ("event", "id")})
                elif event["event"] == "done":
                    yield write({"type": "done", **event["record"], "usage": responses._usage(event["record"])})
                else:
                    yield write({"type": "error"} | _from_worker_error(event, dict(job.names)).body)
            if sse:
                yield responses._DONE

        return StreamingResponse(lines(), media_type="text/event-stream" if sse else "application/x-ndjson")

    async def live(self) -> Response:
        return JSONResponse({"status": "live"})

    async def is_ready(self) -> Response:
        if self.queue.draining or not self.supervisor.ready:
            raise _unavailable("draining" if self.queue.draining else "loading", "the server is not ready")
        ids = [info["id"] for info in self.supervisor.model_infos]
        invariant = self.supervisor.batch_invariant_rows is not None
        counts = self.queue.ledger.as_json()
        return JSONResponse({"status": "ready", "models": ids, "batch_invariant": invariant, "request_counts": counts})

    async def prometheus(self) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    # --- jobs ---

    def _submit(self, job: _Job, frames: str | None = None) -> _QueuedRequest:
        message = job.message
        if frames is not None:
            message["arguments"] = {**message["arguments"], "frames": frames}
        return self.queue.submit(message, job.cost)

    async def _record(self, job: _Job, request: Request) -> _JsonObject:
        """Returns the finished record; cancels the request if the client disconnects."""
        queued = self._submit(job)
        disconnected = asyncio.create_task(_wait_for_disconnect(request))
        next_event = asyncio.create_task(queued.events.get())
        try:
            await asyncio.wait({disconnected, next_event}, return_when=asyncio.FIRST_COMPLETED)
            if not next_event.done():
                self.queue.cancel(queued)
            event = await next_event
        finally:
            self.queue.cancel(queued)
            disconnected.cancel()
        if event["event"] != "done":
            raise _from_worker_error(event, dict(job.names))
        record: _JsonObject = event["record"]
        self.metrics.count_result(record)
        return record

    async def _events(self, queued: _QueuedRequest) -> AsyncIterator[_JsonObject | None]:
        """Yields the events of a request, and None when a keep-alive is due; cancels the request if closed early."""
        try:
            while True:
                try:
                    event = await asyncio.wait_for(queued.events.get(), self.access.keep_alive)
                except TimeoutError:
                    yield None
                    continue
                if event["event"] == "done":
                    self.metrics.count_result(event["record"])
                yield event
                if event["event"] != "frame":
                    return
        finally:
            self.queue.cancel(queued)

    def _streamed(self, job: _Job, stream: responses._CompletionStream, body: OpenAIBody) -> Response:
        """Streams a completion as SSE."""
        queued = self._submit(job, frames="drafts")

        async def chunks() -> AsyncIterator[bytes]:
            async for event in self._events(queued):
                if event is None:
                    yield responses._KEEP_ALIVE
                elif event["event"] == "frame":
                    if (chunk := stream.frame(event)) is not None:
                        yield responses._sse(chunk)
                elif event["event"] == "done":
                    for chunk in stream.last(event["record"]):
                        yield responses._sse(chunk)
                    if body.stream_options is not None and body.stream_options.include_usage:
                        yield responses._sse(
                            stream.head.body() | {"choices": [], "usage": responses._usage(event["record"])}
                        )
                    yield responses._DONE
                else:
                    yield responses._sse(_from_worker_error(event, dict(job.names)).body)
                    yield responses._DONE

        return StreamingResponse(chunks(), media_type="text/event-stream")


def _stops(body: OpenAIBody) -> list[str]:
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if any(not stop for stop in stops):
        raise _bad_request("stop", "a stop string is empty; give strings of at least one character")
    return stops


async def _wait_for_disconnect(request: Request) -> None:
    """Returns when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
