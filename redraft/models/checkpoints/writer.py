"""Checkpoints: directories of safetensors and JSON files, written atomically, verified before use.

    runs/tiny/step-00001000/   model.safetensors  optimiser.safetensors  state.json  manifest.json

The manifest lists size and SHA-256 of every file, dtype and shape of every tensor, and ends with a digest of itself.
A save fills a hidden draft beside the others, syncs each file, then the manifest, and only then gives it its name: a
process killed at any moment leaves the new checkpoint whole or not at all. Older ones go only after the new one has
been read back and verified. Files that the manifest does not list are ignored; nothing is ever unpickled or executed.

One process writes to a directory at a time, and one save at a time within it. Each file is assembled in memory: a
state too large for two more copies of itself belongs in several files. Workers that hold a part of every tensor each
may save together: `model-1of2.safetensors` has the first rows of all tensors, and reading joins them again.
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

from safetensors.torch import save as serialise
from torch import Tensor

from redraft.models.checkpoints.reader import (
    _FORMAT,
    _PLAIN_NAME,
    MANIFEST,
    CheckpointError,
    _is_verified,
    _manifest_digest,
    _read_document,
    _tensor_shapes,
    _verify,
    checkpoints,
    step_number,
)
from redraft.models.checkpoints.serialization import JSON

_DRAFT_NAME = ".tmp-redraft-{}-{:08x}"  # the process that writes it, and a random number
_DRAFT = re.compile(r"\.tmp-redraft-(\d{1,9})-\w+", re.ASCII)
_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space or save elsewhere"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "choose a directory that can be written"),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "a part of this path is a file, choose another"),
}
_Content: TypeAlias = Mapping[str, Tensor] | str  # of a file: tensors or text


class WorkerGroup(Protocol):
    """Workers that save together; every one of them calls `save_checkpoint`."""

    @property
    def rank(self) -> int: ...

    @property
    def world(self) -> int: ...

    def agree(self, number: int) -> int:
        """The number of the first worker, on all of them."""
        ...

    def wait(self) -> None:
        """Until all are here."""
        ...


@dataclass(frozen=True)
class SingleWorker:
    """A team of one."""

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
    team: WorkerGroup = SingleWorker(),
) -> Path:
    """Write `step-…` into `parent`, verify it, then remove all older ones but the newest that verify, `keep` in all.

    A step that exists already is replaced: it stays as `step-….old`, which `latest_checkpoint` sees too, until the new one is
    verified. Later steps are never touched. In a team, every worker gives its own rows of all tensors; the documents
    come from the first worker, and `parent` is on a disk that all of them share.
    """
    if step < 0 or keep < 1:
        raise ValueError(f"step={step}, keep={keep}: step must be at least 0 and keep at least 1")
    part = f"-{team.rank + 1}of{team.world}" if team.world > 1 else ""
    contents: dict[str, _Content] = {f"{stem}{part}.safetensors": named for stem, named in tensors.items()}
    if team.rank == 0:
        contents |= {f"{stem}.json": _text(stem, document) for stem, document in documents.items()}
    target = parent / f"step-{step:08d}"
    with _explained(target):
        _publish(target, contents, step, team)
        if team.rank == 0:
            _discard(_aside(target))
            _prune([path for path in checkpoints(parent) if step_number(path) < step], keep - 1)
        team.wait()
    return target


def write_export(path: Path, tensors: Mapping[str, Tensor], config: JSON, tokenizer: JSON | None, card: str) -> Path:
    """Write a new model directory as others expect it: config, weights, tokenizer if any, README; and the manifest."""
    if path.exists():
        raise CheckpointError(f"{path} exists already; choose another path, or remove it first")
    contents: dict[str, _Content] = {"model.safetensors": tensors, "README.md": card}
    contents["config.json"] = _text("config", config)
    if tokenizer is not None:
        contents["tokenizer.json"] = _text("tokenizer", tokenizer)
    with _explained(path):
        _publish(path, contents, step=None)
    return path


def write_foreign(
    path: Path, tensors: Mapping[str, Mapping[str, Tensor]], documents: Mapping[str, JSON], card: str
) -> Path:
    """Write a new directory in another project's format: files of tensors, JSON documents by their stem, README."""
    if path.exists():
        raise CheckpointError(f"{path} exists already; choose another path, or remove it first")
    contents: dict[str, _Content] = {**tensors, "README.md": card}
    contents |= {f"{stem}.json": _text(stem, document) for stem, document in documents.items()}
    with _explained(path):
        _publish(path, contents, step=None)
    return path


