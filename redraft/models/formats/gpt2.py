"""GPT-2, bare or with its head, and DiffuGPT: learned positions, biases everywhere, a tied output layer."""

from __future__ import annotations

from redraft.models.formats.checkpoint import ForeignCheckpoint, _embedding_rows, _Format, _InterpretedModel
from redraft.models.formats.language import _causal_model, _mask_filling_model
from redraft.models.formats.layout import (
    Layout,
    _matrix_shape,
    _NameTable,
    require_int_setting,
    require_setting,
    require_supported,
)
from redraft.models.formats.storage.tensors import ForeignSettings, ForeignWeights
from redraft.models.networks.attention import Full
from redraft.models.networks.config import TransformerConfig

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


def _sizes(state: ForeignWeights, config: ForeignSettings) -> TransformerConfig:
    """The number of ids is read off the tensor: settings of adapted models forget the row of the mask."""
    require_supported(config, activation_function="gelu_new", scale_attn_weights=True, add_cross_attention=False)
    require_supported(config, scale_attn_by_inverse_layer_idx=False)
    return TransformerConfig(
        ids=_matrix_shape(state, "wte.weight" if "wte.weight" in state else "lm_head.weight")[0],
        width=require_int_setting(config, "n_embd"),
        layers=require_int_setting(config, "n_layer"),
        heads=require_int_setting(config, "n_head"),
        hidden=config.get("n_inner"),
        norm="layer",
        norm_eps=float(require_setting(config, "layer_norm_epsilon")),
        norm_bias=True,
        gated=False,
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        rotary=None,
        positions=require_int_setting(config, "n_positions"),
        tied=bool(config.get("tie_word_embeddings", True)),
    )


gpt2 = Layout(
    lambda _: _TABLE,
    _sizes,
    {"transformer.": "", "denoise_model.": "", "embed_tokens.": "wte."},
    (".c_attn.weight", ".c_proj.weight", ".c_fc.weight"),  # Conv1D
)


def _diffugpt(original: ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    """The mask is one row more than GPT-2 has; where there is none, it is a word, which only the caller knows."""
    more = _embedding_rows(network) - 1 not in (
        original.settings.get("eos_token_id"),
        original.settings.get("bos_token_id"),
    )
    return _mask_filling_model(original, network, Full(), last=more)


_FORMATS = {"GPT-2": _Format(gpt2, _causal_model), "DiffuGPT": _Format(gpt2, _diffugpt)}
