"""Llama, Qwen2 and Qwen3 as Hugging Face stores them, and all that has their layout: Dream, DiffuLLaMA, A2D, SDAR."""

from __future__ import annotations

import re
from functools import partial

from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.formats.checkpoint import ForeignCheckpoint, _Format, _InterpretedModel
from redraft.models.formats.export_format import (
    _BLOCKS,
    _CAUSAL,
    _SHIFTED_FULL,
    _common_settings,
    _execution,
    _ExportFormat,
    _require_room,
    _SettingsJson,
)
from redraft.models.formats.language import _causal_model, _mask_filling_model
from redraft.models.formats.layout import Layout, _NameTable, require_int_setting, require_setting, require_supported
from redraft.models.formats.storage.tensors import ForeignSettings, ForeignWeights, LayoutError
from redraft.models.networks.attention import BlockCausal, Full, RopeScaling
from redraft.models.networks.config import TransformerConfig

_BASE = 10_000.0  # of the rotary positions, where old settings do not name it: that of the originals' code
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


def _sizes(
    state: ForeignWeights, config: ForeignSettings, *, qkv_bias: bool | None = None, qk_norm: bool = False
) -> TransformerConfig:
    """qkv_bias: whether queries, keys and values have a bias; None: the settings say it, for the output too."""
    _require_known(config)
    biased = bool(config.get("attention_bias"))
    return TransformerConfig(
        ids=require_int_setting(config, "vocab_size"),
        width=require_int_setting(config, "hidden_size"),
        layers=require_int_setting(config, "num_hidden_layers"),
        heads=require_int_setting(config, "num_attention_heads"),
        kv_heads=config.get("num_key_value_heads"),
        head_dim=config.get("head_dim"),
        hidden=require_int_setting(config, "intermediate_size"),
        norm_eps=float(require_setting(config, "rms_norm_eps")),
        qkv_bias=biased if qkv_bias is None else qkv_bias,
        out_bias=biased if qkv_bias is None else False,
        mlp_bias=bool(config.get("mlp_bias")),
        qk_norm=qk_norm,
        rotary=float({"rope_theta": _BASE, **_given(config), **_given(_rope(config))}["rope_theta"]),
        slowed=_slowed(_rope(config)),
        tied=bool(config.get("tie_word_embeddings", "lm_head.weight" not in state)),
    )


def _given(config: ForeignSettings) -> ForeignSettings:
    return {name: value for name, value in config.items() if value is not None}


def _require_known(config: ForeignSettings) -> None:
    require_supported(config, hidden_act="silu", use_sliding_window=False, partial_rotary_factor=1.0)
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


def _rope(config: ForeignSettings) -> ForeignSettings:
    """What is said of the rotary positions; transformers 5 keeps their base there too, 4 beside it."""
    found: ForeignSettings = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return found


def _slowed(rope: ForeignSettings) -> RopeScaling | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(float(require_setting(rope, "factor")))
    if kind == "llama3":
        low, high = (float(require_setting(rope, f"{end}_freq_factor")) for end in ("low", "high"))
        known = require_int_setting(rope, "original_max_position_embeddings")
        return RopeScaling(float(require_setting(rope, "factor")), known, low, high)
    raise LayoutError(f"rope_type={kind!r:.40} is not supported; only default, linear and llama3 can be loaded")


_HERE = {"model.": ""}
llama = Layout(lambda _: _TABLE, _sizes, _HERE)
qwen2 = Layout(lambda _: _TABLE, partial(_sizes, qkv_bias=True), _HERE)
qwen3 = Layout(lambda _: _TABLE, partial(_sizes, qk_norm=True), _HERE)


