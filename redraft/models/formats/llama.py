"""Llama, Qwen2 and Qwen3 as Hugging Face stores them, and all that has their layout: Dream, DiffuLLaMA, A2D, SDAR."""

from __future__ import annotations

from functools import partial

from redraft.models.formats.layout import Layout, LayoutError, Table, require, setting, whole_number
from redraft.models.formats.storage.tensors import Settings, Weights
from redraft.models.networks.attention import Slowed
from redraft.models.networks.config import TransformerConfig

BASE = 10_000.0  # of the rotary positions, where old settings do not name it: that of the originals' code
_TABLE: Table = {
    "embedding": ("embed_tokens",),
    "blocks.*.norm1": ("layers.*.input_layernorm",),
    "blocks.*.norm2": ("layers.*.post_attention_layernorm",),
    "blocks.*.attention.qkv": (
        "layers.*.self_attn.q_proj",
        "layers.*.self_attn.k_proj",
        "layers.*.self_attn.v_proj",
    ),
    "blocks.*.attention.q_norm": ("layers.*.self_attn.q_norm",),
    "blocks.*.attention.k_norm": ("layers.*.self_attn.k_norm",),
    "blocks.*.attention.out": ("layers.*.self_attn.o_proj",),
    "blocks.*.mlp.up": ("layers.*.mlp.gate_proj", "layers.*.mlp.up_proj"),
    "blocks.*.mlp.down": ("layers.*.mlp.down_proj",),
    "norm": ("norm",),
    "output": ("lm_head",),
}


def _sizes(
    state: Weights, config: Settings, *, qkv_bias: bool | None = None, qk_norm: bool = False
) -> TransformerConfig:
    """qkv_bias: whether queries, keys and values have a bias; None: the settings say it, for the output too."""
    _require_known(config)
    biased = bool(config.get("attention_bias"))
    return TransformerConfig(
        ids=whole_number(config, "vocab_size"),
        width=whole_number(config, "hidden_size"),
        layers=whole_number(config, "num_hidden_layers"),
        heads=whole_number(config, "num_attention_heads"),
        kv_heads=config.get("num_key_value_heads"),
        head_dim=config.get("head_dim"),
        hidden=whole_number(config, "intermediate_size"),
        norm_eps=float(setting(config, "rms_norm_eps")),
        qkv_bias=biased if qkv_bias is None else qkv_bias,
        out_bias=biased if qkv_bias is None else False,
        mlp_bias=bool(config.get("mlp_bias")),
        qk_norm=qk_norm,
        rotary=float({"rope_theta": BASE, **_given(config), **_given(_rope(config))}["rope_theta"]),
        slowed=_slowed(_rope(config)),
        tied=bool(config.get("tie_word_embeddings", "lm_head.weight" not in state)),
    )


def _given(config: Settings) -> Settings:
    return {name: value for name, value in config.items() if value is not None}


def _require_known(config: Settings) -> None:
    require(config, hidden_act="silu", use_sliding_window=False, partial_rotary_factor=1.0)
    for name, what in _UNKNOWN.items():
        if config.get(name):
            raise LayoutError(f"{name}={config[name]!r:.60}: {what}")
    if sliding := [kind for kind in config.get("layer_types") or [] if kind != "full_attention"]:
        raise LayoutError(f"layer_types has {sliding[0]!r}: a sliding window is not supported; only full_attention is")


_UNKNOWN = {
    "num_experts": "a mixture of experts is not supported",
    "num_local_experts": "a mixture of experts is not supported",
    "quantization_config": "quantised weights are not supported; give the model as it was before",
}


def _rope(config: Settings) -> Settings:
    """What is said of the rotary positions; transformers 5 keeps their base there too, 4 beside it."""
    found: Settings = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return found


def _slowed(rope: Settings) -> Slowed | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind == "linear":
        return Slowed(float(setting(rope, "factor")))
    if kind == "llama3":
        low, high = (float(setting(rope, f"{end}_freq_factor")) for end in ("low", "high"))
        known = whole_number(rope, "original_max_position_embeddings")
        return Slowed(float(setting(rope, "factor")), known, low, high)
    raise LayoutError(f"rope_type={kind!r:.40} is not supported; only default, linear and llama3 can be loaded")


_HERE = {"model.": ""}
llama = Layout(lambda _: _TABLE, _sizes, _HERE)
qwen2 = Layout(lambda _: _TABLE, partial(_sizes, qkv_bias=True), _HERE)
qwen3 = Layout(lambda _: _TABLE, partial(_sizes, qk_norm=True), _HERE)
