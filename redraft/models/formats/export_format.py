"""Export formats: layout, settings, and how the readers of a format run a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from redraft.models.checkpoints.reader import CheckpointError
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.formats.layout import _Layout
from redraft.models.networks.config import TransformerConfig

_SettingsJson = dict[str, Any]


@dataclass(frozen=True)
class _ExportFormat:
    """A format that models can be exported to."""

    layout: Callable[[TransformerConfig], _Layout]  # raises if the format cannot store such a network
    settings: Callable[[DiffusionLM], _SettingsJson]  # returns the content of config.json
    run_as: str  # how readers run a model, in the words of `_describe_execution`
    readers: str  # programs that read the format
    prefix: str = "model."  # prefix of all tensor names but the output layer's


def _require_expressible(value: object, supported: object, feature: str, format: str, other: str) -> None:
    """Raise unless `value` is the supported one; the message names the feature and the formats that can store it."""
    if value != supported:
        raise CheckpointError(
            f"the format {format} cannot store this model: it has {feature}; formats that can: {other}"
        )


def _common_settings(model: DiffusionLM) -> _SettingsJson:
    """Return the settings that Hugging Face's Llama-like models share."""
    c = model.config.network
    rows = model.network.embedding.weight.shape[0]
    ids = {f"{name}_token_id": getattr(model.config.vocab, name) for name in ("bos", "eos", "pad")}
    if c.pattern.causal and not model.config.is_plain_causal:
        ids["bos_token_id"] = model.config.io.start  # causal networks trained here read this token first
    return {
        "vocab_size": rows,
        "hidden_size": c.width,
        "intermediate_size": c.hidden_width,
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.groups,
        "head_dim": c.head_width,
        "hidden_act": "silu",
        "rms_norm_eps": c.norm_eps,
        "rope_theta": c.rotary,
        "rope_scaling": _rope_scaling_settings(c),
        "rope_parameters": {
            "rope_type": "default",
            **(_rope_scaling_settings(c) or {}),
            "rope_theta": c.rotary,
        },  # transformers 5
        "tie_word_embeddings": c.tied,
        "max_position_embeddings": 4096,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "torch_dtype": str(model.network.embedding.weight.dtype).removeprefix("torch."),
        **{name: token for name, token in ids.items() if token is not None},
    }


def _rope_scaling_settings(config: TransformerConfig) -> _SettingsJson | None:
    """Return the RoPE scaling as transformers 4 writes it; None without scaling."""
    if (scaling := config.rope_scaling) is None:
        return None
    if scaling.known is None:
        return {"rope_type": "linear", "factor": scaling.factor}
    limits = {"low_freq_factor": scaling.low, "high_freq_factor": scaling.high}
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        **limits,
        "original_max_position_embeddings": scaling.known,
    }


_CAUSAL, _FULL, _SHIFTED_FULL, _BLOCKS = (
    "causal, the next token from each state",
    "full attention, each masked token from its own state",
    "full attention, each masked token from the state before it",
    "blocks, each masked token from its own state",
)


def _describe_execution(model: DiffusionLM) -> str:
    """Describe how a model runs: its attention, and which state predicts a masked token."""
    pattern, shifted = model.config.network.pattern, model.config.token_head.shifts
    if pattern.causal:
        return _CAUSAL
    if pattern.block is None:
        return _SHIFTED_FULL if shifted else _FULL
    return f"{pattern}, each masked token from the state before it" if shifted else _BLOCKS
