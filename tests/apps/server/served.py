"""A real server process with a small model that was trained in a few seconds."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from openai import OpenAI

from redraft.apps.cli import main

SMALL = [
    *("--steps", "40", "--batch", "16", "--eval-rows", "2", "--samples", "1", "--quiet", "--precision", "fp32"),
    *("--model.network.width", "32", "--model.network.layers", "2", "--model.network.heads", "2"),
]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
Start = Callable[..., "Server"]


@dataclass
class Server:
    """`redraft serve`, started as a user would start it."""

    process: subprocess.Popen[str]
    url: str
    log: list[str] = field(default_factory=list)

    @property
    def client(self) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=60)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def serving(*words: object, **environment: str) -> Iterator[Server]:
    """A server on a free port, until the end of the block."""
    command = [sys.executable, "-m", "redraft.apps.cli", "serve", *map(str, words), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**ENVIRONMENT, **environment})
    assert process.stderr is not None
    log: list[str] = []
    try:
        for line in process.stderr:
            log.append(line)
            if found := re.search(r"listening on (http://\S+)", line):
                break
        else:
            raise AssertionError("".join(log))
        server = Server(process, found[1], log)
        threading.Thread(target=log.extend, args=(process.stderr,), daemon=True).start()
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def run_blocks(language: str, url: str) -> None:
    """Runs the blocks of docs/guides/clients.md in this language, in one module, against a server at this address."""
    page = (Path(__file__).parents[3] / "docs/guides/clients.md").read_text()
    blocks = re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert blocks
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block.replace("http://127.0.0.1:8000", url), "clients.md", "exec"), names)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked model of bytes, which knows every text, trained for a few seconds."""
    folder = tmp_path_factory.mktemp("serve") / "bytes"
    main(["train", "mdlm_tiny", "--tokenizer", "bytes", "--length", "96", *SMALL, "--out", str(folder)])
    return folder


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A block-causal model of words."""
    folder = tmp_path_factory.mktemp("serve") / "blocks"
    main(["train", "bd3_tiny", *SMALL, "--out", str(folder)])
    return folder


@pytest.fixture(scope="session")
def server(trained: Path, words: Path) -> Iterator[Server]:
    """One server for all tests that do not break it."""
    with serving(trained, words) as found:
        yield found


@pytest.fixture(scope="session")
def client(server: Server) -> OpenAI:
    return server.client
