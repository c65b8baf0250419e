"""Other sizes and options of the same formats: our networks against small ones written out here in plain steps.

The plain ones are held to the originals' own numbers first (tests/golden), so what they say of other sizes counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import GOLDEN
from safetensors.torch import load_file, save_file
from torch import Tensor

from redraft.models import (
    BlockCausal,
    Causal,
    CheckpointError,
    Full,
    Shift,
    Subs,
    export_as,
    reference_gaps,
    reference_outputs,
)
from redraft.training import load

State = dict[str, Tensor]


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


# --- plain networks ---


def rotated(x: Tensor, frequency: Tensor) -> Tensor:
    """(B, H, L, d) with pairs (i, i + d/2) turned."""
    angle = torch.arange(x.shape[2])[:, None] * frequency
    (a, b), cos, sin = x.chunk(2, -1), angle.cos(), angle.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attended(q: Tensor, k: Tensor, v: Tensor, sees: Tensor) -> Tensor:
    """(B, H, L, d) each → (B, L, H·d)"""
    scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~sees, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def frequencies(settings: dict[str, Any], width: int) -> Tensor:
    rope = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    base = rope.get("rope_theta", settings.get("rope_theta", 10_000.0))
    turn = 1.0 / base ** (torch.arange(0, width, 2).float() / width)
    if rope.get("rope_type", rope.get("type")) == "linear":
        return turn / rope["factor"]
    if rope.get("rope_type") != "llama3":
        return turn
    wave, known = 2 * math.pi / turn, rope["original_max_position_embeddings"]
    low, high = known / rope["low_freq_factor"], known / rope["high_freq_factor"]
    smooth = (known / wave - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
    mixed = (1 - smooth) * turn / rope["factor"] + smooth * turn
    return torch.where(wave < high, turn, torch.where(wave > low, turn / rope["factor"], mixed))


def plain_llama(state: State, settings: dict[str, Any], ids: Tensor, sees: Tensor) -> Tensor:
    """Llama, Qwen2 and Qwen3: biases and norms of queries and keys are there if their tensors are."""
    heads = settings["num_attention_heads"]
    groups = settings.get("num_key_value_heads") or heads
    width = settings.get("head_dim") or settings["hidden_size"] // heads
    turn = frequencies(settings, width)

    def norm(x: Tensor, name: str) -> Tensor:
        return state[name] * x * (x.square().mean(-1, keepdim=True) + settings["rms_norm_eps"]).rsqrt()

    def linear(x: Tensor, name: str) -> Tensor:
        return F.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))

    h = state["model.embed_tokens.weight"][ids]
    for i in range(settings["num_hidden_layers"]):
        at = f"model.layers.{i}."
        x = norm(h, f"{at}input_layernorm.weight")
        q, k, v = (
            linear(x, f"{at}self_attn.{n}_proj").unflatten(-1, (count, width))
            for n, count in (("q", heads), ("k", groups), ("v", groups))
        )
        if f"{at}self_attn.q_norm.weight" in state:
            q, k = norm(q, f"{at}self_attn.q_norm.weight"), norm(k, f"{at}self_attn.k_norm.weight")
        q, k, v = (a.transpose(1, 2) for a in (q, k, v))
        k, v = (a.repeat_interleave(heads // groups, 1) for a in (rotated(k, turn), v))
        h = h + linear(attended(rotated(q, turn), k, v, sees), f"{at}self_attn.o_proj")
        x = norm(h, f"{at}post_attention_layernorm.weight")
        h = h + linear(F.silu(linear(x, f"{at}mlp.gate_proj")) * linear(x, f"{at}mlp.up_proj"), f"{at}mlp.down_proj")
    h = norm(h, "model.norm.weight")
    return F.linear(h, state.get("lm_head.weight", state["model.embed_tokens.weight"]))


def plain_dit(
    state: State, heads: int, ids: Tensor, level: Tensor, sees: Tensor, label: Tensor | None = None, gaps: int = 0
) -> Tensor:
    """The DiT of MDLM, SEDD, UDLM, GIDD and BD3-LM: raw numbers; with `gaps`, the longest, those of FlexMDM's gaps."""
    state = {name.removeprefix("backbone.").removeprefix("model."): tensor for name, tensor in state.items()}

    def linear(x: Tensor, name: str) -> Tensor:
        return F.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:]) * state[f"{name}.weight"]

    wave = level[:, None] * torch.exp(-math.log(10_000) * torch.arange(128) / 128)
    time = linear(F.silu(linear(torch.cat([wave.cos(), wave.sin()], -1), "sigma_map.mlp.0")), "sigma_map.mlp.2")
    c = F.silu(time)[:, None]
    c = c if label is None else c + F.silu(state["cond_map.embedding_table.weight"][label])[:, None]
    h = state["vocab_embed.embedding"][ids]
    turn = frequencies({}, h.shape[-1] // heads)
    for i in range(sum(name.endswith(".attn_qkv.weight") for name in state)):
        at = f"blocks.{i}."
        move, scale, gate, move2, scale2, gate2 = linear(c, f"{at}adaLN_modulation").chunk(6, -1)
        qkv = linear(norm(h, f"{at}norm1") * (1 + scale) + move, f"{at}attn_qkv").unflatten(-1, (3, heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        h = h + gate * linear(attended(rotated(q, turn), rotated(k, turn), v, sees), f"{at}attn_out")
        x = norm(h, f"{at}norm2") * (1 + scale2) + move2
        h = h + gate2 * linear(F.gelu(linear(x, f"{at}mlp.0"), approximate="tanh"), f"{at}mlp.2")
    if gaps:
        counts = "len_pred.linear.weight" in state
        move, scale = linear(c, "len_pred.adaLN_modulation" if counts else "len_pred.adaLN").chunk(2, -1)
        h = norm(h, "len_pred.norm_final" if counts else "len_pred.norm") * (1 + scale) + move
        if counts:
            return linear(h, "len_pred.linear")
        return gaps * F.softplus(linear(F.gelu(linear(h, "len_pred.proj1")), "len_pred.proj2")).squeeze(-1)
    move, scale = linear(c, "output_layer.adaLN_modulation").chunk(2, -1)
    return linear(norm(h, "output_layer.norm_final") * (1 + scale) + move, "output_layer.linear")


def plain_gpt2(state: State, settings: dict[str, Any], ids: Tensor, sees: Tensor) -> Tensor:
    """Its linear layers are stored (in, out)."""
    state = {name.removeprefix("transformer.").removeprefix("denoise_model."): t for name, t in state.items()}
    words = state["embed_tokens.weight" if "embed_tokens.weight" in state else "wte.weight"]

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ state[f"{name}.weight"] + state[f"{name}.bias"]

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(
            x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"], settings["layer_norm_epsilon"]
        )

    h = words[ids] + state["wpe.weight"][: ids.shape[1]]
    for i in range(settings["n_layer"]):
        qkv = linear(norm(h, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").unflatten(-1, (3, settings["n_head"], -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        h = h + linear(attended(q, k, v, sees), f"h.{i}.attn.c_proj")
        x = F.gelu(linear(norm(h, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"), approximate="tanh")
        h = h + linear(x, f"h.{i}.mlp.c_proj")
    return F.linear(norm(h, "ln_f"), state.get("lm_head.weight", words))


# --- who sees whom ---


def seen(kind: str, length: int) -> Tensor:
    i, j = torch.arange(length)[:, None], torch.arange(length)
    size = int(kind[6:]) if kind.startswith("block:") else {"causal": 1, "full": length}[kind]
    return j // size <= i // size


def same(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=2e-5 * max(1.0, float(theirs.abs().max())), rtol=0)


def put(path: Path, settings: dict[str, Any], state: State, shards: int = 1) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(settings))
    if shards == 1:
        save_file(state, path / "model.safetensors")
        return path
    files = [f"model-{i:05d}-of-{shards:05d}.safetensors" for i in range(shards)]
    places = {name: files[i % shards] for i, name in enumerate(state)}
    for file in files:
        save_file({name: tensor for name, tensor in state.items() if places[name] == file}, path / file)
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return path


def drawn(**shapes: tuple[int, ...]) -> State:
    return {name: 0.3 * torch.randn(shape) + ("norm" in name) for name, shape in shapes.items()}


# --- Llama's layout ---

SMALL = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 31,
    "rms_norm_eps": 1e-3,
    "rope_theta": 500.0,
    "hidden_act": "silu",
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 12}
OPTIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "one group": {"num_key_value_heads": 1},
    "no groups": {"num_key_value_heads": None},
    "wide heads": {"head_dim": 10},
    "tied": {"tie_word_embeddings": True},
    "slowed evenly": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "slowed as Llama 3": {"rope_scaling": LLAMA3},
    "transformers 5": {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 77.0}},
    "without a base": {"rope_theta": None},
    "one layer": {"num_hidden_layers": 1, "vocab_size": 8},
}


def llama_state(settings: dict[str, Any], bias: bool, norms: bool) -> State:
    c, heads = settings, settings["num_attention_heads"]
    groups, width = c.get("num_key_value_heads") or heads, c.get("head_dim") or c["hidden_size"] // heads
    D, hidden = c["hidden_size"], c["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (c["vocab_size"], D), "model.norm.weight": (D,)}
    if not c.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (c["vocab_size"], D)
    for i in range(c["num_hidden_layers"]):
        at, attention = f"model.layers.{i}.", f"model.layers.{i}.self_attn."
        shapes |= {f"{at}{name}_layernorm.weight": (D,) for name in ("input", "post_attention")}
        for name, rows in (("q", heads), ("k", groups), ("v", groups)):
            shapes[f"{attention}{name}_proj.weight"] = (rows * width, D)
            shapes |= {f"{attention}{name}_proj.bias": (rows * width,)} if bias else {}
        shapes |= {f"{attention}{name}_norm.weight": (width,) for name in ("q", "k") if norms}
        shapes |= {f"{attention}o_proj.weight": (D, heads * width), f"{at}mlp.down_proj.weight": (D, hidden)}
        shapes |= {f"{at}mlp.{name}_proj.weight": (hidden, D) for name in ("gate", "up")}
    return drawn(**shapes)


@pytest.mark.parametrize("name", ["llama", "llama_tied", "qwen2", "qwen3"])
def test_the_plain_llama_is_the_originals(name: str) -> None:
    io, settings = load_file(GOLDEN / name / "io.safetensors"), json.loads((GOLDEN / name / "config.json").read_text())
    ids = io["input_ids"]
    state = load_file(GOLDEN / name / "model.safetensors")
    same(plain_llama(state, settings, ids, seen("causal", ids.shape[1])), io["logits"])


KINDS: dict[str, tuple[dict[str, Any], bool, bool, str]] = {  # settings, biases, norms, attention
    "Llama": ({"model_type": "llama"}, False, False, "causal"),
    "Qwen2": ({"model_type": "qwen2"}, True, False, "causal"),
    "Qwen3": ({"model_type": "qwen3"}, False, True, "causal"),
    "DiffuLLaMA": ({"model_type": "llama", "mask_token_id": 5}, False, False, "full"),
    "Dream": ({"model_type": "Dream", "mask_token_id": 5}, True, False, "full"),
    "A2D (Llama)": ({"model_type": "a2d-llama"}, False, False, "full"),
    "A2D (Qwen2)": ({"model_type": "a2d-qwen2"}, True, False, "block:4"),
    "A2D (Qwen3)": ({"model_type": "a2d-qwen3"}, False, True, "block:3"),
    "Open-dCoder": ({"model_type": "qwen2", "auto_map": {"AutoModelForCausalLM": "m.C"}}, True, False, "full"),
    "SDAR": ({"model_type": "sdar", "mask_token_id": 5, "block_size": 5}, False, True, "block:5"),
    "Fast-dLLM v2": ({"model_type": "Fast_dLLM_Qwen", "bd_size": 7}, True, False, "block:7"),
}


def once_each(kinds: Iterable[Any]) -> list[tuple[Any, str]]:
    """Each kind with three options, so that each option meets several kinds."""
    return [(kind, option) for i, kind in enumerate(kinds) for option in islice(cycle(OPTIONS), 3 * i, 3 * i + 3)]


@pytest.mark.parametrize(("kind", "option"), once_each(KINDS))
def test_options_of_llamas_layout(kind: str, option: str, tmp_path: Path) -> None:
    own, bias, norms, attention = KINDS[kind]
    settings = {key: value for key, value in {**SMALL, **OPTIONS[option], **own}.items() if value is not None}
    torch.manual_seed(len(kind) + len(option))
    state = llama_state(settings, bias, norms)
    told = {} if attention == "causal" or "mask_token_id" in own else {"mask": 5}
    more = {"attention": attention} if kind.startswith("A2D") else {}
    model = load(put(tmp_path / "m", settings, state, shards=3 if option == "wide heads" else 1), **told, **more)
    ids = torch.randint(0, settings["vocab_size"], (2, 17))
    same(reference_outputs(model, ids), plain_llama(state, settings, ids, seen(attention, 17)))
    patterns = {"causal": Causal(), "full": Full()}
    assert model.config.network.pattern == (patterns.get(attention) or BlockCausal(int(attention[6:])))
    shifted = kind in ("Llama", "Qwen2", "Qwen3", "DiffuLLaMA", "Dream", "Open-dCoder", "Fast-dLLM v2")
    assert model.config.head == (Shift(Subs()) if shifted else Subs())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_weights_stored_in_16_bits(dtype: torch.dtype, tmp_path: Path) -> None:
    settings = {**SMALL, "model_type": "qwen3"}
    state = {name: tensor.to(dtype) for name, tensor in llama_state(settings, False, True).items()}
    ids = torch.randint(0, 31, (2, 9))
    expected = plain_llama({n: t.float() for n, t in state.items()}, settings, ids, seen("causal", 9))
    same(reference_outputs(load(put(tmp_path / "m", settings, state)), ids), expected)


def test_a_diffullama_predicts_each_token_from_the_state_before(tmp_path: Path) -> None:
    """Recognized by its settings, which are a Llama's but for the mask; full attention, no start of its own."""
    settings = {**SMALL, "model_type": "llama", "architectures": ["LlamaForCausalLM"], "mask_token_id": 5}
    state = llama_state(settings, False, False)
    model = load(put(tmp_path / "DiffuLLaMA", settings, state))
    ids = torch.randint(6, 31, (3, 12))
    hidden = torch.rand(3, 12) < 0.5
    hidden[:, 0] = False
    z = ids.masked_fill(hidden, 5)
    logits = plain_llama(state, settings, z, seen("full", 12)).roll(1, 1).index_fill(-1, torch.tensor([5]), -torch.inf)
    same(model.predict(z, torch.full((3, 1), 0.5)).at(hidden).exp(), logits.softmax(-1)[hidden])
    nothing = {key: value for key, value in settings.items() if key != "mask_token_id"}
    causal = load(put(tmp_path / "plain", nothing, state))
    assert causal.config.network.pattern == Causal(), "without a mask it is a plain Llama"
    assert load(tmp_path / "plain", mask=5, attention="full").config.head == model.config.head


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_type='yarn' is not supported"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, "rope_type='dynamic' is not supported"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5 is not supported"),
        ({"use_sliding_window": True}, "use_sliding_window=True is not supported"),
        ({"layer_types": ["sliding_attention"] * 3}, "layer_types has 'sliding_attention', which is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu' is not supported"),
        ({"num_attention_heads": 5}, r"q_proj\.weight is \[24, 24\]|does not split|no multiple"),
        ({"num_local_experts": 4}, "a mixture of experts is not supported"),
        ({"quantization_config": {"bits": 4}}, "quantized weights are not supported"),
        ({"vocab_size": 40}, r"embed_tokens\.weight is \[31, 24\], where the settings need \[40, 24\]"),
    ],
)
def test_what_is_not_supported_is_said(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    settings = {**SMALL, "model_type": "qwen2"}
    state = llama_state(settings, True, False)
    with pytest.raises(CheckpointError, match=message):
        load(put(tmp_path / "m", {**settings, **changed}, state))


# --- LLaDA's names, and its padded vocabulary ---

LLADA = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ff_norm",
    "self_attn.o_proj": "attn_out",
    "self_attn.": "",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
    "model.layers": "model.transformer.blocks",
    "model.embed_tokens": "model.transformer.wte",
    "model.norm": "model.transformer.ln_f",
    "lm_head": "model.transformer.ff_out",
}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("groups", [1, 6])
@pytest.mark.parametrize("padded", [0, 9])
def test_options_of_llada(tied: bool, groups: int, padded: int, tmp_path: Path) -> None:
    plain = {**SMALL, "num_key_value_heads": groups, "vocab_size": 31 + padded, "tie_word_embeddings": tied}
    state = theirs = llama_state(plain, False, False)
    for old, new in LLADA.items():
        theirs = {name.replace(old, new): tensor for name, tensor in theirs.items()}
    settings = {"model_type": "llada", "d_model": 24, "n_layers": 3, "n_heads": 6, "n_kv_heads": groups}
    settings |= {"mlp_hidden_size": 40, "rms_norm_eps": 1e-3, "rope_theta": 500.0, "weight_tying": tied}
    settings |= {"vocab_size": 31, "embedding_size": 31 + padded, "mask_token_id": 5, "block_type": "llama"}
    model = load(put(tmp_path / "m", settings, theirs))
    ids = torch.randint(0, 31, (2, 17))
    same(reference_outputs(model, ids), plain_llama(state, plain, ids, seen("full", 17)))
    export_as(model, tmp_path / "again", "llada")
    same(reference_outputs(load(tmp_path / "again"), ids), reference_outputs(model, ids))


# --- export and import ---


EXPORTS = [("Llama", "llama"), ("Qwen2", "qwen"), ("Qwen3", "qwen"), ("Dream", "dream"), ("SDAR", "sdar")]


@pytest.mark.parametrize(("export", "option"), once_each(EXPORTS))
def test_exports_come_back_with_all_options(export: tuple[str, str], option: str, tmp_path: Path) -> None:
    kind, written_as = export
    own, bias, norms, attention = KINDS[kind]
    settings = {key: value for key, value in {**SMALL, **OPTIONS[option], **own}.items() if value is not None}
    state = llama_state(settings, bias, norms)
    model = load(put(tmp_path / "m", settings, state))
    export_as(model, tmp_path / "out", written_as)
    ids = torch.randint(0, settings["vocab_size"], (2, 11))
    again = load(tmp_path / "out")
    assert torch.equal(reference_outputs(again, ids), reference_outputs(model, ids))
    said = json.loads((tmp_path / "out" / "config.json").read_text())
    theirs = {name: tensor for name, tensor in load_file(tmp_path / "out" / "model.safetensors").items()}
    same(plain_llama(theirs, said, ids, seen(attention, 11)), reference_outputs(model, ids))


# --- GPT-2 and DiffuGPT ---


def gpt2_state(settings: dict[str, Any], words: int) -> State:
    D, hidden = settings["n_embd"], settings.get("n_inner") or 4 * settings["n_embd"]
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (words, D), "wpe.weight": (settings["n_positions"], D)}
    shapes |= {f"ln_f.{end}": (D,) for end in ("weight", "bias")}
    for i in range(settings["n_layer"]):
        shapes |= {f"h.{i}.{name}.{end}": (D,) for name in ("ln_1", "ln_2") for end in ("weight", "bias")}
        for name, size in (("attn.c_attn", (D, 3 * D)), ("attn.c_proj", (D, D)), ("mlp.c_fc", (D, hidden))):
            shapes |= {f"h.{i}.{name}.weight": size, f"h.{i}.{name}.bias": size[1:]}
        shapes |= {f"h.{i}.mlp.c_proj.weight": (hidden, D), f"h.{i}.mlp.c_proj.bias": (D,)}
    return drawn(**shapes)


@pytest.mark.parametrize("untied", [False, True])
@pytest.mark.parametrize("inner", [None, 50])
@pytest.mark.parametrize("diffuses", [False, True])
def test_options_of_gpt2(untied: bool, inner: int | None, diffuses: bool, tmp_path: Path) -> None:
    """DiffuGPT: other names, full attention, and a row for the mask of which the settings know nothing."""
    settings = {"model_type": "gpt2", "n_embd": 24, "n_layer": 3, "n_head": 4, "n_positions": 30, "n_inner": inner}
    settings |= {"layer_norm_epsilon": 1e-3, "activation_function": "gelu_new", "vocab_size": 30, "eos_token_id": 29}
    state = gpt2_state(settings, 30 + diffuses)
    state |= {"lm_head.weight": torch.randn(30 + diffuses, 24)} if untied else {}
    settings |= {"tie_word_embeddings": False} if untied else {}
    prefix = "denoise_model." if diffuses else "transformer."
    theirs = {name if name.startswith("lm_head") else prefix + name: tensor for name, tensor in state.items()}
    if diffuses:
        theirs["embed_tokens.weight"] = theirs.pop(f"{prefix}wte.weight")
    model = load(put(tmp_path / "m", settings, theirs))
    ids = torch.randint(0, 30, (2, 13))
    expected = plain_gpt2(state, settings, ids, seen("full" if diffuses else "causal", 13))
    same(reference_outputs(model, ids), expected)
    assert model.config.vocab.mask == 30


def test_the_plain_gpt2_is_the_originals() -> None:
    io, settings = load_file(GOLDEN / "gpt2/io.safetensors"), json.loads((GOLDEN / "gpt2/config.json").read_text())
    state, ids = load_file(GOLDEN / "gpt2/model.safetensors"), io["input_ids"]
    same(plain_gpt2(state, settings, ids, seen("causal", ids.shape[1])), io["logits"])


# --- the DiT ---


def dit_state(settings: dict[str, Any], words: int, prefix: str, classes: int | None = None) -> State:
    D, c = settings["hidden_size"], settings["cond_dim"]
    shapes: dict[str, tuple[int, ...]] = {"vocab_embed.embedding": (words, D)}
    shapes |= {"sigma_map.mlp.0.weight": (c, 256), "sigma_map.mlp.2.weight": (c, c)}
    shapes |= {f"sigma_map.mlp.{i}.bias": (c,) for i in (0, 2)} | {"output_layer.norm_final.weight": (D,)}
    shapes |= {"output_layer.linear.weight": (words, D), "output_layer.linear.bias": (words,)}
    shapes |= {"output_layer.adaLN_modulation.weight": (2 * D, c), "output_layer.adaLN_modulation.bias": (2 * D,)}
    shapes |= {} if classes is None else {"cond_map.embedding_table.weight": (classes + 1, c)}
    for i in range(settings["n_blocks"]):
        at = f"blocks.{i}."
        shapes |= {f"{at}norm1.weight": (D,), f"{at}norm2.weight": (D,), f"{at}attn_qkv.weight": (3 * D, D)}
        shapes |= {f"{at}attn_out.weight": (D, D), f"{at}mlp.0.weight": (4 * D, D), f"{at}mlp.0.bias": (4 * D,)}
        shapes |= {f"{at}mlp.2.weight": (D, 4 * D), f"{at}mlp.2.bias": (D,)}
        shapes |= {f"{at}adaLN_modulation.weight": (6 * D, c), f"{at}adaLN_modulation.bias": (6 * D,)}
    return {prefix + name: 0.5 * tensor for name, tensor in drawn(**shapes).items()}


@pytest.mark.parametrize(
    ("name", "tokens", "level", "logits"), [("mdlm", "xt", "sigma", "logits"), ("gidd", "z_t", "t", "logits_hf")]
)
def test_the_plain_dit_is_the_originals(name: str, tokens: str, level: str, logits: str) -> None:
    io, state = (load_file(GOLDEN / name / f"{file}.safetensors") for file in ("io", "model"))
    same(plain_dit(state, 4, io[tokens], io[level], seen("full", 16)), io[logits])


def test_the_plain_dit_knows_labels() -> None:
    io, state = (load_file(GOLDEN / "udlm" / f"{file}.safetensors") for file in ("io", "model"))
    same(plain_dit(state, 4, io["xt"], io["sigma"], seen("full", 16), io["cond"]), io["logits_cond"])


SIZES = [
    {"hidden_size": 32, "cond_dim": 8, "n_blocks": 1, "n_heads": 2, "length": 20},
    {"hidden_size": 36, "cond_dim": 64, "n_blocks": 4, "n_heads": 6, "length": 12},
    {"hidden_size": 24, "cond_dim": 24, "n_blocks": 11, "n_heads": 1, "length": 16},
]


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"{sizes['n_blocks']} blocks")
@pytest.mark.parametrize("kind", ["mdlm", "mdlm without time", "udlm", "udlm of classes", "gidd", "bd3lm"])
def test_options_of_the_dit(kind: str, sizes: dict[str, int], tmp_path: Path) -> None:
    name, words = kind.split()[0], 23
    settings: dict[str, Any] = json.loads((GOLDEN / name / "config.json").read_text())
    classes = 5 if kind.endswith("classes") else None
    if name == "gidd":
        settings |= {"hidden_size": sizes["hidden_size"], "num_hidden_layers": sizes["n_blocks"], "vocab_size": words}
        settings |= {"num_attention_heads": sizes["n_heads"], "timestep_cond_dim": sizes["cond_dim"], "p_uniform": 0.3}
    else:
        settings["model"] |= sizes
        settings |= {"vocab_size": words, "time_conditioning": kind != "mdlm without time", "block_size": 3}
        settings |= {"mask_index": words - 1} if "mask_index" in settings else {}
    state = dit_state(sizes, words, "" if name == "gidd" else "backbone.", classes)
    model, ids = load(put(tmp_path / "m", settings, state)), torch.randint(0, words - 1, (3, 12))
    untold = kind in ("mdlm without time", "bd3lm")
    level = None if untold else torch.rand(3)
    label = None if classes is None else torch.tensor([0, 5, 2])
    sees = seen("block:3" if name == "bd3lm" else "full", 12)
    expected = plain_dit(state, sizes["n_heads"], ids, torch.zeros(3) if level is None else level, sees, label)
    same(reference_outputs(model, ids, level, label), expected)


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"{sizes['n_blocks']} blocks")
@pytest.mark.parametrize("kind", ["absorb", "uniform"])
def test_options_of_sedd(kind: str, sizes: dict[str, int], tmp_path: Path) -> None:
    """Scores of mask noise are divided by (e^σ − 1)·(V − 1); the score of the token itself is one."""
    masked = kind == "absorb"
    settings: dict[str, Any] = json.loads((GOLDEN / "sedd" / "config.json").read_text())
    settings["graph"]["type"] = kind
    settings["model"] |= {**sizes, "scale_by_sigma": masked}
    settings |= {"tokens": 22, "noise": {"type": "geometric", "sigma_min": 1e-3, "sigma_max": 15}}
    words = 22 + masked
    state = dit_state(sizes, words, "")
    ids, sigma = torch.randint(0, words, (3, 12)), torch.tensor([0.1, 1.0, 5.0])
    expected = plain_dit(state, sizes["n_heads"], ids, sigma, seen("full", 12))
    if masked:
        expected = expected - sigma.expm1().log()[:, None, None] - math.log(words - 1)
    expected = expected.scatter(-1, ids[..., None], 0.0)
    same(reference_outputs(load(put(tmp_path / "m", settings, state)), ids, sigma), expected)


