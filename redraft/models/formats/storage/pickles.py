"""Weights in PyTorch's own format (.bin, .ckpt, .pt): only tensors are unpickled, nothing else, ever.

`torch.load(weights_only=True)` builds tensors and plain containers and refuses every other class; there is no way
around it here. Such files are read by `redraft import` alone, which writes them as safetensors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
from torch import Tensor

from redraft.models.checkpoints.reader import CheckpointError
from redraft.models.formats.storage.files import PICKLED, _read_object
from redraft.models.formats.storage.tensors import shorten_list

_INDEX = "pytorch_model.bin.index.json"


class _PickledTensors(NamedTuple):
    """The tensors of pickled files."""

    tensors: dict[str, Tensor]
    assumed: tuple[str, ...] = ()


def read_pickles(path: Path) -> _PickledTensors:
    """The tensors of a file, or of the pickled weights in a directory."""
    found: dict[str, Tensor] = {}
    notes: tuple[str, ...] = ()
    for file in [path] if path.is_file() else _files(path):
        part = _state(_loaded(file), file)
        if twice := found.keys() & part.tensors.keys():
            raise CheckpointError(f"{path} holds {min(twice)} twice; remove one file")
        found, notes = {**found, **part.tensors}, notes + part.assumed
    return _PickledTensors(found, notes)


def _files(path: Path) -> list[Path]:
    if (path / _INDEX).is_file():
        named = _read_object(path / _INDEX).get("weight_map")
        names = sorted(set(named.values())) if isinstance(named, dict) else []
        if not names or any(not isinstance(n, str) or Path(n).name != n or not (path / n).is_file() for n in names):
            raise CheckpointError(f"{path / _INDEX} does not name the files beside it; restore it")
        return [path / name for name in names]
    found = sorted(file for file in path.iterdir() if file.suffix in PICKLED and file.is_file())
    if len(found) != 1:
        raise CheckpointError(
            f"{path} has {len(found)} files of weights ({shorten_list([f.name for f in found])}); name one"
        )
    return found


def _loaded(file: Path) -> Any:
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=_is_zip(file))
    except UnpicklingError as error:
        raise CheckpointError(
            f"{file} holds more than tensors ({_named(str(error)):.200}); opening that could run any code, so it is "
            "refused: save the state dict alone"
        ) from None
    except (RuntimeError, ValueError, EOFError, OSError, AttributeError, KeyError, IndexError, TypeError) as error:
        raise CheckpointError(
            f"{file} is damaged: {str(error).splitlines()[0] if str(error) else error!r:.200}"
        ) from None


def _named(said: str) -> str:
    """What torch refused, out of its long advice."""
    found = re.search(r"GLOBAL ([\w.]+)", said)
    return found[1] if found else next((line.strip() for line in said.splitlines() if "nsupported" in line), "objects")


def _is_zip(file: Path) -> bool:
    """Whether it has the format of today, which can be read without copying; older ones cannot."""
    with open(file, "rb") as stream:
        return stream.read(4) == b"PK\x03\x04"


def _state(found: Any, file: Path) -> _PickledTensors:
    """The state dict inside what a file holds: itself, or where training loops put it; averaged if they say so."""
    match found:
        case {"ema_params": dict(state)} if state:
            return _PickledTensors(_only_tensors(state, file), ("the averaged weights were taken",))
        case {"state_dict": dict(state), "ema": {"shadow_params": list(shadow)}}:
            return _averaged(_only_tensors(state, file), shadow)
        case {"state_dict": dict(state)} | {"model": dict(state)} | {"module": dict(state)}:
            return _PickledTensors(_only_tensors(state, file))
        case dict():
            return _PickledTensors(_only_tensors(found, file))
    raise CheckpointError(f"{file} holds a {type(found).__name__}; it must hold a dictionary of tensors")


def _only_tensors(state: Mapping[Any, Any], file: Path) -> dict[str, Tensor]:
    if wrong := [name for name, value in state.items() if not isinstance(value, Tensor) or not isinstance(name, str)]:
        raise CheckpointError(f"{file}: {wrong[0]!r:.80} is no tensor; save the state dict alone")
    return dict(state)


def _averaged(state: dict[str, Tensor], shadow: list[Any]) -> _PickledTensors:
    """MDLM and its kin keep averages as a list in the order of the trained tensors of the network."""
    names = [name for name in state if name.startswith("backbone.") and "rotary_emb" not in name]
    fits = len(names) == len(shadow) and all(
        isinstance(tensor, Tensor) and tensor.shape == state[name].shape
        for name, tensor in zip(names, shadow, strict=True)
    )
    if not fits:
        return _PickledTensors(state, ("the weights as trained: its averages do not fit their names",))
    return _PickledTensors({**state, **dict(zip(names, shadow, strict=True))}, ("the averaged weights were taken",))
