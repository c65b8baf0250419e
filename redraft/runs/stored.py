"""Stored checkpoints and exports: found, verified and read.

Every byte that is used is first held against the manifest. Files that the manifest does not list are ignored; nothing
is ever unpickled or executed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from redraft.runs.config import JSON, read_json

FORMAT = 1
MANIFEST = "manifest.json"
PLAIN_NAME = re.compile(r"\w[\w.-]*\.(safetensors|json|md)", re.ASCII)  # plain names: no path, no pickle
_PART = re.compile(r"(.+)-(\d+)of(\d+)", re.ASCII)
_STEP = re.compile(r"step-(\d{8,})(\.old)?", re.ASCII)
_log = logging.getLogger(__name__)


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, or must not be used."""


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds, by file name without its ending."""

    step: int
    tensors: dict[str, Mapping[str, Tensor]]
    documents: dict[str, JSON]


@dataclass(frozen=True)
class Joined(Mapping[str, Tensor]):
    """Tensors of which each part holds some rows, put together when asked for; a scalar is the same in all parts."""

    parts: Sequence[Mapping[str, Tensor]]

    def __getitem__(self, name: str) -> Tensor:
        rows = [part[name] for part in self.parts]
        return torch.cat(rows) if rows[0].dim() else rows[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts[0])

    def __len__(self) -> int:
        return len(self.parts[0])


@dataclass(frozen=True)
class Exported:
    """What a model directory holds."""

    tensors: dict[str, Tensor]
    config: JSON
    tokenizer: JSON | None


def read(path: Path, device: torch.device | str = "cpu") -> Checkpoint:
    """Verify a checkpoint, then load all of it."""
    manifest = verify(path)
    if manifest["step"] is None:
        raise CheckpointError(f"{path} is an exported model, not a checkpoint; read it with import_model")
    names = [Path(name) for name in manifest["files"]]
    tensors = _joined({name.stem: _tensors(path / name, device) for name in names if name.suffix == ".safetensors"})
    documents = {name.stem: read_document(path / name) for name in names if name.suffix == ".json"}
    return Checkpoint(manifest["step"], tensors, documents)


def latest(parent: Path) -> Path | None:
    """The newest checkpoint that verifies, None if there is none at all; damaged ones are named in the log."""
    found = checkpoints(parent)
    for path in found:
        if is_sound(path):
            return path
    if found:
        raise CheckpointError(f"none of the {len(found)} checkpoints in {parent} verifies; remove them to start anew")
    return None


def verify(path: Path) -> dict[str, Any]:
    """The manifest, once every byte has been read and found as it says; a CheckpointError tells what is wrong."""
    manifest = _manifest(path)
    for name, entry in manifest["files"].items():
        _check(path / name, entry)
    return manifest


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor with a value that is nan or infinite; None if all are sound."""
    floats = ((name, tensor) for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.numel())
    ends = ((name, torch.stack(torch.aminmax(tensor))) for name, tensor in floats)  # nan spreads to both
    return next((name for name, pair in ends if not bool(pair.isfinite().all())), None)


def import_model(path: Path, device: torch.device | str = "cpu") -> Exported:
    """Read a model directory; where it has a manifest it is verified, and only what is listed is read."""
    names = set(verify(path)["files"]) if (path / MANIFEST).exists() else {file.name for file in path.glob("*")}
    if missing := {"model.safetensors", "config.json"} - names:
        pickles = "; pickled weights are never opened, convert them to safetensors"
        raise CheckpointError(f"{path} lacks {' and '.join(sorted(missing))}{pickles}")
    tokenizer = read_document(path / "tokenizer.json") if "tokenizer.json" in names else None
    return Exported(_tensors(path / "model.safetensors", device), read_document(path / "config.json"), tokenizer)


def checkpoints(parent: Path) -> list[Path]:
    """All checkpoints of a directory, the newest first, and a replaced one after what replaced it."""
    paths = [path for path in parent.glob("step-*") if _STEP.fullmatch(path.name)]
    return sorted(paths, key=lambda path: (-step_number(path), path.name))


