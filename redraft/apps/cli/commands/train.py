"""`redraft train`: training a preset or a run of the user's own, with a flag for every setting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from redraft.apps.cli.arguments import DATA
from redraft.apps.cli.model_flags import device_setting
from redraft.apps.cli.output import emit, generate_command, print_note
from redraft.tasks.arguments.setting import REQUIRED, Checked, setting
from redraft.training.progress import is_first_worker

if TYPE_CHECKING:
    from redraft.training.runs.run import Run

_RESULT = (
    "step", "valid_bits_per_char", "valid_excess_bits_per_char", "valid_excess_stderr", "entropy_bits_per_char",
    "valid_reconstruction",
)  # fmt: skip


@dataclass(frozen=True)
class Train(Checked):
    """Train a model, or continue an interrupted training.

    `redraft train PRESET --help` lists every setting of a preset, such as --steps 2000 or --optimizer.lr 1e-3.
    The presets are listed by `redraft show`. For several GPUs:
    torchrun --standalone --nproc-per-node 8 -m redraft.apps.cli train PRESET
    """

    recipe: str = setting(
        REQUIRED,
        "The name of a preset, or a function in your own file that returns a redraft.Run.",
        metavar="PRESET|FILE.py:FN",
        positional=True,
    )
    out: Path | None = setting(
        None, "Directory for checkpoints and metrics.jsonl.", otherwise="runs/PRESET", metavar="DIR", group="Output"
    )
    data: tuple[str, ...] = setting(
        (),
        "Text to train on: files that end in .txt, .jsonl (field text) or .parquet, or directories of them. "
        "Out of every 20 paragraphs, lines or records, one is held out for validation and one for testing.",
        otherwise="the preset's",
        metavar=DATA,
    )
    tokenizer: str | None = setting(
        None,
        "Kind of tokenizer to train on the text, or a tokenizer.json. If the preset's does not fit the text, "
        "the default is bpe:2048, or chars for presets with characters.",
        otherwise="the preset's",
        metavar="chars|bytes|words:N|bpe:N|PATH",
    )
    length: int | None = setting(None, "Tokens per row.", otherwise="the preset's", least=1)
    device: str = device_setting()
    quiet: bool = setting(False, "Print no progress to stderr.", group="Output")
    json: bool = setting(
        False,
        "Print the lines of metrics.jsonl as they are written, then the result; each is a JSON object.",
        group="Output",
    )
    settings: tuple[str, ...] = ()  # the flags of the preset's own settings
    unknown_flags: ClassVar[str] = "settings"

    def __call__(self) -> None:
        _train_run(self._run(), self.out or Path("runs") / self._name, self.device, self.quiet, self.json)

    @property
    def _name(self) -> str:
        file, _, function = self.recipe.rpartition(":")
        return Path(file).stem if function == "run" else function

    def _run(self) -> Run:
        from redraft.apps.cli.run_arguments import parse_run
        from redraft.apps.cli.run_settings import parse_settings
        from redraft.core.text.tokenizers import Tokenizer
        from redraft.core.vocab import Vocab

        about = f"The settings of {self.recipe}, besides the options of `redraft train --help`."
        prog = f"redraft train {self.recipe}"
        change = partial(parse_settings, words=self.settings, prog=prog, about=about, whole=(Tokenizer, Vocab))
        return parse_run(self.recipe, self.data, self.tokenizer, self.length, change)


def _train_run(run: Run, out: Path, device: str, quiet: bool, json: bool) -> None:
    """Train a run in a directory, or continue it there, and print the result."""
    from redraft.core.hardware.device import find_device
    from redraft.models.checkpoints.lock import exclusive_lock
    from redraft.training.loop import fit

    _require_same(run, out)
    find_device(device)
    out.mkdir(parents=True, exist_ok=True)
    if is_first_worker():
        with exclusive_lock(out):  # fail before announcing the training if another process uses the directory
            pass
    print_note(_announcement(run, out, _saved_step(out)))
    with _cleaning_up(out):
        fit(run, out, device=device, quiet=quiet, tell=(lambda record: emit(record, True, "")) if json else None)
    _report(run, out, json)


def _report(run: Run, out: Path, json: bool) -> None:
    from redraft.training.runs import metrics
    from redraft.training.runs.memory import parameter_count

    figures = metrics.latest_values(metrics.read_metrics(out))
    valid = {name: figures[name] for name in _RESULT if name in figures}
    result = {"out": str(out), "run": run.digest, "parameters": parameter_count(run.model), **valid}
    emit(result, json, f"{out}: step {run.steps}, {metrics.format_heldout(valid)}")
    if (rise := metrics.overfitting(metrics.read_metrics(out))) is not None:
        print_note(f"{metrics.format_overfitting(*rise)}; {_kept(run, out)}")
    if "valid_reconstruction" in valid:
        print_note(f"next: train a diffusion model on these latents, redraft train … --base {out}")
    else:
        print_note(f"next: redraft {generate_command(run, out)}")


def _kept(run: Run, out: Path) -> str:
    """Say which checkpoint is used from now on, after held-out bits have risen."""
    from redraft.training.runs.loading import preferred_checkpoint

    best = preferred_checkpoint(out)
    if best == out:
        return "train fewer steps, on more text, or a smaller network (its best weights were not kept: --keep-best)"
    return f"{out} now stands for its best checkpoint, {best}; train fewer steps, on more text, or a smaller network"


def _saved_step(out: Path) -> int:
    """Return the step of the newest intact checkpoint; 0 if there is none."""
    from redraft.models.checkpoints import reader

    checkpoint = reader.latest_checkpoint(out)
    return 0 if checkpoint is None else reader.step_number(checkpoint)


def _announcement(run: Run, out: Path, saved_step: int) -> str:
    """Return the line that announces a training: its size, its steps and its directory."""
    from redraft.training.runs.memory import parameter_count

    tokenizer = f"{type(run.tokenizer).__name__} with {run.tokenizer.vocab.size} ids"
    rows = f"{run.batch} rows of {run.framing.length} tokens per step"
    size = f"{parameter_count(run.model):,} parameters, {tokenizer}, {rows}"
    if saved_step >= run.steps:
        return f"{out} is finished: all {run.steps} steps are done; more steps would be a different run"
    steps = f"continuing at step {saved_step} of {run.steps}" if saved_step else f"{run.steps} steps"
    return f"{size}; {steps} in {out}"


def _require_same(run: Run, out: Path) -> None:
    """Raise if the directory belongs to another run; the message says what differs."""
    from redraft.models.checkpoints import reader, serialization

    file = out / "run.json"
    if not file.exists():
        return
    stored = reader.read_run_file(file)
    if not run.matches(stored.get("run")):
        config = serialization.to_json(run)
        differences = list(_differences(_normalized(stored.get("run"), config), config))
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        what = "; ".join(differences[:3]) + more
        raise ValueError(f"{out} holds another run ({what}); choose another directory with --out, or remove this one")


def _normalized(old: Any, new: Any) -> Any:
    """Write a saved config again in today's form, with all defaults; unchanged if it cannot be read."""
    from redraft.models.checkpoints import serialization

    try:
        return serialization.to_json(serialization.from_json(old, serialization.external_modules(new)))
    except serialization.ConfigError:
        return old


