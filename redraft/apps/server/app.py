"""The HTTP side: routes, limits, errors. It runs no model; what it is asked goes to the desk."""

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
from redraft.apps.server.errors import ApiError, _bad_request, _from_worker_error, _JsonObject, _too_large, _unavailable
from redraft.apps.server.jobs import RequestLimits, _Job
from redraft.apps.server.metrics import _ServerMetrics
from redraft.apps.server.request_queue import _QueuedRequest
from redraft.apps.server.schemas import (
    Body,
    ChatBody,
    ChooseBody,
    CompletionBody,
    CorrectBody,
    FimBody,
    InfillBody,
    OpenAIBody,
    ScoreBody,
    StrictModel,
    TraceBody,
    parse_body,
)
from redraft.apps.server.supervisor import Supervisor

_PAGE = Path(__file__).with_name("playground")
_SMALL = 1 << 16  # bytes of a body that arrive with its head
_HOSTS = re.compile(r"((127\.\d+\.\d+\.\d+|localhost|\[::1\])(:\d+)?)?")
_SECURITY = {
    "Content-Security-Policy": "default-src 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True)
class AccessPolicy:
    """Who may come in, and with how much."""

    key: str | None = None
    """The API key; None: none is needed, which is only for this machine itself."""
    body: int = 1 << 20
    """Bytes of a request."""
    quiet: float = 10.0
    """Seconds after which a stream without news gets a comment, so that nobody hangs up."""


def build_app(
    supervisor: Supervisor, door: AccessPolicy = AccessPolicy(), bounds: RequestLimits = RequestLimits()
) -> FastAPI:
    """The app in front of a model process."""
    front = _Routes(supervisor, door, bounds)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await supervisor.start()
        yield
        await supervisor.close()

    app = FastAPI(title="Redraft", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_exception_handler(HTTPException, _http_error)  # type: ignore[arg-type]
    app.add_exception_handler(ApiError, _api_error)  # type: ignore[arg-type]
    app.add_middleware(_AccessMiddleware, front=front)
    app.get("/v1/models")(front.models)
    app.get("/v1/models/{name:path}")(front.model)
    app.get("/health/live")(front.live)
    app.get("/health/ready")(front.is_ready)
    app.get("/metrics")(front.numbers)
    for path, kind, route in front.routes():
        app.post(path, openapi_extra=_schema_of(kind), summary=(kind.__doc__ or "").partition("\n")[0])(route)
    for file in _PAGE.iterdir():
        app.get("/" if file.name == "index.html" else f"/{file.name}", include_in_schema=False)(_sent(file))
    return app


def _sent(file: Path) -> Callable[[], Awaitable[Response]]:
    async def send() -> Response:
        return FileResponse(file)

    return send


def _schema_of(kind: type[StrictModel]) -> _JsonObject:
    """The body of a route, for OpenAPI."""
    schema = kind.model_json_schema(by_alias=True)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": _inlined(schema)}}}}


def _inlined(schema: _JsonObject) -> _JsonObject:
    """The schema with its definitions written where they are used."""
    known = schema.pop("$defs", {})

    def walk(value: Any) -> Any:
        if isinstance(value, dict) and "$ref" in value:
            return walk(known[value["$ref"].rsplit("/", 1)[-1]])
        if isinstance(value, dict):
            return {key: walk(each) for key, each in value.items()}
        return [walk(each) for each in value] if isinstance(value, list) else value

    found: _JsonObject = walk(schema)
    return found


async def _http_error(_: Request, error: HTTPException) -> Response:
    """Starlette's own errors, in our form."""
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request")
    param = "method" if error.status_code == 405 else "path"
    return _answer(ApiError(error.status_code, code, param, str(error.detail), dict(error.headers or {})))


async def _api_error(_: Request, error: ApiError) -> Response:
    return _answer(error)


def _answer(error: ApiError) -> JSONResponse:
    return JSONResponse(error.body, error.status, error.headers)


class _AccessMiddleware:
    """Around the whole app: who may come in, headers, numbers, and an answer whatever happens.

    Plain ASGI, so that a client that hangs up is noticed at once.
    """

    def __init__(self, app: ASGIApp, front: _Routes) -> None:
        self.app, self.front = app, front

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        request, begun, status = Request(scope), time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(_SECURITY)
            await send(message)

        try:
            self.front.admit(request)
            self.front.require_room(request)
            await self.app(scope, receive, sending)
        except ApiError as error:
            await _answer(error)(scope, receive, sending)
        except Exception as error:
            self.front.supervisor.noticed(f"redraft serve: {type(error).__name__} in {scope['path']}")
            traceback.print_tb(error.__traceback__, limit=-6)  # places in the code; no text of a request
            if not status:
                await _answer(_from_worker_error({"kind": "internal", "message": type(error).__name__}))(
                    scope, receive, sending
                )
        finally:
            self.front.metrics.answered(scope["path"], status, time.perf_counter() - begun)


class _Routes:
    """The routes, each a coroutine from a request to a response."""

    def __init__(self, supervisor: Supervisor, door: AccessPolicy, bounds: RequestLimits) -> None:
        self.supervisor, self.desk, self.door, self.bounds = supervisor, supervisor.desk, door, bounds
        self.metrics = _ServerMetrics(supervisor)
        self.paths = {path for path, *_ in self.routes()}

    def routes(self) -> list[tuple[str, type[StrictModel], Callable[[Request], Awaitable[Response]]]]:
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

    # --- who comes in ---

    def admit(self, request: Request) -> None:
        """Raises unless the key is right, or none is needed and the request is meant for this machine."""
        if self.door.key is None:
            if not _HOSTS.fullmatch(request.headers.get("host", "")):  # a page whose name was bent to this address
                raise ApiError(403, "wrong_host", "host", "this server answers its own machine only")
            return
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if request.url.path.startswith(("/v1/", "/metrics")) and not hmac.compare_digest(
            given.encode(), self.door.key.encode()
        ):
            raise ApiError(401, "invalid_api_key", "authorization", "give the API key: Authorization: Bearer KEY")

    def require_room(self, request: Request) -> None:
        """Refuses work at once when there is no room for any, before its body is read; longer bodies are read first, so
        that the client hears the answer."""
        length = request.headers.get("content-length", "")
        if request.method == "POST" and request.url.path in self.paths and length.isdigit() and int(length) <= _SMALL:
            self.desk.require_room()

    async def _body(self, request: Request) -> bytes:
        """The whole body, if it is JSON and not too long; what is too long is not kept."""
        if not request.headers.get("content-type", "").lower().startswith("application/json"):
            raise _bad_request("content-type", "send JSON, with Content-Type: application/json", "invalid_content_type")
        read = bytearray()
        size = 0
        async for part in request.stream():
            size += len(part)
            read += part if size <= self.door.body else b""
            if size > 16 * self.door.body:  # a little too long: read to its end, so that the client hears the answer
                break
        if size <= self.door.body:
            return bytes(read)
        raise _too_large("body", f"the body is longer than {self.door.body:,} bytes")

    # --- OpenAI's routes ---

    async def models(self) -> Response:
        return JSONResponse({"object": "list", "data": [self._card(each) for each in self._known()]})

    async def model(self, name: str) -> Response:
        return JSONResponse(self._card(jobs._chosen_model(self._known(), name)))

    def _known(self) -> list[_JsonObject]:
        if not self.supervisor.about:
            raise _unavailable("loading", "the model is still loading; try again in a moment")
        return self.supervisor.about

    def _card(self, each: _JsonObject) -> _JsonObject:
        own = {name: value for name, value in each.items() if name not in ("id", "created")}
        return {
            "id": each["id"],
            "object": "model",
            "created": each["created"],
            "owned_by": "redraft",
            "diffusion": own,
        }

    async def completions(self, body: CompletionBody | FimBody, request: Request) -> Response:
        job = jobs._completion_job(body, self._known(), self.bounds)
        head = responses._ResponseHeader("cmpl", "text_completion", job.model["id"])
        prompts = job.given.get("prompts") or job.given.get("parts", [""])[:1]
        echo = [text for text in prompts for _ in range(body.n or 1)] if getattr(body, "echo", None) else []
        if body.stream:
            return self._streamed(job, responses._CompletionStream(head, False, _stops(body), body, echo), body)
        return JSONResponse(
            responses._completion_body(head, await self._record(job, request), body, _stops(body), echo)
        )

    async def chat(self, body: ChatBody, request: Request) -> Response:
        job = jobs._chat_job(body, self._known(), self.bounds)
        head = responses._ResponseHeader(
            "chatcmpl", "chat.completion.chunk" if body.stream else "chat.completion", job.model["id"]
        )
        if body.stream:
            return self._streamed(job, responses._CompletionStream(head, True, _stops(body), body), body)
        return JSONResponse(responses._chat_body(head, await self._record(job, request), body, _stops(body)))

    # --- our own ---

    async def infill(self, body: InfillBody, request: Request) -> Response:
        job = jobs._infill_job(body, self._known(), self.bounds)
        if body.stream:
            raise _bad_request(
                "stream", "given text follows the holes; watch them at /v1/diffusion/trace", "unsupported_parameter"
            )
        head = responses._ResponseHeader("infill", "infill", job.model["id"])
        return JSONResponse(responses._infill_body(head, await self._record(job, request)))

    async def choose(self, body: ChooseBody, request: Request) -> Response:
        job = jobs._choose_job(body, self._known(), self.bounds)
        head = responses._ResponseHeader("choose", "choose", job.model["id"])
        return JSONResponse(head.body() | await self._record(job, request))

    async def score(self, body: ScoreBody, request: Request) -> Response:
        job = jobs._score_job(body, self._known(), self.bounds)
        head = responses._ResponseHeader("score", "score", job.model["id"])
        return JSONResponse(head.body() | await self._record(job, request))

    async def correct(self, body: CorrectBody, request: Request) -> Response:
        job = jobs._correct_job(body, self._known(), self.bounds)
        head = responses._ResponseHeader("correct", "correct", job.model["id"])
        return JSONResponse(head.body() | await self._record(job, request))

    async def trace(self, body: TraceBody, request: Request) -> Response:
        """Every canvas on the way: NDJSON, or SSE if that is asked for."""
        job = jobs._trace_job(body, self._known(), self.bounds)
        sse = body.format == "sse" or (body.format is None and "text/event-stream" in request.headers.get("accept", ""))
        ticket = self._submit(job, frames="trace")
        write = responses._sse if sse else responses._ndjson

        async def lines() -> AsyncIterator[bytes]:
            yield write({"type": "start", "model": job.model["id"], "seed": job.given["options"]["seed"]})
            async for event in self._events(ticket):
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
        if self.desk.draining or not self.supervisor.ready:
            raise _unavailable("draining" if self.desk.draining else "loading", "not ready")
        ids = [each["id"] for each in self.supervisor.about]
        same = self.supervisor.steady is not None
        return JSONResponse(
            {"status": "ready", "models": ids, "same_in_company": same, "requests": self.desk.ledger.as_json()}
        )

    async def numbers(self) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    # --- jobs ---

    def _submit(self, job: _Job, frames: str | None = None) -> _QueuedRequest:
        message = job.message
        if frames is not None:
            message["given"] = {**message["given"], "frames": frames}
        return self.desk.submit(message, job.cost)

    async def _record(self, job: _Job, request: Request) -> _JsonObject:
        """What was written, all at once; if the client hangs up, the request is cancelled."""
        ticket = self._submit(job)
        gone = asyncio.create_task(_hung_up(request))
        said = asyncio.create_task(ticket.events.get())
        try:
            await asyncio.wait({gone, said}, return_when=asyncio.FIRST_COMPLETED)
            if not said.done():
                self.desk.cancel(ticket)
            event = await said
        finally:
            self.desk.cancel(ticket)
            gone.cancel()
        if event["event"] != "done":
            raise _from_worker_error(event, dict(job.names))
        record: _JsonObject = event["record"]
        self.metrics.wrote(record)
        return record

    async def _events(self, ticket: _QueuedRequest) -> AsyncIterator[_JsonObject | None]:
        """The events of a request, None after a while without one; whoever stops listening cancels it."""
        try:
            while True:
                try:
                    event = await asyncio.wait_for(ticket.events.get(), self.door.quiet)
                except TimeoutError:
                    yield None
                    continue
                if event["event"] == "done":
                    self.metrics.wrote(event["record"])
                yield event
                if event["event"] != "frame":
                    return
        finally:
            self.desk.cancel(ticket)

    def _streamed(self, job: _Job, pieces: responses._CompletionStream, body: OpenAIBody) -> Response:
        ticket = self._submit(job, frames="drafts")

        async def parts() -> AsyncIterator[bytes]:
            async for event in self._events(ticket):
                if event is None:
                    yield responses._KEEP_ALIVE
                elif event["event"] == "frame":
                    if (more := pieces.frame(event)) is not None:
                        yield responses._sse(more)
                elif event["event"] == "done":
                    for part in pieces.last(event["record"]):
                        yield responses._sse(part)
                    if body.stream_options is not None and body.stream_options.include_usage:
                        yield responses._sse(
                            pieces.head.body() | {"choices": [], "usage": responses._usage(event["record"])}
                        )
                    yield responses._DONE
                else:
                    yield responses._sse(_from_worker_error(event, dict(job.names)).body)
                    yield responses._DONE

        return StreamingResponse(parts(), media_type="text/event-stream")


def _stops(body: OpenAIBody) -> list[str]:
    given = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if any(not stop for stop in given):
        raise _bad_request("stop", "an empty string would stop every text at once")
    return given


async def _hung_up(request: Request) -> None:
    """Returns when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
