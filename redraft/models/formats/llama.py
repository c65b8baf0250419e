"""Llama, Qwen2 and Qwen3 in Hugging Face format, and models with their layouts, such as Dream, A2D and SDAR."""

from __future__ import annotations

import re
from functools import partial

from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.formats.checkpoint import _ForeignCheckpoint, _Format, _InterpretedModel
from redraft.models.formats.export_format import (
    _BLOCKS,
    _CAUSAL,
    _SHIFTED_FULL,
    _common_settings,
    _describe_execution,
    _ExportFormat,
    _require_expressible,
    _SettingsJson,
)
from redraft.models.formats.language import _interpret_causal, _interpret_masked
from redraft.models.formats.layout import (
    _Layout,
    _NameTable,
    _require_int_setting,
    _require_setting,
    _require_supported,
)
from redraft.models.formats.storage.tensors import ForeignSettings, ForeignWeights, LayoutError
from redraft.models.networks.attention import RopeScaling
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.patterns import BlockCausal, Full

_DEFAULT_ROPE_THETA = 10_000.0  # for old configs without rope_theta, as in the original code
_TABLE: _NameTable = {
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


def _read_config(
    state: ForeignWeights, config: ForeignSettings, *, qkv_bias: bool | None = None, qk_norm: bool = False
) -> TransformerConfig:
    """Read the config.

    qkv_bias: queries, keys and values have a bias and the output of attention has none; None reads the setting
        attention_bias decides for all four.
    """
    _require_supported_settings(config)
    biased = bool(config.get("attention_bias"))
    with_rope = {**_without_nulls(config), **_without_nulls(_rope_settings(config))}
    return TransformerConfig(
        padded_vocab=_require_int_setting(config, "vocab_size"),
        width=_require_int_setting(config, "hidden_size"),
        layers=_require_int_setting(config, "num_hidden_layers"),
        heads=_require_int_setting(config, "num_attention_heads"),
        kv_heads=config.get("num_key_value_heads"),
        head_dim=config.get("head_dim"),
        hidden=_require_int_setting(config, "intermediate_size"),
        norm_eps=float(_require_setting(config, "rms_norm_eps")),
        qkv_bias=biased if qkv_bias is None else qkv_bias,
        out_bias=biased if qkv_bias is None else False,
        mlp_bias=bool(config.get("mlp_bias")),
        qk_norm=qk_norm,
        rotary=float(with_rope.get("rope_theta", _DEFAULT_ROPE_THETA)),
        rope_scaling=_rope_scaling(_rope_settings(config)),
        tied=bool(config.get("tie_word_embeddings", "lm_head.weight" not in state)),
    )


def _without_nulls(config: ForeignSettings) -> ForeignSettings:
    return {name: value for name, value in config.items() if value is not None}


def _require_supported_settings(config: ForeignSettings) -> None:
    _require_supported(config, hidden_act="silu", use_sliding_window=False, partial_rotary_factor=1.0)
    for name, reason in _UNSUPPORTED.items():
        if config.get(name):
            raise LayoutError(f"{name}={config[name]!r:.60}: {reason}")
    if others := [layer for layer in config.get("layer_types") or [] if layer != "full_attention"]:
        raise LayoutError(f"layer_types has {others[0]!r}, which is not supported; only full_attention is")


_UNSUPPORTED = {
    "num_experts": "a mixture of experts is not supported",
    "num_local_experts": "a mixture of experts is not supported",
    "quantization_config": "quantized weights are not supported; give the unquantized model",
}


def _rope_settings(config: ForeignSettings) -> ForeignSettings:
    """Return the RoPE settings; transformers 5 stores rope_theta among them, transformers 4 at the top level."""
    settings: ForeignSettings = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return settings


def _rope_scaling(rope: ForeignSettings) -> RopeScaling | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(float(_require_setting(rope, "factor")))
    if kind == "llama3":
        low, high = (float(_require_setting(rope, f"{end}_freq_factor")) for end in ("low", "high"))
        original_length = _require_int_setting(rope, "original_max_position_embeddings")
        return RopeScaling(float(_require_setting(rope, "factor")), original_length, low, high)
    raise LayoutError(f"rope_type={kind!r:.40} is not supported; only default, linear and llama3 can be loaded")


_PREFIXES = {"model.": ""}
_llama_layout = _Layout(lambda _: _TABLE, _read_config, _PREFIXES)
_qwen2_layout = _Layout(lambda _: _TABLE, partial(_read_config, qkv_bias=True), _PREFIXES)
_qwen3_layout = _Layout(lambda _: _TABLE, partial(_read_config, qk_norm=True), _PREFIXES)


def _interpret_dream(original: _ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    return _interpret_masked(original, network, Full())


def _interpret_diffullama(original: _ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    return _interpret_masked(original, network, Full())


def _interpret_a2d(original: _ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    """Interpret dllm's models; only their names tell MDLM (full attention) from BD3-LM (blocks)."""
    name = original.name.lower()
    size = original.settings.get("block_size")
    if original.attention is not None:
        return _interpret_masked(original, network, Full(), shift=False)
    if type(size) is int:
        return _interpret_masked(original, network, BlockCausal(size), shift=False)
    if "bd3lm" in name:
        note = "attention in blocks of 32, as dllm trains BD3-LM: its name says bd3lm"
        return _interpret_masked(original, network, BlockCausal(32), note, shift=False)
    note = "full attention (MDLM)" + (
        ": its name says mdlm" if "mdlm" in name else "; give attention=block:32 if it is BD3-LM"
    )
    return _interpret_masked(original, network, Full(), note, shift=False)


def _interpret_open_dcoder(original: _ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    """Interpret Open-dCoder, whose settings are those of Qwen2 except that they name custom code."""
    assumed = () if original.attention else ("full attention: its settings name custom code, as Open-dCoder's do",)
    return _interpret_masked(original, network, Full(), *assumed)


def _interpret_sdar(original: _ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    """Interpret SDAR: blocks of four, unless its settings or its name say otherwise, as in SDAR-8B-Chat-b32."""
    size = original.settings.get("block_size")
    if type(size) is int:
        return _interpret_masked(original, network, BlockCausal(size), shift=False)
    match = re.search(r"-b(\d{1,4})(?:$|[^\w])", original.name)
    size = int(match[1]) if match else 4
    note = f"blocks of {size}, " + ("as its name says" if match else "as SDAR has by default")
    notes = () if original.attention else (note,)
    return _interpret_masked(original, network, BlockCausal(size), *notes, shift=False)


def _interpret_fast_dllm(original: _ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    size = original.settings.get("bd_size")
    assumed = () if size or original.attention else ("blocks of 32: its settings name no block size",)
    return _interpret_masked(original, network, BlockCausal(size or 32), *assumed)


def _layout_for_llama(config: TransformerConfig) -> _Layout:
    _require_expressible(config.qk_norm, False, "QK norm", "llama", "qwen")
    _require_expressible(
        config.qkv_bias == config.out_bias, True, "biases on queries, keys and values only", "llama", "qwen"
    )
    return _llama_layout


def _layout_for_qwen(config: TransformerConfig) -> _Layout:
    _require_expressible(config.mlp_bias, False, "biases in its MLP", "qwen", "llama")
    if config.qk_norm:
        _require_expressible(
            config.qkv_bias == config.out_bias, True, "biases on queries, keys and values only", "qwen", "none"
        )
        return _qwen3_layout
    _require_expressible(config.out_bias, False, "a bias in the attention output", "qwen", "llama")
    return _qwen2_layout


def _layout_for_dream(config: TransformerConfig) -> _Layout:
    _require_expressible(config.qk_norm, False, "QK norm", "dream", "sdar or qwen")
    return _layout_for_qwen(config)


def _layout_for_sdar(config: TransformerConfig) -> _Layout:
    _require_expressible(config.qk_norm, True, "no QK norm", "sdar", "dream, llada or llama")
    return _layout_for_qwen(config)


def _llama_settings(model: DiffusionLM) -> _SettingsJson:
    c = model.config
    settings = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **_common_settings(model)}
    settings |= {"attention_bias": c.network.qkv_bias, "mlp_bias": c.network.mlp_bias}
    if _describe_execution(model) == _SHIFTED_FULL:  # so that it is imported as DiffuLLaMA
        settings["mask_token_id"] = c.vocab.mask
    return settings


def _qwen_settings(model: DiffusionLM) -> _SettingsJson:
    if model.config.network.qk_norm:
        settings = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **_common_settings(model)}
        return settings | {"attention_bias": model.config.network.qkv_bias}
    return {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **_common_settings(model)}


def _dream_settings(model: DiffusionLM) -> _SettingsJson:
    settings = {"model_type": "Dream", "architectures": ["DreamModel"], **_common_settings(model)}
    return settings | {"mask_token_id": model.config.vocab.mask}


def _sdar_settings(model: DiffusionLM) -> _SettingsJson:
    settings = {"model_type": "sdar", "architectures": ["SDARForCausalLM"], **_common_settings(model)}
    settings |= {"attention_bias": model.config.network.qkv_bias, "mask_token_id": model.config.vocab.mask}
    return settings | ({} if model.block is None else {"block_size": model.block})


_FORMATS = {
    "Dream": _Format(_qwen2_layout, _interpret_dream),
    "DiffuLLaMA": _Format(_llama_layout, _interpret_diffullama),
    "A2D (Llama)": _Format(_llama_layout, _interpret_a2d),
    "A2D (Qwen2)": _Format(_qwen2_layout, _interpret_a2d),
    "A2D (Qwen3)": _Format(_qwen3_layout, _interpret_a2d),
    "Open-dCoder": _Format(_qwen2_layout, _interpret_open_dcoder),
    "SDAR": _Format(_qwen3_layout, _interpret_sdar),
    "Fast-dLLM v2": _Format(_qwen2_layout, _interpret_fast_dllm),
    "Llama": _Format(_llama_layout, _interpret_causal),
    "Qwen2": _Format(_qwen2_layout, _interpret_causal),
    "Qwen3": _Format(_qwen3_layout, _interpret_causal),
}
_COMMON_READERS = "transformers, vLLM, SGLang, llama.cpp"
_EXPORTS = {
    "llama": _ExportFormat(_layout_for_llama, _llama_settings, _CAUSAL, _COMMON_READERS),
    "qwen": _ExportFormat(_layout_for_qwen, _qwen_settings, _CAUSAL, _COMMON_READERS),
    "dream": _ExportFormat(
        _layout_for_dream, _dream_settings, _SHIFTED_FULL, "Dream's own code (beside the weights on the hub), llama.cpp"
    ),
    "sdar": _ExportFormat(
        _layout_for_sdar, _sdar_settings, _BLOCKS, "SDAR's own code (beside the weights on the hub), SGLang"
    ),
}
