"""fit(run): the one visible training loop. Five minutes to read, and a killed run resumes bit for bit.

All randomness of a step derives from (seed, sample) and (seed, step), so what there is to save is: weights, averaged
weights, moments of the optimisers, the step, and the sums of the line of the log that is not yet written.

    runs/tiny/   run.json  metrics.jsonl  step-00000200/  step-00000400/

"Bit for bit" means: on the same machine, with the same versions, threads and workers, not compiled. With another number
of workers the samples of every step are the same, sums are rounded in another order, and dropout draws anew.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from redraft import checkpoint, config, evaluate, lock, metrics, ops
from redraft.bar import Bar, waiting
from redraft.checkpoint import CheckpointError
from redraft.data import Loader, evaluation, prefetch, tokenise
from redraft.distributed import Workers, accumulating, asked_to_stop, gathered, local, same_bits, spread, whole, workers
from redraft.machine import free_memory
from redraft.model import DiffusionLM
from redraft.objectives import Autoencode, Step
from redraft.optim import adjust, optimisers, rate
from redraft.precision import Choice, Precision, PrecisionError, Shapes, choose, shapes_like
from redraft.run import Run, assemble, begin_with, least_memory, newest
from redraft.stories import STORIES
from redraft.types import Batch


class TrainingError(RuntimeError):
    """Training cannot go on; the last checkpoint is intact."""


def fit(
    run: Run, out: str | Path, *, quiet: bool = False, tell: Callable[[dict[str, Any]], None] | None = None
) -> DiffusionLM:
    """Trains, or goes on where the same run left off in `out`; gives back the model with averaged weights.

    `tell` hears each record of metrics.jsonl as it is written; of several workers the first one's does.

    SIGINT and SIGTERM end it after the step at hand and a checkpoint, by KeyboardInterrupt or SystemExit(143).
    """
    out = Path(out)
    require_packages(run)
    with workers() as team, asked_to_stop() as asked, same_bits(), only_writer(out, team):
        require_memory(run, team)
        claim(run, out, team)
        choice = settle(run, out, team, quiet)
        torch.manual_seed(run.seed)
        model = DiffusionLM(run.model, run.tokenizer).to(team.device)
        if run.base is not None:
            latent = model.codec is not None and model.codec.frozen  # another denoiser may work on the same latents
            begin_with(model, run.base, "codec." if latent else "")
        with waiting("reading the text", shown=team.first and not quiet):
            train = tokenise(run.data, "train", run.tokenizer, run.framing)
            valid = evaluate.HeldOut.of(run.data, "valid", run.tokenizer, run.framing, run.eval_rows)
        found = checkpoint.latest(out)
        if run.base is None and found is None and model.codec is not None:
            model.codec.survey(partial(evaluation, train))
        model.network.recompute = run.recompute
        step = team.wrap(Step(model, run.objective), run.shard)
        state = State(model, _copies(model), optimisers(model, run.optimiser, choice.dtype), choice)
        if found is not None:
            state.restore(checkpoint.read(found))
        if run.compile:
            for block in model.network.blocks:
                block.compile()
        loader = Loader(train, run.batch, run.seed, team.rank, team.world, run.micro)
        batches = prefetch(loader.batches(state.step * run.batch))
        with closing(Log(run, out, state, team, quiet, tell)) as log:
            while state.step < run.steps:
                with log.clock(state):
                    norm = update(run, state, step, [b.to(team.device) for b in islice(batches, run.micro)], team)
                last, leave = state.step == run.steps, team.any(bool(asked))
                if state.step % run.log_every == 0 or last:
                    log.progress(state, norm)
                if state.step % run.eval_every == 0 or last:
                    log.assessed(assess(run, state, step, valid, team))
                if state.step % run.save_every == 0 or last or leave:
                    log.sync()
                    save(run, state, out, team)
                if leave and not last:
                    raise KeyboardInterrupt if signal.SIGINT in asked else SystemExit(128 + signal.SIGTERM)
        return assemble(run, newest(out).tensors["model"], "cpu" if run.shard else team.device)


@dataclass
class State:
    """All that changes while training, and the precision, which does not."""

    model: DiffusionLM
    ema: dict[str, Tensor]
    optimisers: list[Optimizer]
    precision: Choice
    step: int = 0
    nats: float = 0.0  # since the last line of the log
    tokens: int = 0

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """By file: averaged weights, those being trained, moments. Of sharded ones the rows of this worker."""
        names = {id(p): n for n, p in self.model.named_parameters()}
        moments = {
            f"{names[id(p)]}|{key}": local(value)
            for optimiser in self.optimisers
            for p, entry in optimiser.state.items()
            for key, value in entry.items()
        }
        weights = {n: local(p.detach()) for n, p in self.model.named_parameters()}
        return {"model": {n: local(p) for n, p in self.ema.items()}, "raw": weights, "optimiser": moments}

    @torch.no_grad()
    def restore(self, saved: checkpoint.Checkpoint) -> None:
        parameters = dict(self.model.named_parameters())
        numbers = _whole_state(saved, parameters)
        for name, p in parameters.items():
            p.copy_(spread(saved.tensors["raw"][name], p))
            self.ema[name].copy_(spread(saved.tensors["model"][name], p))
        owner = {id(p): o for o in self.optimisers for g in o.param_groups for p in g["params"]}
        for key, value in saved.tensors["optimiser"].items():
            name, moment = key.rsplit("|", 1)
            p = parameters[name]
            owner[id(p)].state[p][moment] = spread(value, p) if value.dim() else value.to(p.device)
        self.step, self.nats, self.tokens = numbers["step"], numbers["nats"], numbers["tokens"]


def _whole_state(saved: checkpoint.Checkpoint, parameters: Mapping[str, Tensor]) -> dict[str, Any]:
    """The numbers of a checkpoint; refuses one from which no training can go on."""
    shapes = {name: p.shape for name, p in parameters.items()}
    for part in ("raw", "model"):
        if {name: p.shape for name, p in saved.tensors.get(part, {}).items()} != shapes:
            raise CheckpointError(f"{part}.safetensors of step {saved.step} does not hold the weights of this run")
    moments = saved.tensors.get("optimiser", {})
    fit_in = {name: (shape, torch.Size()) for name, shape in shapes.items()}  # a tensor like the weight, or a count
    if not moments or any(m.shape not in fit_in.get(key.rsplit("|", 1)[0], ()) for key, m in moments.items()):
        raise CheckpointError(f"optimiser.safetensors of step {saved.step} does not belong to this run")
    for tensors in (saved.tensors["raw"], moments):
        if (wrong := checkpoint.not_finite(tensors)) is not None:
            raise CheckpointError(f"{wrong} of step {saved.step} has values that are nan or infinite; remove this step")
    match saved.documents.get("state"):
        case {"step": int(step), "nats": int() | float() as nats, "tokens": int(tokens)} if step == saved.step:
            return {"step": step, "nats": nats, "tokens": tokens}
    raise CheckpointError(f"state.json of step {saved.step} lacks nats, tokens or its step; remove this checkpoint")


def update(run: Run, state: State, step: nn.Module, batches: list[Batch], team: Workers) -> float:
    """One step of the optimisers and of the average; gives the norm of the gradient before it was clipped."""
    nats, tokens = backward(run, state, step, batches, team)
    norm = clip(state.model.parameters(), run.optimiser.clip)
    if not math.isfinite(nats) or not math.isfinite(norm):
        raise TrainingError(
            f"step {state.step + 1} has a loss of {nats} nats and a gradient of norm {norm}; it was not taken and "
            "nothing was saved. Try a lower learning rate or a longer warm-up, as a run of its own in another directory"
        )
    adjust(state.optimisers, rate(run.optimiser, state.step, run.steps))
    for optimiser in state.optimisers:
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    state.step, state.nats, state.tokens = state.step + 1, state.nats + nats, state.tokens + tokens
    decay = min(run.optimiser.ema, (1 + state.step) / (10 + state.step))  # the first weights are soon forgotten
    with torch.no_grad():
        fresh = [p.detach() for p in state.model.parameters()]
        get_ema_multi_avg_fn(decay)(list(state.ema.values()), fresh, state.step)
    return norm


def backward(run: Run, state: State, step: nn.Module, batches: list[Batch], team: Workers) -> tuple[float, int]:
    """The gradient of the nats per token, over all parts and workers; gives the nats and the tokens."""
    state.model.train()
    _seed_dropout(int(ops.rng(run.seed).fold(state.step).fold(team.rank).key), team.device)
    tokens = team.sum(torch.stack([b.learn.sum() for b in batches]).sum())
    nats = torch.zeros((), device=team.device)
    for batch in batches:
        assert batch.sample is not None
        with accumulating(step, last=batch is batches[-1]):
            with state.precision.autocast(team.device):
                loss = step(batch, ops.rng(run.seed, batch.sample), tokens / team.world)  # workers are averaged
            loss.mean.backward()
        nats = nats + loss.nats.sum()
    return float(team.sum(nats)), int(tokens)


def clip(parameters: Iterable[nn.Parameter], most: float) -> float:
    """Scales the gradients down to this norm if theirs is larger; gives the norm they had."""
    learning = [p for p in parameters if p.grad is not None]
    norm = nn.utils.get_total_norm([p.grad for p in learning if p.grad is not None])
    found = float(whole(norm))
    if not found <= most:
        nn.utils.clip_grads_with_norm_(learning, most, norm)
    return found


def _seed_dropout(seed: int, device: torch.device) -> None:
    """`torch.manual_seed` would note the seed for GPUs that are not there, with a stack trace: a fortieth of a step."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def assess(run: Run, state: State, step: nn.Module, valid: evaluate.HeldOut, team: Workers) -> dict[str, Any]:
    """Held-out bits per token and per character, and some texts, with the averaged weights; all workers do the same."""
    eager = torch.compiler.set_stance("force_eager")  # samplers would have every shape compiled anew
    with _averaged(state), gathered(step), state.precision.autocast(team.device), eager:
        if isinstance(run.objective, Autoencode):  # there is no diffusion yet
            return {"step": state.step, "valid_reconstruction": evaluate.reconstruction(state.model, valid.batches)}
        result = evaluate.likelihood(state.model, valid.batches, draws=2, seed=run.seed)
        found: dict[str, Any] = {
            "step": state.step,
            "valid_bound_bits_per_token": result.bits_per_token,
            "valid_bits_per_char": result.bits_per_char,
        }
        if valid.truth is not None:
            over, error = evaluate.excess(result, valid.truth)
            found |= {"valid_excess_bits_per_char": over, "valid_excess_stderr": error}
            found["entropy_bits_per_char"] = STORIES.entropy_per_char() / math.log(2)
        if run.samples:
            canvas = evaluate.to_write(state.model, run.framing, run.samples, valid.batches[0])
            found["samples"] = evaluate.generate(state.model, run.sampler, canvas, seed=run.seed).texts
        return found


