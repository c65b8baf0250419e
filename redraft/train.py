"""fit(run): the one visible training loop. Five minutes to read, and a killed run resumes bit for bit.

All randomness of a step derives from (seed, sample) and (seed, step), so the state is: weights, averaged weights,
optimiser, and one number, the step.
"""

from __future__ import annotations

import json
import math
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from redraft import checkpoint, config, evaluate, ops
from redraft.data import Loader, StoriesData, evaluation, prefetch, tokenise
from redraft.distributed import Workers, spread, whole, workers
from redraft.model import DiffusionLM
from redraft.objectives import Step
from redraft.optim import optimisers, rate
from redraft.run import Run
from redraft.stories import STORIES
from redraft.types import Batch


class TrainingError(RuntimeError):
    """Training cannot go on; the last checkpoint is intact."""


@dataclass
class State:
    """All that changes while training; `save` and `restore` are its only doors to the disk."""

    model: DiffusionLM
    ema: dict[str, Tensor]
    optimisers: list[Optimizer]
    step: int = 0

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        names = {id(p): n for n, p in self.model.named_parameters()}
        moments = {
            f"{names[id(p)]}|{key}": whole(value)
            for optimiser in self.optimisers
            for p, entry in optimiser.state.items()
            for key, value in entry.items()
        }
        weights = {n: whole(p.detach()) for n, p in self.model.named_parameters()}
        return {"model": {n: whole(p) for n, p in self.ema.items()}, "raw": weights, "optimiser": moments}

    @torch.no_grad()
    def restore(self, saved: checkpoint.Checkpoint) -> None:
        parameters = dict(self.model.named_parameters())
        for name, p in parameters.items():
            p.copy_(spread(saved.tensors["raw"][name], p))
            self.ema[name].copy_(spread(saved.tensors["model"][name], p))
        owner = {id(p): o for o in self.optimisers for g in o.param_groups for p in g["params"]}
        for key, value in saved.tensors["optimiser"].items():
            name, moment = key.rsplit("|", 1)
            p = parameters[name]
            owner[id(p)].state[p][moment] = spread(value, p) if value.shape == p.shape else value
        self.step = saved.step


def fit(run: Run, out: str | Path, *, quiet: bool = False) -> DiffusionLM:
    """Trains, or goes on where a run of the same hash left off in `out`; gives back the model with averaged weights."""
    out = Path(out)
    with workers() as team, _asked_to_stop() as stop:
        state = begin(run, out, team)
        step = team.wrap(Step(state.model, run.objective), run.shard)
        if run.shard:  # sharding replaces the parameters
            state = replace(state, ema=_copies(state.model), optimisers=optimisers(state.model, run.optimiser))
        if (found := checkpoint.latest(out)) is not None:
            state.restore(checkpoint.read(found))
        log = Log(out / "metrics.jsonl", state.step, team.first, quiet, run)
        if run.compile:
            step.compile()
        rows = tokenise(run.data, "train", run.tokenizer, run.framing)
        loader = Loader(rows, run.batch, run.seed, team.rank, team.world, run.micro)
        batches = prefetch(loader.batches(state.step * run.batch))
        while state.step < run.steps:
            parts = [b.to(team.device) for b in islice(batches, run.micro)]
            losses, norm = update(run, state, step, parts, team)
            log.add(losses, norm, rate(run.optimiser, state.step - 1, run.steps))
            done = state.step == run.steps
            if state.step % run.eval_every == 0 or done:
                log.write(assess(run, state, team))
            leave = state.step % run.log_every == 0 and team.any(stop.asked)
            if state.step % run.save_every == 0 or done or leave:
                save(run, state, out, team)
            if leave and not done:
                raise KeyboardInterrupt
        log.close()
        _use(state.model, state.ema)
        return state.model


def begin(run: Run, out: Path, team: Workers) -> State:
    """Fresh weights from the seed; refuses a directory that holds another run."""
    name, document = config.digest(run), config.to_json(run)
    file = out / "run.json"
    if file.exists() and (other := json.loads(file.read_text()).get("hash")) != name:
        raise TrainingError(f"{out} holds another run ({other}, this one is {name}); choose another directory")
    if team.first and not file.exists():
        out.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"hash": name, "run": document}, indent=1))
    team.wait()
    torch.manual_seed(run.seed)
    model = DiffusionLM(run.model, run.tokenizer).to(team.device)
    model.network.recompute = run.recompute
    return State(model, _copies(model), optimisers(model, run.optimiser))


def update(run: Run, state: State, step: torch.nn.Module, batches: list[Batch], team: Workers) -> tuple[Tensor, float]:
    """One step of the optimiser. Gives (nats, tokens) over all workers, and the norm of the gradient."""
    torch.manual_seed(hash((run.seed, state.step, team.rank)))  # dropout; a hash of integers is the same everywhere
    state.model.train()
    tokens = team.sum(sum((b.learn.sum() for b in batches), torch.zeros((), device=team.device)))
    nats = torch.zeros((), device=team.device)
    for i, batch in enumerate(batches):
        assert batch.sample is not None
        with _accumulating(step, last=i == len(batches) - 1), _precision(run, team.device):
            loss = step(batch, ops.rng(run.seed, batch.sample), tokens / team.world)
        loss.mean.backward()
        nats = nats + loss.nats.sum()
    norm = float(whole(torch.nn.utils.clip_grad_norm_(state.model.parameters(), run.optimiser.clip)))
    if not norm < float("inf"):
        raise TrainingError(f"the gradient of step {state.step} is not finite; nothing was updated. Lower the rate?")
    for optimiser, full in zip(state.optimisers, (run.optimiser.lr, run.optimiser.muon), strict=False):
        for group in optimiser.param_groups:
            group["lr"] = (full or 0.0) * rate(run.optimiser, state.step, run.steps)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    state.step += 1
    decay = min(run.optimiser.ema, (1 + state.step) / (10 + state.step))
    with torch.no_grad():
        fresh = [p.detach() for p in state.model.parameters()]
        get_ema_multi_avg_fn(decay)(list(state.ema.values()), fresh, state.step)
    return torch.stack([team.sum(nats), tokens]), norm


