"""`redraft show`: the list of presets, or a description of a preset, a run or a model, with learning curves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from inspect import getdoc, signature
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redraft.apps.cli.model_flags import ModelFlags
from redraft.apps.cli.output import emit, print_note
from redraft.apps.cli.plot import plot
from redraft.tasks.arguments.setting import Checked, setting

if TYPE_CHECKING:
    from redraft.models.config import DiffusionLMConfig
    from redraft.training.runs.run import Run

_Metrics = list[dict[str, Any]]


@dataclass(frozen=True)
class Show(Checked):
    """List the presets, or describe a preset, a run or a model: settings, figures and learning curves."""

    what: str | None = setting(
        None,
        "A preset, a function in your own file, the directory of a run, a checkpoint or an exported model, or a "
        "model that ships with Redraft (story, smol).",
        metavar="[PRESET|FILE.py:FN|DIR]",
        positional=True,
    )
    json: bool = setting(
        False, "Print a JSON object per preset, or one for the run or model described.", group="Output"
    )
    model_flags: ModelFlags = ModelFlags()

    def _require_agreement(self) -> None:
        if self.what == "":
            raise ValueError("the argument is empty; give a preset, file.py:function, a directory, or no argument")

    def __call__(self) -> None:
        from redraft.models.shipped import shipped_folder

        if self.what is None:
            self._list_presets()
        elif folder := shipped_folder(self.what):
            self._show_directory(folder)
        elif Path(self.what).is_dir() or ("/" in self.what and ":" not in self.what):
            self._show_directory(Path(self.what))
        else:
            self._show_preset(self.what)

    def _list_presets(self) -> None:
        """Print the presets, grouped by purpose."""
        from redraft.training.presets.index import PRESETS, PURPOSES

        width = max(map(len, PRESETS))
        for purpose, functions in PURPOSES.items():
            heading = f"{purpose}\n" if functions[0] is next(iter(PRESETS.values())) else f"\n{purpose}\n"
            for function in functions:
                run, complete = _preset(name := function.__name__)
                network, about = run.model.network, (getdoc(function) or "").partition("\n")[0]
                size = {"layers": network.layers, "width": network.width}
                count = _parameter_count(run.model) if complete else None  # else it depends on a missing tokenizer
                line = f"  {name:<{width}} {network.layers:>3} × {network.width:<5} {_millions(count):>7}  {about}"
                record = {"name": name, "purpose": purpose, **size, "parameters": count, "about": about}
                emit(record, self.json, heading + line)
                heading = ""

    def _show_preset(self, name: str) -> None:
        """Describe a preset, or the run of a function in the user's file."""
        from redraft.apps.cli.run_arguments import parse_run
        from redraft.models.checkpoints import serialization
        from redraft.training.presets.index import PRESETS
        from redraft.training.runs.memory import parameter_count

        run, complete = _preset(name) if name in PRESETS else (parse_run(name), True)
        if not complete:
            print_note(f"{name} reads its tokenizer from a file that is not here; it is shown with a byte tokenizer")
        count, digest = parameter_count(run.model), run.digest
        record = {"name": name, "run": digest, "parameters": count, "config": serialization.to_json(run)}
        emit(record, self.json, f"{_pretty(run)}\n{count:,} parameters, run {digest}")

    def _show_model(self, path: Path) -> None:
        """Describe a model without a run."""
        from redraft.apps.cli.models import open_model
        from redraft.models.checkpoints import serialization
        from redraft.training.runs.memory import parameter_count

        model = open_model(path, self.model_flags)
        config, count = model.lm.config, parameter_count(model.lm.config)
        record = {"path": str(path), "run": model.name, "parameters": count, "config": serialization.to_json(config)}
        emit(record, self.json, f"{path}: a model without a run\n{_pretty(config)}\n{count:,} parameters")

    def _show_directory(self, path: Path) -> None:
        """Describe a run or a model."""
        from redraft.models.checkpoints import serialization
        from redraft.training.runs import metrics
        from redraft.training.runs.memory import parameter_count

        run, step = _read_run(path, self.model_flags.trust)
        if run is None:
            self._show_model(path)
            return
        records = _read_metrics(path)
        record = {
            "path": str(path),
            "run": run.digest,
            "step": step,
            "steps": run.steps,
            "parameters": parameter_count(run.model),
            "last": metrics.latest_values(records),
            "config": serialization.to_json(run),
        }
        emit(record, self.json, "\n".join([*_description(record, run), *_curves(records)]))


