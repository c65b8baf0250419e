"""A run is a value; the models it leaves behind load from wherever they are, or say why not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from train_child import small

from redraft.core import Linear, Masked
from redraft.models import CheckpointError, ConfigError, DiffusionLM, TransformerConfig
from redraft.models.checkpoints import reader as stored, serialization, writer
from redraft.training import (
    Run,
    describe_run,
    export,
    fit,
    load,
)
from redraft.training.runs.loading import (
    build_model,
    load_newest,
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path, DiffusionLM]:
    folder = tmp_path_factory.mktemp("trained")
    run = small(folder, steps=6, save_every=3)
    return run, folder / "out", fit(run, folder / "out", quiet=True)


def says(model: DiffusionLM) -> torch.Tensor:
    """The model's prediction for some noisy sequence."""
    z = torch.tensor([[0, 7, 1, 2, 7, 7]])
    with torch.no_grad():
        return model.predict(z, torch.full((1, 1), 0.5)).x


def test_a_run_must_fit_together(tmp_path: Path) -> None:
    run = small(tmp_path)
    more = replace(run.tokenizer, alphabet=" abcde")
    with pytest.raises(ValueError, match="the model has 8 token ids, the tokenizer 9"):
        replace(run, tokenizer=more)
    for name in (
        "steps",
        "batch",
        "micro_batches",
        "log_every",
        "save_every",
        "eval_every",
        "eval_rows",
        "keep_checkpoints",
    ):
        with pytest.raises(ValueError, match=f"{name}=0; it must be (at least 1|from 1 to [0-9,]+)$"):
            replace(run, **{name: 0})


def test_load_gives_the_averaged_weights(trained: tuple[Run, Path, DiffusionLM]) -> None:
    _, out, model = trained
    saved = load_newest(out)
    assert saved.step == 6
    loaded = load(out)
    assert not loaded.training
    for name, p in loaded.named_parameters():
        assert torch.equal(p, saved.tensors["model"][name])
        assert torch.equal(p, dict(model.named_parameters())[name])
    assert any(not torch.equal(p, saved.tensors["raw"][name]) for name, p in loaded.named_parameters())


def test_load_finds_a_run_a_checkpoint_and_an_export(trained: tuple[Run, Path, DiffusionLM], tmp_path: Path) -> None:
    run, out, model = trained
    given = export(tmp_path / "given", model, run, card="# A model")
    assert sorted(p.name for p in given.iterdir()) == ["README.md", "config.json", "manifest.json", "model.safetensors"]
    for path in (out, str(out), out / "step-00000006", given):
        assert torch.equal(says(load(path)), says(model))
    assert not torch.equal(says(load(out / "step-00000003")), says(model))
    assert load(given).config == run.model
    assert load(given).tokenizer == run.tokenizer


def test_an_export_without_manifest_loads(trained: tuple[Run, Path, DiffusionLM], tmp_path: Path) -> None:
    """As others may write it: config and weights alone."""
    run, _, model = trained
    (tmp_path / "config.json").write_text(json.dumps(serialization.to_json(run)))
    save_file({n: p.detach().clone() for n, p in model.named_parameters()}, tmp_path / "model.safetensors")
    assert torch.equal(says(load(tmp_path)), says(model))


def test_loading_draws_nothing(trained: tuple[Run, Path, DiffusionLM]) -> None:
    torch.manual_seed(0)
    first = torch.rand(3)
    torch.manual_seed(0)
    load(trained[1])
    assert torch.equal(torch.rand(3), first)


def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    trained: tuple[Run, Path, DiffusionLM], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(trained[1], out)
    file = out / "step-00000006" / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert torch.equal(says(load(out)), says(load(trained[1] / "step-00000003")))
    with pytest.raises(CheckpointError, match="SHA-256"):
        load(out / "step-00000006")


