"""A process that trains a tiny model until it is killed, and what its parent needs: for kill and torchrun tests.

Given a file of jobs (JSON), it does them one after another, under torchrun as one of the workers. Without one it forks
a child for each job that it reads from standard input, one per line (importing torch once makes a death cheap), and
answers with the child's exit code, -9 if it was killed. What a job may say besides `out` and `run`:

    "term": n        the worker `rank` sends itself SIGTERM after step n
    "kill": n        the same with SIGKILL, but not again after a restart by torchrun
    "after": [n, s]  killed from outside, s seconds after step n
    "event": n       killed from inside, just before its n-th operation on a file below `out`
    "save": n        the same, but only operations of checkpoints being saved count
"""

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TextIO

import torch
import torch._dynamo  # every optimizer imports it late; here once for all lives

from redraft.core import Batch, CharTokenizer, Masked
from redraft.decoding import Ancestral
from redraft.models import DiffusionLMConfig, TransformerConfig
from redraft.models.checkpoints import reader as stored, writer as checkpoint
from redraft.training import (
    DocumentRows,
    Objective,
    OptimizerConfig,
    Run,
    TextFiles,
    TokenCrossEntropy,
    loop,
    state,
)
from redraft.training.distributed import (
    _join_workers,
    _Workers,
)

Job = dict[str, Any]
OPERATIONS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree"}
LINES = [
    f"{a} {b} {a}" for a in ("ab", "ba", "aab", "bba", "aa", "bb", "c", "ca") for b in ("d", "dc", "cd", "bab", "b")
]
ROWS = 36  # 4 of the 40 lines are held out


def small(
    folder: Path, muon: float | None = None, dropout: float = 0.0, time: int | None = None, **changes: Any
) -> Run:
    """A run of less than a second, over several epochs of its corpus."""
    corpus = folder / "corpus.txt"
    if not corpus.exists():
        corpus.write_text("\n".join(LINES))
    text = CharTokenizer(" abcd", ("eos", "pad", "mask"))
    network = TransformerConfig(width=16, layers=2, heads=2, hidden=32, dropout=dropout, time=time)
    settings: dict[str, Any] = dict(steps=20, batch=8, log_every=3, save_every=4, eval_every=8, eval_rows=2, samples=1)
    settings |= dict(precision="fp32")  # bits are compared
    return Run(
        model=DiffusionLMConfig(Masked(text.vocab), network),
        data=TextFiles((str(corpus),), split_by="line"),
        tokenizer=text,
        framing=DocumentRows(12),
        objective=Objective(TokenCrossEntropy()),
        sampler=Ancestral(4),
        optimizer=OptimizerConfig(lr=3e-3, muon=muon, eps=1e-4, weight_decay=0.01, warmup=5, floor=0.1, ema=0.9),
        **settings | changes,
    )


# --- the child ---


def live(job: Job, announce: Callable[[int], object] = lambda step: None) -> int:
    """Does one job; its exit code."""
    out = Path(job["out"])
    with _watched(job, announce):
        try:
            loop.fit(small(out.parent, **job.get("run", {})), out, quiet=True)
        except SystemExit as end:
            return int(end.code or 0)
    return 0


@contextmanager
def _watched(job: Job, announce: Callable[[int], object]) -> Iterator[None]:
    """After every step its samples are written down, and what the job says happens."""
    usual, fresh = loop._optimizer_step, os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"

    def update(
        run: Run, state: state._TrainState, step: torch.nn.Module, batches: list[Batch], team: _Workers
    ) -> float:
        norm = usual(run, state, step, batches, team)
        samples = [n for batch in batches if batch.origin.sample is not None for n in batch.origin.sample.tolist()]
        with _ledger(Path(job["out"])).open("a") as file:
            file.write(json.dumps({"step": state.step, "rank": team.rank, "samples": samples}) + "\n")
        if team.rank == job.get("rank", 0):
            if state.step == job.get("term"):
                os.kill(os.getpid(), signal.SIGTERM)
            if state.step == job.get("kill") and fresh:
                os.kill(os.getpid(), signal.SIGKILL)
        announce(state.step)
        return norm

    loop._optimizer_step = update
    try:
        yield
    finally:
        loop._optimizer_step = usual


