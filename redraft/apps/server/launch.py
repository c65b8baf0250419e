"""Runs the server until a signal; then rejects new requests and finishes the accepted ones."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from redraft.apps.server.app import AccessPolicy, build_app
from redraft.apps.server.jobs import RequestLimits
from redraft.apps.server.request_queue import QueueLimits
from redraft.apps.server.supervisor import Supervisor, SupervisorTimeouts, _WorkerStartError


@dataclass(frozen=True)
class ServerConfig:
    """Complete configuration of a server."""

    models: dict[str, str]  # name → directory
    host: str = "127.0.0.1"
    port: int = 8000
    threads: int | None = None
    shutdown_timeout: float = 30.0  # seconds that running requests get to finish at shutdown
    access: AccessPolicy = AccessPolicy()
    queue_limits: QueueLimits = QueueLimits()
    request_limits: RequestLimits = RequestLimits()
    timeouts: SupervisorTimeouts = SupervisorTimeouts()
    model_flags: Mapping[str, str | None] = field(
        default_factory=dict
    )  # arguments of `open_model`: device, weights, and mask and attention for model files that do not state them


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which re-raise the signal instead of exiting with code 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _protocol(read_timeout: float) -> type[asyncio.Protocol]:
    """uvicorn's protocol, which also closes connections whose request has not begun after `read_timeout` seconds."""

    class Impatient(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, error: Exception | None) -> None:
            super().connection_lost(error)
            self._unwatch()

        def _watch(self) -> None:
            """Starts the timer when the head of a request begins, and stops it when the head is complete."""
            if self.cycle is not None and not self.cycle.response_complete:
                self._unwatch()
            elif self._timer is None:
                self._timer = self.loop.call_later(read_timeout, self.transport.close)

        def _unwatch(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None

    return Impatient


def serve(config: ServerConfig, log: Callable[[str], None]) -> None:
    """Serves until SIGTERM or Ctrl-C; a second signal stops it at once. Raises ValueError if it cannot start."""
    try:
        asyncio.run(_serve(config, log))
    except _WorkerStartError as error:
        raise ValueError(str(error)) from None


async def _serve(config: ServerConfig, log: Callable[[str], None]) -> None:
    supervisor = Supervisor(
        config.models, config.threads, config.timeouts, config.queue_limits, config.model_flags, log=log
    )
    app = build_app(supervisor, config.access, config.request_limits)
    settings = uvicorn.Config(
        app,
        http=_protocol(config.access.read_timeout),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=5,
        server_header=False,
    )
    server, listening = _Server(settings), _listen(config.host, config.port)
    shutdown = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, shutdown.set)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        while not server.started:
            await asyncio.sleep(0.01)
        port = listening.getsockname()[1]
        log(f"loading {', '.join(config.models)}")
        loaded = asyncio.create_task(supervisor.loaded())
        stopped = asyncio.create_task(shutdown.wait())
        await asyncio.wait({loaded, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if loaded.done():
            loaded.result()
            log(f"listening on http://{config.host}:{port} (models: {', '.join(config.models)})")
        await stopped
        log("finishing the accepted requests")
        for signum in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(signum, lambda: setattr(server, "force_exit", True))
        await supervisor.queue.drain(config.shutdown_timeout)
    finally:
        server.should_exit = True
        await serving
        await supervisor.close()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        raise ValueError(
            f"port {port} of {host} cannot be used ({error.strerror}); choose another port, such as --port 8001"
        ) from None
    listener.listen(512)
    listener.setblocking(False)
    return listener
