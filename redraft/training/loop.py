"""fit(run): the one visible training loop. Five minutes to read, and a killed run resumes bit for bit.

All randomness of a step derives from (seed, sample) and (seed, step). A checkpoint therefore holds the weights, the
averaged weights, the optimizer moments, the step, and the running sums for the next line of the log.

    runs/tiny/   run.json  metrics.jsonl  step-00000200/  step-00000400/

"Bit for bit" holds on the same machine with the same versions, threads and number of workers, without compilation.
With another number of workers every step sees the same samples, but sums round differently and dropout masks change.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from redraft.core import randomness
from redraft.core.batch import Batch
from redraft.core.hardware.precision import Precision
from redraft.core.hardware.system import free_memory
from redraft.models.checkpoints import reader, serialization, writer
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.networks.executors.dense import Dense
from redraft.models.networks.executors.row import Row
from redraft.training.data.framing import FramedRows
from redraft.training.data.loader import Loader, first_batches, load_rows, prefetch
from redraft.training.data.vocabulary import require_spelling
from redraft.training.distributed import (
    _accumulate_gradients,
    _deterministic_kernels,
    _gather_rows,
    _join_workers,
    _stop_signals,
    _unsharded,
    _Workers,
)
from redraft.training.heldout import NATS_PER_BIT, HeldOut, excess_bits, likelihood, reconstruction_accuracy
from redraft.training.log import _Log
from redraft.training.objectives.objective import TrainStep
from redraft.training.objectives.parts import CodecObjective
from redraft.training.optimizers import _learning_rate_fraction, _set_learning_rates, build_optimizers
from redraft.training.progress import Progress
from redraft.training.runs import metrics
from redraft.training.runs.loading import build_model, init_from, load_newest
from redraft.training.runs.memory import minimum_memory
from redraft.training.runs.run import Run
from redraft.training.samples import _sample_texts, blank_canvases
from redraft.training.setup import _choose_run_precision, _claim_directory, _hold_lock
from redraft.training.sinks import require_sinks
from redraft.training.state import TrainingError, _averaged, _copies, _TrainState


def fit(
    run: Run,
    out: str | Path,
    *,
    device: str | torch.device = "auto",
    quiet: bool = False,
    tell: Callable[[dict[str, Any]], None] | None = None,
) -> DiffusionLM:
    """Trains, or continues where the same run stopped in `out`; returns the model with averaged weights.

    SIGINT and SIGTERM finish the current step, save a checkpoint and raise KeyboardInterrupt or SystemExit(143).

    Args:
        run: the experiment, such as `presets.mdlm_tiny()`
        out: directory for checkpoints and metrics.jsonl; no other run may use it
        device: auto (the best one), cpu, cuda, cuda:1 or mps; with several workers, cuda is a GPU per worker
        quiet: do not print progress
        tell: called with each record of metrics.jsonl as it is written; with several workers, only on the first
    """
    out = Path(out)
    _require_run(run)
    with _join_workers(device) as team, _stop_signals() as received, _deterministic_kernels(), _hold_lock(out, team):
        _require_memory(run, team)
        _claim_directory(run, out, team)
        with Progress("reading the text", shown=team.first and not quiet):
            train, valid = _texts(run)
        choice = _choose_run_precision(run, out, team, quiet)
        model = _new_model(run).to(team.device).on(Row(Dense(run.recompute)))
        step, state = _start(run, out, model, train, choice, team)
        _compile(model, run.compile)
        loader = Loader(train, run.batch, run.seed, team.rank, team.world, run.micro_batches)
        batches = prefetch(loader.batches(state.step * run.batch))
        with closing(_Log(run, out, state, team, quiet, tell)) as log:
            while state.step < run.steps:
                with log.clock(state):
                    micro = [batch.to(team.device) for batch in islice(batches, run.micro_batches)]
                    norm = _optimizer_step(run, state, step, micro, team)
                last, leave = state.step == run.steps, team.any(bool(received))
                if state.step % run.log_every == 0 or last:
                    log.progress(state, norm)
                if state.step % run.eval_every == 0 or last:
                    is_best = log.write_evaluation(_validate(run, state, step, valid, team))
                    if run.keep_best and not last and team.agree(int(is_best)):
                        _save_best(run, state, out, team)
                if state.step % run.save_every == 0 or last or leave:
                    log.sync()
                    _save_state(run, state, out, team)
                if leave and not last:
                    raise KeyboardInterrupt if signal.SIGINT in received else SystemExit(128 + signal.SIGTERM)
        return build_model(run, load_newest(out, only=["model"]).tensors["model"], "cpu" if run.shard else team.device)


def _require_run(run: Run) -> None:
    """Raises unless it is a run, not the function that makes one, and its sinks are installed."""
    if not isinstance(run, Run):
        example = f"presets.{getattr(run, '__name__', run)}()"
        raise ValueError(
            f"run={run!r:.60} is a {type(run).__name__}, not a Run; give the run itself, such as {example}"
        )
    require_sinks(run)


def _new_model(run: Run) -> DiffusionLM:
    """Builds the model with weights initialized from the seed, or copied from `run.base`.

    If the codec is frozen, only its weights are copied: a different denoiser may work on the same latents.
    """
    torch.manual_seed(run.seed)
    model = DiffusionLM(run.model, run.tokenizer)
    if run.base is not None:
        latent = model.codec is not None and model.codec.frozen
        init_from(model, run.base, model.codec if latent else None)
    return model


def _texts(run: Run) -> tuple[FramedRows, HeldOut]:
    """Loads the training rows and the held-out rows; raises if the tokenizer cannot spell the text."""
    require_spelling(run.tokenizer, run.data)
    train = load_rows(run.data, "train", run.tokenizer, run.framing)
    return train, HeldOut.of(run.data, "valid", run.tokenizer, run.framing, run.eval_rows)


def _start(
    run: Run, out: Path, model: DiffusionLM, train: FramedRows, choice: Precision, team: _Workers
) -> tuple[nn.Module, _TrainState]:
    """Wraps the model for the workers and makes the training state, or restores it from the newest checkpoint."""
    saved = reader.read_newest(out)
    if run.base is None and saved is None and model.codec is not None:
        model.codec.fit_statistics(partial(first_batches, train))
    step = team.wrap(TrainStep(model, run.objective), run.shard)
    state = _TrainState(model, _copies(model), build_optimizers(model, run.optimizer, choice.dtype), choice)
    if saved is not None:
        state.restore(saved)
    return step, state


def _compile(model: DiffusionLM, enabled: bool) -> None:
    for block in model.network.blocks if enabled else ():
        block.compile()


def _optimizer_step(run: Run, state: _TrainState, step: nn.Module, batches: list[Batch], team: _Workers) -> float:
    """Takes one step of the optimizers and updates the averaged weights; returns the gradient norm before clipping."""
    nats, tokens = _backward(run, state, step, batches, team)
    norm = _clip_gradients(state.model.parameters(), run.optimizer.clip)
    if not math.isfinite(nats) or not math.isfinite(norm):
        raise TrainingError(
            f"step {state.step + 1} has a loss of {nats} nats and a gradient norm of {norm}; the step was not taken "
            "and nothing was saved. Start a new run in another directory with a lower learning rate or a longer warm-up"
        )
    _set_learning_rates(state.optimizers, _learning_rate_fraction(run.optimizer, state.step, run.steps))
    for optimizer in state.optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    state.step, state.nats, state.tokens = state.step + 1, state.nats + nats, state.tokens + tokens
    decay = min(run.optimizer.ema, (1 + state.step) / (10 + state.step))  # forget the initial weights quickly
    with torch.no_grad():
        fresh = [p.detach() for p in state.model.parameters()]
        get_ema_multi_avg_fn(decay)(list(state.ema.values()), fresh, state.step)
    return norm


def _backward(run: Run, state: _TrainState, step: nn.Module, batches: list[Batch], team: _Workers) -> tuple[float, int]:
    """Accumulates the gradient of the nats per token over all micro-batches and workers; returns (nats, tokens)."""
    state.model.train()
    _seed_dropout(int(randomness.rng(run.seed).fold(state.step).fold(team.rank).key), team.device)
    tokens = team.sum(torch.stack([b.learn.sum() for b in batches]).sum())
    nats = torch.zeros((), device=team.device)
    for batch in batches:
        assert batch.origin.sample is not None
        with _accumulate_gradients(step, last=batch is batches[-1]):
            with state.precision.autocast(team.device):
                loss = step(
                    batch, randomness.rng(run.seed, batch.origin.sample), tokens / team.world
                )  # DDP averages over workers
            loss.mean.backward()
        nats = nats + loss.nats.sum()
    return float(team.sum(nats)), int(tokens)


def _clip_gradients(parameters: Iterable[nn.Parameter], most: float) -> float:
    """Clips the gradients to the norm `most`; returns their norm before clipping."""
    trained = [p for p in parameters if p.grad is not None]
    norm = nn.utils.get_total_norm([p.grad for p in trained if p.grad is not None])
    norm_before = float(_gather_rows(norm))
    if not norm_before <= most:
        nn.utils.clip_grads_with_norm_(trained, most, norm)
    return norm_before


def _seed_dropout(seed: int, device: torch.device) -> None:
    """Seeds the generator that dropout uses.

    On a CPU, `torch.manual_seed` also records the seed and a stack trace for absent GPUs, which takes 1/40 of a step.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def _validate(run: Run, state: _TrainState, step: nn.Module, valid: HeldOut, team: _Workers) -> dict[str, Any]:
    """Measures held-out bits and samples texts with the averaged weights; every worker does the same work."""
    eager = torch.compiler.set_stance("force_eager")  # samplers would trigger a compilation for every new shape
    with _averaged(state), _unsharded(step), state.precision.autocast(team.device), eager:
        if isinstance(run.objective, CodecObjective):  # the denoiser is still untrained
            return {"step": state.step, "valid_reconstruction": reconstruction_accuracy(state.model, valid.batches)}
        result = likelihood(state.model, valid.batches, draws=2, seed=run.seed)
        record: dict[str, Any] = {
            "step": state.step,
            "valid_bound_bits_per_token": result.bits_per_token,
            "valid_bits_per_char": result.bits_per_char,
        }
        if valid.truth is not None:
            excess, error = excess_bits(result, valid.truth.log_probs)
            record |= {"valid_excess_bits_per_char": excess, "valid_excess_stderr": error}
            record["entropy_bits_per_char"] = valid.truth.entropy_per_char / NATS_PER_BIT
        if run.samples:
            canvas = blank_canvases(state.model, run.framing, run.samples, valid.batches[0])
            record["samples"] = _sample_texts(state.model, run.sampler, canvas, seed=run.seed)
        return record


