"""LLaDA: Llama under other names (those of OLMo)."""

from __future__ import annotations

from redraft.models.formats.layout import Layout, Table, require, setting, whole_number
from redraft.models.formats.storage.tensors import Settings, Weights
from redraft.models.networks.config import TransformerConfig

_TABLE: Table = {
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


def _sizes(state: Weights, config: Settings) -> TransformerConfig:
    require(config, block_type="llama", activation_type="silu", layer_norm_type="rms", rope=True, alibi=False)
    require(config, include_bias=False, bias_for_layer_norm=False, scale_logits=False, num_experts=0)
    require(config, attention_layer_norm=False, input_emb_norm=False, multi_query_attention=False)
    width = whole_number(config, "d_model")
    return TransformerConfig(
        ids=whole_number(config, "embedding_size", "vocab_size"),
        width=width,
        layers=whole_number(config, "n_layers"),
        heads=whole_number(config, "n_heads"),
        kv_heads=config.get("n_kv_heads"),
        hidden=config.get("mlp_hidden_size") or int(setting(config, "mlp_ratio") * width),
        norm_eps=float(setting(config, "rms_norm_eps")),
        qkv_bias=bool(config.get("include_qkv_bias")),
        rotary=float(setting(config, "rope_theta")),
        tied=bool(setting(config, "weight_tying")),
    )


llada = Layout(lambda _: _TABLE, _sizes, {"model.transformer.": ""})
