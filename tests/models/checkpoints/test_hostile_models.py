"""Malicious and damaged models of other projects execute nothing and end in one line."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from pathlib import Path

import pytest
import tokenizers
import torch
from conftest import redraft_here
from safetensors.torch import load_file, save_file
from tokenizers import models

from redraft.core import HubTokenizer, TemplateSandbox, prompt_ids
from redraft.core.text.chat_template import _ChatError, _render_template
from redraft.models import CheckpointError, chat_canvas, import_checkpoint
from redraft.training import load

GOLDEN = Path(__file__).parents[2] / "golden"


def copied(path: Path, name: str = "llama", **settings: object) -> Path:
    path.mkdir()
    described = json.loads((GOLDEN / name / "config.json").read_text()) | settings
    (path / "config.json").write_text(json.dumps(described))
    (path / "model.safetensors").write_bytes((GOLDEN / name / "model.safetensors").read_bytes())
    return path


def refused(path: Path) -> str:
    """What `redraft generate` says of a model: one line, exit code 2."""
    done = redraft_here("generate", path, "x")
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    return line


# --- pickles ---


class Bomb:
    """Pickled, it would make a file when it is opened."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("old", [False, True])
def test_a_pickle_that_runs_code_is_refused(tmp_path: Path, old: bool) -> None:
    path = copied(tmp_path / "model")
    (path / "model.safetensors").unlink()
    state = {"weight": torch.ones(1), "bomb": Bomb(tmp_path / "trace")}
    torch.save(state, path / "pytorch_model.bin", _use_new_zipfile_serialization=not old)
    with pytest.raises(
        CheckpointError, match=r"holds more than tensors \(.*mkdir.*\); opening that could run any code"
    ):
        import_checkpoint(path)
    assert not (tmp_path / "trace").exists()
    assert "only safetensors are read" in refused(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x04N.", b"\x00" * 100, b"PK\x03\x04" + b"x" * 1000])
def test_damaged_pickles_end_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = copied(tmp_path / "model")
    (path / "model.safetensors").unlink()
    (path / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        import_checkpoint(path)


# --- safetensors ---


def header(entries: dict[str, object], data: bytes = b"", length: int | None = None) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


@pytest.mark.parametrize(
    "content",
    [
        header({}, length=2**60),
        header({"x": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}}, bytes(4)),
        header({"x": {"dtype": "F32", "shape": [4], "data_offsets": [0, 2**50]}}, bytes(4)),
        header({"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, bytes(4)),
        header({"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}, bytes(4)),
        header({"x": {"dtype": "os.system", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
        b"\x80\x04N.",
        b"",
    ],
    ids=["header", "shape", "offset", "negative", "backwards", "dtype", "pickle", "empty"],
)
def test_absurd_safetensors_are_refused(tmp_path: Path, content: bytes) -> None:
    path = copied(tmp_path / "model")
    (path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"the weights in .*model\.safetensors are damaged"):
        load(path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_size": 2**40}, r"width=1099511627776; it must be"),
        ({"num_hidden_layers": 10**9}, r"layers=1000000000; it must be"),
        ({"num_hidden_layers": 400, "hidden_size": 2**20, "head_dim": 2}, "the weights are of another layout or size"),
        ({"vocab_size": 2**30}, r"embed_tokens\.weight is \[40, 48\], where the settings need \[1073741824, 48\]"),
        ({"num_attention_heads": 0}, "heads=0; it must be"),
        ({"num_key_value_heads": -1}, "kv_heads=-1; it must be"),
        ({"hidden_size": "48"}, "hidden_size is '48'; it must be an integer"),
        ({"hidden_size": 48.0}, "hidden_size is 48.0; it must be an integer"),
        ({"rms_norm_eps": "x"}, "could not convert string to float"),
        ({"rms_norm_eps": []}, "its settings are damaged"),
        ({"rope_theta": -1}, "rotary=-1.0; it must be"),
        ({"rope_parameters": "default"}, "its settings are damaged"),
        ({"layer_types": ["sliding_attention"] * 2}, "layer_types has 'sliding_attention', which is not supported"),
        ({"quantization_config": {"bits": 4}}, "quantized weights are not supported"),
        ({"model_type": "llama", "num_local_experts": 8}, "a mixture of experts is not supported"),
    ],
)
def test_absurd_settings_are_refused(tmp_path: Path, settings: dict[str, object], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(copied(tmp_path / "model", **settings))


def test_weights_that_lead_elsewhere_are_refused(tmp_path: Path) -> None:
    path = copied(tmp_path / "model")
    (tmp_path / "secret.safetensors").write_bytes((path / "model.safetensors").read_bytes())
    (path / "model.safetensors").unlink()
    for name in ("../secret.safetensors", str(tmp_path / "secret.safetensors"), "..", ""):
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": name}}))
        with pytest.raises(CheckpointError, match="lacks "):
            load(path)
    (path / "model.safetensors.index.json").unlink()
    (path / "model.safetensors").symlink_to(tmp_path / "secret.safetensors")
    with pytest.raises(CheckpointError, match="is a link that leaves the directory"):
        load(path)
    (path / "model.safetensors").unlink()
    os.mkfifo(path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"lacks model\.safetensors"):
        load(path)


@pytest.mark.parametrize("name", ["model.layers.1.self_attn.k_proj.weight", "model.norm.weight", "lm_head.weight"])
def test_damaged_tensors_are_named_with_what_was_expected(tmp_path: Path, name: str) -> None:
    path = copied(tmp_path / "model")
    weights = load_file(path / "model.safetensors")
    shape, short = list(weights[name].shape), name.removeprefix("model.").replace(".", r"\.")
    needs = ", ".join(map(str, shape))
    for spoilt, message in [
        ({name: weights[name][:-1].clone()}, rf"{short} is \[.*\], where the settings need \[{needs}\]"),
        ({name: torch.ones(1, *shape)}, rf"{short} is \[1, {needs}\], where the settings need \[{needs}\]"),
        ({name: weights[name].to(torch.int8)}, rf"{short} holds torch\.int8; weights must be floating-point numbers"),
        ({name: weights[name] * torch.nan}, "has values that are nan or infinite"),
    ]:
        save_file(weights | spoilt, path / "model.safetensors")
        with pytest.raises(CheckpointError, match=message):
            load(path)
    save_file({key: tensor for key, tensor in weights.items() if key != name}, path / "model.safetensors")
    with pytest.raises(CheckpointError, match=rf"missing {short} \[{needs}\]"):
        load(path)


def test_one_line_on_the_command_line(tmp_path: Path) -> None:
    assert "was taken for Llama, but layers=1000000000; it must be" in refused(
        copied(tmp_path / "a", num_hidden_layers=10**9)
    )
    assert "a mixture of experts, which is not supported" in refused(copied(tmp_path / "b", model_type="llada2_moe"))


# --- tokenizers and chat templates ---


def hub(template: str | None) -> HubTokenizer:
    backend = tokenizers.Tokenizer(models.WordLevel({f"w{i}": i for i in range(9)}, unk_token="w1"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.add_special_tokens(["<|turn|>", "<|end|>"])
    return HubTokenizer(backend.to_str(), eos="<|end|>", mask=None, template=template)


TURNS = (
    "{% for m in messages %}<|turn|>{{ m.role }} {{ m['content'] | trim }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>w8{% endif %}"
)


def test_a_conversation_becomes_ids() -> None:
    ids = prompt_ids(hub(TURNS), [{"role": "w2", "content": "  w3 w4 "}, {"role": "w5", "content": "w6"}])
    assert ids == [9, 2, 3, 4, 10, 9, 5, 6, 10, 9, 8]


def test_messages_cannot_spell_special_tokens() -> None:
    ids = prompt_ids(hub(TURNS), [{"role": "w2", "content": "w3<|end|><|turn|>w4"}])
    assert (ids.count(9), ids.count(10)) == (2, 1), "two turns and one end: those of the template"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "did not end within"),
        (
            "{% set n = namespace(x='aaaa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
            "memory",
        ),
        ("{{ 'a' * 10000000000 }}", "memory"),
        ("{{ 'a' * 3000000 }}", "a prompt of 3,000,000 characters"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError"),
        ("{{ messages.__init__.__globals__ }}", "SecurityError"),
        ("{{ cycler.__init__.__globals__.os.system('true') }}", "SecurityError"),
        ("{% include '/etc/passwd' %}", "no loader|TypeError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{% for %}", "TemplateSyntaxError"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
    ],
)
def test_templates_that_do_harm_end_in_one_line(template: str, message: str) -> None:
    with pytest.raises(_ChatError, match=rf"the chat template of this model cannot be used: .*({message})") as caught:
        prompt_ids(hub(template), [{"role": "user", "content": "hello"}])
    assert len(str(caught.value).splitlines()) == 1


def test_one_process_renders_many_prompts_and_survives_none_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(a) or popen(*a, **k))
    with TemplateSandbox() as render:
        assert [render("{{ a }}é\n!", {"a": i}) for i in range(20)] == [f"{i}é\n!" for i in range(20)]
        with pytest.raises(_ChatError, match="SecurityError"):
            render("{{ ''.__class__.__mro__ }}", {})
        assert render("{{ a }}", {"a": 1}) == "1", "what was refused leaves the process as it is"
        assert len(started) == 1
        with pytest.raises(_ChatError, match="did not end within"):
            render("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", {})
        assert render("{{ a }}", {"a": 2}) == "2"
        assert len(started) == 2


def test_a_model_without_a_template_says_so() -> None:
    with pytest.raises(_ChatError, match="has no chat template; give a prompt"):
        prompt_ids(hub(None), [])
    assert _render_template("{{ a | tojson }}{{ strftime_now('%Y')[:2] }}", {"a": ["<é>"]}) == '["<é>"]20'


def test_the_template_comes_with_the_tokenizer(tmp_path: Path) -> None:
    path = copied(tmp_path / "model")
    (path / "tokenizer.json").write_text(hub(None).definition)
    (path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": TURNS}))
    canvas = chat_canvas(load(path), [{"role": "w2", "content": "w3"}], new=3)
    assert canvas.z[0].tolist() == [9, 2, 3, 10, 9, 8, 11, 11, 11]
    assert canvas.fixed[0].tolist() == [True] * 6 + [False] * 3
    (path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert chat_canvas(load(path), [{"role": "w2", "content": "w3"}], new=1).z[0].tolist() == [3, 11]
    (path / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"the tokenizer in .* cannot be read: not a tokenizer"):
        load(path)
