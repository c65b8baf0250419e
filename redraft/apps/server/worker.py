"""The model process: reads requests from stdin, writes events to its original stdout, one JSON object per line.

`Supervisor` starts it, monitors it, and replaces it if it crashes or stays silent for too long. Anything that libraries
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from pkgutil import resolve_name
from typing import BinaryIO

import torch
from torch import nn

from redraft.apps.server.errors import _JsonObject
from redraft.apps.server.scheduler import (
    BatchScheduler,
    Cancelled,
    DeadlineExceeded,
    NonFiniteOutput,
    RequestEnded,
    ScheduledRequest,
)
from redraft.core.hardware.batch_invariance import batch_invariant_rows
from redraft.core.text.tokenizers import Tokenizer
from redraft.decoding.constraints.rules import Json, Regex, compile_rule
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.networks.executors.packed import Packed
from redraft.tasks.engine.model import TextModel, open_model
from redraft.training.data.annotations import as_annotated

_HEARTBEAT_SECONDS = 0.5  # maximum time between two heartbeats
_KINDS = {Cancelled: "cancelled", DeadlineExceeded: "deadline", NonFiniteOutput: "numerical_error"}


@dataclass
class _EventWriter:
    """Writes events and heartbeats to the HTTP process; thread-safe."""

    out: BinaryIO
    last_sent: float = field(default=0.0)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, event: _JsonObject) -> None:
        line = json.dumps(event, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
        with self.lock:
            self.out.write(line)
            self.out.flush()
        self.last_sent = time.monotonic()

    def heartbeat(self) -> None:
        if time.monotonic() - self.last_sent > _HEARTBEAT_SECONDS:
            self.send({"event": "alive"})


@dataclass
class _ActiveRequest:
    """A request that is being prepared or generated."""

    number: int
    cancelled: bool = False
    scheduled: ScheduledRequest | None = None


class _ModelProcess:
    """Runs the requests that arrive in `inbox` until it receives None."""

    def __init__(
        self, models: dict[str, TextModel], inbox: queue.SimpleQueue[_JsonObject | None], events: _EventWriter
    ) -> None:
        self.inbox, self.events = inbox, events
        self.batch_invariant_rows = batch_invariant_rows(
            chain.from_iterable(_shapes(model.lm) for model in models.values())
        )
        self.scheduler = BatchScheduler(min_rows=self.batch_invariant_rows or 1, heartbeat=events.heartbeat)
        self.models = {name: replace(model, lm=self._shared(model.lm)) for name, model in models.items()}
        self.requests: dict[int, _ActiveRequest] = {}
        self.compiler = ThreadPoolExecutor(1)

    def _shared(self, lm: DiffusionLM) -> DiffusionLM:
        """Binds a model to the scheduler."""
        return lm.on(Packed(self.scheduler, lm.network.executor.unpacked(self.events.heartbeat)))

    def run(self) -> None:
        while True:
            try:
                while (message := self._next()) is not None:
                    self._handle(message)
            except EOFError:
                return
            self.scheduler.run_round()
            self.events.heartbeat()

    def _next(self) -> _JsonObject | None:
        """Returns the next message, or None; waits for one only if no request is running."""
        try:
            message = self.inbox.get_nowait() if self.scheduler.requests else self.inbox.get(timeout=_HEARTBEAT_SECONDS)
        except queue.Empty:
            return None
        if message is None:
            raise EOFError
        return message

    def _handle(self, message: _JsonObject) -> None:
        handlers: dict[str, Callable[[_JsonObject], None]] = {
            "start": self._start,
            "cancel": self._cancel,
            "run": self._run_request,
        }
        handlers[message["do"]](message)

    def _start(self, message: _JsonObject) -> None:
        self.requests[message["id"]] = _ActiveRequest(message["id"])
        if not message["patterns"] and not message["schemas"]:
            return self._run_request(message)
        # compiling constraints is slow; other requests keep running meanwhile
        compiling = self.compiler.submit(_compile_rules, message["patterns"], message["schemas"])
        compiling.add_done_callback(lambda done: self.inbox.put(message | {"do": "run", "compiled": done}))
        return None

    def _run_request(self, message: _JsonObject) -> None:
        request = self.requests[message["id"]]
        if request.cancelled:
            return self._end(request, {"event": "failed", "kind": "cancelled", "message": ""})
        deadline = time.monotonic() + message["seconds"]
        request.scheduled = self.scheduler.start(partial(self._work, request, message), deadline)
        return None

    def _work(self, request: _ActiveRequest, message: _JsonObject) -> None:
        """Prepares and generates one request in its own greenlet; an exception ends only this request."""
        try:
            if "compiled" in message:
                message["compiled"].result()
            prepare = resolve_name(message["action"])
            run = prepare(self.models[message["model"]], message["arguments"])
            record = run(lambda frame: self.events.send({"event": "frame", "id": request.number} | frame))
            event = {"event": "done", "record": record}
        except RequestEnded as reason:
            event = {"event": "failed", "kind": _KINDS[type(reason)], "message": ""}
        except ValueError as error:
            param = getattr(error, "argument", None)
            event = {"event": "failed", "kind": "refused", "param": param, "message": str(error)}
        except Exception as error:
            traceback.print_exception(error, limit=-8)
            event = {"event": "failed", "kind": "internal", "message": type(error).__name__}
        self._end(request, event)

    def _end(self, request: _ActiveRequest, event: _JsonObject) -> None:
        del self.requests[request.number]
        self.events.send(event | {"id": request.number})

    def _cancel(self, message: _JsonObject) -> None:
        request = self.requests.get(message["id"])
        if request is None:
            return
        request.cancelled = True
        if request.scheduled is not None:
            request.scheduled.cancel()


def _compile_rules(patterns: Sequence[str], schemas: Sequence[str]) -> None:
    """Compiles the rules of a request into the cache, which may take seconds."""
    for rule in [*map(Regex, patterns), *map(Json, schemas)]:
        compile_rule(rule)


def _shapes(lm: DiffusionLM) -> Iterator[tuple[int, int]]:
    """(inputs, outputs) of every weight matrix."""
    for module in lm.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            yield module.weight.shape[1], module.weight.shape[0]


def _model_info(name: str, model: TextModel) -> _JsonObject:
    """Returns the facts about a model that the HTTP side needs."""
    config, run = model.lm.config, model.run
    block = model.lm.block
    length = None if run is None else run.framing.length
    return {
        "id": name,
        "run": model.name,
        "created": int(model.path.stat().st_mtime)
        if model.path is not None and model.path.exists()
        else int(time.time()),
        "steps": model.sampler.setting("steps"),
        "sampler": str(model.sampler),
        "length": length,
        "positions": config.network.positions,
        "block": block,
        "vocab": config.vocab.size,
        "parameters": sum(p.numel() for p in model.lm.parameters()),
        "process": type(config.process).__name__,
        "tokenizer": _tokenizer_info(model.tokenizer),
        "embedding_width": None if model.lm.codec is not None else config.network.width,
        "classes": list(model.classes),
        "answers": model.needs_source,
        "attributes": {name: list(values) for name, values in _attributes(model).items()},
    }


def _tokenizer_info(tokenizer: Tokenizer) -> _JsonObject:
    """Returns the spellings of special tokens and the chat template, by the names of Hugging Face's files."""
    names = {f"{name}_token": tokenizer.special_names.get(name) for name in ("bos", "eos", "pad")}
    return names | {"chat_template": tokenizer.template}


