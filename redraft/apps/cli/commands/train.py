"""`redraft train`: a preset or a recipe of one's own, every setting of it a flag."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Fixed, Positional, Suppress, arg

from redraft.apps.cli.arguments import DATA, Flag, parse_settings
from redraft.apps.cli.output import emit, generate_command, is_first_worker, print_note
from redraft.tasks.arguments.settings import optional_argument

if TYPE_CHECKING:
    from redraft.training.runs.run import Run

_RESULT = (
    "step", "valid_bits_per_char", "valid_excess_bits_per_char", "valid_excess_stderr", "entropy_bits_per_char",
    "valid_reconstruction",
)  # fmt: skip


@dataclass(frozen=True)
class Train:
    """Train a model, or continue an interrupted training.

    `redraft train PRESET --help` lists every setting of a preset, say --steps 2000 --optimiser.lr 1e-3
    --model.network.width 256. Presets: `redraft show`. On several GPUs: torchrun --standalone --nproc-per-node 8 -m
    redraft.apps.cli train PRESET
    """

    recipe: Annotated[Positional[str], arg(metavar="PRESET|FILE.py:FN")]
    """The name of a preset, or a function in your own file that returns a redraft.Run."""
    out: Annotated[Path | None, optional_argument("DIR", "runs/PRESET")] = None
    """Where checkpoints and metrics.jsonl go."""
    data: Annotated[tuple[str, ...], optional_argument(DATA, "the preset's")] = ()
    """Text to learn from: files, or a directory of them, that end in .txt, .jsonl (field text) or .parquet. Out of
    every 20 paragraphs, lines or records, one is held out for validation and one for testing."""
    tokenizer: Annotated[str | None, optional_argument("chars|bytes|words:N|bpe:N|PATH", "the preset's")] = None
    """Learnt from the text, or a tokenizer.json. If the preset's does not fit the text, the default is bpe:2048."""
    length: Annotated[int | None, optional_argument("INT", "the preset's")] = None
    """Tokens per row."""
    quiet: Flag = False
    """Print no progress to stderr."""
    json: Flag = False
    """Print the lines of metrics.jsonl as they are written, then the result, one JSON object each."""
    settings: Suppress[Fixed[tuple[str, ...]]] = ()

    def __call__(self) -> None:
        train_run(self._run(), self.out or Path("runs") / self._name, self.quiet, self.json)

    @property
    def _name(self) -> str:
        file, _, function = self.recipe.rpartition(":")
        return Path(file).stem if function == "run" else function

    def _run(self) -> Run:
        from redraft.apps.cli.run_arguments import make_tokenizer, parse_run
        from redraft.core.text.tokenizers import Tokenizer
        from redraft.core.vocab import Vocab
        from redraft.training.runs import variations

        if self.length is not None and self.length < 1:
            raise ValueError(f"--length {self.length}: a row has at least one token")
        run, tokenizer = parse_run(self.recipe, self.data, self.tokenizer, self.length)
        about = f"The settings of {self.recipe}, beside --out, --data, --tokenizer, --length, --quiet and --json."
        prog = f"redraft train {self.recipe}"
        run = parse_settings(run, self.settings, prog, about, whole=(Tokenizer, Vocab))
        return run if tokenizer is None else variations.with_tokenizer(run, make_tokenizer(tokenizer, run.data))


def train_run(run: Run, out: Path, quiet: bool, json: bool) -> None:
    """Trains a run in a directory, or continues there; prints what came of it."""
    from redraft.models.checkpoints.lock import exclusive_lock
    from redraft.training.loop import fit

    _require_same(run, out)
    out.mkdir(parents=True, exist_ok=True)
    if is_first_worker():
        with exclusive_lock(out):  # else nothing is said of a training that does not come to be
            pass
    began = _step(out)
    print_note(_intention(run, out, began))
    with _tidy(out):
        fit(run, out, quiet=quiet, tell=(lambda record: emit(record, True, "")) if json else None)
    _report(run, out, json)


