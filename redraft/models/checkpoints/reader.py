"""Finds, verifies and reads checkpoints and exported models.

Each file is read once and hashed as it is read, so the bytes used are the bytes compared with the manifest.
Only the requested files are read: loading a model does not read the optimizer state.
Files that the manifest does not list are ignored. Nothing is ever unpickled or executed.
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
_PLAIN_NAME = re.compile(r"\w[\w.-]*\.(safetensors|json|md)", re.ASCII)  # excludes paths and pickles
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
    """Raised when a checkpoint cannot be written, cannot be read, or must not be used."""


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint."""

    step: int  # training step
    tensors: dict[str, Mapping[str, Tensor]]  # tensors by name, for each safetensors file by its stem
    documents: dict[str, JSON]  # JSON value of each file by its stem


@dataclass(frozen=True)
class _ShardedTensors(Mapping[str, Tensor]):
    """Tensors whose rows are sharded over several files; concatenated on access. Scalars are equal in all parts."""

    parts: Sequence[Mapping[str, Tensor]]  # tensors of each file, in row order

    def __getitem__(self, name: str) -> Tensor:
        rows = [part[name] for part in self.parts]
        return torch.cat(rows) if rows[0].dim() else rows[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts[0])

    def __len__(self) -> int:
        return len(self.parts[0])


@dataclass(frozen=True)
class _ExportedModel:
    """The contents of an exported model directory."""

    tensors: dict[str, Tensor]
    config: JSON
    tokenizer: JSON | None  # content of tokenizer.json; None if there is no such file


@dataclass(frozen=True)
class _TensorTarget:
    """Moves each tensor to a device and dtype as it is read."""

    device: torch.device | str = "cpu"
    dtype: torch.dtype | None = None  # dtype of floating-point tensors; None to keep the stored one

    def __call__(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, self.dtype if tensor.is_floating_point() else None)


def read_checkpoint(
    path: Path,
    device: torch.device | str = "cpu",
    *,
    only: Collection[str] | None = None,
    dtype: torch.dtype | None = None,
) -> Checkpoint:
    """Read a checkpoint and verify the files that are read.

    Args:
        path: directory of the checkpoint
        device: device for the tensors
        only: stems of the files to read; None for all files
        dtype: dtype of floating-point tensors; None to keep the stored one
    """
    manifest = _manifest(path)
    if manifest["step"] is None:
        raise CheckpointError(f"{path} is an exported model, not a checkpoint; read it with read_export")
    entries = {Path(name): entry for name, entry in manifest["files"].items() if only is None or _stem(name) in only}
    target = _TensorTarget(device, dtype)
    documents = {n.stem: _read_document(path / n, entry) for n, entry in entries.items() if n.suffix == ".json"}
    tensors = {
        n.stem: _read_tensors(path / n, target, entry) for n, entry in entries.items() if n.suffix == ".safetensors"
    }
    return Checkpoint(manifest["step"], _join_parts(tensors), documents)


def read_newest(
    parent: Path,
    device: torch.device | str = "cpu",
    *,
    only: Collection[str] | None = None,
    dtype: torch.dtype | None = None,
) -> Checkpoint | None:
    """Read the newest checkpoint of `parent` whose requested files are undamaged; None if there are no checkpoints.

    The other arguments are those of `read_checkpoint`. Raises if every checkpoint is damaged.
    """
    paths = checkpoints(parent)
    for path in paths:
        with _log_damage():
            return read_checkpoint(path, device, only=only, dtype=dtype)
    _refuse_if_all_damaged(paths, parent)
    return None


def latest_checkpoint(parent: Path) -> Path | None:
    """Return the newest checkpoint that verifies, or None if there are no checkpoints; log any damaged ones.

    Raises if every checkpoint is damaged.
    """
    paths = checkpoints(parent)
    for path in paths:
        if _is_verified(path):
            return path
    _refuse_if_all_damaged(paths, parent)
    return None


def read_run_file(file: Path) -> dict[str, Any]:
    """Read run.json, which says which run a directory belongs to and how it was started."""
    try:
        data = read_json(file)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} is damaged ({error}); restore it, or choose another directory") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{file} is damaged (not a JSON object); restore it, or choose another directory")
    return data


def _refuse_if_all_damaged(paths: list[Path], parent: Path) -> None:
    if paths:
        raise CheckpointError(f"none of the {len(paths)} checkpoints in {parent} verifies; remove them to start anew")


def _verify(path: Path) -> dict[str, Any]:
    """Compare every file with the manifest and return the manifest; a CheckpointError says what is wrong."""
    manifest = _manifest(path)
    for name, entry in manifest["files"].items():
        _verify_file(path / name, entry)
    return manifest