def _die_at_a_file(job: Job) -> None:
    """For the rest of this process: the kill before a certain operation on a file."""
    events, usual = count(1), checkpoint.save_checkpoint
    saving = "save" not in job

    def save(*args: Any) -> Path:
        nonlocal saving
        saving = True
        try:
            return usual(*args)
        finally:
            saving = "save" not in job

    def watch(operation: str, arguments: tuple[object, ...]) -> None:
        counts = saving and operation in OPERATIONS and job["out"] in str(arguments[0])
        if counts and next(events) == job.get("event", job.get("save")):
            os.kill(os.getpid(), signal.SIGKILL)

    checkpoint.save_checkpoint = save  # type: ignore[assignment]
    sys.addaudithook(watch)


def _fork(job: Job) -> tuple[int, TextIO]:
    """A child that does the job; its process id, and the pipe on which it announces its steps."""
    reader, writer = os.pipe()
    if child := os.fork():
        os.close(writer)
        return child, os.fdopen(reader)
    code = 1
    try:
        _die_at_a_file(job)
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
        with _join_workers():  # joined once: torchrun's address serves one process group only
            for job in json.loads(Path(sys.argv[1]).read_text()):
                live(job)
    else:
        for line in sys.stdin:
            print(_serve(json.loads(line)), flush=True)


# --- the parent ---


class Lives:
    """Starts children that train in one folder; the corpus is the same for all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": _environment()}
        self.server = subprocess.Popen([sys.executable, __file__], **pipes)
        self.unbroken: dict[str, Path] = {}

    def live(self, out: Path, run: dict[str, Any], **more: Any) -> int:
        """One life; its exit code, -9 if it was killed."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps({"out": str(out), "run": run, **more}) + "\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def whole(self, run: dict[str, Any]) -> Path:
        """The unbroken run."""
        name = json.dumps(run)
        if name not in self.unbroken:
            self.unbroken[name] = self.folder / f"unbroken-{len(self.unbroken)}"
            if self.live(self.unbroken[name], run) != 0:
                raise RuntimeError(f"the run {run} fails without any kill")
        return self.unbroken[name]

    def close(self) -> None:
        assert self.server.stdin is not None
        self.server.stdin.close()
        self.server.wait(30)


def torchrun(folder: Path, jobs: list[Job], restarts: int = 0) -> None:
    """All jobs in one launch of two workers."""
    file = folder / "jobs.json"
    file.write_text(json.dumps(jobs))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [f"--max-restarts={restarts}", __file__, str(file)]
    launcher = subprocess.Popen(command, env=_environment(), stderr=subprocess.PIPE, text=True)
    try:
        errors = launcher.communicate(timeout=300)[1]
    except subprocess.TimeoutExpired:
        launcher.terminate()  # it ends its workers, which a kill would leave alone
        launcher.wait()
        raise
    if launcher.returncode != 0:
        raise RuntimeError(errors[-4000:])


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def metrics(out: Path) -> list[dict[str, Any]]:
    """All lines of the log, without what a clock says."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "tokens_per_second"} for line in lines]


def end(out: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What two runs share if they end in the same bits: the manifest, so every file of the checkpoint, and the log."""
    newest = stored.latest_checkpoint(out)
    if newest is None:
        raise RuntimeError(f"{out} holds no checkpoint")
    return stored._verify(newest), metrics(out)


def taken(out: Path) -> dict[int, dict[int, list[int]]]:
    """The samples of every step and worker; steps that were repeated after a death must have taken the same ones."""
    found: dict[int, dict[int, list[int]]] = {}
    for line in _ledger(out).read_text().splitlines():
        entry = json.loads(line)
        before = found.setdefault(entry["step"], {}).setdefault(entry["rank"], entry["samples"])
        if before != entry["samples"]:
            raise RuntimeError(f"step {entry['step']} took {before} first, and {entry['samples']} when it was repeated")
    return found


def _ledger(out: Path) -> Path:
    """Where the samples of every step are written down, one JSON object per step and worker."""
    return out.with_suffix(".ledger")


if __name__ == "__main__":
    main()