def save(run: Run, state: State, out: Path, team: Workers) -> None:
    """Every worker gathers, the first one writes."""
    tensors = state.tensors()
    if team.first:
        documents = {"config": config.to_json(run), "state": {"step": state.step, "run": config.digest(run)}}
        checkpoint.save(out, state.step, tensors, documents, keep=run.keep)
    team.wait()


def assess(run: Run, state: State, team: Workers) -> dict[str, Any]:
    """Held-out bits per token and per character, and some texts, with the averaged weights."""
    with averaged(state):
        rows = tokenise(run.data, "valid", run.tokenizer, run.framing)
        result = evaluate.likelihood(state.model, evaluation(rows, run.eval_rows), draws=2, seed=run.seed)
        found: dict[str, Any] = {
            "step": state.step,
            "valid_bits_per_token": result.bits_per_token,
            "valid_bits_per_char": result.bits_per_char,
        }
        if isinstance(run.data, StoriesData):
            found["entropy_bits_per_char"] = STORIES.entropy_per_char() / math.log(2)
        if run.samples:
            canvas = state.model.canvas(new=run.framing.length, rows=run.samples)
            found["samples"] = evaluate.generate(state.model, run.sampler, canvas, seed=run.seed).texts
        return found


@contextmanager
def averaged(state: State) -> Iterator[None]:
    """The model with its averaged weights, for a while."""
    raw = {n: p.detach().clone() for n, p in state.model.named_parameters()}
    _use(state.model, state.ema)
    state.model.eval()
    try:
        yield
    finally:
        _use(state.model, raw)


class Log:
    """metrics.jsonl and the progress bar. A resumed run first cuts the file back to its step."""

    def __init__(self, file: Path, step: int, active: bool, quiet: bool, run: Run) -> None:
        self.run, self.step, self.active = run, step, active
        self.sums, self.began, self.file = torch.zeros(2), time.perf_counter(), file
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
        clocks = (TimeElapsedColumn(), TimeRemainingColumn())
        console = Console(file=sys.stderr)
        self.bar = Progress(*columns, *clocks, console=console, disable=quiet or not active)
        self.task = self.bar.add_task("training", total=run.steps, completed=step, note="")
        if active:
            kept = [line for line in _lines(file) if json.loads(line)["step"] <= step]
            file.write_text("".join(f"{line}\n" for line in kept))
            self.bar.start()

    def add(self, losses: Tensor, norm: float, share: float) -> None:
        self.step += 1
        self.sums = self.sums + losses.cpu()
        if self.step % self.run.log_every:
            return
        nats, tokens = self.sums.tolist()
        seconds = time.perf_counter() - self.began
        bits = nats / tokens / math.log(2)
        self.write(
            {
                "step": self.step,
                "train_bits_per_token": bits,
                "gradient_norm": norm,
                "learning_rate": self.run.optimiser.lr * share,
                "tokens_per_second": tokens / seconds,
            }
        )
        self.bar.update(self.task, completed=self.step, note=f"{bits:.3f} bits/token  {tokens / seconds:,.0f} tokens/s")
        self.sums, self.began = torch.zeros(2), time.perf_counter()

    def write(self, record: dict[str, Any]) -> None:
        if self.active:
            with self.file.open("a") as file:
                file.write(json.dumps(record) + "\n")

    def close(self) -> None:
        if self.active:
            self.bar.stop()


class _Stop:
    asked = False


@contextmanager
def _asked_to_stop() -> Iterator[_Stop]:
    """SIGINT and SIGTERM end the run after the step and its checkpoint, not in the middle."""
    stop = _Stop()

    def note(*_: object) -> None:
        stop.asked = True

    try:
        old = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: signals are somebody else's
        old = {}
    try:
        yield stop
    finally:
        for s, handler in old.items():
            signal.signal(s, handler)


@contextmanager
def _accumulating(step: torch.nn.Module, last: bool) -> Iterator[None]:
    """Workers exchange gradients once per step, with its last part."""
    if isinstance(step, FSDPModule):
        step.set_requires_gradient_sync(last)
    with step.no_sync() if isinstance(step, DistributedDataParallel) and not last else nullcontext():
        yield


def _precision(run: Run, device: torch.device) -> torch.autocast:
    fast = ops.fast_bf16(device) if run.precision == "auto" else run.precision == "bf16"
    return torch.autocast(device.type, torch.bfloat16, enabled=fast)


def _copies(model: DiffusionLM) -> dict[str, Tensor]:
    return {n: p.detach().clone() for n, p in model.named_parameters()}


@torch.no_grad()
def _use(model: DiffusionLM, weights: dict[str, Tensor]) -> None:
    for name, p in model.named_parameters():
        p.copy_(weights[name])


def _lines(file: Path) -> list[str]:
    """The whole lines of a log; one that a crash cut short is dropped."""
    return [line for line in file.read_text().split("\n")[:-1]] if file.exists() else []
