"""Writes checkpoints: directories of safetensors and JSON files, created atomically and verified.

    runs/tiny/step-00001000/   model.safetensors  optimizer.safetensors  state.json  manifest.json

The manifest lists the size and SHA-256 of every file and the dtype and shape of every tensor, and ends with a digest
of itself. A save fills a hidden draft directory, syncs each file, then writes and syncs the manifest, and only then
renames the draft. A process killed at any moment leaves the new checkpoint complete or not there at all. Older
checkpoints are removed only after the new one has been read back and verified.

Only one process may write to a directory, one save at a time. Each file is assembled in memory, which may take two
more copies of its tensors, so split a large state over several files. Workers that each hold some rows of every tensor
save together: `model-1of2.safetensors` has the first rows of all tensors, and reading joins the files again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from safetensors.torch import save as serialize
from torch import Tensor

from redraft.models.checkpoints.reader import (
    _FORMAT,
    _PLAIN_NAME,
    MANIFEST,
    CheckpointError,
    _describe_tensors,
    _is_verified,
    _manifest_digest,
    _read_document,
    _verify,
    checkpoints,
    step_number,
)
from redraft.models.checkpoints.serialization import JSON

_DRAFT_NAME = ".tmp-redraft-{}-{:08x}"  # id of the writing process, and a random number
_DRAFT = re.compile(r"\.tmp-redraft-(\d{1,9})-\w+", re.ASCII)
_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space or save elsewhere"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "choose a directory that can be written"),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "a part of this path is a file, choose another"),
}
_Content: TypeAlias = Mapping[str, Tensor] | str  # content of a file: tensors or text


class _WorkerGroup(Protocol):
    """Workers that save one checkpoint together; each of them calls `save_checkpoint`."""

    @property
    def rank(self) -> int: ...

    @property
    def world(self) -> int: ...

    def agree(self, number: int) -> int:
        """Return the number that the first worker passed, on every worker."""
        ...

    def wait(self) -> None:
        """Wait until every worker has called this."""
        ...


@dataclass(frozen=True)
class _SingleWorker:
    """A worker that saves alone and never waits."""

    rank: int = 0
    world: int = 1

    def agree(self, number: int) -> int:
        return number

    def wait(self) -> None:
        pass


def save_checkpoint(
    parent: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    documents: Mapping[str, JSON],
    keep: int = 2,
    team: _WorkerGroup = _SingleWorker(),
) -> Path:
    """Write the checkpoint `step-…` into `parent`, verify it, then remove older ones; returns its path.

    `keep` checkpoints stay: this one and the newest older ones that verify. Later steps are never touched. If the step
    exists already, the old checkpoint stays as `step-….old` until the new one is verified, and `latest_checkpoint`
    finds it there. With several workers, each passes its own rows of all tensors; only the first worker's documents are
    written, and all workers must share the disk of `parent`.
    """
    if step < 0 or keep < 1:
        raise ValueError(f"step={step}, keep={keep}: step must be at least 0 and keep at least 1")
    part = f"-{team.rank + 1}of{team.world}" if team.world > 1 else ""
    contents: dict[str, _Content] = {f"{stem}{part}.safetensors": named for stem, named in tensors.items()}
    if team.rank == 0:
        contents |= {f"{stem}.json": _dump_json(stem, document) for stem, document in documents.items()}
    target = parent / f"step-{step:08d}"
    with _explain_errors(target):
        _publish(target, contents, step, team)
        if team.rank == 0:
            _discard(_backup_path(target))
            _prune([path for path in checkpoints(parent) if step_number(path) < step], keep - 1)
        team.wait()
    return target


def write_export(path: Path, tensors: Mapping[str, Tensor], config: JSON, tokenizer: JSON | None, card: str) -> Path:
    """Write a new model directory: config.json, model.safetensors, README.md, the manifest and a tokenizer if any."""
    if path.exists():
        raise CheckpointError(f"{path} exists already; choose another path, or remove it first")
    contents: dict[str, _Content] = {"model.safetensors": tensors, "README.md": card}
    contents["config.json"] = _dump_json("config", config)
    if tokenizer is not None:
        contents["tokenizer.json"] = _dump_json("tokenizer", tokenizer)
    with _explain_errors(path):
        _publish(path, contents, step=None)
    return path


def write_foreign(
    path: Path, tensors: Mapping[str, Mapping[str, Tensor]], documents: Mapping[str, JSON], card: str
) -> Path:
    """Write a new directory in another project's format.

    tensors: tensors of each file by file name.
    documents: JSON values by file stem.
    card: text of README.md.
    """
    if path.exists():
        raise CheckpointError(f"{path} exists already; choose another path, or remove it first")
    contents: dict[str, _Content] = {**tensors, "README.md": card}
    contents |= {f"{stem}.json": _dump_json(stem, document) for stem, document in documents.items()}
    with _explain_errors(path):
        _publish(path, contents, step=None)
    return path


def _publish(
    target: Path, contents: Mapping[str, _Content], step: int | None, team: _WorkerGroup = _SingleWorker()
) -> None:
    """Write a directory under a hidden name, sync, rename and verify it. Every worker writes; the first one renames."""
    if wrong := [name for name in contents if not _PLAIN_NAME.fullmatch(name) or name == MANIFEST]:
        raise ValueError(
            f"{wrong[0]!r} cannot be a file of a checkpoint; use letters, digits, '_', '.', '-', and the suffix "
            "safetensors, json or md"
        )
    draft = target.parent / _DRAFT_NAME.format(team.agree(os.getpid()), team.agree(secrets.randbits(32)))
    if team.rank == 0:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale_drafts(target.parent)
        draft.mkdir()
    team.wait()
    try:
        files = {name: _write(draft / name, content) for name, content in contents.items()}
        if team.rank > 0:
            _write(_report_file(draft, team.rank), _dump_json("notes", files))
        team.wait()
        if team.rank == 0:
            for worker in range(1, team.world):
                files |= _read_document(_report_file(draft, worker))
                _report_file(draft, worker).unlink()
            _finish(draft, target, {"format": _FORMAT, "step": step, "files": files})
    finally:
        if team.rank == 0:
            shutil.rmtree(draft, ignore_errors=True)


def _finish(draft: Path, target: Path, manifest: dict[str, JSON]) -> None:
    """Turn a draft into a checkpoint: write the manifest, sync, rename, verify."""
    _write(draft / MANIFEST, _dump_json("manifest", manifest | {"digest": _manifest_digest(manifest)}))
    _sync(draft)
    _set_aside(target)
    draft.rename(target)
    _sync(target.parent)
    _verify(target)


def _report_file(draft: Path, worker: int) -> Path:
    """Return the file in which a worker tells the first worker what it wrote."""
    return draft / f"notes-{worker}.json"


def _write(path: Path, content: _Content) -> dict[str, JSON]:
    """Write and sync one file; return its manifest entry, computed from memory, not from the disk."""
    tensors = {} if isinstance(content, str) else _separate(content)
    # some versions of transformers require this metadata
    data = content.encode() if isinstance(content, str) else serialize(tensors, {"format": "pt"})
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "tensors": _describe_tensors(tensors)}


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return contiguous CPU tensors, no two in the same storage; safetensors refuses anything else."""
    separate: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        separate[name] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    return separate


