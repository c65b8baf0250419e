"""Foreign weights → our transformer: the DiT of MDLM and its kin, LLaDA, Llama, Qwen2 (Dream) and GPT-2 (DiffuGPT).

One function per layout: a state dict and the settings of its `config.json` → our config and our state dict. A layout is
a table from our names to theirs; several of theirs are stacked by rows into one of ours (q, k, v; gate, up). Every
tensor must be accounted for: missing, unexpected and misshapen ones are errors, buffers that follow from the settings
are ignored by name.

A layout describes the weights, not their use: attention is full (blocks where the settings name them), dropout zero;
`replace(config, pattern=…)` for another pattern. Only stacked tensors are copied.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from redraft.networks.attention import BlockCausal, Full
from redraft.networks.config import Ports, TransformerConfig
from redraft.networks.transformer import Transformer

Weights: TypeAlias = Mapping[str, Tensor]
Settings: TypeAlias = Mapping[str, Any]
Table: TypeAlias = Mapping[str, tuple[str, ...]]  # beginnings of names, ours → theirs; * is the number of a layer

_BUFFERS = re.compile(
    r"(.*\.)?rotary_emb\.(inv_freq|cos_cached|sin_cached)"
    r"|sampling_eps_(min|max)"  # BD3-LM: the clipping of its training times
    r"|h\.\d+\.attn\.(bias|masked_bias)"  # GPT-2: the causal mask
)

_DIT: Table = {
    "embedding.weight": ("vocab_embed.embedding",),
    "time.label": ("cond_map.embedding_table",),
    "time": ("sigma_map",),
    "blocks.*.norm1": ("blocks.*.norm1",),
    "blocks.*.norm2": ("blocks.*.norm2",),
    "blocks.*.attention.qkv": ("blocks.*.attn_qkv",),
    "blocks.*.attention.out": ("blocks.*.attn_out",),
    "blocks.*.mlp.up": ("blocks.*.mlp.0",),
    "blocks.*.mlp.down": ("blocks.*.mlp.2",),
    "blocks.*.modulation": ("blocks.*.adaLN_modulation",),
    "norm": ("output_layer.norm_final",),
    "modulation": ("output_layer.adaLN_modulation",),
    "output": ("output_layer.linear",),
}
_EXPECTED_GAPS: Table = {
    "gaps.norm": ("len_pred.norm",),
    "gaps.modulation": ("len_pred.adaLN",),
    "gaps.hidden": ("len_pred.proj1",),
    "gaps.output": ("len_pred.proj2",),
}
_COUNTED_GAPS: Table = {
    "gaps.norm": ("len_pred.norm_final",),
    "gaps.modulation": ("len_pred.adaLN_modulation",),
    "gaps.output": ("len_pred.linear",),
}

_LLADA: Table = {
    "embedding": ("wte",),
    "blocks.*.norm1": ("blocks.*.attn_norm",),
    "blocks.*.norm2": ("blocks.*.ff_norm",),
    "blocks.*.attention.qkv": ("blocks.*.q_proj", "blocks.*.k_proj", "blocks.*.v_proj"),
    "blocks.*.attention.out": ("blocks.*.attn_out",),
    "blocks.*.mlp.up": ("blocks.*.ff_proj", "blocks.*.up_proj"),
    "blocks.*.mlp.down": ("blocks.*.ff_out",),
    "norm": ("ln_f",),
    "output": ("ff_out",),
}

_LLAMA: Table = {
    "embedding": ("embed_tokens",),
    "blocks.*.norm1": ("layers.*.input_layernorm",),
    "blocks.*.norm2": ("layers.*.post_attention_layernorm",),
    "blocks.*.attention.qkv": (
        "layers.*.self_attn.q_proj",
        "layers.*.self_attn.k_proj",
        "layers.*.self_attn.v_proj",
    ),
    "blocks.*.attention.out": ("layers.*.self_attn.o_proj",),
    "blocks.*.mlp.up": ("layers.*.mlp.gate_proj", "layers.*.mlp.up_proj"),
    "blocks.*.mlp.down": ("layers.*.mlp.down_proj",),
    "norm": ("norm",),
    "output": ("lm_head",),
}

_GPT2: Table = {
    "embedding": ("wte",),
    "position": ("wpe",),
    "blocks.*.norm1": ("h.*.ln_1",),
    "blocks.*.norm2": ("h.*.ln_2",),
    "blocks.*.attention.qkv": ("h.*.attn.c_attn",),
    "blocks.*.attention.out": ("h.*.attn.c_proj",),
    "blocks.*.mlp.up": ("h.*.mlp.c_fc",),
    "blocks.*.mlp.down": ("h.*.mlp.c_proj",),
    "norm": ("ln_f",),
    "output": ("lm_head",),
}
_CONV1D = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")  # stored (in, out), unlike every linear layer


class LayoutError(ValueError):
    """Weights or settings do not have the layout they were taken for."""


def dit(state: Weights, config: Settings) -> tuple[TransformerConfig, dict[str, Tensor]]:
    """MDLM, SEDD, UDLM, GIDD, BD3-LM, FlexMDM: a transformer driven by time (adaLN).

    BD3-LM's settings may name blocks, UDLM's weights know labels, FlexMDM's gaps. Sizes are read off the tensors: the
    families name them differently, and some give a wrong default for the width of the time embedding. What the network
    is fed as time (σ, 0, t) is the model's `Level`.
    """
    state = _renamed(state, {"backbone.": "", "model._orig_mod.": "", "model.": ""})
    labels = state.get("cond_map.embedding_table.weight")  # one row per class, and one for none
    counted = "len_pred.linear.weight" in state
    config = flat(config)
    require(config, causal=False, causal_attention=False, adaln=True, tie_word_embeddings=False)
    vocab, width = _size(state, "vocab_embed.embedding")
    ours = TransformerConfig(
        ids=vocab,
        width=width,
        layers=setting(config, "n_blocks", "num_hidden_layers"),
        heads=setting(config, "n_heads", "num_attention_heads"),
        pattern=BlockCausal(setting(config, "block_size")) if config.get("cross_attn") else Full(),
        norm="layer",
        gated=False,
        mlp_bias=True,
        time=_size(state, "sigma_map.mlp.0.weight")[0],
        classes=None if labels is None else len(labels) - 1,
        head_bias=True,
        gaps=config.get("interpolant", {}).get("max_length"),
        gap_counts=counted,
    )
    return ours, _translated(state, {**_DIT, **(_COUNTED_GAPS if counted else _EXPECTED_GAPS)}, ours)


def llada(state: Weights, config: Settings) -> tuple[TransformerConfig, dict[str, Tensor]]:
    """LLaDA: Llama under other names (those of OLMo)."""
    require(config, block_type="llama", activation_type="silu", layer_norm_type="rms", rope=True, alibi=False)
    require(config, include_bias=False, include_qkv_bias=False, bias_for_layer_norm=False, scale_logits=False)
    require(config, attention_layer_norm=False, input_emb_norm=False, multi_query_attention=False)
    width = setting(config, "d_model")
    ours = TransformerConfig(
        ids=setting(config, "embedding_size", "vocab_size"),
        width=width,
        layers=setting(config, "n_layers"),
        heads=setting(config, "n_heads"),
        kv_heads=config.get("n_kv_heads"),
        hidden=config.get("mlp_hidden_size") or setting(config, "mlp_ratio") * width,
        norm_eps=setting(config, "rms_norm_eps"),
        rotary=float(setting(config, "rope_theta")),
        tied=setting(config, "weight_tying"),
    )
    return ours, _translated(_renamed(state, {"model.transformer.": ""}), _LLADA, ours)


def llama(state: Weights, config: Settings) -> tuple[TransformerConfig, dict[str, Tensor]]:
    """Llama, DiffuLLaMA, SmolLM2: as Hugging Face stores them."""
    require(config, attention_bias=False, mlp_bias=False)
    return _hugging_face(state, config, qkv_bias=False)


def qwen2(state: Weights, config: Settings) -> tuple[TransformerConfig, dict[str, Tensor]]:
    """Qwen2, Qwen2.5, Dream: Llama with biases on queries, keys and values."""
    require(config, use_sliding_window=False)
    return _hugging_face(state, config, qkv_bias=True)


def gpt2(state: Weights, config: Settings) -> tuple[TransformerConfig, dict[str, Tensor]]:
    """GPT-2, bare or with its head, and DiffuGPT: learned positions, biases everywhere, tied output."""
    require(config, activation_function="gelu_new", scale_attn_weights=True, add_cross_attention=False)
    require(config, scale_attn_by_inverse_layer_idx=False)
    state = _renamed(state, {"transformer.": "", "denoise_model.": "", "embed_tokens.": "wte."})
    state = {name: tensor.T if name.endswith(_CONV1D) else tensor for name, tensor in state.items()}
    ours = TransformerConfig(
        ids=setting(config, "vocab_size"),
        width=setting(config, "n_embd"),
        layers=setting(config, "n_layer"),
        heads=setting(config, "n_head"),
        hidden=config.get("n_inner"),
        norm="layer",
        norm_eps=setting(config, "layer_norm_epsilon"),
        norm_bias=True,
        gated=False,
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        rotary=None,
        positions=setting(config, "n_positions"),
        tied=config.get("tie_word_embeddings", True),
    )
    return ours, _translated(state, _GPT2, ours)


def _hugging_face(state: Weights, config: Settings, qkv_bias: bool) -> tuple[TransformerConfig, dict[str, Tensor]]:
    rotary = config.get("rope_parameters") or config.get("rope_scaling") or {}
    require(config, hidden_act="silu")
    require(rotary, rope_type="default", type="default")
    ours = TransformerConfig(
        ids=setting(config, "vocab_size"),
        width=setting(config, "hidden_size"),
        layers=setting(config, "num_hidden_layers"),
        heads=setting(config, "num_attention_heads"),
        kv_heads=config.get("num_key_value_heads"),
        head_dim=config.get("head_dim"),
        hidden=setting(config, "intermediate_size"),
        norm_eps=setting(config, "rms_norm_eps"),
        qkv_bias=qkv_bias,
        rotary=float(setting({**config, **rotary}, "rope_theta")),
        tied=config.get("tie_word_embeddings", False),
    )
    return ours, _translated(_renamed(state, {"model.": ""}), _LLAMA, ours)


# --- settings ---


def flat(config: Settings) -> Settings:
    """The settings of the diffusion papers: nested in training runs, flat in exports."""
    return {**config, **config.get("algo", {}), **config.get("model", {})}


def setting(config: Settings, *names: str) -> Any:
    """The first of these settings that is present; no default, since a wrong guess gives wrong numbers."""
    for name in names:
        if config.get(name) is not None:
            return config[name]
    raise LayoutError(f"the settings lack {' or '.join(names)}; give the config.json that belongs to the weights")


def require(config: Settings, **values: object) -> None:
    """Raises for settings that our transformer does not support; an absent or null one has the usual value."""
    for name, needed in values.items():
        found = config.get(name)
        if found is not None and found != needed:
            raise LayoutError(f"{name}={found!r} is not supported; only {name}={needed!r} can be loaded")


def _size(state: Weights, name: str) -> torch.Size:
    if name not in state:
        raise LayoutError(f"the weights lack {name}; they are of another layout")
    return state[name].shape


# --- tensors ---


def _renamed(state: Weights, beginnings: Mapping[str, str]) -> dict[str, Tensor]:
    """The same tensors, with the beginnings of their names replaced."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in state.items():
        old = next((b for b in beginnings if name.startswith(b)), "")
        new = beginnings.get(old, "") + name.removeprefix(old)
        if new in renamed:
            raise LayoutError(f"the weights hold {new} twice, the second time as {name}; remove one")
        renamed[new] = tensor
    return renamed


