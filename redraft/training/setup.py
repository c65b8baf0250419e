"""Setup before the first step: lock and claim the directory, choose the precision."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, get_args

from redraft.core.hardware.precision import (
    Precision,
    PrecisionError,
    PrecisionName,
    Shapes,
    block_shapes,
    choose_precision,
)
from redraft.models.checkpoints import lock, reader, serialization
from redraft.training.distributed import _Workers
from redraft.training.runs.run import Run
from redraft.training.state import TrainingError


@contextmanager
def _hold_lock(out: Path, team: _Workers) -> Iterator[None]:
    """Locks the directory on the first worker, for all of them; if that fails, every worker raises."""
    problem: Exception | None = None
    with ExitStack() as stack:
        try:
            if team.first:
                stack.enter_context(lock.exclusive_lock(out))
        except (lock.DirectoryLocked, OSError) as error:
            problem = error
        if team.any(problem is not None):
            raise problem or lock.DirectoryLocked(f"the first worker cannot write to {out}")
        yield


def _claim_directory(run: Run, out: Path, team: _Workers) -> None:
    """Makes `out` the directory of this run; raises if it already holds another run."""
    file = out / "run.json"
    if file.exists() and not run.matches((held := reader.read_run_file(file)).get("run")):
        other = held.get("hash")
        raise TrainingError(f"{out} holds another run ({other}, this one is {run.digest}); choose another directory")
    team.wait()
    if team.first and not file.exists():
        out.mkdir(parents=True, exist_ok=True)
        _replace(file, {"hash": run.digest, "run": serialization.to_json(run)})


def _choose_run_precision(run: Run, out: Path, team: _Workers, quiet: bool) -> Precision:
    """Chooses the precision on the first worker for all of them, prints it, and stores it in run.json.

    A resumed run keeps the precision it started with, so that another machine does not silently change its results.
    If this machine cannot compute in that precision, it raises here, before anything is changed.
    """
    file = out / "run.json"
    held = reader.read_run_file(file) if team.first else {}
    before = _stored_precision(held)
    choice = _agree_on_precision(run, team, before)
    if team.first and before != choice.name:
        _replace(file, {**held, "precision": {"name": choice.name, "reason": choice.reason}})
    changed = f"; until now {before}, so no longer bit for bit" if before not in (None, choice.name) else ""
    if team.first and not quiet and (choice.name, changed) not in _printed:
        _printed.add((choice.name, changed))
        print(f"precision: {choice}{changed}", file=sys.stderr, flush=True)
    return choice


_printed: set[tuple[str, str]] = set()  # lines already printed, since a demo trains two models in one process


def _agree_on_precision(run: Run, team: _Workers, before: PrecisionName | None) -> Precision:
    """Chooses on the first worker and broadcasts the choice; if the first worker fails, all raise."""
    shapes = _training_shapes(run, team.world)
    if not team.first:
        if (code := team.agree(0)) < 0:
            raise PrecisionError("the first worker cannot compute in the precision of the run")
        return choose_precision("bf16" if code else "fp32", team.device, shapes)
    try:
        choice = choose_precision(run.precision, team.device, shapes, before)
    except PrecisionError:
        team.agree(-1)
        raise
    team.agree(int(choice.name == "bf16"))
    return choice


def _stored_precision(document: dict[str, Any]) -> PrecisionName | None:
    """Returns the precision stored in run.json; None if there is none."""
    name = document["precision"].get("name") if isinstance(document.get("precision"), dict) else None
    return name if name in get_args(PrecisionName) else None


def _training_shapes(run: Run, world: int = 1) -> Shapes:
    """Returns the shapes of the matrix products of a training step."""
    network, rows = run.model.network, run.batch * run.framing.length
    return block_shapes(max(1, rows // (run.micro_batches * world)), network.width, network.hidden_width)


def _replace(file: Path, document: dict[str, Any]) -> None:
    """Replaces a JSON file atomically: a reader sees the old document or the new one."""
    draft = file.with_suffix(".tmp")
    draft.write_text(json.dumps(document, indent=1))
    draft.replace(file)