def test_wrong_places_are_named(trained: tuple[Run, Path, DiffusionLM], tmp_path: Path) -> None:
    run, _, model = trained
    with pytest.raises(CheckpointError, match="is not a directory; give the directory of a run"):
        load(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"is not a model: it holds neither step-… directories nor config\.json"):
        load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(serialization.to_json(run)))
    with pytest.raises(CheckpointError, match=r"lacks model\.safetensors"):
        load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    save_file({n: p.detach().clone() for n, p in model.named_parameters()}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"is not in a known format: its config\.json has model_type='bert'"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match="exists already"):
        export(tmp_path, model, run)


def test_weights_must_belong_to_the_config(trained: tuple[Run, Path, DiffusionLM]) -> None:
    run, out, _ = trained
    weights = load_file(out / "step-00000006" / "model.safetensors")
    wide = replace(run, model=replace(run.model, network=replace(run.model.network, width=32)))
    with pytest.raises(CheckpointError, match=r"attention\.out\.weight is \(16, 16\), the config needs \(32, 32\)"):
        build_model(wide, weights, "cpu")
    name = "network.norm.weight"
    with pytest.raises(CheckpointError, match=rf"{name} is missing, the config needs \(16,\)"):
        build_model(run, {n: w for n, w in weights.items() if n != name}, "cpu")
    with pytest.raises(CheckpointError, match=r"extra is \(1,\), the config needs no such tensor"):
        build_model(run, weights | {"extra": torch.ones(1)}, "cpu")


@dataclass(frozen=True)
class Slow(Linear):
    """A schedule of the user's own."""


def test_foreign_classes_need_trust(trained: tuple[Run, Path, DiffusionLM], tmp_path: Path) -> None:
    run, _, model = trained
    own = replace(run, model=replace(run.model, process=Masked(run.model.vocab, Slow())))
    export(tmp_path / "own", model, own)
    with pytest.raises(ConfigError, match="outside the package"):
        load(tmp_path / "own")
    assert torch.equal(says(load(tmp_path / "own", trust=(Slow.__module__,))), says(model))


def test_any_network_setting_survives(trained: tuple[Run, Path, DiffusionLM], tmp_path: Path) -> None:
    """Tied output, biased norms, learned positions, time: every parameter is found again."""
    run, _, _ = trained
    network = TransformerConfig(
        width=8, layers=1, heads=2, rotary=None, positions=12, time=8, tied=True, norm="layer", norm_bias=True
    )
    run = replace(run, model=replace(run.model, network=network))
    torch.manual_seed(1)
    model = DiffusionLM(run.model, run.tokenizer).eval()
    assert torch.equal(says(load(export(tmp_path / "odd", model, run))), says(model))
    assert stored._verify(tmp_path / "odd")["step"] is None


def test_a_run_is_named_by_what_decides_its_weights(tmp_path: Path) -> None:
    run = small(tmp_path, steps=4, save_every=2)
    watched = replace(run, log_every=7, save_every=1, eval_every=3, eval_rows=3, samples=0, keep_checkpoints=5)
    assert watched.digest == run.digest
    assert replace(run, seed=run.seed + 1).digest != run.digest
    assert run.matches(serialization.to_json(watched))
    assert not run.matches(serialization.to_json(replace(run, steps=5)))
    assert not run.matches({"class": "redraft.core.vocab.Vocab", "size": 3})