def require_packages(run: Run) -> None:
    """Before anything is built or written."""
    try:
        if run.tensorboard:
            import_module("torch.utils.tensorboard")
    except ImportError:
        raise ValueError("tensorboard=True needs tensorboard: pip install 'redraft[tensorboard]'") from None


def require_memory(run: Run, team: Workers) -> None:
    """Refuses sizes that no memory here can hold, before anything is built."""
    need, free = least_memory(run, team.world), free_memory(team.device)
    if free is None or sum(need.values()) <= free:
        return
    most = max(need, key=lambda part: need[part])
    advice = {"model": "a smaller network", "batch": "a smaller batch, more parts of it (micro) or a shorter length"}
    raise ValueError(
        f"training needs {sum(need.values()) / 1e9:,.1f} GB of memory at least, and {free / 1e9:,.1f} GB are free; "
        f"most of it is for {most}: choose {advice.get(most, f'a smaller {most}')}"
    )


@contextmanager
def only_writer(out: Path, team: Workers) -> Iterator[None]:
    """The first worker holds the lock of the directory for all of them; if it cannot, none goes on."""
    problem: Exception | None = None
    with ExitStack() as held:
        try:
            if team.first:
                held.enter_context(lock.only_writer(out))
        except (lock.Busy, OSError) as error:
            problem = error
        if team.any(problem is not None):
            raise problem or lock.Busy(f"the first worker cannot write to {out}")
        yield


