"""Trained models, from words of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from redraft.apps.cli import user_code
from redraft.apps.cli.model_flags import ModelFlags
from redraft.apps.cli.output import print_note
from redraft.apps.cli.progress import Progress
from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.randomness import Rng
from redraft.decoding.samplers.base import Sampler
from redraft.evaluation.judges import Judge, ModelJudge, TransformersJudge
from redraft.models.checkpoints.reader import CheckpointError
from redraft.models.cpu_weights import with_weight_format
from redraft.tasks.engine.model import TextModel, open_model as open_text_model
from redraft.training.presets.index import PRESETS


def open_model(path: str | Path, opening: ModelFlags = ModelFlags(), *, codec: bool = False) -> TextModel:
    """What a directory holds: a run, one of its checkpoints, an exported model, a model of another project.

    codec: whether a codec alone will do
    """
    modules = load_trusted(opening.trust)
    refuse_preset(Path(path))
    it = open_text_model(path, modules, mask=opening.mask, attention=opening.attention, codec=codec)
    for line in it.lm.assumed:
        print_note(f"{path}: assumed {line}")
    return it if opening.weights == "own" else replace(it, lm=with_weight_format(it.lm, opening.weights))


def open_judge(name: str, opening: ModelFlags = ModelFlags()) -> Judge:
    """A causal model that judges texts: one of ours or a checkpoint that we read; hf:NAME: by transformers."""
    if name.startswith("hf:"):
        return TransformersJudge(name.removeprefix("hf:"))
    with Progress(f"opening {name}"):
        model = open_model(name, opening).lm
    try:
        return ModelJudge(model)
    except ValueError as error:
        raise ValueError(f"--judge {name}: {error}") from None


def load_trusted(file: Path | None) -> tuple[str, ...]:
    """The module of a user's file, whose classes a checkpoint may then name."""
    if file is None:
        return ()
    with Progress(f"importing {file}"):
        return (user_code.load_module(file).__name__,)


def refuse_preset(path: Path) -> None:
    """An error for the name of a preset where a trained model is needed."""
    if not path.is_dir() and str(path) in PRESETS:
        raise CheckpointError(f"{path} is a preset, not a trained model; train it first: redraft train {path}")


@dataclass(frozen=True)
class ProgressSampler:
    """A sampler whose canvases are counted, so that one can tell how far it is."""

    sampler: Sampler
    progress: Progress

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        return self.progress.counting(self.sampler(denoise, process, canvas, rng=rng))
