"""The DiT of MDLM, SEDD, UDLM, GIDD, BD3-LM and FlexMDM: a transformer driven by time (adaLN)."""

from __future__ import annotations

from redraft.models.formats.layout import Layout, Table, flat, require, size, whole_number
from redraft.models.formats.storage.tensors import Settings, Weights
from redraft.models.networks.attention import BlockCausal, Full
from redraft.models.networks.config import TransformerConfig

_TABLE: Table = {
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


def _sizes(state: Weights, config: Settings) -> TransformerConfig:
    """BD3-LM's settings may name blocks, UDLM's weights know labels, FlexMDM's gaps.

    Sizes are read off the tensors: the families name them differently, and some give a wrong default for the width of
    the time embedding. What the network is fed as time (σ, 0, t) is the model's `Level`.
    """
    labels = state.get("cond_map.embedding_table.weight")  # one row per class, and one for none
    config = flat(config)
    require(config, causal=False, causal_attention=False, adaln=True, tie_word_embeddings=False)
    vocab, width = size(state, "vocab_embed.embedding")
    interpolant = config.get("interpolant")
    return TransformerConfig(
        ids=vocab,
        width=width,
        layers=whole_number(config, "n_blocks", "num_hidden_layers"),
        heads=whole_number(config, "n_heads", "num_attention_heads"),
        pattern=BlockCausal(whole_number(config, "block_size")) if config.get("cross_attn") else Full(),
        norm="layer",
        gated=False,
        mlp_bias=True,
        time=size(state, "sigma_map.mlp.0.weight")[0],
        classes=None if labels is None else labels.shape[0] - 1,
        head_bias=True,
        gaps=None if interpolant is None else whole_number(interpolant, "max_length"),
        gap_counts="len_pred.linear.weight" in state,
    )


def _table(config: TransformerConfig) -> Table:
    return {**_TABLE, **(_COUNTED_GAPS if config.gap_counts else _EXPECTED_GAPS)}


dit = Layout(_table, _sizes, {"backbone.": "", "model._orig_mod.": "", "model.": ""})  # _orig_mod: compiled