def _differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield a line such as "optimizer.lr 0.003 → 0.001" for each value that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old | new:
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}".lstrip("."))
    elif old != new:
        before, after = (str(value) if len(str(value)) < 40 else "…" for value in (old, new))
        yield f"{path} {before} → {after}"


@contextmanager
def _cleaning_up(out: Path) -> Iterator[None]:
    """Remove the new directory of a training that failed to start, so that the corrected command can use it.

    Also notes what was saved if the training is interrupted.
    """
    from redraft.models.checkpoints.lock import DirectoryLocked

    fresh = not (out / "run.json").exists()
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        print_note(_interruption(out))
        raise
    except DirectoryLocked:
        raise
    except (ValueError, RuntimeError, OSError):
        if fresh and is_first_worker():
            _remove_if_empty(out)
        raise


def _interruption(out: Path) -> str:
    """Return the line that says what a training saved before Ctrl-C or SIGTERM ended it."""
    if step := _saved_step(out):
        return f"stopped, with a checkpoint at step {step} in {out}; the same command continues from there"
    return f"stopped before the first step; nothing was saved, and the same command starts again in {out}"


def _remove_if_empty(out: Path) -> None:
    """Remove the directory if it holds only run.json and the lock, and no other process is using it."""
    from redraft.models.checkpoints.lock import LOCK_FILE, DirectoryLocked, exclusive_lock

    with suppress(OSError, DirectoryLocked), exclusive_lock(out):
        if {path.name for path in out.iterdir()} <= {"run.json", "run.tmp", LOCK_FILE}:
            for name in ("run.json", "run.tmp", LOCK_FILE):
                (out / name).unlink(missing_ok=True)
            out.rmdir()
