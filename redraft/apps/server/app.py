"""The HTTP side: routes, access control, errors. It runs no model; requests go to the queue of the model process."""

from __future__ import annotations

import asyncio
import hmac
import re
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redraft.apps.server.bodies.fields import StrictModel, parse_body
from redraft.apps.server.errors import (
    _ApiError,
    _bad_request,
    _from_worker_error,
    _JsonObject,
    _too_large,
    _unavailable,
)
from redraft.apps.server.jobs import RequestLimits, _chosen_model, _Job
from redraft.apps.server.metrics import _ServerMetrics
from redraft.apps.server.request_queue import _QueuedRequest
from redraft.apps.server.routes import ROUTES
from redraft.apps.server.routes.route import Route
from redraft.apps.server.streams import EventStream
from redraft.apps.server.supervisor import Supervisor

_PAGE = Path(__file__).with_name("playground")
_SMALL = 1 << 16  # bytes; bodies up to this size arrive with their headers
_HOSTS = re.compile(r"((127\.\d+\.\d+\.\d+|localhost|\[::1\])(:\d+)?)?")
_WITH_KEY = ("/v1/", "/metrics", "/tokenize", "/detokenize")  # paths that need the API key, if there is one
_SECURITY = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'",
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
    read_timeout: float = 20.0
    """Seconds that a client has to send the head of a request, and as many again to send its body."""


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
    app.get("/tokenizer_info")(routes.tokenizer)
    app.get("/health/live")(routes.live)
    app.get("/health/ready")(routes.is_ready)
    app.get("/metrics")(routes.prometheus)
    for path, kind in ROUTES.items():
        summary = (kind.__doc__ or "").partition("\n")[0]
        app.post(path, openapi_extra=_schema_of(kind), summary=summary)(routes.post(kind))
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

    def post(self, kind: type[Route]) -> Callable[[Request], Awaitable[Response]]:
        """Returns the coroutine of a POST route."""

        async def post(request: Request) -> Response:
            body = parse_body(kind, await self._body(request))
            job = body.job(self._loaded_models(), self.limits)
            stream = body.event_stream(job, request.headers.get("accept", ""))
            if stream is not None:
                return self._streamed(job, stream)
            return JSONResponse(body.response(job, await self._record(job, request)))

        return post

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
        if request.url.path.startswith(_WITH_KEY) and not hmac.compare_digest(given.encode(), self.access.key.encode()):
            raise _ApiError(401, "invalid_api_key", "authorization", "give the API key: Authorization: Bearer KEY")

    def require_capacity(self, request: Request) -> None:
        """Rejects a request before its body is read if the queue is full.

        Longer bodies are read first, because some clients only read the response after sending the whole body.
        """
        length = request.headers.get("content-length", "")
        if request.method == "POST" and request.url.path in ROUTES and length.isdigit() and int(length) <= _SMALL:
            self.queue.require_capacity()

    async def _body(self, request: Request) -> bytes:
        """Returns the whole body; raises if it is not JSON or too long."""
        if not request.headers.get("content-type", "").lower().startswith("application/json"):
            raise _bad_request("content-type", "send JSON, with Content-Type: application/json", "invalid_content_type")
        content = bytearray()
        size = 0
        try:
            async with asyncio.timeout(self.access.read_timeout):
                async for part in request.stream():
                    size += len(part)
                    content += part if size <= self.access.max_body else b""
                    if size > 16 * self.access.max_body:  # if only a little too long, read it all: some clients need it
                        break
        except TimeoutError:
            reason = f"the body did not arrive within {self.access.read_timeout:g} seconds; send the request again"
            raise _ApiError(408, "request_timeout", "body", reason, {"Connection": "close"}) from None
        if size <= self.access.max_body:
            return bytes(content)
        raise _too_large("body", f"the body is longer than {self.access.max_body:,} bytes; send less")

    # --- models ---

    async def models(self) -> Response:
        return JSONResponse({"object": "list", "data": [self._card(model) for model in self._loaded_models()]})

    async def model(self, name: str) -> Response:
        return JSONResponse(self._card(_chosen_model(self._loaded_models(), name)))

    async def tokenizer(self, model: str | None = None) -> Response:
        return JSONResponse(_chosen_model(self._loaded_models(), model)["tokenizer"])

    def _loaded_models(self) -> list[_JsonObject]:
        if not self.supervisor.model_infos:
            raise _unavailable("loading", "the model is still loading; try again in a moment")
        return self.supervisor.model_infos

    def _card(self, info: _JsonObject) -> _JsonObject:
        """Returns a model in the format of OpenAI, with our own facts under `diffusion`."""
        own = {name: value for name, value in info.items() if name not in ("id", "created", "tokenizer")}
        return {
            "id": info["id"],
            "object": "model",
            "created": info["created"],
            "owned_by": "redraft",
            "diffusion": own,
        }

    # --- health ---

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
        return self.queue.submit(job.message | {"arguments": job.arguments | {"frames": frames}}, job.cost)

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

    def _streamed(self, job: _Job, stream: EventStream) -> Response:
        queued = self._submit(job, stream.frames)

        async def parts() -> AsyncIterator[bytes]:
            for part in stream.start():
                yield part
            async for event in self._events(queued):
                for part in _stream_event(stream, event, job):
                    yield part

        return StreamingResponse(parts(), media_type=stream.media_type)


def _stream_event(stream: EventStream, event: _JsonObject | None, job: _Job) -> Iterator[bytes]:
    """Yields what an event adds to a streamed response; None means that a keep-alive is due."""
    if event is None:
        yield stream.keep_alive
    elif event["event"] == "frame":
        yield from stream.frame(event)
    elif event["event"] == "done":
        yield from stream.finish(event["record"])
    else:
        yield from stream.fail(_from_worker_error(event, dict(job.names)).body)


async def _wait_for_disconnect(request: Request) -> None:
    """Returns when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
