"""Reads weights pickled by PyTorch (.bin, .ckpt, .pt, .pth). Only tensors are ever unpickled.

`torch.load(weights_only=True)` builds tensors and plain containers and refuses every other class, and nothing here
turns that off. Only `redraft import` reads such files; it writes them as safetensors.
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
from redraft.models.formats.storage.files import PICKLE_SUFFIXES, _read_object
from redraft.models.formats.storage.tensors import shorten_list

_INDEX = "pytorch_model.bin.index.json"


class _PickledTensors(NamedTuple):
    """The tensors of pickled files, with notes on choices such as averaged over raw weights."""

    tensors: dict[str, Tensor]
    assumed: tuple[str, ...] = ()  # notes for the user


def read_pickles(path: Path) -> _PickledTensors:
    """Read the tensors of a pickled file, or of the pickled weights in a directory."""
    tensors: dict[str, Tensor] = {}
    notes: tuple[str, ...] = ()
    for file in [path] if path.is_file() else _list_files(path):
        state = _find_state_dict(_load(file), file)
        if twice := tensors.keys() & state.tensors.keys():
            raise CheckpointError(f"{path} holds {min(twice)} twice; remove one file")
        tensors, notes = {**tensors, **state.tensors}, notes + state.assumed
    return _PickledTensors(tensors, notes)


def _list_files(path: Path) -> list[Path]:
    if (path / _INDEX).is_file():
        file_of = _read_object(path / _INDEX).get("weight_map")
        names = sorted(set(file_of.values())) if isinstance(file_of, dict) else []
        if not names or any(not isinstance(n, str) or Path(n).name != n or not (path / n).is_file() for n in names):
            raise CheckpointError(f"{path / _INDEX} does not name files in its directory; restore it")
        return [path / name for name in names]
    files = sorted(file for file in path.iterdir() if file.suffix in PICKLE_SUFFIXES and file.is_file())
    if len(files) != 1:
        raise CheckpointError(
            f"{path} has {len(files)} files of weights ({shorten_list([f.name for f in files])}); give the path of one"
        )
    return files


def _load(file: Path) -> Any:
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=_is_zip(file))
    except UnpicklingError as error:
        raise CheckpointError(
            f"{file} holds more than tensors ({_refused_class(str(error)):.200}); opening that could run any code; "
            "save only the state dict"
        ) from None
    except (RuntimeError, ValueError, EOFError, OSError, AttributeError, KeyError, IndexError, TypeError) as error:
        raise CheckpointError(
            f"{file} is damaged: {str(error).splitlines()[0] if str(error) else error!r:.200}"
        ) from None


def _refused_class(message: str) -> str:
    """Extract what torch refused from its long error message."""
    if match := re.search(r"GLOBAL ([\w.]+)", message):
        return match[1]
    return next((line.strip() for line in message.splitlines() if "nsupported" in line), "objects")


def _is_zip(file: Path) -> bool:
    """Whether a file has PyTorch's zip format, which can be memory-mapped; the older format cannot."""
    with open(file, "rb") as stream:
        return stream.read(4) == b"PK\x03\x04"


def _find_state_dict(content: Any, file: Path) -> _PickledTensors:
    """Find the state dict: the content itself, or an entry used by training loops. Averaged weights are preferred."""
    match content:
        case {"ema_params": dict(state)} if state:
            return _PickledTensors(_require_tensors(state, file), ("the averaged weights (EMA) are used",))
        case {"state_dict": dict(state), "ema": {"shadow_params": list(shadow)}}:
            return _with_averages(_require_tensors(state, file), shadow)
        case {"state_dict": dict(state)} | {"model": dict(state)} | {"module": dict(state)}:
            return _PickledTensors(_require_tensors(state, file))
        case dict():
            return _PickledTensors(_require_tensors(content, file))
    raise CheckpointError(f"{file} holds a {type(content).__name__}; it must hold a dictionary of tensors")


def _require_tensors(state: Mapping[Any, Any], file: Path) -> dict[str, Tensor]:
    if wrong := [name for name, value in state.items() if not isinstance(value, Tensor) or not isinstance(name, str)]:
        raise CheckpointError(f"{file}: {wrong[0]!r:.80} is not a named tensor; save only the state dict")
    return dict(state)


def _with_averages(state: dict[str, Tensor], shadow: list[Any]) -> _PickledTensors:
    """Replace weights by their averages, which MDLM and related projects store as a list in the network's order."""
    names = [name for name in state if name.startswith("backbone.") and "rotary_emb" not in name]
    fits = len(names) == len(shadow) and all(
        isinstance(tensor, Tensor) and tensor.shape == state[name].shape
        for name, tensor in zip(names, shadow, strict=True)
    )
    if not fits:
        return _PickledTensors(state, ("the raw weights are used: the averaged ones (EMA) do not match their names",))
    averages = dict(zip(names, shadow, strict=True))
    return _PickledTensors({**state, **averages}, ("the averaged weights (EMA) are used",))