def test_a_run_that_is_saved_more_often_goes_on(tmp_path: Path) -> None:
    run, out = small(tmp_path, steps=4, save_every=2), tmp_path / "out"
    model = fit(run, out, quiet=True)
    again = fit(replace(run, save_every=1, keep_checkpoints=1), out, quiet=True)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file of a checkpoint is read, by name."""
    counted: Counter[str] = Counter()
    usual, whole = open, serialization.read_bytes

    def watched(file: Path, mode: str) -> Any:
        counted[Path(file).name] += 1
        return usual(file, mode)

    def bytes_of(file: Path) -> bytes:
        counted[file.name] += 1
        return whole(file)

    monkeypatch.setattr(stored, "open", watched, raising=False)
    monkeypatch.setattr(stored, "read_bytes", bytes_of)
    return counted


def test_a_resumed_training_reads_its_checkpoint_once(tmp_path: Path, reads: Counter[str]) -> None:
    run, out = small(tmp_path, steps=2), tmp_path / "out"
    fit(run, out, quiet=True)
    reads.clear()
    fit(run, out, quiet=True)  # all steps are made, so nothing is saved, and what is saved is not verified
    assert (reads["raw.safetensors"], reads["optimizer.safetensors"], reads["state.json"]) == (1, 1, 1)
    assert reads["model.safetensors"] == 2  # once more for the model that is given back


def test_loading_reads_what_it_needs_once(trained: tuple[Run, Path, DiffusionLM], reads: Counter[str]) -> None:
    needed = {"manifest.json": 1, "config.json": 1, "model.safetensors": 1}
    for path in (trained[1], trained[1] / "step-00000006"):
        reads.clear()
        load(path)
        assert reads == needed
    reads.clear()
    assert describe_run(trained[1]) == (trained[0], 6)
    assert reads == {"manifest.json": 1, "config.json": 1}
    reads.clear()
    load_newest(trained[1])
    assert reads.keys() > needed.keys()
    assert set(reads.values()) == {1}


def test_a_damaged_optimizer_does_not_keep_a_model_from_loading(
    trained: tuple[Run, Path, DiffusionLM], tmp_path: Path
) -> None:
    shutil.copytree(trained[1], tmp_path / "out")
    (tmp_path / "out" / "step-00000006" / "optimizer.safetensors").write_bytes(b"damaged")
    assert torch.equal(says(load(tmp_path / "out")), says(trained[2]))
    assert load_newest(tmp_path / "out").step == 3  # training would go on from here


def test_load_in_another_dtype(trained: tuple[Run, Path, DiffusionLM]) -> None:
    _, out, model = trained
    for path in (out, out / "step-00000006"):
        loaded = load(path, dtype=torch.float16)
        assert {p.dtype for p in loaded.parameters()} == {torch.float16}
        assert all(p.requires_grad for p in loaded.parameters())
        for a, b in zip(loaded.parameters(), model.parameters(), strict=True):
            assert torch.equal(a, b.half())
    assert {p.dtype for p in load(out).parameters()} == {torch.float32}


def test_no_two_weights_share_memory(trained: tuple[Run, Path, DiffusionLM]) -> None:
    """Neither with each other nor with a larger tensor that they were cut from."""
    run, _, model = trained
    whole = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    shapes = [(n, p.shape) for n, p in model.named_parameters()]
    parts = whole.split([shape.numel() for _, shape in shapes])
    weights = {n: part.view(shape) for (n, shape), part in zip(shapes, parts, strict=True)}
    built = build_model(run, weights, "cpu")
    assert torch.equal(says(built), says(model))
    assert len({p.untyped_storage().data_ptr() for p in built.parameters()}) == len(shapes)
    assert whole.untyped_storage().data_ptr() not in {p.untyped_storage().data_ptr() for p in built.parameters()}


PEAK = """
import re, sys
from pathlib import Path
from redraft.training.runs.loading import load
def peak(): return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
load(sys.argv[1])  # all that is imported on the way
before = peak()
model = load(sys.argv[2])
print(peak() - before, sum(p.nbytes for p in model.parameters()))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to tell the peak of memory")
def test_loading_needs_the_memory_of_the_weights(trained: tuple[Run, Path, DiffusionLM], tmp_path: Path) -> None:
    run, out, _ = trained
    wide = replace(run, model=replace(run.model, network=replace(run.model.network, width=2048, layers=2)))
    with torch.device("meta"):
        shapes = {n: p.shape for n, p in DiffusionLM(wide.model, wide.tokenizer).named_parameters()}
    weights = {n: torch.ones(shape) for n, shape in shapes.items()}
    writer.save_checkpoint(tmp_path, 1, {"model": weights}, {"config": serialization.to_json(wide), "state": {}})
    result = subprocess.run([sys.executable, "-c", PEAK, out, tmp_path], capture_output=True, text=True, check=True)
    grown, size = map(int, result.stdout.split())
    assert size > 1e8
    assert 0.9 * size <= grown <= 1.3 * size
