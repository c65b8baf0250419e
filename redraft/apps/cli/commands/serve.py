"""`redraft serve` and `redraft play`, a thin layer over `redraft.apps.server`."""

from __future__ import annotations

import os
import re
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from redraft.apps.cli.arguments import Flag
from redraft.apps.cli.model_flags import ModelFlags
from redraft.apps.cli.output import print_note
from redraft.models.shipped import STORY, shipped_folder
from redraft.tasks.arguments.settings import optional_argument


@dataclass(frozen=True)
class Serve:
    """Serve models to OpenAI clients, and the playground to browsers.

    Each forward pass of the network batches the requests of all clients. On Ctrl-C or SIGTERM running requests are
    finished first.
    """

    models: Annotated[
        Positional[tuple[str, ...]], optional_argument("[DIR …]", "the model that comes with the package")
    ] = ()
    """Directories of trained models, or hf:org/name. A model is named after its directory, or by NAME=DIR."""
    host: str = "127.0.0.1"
    """Address to listen on; any address but this machine's own needs an API key."""
    port: int = 8000
    """Port to listen on; 0 chooses a free one."""
    api_key: Annotated[str | None, optional_argument("KEY", "$REDRAFT_API_KEY, or none")] = None
    """The key that clients must send."""
    width: int = 8
    """Maximum number of requests that run at the same time."""
    queue: int = 64
    """Maximum number of waiting requests; further ones are refused with "retry later"."""
    deadline: float = 120.0
    """Maximum seconds per request, including the time in the queue."""
    drain: float = 30.0
    """Seconds that running requests get to finish when the server is stopped."""
    silence: float = 4.0
    """Seconds without a heartbeat after which the model process is replaced."""
    threads: Annotated[int | None, optional_argument("INT", "torch's own choice")] = None
    """Number of threads of the model process."""
    mask: Annotated[str | None, optional_argument("ID|TOKEN", "from its files")] = None
    """The mask token of another project's model, if its files do not name it."""
    attention: Annotated[str | None, optional_argument("causal|full|block:SIZE", "from its files")] = None
    """The attention mask of another project's model, if its files do not name it."""
    max_tokens: int = 8192
    """Maximum number of tokens per text."""
    max_cost: float = 2e7
    """Maximum cost of a request: tokens × steps × texts."""

    def __post_init__(self) -> None:
        for name, least, most in (
            ("port", 0, 65535),
            ("width", 1, 256),
            ("queue", 1, 100_000),
            ("max_tokens", 1, 10**6),
        ):
            if not least <= getattr(self, name) <= most:
                raise ValueError(
                    f"--{name.replace('_', '-')} {getattr(self, name)}: it must be from {least} to {most:,}"
                )
        ModelFlags(mask=self.mask, attention=self.attention)  # raises if one of them is invalid
        for name in ("deadline", "drain", "silence", "max_cost"):
            if not 0 < getattr(self, name) < 1e15:
                raise ValueError(f"--{name.replace('_', '-')} {getattr(self, name)}: it must be above 0")

    def __call__(self) -> None:
        self.serve(print_note)

    def serve(self, tell: Callable[[str], None]) -> None:
        """Serve until a signal ends it; `tell` is called with lines about the state of the server."""
        key = self.api_key or os.environ.get("REDRAFT_API_KEY") or None
        if key is None and not _is_loopback(self.host):
            raise ValueError(
                f"--host {self.host} is open to other machines; give an API key: --api-key KEY or $REDRAFT_API_KEY"
            )
        models = _name_models(self.models)
        try:
            from redraft.apps.server.app import AccessPolicy
            from redraft.apps.server.jobs import RequestLimits
            from redraft.apps.server.launch import ServerConfig, serve
            from redraft.apps.server.request_queue import QueueLimits
            from redraft.apps.server.supervisor import SupervisorTimeouts
        except ImportError as error:
            raise ValueError(f"the server needs more packages ({error.name}): pip install 'redraft[serve]'") from None
        config = ServerConfig(
            models,
            self.host,
            self.port,
            self.threads,
            self.drain,
            AccessPolicy(key),
            QueueLimits(self.width, self.queue, self.max_cost, self.deadline),
            RequestLimits(tokens=self.max_tokens, cost=self.max_cost),
            SupervisorTimeouts(silence=self.silence),
            {"mask": self.mask, "attention": self.attention},
        )
        serve(config, tell)


def _is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _name_models(words: tuple[str, ...]) -> dict[str, str]:
    """Return the path of each model by its name."""
    paths: dict[str, str] = {}
    for word in words or (STORY,):
        name, equals, path = word.partition("=")
        path = path if equals else word
        name = name if equals else path.removeprefix("hf:") if path.startswith("hf:") else Path(path).resolve().name
        path = str(shipped_folder(path) or path)
        if not path.startswith("hf:") and not Path(path).is_dir():
            raise ValueError(f"{path} is not a directory; give that of a run, a checkpoint or an exported model")
        if name in paths:
            raise ValueError(f"two models are named {name}; name them: redraft serve one={paths[name]} two={path}")
        paths[name] = path
    return paths


@dataclass(frozen=True)
class Play:
    """Open the playground in a browser: generate, infill, correct, choose, compare, and watch each step.

    It runs `redraft serve` for this machine only and opens its page.
    """

    models: Annotated[
        Positional[tuple[str, ...]], optional_argument("[DIR …]", "the model that comes with the package")
    ] = ()
    """Directories of trained models."""
    port: int = 0
    """Port to listen on; 0 chooses a free one."""
    browser: Flag = True
    """Only print the address, instead of opening a browser."""

    def __call__(self) -> None:
        Serve(self.models, port=self.port).serve(self._tell)

    def _tell(self, line: str) -> None:
        """Print a line about the server; open the browser once it is listening."""
        print_note(line)
        address = re.match(r"listening on (http://\S+)", line)
        if address is None:
            return
        opened = self.browser and webbrowser.open(address[1])
        print_note("press Ctrl-C to stop" if opened else f"open {address[1]} in a browser; press Ctrl-C to stop")
