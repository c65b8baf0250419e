"""Stored checkpoints and exports: found, verified and read.

A file is read once, and hashed as it is read: the bytes that are used are those that were compared with the manifest.
Only the files asked for are read, so that loading a model costs its weights and not the optimiser's state.
Files that the manifest does not list are ignored; nothing is ever unpickled or executed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from redraft.models.checkpoints.serialization import JSON, _parse_json, read_bytes, read_json

_FORMAT = 1
MANIFEST = "manifest.json"
_PLAIN_NAME = re.compile(r"\w[\w.-]*\.(safetensors|json|md)", re.ASCII)  # plain names: no path, no pickle
_PART = re.compile(r"(.+)-(\d+)of(\d+)", re.ASCII)
_STEP = re.compile(r"step-(\d{8,})(\.old)?", re.ASCII)
_CHUNK = 1 << 20  # bytes read and hashed at a time
_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "U16": torch.uint16,
    "U32": torch.uint32,
    "U64": torch.uint64,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
}
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
class ShardedTensors(Mapping[str, Tensor]):
    """Tensors whose rows are spread over several parts, joined when asked for; a scalar is the same in all parts."""

    parts: Sequence[Mapping[str, Tensor]]

    def __getitem__(self, name: str) -> Tensor:
        rows = [part[name] for part in self.parts]
        return torch.cat(rows) if rows[0].dim() else rows[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts[0])

    def __len__(self) -> int:
        return len(self.parts[0])


@dataclass(frozen=True)
class ExportedModel:
    """What a model directory holds."""

    tensors: dict[str, Tensor]
    config: JSON
    tokenizer: JSON | None


@dataclass(frozen=True)
class _TensorTarget:
    """Where tensors go as they are read, one by one."""

    device: torch.device | str = "cpu"
    dtype: torch.dtype | None = None  # for floating-point tensors; None: as they were saved

    def __call__(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, self.dtype if tensor.is_floating_point() else None)


def read_checkpoint(
    path: Path,
    device: torch.device | str = "cpu",
    *,
    only: Collection[str] | None = None,
    dtype: torch.dtype | None = None,
) -> Checkpoint:
    """Read a checkpoint and verify what is read.

    Args:
        path: the directory of the checkpoint
        device: where the tensors go
        only: files to read, by name without ending; None: all of them
        dtype: dtype of floating-point tensors; None: as they were saved
    """
    manifest = _manifest(path)
    if manifest["step"] is None:
        raise CheckpointError(f"{path} is an exported model, not a checkpoint; read it with import_model")
    entries = {Path(name): entry for name, entry in manifest["files"].items() if only is None or _whole(name) in only}
    target = _TensorTarget(device, dtype)
    documents = {n.stem: _read_document(path / n, entry) for n, entry in entries.items() if n.suffix == ".json"}
    tensors = {n.stem: _tensors(path / n, target, entry) for n, entry in entries.items() if n.suffix == ".safetensors"}
    return Checkpoint(manifest["step"], _joined(tensors), documents)


def read_newest(
    parent: Path,
    device: torch.device | str = "cpu",
    *,
    only: Collection[str] | None = None,
    dtype: torch.dtype | None = None,
) -> Checkpoint | None:
    """Read the newest checkpoint in which the files asked for are sound; arguments as for `read_checkpoint`."""
    found = checkpoints(parent)
    for path in found:
        with _damage_logged():
            return read_checkpoint(path, device, only=only, dtype=dtype)
    _refuse_damaged(found, parent)
    return None


def latest_checkpoint(parent: Path) -> Path | None:
    """The newest checkpoint that verifies, None if there is none at all; damaged ones are named in the log."""
    found = checkpoints(parent)
    for path in found:
        if _is_verified(path):
            return path
    _refuse_damaged(found, parent)
    return None


def read_run_file(file: Path) -> dict[str, Any]:
    """What run.json says: which run a directory belongs to, and how it began."""
    try:
        held = read_json(file)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} is damaged ({error}); restore it, or choose another directory") from error
    if not isinstance(held, dict):
        raise CheckpointError(f"{file} is damaged (no JSON object); restore it, or choose another directory")
    return held


def _refuse_damaged(found: list[Path], parent: Path) -> None:
    if found:
        raise CheckpointError(f"none of the {len(found)} checkpoints in {parent} verifies; remove them to start anew")


def _verify(path: Path) -> dict[str, Any]:
    """The manifest, after comparing every byte of every file with it; a CheckpointError says what is wrong."""
    manifest = _manifest(path)
    for name, entry in manifest["files"].items():
        _check(path / name, entry)
    return manifest


def first_nonfinite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor with a value that is nan or infinite; None if all are sound."""
    floats = ((name, tensor) for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.numel())
    ends = ((name, torch.stack(torch.aminmax(tensor))) for name, tensor in floats)  # nan spreads to both
    return next((name for name, pair in ends if not bool(pair.isfinite().all())), None)