def _require_memory(run: Run, team: _Workers) -> None:
    """Raises before anything is built if the run cannot fit into the free memory."""
    need, free = minimum_memory(run, team.world), free_memory(team.device)
    if free is None or sum(need.values()) <= free:
        return
    largest = max(need, key=lambda part: need[part])
    advice = {"model": "a smaller network", "batch": "a smaller batch, more micro-batches (micro) or a shorter length"}
    raise ValueError(
        f"training needs at least {sum(need.values()) / 1e9:,.1f} GB of memory, but only {free / 1e9:,.1f} GB are "
        f"free; most of it is for {largest}: choose {advice.get(largest, f'a smaller {largest}')}"
    )


def _documents(run: Run, state: _TrainState) -> dict[str, serialization.JSON]:
    """Returns the JSON files of a checkpoint."""
    numbers = {"step": state.step, "nats": state.nats, "tokens": state.tokens}
    return {"config": serialization.to_json(run), "state": numbers}


def _save_best(run: Run, state: _TrainState, out: Path, team: _Workers) -> None:
    """Saves the averaged weights, which held-out text was measured with, in place of an earlier best checkpoint."""
    tensors, documents = {"model": state.tensors()["model"]}, _documents(run, state)
    if run.shard:
        writer.save_checkpoint(out / metrics.BEST, state.step, tensors, documents, 1, team)
    elif team.first:
        writer.save_checkpoint(out / metrics.BEST, state.step, tensors, documents, 1)
    team.wait()


def _save_state(run: Run, state: _TrainState, out: Path, team: _Workers) -> None:
    """Saves a checkpoint, written by the first worker.

    In a sharded run every worker writes its own shard; any number of workers can read the result.
    """
    documents, tensors = _documents(run, state), state.tensors()
    if team.any((wrong := reader.first_nonfinite(tensors["raw"])) is not None):
        raise TrainingError(
            f"after step {state.step} {wrong or 'a weight of another worker'} has values that are nan or infinite; "
            "this step was not saved, but earlier checkpoints are intact. Start a new run in another directory with a "
            "lower learning rate"
        )
    if run.shard:
        writer.save_checkpoint(out, state.step, tensors, documents, run.keep_checkpoints, team)
    elif team.first:
        writer.save_checkpoint(out, state.step, tensors, documents, run.keep_checkpoints)
    team.wait()
