"""GPT-2, with or without its language-model head, and DiffuGPT: learned positions, biases, tied output layer."""

from __future__ import annotations

from redraft.models.formats.checkpoint import _embedding_rows, _ForeignCheckpoint, _Format, _InterpretedModel
from redraft.models.formats.language import _interpret_causal, _interpret_masked
from redraft.models.formats.layout import (
    _Layout,
    _matrix_shape,
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


def _read_config(state: ForeignWeights, config: ForeignSettings) -> TransformerConfig:
    """Read the config; the number of ids comes from the tensor, since DiffuGPT's settings do not count the mask."""
    _require_supported(config, activation_function="gelu_new", scale_attn_weights=True, add_cross_attention=False)
    _require_supported(config, scale_attn_by_inverse_layer_idx=False)
    return TransformerConfig(
        padded_vocab=_matrix_shape(state, "wte.weight" if "wte.weight" in state else "lm_head.weight")[0],
        width=_require_int_setting(config, "n_embd"),
        layers=_require_int_setting(config, "n_layer"),
        heads=_require_int_setting(config, "n_head"),
        hidden=config.get("n_inner"),
        norm="layer",
        norm_eps=float(_require_setting(config, "layer_norm_epsilon")),
        norm_bias=True,
        gated=False,
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        rotary=None,
        positions=_require_int_setting(config, "n_positions"),
        tied=bool(config.get("tie_word_embeddings", True)),
    )


_gpt2_layout = _Layout(
    lambda _: _TABLE,
    _read_config,
    {"transformer.": "", "denoise_model.": "", "embed_tokens.": "wte."},
    (".c_attn.weight", ".c_proj.weight", ".c_fc.weight"),  # GPT-2 uses Conv1D layers
)


def _interpret_diffugpt(original: _ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    """Interpret DiffuGPT: the mask is an extra last row if there is one; otherwise a word that the caller must name."""
    end_tokens = (original.settings.get("eos_token_id"), original.settings.get("bos_token_id"))
    has_extra_row = _embedding_rows(network) - 1 not in end_tokens
    return _interpret_masked(original, network, Full(), last=has_extra_row)


_FORMATS = {"GPT-2": _Format(_gpt2_layout, _interpret_causal), "DiffuGPT": _Format(_gpt2_layout, _interpret_diffugpt)}
