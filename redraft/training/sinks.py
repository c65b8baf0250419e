"""Optional sinks for the numbers of metrics.jsonl: TensorBoard, Weights & Biases, trackio."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from redraft.models.checkpoints import serialization
from redraft.training.runs.run import Run

_MODULES = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb", "trackio": "trackio"}  # flag of a run → module


class _Sink(Protocol):
    """Takes the numbers of each record; opened by the first worker only."""

    def add(self, step: int, numbers: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class _TensorBoard:
    """Event files in the directory of the run; a resumed run overwrites what came after its step."""

    def __init__(self, module: Any, out: Path, step: int) -> None:
        self._writer = module.SummaryWriter(str(out / "tensorboard"), purge_step=step + 1)

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _Tracker:
    """Weights & Biases, or trackio, which has the same interface. A resumed run is a new one of the same group."""

    def __init__(self, module: Any, run: Run, out: Path, **options: str) -> None:
        config = serialization.to_json(run)
        self._run = module.init(project="redraft", name=out.name, group=run.digest, config=config, **options)

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        self._run.finish()


def require_sinks(run: Run) -> None:
    """Raise if the package of a sink is missing, before anything is built or written."""
    for name in _wanted(run):
        try:
            import_module(_MODULES[name])
        except ImportError:
            raise ValueError(f"{name}=True needs {name}: pip install 'redraft[{name}]'") from None


def open_sinks(run: Run, out: Path, step: int) -> list[_Sink]:
    """Open the sinks of a run that continues after `step`."""
    modules = {name: import_module(_MODULES[name]) for name in _wanted(run)}
    sinks: list[_Sink] = []
    if "tensorboard" in modules:
        sinks.append(_TensorBoard(modules["tensorboard"], out, step))
    if "wandb" in modules:
        sinks.append(_Tracker(modules["wandb"], run, out, dir=str(out)))
    if "trackio" in modules:
        sinks.append(_Tracker(modules["trackio"], run, out))
    return sinks


def _wanted(run: Run) -> list[str]:
    return [name for name in _MODULES if getattr(run, name)]