def first_nonfinite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor with a NaN or infinite value; None if all values are finite."""
    floats = ((name, tensor) for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.numel())
    extremes = ((name, torch.stack(torch.aminmax(tensor))) for name, tensor in floats)  # a NaN makes both NaN
    return next((name for name, pair in extremes if not bool(pair.isfinite().all())), None)


def read_export(path: Path, device: torch.device | str = "cpu", dtype: torch.dtype | None = None) -> _ExportedModel:
    """Read an exported model directory; if it has a manifest, only the files it lists are read and verified."""
    entries = _list_files(path)
    if missing := {"model.safetensors", "config.json"} - entries.keys():
        pickles = "; pickled weights are never opened, convert them to safetensors"
        raise CheckpointError(f"{path} lacks {' and '.join(sorted(missing))}{pickles}")
    config = _read_document(path / "config.json", entries["config.json"])
    has_tokenizer = "tokenizer.json" in entries
    tokenizer = _read_document(path / "tokenizer.json", entries["tokenizer.json"]) if has_tokenizer else None
    tensors = _read_tensors(path / "model.safetensors", _TensorTarget(device, dtype), entries["model.safetensors"])
    return _ExportedModel(tensors, config, tokenizer)


def read_export_config(path: Path) -> JSON:
    """Read the config of an exported model directory, without its weights."""
    return _read_document(path / "config.json", _list_files(path).get("config.json"))


def _list_files(path: Path) -> dict[str, Any]:
    """Map each file name of a model directory to its manifest entry, or to None if there is no manifest."""
    return _manifest(path)["files"] if (path / MANIFEST).exists() else dict.fromkeys(f.name for f in path.glob("*"))


def checkpoints(parent: Path) -> list[Path]:
    """List all checkpoints in a directory, newest first; `step-….old` comes after the checkpoint that replaced it."""
    paths = [path for path in parent.glob("step-*") if _STEP.fullmatch(path.name)]
    return sorted(paths, key=lambda path: (-step_number(path), path.name))


def step_number(path: Path) -> int:
    """Return the step in a checkpoint's name; -1 for any other name."""
    match = _STEP.fullmatch(path.name)
    return int(match[1]) if match else -1


def _is_verified(path: Path) -> bool:
    """Whether a checkpoint verifies; logs what is wrong if it does not."""
    with _log_damage():
        _verify(path)
        return True
    return False


@contextmanager
def _log_damage() -> Iterator[None]:
    """Log a CheckpointError instead of raising it, so that the caller goes on to the next checkpoint."""
    try:
        yield
    except CheckpointError as error:
        _log.warning("damaged checkpoint: %s", error)


def _manifest(path: Path) -> dict[str, Any]:
    """Read the manifest; raise unless it is intact, belongs to this directory, and lists only valid file names."""
    file = path / MANIFEST
    manifest = _read_document(file)
    match manifest:
        case {"format": int(version)} if version > _FORMAT:
            raise CheckpointError(
                f"{file} has format {version}; this version of redraft reads formats up to {_FORMAT}; upgrade redraft"
            )
        case {"format": 1, "step": int() | None, "files": dict(files), "digest": str(digest)}:
            pass
        case _:
            raise CheckpointError(f"{file} is not a manifest of Redraft; give another directory")
    if _manifest_digest({key: value for key, value in manifest.items() if key != "digest"}) != digest:
        raise CheckpointError(f"{file} is damaged or edited: its digest does not match its content")
    if step_number(path) not in (-1, manifest["step"]):
        raise CheckpointError(f"{path} holds step {manifest['step']}; it is damaged or renamed")
    for name, entry in files.items():
        if (
            not _PLAIN_NAME.fullmatch(name)
            or not isinstance(entry, dict)
            or entry.keys() != {"size", "sha256", "tensors"}
        ):
            raise CheckpointError(f"{file} has an invalid name or entry for a file, {name!r}; remove this checkpoint")
    return manifest