def _attributes(model: TextModel) -> Mapping[str, tuple[str, ...]]:
    """Returns the attributes that `control` accepts: those of the training data, if the model is unconditional."""
    return {} if model.run is None or model.needs_source or model.classes else as_annotated(model.run.data).attributes()


def _main() -> None:
    """Runs the model process.

    argv[1] is JSON: {"models": {name: path}, "threads": int or null, "model_flags": arguments of `open_model` that the
    model files leave out}.
    """
    arguments = json.loads(sys.argv[1])
    events = _EventWriter(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    torch.set_grad_enabled(False)
    if arguments["threads"]:
        torch.set_num_threads(arguments["threads"])
    inbox: queue.SimpleQueue[_JsonObject | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(inbox,), daemon=True).start()
    try:
        models = {name: _open(path, events, arguments["model_flags"]) for name, path in arguments["models"].items()}
        process = _ModelProcess(models, inbox, events)
    except Exception as error:
        events.send({"event": "start_failed", "message": str(error)})
        raise SystemExit(2) from error
    infos = [_model_info(name, model) for name, model in models.items()]
    events.send(
        {
            "event": "ready",
            "models": infos,
            "batch_invariant_rows": process.batch_invariant_rows,
            "threads": torch.get_num_threads(),
        }
    )
    process.run()


def _open(path: str, events: _EventWriter, settings: _JsonObject) -> TextModel:
    events.send({"event": "alive"})
    model = open_model(Path(path), **settings)
    model.lm.eval()
    model.tokenizer.vocab  # noqa: B018 - raises here if the model has no tokenizer
    return model


def _read(inbox: queue.SimpleQueue[_JsonObject | None]) -> None:
    for line in sys.stdin.buffer:
        inbox.put(json.loads(line))
    inbox.put(None)


if __name__ == "__main__":
    _main()
