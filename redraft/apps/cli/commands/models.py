"""`redraft models`: the models that can be named here, where each comes from, and what it can do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from redraft.apps.cli.output import emit
from redraft.tasks.arguments.setting import Checked, setting

if TYPE_CHECKING:
    from redraft.tasks.engine.model import TextModel

_DEEPEST = 3  # levels of directories that are searched for trained models
_Origin = Literal["shipped", "cached", "trained"]


@dataclass(frozen=True)
class _ListedModel:
    """A line of the list."""

    name: str  # the name or path to give as MODEL
    origin: _Origin
    tasks: tuple[str, ...] = ()
    needs: str | None = None  # source or label, if it cannot write without one
    process: str | None = None
    parameters: int | None = None
    step: int | None = None
    note: str = ""  # why it cannot be used, or what else to know
    path: str = field(default="", kw_only=True)

    def line(self, width: int) -> str:
        size = "" if self.parameters is None else _short(self.parameters)
        need = f"  (needs --{self.needs})" if self.needs else ""
        note = f"  {self.note}" if self.note else ""
        return f"  {self.name:<{width}} {size:>6}  {self.process or '':<14} {' '.join(self.tasks)}{need}{note}".rstrip()


@dataclass(frozen=True)
class Models(Checked):
    """List the models you can name: shipped with Redraft, cached, and trained here; with what each can do."""

    folder: Path = setting(
        Path("runs"), "Directory to search for trained models.", metavar="[DIR]", positional=True, otherwise="runs"
    )
    json: bool = setting(False, "Print a JSON object per model.", group="Output")

    def _require_agreement(self) -> None:
        if self.folder != Path("runs") and not self.folder.is_dir():
            raise ValueError(f"{self.folder} is not a directory; give one that holds trained models")

    def __call__(self) -> None:
        models = [*_shipped(), *_cached(), *_trained(self.folder)]
        width = max(len(model.name) for model in models)
        heading = ""
        for model in models:
            title = {"shipped": "Shipped", "cached": "Cached", "trained": f"Trained, in {self.folder}"}[model.origin]
            lines = ([f"\n{title}" if heading else title] if title != heading else []) + [model.line(width)]
            heading = title
            emit(asdict(model), self.json, "\n".join(lines))
        if not self.json and models[-1].origin != "trained":
            print(f"\nNo trained models in {self.folder}; redraft train PRESET makes one, redraft show lists presets.")


def _shipped() -> Iterator[_ListedModel]:
    from redraft.models.shipped import INSTALL_SMOL, NAMES, SMOL, has_smol

    for name in NAMES:
        if name == SMOL and not has_smol():
            yield _ListedModel(name, "shipped", note=f"English; not installed: {INSTALL_SMOL}", path=name)
        else:
            yield _outlined(name, Path(name), "shipped")


def _cached() -> Iterator[_ListedModel]:
    """Downloads from the Hugging Face hub; Redraft's own cache holds only converted copies of shipped models."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    folder = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    for path in sorted(folder.glob("models--*/snapshots/*/config.json")):
        name = path.parents[2].name.removeprefix("models--").replace("--", "/")
        yield _ListedModel(f"hf:{name}", "cached", note="downloaded; opening it says what it is", path=str(path.parent))


def _trained(folder: Path) -> Iterator[_ListedModel]:
    for path in _model_folders(folder, _DEEPEST):
        yield _outlined(str(path), path, "trained")


def _model_folders(folder: Path, deepest: int) -> Iterator[Path]:
    """Yield the runs and models below a directory, by name."""
    try:
        entries = sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError:
        return
    for entry in entries:
        if (entry / "run.json").is_file() or (entry / "config.json").is_file():
            yield entry
        elif deepest > 1:
            yield from _model_folders(entry, deepest - 1)


def _outlined(name: str, path: Path, origin: _Origin) -> _ListedModel:
    """Describe a model without reading its weights; one that cannot be described gets the reason as its note."""
    from redraft.models.checkpoints.reader import CheckpointError
    from redraft.tasks.abilities import abilities
    from redraft.tasks.engine.model import TextModel
    from redraft.training.runs.loading import outline_model

    try:
        loaded = outline_model(path)
    except (CheckpointError, ValueError, OSError) as error:
        return _ListedModel(name, origin, note=f"cannot be used: {' '.join(str(error).split())[:160]}", path=str(path))
    model, config = TextModel(loaded.model, loaded.run, loaded.step, path), loaded.model.config
    tasks = abilities(model)
    return _ListedModel(
        name,
        origin,
        tasks,
        needs=_condition(model),
        process="autoregressive" if loaded.model.block == 1 else type(config.process).__name__,
        parameters=sum(p.numel() for p in loaded.model.parameters()),
        step=loaded.step,
        note=_note(model, tasks),
        path=str(path),
    )


def _condition(model: TextModel) -> str | None:
    """The condition that the model cannot write without, source or label; None if it needs none."""
    if model.classes and not model.condition_optional:
        return "label"
    return "source" if model.needs_source and "attributes" not in model.lm.parts else None


def _note(model: TextModel, tasks: tuple[str, ...]) -> str:
    if not tasks:
        return "a codec: train a diffusion model on its latents with --base"
    if model.run is not None and model.step is not None and model.step < model.run.steps:
        return f"(step {model.step:,} of {model.run.steps:,})"
    return "(generate --chat)" if model.lm.tokenizer is not None and model.lm.tokenizer.template else ""


def _short(count: int) -> str:
    """507136 → 507 k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {letter}"
    return str(count)