def _report(run: Run, out: Path, json: bool) -> None:
    from redraft.training.runs import metrics
    from redraft.training.runs.memory import parameter_count

    found = metrics.latest_values(metrics.read_metrics(out))
    valid = {name: found[name] for name in _RESULT if name in found}
    result = {"out": str(out), "run": run.digest, "parameters": parameter_count(run.model), **valid}
    emit(result, json, f"{out}: step {run.steps}, {metrics.format_heldout(valid)}")
    if "valid_reconstruction" in valid:
        print_note(f"next: train the diffusion of these latents, redraft train … --base {out}")
    else:
        print_note(f"next: redraft {generate_command(run, out)}")


def _step(out: Path) -> int:
    """At which step the newest sound checkpoint stands."""
    from redraft.models.checkpoints import reader

    found = reader.latest_checkpoint(out)
    return 0 if found is None else reader.step_number(found)


def _intention(run: Run, out: Path, began: int) -> str:
    from redraft.training.runs.memory import parameter_count

    words = f"{type(run.tokenizer).__name__} of {run.tokenizer.vocab.size} states"
    rows = f"{run.batch} rows of {run.framing.length} tokens per step"
    size = f"{parameter_count(run.model):,} parameters, {words}, {rows}"
    if began >= run.steps:
        return f"{out} is finished: all {run.steps} steps are done; more steps would be a different run"
    return (
        f"{size}; " + (f"continuing at step {began} of {run.steps}" if began else f"{run.steps} steps") + f" in {out}"
    )


def _require_same(run: Run, out: Path) -> None:
    """Refuses a directory that holds another run, and says what differs."""
    from redraft.models.checkpoints import reader, serialization

    file = out / "run.json"
    if not file.exists():
        return
    held = reader.read_run_file(file)
    if not run.is_held(held.get("run")):
        differing = list(
            _differences(_as_today(held.get("run"), serialization.to_json(run)), serialization.to_json(run))
        )
        more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
        what = "; ".join(differing[:3]) + more
        raise ValueError(f"{out} holds another run ({what}); choose another directory with --out, or remove this one")


def _as_today(old: Any, new: Any) -> Any:
    """A saved config in the form that it would have now, if it can be read."""
    from redraft.models.checkpoints import serialization

    try:
        return serialization.to_json(serialization.from_json(old, serialization.external_modules(new)))
    except serialization.ConfigError:
        return old


def _differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """ "optimiser.lr 0.003 → 0.001" for each plain value that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old | new:
            yield from _differences(old.get(key), new.get(key), f"{where}.{key}".lstrip("."))
    elif old != new:
        before, after = (str(value) if len(str(value)) < 40 else "…" for value in (old, new))
        yield f"{where} {before} → {after}"


@contextmanager
def _tidy(out: Path) -> Iterator[None]:
    """A training that could not begin leaves no claim on its directory, so that the mended command can have it."""
    from redraft.models.checkpoints.lock import DirectoryLocked

    fresh = not (out / "run.json").exists()
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        print_note(_stopped(out))
        raise
    except DirectoryLocked:
        raise
    except (ValueError, RuntimeError, OSError):
        if fresh and is_first_worker():
            _leave(out)
        raise


def _stopped(out: Path) -> str:
    """What is left of a training that was asked to end, by Ctrl-C or SIGTERM."""
    if step := _step(out):
        return f"stopped, with a checkpoint at step {step} in {out}; the same command continues from there"
    return f"stopped before the first step; nothing was saved, and the same command starts again in {out}"


def _leave(out: Path) -> None:
    """Removes the directory, if there is nothing but the claim in it and nobody else has begun to write there."""
    from redraft.models.checkpoints.lock import LOCK_FILE, DirectoryLocked, exclusive_lock

    with suppress(OSError, DirectoryLocked), exclusive_lock(out):
        if {path.name for path in out.iterdir()} <= {"run.json", "run.tmp", LOCK_FILE}:
            for name in ("run.json", "run.tmp", LOCK_FILE):
                (out / name).unlink(missing_ok=True)
            out.rmdir()