def claim(run: Run, out: Path, team: Workers) -> None:
    """Makes `out` the directory of this run; refuses one that holds another."""
    name, file = config.digest(run), out / "run.json"
    if file.exists() and (other := _held(file).get("hash")) != name:
        raise TrainingError(f"{out} holds another run ({other}, this one is {name}); choose another directory")
    team.wait()
    if team.first and not file.exists():
        out.mkdir(parents=True, exist_ok=True)
        _replace(file, {"hash": name, "run": config.to_json(run)})


def _held(file: Path) -> dict[str, Any]:
    """What run.json says."""
    try:
        held = config.read_json(file)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} is damaged ({error}); restore it, or choose another directory") from error
    if not isinstance(held, dict):
        raise CheckpointError(f"{file} is damaged (no JSON object); restore it, or choose another directory")
    return held


def settle(run: Run, out: Path, team: Workers, quiet: bool) -> Choice:
    """The precision of a run, for all workers the one of the first; said, and kept in run.json.

    A resumed run goes on in the precision it began with, so that it stays the same bit for bit on another machine;
    where that is impossible it ends here, before anything is changed.
    """
    file = out / "run.json"
    held = _held(file) if team.first else {}
    before = _begun_in(held)
    choice = _agreed(run, team, before)
    if team.first and before != choice.name:
        _replace(file, {**held, "precision": {"name": choice.name, "reason": choice.reason}})
    changed = f"; until now {before}, so no longer bit for bit" if before not in (None, choice.name) else ""
    if team.first and not quiet and (choice.name, changed) not in _told:
        _told.add((choice.name, changed))
        print(f"precision: {choice}{changed}", file=sys.stderr, flush=True)
    return choice


