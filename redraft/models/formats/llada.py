"""LLaDA: the Llama architecture with OLMo's tensor names."""

from __future__ import annotations

from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.formats.checkpoint import _ForeignCheckpoint, _Format, _InterpretedModel
from redraft.models.formats.export_format import _FULL, _ExportFormat, _require_expressible, _SettingsJson
from redraft.models.formats.language import _interpret_masked, _refuse_other_attention
from redraft.models.formats.layout import (
    _Layout,
    _NameTable,
    _require_int_setting,
    _require_setting,
    _require_supported,
)
from redraft.models.formats.storage.tensors import ForeignSettings, ForeignWeights
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.patterns import Full

_TABLE: _NameTable = {
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


def _read_config(state: ForeignWeights, config: ForeignSettings) -> TransformerConfig:
    _require_supported(
        config, block_type="llama", activation_type="silu", layer_norm_type="rms", rope=True, alibi=False
    )
    _require_supported(config, include_bias=False, bias_for_layer_norm=False, scale_logits=False, num_experts=0)
    _require_supported(config, attention_layer_norm=False, input_emb_norm=False, multi_query_attention=False)
    width = _require_int_setting(config, "d_model")
    return TransformerConfig(
        padded_vocab=_require_int_setting(config, "embedding_size", "vocab_size"),
        width=width,
        layers=_require_int_setting(config, "n_layers"),
        heads=_require_int_setting(config, "n_heads"),
        kv_heads=config.get("n_kv_heads"),
        hidden=config.get("mlp_hidden_size") or int(_require_setting(config, "mlp_ratio") * width),
        norm_eps=float(_require_setting(config, "rms_norm_eps")),
        qkv_bias=bool(config.get("include_qkv_bias")),
        rotary=float(_require_setting(config, "rope_theta")),
        tied=bool(_require_setting(config, "weight_tying")),
    )


_llada_layout = _Layout(lambda _: _TABLE, _read_config, {"model.transformer.": ""})


def _interpret(original: _ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    _require_int_setting(original.settings, "mask_token_id")
    _refuse_other_attention(original, "full")
    return _interpret_masked(original, network, Full(), shift=False)


def _export_layout(config: TransformerConfig) -> _Layout:
    unsupported = config.qk_norm or config.out_bias or config.mlp_bias or config.rope_scaling is not None
    _require_expressible(unsupported, False, "QK norm, biases or RoPE scaling", "llada", "qwen or sdar")
    _require_expressible(
        config.head_width * config.heads, config.width, "a head width other than width / heads", "llada", "none"
    )
    return _llada_layout


def _export_settings(model: DiffusionLM) -> _SettingsJson:
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


_FORMATS = {"LLaDA": _Format(_llada_layout, _interpret)}
_READERS = "LLaDA's own code (next to the weights on the hub), llama.cpp"
_EXPORTS = {"llada": _ExportFormat(_export_layout, _export_settings, _FULL, _READERS, "model.transformer.")}
