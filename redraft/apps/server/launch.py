"""Runs the server until a signal ends it: then it takes no more requests and finishes those it has."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn

from redraft.apps.server.app import AccessPolicy, build_app
from redraft.apps.server.jobs import RequestLimits
from redraft.apps.server.request_queue import QueueLimits
from redraft.apps.server.supervisor import Supervisor, SupervisorTimeouts, WorkerStartError


@dataclass(frozen=True)
class ServerConfig:
    """A whole server as one value."""

    models: dict[str, str]  # name → directory
    host: str = "127.0.0.1"
    port: int = 8000
    threads: int | None = None
    drain: float = 30.0  # seconds that running requests get when the server ends
    door: AccessPolicy = AccessPolicy()
    room: QueueLimits = QueueLimits()
    bounds: RequestLimits = RequestLimits()
    care: SupervisorTimeouts = SupervisorTimeouts()
    said: Mapping[str, str | None] = field(default_factory=dict)  # what the models' files do not say: mask, attention


class _Server(uvicorn.Server):
    """uvicorn, without its signals: it would end by the signal that it got, not with exit code 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(what: ServerConfig, say: Callable[[str], None]) -> None:
    """Serves until SIGTERM or Ctrl-C; a second signal ends it at once. Raises ValueError if it cannot begin."""
    try:
        asyncio.run(_serve(what, say))
    except WorkerStartError as error:
        raise ValueError(str(error)) from None


async def _serve(what: ServerConfig, say: Callable[[str], None]) -> None:
    supervisor = Supervisor(what.models, what.threads, what.care, what.room, what.said, noticed=say)
    app = build_app(supervisor, what.door, what.bounds)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=5, server_header=False
    )
    server, listening = _Server(config), _listen(what.host, what.port)
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        while not server.started:
            await asyncio.sleep(0.01)
        port = listening.getsockname()[1]
        say(f"loading {', '.join(what.models)}")
        loaded = asyncio.create_task(supervisor.loaded())
        over = asyncio.create_task(ending.wait())
        await asyncio.wait({loaded, over}, return_when=asyncio.FIRST_COMPLETED)
        if loaded.done():
            loaded.result()
            say(f"listening on http://{what.host}:{port} (models: {', '.join(what.models)})")
        await over
        say("finishing the requests that are here")
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, lambda: setattr(server, "force_exit", True))
        await supervisor.desk.drain(what.drain)
    finally:
        server.should_exit = True
        await serving
        await supervisor.close()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        raise ValueError(
            f"port {port} of {host} cannot be used ({error.strerror}); choose another: --port 8001"
        ) from None
    found.listen(512)
    found.setblocking(False)
    return found