def gap_state(counts: bool, D: int, c: int, most: int) -> State:
    if counts:
        shapes: dict[str, tuple[int, ...]] = {
            "len_pred.norm_final.weight": (D,),
            "len_pred.linear.weight": (most + 1, D),
        }
        shapes |= {"len_pred.linear.bias": (most + 1,), "len_pred.adaLN_modulation.bias": (2 * D,)}
        shapes |= {"len_pred.adaLN_modulation.weight": (2 * D, c)}
    else:
        shapes = {"len_pred.norm.weight": (D,), "len_pred.adaLN.weight": (2 * D, c), "len_pred.adaLN.bias": (2 * D,)}
        shapes |= {"len_pred.proj1.weight": (D, D), "len_pred.proj1.bias": (D,)}
        shapes |= {"len_pred.proj2.weight": (1, D), "len_pred.proj2.bias": (1,)}
    return {f"model.{name}": 0.5 * tensor for name, tensor in drawn(**shapes).items()}


@pytest.mark.parametrize("name", ["flexmdm_expectation", "flexmdm_distribution"])
def test_the_plain_gaps_are_the_originals(name: str) -> None:
    io, state = (load_file(GOLDEN / name / f"{file}.safetensors") for file in ("io", "model"))
    row, length = 2, int(io["xt_length"][2])
    ids = torch.cat([io["xt"][row, :length], torch.tensor([39])])[None]
    expected = io["expected_gaps" if name.endswith("expectation") else "length_posterior_logits"][row, : length + 1]
    sees = seen("full", length + 1)
    same(plain_dit(state, 4, ids, io["t"][row : row + 1], sees, gaps=16)[0], expected)


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"{sizes['n_blocks']} blocks")
@pytest.mark.parametrize("counts", [False, True])
def test_options_of_flexmdm(counts: bool, sizes: dict[str, int], tmp_path: Path) -> None:
    settings: dict[str, Any] = json.loads((GOLDEN / "flexmdm_expectation" / "config.json").read_text())
    settings["model"] |= sizes
    settings["interpolant"] |= {"mask_token": 21, "pad_token": 22, "tokens": 23, "max_length": 30}
    settings["training"] |= {"only_embed_insert": counts}
    state = dit_state(sizes, 23, "model.") | gap_state(counts, sizes["hidden_size"], sizes["cond_dim"], 30)
    model, ids, time = (
        load(put(tmp_path / "m", settings, state)),
        torch.randint(0, 22, (2, 9)),
        torch.tensor([0.2, 0.7]),
    )
    whole, heads = torch.cat([ids, torch.full((2, 1), 22)], 1), sizes["n_heads"]
    same(reference_gaps(model, ids, time), plain_dit(state, heads, whole, time, seen("full", 10), gaps=30))
    same(reference_outputs(model, ids, time), plain_dit(state, heads, whole, time, seen("full", 10))[:, :9])
