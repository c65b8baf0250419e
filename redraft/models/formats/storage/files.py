"""Reads directories of other projects: settings, tokenizer, and the locations of the weights. Nothing is executed.

Only regular files in the directory are read. In the Hugging Face cache, links to its blobs are followed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from redraft.core.text.tokenizers import HubTokenizer
from redraft.models.checkpoints.reader import CheckpointError, tensor_layout
from redraft.models.checkpoints.serialization import read_json
from redraft.models.formats.storage.tensors import ForeignSettings, _TensorInFile, shorten_list

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLE_SUFFIXES = {".bin", ".pt", ".pth", ".ckpt"}


def read_settings(path: Path) -> ForeignSettings:
    """Read config.json of a directory."""
    return _read_object(path / "config.json")


def _read_object(file: Path) -> dict[str, Any]:
    """Read a file that must hold a JSON object."""
    try:
        data = read_json(file)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{file} holds a {type(data).__name__}; it must hold a JSON object")
    return data


def read_tokenizer(path: Path) -> HubTokenizer | None:
    """Read the tokenizer next to the weights, with its special tokens and chat template; None if there is none."""
    if not (path / "tokenizer.json").is_file():
        return None
    try:
        return HubTokenizer.load(path)
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"the tokenizer in {path} cannot be read: {error}") from error


def locate_weights(path: Path) -> dict[str, _TensorInFile]:
    """Return the location of each tensor in a directory; only headers are read."""
    refuse_pickles(path)
    files = _read_index(path / _INDEX) if (path / _INDEX).is_file() else [_WEIGHTS]
    if missing := [file for file in files if Path(file).name != file or not (path / file).is_file()]:
        raise CheckpointError(
            f"{path} lacks {shorten_list(missing)}; the weights must be next to config.json, as safetensors"
        )
    tensors: dict[str, _TensorInFile] = {}
    for file in files:
        for name, tensor in _locate_tensors(_resolve(path, file)).items():
            if name in tensors:
                raise CheckpointError(f"{path} holds {name} twice, in {tensors[name].file.name} and {file}; remove one")
            tensors[name] = tensor
    return tensors


def _locate_tensors(file: Path) -> dict[str, _TensorInFile]:
    """Return the location of each tensor in a safetensors file: they follow the header, without gaps."""
    try:
        layout = tensor_layout(file)
        with open(file, "rb") as stream:
            offset = 8 + int.from_bytes(stream.read(8), "little")
    except (CheckpointError, OSError) as error:
        raise CheckpointError(f"the weights in {file} are damaged: {error}") from error
    tensors = {}
    for name, (dtype, shape) in layout.items():
        tensors[name] = _TensorInFile(file, offset, dtype, torch.Size(shape))
        offset += tensors[name].shape.numel() * dtype.itemsize
    return tensors


def _resolve(path: Path, name: str) -> Path:
    """Resolve a file; a link may lead only to the same directory or to the blobs of a Hugging Face cache."""
    directory, file = path.resolve(), (path / name).resolve()
    blobs = directory.parent.parent / "blobs" if directory.parent.name == "snapshots" else directory
    if file.parent not in (directory, blobs):
        raise CheckpointError(f"{path / name} is a link that leaves the directory; copy the file there")
    return file


def _read_index(index: Path) -> list[str]:
    """List the files that a safetensors index names."""
    match _read_object(index):
        case {"weight_map": dict(file_of)} if all(isinstance(file, str) for file in file_of.values()):
            return sorted(set(file_of.values()))
    raise CheckpointError(f'{index} has no "weight_map" of file names; restore it')


def refuse_pickles(path: Path) -> None:
    """Raise if `path` is a pickle, or a directory with pickles but no safetensors: unpickling can run any code."""
    files = [path] if path.is_file() else sorted(path.iterdir()) if path.is_dir() else []
    pickled = [file.name for file in files if file.suffix in PICKLE_SUFFIXES]
    if pickled and not any(file.suffix == ".safetensors" for file in files):
        raise CheckpointError(
            f"{path} holds pickled weights ({shorten_list(pickled)}); only safetensors are read. Convert them once: "
            f"redraft import {path} --out DIR, which reads nothing but tensors (weights_only=True)"
        )
