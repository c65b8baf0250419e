"""Trained models and how to write with them, from words of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from redraft import checkpoint, config
from redraft.checkpoint import CheckpointError
from redraft.distributed import best_device
from redraft.model import DiffusionLM
from redraft.ops import Rng
from redraft.presets import PRESETS
from redraft.processes.base import Process
from redraft.run import Run, load
from redraft.samplers.ancestral import Ancestral, FirstHitting
from redraft.samplers.base import Sampler
from redraft.samplers.blocks import Blocks
from redraft.samplers.unmask import AnyOrder, Confidence, Entropy, Margin, Unmask
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
        return config.digest(self.model.config if self.run is None else self.run)

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
    where = holder(path)
    model = load(where, best_device(), modules)
    return Opened(path, model, described(where, modules), step_of(where))


def trusted(file: Path | None) -> tuple[str, ...]:
    """The module of a user's file, whose classes a checkpoint may then name."""
    return () if file is None else (config.load_module(file).__name__,)


def holder(path: Path) -> Path:
    """The directory that holds the weights: of a run its newest sound checkpoint."""
    if not path.is_dir() and str(path) in PRESETS:
        raise CheckpointError(f"{path} is a preset, not a trained model; train it first: redraft train {path}")
    if not path.is_dir() or (path / "config.json").exists():
        return path
    return checkpoint.latest(path) or path


def described(where: Path, trust: tuple[str, ...]) -> Run | None:
    """The run that left the weights in a directory; None if it was none of ours."""
    data = document(where / "config.json")
    found = config.from_json(data, trust) if "class" in data else None
    return found if isinstance(found, Run) else None


def step_of(where: Path) -> int | None:
    """After how many steps a checkpoint was written; None for an exported model."""
    file = where / "state.json"
    if not file.exists():
        return None
    if type(step := document(file).get("step")) is not int:
        raise CheckpointError(f"{file} is damaged (it has no step); restore it, or choose another directory")
    return step


def document(file: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        found = config.read_json(file)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} is damaged ({error}); restore it, or choose another directory") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{file} is damaged (no JSON object); restore it, or choose another directory")
    return found


def choose_sampler(it: Opened, kind: str, steps: int | None, temperature: float | None) -> Sampler:
    """The run's own sampler or one by name; networks that write blocks do so with any."""
    sampler = it.sampler if kind == "own" else _SAMPLERS[kind]
    if kind != "own" and it.model.block is not None:
        sampler = Blocks(sampler, stop=it.model.config.vocab.eos)
    if steps is not None:
        sampler = _set(sampler, "steps", steps)
    return sampler if temperature is None else _set(sampler, "temperature", temperature)


@dataclass(frozen=True)
class Beginning:
    """A sampler that writes whole rows, of which the first `size` tokens are wanted: the rest becomes padding."""

    sampler: Sampler
    size: int

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        rest = torch.arange(canvas.z.shape[1], device=canvas.z.device).expand_as(canvas.z) >= self.size
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