def read_export(path: Path, device: torch.device | str = "cpu", dtype: torch.dtype | None = None) -> ExportedModel:
    """Read a model directory; if it has a manifest, only listed files are read, and verified."""
    listed = _listed(path)
    if missing := {"model.safetensors", "config.json"} - listed.keys():
        pickles = "; pickled weights are never opened, convert them to safetensors"
        raise CheckpointError(f"{path} lacks {' and '.join(sorted(missing))}{pickles}")
    described = _read_document(path / "config.json", listed["config.json"])
    known = "tokenizer.json" in listed
    tokenizer = _read_document(path / "tokenizer.json", listed["tokenizer.json"]) if known else None
    tensors = _tensors(path / "model.safetensors", _TensorTarget(device, dtype), listed["model.safetensors"])
    return ExportedModel(tensors, described, tokenizer)


def read_export_config(path: Path) -> JSON:
    """The config of a model directory, without its weights."""
    return _read_document(path / "config.json", _listed(path).get("config.json"))


def _listed(path: Path) -> dict[str, Any]:
    """The files of a model directory, each with its entry in the manifest, if there is one."""
    return _manifest(path)["files"] if (path / MANIFEST).exists() else dict.fromkeys(f.name for f in path.glob("*"))


def checkpoints(parent: Path) -> list[Path]:
    """All checkpoints of a directory, the newest first, and a replaced one after its replacement."""
    paths = [path for path in parent.glob("step-*") if _STEP.fullmatch(path.name)]
    return sorted(paths, key=lambda path: (-step_number(path), path.name))


def step_number(path: Path) -> int:
    """The step in a checkpoint's name; -1 for any other name."""
    match = _STEP.fullmatch(path.name)
    return int(match[1]) if match else -1


def _is_verified(path: Path) -> bool:
    """Whether a checkpoint verifies; if not, the log says what is wrong."""
    with _damage_logged():
        _verify(path)
        return True
    return False


@contextmanager
def _damage_logged() -> Iterator[None]:
    """Skips a damaged checkpoint and names it in the log."""
    try:
        yield
    except CheckpointError as error:
        _log.warning("damaged checkpoint: %s", error)


