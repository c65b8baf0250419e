"""Adapters by themselves: a few tensors and the name of a causal model; what does not fit is refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import redraft
from redraft.core import Context, Masked, WordTokenizer
from redraft.models import (
    Causal,
    CheckpointError,
    DiffusionLM,
    Shift,
    TransformerConfig,
    lora_disabled,
    lora_enabled,
    with_weight_format,
    write_adapter,
)
from redraft.models.networks.linear import lora_layers, lora_parameters
from redraft.training import (
    PackedRows,
    TextFiles,
    adaptation_run,
)
from redraft.training.runs.loading import (
    init_from,
)

Build = Callable[..., DiffusionLM]
Say = Callable[..., tuple[str, str]]
WORDS = WordTokenizer(
    ("the", "a", "cat", "dog", "sat", "ran", "on", "by", "mat", "tree", ".", "big"), ("eos", "pad", "mask")
)
OTHERS = WordTokenizer(("one", "two", "three", "four", "five"), ("eos", "pad", "mask"))


def causal(build: Build, tiny: TransformerConfig, words: WordTokenizer | None = WORDS, **options: Any) -> DiffusionLM:
    vocab = (words or WORDS).vocab
    return build(Causal(), replace(tiny, tied=True), process=Masked(vocab), head=Shift(), tokenizer=words, **options)


@pytest.fixture(scope="module")
def folder(build: Build, tiny: TransformerConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A causal model in base/, a text, and an adapter of it in adapter/."""
    folder = tmp_path_factory.mktemp("adapters")
    redraft.export(folder / "base", causal(build, tiny))
    (folder / "text.txt").write_text("\n\n".join(["the cat sat on the mat .", "a big dog ran by the tree ."] * 40))
    write_adapter(folder / "adapter", adapted(folder), str(folder / "base"), run="somerun", step=3)
    return folder


def adapted(folder: Path) -> DiffusionLM:
    """The base with an adapter whose weights are exact in bf16."""
    data = TextFiles((str(folder / "text.txt"),))
    run = adaptation_run(redraft.training.load(folder / "base"), str(folder / "base"), data, PackedRows(12), lora=4)
    model = DiffusionLM(run.model, run.tokenizer)
    torch.manual_seed(0)
    with torch.no_grad():
        init_from(model, folder / "base")
        for p in lora_parameters(model):
            p.copy_(torch.randn_like(p).mul(0.3).bfloat16())
    return model.eval()


IDS = torch.tensor([[0, 2, 14, 6, 14, 8, 10]])


def test_an_adapter_comes_back_with_its_base(folder: Path) -> None:
    model, found = adapted(folder), redraft.training.load(folder / "adapter")
    assert found.config == model.config
    assert torch.equal(found.network(IDS, None), model.network(IDS, None))
    with lora_disabled(found):
        original = redraft.training.load(folder / "base")
        plain = torch.tensor([[0, 2, 4, 6, 0, 8, 10]])
        assert torch.equal(found.network(plain, None, Context(pattern=Causal())), original.network(plain, None))
    size = sum(p.numel() for p in lora_parameters(model))
    assert (folder / "adapter" / "model.safetensors").stat().st_size < 2 * size + 4000


def test_infill_and_export_by_command(folder: Path, tmp_path: Path, say: Say) -> None:
    words = ["adapt", folder / "base", "--out", tmp_path / "run", "--data", folder / "text.txt", "--length", 12]
    say(*map(str, [*words, "--batch", 2, "--steps", 2, "--lora", 2, "--lr", 0.1, "--quiet"]))
    out, _ = say("export", tmp_path / "run", "--format", "adapter", "--out", tmp_path / "adapter")
    assert f"an adapter for {folder / 'base'}" in out
    holes = "the cat [[2]] the mat ."
    assert say("infill", tmp_path / "adapter", holes)[0].startswith("the cat")
    with pytest.raises(CheckpointError, match="exists already"):
        write_adapter(tmp_path / "adapter", redraft.training.load(tmp_path / "run"), "base")


def test_an_adapter_learns_on(folder: Path, tmp_path: Path, say: Say) -> None:
    """Adapting an adapted model goes on where its adapter stands; everything else stays."""
    words = ["adapt", folder / "adapter", "--out", tmp_path / "on", "--data", folder / "text.txt", "--length", 12]
    say(*map(str, [*words, "--batch", 2, "--steps", 1, "--lr", 1e-6, "--align", 1, "--quiet"]))
    before, after = (
        dict(redraft.training.load(path).named_parameters()) for path in (folder / "adapter", tmp_path / "on")
    )
    for name, p in before.items():
        assert torch.allclose(p, after[name], atol=1e-5), name
        assert torch.equal(p, after[name]) == ("lora" not in name)