def _dump_json(name: str, document: JSON) -> str:
    """Write a value as JSON text; raises if it would read back as another value (NaN, tuples, numbers as keys)."""
    try:
        text = json.dumps(document, indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"document {name!r} is not JSON: {error}") from error
    if json.loads(text) != document:
        raise ValueError(f"document {name!r} would change as JSON; use lists instead of tuples, and strings as keys")
    return text


def _sync(directory: Path) -> None:
    if os.name == "nt":  # Windows opens no directories, and needs no sync of them
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _set_aside(target: Path) -> None:
    """Rename a valid directory of this name, so that `latest_checkpoint` still finds it; delete a damaged one."""
    if target.exists() and _is_verified(target):
        _discard(_backup_path(target))
        target.rename(_backup_path(target))
    _discard(target)


def _backup_path(target: Path) -> Path:
    return target.with_name(f"{target.name}.old")


def _prune(older: list[Path], keep: int) -> None:
    """Remove all checkpoints after the first `keep` that verify; damaged ones among those stay, for inspection."""
    for path in older:
        if keep == 0:
            _discard(path)
        elif _is_verified(path):
            keep -= 1


def _discard(path: Path) -> None:
    """Delete a directory if it exists; it is renamed first, because half deleted it must not look like a checkpoint."""
    if path.exists():
        draft = path.rename(_draft_path(path.parent))
        shutil.rmtree(draft, ignore_errors=True)  # the next save removes what is left


def _draft_path(parent: Path) -> Path:
    return parent / _DRAFT_NAME.format(os.getpid(), secrets.randbits(32))


def _remove_stale_drafts(parent: Path) -> None:
    """Remove drafts of processes that have ended. A draft with our own process id is from an earlier process."""
    for path in parent.iterdir():
        writer = _DRAFT.fullmatch(path.name)
        if writer and (int(writer[1]) == os.getpid() or not _is_running(int(writer[1]))):
            shutil.rmtree(path, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)  # signal 0 only checks that the process exists
    except OSError as error:
        return error.errno == errno.EPERM
    return True


@contextmanager
def _explain_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "check the disk and the path")
        raise CheckpointError(
            f"cannot write {target}: {error.strerror}; {advice}; older checkpoints are intact"
        ) from error