_told: set[tuple[str, str]] = set()  # once per process is enough: a demo trains two models


def _agreed(run: Run, team: Workers, before: Precision | None) -> Choice:
    """The first worker chooses, the others follow; if it cannot, all end."""
    shapes = shapes_of(run, team.world)
    if not team.first:
        if (code := team.agree(0)) < 0:
            raise PrecisionError("the first worker cannot compute in the precision of the run")
        return choose("bf16" if code else "fp32", team.device, shapes)
    try:
        choice = choose(run.precision, team.device, shapes, before)
    except PrecisionError:
        team.agree(-1)
        raise
    team.agree(int(choice.name == "bf16"))
    return choice


def _begun_in(document: dict[str, Any]) -> Precision | None:
    """What run.json says; runs of older versions do not."""
    name = document["precision"].get("name") if isinstance(document.get("precision"), dict) else None
    return name if name in get_args(Precision) else None


def shapes_of(run: Run, world: int = 1) -> Shapes:
    """Products like those of a training step."""
    network, rows = run.model.network, run.batch * run.framing.length
    return shapes_like(max(1, rows // (run.micro * world)), network.width, network.hidden_width)


def _replace(file: Path, document: dict[str, Any]) -> None:
    """A reader finds the old document or the new one."""
    draft = file.with_suffix(".tmp")
    draft.write_text(json.dumps(document, indent=1))
    draft.replace(file)


def save(run: Run, state: State, out: Path, team: Workers) -> None:
    """The first worker writes; of a sharded run each writes what it holds, and any number of them can read it."""
    numbers = {"step": state.step, "nats": state.nats, "tokens": state.tokens}
    documents = {"config": config.to_json(run), "state": numbers}
    tensors = state.tensors()
    if team.any((wrong := checkpoint.not_finite(tensors["raw"])) is not None):
        raise TrainingError(
            f"after step {state.step} {wrong or 'a weight of another worker'} has values that are nan or infinite; "
            "this step is not saved, earlier ones are intact. Try a lower learning rate, in another directory"
        )
    if run.shard:
        checkpoint.save(out, state.step, tensors, documents, run.keep, team)
    elif team.first:
        checkpoint.save(out, state.step, tensors, documents, run.keep)
    team.wait()


class Log:
    """metrics.jsonl, TensorBoard if wished for, and the progress bar; all of the first worker only.

    A resumed run first cuts the file back to its step. Speeds count training alone, not evaluation and checkpoints.
    """

    def __init__(
        self,
        run: Run,
        out: Path,
        state: State,
        team: Workers,
        quiet: bool,
        tell: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.run, self.file, self.active, self.tell = run, out / metrics.FILE, team.first, tell
        self.seconds, self.tokens = 0.0, 0
        self.loss, self.held_out = "", ""
        self.board = _board(out, state.step) if run.tensorboard and team.first else None
        if self.active and self.file.exists():
            os.truncate(self.file, _size_up_to(state.step, self.file))
        self.bar = Bar("training", run.steps, state.step, shown=self.active and not quiet)

    @contextmanager
    def clock(self, state: State) -> Iterator[None]:
        """Counts the seconds and tokens of what happens inside."""
        began, before = time.perf_counter(), state.tokens
        yield
        self.seconds, self.tokens = self.seconds + time.perf_counter() - began, self.tokens + state.tokens - before
        self.bar.update(state.step)

    def progress(self, state: State, norm: float) -> None:
        """One line for all steps since the last one."""
        bits, speed = state.nats / max(1, state.tokens) / math.log(2), self.tokens / self.seconds
        record = {
            "step": state.step,
            "train_loss_bits_per_token": bits,
            "gradient_norm": norm,
            "learning_rate": self.run.optimiser.lr * rate(self.run.optimiser, state.step - 1, self.run.steps),
            "tokens_per_second": speed,
            "precision": state.precision.name,
        }
        self.write(record)
        self.loss = f"loss {bits:.3f} bits/token, {speed:,.0f} tokens/s"
        self.bar.note = f"{self.loss}{self.held_out}"
        state.nats, state.tokens, self.seconds, self.tokens = 0.0, 0, 0.0, 0

    def assessed(self, record: dict[str, Any]) -> None:
        """What held-out text says; the bar shows it from now on."""
        self.held_out = f"; {metrics.brief(record)}"
        self.bar.note = f"{self.loss}{self.held_out}"
        self.write(record)

    def write(self, record: dict[str, Any]) -> None:
        if self.active:
            with self.file.open("a") as file:
                file.write(json.dumps(record) + "\n")
            if self.tell is not None:
                self.tell(record)
        if self.board is not None:
            for name, value in record.items():
                if isinstance(value, float):
                    self.board.add_scalar(name, value, record["step"])

    def sync(self) -> None:
        """What a checkpoint relies on must not be lost with the power."""
        if self.active:
            with self.file.open("a") as file:
                os.fsync(file.fileno())

    def close(self) -> None:
        self.bar.close()
        if self.board is not None:
            self.board.close()


def _size_up_to(step: int, file: Path) -> int:
    """Bytes of the whole lines up to a step; a line that a crash cut short is none."""
    lines = metrics.lines(file)
    steps = (metrics.parse(file, number, line)["step"] for number, line in enumerate(lines, 1))
    kept = takewhile(lambda each: each[1] <= step, zip(lines, steps, strict=True))
    return sum(len(line) for line, _ in kept)


def _board(out: Path, step: int) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(out / "tensorboard"), purge_step=step + 1)


@contextmanager
def _averaged(state: State) -> Iterator[None]:
    """The model with its averaged weights, for a while."""
    raw = _copies(state.model)
    state.model.load_state_dict(state.ema)
    state.model.eval()
    try:
        yield
    finally:
        state.model.load_state_dict(raw)


def _copies(model: DiffusionLM) -> dict[str, Tensor]:
    return {n: p.detach().clone() for n, p in model.named_parameters()}