@pytest.mark.parametrize("weights", ["fp16", "int8", "packed"])
def test_an_adapter_around_other_weights(folder: Path, weights: str) -> None:
    """Off it is the model without one, bit for bit; on it changes what the plain form changes; gated it is local."""
    model, plain = with_weight_format(adapted(folder), weights), redraft.training.load(folder / "adapter")
    bare = with_weight_format(_without(adapted(folder)), weights)
    assert len(lora_layers(model)) == len(lora_layers(plain)) > 0
    on = model.network(IDS, None)
    torch.testing.assert_close(on, plain.network(IDS, None), rtol=0.1, atol=0.1)
    with lora_disabled(model):
        off = model.network(IDS, None)
    assert torch.equal(off, bare.network(IDS, None))
    assert not torch.allclose(on, off, atol=0.1)
    seen = Context(pattern=Causal())
    with lora_enabled(model, gate=WORDS.vocab.masked == IDS):
        gated = model.network(IDS, None, seen)
    with lora_disabled(model):
        assert torch.equal(gated[:, :2], model.network(IDS, None, seen)[:, :2])
    assert redraft.infill(model, "the cat [[1]] on the mat .")[0].text.startswith("the cat")


def _without(model: DiffusionLM) -> DiffusionLM:
    bare = DiffusionLM(replace(model.config, network=replace(model.config.network, lora=None)), model.tokenizer)
    bare.load_state_dict({n: p for n, p in model.state_dict().items() if "lora" not in n})
    return bare.eval()


# --- wrong inputs: one line, exit code 2 ---


def other_norms(folder: Path, build: Build, tiny: TransformerConfig) -> Path:
    """An adapter that names a model of the same shape, which it was not trained on."""
    other = causal(build, tiny)
    with torch.no_grad():
        other.network.norm.weight += 0.1
    redraft.export(folder / "near", other)
    return write_adapter(folder / "of-near", adapted(folder), str(folder / "near"))


def wrong_adapters(folder: Path, build: Build, tiny: TransformerConfig) -> dict[str, Path]:
    redraft.export(folder / "others", causal(build, tiny, OTHERS))
    redraft.export(folder / "full", build(process=Masked(WORDS.vocab), tokenizer=WORDS))
    made = {
        name: write_adapter(folder / f"of-{name}", adapted(folder), str(folder / name)) for name in ("gone", "full")
    }
    made["near"] = other_norms(folder, build, tiny)
    made["others"] = write_adapter(folder / "of-others", adapted(folder), str(folder / "others"))
    made["damaged"] = write_adapter(folder / "damaged", adapted(folder), str(folder / "base"))
    with open(made["damaged"] / "model.safetensors", "r+b") as file:
        file.seek(-1, 2)
        file.write(b"!")
    return made


def test_adapters_that_do_not_fit(
    folder: Path, build: Build, tiny: TransformerConfig, tmp_path: Path, say: Say
) -> None:
    made = wrong_adapters(tmp_path_with(folder, tmp_path), build, tiny)
    expected = {
        "gone": "which is not a directory",
        "full": "needs a plain causal model",
        "near": "was not trained on the model at",
        "others": "was not trained on the model at",
        "damaged": "is damaged",
    }
    for name, message in expected.items():
        refused(say("infill", made[name], "the cat [[1]] .", code=2)[1], message)


def tmp_path_with(folder: Path, tmp_path: Path) -> Path:
    """A directory of its own with the base and the text."""
    for name in ("base", "text.txt"):
        (tmp_path / name).symlink_to(folder / name)
    return tmp_path


def refused(err: str, message: str) -> None:
    assert message in err, err
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("infill", "{}/adapter", "[[2]] the cat ."), "cannot predict the first token"),
        (("infill", "{}/adapter", "the xylophone [[1]] ."), "does not know 'xylophone'"),
        (("infill", "{}/adapter", "the cat ."), "[["),
        (("export", "{}/base", "--format", "adapter", "--out", "{}/new"), "has no adapter to write"),
        (("export", "{}/adapter", "--format", "adapter", "--out", "{}/new"), "give --base DIR"),
        (
            ("export", "{}/adapter", "--format", "llama", "--base", "x", "--out", "{}/new"),
            "--base is only for --format",
        ),
        (("adapt", "{}/nowhere", "--out", "{}/new", "--data", "{}/text.txt"), "is not a directory"),
        (("adapt", "{}/adapter", "--out", "{}/new", "--data", "{}/text.txt", "--lora", "7"), "already has an adapter"),
        (("adapt", "{}/adapter", "--out", "{}/new", "--data", "{}/text.txt", "--block", "4"), "already has an adapter"),
        (("adapt", "{}/base", "--out", "{}/new", "--data", "{}/nothing.txt"), "nothing.txt"),
        (("adapt", "{}/base", "--out", "{}/new", "--data", "{}/text.txt", "--rates", "0.6", "0.05"), "rates"),
        (("generate", "{}/base", "the cat", "--new", "3", "--draft", "story"), "its tokenizer differs"),
    ],
)
def test_wrong_inputs(folder: Path, say: Say, words: tuple[str, ...], message: str) -> None:
    refused(say(*(word.format(folder) for word in words), code=2)[1], message)
    assert not (folder / "new").exists()


def test_a_model_without_a_tokenizer(
    build: Build, tiny: TransformerConfig, folder: Path, tmp_path: Path, say: Say
) -> None:
    redraft.export(tmp_path / "mute", causal(build, tiny, None))
    words = ("adapt", tmp_path / "mute", "--out", tmp_path / "new", "--data", folder / "text.txt")
    refused(say(*words, code=2)[1], "has no tokenizer")
