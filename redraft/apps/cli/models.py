"""Loading of the models and judges that a command line names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from redraft.apps.cli import user_code
from redraft.apps.cli.model_flags import ModelFlags
from redraft.apps.cli.output import print_note
from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.randomness import Rng
from redraft.decoding.samplers.base import Sampler, SamplerWrapper
from redraft.evaluation.judges import Judge, ModelJudge, TransformersJudge
from redraft.models.checkpoints.reader import CheckpointError
from redraft.models.shipped import INSTALL_SMOL, SMOL, STORY, has_smol
from redraft.tasks.arguments.templates import HOLE
from redraft.tasks.engine.model import TextModel, open_model as open_text_model
from redraft.training.presets.index import PRESETS
from redraft.training.progress import Progress
from redraft.training.runs import metrics
from redraft.training.runs.loading import preferred_checkpoint


def open_model(path: str | Path, model_flags: ModelFlags = ModelFlags(), *, codec: bool = False) -> TextModel:
    """Load a run, one of its checkpoints, an exported model, or a model of another project.

    Args:
        path: its directory
        model_flags: the flags for loading it
        codec: accept a codec without a denoiser
    """
    modules = load_trusted(model_flags.trust)
    refuse_preset(Path(path))
    model = open_text_model(
        path,
        modules,
        device=model_flags.device,
        mask=model_flags.mask,
        attention=model_flags.attention,
        weights=None if model_flags.weights == "own" else model_flags.weights,
        codec=codec,
    )
    if (kept := preferred_checkpoint(Path(path))) != Path(path):
        rise = metrics.overfitting(metrics.read_metrics(Path(path)))
        print_note(f"{path}: {metrics.format_overfitting(*rise) if rise else ''}; using the best checkpoint, {kept}")
    for line in model.lm.assumed:
        print_note(f"{path}: assumed {line}")
    return model


def open_for(name: str | None, texts: Sequence[str], model_flags: ModelFlags = ModelFlags()) -> TextModel:
    """Load the named model; without a name, STORY if it knows all words of the texts, else SMOL, which knows English.

    The markers of holes do not count as words.
    """
    if name is not None:
        return open_model(name, model_flags)
    small = open_model(STORY, model_flags)
    unknown = _unknown(small, " ".join(HOLE.sub(" ", text) for text in texts))
    if unknown is not None and not has_smol():
        raise ValueError(f"{STORY}, the model that comes with Redraft: {unknown}; for English: {INSTALL_SMOL}")
    if has_smol():
        about = "it knows English" if unknown else "it knows these words" if "".join(texts) else "it needs no prompt"
        print_note(f"model: {SMOL if unknown else STORY} ({about}); name another one to use it")
    return open_model(SMOL, model_flags) if unknown else small


def _unknown(model: TextModel, text: str) -> str | None:
    """The message about words that a model does not know; None if it knows all."""
    try:
        model.token_count(text)
    except ValueError as error:
        return str(error)
    return None


def open_judge(name: str, model_flags: ModelFlags = ModelFlags()) -> Judge:
    """Load a causal model as judge; hf:NAME is loaded by the transformers library."""
    if name.startswith("hf:"):
        return TransformersJudge(name.removeprefix("hf:"))
    with Progress(f"loading {name}"):
        lm = open_model(name, model_flags).lm
    try:
        return ModelJudge(lm)
    except ValueError as error:
        raise ValueError(f"--judge {name}: {error}") from None


def load_trusted(file: Path | None) -> tuple[str, ...]:
    """Import the file of --trust; a checkpoint may then use its classes. Returns the names of the trusted modules."""
    if file is None:
        return ()
    with Progress(f"importing {file}"):
        return (user_code.load_module(file).__name__,)


def refuse_preset(path: Path) -> None:
    """Raise if the path is the name of a preset and not a directory."""
    if not path.is_dir() and str(path) in PRESETS:
        raise CheckpointError(f"{path} is a preset, not a trained model; train it first: redraft train {path}")


@dataclass(frozen=True)
class ProgressSampler(SamplerWrapper):
    """Counts the canvases that a sampler yields, to show its progress."""

    sampler: Sampler
    progress: Progress

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        return self.progress.count_steps(self.sampler(denoise, process, canvas, rng=rng))