def _publish(
    target: Path, contents: Mapping[str, _Content], step: int | None, team: WorkerGroup = SingleWorker()
) -> None:
    """Write a directory under a hidden name, sync, rename, verify. Each worker writes, the first one renames."""
    if wrong := [name for name in contents if not _PLAIN_NAME.fullmatch(name) or name == MANIFEST]:
        raise ValueError(f"{wrong[0]!r} cannot be a file of a checkpoint; use letters, digits, '_', '.', '-'")
    draft = target.parent / _DRAFT_NAME.format(team.agree(os.getpid()), team.agree(secrets.randbits(32)))
    if team.rank == 0:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target.parent)
        draft.mkdir()
    team.wait()
    try:
        files = {name: _write(draft / name, content) for name, content in contents.items()}
        if team.rank > 0:
            _write(_notes(draft, team.rank), _text("notes", files))
        team.wait()
        if team.rank == 0:
            for worker in range(1, team.world):
                files |= _read_document(_notes(draft, worker))
                _notes(draft, worker).unlink()
            _name(draft, target, {"format": _FORMAT, "step": step, "files": files})
    finally:
        if team.rank == 0:
            shutil.rmtree(draft, ignore_errors=True)


def _name(draft: Path, target: Path, manifest: dict[str, JSON]) -> None:
    """The step that makes it a checkpoint: manifest, sync, rename, verify."""
    _write(draft / MANIFEST, _text("manifest", manifest | {"digest": _manifest_digest(manifest)}))
    _sync(draft)
    _make_room(target)
    draft.rename(target)
    _sync(target.parent)
    _verify(target)


def _notes(draft: Path, worker: int) -> Path:
    """What a worker reports to the first one about the files it wrote."""
    return draft / f"notes-{worker}.json"


def _write(path: Path, content: _Content) -> dict[str, JSON]:
    """Write and sync one file; its manifest entry is computed from memory, not from the disk."""
    tensors = {} if isinstance(content, str) else _plain(content)
    data = content.encode() if isinstance(content, str) else serialise(tensors, {"format": "pt"})  # others ask for it
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "tensors": _tensor_shapes(tensors)}


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous tensors on the CPU, no two of them in one storage: safetensors refuses anything else."""
    plain: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        plain[name] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    return plain


def _text(name: str, document: JSON) -> str:
    """JSON that reads back as the same value: no NaN, no tuples, no keys that are numbers."""
    try:
        text = json.dumps(document, indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"document {name!r} is not JSON: {error}") from error
    if json.loads(text) != document:
        raise ValueError(f"document {name!r} changes when it becomes JSON; use lists for tuples and strings as keys")
    return text


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_room(target: Path) -> None:
    """Set a sound directory of that name aside, where `latest_checkpoint` still finds it; drop a damaged one."""
    if target.exists() and _is_verified(target):
        _discard(_aside(target))
        target.rename(_aside(target))
    _discard(target)


def _aside(target: Path) -> Path:
    return target.with_name(f"{target.name}.old")


def _prune(older: list[Path], keep: int) -> None:
    """Keep the first `keep` that verify; damaged ones among them stay as evidence."""
    for path in older:
        if keep == 0:
            _discard(path)
        elif _is_verified(path):
            keep -= 1


def _discard(path: Path) -> None:
    """Remove a directory, if it exists, under the name of a draft: half-removed it must not look like a checkpoint."""
    if path.exists():
        doomed = path.rename(_draft(path.parent))
        shutil.rmtree(doomed, ignore_errors=True)  # what remains is swept at the next save


def _draft(parent: Path) -> Path:
    return parent / _DRAFT_NAME.format(os.getpid(), secrets.randbits(32))


def _sweep(parent: Path) -> None:
    """Remove the drafts of processes that no longer run; one with our own number is left from an earlier process."""
    for path in parent.iterdir():
        writer = _DRAFT.fullmatch(path.name)
        if writer and (int(writer[1]) == os.getpid() or not _runs(int(writer[1]))):
            shutil.rmtree(path, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)  # signal 0 asks without sending
    except OSError as error:
        return error.errno == errno.EPERM
    return True


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "check the disk and the path")
        raise CheckpointError(f"cannot write {target}: {error.strerror}; {advice}; older ones are intact") from error
