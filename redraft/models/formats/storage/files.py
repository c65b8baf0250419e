"""The files of a foreign directory: settings, tokenizer, and where the weights lie. Nothing is executed.

Only regular files of the directory are read; of a download of the Hugging Face hub also what it links to.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from redraft.core.text.tokenizers import HubTokenizer
from redraft.models.checkpoints.reader import CheckpointError, tensor_layout
from redraft.models.checkpoints.serialization import read_json
from redraft.models.formats.storage.tensors import ForeignSettings, TensorInFile, shorten_list

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED = {".bin", ".pt", ".pth", ".ckpt"}


def read_settings(path: Path) -> ForeignSettings:
    """The config.json of a directory."""
    return _read_object(path / "config.json")


def _read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        found = read_json(file)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{file} is a {type(found).__name__}; it must be an object")
    return found


def read_tokenizer(path: Path) -> HubTokenizer | None:
    """The tokenizer that lies beside the weights, with its special tokens and its chat template."""
    if not (path / "tokenizer.json").is_file():
        return None
    try:
        return HubTokenizer.load(path)
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"the tokenizer in {path} cannot be read: {error}") from error


def locate_weights(path: Path) -> dict[str, TensorInFile]:
    """Where each tensor of a directory lies; only headers are read."""
    refuse_pickles(path)
    names = _shards(path / _INDEX) if (path / _INDEX).is_file() else [_WEIGHTS]
    if missing := [name for name in names if Path(name).name != name or not (path / name).is_file()]:
        raise CheckpointError(
            f"{path} lacks {shorten_list(missing)}; the weights must lie beside config.json, as safetensors"
        )
    found: dict[str, TensorInFile] = {}
    for name in names:
        for tensor, place in _placed(_real(path, name)).items():
            if tensor in found:
                raise CheckpointError(f"{path} holds {tensor} twice, in {found[tensor].file.name} and {name}")
            found[tensor] = place
    return found


def _placed(file: Path) -> dict[str, TensorInFile]:
    """A file of safetensors is its header and then all tensors without gaps, in the order of their offsets."""
    try:
        tensors = tensor_layout(file)
        with open(file, "rb") as stream:
            offset = 8 + int.from_bytes(stream.read(8), "little")
    except (CheckpointError, OSError) as error:
        raise CheckpointError(f"the weights in {file} are damaged: {error}") from error
    found = {}
    for name, (dtype, shape) in tensors.items():
        found[name] = TensorInFile(file, offset, dtype, torch.Size(shape))
        offset += found[name].shape.numel() * dtype.itemsize
    return found


def _real(path: Path, name: str) -> Path:
    """A file of a directory; links may lead only to what the hub's cache keeps for it."""
    home, real = path.resolve(), (path / name).resolve()
    kept = home.parent.parent / "blobs" if home.parent.name == "snapshots" else home
    if real.parent not in (home, kept):
        raise CheckpointError(f"{path / name} is a link that leaves the directory")
    return real


def _shards(index: Path) -> list[str]:
    """The files that an index names."""
    match _read_object(index):
        case {"weight_map": dict(places)} if all(isinstance(name, str) for name in places.values()):
            return sorted(set(places.values()))
    raise CheckpointError(f'{index} has no "weight_map" of file names; restore it')


def refuse_pickles(path: Path) -> None:
    """An error for a file, or a directory without safetensors, of pickled weights: opening them can run any code."""
    files = [path] if path.is_file() else sorted(path.iterdir()) if path.is_dir() else []
    pickled = [file.name for file in files if file.suffix in PICKLED]
    if pickled and not any(file.suffix == ".safetensors" for file in files):
        raise CheckpointError(
            f"{path} holds pickled weights ({shorten_list(pickled)}); only safetensors are read. Convert them once: "
            f"redraft import {path} --out DIR, which reads nothing but tensors (weights_only=True)"
        )