def step_number(path: Path) -> int:
    """The step that a checkpoint's name says; -1 for any other name."""
    match = _STEP.fullmatch(path.name)
    return int(match[1]) if match else -1


def is_sound(path: Path) -> bool:
    """Whether a checkpoint verifies; if not, the log says what is wrong."""
    try:
        verify(path)
    except CheckpointError as error:
        _log.warning("damaged checkpoint: %s", error)
        return False
    return True


def _manifest(path: Path) -> dict[str, Any]:
    """The manifest, if it is whole, belongs to this directory, and lists nothing but plain files of known kinds."""
    file = path / MANIFEST
    manifest = read_document(file)
    match manifest:
        case {"format": int(version)} if version > FORMAT:
            raise CheckpointError(f"{file} has format {version}; this version reads up to {FORMAT}: upgrade redraft")
        case {"format": 1, "step": int() | None, "files": dict(files), "digest": str(digest)}:
            pass
        case _:
            raise CheckpointError(f"{file} is not a manifest of this library")
    if seal({key: value for key, value in manifest.items() if key != "digest"}) != digest:
        raise CheckpointError(f"{file} is damaged or edited: its digest does not fit")
    if step_number(path) not in (-1, manifest["step"]):
        raise CheckpointError(f"{path} holds step {manifest['step']}; it is damaged or renamed")
    for name, entry in files.items():
        if (
            not PLAIN_NAME.fullmatch(name)
            or not isinstance(entry, dict)
            or entry.keys() != {"size", "sha256", "tensors"}
        ):
            raise CheckpointError(f"{file} lists {name!r}, which cannot be a file of a checkpoint")
    return manifest


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Reading a regular file; if it is a link, to one in the same directory."""
    if not file.is_file():
        raise CheckpointError(f"{file} is missing or no regular file")
    if file.resolve().parent != file.parent.resolve():
        raise CheckpointError(f"{file} is a link that leaves the directory")
    try:
        yield
    except (SafetensorError, ValueError, RecursionError, OSError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error


def _tensors(file: Path, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    with _reading(file):
        return load_file(file, device=str(device))


def _joined(files: Mapping[str, dict[str, Tensor]]) -> dict[str, Mapping[str, Tensor]]:
    """Files by stem, those that a team wrote by the stem of the whole."""
    parts: dict[str, dict[int, dict[str, Tensor]]] = {}
    for stem, tensors in files.items():
        match = _PART.fullmatch(stem)
        whole, number = (match[1], int(match[2])) if match else (stem, 0)
        parts.setdefault(whole, {})[number] = tensors
    return {
        stem: found[0] if 0 in found else Joined([found[n] for n in sorted(found)]) for stem, found in parts.items()
    }


def read_document(file: Path) -> JSON:
    """The JSON value in a file of a checkpoint."""
    with _reading(file):
        return read_json(file)


def _check(file: Path, entry: Mapping[str, JSON]) -> None:
    """Raise unless the file is what the manifest says of it."""
    with _reading(file), open(file, "rb") as stream:
        size, sha256 = os.fstat(stream.fileno()).st_size, hashlib.file_digest(stream, "sha256").hexdigest()
    if size != entry["size"]:
        raise CheckpointError(f"{file} has {size} bytes; the manifest says {entry['size']}")
    if sha256 != entry["sha256"]:
        raise CheckpointError(f"{file} is damaged: its SHA-256 is not that of the manifest")
    if file.suffix == ".safetensors" and shapes(_tensors(file)) != entry["tensors"]:
        raise CheckpointError(f"{file} holds other tensors, dtypes or shapes than the manifest says")


def shapes(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """{"weight": "float32[4, 6]"}"""
    return {name: f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for name, t in tensors.items()}


def seal(manifest: Mapping[str, JSON]) -> str:
    """The digest that a manifest ends with."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
