"""`redraft serve` and `redraft play`, a thin layer over `redraft.apps.server`."""

from __future__ import annotations

import os
import re
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from redraft.apps.cli.model_flags import ModelFlags, device_setting
from redraft.apps.cli.output import print_note
from redraft.models.shipped import SMOL, STORY, has_smol, shipped_folder
from redraft.tasks.arguments.setting import Checked, setting


@dataclass(frozen=True)
class Serve(Checked):
    """Serve models to OpenAI clients, and the playground to browsers.

    Each forward pass of the network batches the requests of all clients. On Ctrl-C or SIGTERM running requests are
    finished first.
    """

    models: tuple[str, ...] = setting(
        (),
        "Directories of trained models, shipped models (story, smol), or hf:org/name. A model is named after its "
        "directory, or by NAME=DIR.",
        otherwise=f"{SMOL} if it is installed, and {STORY}",
        metavar="[MODEL ...]",
        positional=True,
    )
    host: str = setting("127.0.0.1", "Address to listen on; any address but this machine's own needs an API key.")
    port: int = setting(8000, "Port to listen on; 0 chooses a free one.", least=0, most=65535)
    api_key: str | None = setting(
        None, "The key that clients must send.", otherwise="$REDRAFT_API_KEY, or none", metavar="KEY"
    )
    max_running: int = setting(8, "Maximum number of requests that run at the same time.", least=1, most=256)
    queue: int = setting(
        64, 'Maximum number of waiting requests; further ones are refused with "retry later".', least=1, most=100_000
    )
    deadline: float = setting(120.0, "Maximum seconds per request, including the time in the queue.", above=0)
    shutdown_timeout: float = setting(
        30.0, "Seconds that running requests get to finish when the server is stopped.", above=0, rare=True
    )
    worker_timeout: float = setting(
        4.0, "Seconds without a heartbeat after which the model process is replaced.", above=0, rare=True
    )
    read_timeout: float = setting(
        20.0,
        "Seconds that a client has to send the head of a request, and as many again to send its body.",
        above=0,
        rare=True,
    )
    device: str = device_setting()
    threads: int | None = setting(None, "Number of threads of the model process.", otherwise="torch's own choice")
    mask: str | None = setting(
        None,
        "The mask token of another project's model, if its files do not name it.",
        otherwise="from its files",
        metavar="ID|TOKEN",
        group="Model",
    )
    attention: str | None = setting(
        None,
        "The attention mask of another project's model, if its files do not name it.",
        otherwise="from its files",
        metavar="causal|full|block:SIZE",
        group="Model",
    )
    weights: Literal["own", "fp16", "int8", "onnx", "packed"] = setting(
        "own", "CPU weight format for causal models, as in `redraft generate`.", group="Model"
    )
    max_tokens: int = setting(8192, "Maximum number of tokens per text.", least=1, most=10**6)
    max_cost: float = setting(2e7, "Maximum cost of a request: tokens × steps × texts.", above=0)

    def _require_agreement(self) -> None:
        ModelFlags(mask=self.mask, attention=self.attention)  # raises if one of them is invalid

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
            self.shutdown_timeout,
            AccessPolicy(key, read_timeout=self.read_timeout),
            QueueLimits(self.max_running, self.queue, self.max_cost, self.deadline),
            RequestLimits(tokens=self.max_tokens, cost=self.max_cost),
            SupervisorTimeouts(silence=self.worker_timeout),
            {
                "mask": self.mask,
                "attention": self.attention,
                "device": self.device,
                "weights": None if self.weights == "own" else self.weights,
            },
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
    for word in words or ((SMOL, STORY) if has_smol() else (STORY,)):
        name, equals, path = word.partition("=")
        path = path if equals else word
        name = name if equals else path.removeprefix("hf:") if path.startswith("hf:") else Path(path).resolve().name
        path = str(shipped_folder(path) or path)
        if not path.startswith("hf:") and not Path(path).is_dir():
            others = f"or a model that ships with Redraft: {STORY}, {SMOL}"
            raise ValueError(f"{path} is not a directory; give that of a run, a checkpoint or an export, {others}")
        if name in paths:
            raise ValueError(f"two models are named {name}; name them: redraft serve one={paths[name]} two={path}")
        paths[name] = path
    return paths


@dataclass(frozen=True)
class Play(Checked):
    """Open the playground in a browser: generate, infill, correct, choose, compare, and watch each step.

    It runs `redraft serve` for this machine only and opens its page.
    """

    models: tuple[str, ...] = setting(
        (),
        "Directories of trained models, or shipped models (story, smol).",
        otherwise=f"{SMOL} if it is installed, and {STORY}",
        metavar="[MODEL ...]",
        positional=True,
    )
    port: int = setting(0, "Port to listen on; 0 chooses a free one.", least=0, most=65535)
    device: str = device_setting()
    browser: bool = setting(True, "Only print the address, instead of opening a browser.")

    def __call__(self) -> None:
        Serve(self.models, port=self.port, device=self.device).serve(self._tell)

    def _tell(self, line: str) -> None:
        """Print a line about the server; open the browser once it is listening."""
        print_note(line)
        address = re.match(r"listening on (http://\S+)", line)
        if address is None:
            return
        opened = self.browser and webbrowser.open(address[1])
        print_note("press Ctrl-C to stop" if opened else f"open {address[1]} in a browser; press Ctrl-C to stop")