def _dream(original: ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    return _mask_filling_model(original, network, Full())


def _diffullama(original: ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    return _mask_filling_model(original, network, Full())


def _a2d(original: ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    """dllm's models. Settings do not tell MDLM (full attention) from BD3-LM (blocks); their names do."""
    name = original.name.lower()
    size = original.settings.get("block_size")
    if original.attention is not None:
        return _mask_filling_model(original, network, Full(), shift=False)
    if type(size) is int:
        return _mask_filling_model(original, network, BlockCausal(size), shift=False)
    if "bd3lm" in name:
        said = "attention in blocks of 32, as dllm trains BD3-LM: its name says bd3lm"
        return _mask_filling_model(original, network, BlockCausal(32), said, shift=False)
    said = "full attention (MDLM)" + (": its name says mdlm" if "mdlm" in name else "; attention=block:32 for BD3-LM")
    return _mask_filling_model(original, network, Full(), said, shift=False)


def _open_dcoder(original: ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    """A Qwen2 by its settings but for the code that they name."""
    assumed = () if original.attention else ("full attention: it names code of its own, as Open-dCoder does",)
    return _mask_filling_model(original, network, Full(), *assumed)


def _sdar(original: ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    """Blocks of four, unless its settings or its name say otherwise: SDAR-8B-Chat-b32."""
    size = original.settings.get("block_size")
    if type(size) is int:
        return _mask_filling_model(original, network, BlockCausal(size), shift=False)
    named = re.search(r"-b(\d{1,4})(?:$|[^\w])", original.name)
    size = int(named[1]) if named else 4
    said = f"blocks of {size}, " + ("as its name says" if named else "as SDAR has where its settings do not name them")
    return _mask_filling_model(
        original, network, BlockCausal(size), *(() if original.attention else (said,)), shift=False
    )


def _fast_dllm(original: ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    size = original.settings.get("bd_size")
    assumed = () if size or original.attention else ("blocks of 32: its settings do not name them",)
    return _mask_filling_model(original, network, BlockCausal(size or 32), *assumed)


def _llama(config: TransformerConfig) -> Layout:
    _require_room(config.qk_norm, False, "norms of queries and keys", "llama", "qwen")
    _require_room(config.qkv_bias == config.out_bias, True, "biases on queries, keys and values alone", "llama", "qwen")
    return llama


def _qwen(config: TransformerConfig) -> Layout:
    _require_room(config.mlp_bias, False, "biases in its MLP", "qwen", "llama")
    if config.qk_norm:
        _require_room(
            config.qkv_bias == config.out_bias, True, "biases on queries, keys and values alone", "qwen", "none"
        )
        return qwen3
    _require_room(config.out_bias, False, "a bias on what attention gives", "qwen", "llama")
    return qwen2


def _qwen2(config: TransformerConfig) -> Layout:
    _require_room(config.qk_norm, False, "norms of queries and keys", "dream", "sdar or qwen")
    return _qwen(config)


def _qwen3(config: TransformerConfig) -> Layout:
    _require_room(config.qk_norm, True, "no norms of queries and keys", "sdar", "dream, llada or llama")
    return _qwen(config)


def _as_llama(model: DiffusionLM) -> _SettingsJson:
    c = model.config
    said = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **_common_settings(model)}
    said |= {"attention_bias": c.network.qkv_bias, "mlp_bias": c.network.mlp_bias}
    if _execution(model) == _SHIFTED_FULL:  # read back as DiffuLLaMA
        said["mask_token_id"] = c.vocab.mask
    return said


def _as_qwen(model: DiffusionLM) -> _SettingsJson:
    if model.config.network.qk_norm:
        said = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **_common_settings(model)}
        return said | {"attention_bias": model.config.network.qkv_bias}
    return {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **_common_settings(model)}


def _as_dream(model: DiffusionLM) -> _SettingsJson:
    said = {"model_type": "Dream", "architectures": ["DreamModel"], **_common_settings(model)}
    return said | {"mask_token_id": model.config.vocab.mask}


def _as_sdar(model: DiffusionLM) -> _SettingsJson:
    said = {"model_type": "sdar", "architectures": ["SDARForCausalLM"], **_common_settings(model)}
    said |= {"attention_bias": model.config.network.qkv_bias, "mask_token_id": model.config.vocab.mask}
    return said | ({} if model.block is None else {"block_size": model.block})


_FORMATS = {
    "Dream": _Format(qwen2, _dream),
    "DiffuLLaMA": _Format(llama, _diffullama),
    "A2D (Llama)": _Format(llama, _a2d),
    "A2D (Qwen2)": _Format(qwen2, _a2d),
    "A2D (Qwen3)": _Format(qwen3, _a2d),
    "Open-dCoder": _Format(qwen2, _open_dcoder),
    "SDAR": _Format(qwen3, _sdar),
    "Fast-dLLM v2": _Format(qwen2, _fast_dllm),
    "Llama": _Format(llama, _causal_model),
    "Qwen2": _Format(qwen2, _causal_model),
    "Qwen3": _Format(qwen3, _causal_model),
}
_COMMON_READERS = "transformers, vLLM, SGLang, llama.cpp"
_EXPORTS = {
    "llama": _ExportFormat(_llama, _as_llama, _CAUSAL, _COMMON_READERS),
    "qwen": _ExportFormat(_qwen, _as_qwen, _CAUSAL, _COMMON_READERS),
    "dream": _ExportFormat(
        _qwen2, _as_dream, _SHIFTED_FULL, "Dream's own code (beside the weights on the hub), llama.cpp"
    ),
    "sdar": _ExportFormat(_qwen3, _as_sdar, _BLOCKS, "SDAR's own code (beside the weights on the hub), SGLang"),
}
