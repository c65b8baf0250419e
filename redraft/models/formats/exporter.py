"""Our models in the formats of others: llama, qwen, llada, dream, sdar.

A format says how its weights are run: who sees whom, and which state predicts a token. vLLM and SGLang serve any
directory of Llama or Qwen layout causally, without a word; a model that was not trained so would write nonsense. So a
model that is something else than its format says is refused, unless the weights alone are wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from redraft.core.processes.masked import Masked
from redraft.core.text.tokenizers import Hub
from redraft.models.checkpoints import writer
from redraft.models.checkpoints.reader import CheckpointError
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.formats.layout import Layout
from redraft.models.formats.llada import llada
from redraft.models.formats.llama import llama, qwen2, qwen3
from redraft.models.heads import Shift
from redraft.models.networks.attention import BlockCausal, Causal, Full
from redraft.models.networks.config import TransformerConfig

Said = dict[str, Any]


@dataclass(frozen=True)
class Outward:
    """A format to write: its layout, its settings, and how its readers run it."""

    layout: Callable[[TransformerConfig], Layout]
    settings: Callable[[DiffusionLM], Said]
    runs: str  # as `_runs` says it
    prefix: str = "model."


def _llama(config: TransformerConfig) -> Layout:
    _require(config.qk_norm, False, "norms of queries and keys", "llama", "qwen")
    _require(config.qkv_bias == config.out_bias, True, "biases on queries, keys and values alone", "llama", "qwen")
    return llama


def _qwen(config: TransformerConfig) -> Layout:
    _require(config.mlp_bias, False, "biases in its MLP", "qwen", "llama")
    if config.qk_norm:
        _require(config.qkv_bias == config.out_bias, True, "biases on queries, keys and values alone", "qwen", "none")
        return qwen3
    _require(config.out_bias, False, "a bias on what attention gives", "qwen", "llama")
    return qwen2


def _qwen2(config: TransformerConfig) -> Layout:
    _require(config.qk_norm, False, "norms of queries and keys", "dream", "sdar or qwen")
    return _qwen(config)


def _qwen3(config: TransformerConfig) -> Layout:
    _require(config.qk_norm, True, "no norms of queries and keys", "sdar", "dream, llada or llama")
    return _qwen(config)


def _llada(config: TransformerConfig) -> Layout:
    wrong = config.qk_norm or config.out_bias or config.mlp_bias or config.slowed is not None
    _require(wrong, False, "norms of queries and keys, biases, or scaled positions", "llada", "qwen or sdar")
    _require(
        config.head_width * config.heads, config.width, "heads of another width than width / heads", "llada", "none"
    )
    return llada


def _require(found: object, wanted: object, what: str, format: str, other: str) -> None:
    if found != wanted:
        raise CheckpointError(
            f"the format {format} has no room for this model: it has {what}; formats that have: {other}"
        )


def _common(model: DiffusionLM) -> Said:
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


def _scaling(config: TransformerConfig) -> Said | None:
    """How rotary positions are slowed, in the words of transformers 4."""
    if (slowed := config.slowed) is None:
        return None
    if slowed.known is None:
        return {"rope_type": "linear", "factor": slowed.factor}
    ends = {"low_freq_factor": slowed.low, "high_freq_factor": slowed.high}
    return {"rope_type": "llama3", "factor": slowed.factor, **ends, "original_max_position_embeddings": slowed.known}


def _as_llama(model: DiffusionLM) -> Said:
    c = model.config
    said = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **_common(model)}
    said |= {"attention_bias": c.network.qkv_bias, "mlp_bias": c.network.mlp_bias}
    if _runs(model) == _SHIFTED_FULL:  # read back as DiffuLLaMA
        said["mask_token_id"] = c.vocab.mask
    return said


def _as_qwen(model: DiffusionLM) -> Said:
    if model.config.network.qk_norm:
        said = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **_common(model)}
        return said | {"attention_bias": model.config.network.qkv_bias}
    return {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **_common(model)}


def _as_dream(model: DiffusionLM) -> Said:
    said = {"model_type": "Dream", "architectures": ["DreamModel"], **_common(model)}
    return said | {"mask_token_id": model.config.vocab.mask}


def _as_sdar(model: DiffusionLM) -> Said:
    said = {"model_type": "sdar", "architectures": ["SDARForCausalLM"], **_common(model)}
    said |= {"attention_bias": model.config.network.qkv_bias, "mask_token_id": model.config.vocab.mask}
    return said | ({} if model.block is None else {"block_size": model.block})


def _as_llada(model: DiffusionLM) -> Said:
    c, rows = model.config.network, model.network.embedding.weight.shape[0]
    ids = {f"{name}_token_id": getattr(model.config.vocab, name) for name in ("mask", "eos", "pad")}
    return {
        "model_type": "llada",
        "architectures": ["LLaDAModelLM"],
        "block_type": "llama",
        "activation_type": "silu",
        "layer_norm_type": "rms",
        "rope": True,
        "alibi": False,
        "include_bias": False,
        "include_qkv_bias": c.qkv_bias,
        "bias_for_layer_norm": False,
        "d_model": c.width,
        "n_layers": c.layers,
        "n_heads": c.heads,
        "n_kv_heads": c.groups,
        "mlp_hidden_size": c.hidden_width,
        "rms_norm_eps": c.norm_eps,
        "rope_theta": c.rotary,
        "weight_tying": c.tied,
        "vocab_size": rows,
        "embedding_size": rows,
        "max_sequence_length": 4096,
        **{name: token for name, token in ids.items() if token is not None},
    }


_CAUSAL, _FULL, _SHIFTED_FULL, _BLOCKS = (
    "causal, the next token from each state",
    "full attention, each masked token from its own state",
    "full attention, each masked token from the state before it",
    "blocks, each masked token from its own state",
)
OUTWARD = {
    "llama": Outward(_llama, _as_llama, _CAUSAL),
    "qwen": Outward(_qwen, _as_qwen, _CAUSAL),
    "llada": Outward(_llada, _as_llada, _FULL, "model.transformer."),
    "dream": Outward(_qwen2, _as_dream, _SHIFTED_FULL),
    "sdar": Outward(_qwen3, _as_sdar, _BLOCKS),
}
READERS = {
    "llama": "transformers, vLLM, SGLang, llama.cpp",
    "qwen": "transformers, vLLM, SGLang, llama.cpp",
    "llada": "LLaDA's own code (beside the weights on the hub), llama.cpp",
    "dream": "Dream's own code (beside the weights on the hub), llama.cpp",
    "sdar": "SDAR's own code (beside the weights on the hub), SGLang",
}


def _runs(model: DiffusionLM) -> str:
    """How a model is run, in the words of the formats; others in their own."""
    pattern, shifted = model.config.network.pattern, isinstance(model.config.head, Shift)
    if isinstance(pattern, Causal):
        return _CAUSAL
    if isinstance(pattern, Full):
        return _SHIFTED_FULL if shifted else _FULL
    if isinstance(pattern, BlockCausal) and not shifted:
        return _BLOCKS
    return f"{pattern}, each masked token from the state before it" if shifted else str(pattern)


def export_as(
    model: DiffusionLM, path: str | Path, format: str, *, weights_only: bool = False
) -> list[tuple[str, str]]:
    """Write a model as a directory of another project's format; returns who reads it, and how they run it.

    model: a model of tokens without time: a transformer of Llama's kind.
    path: a new directory.
    format: llama, qwen, llada, dream or sdar.
    weights_only: also write a model that the format's readers would run otherwise than it was trained.
    """
    if format not in OUTWARD:
        raise CheckpointError(f"there is no format {format}; choose from {', '.join(OUTWARD)}")
    outward, own = OUTWARD[format], _runs(model)
    _require_plain(model, format)
    layout = outward.layout(model.config.network)
    if own != outward.runs and not weights_only:
        raise CheckpointError(
            f"this model runs as: {own}; readers of {format} would run it as: {outward.runs}, silently wrong. Choose "
            "another format, or --weights-only if you know how to run it"
        )
    files = {"model.safetensors": _tensors(model, layout, outward.prefix)}
    documents = {"config": outward.settings(model), **_tokenizer(model)}
    writer.give(Path(path), files, documents, _card(format, own, outward.runs))
    return [(f"{format}: {READERS[format]}", outward.runs), ("redraft", own if own == outward.runs else f"{own} (*)")]


def _require_plain(model: DiffusionLM, format: str) -> None:
    """Formats of language models know neither time nor vectors, nor the layers of GPT-2 and the DiT."""
    c, network = model.config, model.config.network
    odd = {
        f"{type(c.process).__name__} noise": not isinstance(c.process, Masked),
        "a codec": c.codec is not None,
        "an encoder": c.encoder is not None,
        "a layer for errors": c.errors,
        "a layer for attributes": bool(c.attributes),
        "a network that is told the time": network.time is not None,
        "learned positions": network.positions is not None,
        "LayerNorm": network.norm != "rms",
        "an MLP without gate": not network.gated,
        "a bias of the output layer": network.head_bias,
        "no rotary positions": network.rotary is None,
    }
    if found := [name for name, there in odd.items() if there]:
        raise CheckpointError(f"the format {format} has no room for this model: it has {' and '.join(found)}")


def _tensors(model: DiffusionLM, layout: Layout, prefix: str) -> dict[str, Tensor]:
    """Their tensors: ours by their names, stacked ones cut apart; biases that the layout has and we do not are zero."""
    ours, config = model.network.state_dict(), model.config.network
    found: dict[str, Tensor] = {}
    for name, parts in layout.sources(config, {n: t.shape for n, t in ours.items()}).items():
        pieces = ours[name].split([shape[0] for shape in parts.values()])
        found |= dict(zip(parts, pieces, strict=True))
    if layout is qwen2 and not config.qkv_bias:
        zero = {n.replace(".weight", ".bias"): t.new_zeros(len(t)) for n, t in found.items() if n.endswith(_QKV)}
        found |= zero
    return {name if name.startswith("lm_head.") else f"{prefix}{name}": tensor for name, tensor in found.items()}


_QKV = (".q_proj.weight", ".k_proj.weight", ".v_proj.weight")


def _tokenizer(model: DiffusionLM) -> dict[str, Said]:
    """tokenizer.json and tokenizer_config.json; the mask of a causal model is ours alone, and no token of theirs."""
    hub = model.tokenizer
    if not isinstance(hub, Hub):
        return {}
    named = {f"{name}_token": token for name in ("bos", "eos", "pad") if (token := getattr(hub, name)) is not None}
    if hub.mask is not None and not model.config.continues:
        named["mask_token"] = hub.mask
    template = {} if hub.template is None else {"chat_template": hub.template}
    definition = hub.as_file(mask=not model.config.continues)
    return {
        "tokenizer": definition,
        "tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast", **named, **template},
    }


def _card(format: str, own: str, theirs: str) -> str:
    lines = [f"Written by Redraft in the format {format}.", "", f"It was trained to run as: {own}."]
    if own != theirs:
        lines += ["", f"Readers of this format run it as: {theirs}. That is wrong for these weights."]
    return "\n".join(lines) + "\n"