@contextmanager
def _guarded(file: Path) -> Iterator[None]:
    """Guard the reading of a file: it must be regular, or a link to a regular file in the same directory."""
    if not file.is_file():
        raise CheckpointError(f"{file} is missing or not a regular file")
    if file.resolve().parent != file.parent.resolve():
        raise CheckpointError(f"{file} is a link that leaves the directory; copy the file there")
    try:
        yield
    except (SafetensorError, ValueError, RecursionError, OSError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error


class _Hash(Protocol):
    def update(self, data: memoryview | bytes) -> None: ...


def _read_tensors(file: Path, target: _TensorTarget, entry: Mapping[str, JSON] | None = None) -> dict[str, Tensor]:
    """Read and hash the tensors of a file in one pass, each into its own memory; verify them if `entry` is given."""
    tensors: dict[str, Tensor] = {}
    with _guarded(file), open(file, "rb") as stream:
        _require_size(file, os.fstat(stream.fileno()).st_size, entry)
        layout, sha256 = tensor_layout(file), hashlib.sha256()
        head = stream.read(8)
        header = stream.read(int.from_bytes(head, "little"))
        sha256.update(head + header)
        for name, (dtype, shape) in layout.items():
            tensors[name] = target(_fill(torch.empty(shape, dtype=dtype), stream, sha256))
    _require_digest(file, sha256.hexdigest(), entry)
    _require_layout(file, layout, entry)
    return tensors


def _fill(tensor: Tensor, stream: BinaryIO, sha256: _Hash) -> Tensor:
    """Fill the tensor's memory with the next bytes of a file; return the tensor."""
    rest = tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else memoryview(b"")
    while rest:
        count = stream.readinto(rest[:_CHUNK])  # type: ignore[attr-defined]
        if not count:
            raise ValueError("it ends too early")
        sha256.update(rest[:count])
        rest = rest[count:]
    return tensor


def tensor_layout(file: Path) -> dict[str, tuple[torch.dtype, list[int]]]:
    """Return the dtype and shape of each tensor, in file order; only the header is read."""
    with _guarded(file), safe_open(file, framework="pt") as tensors:
        slices = {name: tensors.get_slice(name) for name in tensors.offset_keys()}
        if unknown := {s.get_dtype() for s in slices.values()} - _DTYPES.keys():
            raise ValueError(f"it has tensors of unknown dtype {min(unknown)}")
        return {name: (_DTYPES[s.get_dtype()], s.get_shape()) for name, s in slices.items()}


def _stem(name: str) -> str:
    """Return a file name without its suffix and without its part number: model-1of2.safetensors → model."""
    match = _PART.fullmatch(stem := Path(name).stem)
    return match[1] if match else stem


def _join_parts(files: Mapping[str, dict[str, Tensor]]) -> dict[str, Mapping[str, Tensor]]:
    """Map each stem to its tensors, joining files that several workers wrote (model-1of2, model-2of2 → model)."""
    parts: dict[str, dict[int, dict[str, Tensor]]] = {}
    for file_stem, tensors in files.items():
        match = _PART.fullmatch(file_stem)
        stem, index = (match[1], int(match[2])) if match else (file_stem, 0)  # 0: not split
        parts.setdefault(stem, {})[index] = tensors
    return {
        stem: shards[0] if 0 in shards else _ShardedTensors([shards[index] for index in sorted(shards)])
        for stem, shards in parts.items()
    }


def _read_document(file: Path, entry: Mapping[str, JSON] | None = None) -> JSON:
    """Read a JSON file; verify it against its manifest entry if `entry` is given."""
    with _guarded(file):
        data = read_bytes(file)
        _require_size(file, len(data), entry)
        _require_digest(file, hashlib.sha256(data).hexdigest(), entry)
        return _parse_json(data)


def _verify_file(file: Path, entry: Mapping[str, JSON]) -> None:
    """Raise unless the file matches its manifest entry."""
    with _guarded(file), open(file, "rb") as stream:
        _require_size(file, os.fstat(stream.fileno()).st_size, entry)
        _require_digest(file, hashlib.file_digest(stream, "sha256").hexdigest(), entry)
    if file.suffix == ".safetensors":
        _require_layout(file, tensor_layout(file), entry)


def _require_size(file: Path, size: int, entry: Mapping[str, JSON] | None) -> None:
    if entry is not None and size != entry["size"]:
        raise CheckpointError(f"{file} has {size} bytes; the manifest says {entry['size']}")


def _require_digest(file: Path, sha256: str, entry: Mapping[str, JSON] | None) -> None:
    if entry is not None and sha256 != entry["sha256"]:
        raise CheckpointError(f"{file} is damaged: its SHA-256 differs from the manifest's")


def _require_layout(
    file: Path, layout: Mapping[str, tuple[torch.dtype, list[int]]], entry: Mapping[str, JSON] | None
) -> None:
    if entry is None:
        return
    if {name: _describe_tensor(dtype, shape) for name, (dtype, shape) in layout.items()} != entry["tensors"]:
        raise CheckpointError(f"the tensors, dtypes or shapes in {file} are not those that the manifest lists")


def _describe_tensors(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the dtype and shape of each tensor as text: {"weight": "float32[4, 6]"}."""
    return {name: _describe_tensor(tensor.dtype, list(tensor.shape)) for name, tensor in tensors.items()}


def _describe_tensor(dtype: torch.dtype, shape: list[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')}{shape}"


def _manifest_digest(manifest: Mapping[str, JSON]) -> str:
    """Return the SHA-256 of the manifest's canonical JSON, which is stored as its last entry."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
