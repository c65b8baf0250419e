"""The model process: reads requests from stdin, writes events to its first stdout, one JSON object per line.

It is started, watched and, if it crashes or says nothing for too long, replaced by `Supervisor`. Whatever libraries
print goes to stderr. Prompts are never printed.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import nn

from redraft.apps.server.actions import compile_rules, failure_event, prepare_request
from redraft.apps.server.errors import JsonObject
from redraft.apps.server.scheduler import (
    BatchScheduler,
    Cancelled,
    DeadlineExceeded,
    NonFiniteOutput,
    RequestEnded,
    ScheduledRequest,
)
from redraft.core.hardware.batch_invariance import batch_invariant_rows
from redraft.decoding.blocks.blocks import Blocks
from redraft.models.diffusion_lm import DiffusionLM
from redraft.tasks.engine.model import TextModel, open_model
from redraft.training.data.annotations import as_annotated

_HEARTBEAT_SECONDS = 0.5  # seconds between two signs of life
_KINDS = {Cancelled: "cancelled", DeadlineExceeded: "deadline", NonFiniteOutput: "numerical_error"}


@dataclass
class EventWriter:
    """Events on their way to the front, and signs of life."""

    out: BinaryIO
    beaten: float = field(default=0.0)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def say(self, event: JsonObject) -> None:
        line = json.dumps(event, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
        with self.lock:
            self.out.write(line)
            self.out.flush()
        self.beaten = time.monotonic()

    def alive(self) -> None:
        if time.monotonic() - self.beaten > _HEARTBEAT_SECONDS:
            self.say({"event": "alive"})


@dataclass
class ActiveRequest:
    """One request: being prepared, or being written."""

    number: int
    cancelled: bool = False
    author: ScheduledRequest | None = None


class ModelProcess:
    """Runs the requests that arrive in its inbox, until there is a None in it."""

    def __init__(
        self, models: dict[str, TextModel], inbox: queue.SimpleQueue[JsonObject | None], lines: EventWriter
    ) -> None:
        self.models, self.inbox, self.lines = models, inbox, lines
        networks = [it.model.network for it in models.values()]
        self.least = batch_invariant_rows(chain.from_iterable(_shapes(it.model) for it in models.values()))
        self.board = BatchScheduler(networks, least=self.least or 1, alive=lines.alive)
        self.requests: dict[int, ActiveRequest] = {}
        self.compiling = ThreadPoolExecutor(1)

    def run(self) -> None:
        while True:
            try:
                while (message := self._next()) is not None:
                    self._heed(message)
            except EOFError:
                return
            self.board.round()
            self.lines.alive()

    def _next(self) -> JsonObject | None:
        """The next message; waits for one only if there is nothing to write."""
        try:
            message = self.inbox.get_nowait() if self.board.authors else self.inbox.get(timeout=_HEARTBEAT_SECONDS)
        except queue.Empty:
            return None
        if message is None:
            raise EOFError
        return message

    def _heed(self, message: JsonObject) -> None:
        do: dict[str, Callable[[JsonObject], None]] = {
            "start": self._start,
            "cancel": self._cancel,
            "write": self._write,
        }
        do[message["do"]](message)

    def _start(self, message: JsonObject) -> None:
        self.requests[message["id"]] = ActiveRequest(message["id"])
        if not message["slow"]:
            return self._write(message)
        # rules take long to compile; the others go on writing meanwhile
        compiling = self.compiling.submit(compile_rules, message["verb"], message["given"])
        compiling.add_done_callback(lambda done: self.inbox.put(message | {"do": "write", "compiled": done}))
        return None

    def _write(self, message: JsonObject) -> None:
        request = self.requests[message["id"]]
        if request.cancelled:
            return self._end(request, {"event": "failed", "kind": "cancelled", "message": ""})
        deadline = time.monotonic() + message["seconds"]
        request.author = self.board.start(partial(self._work, request, message), deadline)
        return None

    def _work(self, request: ActiveRequest, message: JsonObject) -> None:
        """In a greenlet of its own: whatever happens here ends this request alone."""
        try:
            if "compiled" in message:
                message["compiled"].result()
            work = prepare_request(self.models[message["model"]], message["verb"], message["given"])
            record = work(lambda frame: self.lines.say({"event": "frame", "id": request.number} | frame))
            said = {"event": "done", "record": record}
        except RequestEnded as end:
            said = {"event": "failed", "kind": _KINDS[type(end)], "message": ""}
        except ValueError as error:
            said = {"event": "failed", **failure_event(error)}
        except Exception as error:
            traceback.print_exception(error, limit=-8)
            said = {"event": "failed", "kind": "internal", "message": type(error).__name__}
        self._end(request, said)

    def _end(self, request: ActiveRequest, said: JsonObject) -> None:
        del self.requests[request.number]
        self.lines.say(said | {"id": request.number})

    def _cancel(self, message: JsonObject) -> None:
        request = self.requests.get(message["id"])
        if request is None:
            return
        request.cancelled = True
        if request.author is not None:
            request.author.cancel()


def _shapes(model: DiffusionLM) -> Iterator[tuple[int, int]]:
    """Inputs and outputs of all products."""
    for part in model.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            yield part.weight.shape[1], part.weight.shape[0]


def model_info(name: str, it: TextModel) -> JsonObject:
    """What a front needs to know of a model."""
    config, run = it.model.config, it.run
    sampler: Any = it.sampler
    block = it.model.block
    while isinstance(sampler, Blocks):
        sampler = sampler.sampler
    length = None if run is None else run.framing.length
    return {
        "id": name,
        "run": it.name,
        "created": int(it.path.stat().st_mtime) if it.path is not None and it.path.exists() else int(time.time()),
        "steps": getattr(sampler, "steps", None),
        "sampler": str(it.sampler),
        "length": length,
        "positions": config.network.positions,
        "block": block,
        "vocab": config.vocab.size,
        "parameters": sum(p.numel() for p in it.model.parameters()),
        "process": type(config.process).__name__,
        "classes": list(it.classes),
        "answers": it.answers,
        "attributes": {name: list(values) for name, values in _attributes(it).items()},
    }


def _attributes(it: TextModel) -> Mapping[str, tuple[str, ...]]:
    """The attributes that `control` can ask for: those of the corpus, if the model writes texts from nothing."""
    return {} if it.run is None or it.answers or it.classes else as_annotated(it.run.data).attributes()


def main() -> None:
    """argv: a JSON object {"models": {name: path}, "threads": how many or null, "said": what files do not say}."""
    asked = json.loads(sys.argv[1])
    lines = EventWriter(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    torch.set_grad_enabled(False)
    if asked["threads"]:
        torch.set_num_threads(asked["threads"])
    inbox: queue.SimpleQueue[JsonObject | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(inbox,), daemon=True).start()
    try:
        models = {name: _open(path, lines, asked["said"]) for name, path in asked["models"].items()}
        process = ModelProcess(models, inbox, lines)
    except Exception as error:
        lines.say({"event": "unfit", "message": str(error)})
        raise SystemExit(2) from error
    about = [model_info(name, it) for name, it in models.items()]
    lines.say({"event": "ready", "models": about, "steady": process.least, "threads": torch.get_num_threads()})
    process.run()


def _open(path: str, lines: EventWriter, said: JsonObject) -> TextModel:
    lines.say({"event": "alive"})
    it = open_model(Path(path), **said)
    it.model.eval()
    it.tokenizer.vocab  # noqa: B018 - a model without a tokenizer is refused now
    return it


def _read(inbox: queue.SimpleQueue[JsonObject | None]) -> None:
    for line in sys.stdin.buffer:
        inbox.put(json.loads(line))
    inbox.put(None)


if __name__ == "__main__":
    main()
