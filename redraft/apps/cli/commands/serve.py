"""`redraft serve` and `redraft play`: a thin layer over `redraft.apps.server`."""

from __future__ import annotations

import os
import re
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from redraft.apps.cli.model_flags import ModelFlags
from redraft.apps.cli.output import print_note
from redraft.models.shipped import STORY, shipped_folder
from redraft.tasks.arguments.settings import optional_argument


@dataclass(frozen=True)
class Serve:
    """Serve models to any OpenAI client, and the playground in a browser.

    Requests of all clients share every pass of the network. Ctrl-C or SIGTERM finishes what is being written.
    """

    models: Annotated[Positional[tuple[str, ...]], arg(metavar="[DIR …]")] = ()
    """Directories of trained models, or hf:org/name; each is served by the name of its directory, or as NAME=DIR.
    Without any: the model that comes with the package."""
    host: str = "127.0.0.1"
    """Address to listen on; any other than this machine's own needs an API key."""
    port: int = 8000
    """Port to listen on; 0 chooses a free one."""
    api_key: Annotated[str | None, optional_argument("KEY", "$REDRAFT_API_KEY, or none")] = None
    """The key that clients must give."""
    width: int = 8
    """Requests written at the same time."""
    queue: int = 64
    """Requests that may wait; others are told to come back."""
    deadline: float = 120.0
    """Seconds a request may take, waiting included."""
    drain: float = 30.0
    """Seconds that running requests get when the server is told to end."""
    silence: float = 4.0
    """Seconds without a sign of life after which the model process is replaced."""
    threads: Annotated[int | None, optional_argument("INT", "torch's own choice")] = None
    """Threads of the model process."""
    mask: Annotated[str | None, optional_argument("ID|TOKEN", "what its files say")] = None
    """The mask token of another project's model, if its files do not name it."""
    attention: Annotated[str | None, optional_argument("causal|full|block:SIZE", "what its files say")] = None
    """Which tokens see which in another project's model, if its files do not say it."""
    max_tokens: int = 8192
    """Most tokens that one text may get."""
    max_cost: float = 2e7
    """Largest cost of a request: tokens × steps × texts."""

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
        ModelFlags(mask=self.mask, attention=self.attention)  # which refuses what cannot be
        for name in ("deadline", "drain", "silence", "max_cost"):
            if not 0 < getattr(self, name) < 1e15:
                raise ValueError(f"--{name.replace('_', '-')} {getattr(self, name)}: it must be above 0")

    def __call__(self) -> None:
        self.serve(print_note)

    def serve(self, say: Callable[[str], None]) -> None:
        """Serves until a signal ends it."""
        key = self.api_key or os.environ.get("REDRAFT_API_KEY") or None
        if key is None and not _own(self.host):
            raise ValueError(f"--host {self.host} lets others in; give an API key: --api-key KEY or $REDRAFT_API_KEY")
        models = _named(self.models)
        try:
            from redraft.apps.server.app import AccessPolicy
            from redraft.apps.server.jobs import RequestLimits
            from redraft.apps.server.launch import ServerConfig, serve
            from redraft.apps.server.request_queue import QueueLimits
            from redraft.apps.server.supervisor import SupervisorTimeouts
        except ImportError as error:
            raise ValueError(f"the server needs more packages ({error.name}): pip install 'redraft[serve]'") from None
        room = QueueLimits(self.width, self.queue, self.max_cost, self.deadline)
        bounds = RequestLimits(tokens=self.max_tokens, cost=self.max_cost)
        care = SupervisorTimeouts(silence=self.silence)
        said = {"mask": self.mask, "attention": self.attention}
        door = AccessPolicy(key)
        serve(ServerConfig(models, self.host, self.port, self.threads, self.drain, door, room, bounds, care, said), say)


def _own(host: str) -> bool:
    """Whether only this machine itself can reach an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _named(given: tuple[str, ...]) -> dict[str, str]:
    """Each model under its name."""
    found: dict[str, str] = {}
    for word in given or (STORY,):
        name, equals, place = word.partition("=")
        place = place if equals else word
        name = name if equals else place.removeprefix("hf:") if place.startswith("hf:") else Path(place).resolve().name
        place = str(shipped_folder(place) or place)
        if not place.startswith("hf:") and not Path(place).is_dir():
            raise ValueError(f"{place} is not a directory; give that of a run, a checkpoint or an exported model")
        if name in found:
            raise ValueError(f"two models are called {name}; name them: redraft serve one={found[name]} two={place}")
        found[name] = place
    return found


@dataclass(frozen=True)
class Play:
    """Open the playground in a browser: write, fill holes, correct, choose, compare, and watch how it is done.

    It is `redraft serve` for this machine alone, with its page opened.
    """

    models: Annotated[Positional[tuple[str, ...]], arg(metavar="[DIR …]")] = ()
    """Directories of trained models. Without any: the model that comes with the package."""
    port: int = 0
    """Port to listen on; 0 chooses a free one."""
    browser: bool = True
    """Open a browser; otherwise only tell the address."""

    def __call__(self) -> None:
        Serve(self.models, port=self.port).serve(self._say)

    def _say(self, line: str) -> None:
        print_note(line)
        found = re.match(r"listening on (http://\S+)", line)
        if found is None:
            return
        opened = self.browser and webbrowser.open(found[1])
        print_note("Ctrl-C ends it" if opened else f"open {found[1]} in a browser; Ctrl-C ends it")
