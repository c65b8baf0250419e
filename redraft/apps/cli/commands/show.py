"""`redraft show`: the presets, one of them, or what a directory holds, with its curves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from inspect import getdoc, signature
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import OmitArgPrefixes, Positional

from redraft.apps.cli.arguments import Flag
from redraft.apps.cli.model_flags import ModelFlags
from redraft.apps.cli.output import emit, print_note
from redraft.apps.cli.plot import plot
from redraft.tasks.arguments.settings import optional_argument

if TYPE_CHECKING:
    from redraft.models.config import DiffusionLMConfig
    from redraft.training.runs.run import Run

Metrics = list[dict[str, Any]]


@dataclass(frozen=True)
class Show:
    """List the presets, or describe a preset or a run: its settings, figures and curves."""

    what: Annotated[Positional[str | None], optional_argument("[PRESET|FILE.py:FN|DIR]")] = None
    """A preset, a function in your own file, or the directory of a run, a checkpoint or an exported model."""
    json: Flag = False
    """Print one JSON object per preset, or one for the thing described."""
    opening: OmitArgPrefixes[ModelFlags] = ModelFlags()

    def __post_init__(self) -> None:
        if self.what == "":
            raise ValueError("'' names nothing; give a preset, file.py:function, a directory, or no argument")

    def __call__(self) -> None:
        if self.what is None:
            self._presets()
        elif Path(self.what).is_dir() or ("/" in self.what and ":" not in self.what):
            self._directory(Path(self.what))
        else:
            self._recipe(self.what)

    def _presets(self) -> None:
        """By purpose, each under its heading."""
        from redraft.training.presets.index import PRESETS, PURPOSES

        width = max(map(len, PRESETS))
        for purpose, functions in PURPOSES.items():
            heading = f"{purpose}\n" if functions[0] is next(iter(PRESETS.values())) else f"\n{purpose}\n"
            for function in functions:
                run, complete = _preset(name := function.__name__)
                network, about = run.model.network, (getdoc(function) or "").partition("\n")[0]
                size = {"layers": network.layers, "width": network.width}
                count = _count(run.model) if complete else None  # of the others the tokenizer decides
                line = f"  {name:<{width}} {network.layers:>3} × {network.width:<5} {_short(count):>7}  {about}"
                record = {"name": name, "purpose": purpose, **size, "parameters": count, "about": about}
                emit(record, self.json, heading + line)
                heading = ""

    def _recipe(self, name: str) -> None:
        from redraft.apps.cli.run_arguments import parse_run
        from redraft.models.checkpoints import serialization
        from redraft.training.presets.index import PRESETS
        from redraft.training.runs.memory import parameter_count

        run, complete = _preset(name) if name in PRESETS else (parse_run(name)[0], True)
        if not complete:
            print_note(f"{name} reads its tokenizer from a file; it is shown with one of bytes")
        count, digest = parameter_count(run.model), run.digest
        record = {"name": name, "run": digest, "parameters": count, "config": serialization.to_json(run)}
        emit(record, self.json, f"{_pretty(run)}\n{count:,} parameters, run {digest}")

    def _model(self, path: Path) -> None:
        """One that no run of ours made."""
        from redraft.apps.cli.models import open_model
        from redraft.models.checkpoints import serialization
        from redraft.training.runs.memory import parameter_count

        it = open_model(path, self.opening)
        count, model = parameter_count(it.lm.config), it.lm.config
        record = {"path": str(path), "run": it.name, "parameters": count, "config": serialization.to_json(model)}
        emit(record, self.json, f"{path}: a model without its run\n{_pretty(model)}\n{count:,} parameters")

    def _directory(self, path: Path) -> None:
        from redraft.models.checkpoints import serialization
        from redraft.training.runs import metrics
        from redraft.training.runs.memory import parameter_count

        run, step = _found(path, self.opening.trust)
        if run is None:
            self._model(path)
            return
        records = _metrics(path)
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


def _count(model: DiffusionLMConfig) -> int | None:
    """Parameters of a preset; None if the tokenizer.json that lies here does not fit it."""
    from redraft.training.runs.memory import parameter_count

    try:
        return parameter_count(model)
    except ValueError:
        return None


def _short(count: int | None) -> str:
    return "" if count is None else f"{count / 1e6:.3g} M"


def _preset(name: str) -> tuple[Run, bool]:
    """A preset, and whether that is all of it: where its tokenizer is a file that is not here, bytes stand for it."""
    from redraft.core.text.tokenizers import ByteTokenizer
    from redraft.training.presets.index import PRESETS

    own = signature(PRESETS[name]).parameters.get("tokenizer")
    complete = own is None or Path(own.default).exists()
    return (PRESETS[name]() if complete else PRESETS[name](tokenizer=ByteTokenizer())), complete


def _pretty(value: object) -> str:
    """A nested dataclass as Python would write it, long lists and texts cut short."""
    from rich.console import Console
    from rich.pretty import Pretty

    console = Console(width=120)
    with console.capture() as capture:
        console.print(Pretty(value, max_length=6, max_string=60), soft_wrap=True)
    return capture.get().rstrip()


def _found(path: Path, trust: Path | None) -> tuple[Run | None, int | None]:
    """The run that left a directory behind, if it was one of ours, and the step of its newest checkpoint."""
    from redraft.apps.cli.models import load_trusted, refuse_preset
    from redraft.models.checkpoints import reader, serialization
    from redraft.models.checkpoints.reader import CheckpointError
    from redraft.training.runs.loading import describe_run
    from redraft.training.runs.run import Run

    refuse_preset(path)
    modules = load_trusted(trust)
    if (path / "config.json").exists() or reader.checkpoints(path):
        return describe_run(path, modules)
    if (path / "run.json").exists():  # claimed, but nothing is saved yet
        run = serialization.from_json(reader.read_run_file(path / "run.json").get("run"), modules)
        if not isinstance(run, Run):
            raise CheckpointError(f"{path / 'run.json'} describes a {type(run).__name__}; it must describe a Run")
        return run, 0
    missing = "it has neither run.json and step-… directories nor config.json" if path.is_dir() else "no directory"
    raise CheckpointError(f"{path} is neither a run nor a model: {missing}; `redraft train` makes one")


def _metrics(path: Path) -> Metrics:
    """The log of a run; a checkpoint has that of its run."""
    from redraft.training.runs import metrics

    return metrics.read_metrics(path.parent if path.name.startswith("step-") else path)


def _description(record: dict[str, Any], run: Run) -> Iterator[str]:
    from redraft.training.runs import metrics

    network, last = run.model.network, record["last"]
    shape = f"{network.layers} × {network.width}, {network.pattern}, {record['parameters']:,} parameters"
    yield f"{record['path']}: run {record['run']}, step {record['step']} of {run.steps}"
    yield f"  model      {type(run.model.process).__name__}; {shape}"
    yield f"  tokenizer  {type(run.tokenizer).__name__} of {run.tokenizer.vocab.size} states"
    yield f"  data       {_pretty(run.data)}; {run.framing}"
    yield f"  sampler    {run.sampler}"
    if "train_loss_bits_per_token" in last:
        speed = f"{last.get('tokens_per_second', nan):,.0f} tokens/s"
        yield f"  training   loss of {last['train_loss_bits_per_token']:.4f} bits per token, {speed}"
    if "valid_bits_per_char" in last or "valid_reconstruction" in last:
        yield f"  held out   {metrics.format_heldout(last)}"


def _curves(records: Metrics) -> Iterator[str]:
    """Training and held-out loss over the steps; where the truth is known, what is still to be learnt."""
    plain = not any("valid_excess_bits_per_char" in line for line in records)
    for key, title, level, wanted in (
        ("train_loss_bits_per_token", "training loss, bits per token", None, True),
        ("valid_bits_per_char", "held out, bits per character", None, plain),
        ("valid_excess_bits_per_char", "held out, bits per character above the truth (dotted)", 0.0, True),
    ):
        curve = [(line["step"], line[key]) for line in records if key in line and isfinite(line[key])]
        if wanted and len(curve) > 1:
            yield f"\n  {title}"
            yield from plot(curve, level)
