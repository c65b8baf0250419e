"""Detects the format of a foreign checkpoint and imports it: from a directory to a config and weights of ours."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from redraft.core.text.tokenizers import HubTokenizer
from redraft.models.checkpoints.reader import CheckpointError
from redraft.models.config import DiffusionLMConfig
from redraft.models.formats import dit, gpt2, llada, llama
from redraft.models.formats.checkpoint import _embedding_rows, _ForeignCheckpoint, _Format
from redraft.models.formats.storage import files
from redraft.models.formats.storage.tensors import ForeignSettings, ForeignWeights, LayoutError, shorten_list

_FORMATS: dict[str, _Format] = {**dit._FORMATS, **llada._FORMATS, **llama._FORMATS, **gpt2._FORMATS}
_FORMAT_OF_TYPE = {
    "bd3lm": "BD3-LM",
    "udlm": "UDLM",
    "mdlm": "MDLM",
    "llada": "LLaDA",
    "Dream": "Dream",
    "a2d-llama": "A2D (Llama)",
    "a2d-qwen2": "A2D (Qwen2)",
    "a2d-qwen3": "A2D (Qwen3)",
    "sdar": "SDAR",
    "Fast_dLLM_Qwen": "Fast-dLLM v2",
    "gpt2": "GPT-2",
    "llama": "Llama",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
}


def _detect_format(settings: ForeignSettings, names: Collection[str]) -> str | None:
    """Detect the format from settings (nested in training runs, flat in exports) and tensor names."""
    match settings:
        case {"interpolant": {"type": "any-order"}}:
            return "FlexMDM"
        case {"algo": {"name": "bd3lm"}}:
            return "BD3-LM"
        case {"graph": {"type": "absorb" | "uniform"}, "tokens": int()}:
            return "SEDD"
        case {"backbone": "dit", "diffusion": "uniform"}:
            return "UDLM"
        case {"backbone": "dit", "parameterization": "subs"}:
            return "MDLM"
        case {"model_type": "dit", "p_uniform": _}:
            return "GIDD"
        case {"model_type": "gpt2"} if any(name.startswith("denoise_model.") for name in names):
            return "DiffuGPT"
        case {"model_type": "llama", "mask_token_id": int()}:
            return "DiffuLLaMA"
        case {"model_type": "qwen2", "auto_map": {"AutoModelForCausalLM": str()}}:
            return "Open-dCoder"
        case {"model_type": str(kind)}:
            return _FORMAT_OF_TYPE.get(kind)
        case {"block_type": "llama", "d_model": _}:
            return "LLaDA"
        case {"hidden_act": _, "mask_token_id": int()}:
            return "Dream"
    return None


class ImportedModel(NamedTuple):
    """An imported checkpoint: config, tokenizer and weights of our `DiffusionLM`."""

    model: DiffusionLMConfig
    tokenizer: HubTokenizer | None
    weights: dict[str, Tensor]  # by parameter name of the DiffusionLM
    assumed: tuple[str, ...] = ()  # assumptions, as notes for the user
    format: str = ""  # key of `_FORMATS`


def import_folder(
    path: Path,
    dtype: torch.dtype | None = None,
    *,
    name: str | None = None,
    mask: int | str | None = None,
    attention: str | None = None,
) -> ImportedModel:
    """Import the model in a directory written by another project.

    path: the directory.
    dtype: dtype of the weights; None for float32.
    name: name of its repository; None if it is the directory's name.
    mask: id or text of the mask token, if the files do not name it.
    attention: causal, full or block:SIZE, if the files do not say it.
    """
    original = _ForeignCheckpoint(
        files.read_settings(path), path.name if name is None else name, files.read_tokenizer(path), mask, attention
    )
    return _import_tensors(original, files.locate_weights(path), str(path), dtype)


def _import_tensors(
    original: _ForeignCheckpoint, weights: ForeignWeights, where: str, dtype: torch.dtype | None = None
) -> ImportedModel:
    """Import a model from its settings and weights; `where` names their source in error messages."""
    if (format_name := _detect_format(original.settings, weights)) is None:
        raise CheckpointError(
            f"{where} is not in a known format: its config.json has {_describe_settings(original.settings)}; the known "
            f"formats are {', '.join(_FORMATS)}"
        )
    try:
        network, state = _FORMATS[format_name].layout(weights, original.settings, dtype)
        interpreted = _FORMATS[format_name].interpret(original, network)
        model = _without_padding(interpreted.model)
    except (ValueError, TypeError, AttributeError, KeyError) as error:  # a LayoutError, or settings of a wrong type
        raise CheckpointError(f"{where} was taken for {format_name}, but {_error_text(error)}") from error
    state = {f"network.{name}": tensor for name, tensor in state.items()}
    return ImportedModel(model, interpreted.tokenizer, state, interpreted.assumed, format_name)


def _without_padding(model: DiffusionLMConfig) -> DiffusionLMConfig:
    """Clear `network.padded_vocab` if the embedding has one row per id; more rows are padding, fewer an error."""
    size, rows = model.vocab.size - model.is_plain_causal, _embedding_rows(model.network)
    if rows < size:
        raise LayoutError(f"its weights have rows for {rows} ids, fewer than the {size} of its vocabulary")
    return model if rows > size else replace(model, network=replace(model.network, padded_vocab=None))


def _error_text(error: Exception) -> str:
    return (
        str(error) if isinstance(error, ValueError) else f"its settings are damaged ({type(error).__name__}: {error})"
    )


def _describe_settings(settings: ForeignSettings) -> str:
    model_type = str(settings.get("model_type", ""))
    if "moe" in model_type.lower() or settings.get("num_experts"):
        return f"model_type={model_type!r}, a mixture of experts, which is not supported"
    keys = ("model_type", "backbone", "parameterization")
    named = [f"{key}={settings[key]!r:.60}" for key in keys if key in settings]
    return ", ".join(named) or f"the keys {shorten_list(settings)}"
