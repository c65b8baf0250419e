"""Whose checkpoint it is, by its settings; and the whole way from a foreign directory to our model."""

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
from redraft.models.formats.checkpoint import ForeignCheckpoint, _embedding_rows, _Format
from redraft.models.formats.storage import files
from redraft.models.formats.storage.tensors import ForeignSettings, ForeignWeights, LayoutError, shorten_list

FORMATS: dict[str, _Format] = {**dit._FORMATS, **llada._FORMATS, **llama._FORMATS, **gpt2._FORMATS}
_HUB_TYPES = {
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


def detect_format(settings: ForeignSettings, names: Collection[str]) -> str | None:
    """The format, by settings and names of tensors: nested settings come from training runs, flat ones from the hub."""
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
            return _HUB_TYPES.get(kind)
        case {"block_type": "llama", "d_model": _}:
            return "LLaDA"
        case {"hidden_act": _, "mask_token_id": int()}:
            return "Dream"
    return None


class ImportedModel(NamedTuple):
    """What a foreign checkpoint holds, in our terms."""

    model: DiffusionLMConfig
    tokenizer: HubTokenizer | None
    weights: dict[str, Tensor]  # of the DiffusionLM
    assumed: tuple[str, ...] = ()  # what its files do not say
    format: str = ""


def import_folder(
    path: Path,
    dtype: torch.dtype | None = None,
    *,
    name: str | None = None,
    mask: int | str | None = None,
    attention: str | None = None,
) -> ImportedModel:
    """The model of a directory that another project wrote.

    path: the directory.
    dtype: of the weights; None: float32.
    name: of its repository, if that is not the directory's.
    mask, attention: what its files do not say, see `ForeignCheckpoint`.
    """
    original = ForeignCheckpoint(
        files.read_settings(path), path.name if name is None else name, files.read_tokenizer(path), mask, attention
    )
    return import_tensors(original, files.locate_weights(path), str(path), dtype)


def import_tensors(
    original: ForeignCheckpoint, weights: ForeignWeights, where: str, dtype: torch.dtype | None = None
) -> ImportedModel:
    """The model of settings and weights, wherever they come from."""
    if (kind := detect_format(original.settings, weights)) is None:
        raise CheckpointError(
            f"{where} is of no known format: its config.json has {_described(original.settings)}; known are "
            f"{', '.join(FORMATS)}"
        )
    try:
        network, state = FORMATS[kind].layout(weights, original.settings, dtype)
        found = FORMATS[kind].meaning(original, network)
        model = _unpadded(found.model)
    except (ValueError, TypeError, AttributeError, KeyError) as error:  # a LayoutError, or settings of a wrong kind
        raise CheckpointError(f"{where} was taken for {kind}, but {_said(error)}") from error
    state = {f"network.{tensor}": numbers for tensor, numbers in state.items()}
    return ImportedModel(model, found.tokenizer, state, found.assumed, kind)


def _unpadded(model: DiffusionLMConfig) -> DiffusionLMConfig:
    """Rows for as many ids as there are go without saying; more of them are padding, and fewer an error."""
    size, known = model.vocab.size - model.continues, _embedding_rows(model.network)
    if known < size:
        raise LayoutError(f"its weights have rows for {known} ids, fewer than the {size} of its vocabulary")
    return model if known > size else replace(model, network=replace(model.network, ids=None))


def _said(error: Exception) -> str:
    return (
        str(error) if isinstance(error, ValueError) else f"its settings are damaged ({type(error).__name__}: {error})"
    )


def _described(settings: ForeignSettings) -> str:
    kind = str(settings.get("model_type", ""))
    if "moe" in kind.lower() or settings.get("num_experts"):
        return f"model_type={kind!r}, a mixture of experts, which is not supported"
    told = [f"{key}={settings[key]!r:.60}" for key in ("model_type", "backbone", "parameterization") if key in settings]
    return ", ".join(told) or f"the keys {shorten_list(settings)}"
