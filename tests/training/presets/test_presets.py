"""Published presets have the sizes their papers state; every preset can be written down, and takes a step."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch

from redraft.core import Interpolating, Special, WordTokenizer
from redraft.models import DiffusionLM, MaskedLM, TransformerSize
from redraft.models.checkpoints import serialization
from redraft.training import (
    Bound,
    CodecObjective,
    EncoderRows,
    InfiniteCorpus,
    JsonlPairs,
    Objective,
    PairRows,
    Run,
    TextFiles,
    fit,
    presets,
)
from redraft.training.presets import (
    PRESETS,
    PUBLISHED,
    TINY,
    index,
)
from redraft.training.runs import variations

BERT = dict.fromkeys(("lm1b", "qqp", "roc", "xsum", "books", "prose", "reviews"), 30_522)
VOCABULARY = {**BERT, "owt": 50_258, "8b": 126_464, "e2e": 821}  # states of the data that a preset is named after


# One preset of each method and variant, the one of the largest data: mdlm_owt stands for mdlm_tiny and mdlm_text8.
VARIANTS = list({name.rsplit("_", 1)[0]: name for name in PRESETS}.values())


@cache
def made_up(size: int, specials: tuple[Special, ...] = ("eos", "pad", "mask")) -> WordTokenizer:
    """A tokenizer of so many states: numbered words, the unknown one, and signs."""
    return WordTokenizer(tuple(f"w{i}" for i in range(size - 1 - len(specials))), specials)


def build(name: str, size: int | None = None) -> Run:
    """A preset; those that read their tokenizer from a file get a made-up one."""
    vocabulary = VOCABULARY.get(name.rsplit("_", 1)[-1])
    if vocabulary is None:
        return PRESETS[name]()
    reads = signature(PRESETS[name]).parameters
    encoder = (
        {"encoder": MaskedLM(64, TransformerSize(16, 1, 2))} if "encoder" in reads else {}
    )  # MiniLM knows its own words only
    specials: tuple[Special, ...] = ("bos", "eos", "mask") if name.startswith("diffuseq") else ("eos", "pad", "mask")
    return PRESETS[name](made_up(size or vocabulary, specials), **encoder)


def parameters(run: Run, part: str = "") -> int:
    with torch.device("meta"):
        model = DiffusionLM(run.model)
    return sum(p.numel() for name, p in model.named_parameters() if part in name)


def test_the_dict_holds_them_all() -> None:
    assert PRESETS == TINY | PUBLISHED
    assert {name.rsplit("_", 1)[-1] for name in PUBLISHED} <= VOCABULARY.keys() | {"text8", "enwik8"}
    assert all(function.__name__ == name and function.__doc__ for name, function in PRESETS.items())


def test_every_preset_of_every_room_is_listed_once() -> None:
    rooms = [index.tiny, index.chat, index.tokens, index.vectors, index.latents, index.small]
    found = [function.__name__ for room in rooms for function in index._presets(room)]
    assert sorted(found) == sorted(PRESETS)
    assert {"_tiny_run", "_small_dit_run", "Run"}.isdisjoint(found), "helpers are no presets"


def test_the_small_dit_has_the_published_size() -> None:
    """169.6M parameters at 50,258 states (GPT-2's ids and the mask), of which 92.1M in the 12 blocks.

    These are the tensors of the released MDLM weights (kuleshov-group/mdlm-owt, Sahoo et al. 2024). Of a block: qkv
    768·2304, out 768², MLP 2·768·3072 + 3840, modulation by the time 129·4608, norms 2·768.
    """
    run = build("mdlm_owt")
    block = 768 * 2304 + 768**2 + 2 * 768 * 3072 + 3840 + 129 * 4608 + 2 * 768
    assert parameters(run, ".blocks.") == 12 * block
    assert round(12 * block / 1e6, 1) == 92.1
    assert round(parameters(run) / 1e6, 1) == 169.6
    assert parameters(build("bd3_owt")) == parameters(run)  # block diffusion changes the attention mask only
    assert parameters(build("mdlm_lm1b"), ".blocks.") == 12 * block
    assert parameters(build("mdlm_text8"), ".blocks.") == 12 * block
    assert parameters(build("ar_owt")) < parameters(run)  # no time, no modulation


@pytest.mark.parametrize(("name", "steps"), [("multinomial_text8", 1000), ("multinomial_enwik8", 4000)])
def test_multinomial_diffusion_as_published(name: str, steps: int) -> None:
    """12 layers of 512 with 8 heads, chains of 1000 and 4000 steps, the last of which takes x̂ itself."""
    run = build(name)
    network, process = run.model.network, run.model.process
    assert (network.layers, network.width, network.heads) == (12, 512, 8)
    assert isinstance(process, Interpolating)
    assert process.direct
    assert run.objective == Objective(Bound(steps=steps))


def test_llada_has_the_published_size() -> None:
    """8.02B parameters, 6.98B of them neither embedding nor output layer; 2.3T tokens (Nie et al. 2025; model card)."""
    run = build("llada_8b")
    assert round(parameters(run) / 1e9, 2) == 8.02
    assert round(parameters(run, ".blocks.") / 1e9, 2) == 6.98
    assert round(run.steps * run.batch * run.framing.length / 1e12, 1) == 2.3


def test_presets_can_be_written_down() -> None:
    runs = {name: build(name) for name in PRESETS}
    again = {n: serialization.from_json(json.loads(json.dumps(serialization.to_json(run)))) for n, run in runs.items()}
    assert [name for name, run in runs.items() if again[name] != run] == []


def test_the_name_of_a_run_is_the_same_in_every_process() -> None:
    code = (
        f"import sys, json; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_presets import PRESETS, build, serialization\n"
        "print(json.dumps({name: serialization.digest(build(name, 99)) for name in PRESETS}))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    ours = {name: serialization.digest(build(name, 99)) for name in PRESETS}
    assert json.loads(found.stdout) == ours
    assert len(set(ours.values())) == len(PRESETS)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_shrunken_copy_takes_a_step(name: str, tmp_path: Path) -> None:
    run = shrunken(build(name, 24), tmp_path)
    model = fit(run, tmp_path / "out", quiet=True)
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 1]
    assert math.isfinite(lines[0]["train_loss_bits_per_token"])
    assert lines[0]["gradient_norm"] > 0
    if isinstance(run.objective, CodecObjective):
        assert 0 <= lines[1]["valid_reconstruction"] <= 1  # of a codec alone there is no likelihood yet
    else:
        assert math.isfinite(lines[1]["valid_bound_bits_per_token"])
        assert len(lines[1]["samples"]) == 1
    assert model.config == run.model


def shrunken(run: Run, folder: Path) -> Run:
    """The same recipe, small enough for a second: one narrow layer, two short rows, a made file, few steps."""
    run = replace(variations._shrunken(run), base=None, steps=1, batch=2, eval_rows=2, samples=1)
    if run.model.codec is not None:
        run = replace(run, sampler=few_steps(run.sampler))
    if isinstance(run.data, InfiniteCorpus):
        return run
    if isinstance(run.framing, PairRows | EncoderRows):
        return replace(run, data=made_pairs(run, folder))
    said = [run.tokenizer.decode([i % 20]) for i in range(200)]
    (folder / "text").write_text(" ".join(text if text.isprintable() and text else "a" for text in said))
    files = (str(folder / "text"),)
    data = TextFiles(files, valid=files, split_by="file")
    short: Any = run.framing
    return replace(run, data=data, framing=short if run.model.codec else replace(short, length=32))


def few_steps(sampler: Any) -> Any:
    inner = getattr(sampler, "sampler", None)
    return replace(sampler, steps=2) if inner is None else replace(sampler, sampler=few_steps(inner))


def made_pairs(run: Run, folder: Path) -> JsonlPairs:
    said = [run.tokenizer.decode([i % 20]) for i in range(6)]
    line = json.dumps({"source": " ".join(said), "target": " ".join(reversed(said))})
    (folder / "pairs").write_text("\n".join([line] * 4))
    files = (str(folder / "pairs"),)
    return JsonlPairs(files, valid=files, test=files)


def test_every_preset_is_a_name_of_its_room() -> None:
    assert all(getattr(presets, name) is make for name, make in presets.PRESETS.items())
