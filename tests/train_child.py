"""A process that trains a tiny model: the other half of the kill and torchrun tests.

Given a file of jobs (JSON), it does them one after another, under torchrun as one of the workers. Without one it forks
a child for each job that it reads from standard input, one per line (importing torch once makes a death cheap), and
answers with the child's exit code, -9 if it was killed. What a job may say besides `out` and `run`:

    "term": n        the worker `rank` sends itself SIGTERM after step n
    "kill": n        the same with SIGKILL, but not again after a restart by torchrun
    "after": [n, s]  killed from outside, s seconds after step n
    "event": n       killed from inside, just before its n-th operation on a file below `out`
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TextIO

import torch
import torch._dynamo  # every optimiser imports it late; here once for all lives
import torch.distributed as dist

from redraft import train
from redraft.data import Documents, TextFiles
from redraft.distributed import Workers
from redraft.model import DiffusionLMConfig
from redraft.networks.transformer import TransformerConfig
from redraft.objectives import Objective, Recover
from redraft.processes.masked import Masked
from redraft.run import Optimiser, Run
from redraft.samplers.ancestral import Ancestral
from redraft.text import Characters
from redraft.types import Batch

Job = dict[str, Any]
OPERATIONS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree"}
LINES = [
    f"{a} {b} {a}" for a in ("ab", "ba", "aab", "bba", "aa", "bb", "c", "ca") for b in ("d", "dc", "cd", "bab", "b")
]


def small(
    folder: Path, muon: float | None = None, dropout: float = 0.0, time: int | None = None, **changes: Any
) -> Run:
    """A run that takes a second; 36 of its 40 documents are for training, so that it meets several epochs."""
    corpus = folder / "corpus.txt"
    if not corpus.exists():
        corpus.write_text("\n".join(LINES))
    text = Characters(" abcd", ("eos", "pad", "mask"))
    network = TransformerConfig(text.vocab.size, width=16, layers=2, heads=2, hidden=32, dropout=dropout, time=time)
    settings: dict[str, Any] = dict(steps=20, batch=8, log_every=3, save_every=4, eval_every=8, eval_rows=2, samples=1)
    return Run(
        model=DiffusionLMConfig(Masked(text.vocab), network),
        data=TextFiles((str(corpus),), split_by="line"),
        tokenizer=text,
        framing=Documents(12),
        objective=Objective(Recover()),
        sampler=Ancestral(4),
        optimiser=Optimiser(lr=3e-3, muon=muon, eps=1e-4, weight_decay=0.01, warmup=5, floor=0.1, ema=0.9),
        **settings | changes,
    )


def live(job: Job, announce: Callable[[int], object] = lambda step: None) -> int:
    """Does one job; its exit code."""
    out = Path(job["out"])
    with _watched(job, announce):
        try:
            train.fit(small(out.parent, **job.get("run", {})), out, quiet=True)
        except SystemExit as end:
            return int(end.code or 0)
    return 0


def ledger(out: Path) -> Path:
    """Where the samples of every step are written down, one JSON object per step and worker."""
    return out.with_suffix(".ledger")


@contextmanager
def _watched(job: Job, announce: Callable[[int], object]) -> Iterator[None]:
    """After every step its samples are written down, and what the job says happens."""
    usual, fresh = train.update, os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"

    def update(run: Run, state: train.State, step: torch.nn.Module, batches: list[Batch], team: Workers) -> float:
        norm = usual(run, state, step, batches, team)
        samples = [n for batch in batches if batch.sample is not None for n in batch.sample.tolist()]
        with ledger(Path(job["out"])).open("a") as file:
            file.write(json.dumps({"step": state.step, "rank": team.rank, "samples": samples}) + "\n")
        if team.rank == job.get("rank", 0):
            if state.step == job.get("term"):
                os.kill(os.getpid(), signal.SIGTERM)
            if state.step == job.get("kill") and fresh:
                os.kill(os.getpid(), signal.SIGKILL)
        announce(state.step)
        return norm

    train.update = update
    try:
        yield
    finally:
        train.update = usual


def _die_at(event: int, out: str) -> None:
    events = count(1)

    def watch(operation: str, arguments: tuple[object, ...]) -> None:
        if operation in OPERATIONS and out in str(arguments[0]) and next(events) == event:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def _fork(job: Job) -> tuple[int, TextIO]:
    """A child that does the job; its process id, and the pipe on which it announces its steps."""
    reader, writer = os.pipe()
    if child := os.fork():
        os.close(writer)
        return child, os.fdopen(reader)
    code = 1
    try:
        _die_at(job.get("event", 0), job["out"])
        code = live(job, lambda step: os.write(writer, f"{step}\n".encode()))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _serve(job: Job) -> int:
    child, pipe = _fork(job)
    for line in pipe:
        if "after" in job and int(line) == job["after"][0]:
            time.sleep(job["after"][1])
            os.kill(child, signal.SIGKILL)
    pipe.close()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1:]:
        jobs = json.loads(Path(sys.argv[1]).read_text())
        if len(jobs) > 1 and "RANK" in os.environ:
            dist.init_process_group("gloo")  # torchrun's address serves one group only
        for job in jobs:
            live(job)
    else:
        for line in sys.stdin:
            print(_serve(json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