def _manifest(path: Path) -> dict[str, Any]:
    """The manifest, if it is whole, belongs to this directory, and lists nothing but plain files of known kinds."""
    file = path / MANIFEST
    manifest = _read_document(file)
    match manifest:
        case {"format": int(version)} if version > _FORMAT:
            raise CheckpointError(f"{file} has format {version}; this version reads up to {_FORMAT}: upgrade redraft")
        case {"format": 1, "step": int() | None, "files": dict(files), "digest": str(digest)}:
            pass
        case _:
            raise CheckpointError(f"{file} is not a manifest of this library")
    if _manifest_digest({key: value for key, value in manifest.items() if key != "digest"}) != digest:
        raise CheckpointError(f"{file} is damaged or edited: its digest does not fit")
    if step_number(path) not in (-1, manifest["step"]):
        raise CheckpointError(f"{path} holds step {manifest['step']}; it is damaged or renamed")
    for name, entry in files.items():
        if (
            not _PLAIN_NAME.fullmatch(name)
            or not isinstance(entry, dict)
            or entry.keys() != {"size", "sha256", "tensors"}
        ):
            raise CheckpointError(f"{file} lists {name!r}, which cannot be a file of a checkpoint")
    return manifest


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Guards reading: the file must be regular, or a link to one in the same directory."""
    if not file.is_file():
        raise CheckpointError(f"{file} is missing or no regular file")
    if file.resolve().parent != file.parent.resolve():
        raise CheckpointError(f"{file} is a link that leaves the directory")
    try:
        yield
    except (SafetensorError, ValueError, RecursionError, OSError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error


class _Hash(Protocol):
    def update(self, data: memoryview | bytes) -> None: ...


def _tensors(file: Path, target: _TensorTarget, entry: Mapping[str, JSON] | None = None) -> dict[str, Tensor]:
    """The tensors of a file, read and hashed in one pass, each into its own memory."""
    tensors: dict[str, Tensor] = {}
    with _reading(file), open(file, "rb") as stream:
        _require_size(file, os.fstat(stream.fileno()).st_size, entry)
        layout, sha256 = tensor_layout(file), hashlib.sha256()
        head = stream.read(8)
        header = stream.read(int.from_bytes(head, "little"))
        sha256.update(head + header)
        for name, (dtype, shape) in layout.items():
            tensors[name] = target(_filled(torch.empty(shape, dtype=dtype), stream, sha256))
    _require_digest(file, sha256.hexdigest(), entry)
    _require_layout(file, layout, entry)
    return tensors


def _filled(tensor: Tensor, stream: BinaryIO, sha256: _Hash) -> Tensor:
    """The tensor, its memory filled with the next bytes of a file."""
    rest = tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else memoryview(b"")
    while rest:
        count = stream.readinto(rest[:_CHUNK])  # type: ignore[attr-defined]
        if not count:
            raise ValueError("it ends too early")
        sha256.update(rest[:count])
        rest = rest[count:]
    return tensor


def tensor_layout(file: Path) -> dict[str, tuple[torch.dtype, list[int]]]:
    """Dtype and shape of each tensor, in the order of the file; only its header is read."""
    with _reading(file), safe_open(file, framework="pt") as opened:
        slices = {name: opened.get_slice(name) for name in opened.offset_keys()}
        if unknown := {s.get_dtype() for s in slices.values()} - _DTYPES.keys():
            raise ValueError(f"it has tensors of unknown type {min(unknown)}")
        return {name: (_DTYPES[s.get_dtype()], s.get_shape()) for name, s in slices.items()}


def _whole(name: str) -> str:
    """The name of a file without its ending and without its part."""
    match = _PART.fullmatch(stem := Path(name).stem)
    return match[1] if match else stem


def _joined(files: Mapping[str, dict[str, Tensor]]) -> dict[str, Mapping[str, Tensor]]:
    """Files by stem; parts that a team wrote appear under the stem of the whole."""
    parts: dict[str, dict[int, dict[str, Tensor]]] = {}
    for stem, tensors in files.items():
        match = _PART.fullmatch(stem)
        whole, number = (match[1], int(match[2])) if match else (stem, 0)
        parts.setdefault(whole, {})[number] = tensors
    return {
        stem: found[0] if 0 in found else ShardedTensors([found[n] for n in sorted(found)])
        for stem, found in parts.items()
    }


def _read_document(file: Path, entry: Mapping[str, JSON] | None = None) -> JSON:
    """The JSON value in a file, which must agree with its entry in the manifest, if there is one."""
    with _reading(file):
        data = read_bytes(file)
        _require_size(file, len(data), entry)
        _require_digest(file, hashlib.sha256(data).hexdigest(), entry)
        return _parse_json(data)


def _check(file: Path, entry: Mapping[str, JSON]) -> None:
    """Raises unless the file agrees with its entry in the manifest."""
    with _reading(file), open(file, "rb") as stream:
        _require_size(file, os.fstat(stream.fileno()).st_size, entry)
        _require_digest(file, hashlib.file_digest(stream, "sha256").hexdigest(), entry)
    if file.suffix == ".safetensors":
        _require_layout(file, tensor_layout(file), entry)


def _require_size(file: Path, size: int, entry: Mapping[str, JSON] | None) -> None:
    if entry is not None and size != entry["size"]:
        raise CheckpointError(f"{file} has {size} bytes; the manifest says {entry['size']}")


def _require_digest(file: Path, sha256: str, entry: Mapping[str, JSON] | None) -> None:
    if entry is not None and sha256 != entry["sha256"]:
        raise CheckpointError(f"{file} is damaged: its SHA-256 is not that of the manifest")


def _require_layout(
    file: Path, layout: Mapping[str, tuple[torch.dtype, list[int]]], entry: Mapping[str, JSON] | None
) -> None:
    if entry is not None and {name: _shape(*found) for name, found in layout.items()} != entry["tensors"]:
        raise CheckpointError(f"{file} holds other tensors, dtypes or shapes than the manifest says")


def _tensor_shapes(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """{"weight": "float32[4, 6]"}"""
    return {name: _shape(tensor.dtype, list(tensor.shape)) for name, tensor in tensors.items()}


def _shape(dtype: torch.dtype, shape: list[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')}{shape}"


def _manifest_digest(manifest: Mapping[str, JSON]) -> str:
    """The digest that a manifest ends with."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