def _parameter_count(model: DiffusionLMConfig) -> int | None:
    """Return the number of parameters; None if the tokenizer.json in the working directory does not fit the preset."""
    from redraft.training.runs.memory import parameter_count

    try:
        return parameter_count(model)
    except ValueError:
        return None


def _millions(count: int | None) -> str:
    return "" if count is None else f"{count / 1e6:.3g} M"


def _preset(name: str) -> tuple[Run, bool]:
    """Return the run of a preset, and whether it is complete.

    It is incomplete if its tokenizer is a file that does not exist here; a byte tokenizer then takes its place.
    """
    from redraft.core.text.tokenizers import ByteTokenizer
    from redraft.training.presets.index import PRESETS

    parameter = signature(PRESETS[name]).parameters.get("tokenizer")
    complete = parameter is None or Path(parameter.default).exists()
    return (PRESETS[name]() if complete else PRESETS[name](tokenizer=ByteTokenizer())), complete


def _pretty(value: object) -> str:
    """Format a nested dataclass as Python code, with long lists and strings shortened."""
    from rich.console import Console
    from rich.pretty import Pretty

    console = Console(width=120)
    with console.capture() as capture:
        console.print(Pretty(value, max_length=6, max_string=60), soft_wrap=True)
    return capture.get().rstrip()


def _read_run(path: Path, trust: Path | None) -> tuple[Run | None, int | None]:
    """Return the run of a directory and the step of its newest checkpoint; None for the run if it is only a model."""
    from redraft.apps.cli.models import load_trusted, refuse_preset
    from redraft.models.checkpoints import reader, serialization
    from redraft.models.checkpoints.reader import CheckpointError
    from redraft.training.runs.loading import describe_run
    from redraft.training.runs.run import Run

    refuse_preset(path)
    modules = load_trusted(trust)
    if (path / "config.json").exists() or reader.checkpoints(path):
        return describe_run(path, modules)
    if (path / "run.json").exists():  # a training that has not saved a checkpoint yet
        run = serialization.from_json(reader.read_run_file(path / "run.json").get("run"), modules)
        if not isinstance(run, Run):
            raise CheckpointError(f"{path / 'run.json'} describes a {type(run).__name__}; it must describe a Run")
        return run, 0
    reason = "it has neither run.json nor config.json" if path.is_dir() else "it is not a directory"
    raise CheckpointError(f"{path} is neither a run nor a model: {reason}; train one with `redraft train`")


def _read_metrics(path: Path) -> _Metrics:
    """Read the log of a run, or of the run that a checkpoint belongs to."""
    from redraft.training.runs import metrics

    return metrics.read_metrics(path.parent if path.name.startswith("step-") else path)


def _description(record: dict[str, Any], run: Run) -> Iterator[str]:
    """Yield the lines that describe a run and its last figures."""
    from redraft.training.runs import metrics

    network, last = run.model.network, record["last"]
    shape = f"{network.layers} × {network.width}, {network.pattern}, {record['parameters']:,} parameters"
    yield f"{record['path']}: run {record['run']}, step {record['step']} of {run.steps}"
    yield f"  model      {type(run.model.process).__name__}; {shape}"
    yield f"  tokenizer  {type(run.tokenizer).__name__} with {run.tokenizer.vocab.size} ids"
    yield f"  data       {_pretty(run.data)}; {run.framing}"
    yield f"  sampler    {run.sampler.describe()}"
    if "train_loss_bits_per_token" in last:
        speed = f"{last.get('tokens_per_second', nan):,.0f} tokens/s"
        yield f"  training   loss of {last['train_loss_bits_per_token']:.4f} bits per token, {speed}"
    if "valid_bits_per_char" in last or "valid_reconstruction" in last:
        yield f"  held out   {metrics.format_heldout(last)}"


def _curves(records: _Metrics) -> Iterator[str]:
    """Yield plots of the training loss and the held-out bits; above the true entropy if that is known."""
    entropy_unknown = not any("valid_excess_bits_per_char" in line for line in records)
    for key, title, level, shown in (
        ("train_loss_bits_per_token", "training loss, bits per token", None, True),
        ("valid_bits_per_char", "held out, bits per character", None, entropy_unknown),
        ("valid_excess_bits_per_char", "held out, bits per character above the true entropy (dotted)", 0.0, True),
    ):
        curve = [(line["step"], line[key]) for line in records if key in line and isfinite(line[key])]
        if shown and len(curve) > 1:
            yield f"\n  {title}"
            yield from plot(curve, level)
