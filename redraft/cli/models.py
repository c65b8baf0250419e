"""Trained models and how to write with them, from words of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from redraft.cli import usercode
from redraft.cli.limits import MOST_STEPS
from redraft.cli.output import note
from redraft.cli.progress import Progress
from redraft.machine import free_memory
from redraft.model import DiffusionLM
from redraft.objectives import Autoencode
from redraft.ops import Rng
from redraft.presets import PRESETS
from redraft.processes import Masked, Process
from redraft.runs import CheckpointError, Run, config, load_with_run
from redraft.samplers import (
    Ancestral,
    AnyOrder,
    Blocks,
    Confidence,
    Entropy,
    FirstHitting,
    Margin,
    Sampler,
    Strides,
    Unmask,
)
from redraft.train import best_device
from redraft.types import Canvas, Denoiser

_SAMPLERS: dict[str, Sampler] = {
    "ancestral": Ancestral(),
    "first-hitting": FirstHitting(),
    "any-order": Unmask(pick=AnyOrder()),
    "confidence": Unmask(pick=Confidence()),
    "margin": Unmask(pick=Margin()),
    "entropy": Unmask(pick=Entropy()),
}


@dataclass(frozen=True)
class Opened:
    """A model that can write, and the run that made it, if it was one of ours."""

    path: Path
    model: DiffusionLM
    run: Run | None
    step: int | None

    @property
    def name(self) -> str:
        """The digest that results are filed under."""
        return config.digest(self.model.config) if self.run is None else self.run.digest

    @property
    def sampler(self) -> Sampler:
        return Ancestral() if self.run is None else self.run.sampler

    @property
    def always(self) -> int | None:
        """How long every canvas was in training, if what stands after a text can tell the network about it."""
        if self.run is None or self.model.block is not None or self.run.framing.padded:
            return None
        return self.run.framing.length


def opened(path: Path, trust: Path | None = None) -> Opened:
    """What a directory holds: a run, one of its checkpoints, an exported model."""
    modules = trusted(trust)
    refuse_preset(path)
    found = load_with_run(path, best_device(), modules)
    if found.run is not None and isinstance(found.run.objective, Autoencode):
        raise CheckpointError(
            f"{path} is only a codec; train the diffusion of its latents: redraft train … --base {path}"
        )
    return Opened(path, found.model, found.run, found.step)


def trusted(file: Path | None) -> tuple[str, ...]:
    """The module of a user's file, whose classes a checkpoint may then name."""
    if file is None:
        return ()
    with Progress(f"importing {file}"):
        return (usercode.load_module(file).__name__,)


def refuse_preset(path: Path) -> None:
    """An error for the name of a preset where a trained model is needed."""
    if not path.is_dir() and str(path) in PRESETS:
        raise CheckpointError(f"{path} is a preset, not a trained model; train it first: redraft train {path}")


def document(file: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        found = config.read_json(file)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} is damaged ({error}); restore it, or choose another directory") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{file} is damaged (no JSON object); restore it, or choose another directory")
    return found


def choose_sampler(
    it: Opened, kind: str, steps: int | None, temperature: float | None, hidden: int | None = None
) -> Sampler:
    """The run's own sampler or one by name; networks that write blocks do so with any.

    More steps than can change anything are not taken, where it is known how many tokens a row has to get.
    """
    sampler = it.sampler if kind == "own" else _SAMPLERS[kind]
    if kind != "own" and it.model.block is not None:
        sampler = Blocks(sampler, stop=it.model.config.vocab.eos)
    if steps is not None:
        sampler = _set(sampler, "steps", steps if hidden is None else _useful(it, sampler, steps, hidden))
    return sampler if temperature is None else _set(sampler, "temperature", temperature)


def _useful(it: Opened, sampler: Sampler, steps: int, hidden: int) -> int:
    """As many of the steps as can change anything that one could notice; says so if that is fewer.

    `Unmask` writes one token at each step at least. On a grid of a thousand steps for each token of mask noise two
    tokens hardly ever fall into the same step, and that they do is all that is wrong with a grid.
    """
    most, parts = MOST_STEPS, list(_layers(sampler))
    if isinstance(it.model.process, Masked):
        sizes = [it.model.block, *(part.decode_block for part in parts if isinstance(part, Blocks))]
        at_once = min([hidden, *(size for size in sizes if size is not None)])
        alone = at_once == 1 and it.model.config.network.time is None  # one token, drawn from the same x̂ at any time
        by_turns = alone or any(isinstance(part, Unmask) for part in parts)
        most = at_once if by_turns else min(most, 1000 * at_once)
    if steps > most:
        note(f"--steps {steps}: more than {most:,} would change nothing here; using {most:,}")
    return min(steps, most)


def _layers(sampler: Any) -> Iterator[Any]:
    """A sampler, the one it is built around, and so on."""
    while sampler is not None:
        yield sampler
        sampler = getattr(sampler, "sampler", None)


def batch_size(it: Opened, sampler: Sampler, length: int, room: int = 0, most: int = 64) -> int:
    """How many rows of so many tokens are written together; refuses those that network or memory cannot hold.

    `room` is what insertion may write besides; a network of fewer positions makes it smaller.
    """
    model, known = it.model, it.model.config.network.positions
    whole = model.codec is None or model.codec.latents is None
    if known is not None:
        room = max(0, min(room, known - length))
    if known is not None and whole and length > known and not any(isinstance(s, Strides) for s in _layers(sampler)):
        raise ValueError(f"{length} tokens are too many: this network knows {known} positions; write fewer tokens")
    need, free = (length + room) * _bytes_per_token(model), _free(model)
    if free is None:
        return most
    if need > free:
        raise ValueError(
            f"a row of {length:,} tokens needs about {need / 1e9:,.1f} GB of memory, but only {free / 1e9:,.1f} GB "
            "are free; write fewer tokens"
        )
    return int(min(most, max(1, free // 2 // need)))


def _bytes_per_token(model: DiffusionLM) -> int:
    """What a sampler holds at once of a token: log-weights (thrice, and their sums in float64), states, cache."""
    network, vocab = model.config.network, model.config.vocab.size
    return 28 * vocab + (64 + 8 * network.layers) * network.width + 64


def _free(model: DiffusionLM) -> int | None:
    return free_memory(next(model.parameters()).device)


@dataclass(frozen=True)
class Counted:
    """A sampler whose canvases are counted, so that one can tell how far it is."""

    sampler: Sampler
    progress: Progress

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        return self.progress.counting(self.sampler(denoise, process, canvas, rng=rng))


@dataclass(frozen=True)
class Beginning:
    """A sampler that writes whole rows, of which the first `size` tokens are wanted: the rest becomes padding."""

    sampler: Sampler
    size: int

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        rest = torch.arange(canvas.z.shape[1], device=canvas.z.device).expand_as(canvas.fixed) >= self.size
        for written in self.sampler(denoise, process, canvas, rng=rng):
            yield replace(written, context=replace(written.context, pad=rest))


def _set(value: Any, name: str, to: float) -> Any:
    """A sampler with a field of what it is built around, or of its own, replaced."""
    names = {field.name for field in fields(value)}
    for inside in ("sampler", name, "pick"):
        if inside in names:
            return replace(value, **{inside: to if inside == name else _set(getattr(value, inside), name, to)})
    able = {"steps": "all samplers but first-hitting", "temperature": "the samplers confidence, margin and entropy"}
    raise ValueError(f"{value} has no {name}; {able[name]} have: --sampler chooses one")
