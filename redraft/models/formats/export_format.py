"""What a family says to write its format: its layout, its settings, and how its readers run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from redraft.models.checkpoints.reader import CheckpointError
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.formats.layout import Layout
from redraft.models.heads import Shift
from redraft.models.networks.attention import BlockCausal, Causal, Full
from redraft.models.networks.config import TransformerConfig

_SettingsJson = dict[str, Any]


@dataclass(frozen=True)
class _ExportFormat:
    """A format to write: its layout, its settings, and how its readers run it."""

    layout: Callable[[TransformerConfig], Layout]
    settings: Callable[[DiffusionLM], _SettingsJson]
    runs: str  # as `_execution` says it
    readers: str  # who reads it
    prefix: str = "model."


def _require_room(found: object, wanted: object, what: str, format: str, other: str) -> None:
    if found != wanted:
        raise CheckpointError(
            f"the format {format} has no room for this model: it has {what}; formats that have: {other}"
        )


def _common_settings(model: DiffusionLM) -> _SettingsJson:
    """The settings that Hugging Face's families share."""
    c = model.config.network
    rows = model.network.embedding.weight.shape[0]
    ids = {f"{name}_token_id": getattr(model.config.vocab, name) for name in ("bos", "eos", "pad")}
    if isinstance(c.pattern, Causal) and not model.config.continues:
        ids["bos_token_id"] = model.config.ports.start  # what our own causal networks begin with
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
        "rope_scaling": _scaling(c),
        "rope_parameters": {"rope_type": "default", **(_scaling(c) or {}), "rope_theta": c.rotary},  # transformers 5
        "tie_word_embeddings": c.tied,
        "max_position_embeddings": 4096,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "torch_dtype": str(model.network.embedding.weight.dtype).removeprefix("torch."),
        **{name: token for name, token in ids.items() if token is not None},
    }


def _scaling(config: TransformerConfig) -> _SettingsJson | None:
    """How rotary positions are slowed, in the words of transformers 4."""
    if (slowed := config.slowed) is None:
        return None
    if slowed.known is None:
        return {"rope_type": "linear", "factor": slowed.factor}
    ends = {"low_freq_factor": slowed.low, "high_freq_factor": slowed.high}
    return {"rope_type": "llama3", "factor": slowed.factor, **ends, "original_max_position_embeddings": slowed.known}


_CAUSAL, _FULL, _SHIFTED_FULL, _BLOCKS = (
    "causal, the next token from each state",
    "full attention, each masked token from its own state",
    "full attention, each masked token from the state before it",
    "blocks, each masked token from its own state",
)


def _execution(model: DiffusionLM) -> str:
    """How a model is run, in the words of the formats; others in their own."""
    pattern, shifted = model.config.network.pattern, isinstance(model.config.head, Shift)
    if isinstance(pattern, Causal):
        return _CAUSAL
    if isinstance(pattern, Full):
        return _SHIFTED_FULL if shifted else _FULL
    if isinstance(pattern, BlockCausal) and not shifted:
        return _BLOCKS
    return f"{pattern}, each masked token from the state before it" if shifted else str(pattern)