def _translated(state: Weights, table: Table, config: TransformerConfig) -> dict[str, Tensor]:
    """Our state dict, with exactly the tensors that a transformer of this config has."""
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in Transformer(config, Ports(1, 1)).state_dict().items()}
    sources = {name: _sources(name, table) for name in shapes}
    needed = {name for names in sources.values() for name in names}
    _complete(_without_twin(state, table) if config.tied else state, needed)
    return {ours: _stacked([state[name] for name in names], names, shapes[ours]) for ours, names in sources.items()}


def _sources(name: str, table: Table) -> list[str]:
    """Ours → theirs: blocks.3.mlp.up.bias by the entry blocks.*.mlp.up."""
    layer = re.match(r"blocks\.(\d+)\.", name)
    number = layer[1] if layer else ""
    name = re.sub(r"^blocks\.\d+\.", "blocks.*.", name)
    entry = next(entry for entry in table if f"{name}.".startswith(f"{entry}."))
    return [(theirs + name.removeprefix(entry)).replace("*", number) for theirs in table[entry]]


def _without_twin(state: Weights, table: Table) -> Weights:
    """The state without a second copy of a tied output layer, which must hold the same numbers."""
    (embedding,), (output,) = _sources("embedding.weight", table), _sources("output.weight", table)
    if output in state and embedding in state and not torch.equal(state[output], state[embedding]):
        raise LayoutError(f"the settings tie {output} to {embedding}, yet the two differ; set the tying to false")
    return {name: tensor for name, tensor in state.items() if name != output}


def _complete(state: Weights, needed: Collection[str]) -> None:
    missing = [name for name in needed if name not in state]
    unexpected = [name for name in state if name not in needed and not _BUFFERS.fullmatch(name)]
    faults = [f"{kind} {some(names)}" for kind, names in (("missing", missing), ("unexpected", unexpected)) if names]
    if faults:
        raise LayoutError(f"the weights are of another layout or size: {'; '.join(faults)}")


def some(names: Collection[str], most: int = 4) -> str:
    """ "a, b, c, d and 17 more" """
    first = ", ".join(sorted(names)[:most])
    return first if len(names) <= most else f"{first} and {len(names) - most} more"


def _stacked(parts: Sequence[Tensor], names: Sequence[str], shape: torch.Size) -> Tensor:
    """The parts stacked by rows; a single part unchanged."""
    alike = all(part.dim() == len(shape) and part.shape[1:] == shape[1:] for part in parts)
    if not alike or sum(len(part) for part in parts) != shape[0]:
        found = " + ".join(f"{name} {list(part.shape)}" for name, part in zip(names, parts, strict=True))
        raise LayoutError(f"{found} should make {list(shape)}; the settings are those of another size")
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
