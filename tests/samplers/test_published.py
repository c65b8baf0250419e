"""Token for token what the originals' own decoders wrote: LLaDA, Fast-dLLM with its caches and without, Dream."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from redraft.model import DiffusionLM
from redraft.ops import rng
from redraft.processes import Pick
from redraft.runs import load
from redraft.samplers import (
    Blocks,
    Confidence,
    ConfidenceThreshold,
    Dual,
    Entropy,
    Factor,
    Margin,
    Prefix,
    Sampler,
    TimePace,
    Unmask,
    last,
)
from redraft.types import Canvas
from redraft.write import calls

GOLDEN = Path(__file__).parents[1] / "golden"


@cache
def io(name: str) -> dict[str, Tensor]:
    return load_file(GOLDEN / name / "io.safetensors")


@cache
def opened(name: str) -> DiffusionLM:
    return load(GOLDEN / name, mask=37) if name == "open_dcoder" else load(GOLDEN / name)


def written(name: str, sampler: Sampler, expected: str) -> tuple[list[int], list[int], int]:
    """What we write after the prompt, what they wrote, and how many network calls we needed."""
    model, truth = opened(name), io(name)[expected]
    prompt = io(name)["prompt"]
    z = torch.cat([prompt, torch.zeros_like(truth[:, prompt.shape[1] :])], 1)
    canvas = Canvas(z, torch.arange(z.shape[1])[None] < prompt.shape[1])
    with calls(model) as counted:
        ours = last(sampler(model, model.process, canvas, rng=rng(0)))
    return ours.z[0].tolist(), truth[0].tolist(), counted.rows


LLADA = [name for name in sorted(io("llada")) if name.startswith("gen_low_conf")]


@pytest.mark.parametrize("name", LLADA)
def test_llada(name: str) -> None:
    """The surest first, an even number per step, in blocks."""
    steps, length, block = map(int, re.findall(r"steps(\d+)_len(\d+)_block(\d+)", name)[0])
    sampler = Blocks(Unmask(steps * block // length, Confidence()), decode_block=block)
    ours, theirs, nfe = written("llada", sampler, name)
    assert ours == theirs
    assert nfe == steps


CACHES = {"nocache": False, "prefix": Prefix(), "dual": Dual()}


@pytest.mark.parametrize("name", [n for n in sorted(io("llada")) if n.startswith("fastdllm_")])
def test_fast_dllm(name: str) -> None:
    """Its parallel decoding without a cache and with its approximate ones, and how many network calls it takes."""
    block, kind = 16 if "len32" in name else 8, name.split("_")[1]
    rule, number = re.findall(r"(threshold|factor)_(none|[\d.]+)", name)[0]
    bound = float(number.replace("none", "2"))
    pick = ConfidenceThreshold(bound) if rule == "threshold" else Factor(bound)
    ours, theirs, nfe = written("llada", Blocks(Unmask(None, pick), decode_block=block, cache=CACHES[kind]), name)
    assert ours == theirs
    scalars = json.loads((GOLDEN / "llada" / "expected.json").read_text())["scalars"]
    assert nfe == scalars.get(f"{name}_nfe_early_stop", scalars[f"{name}_nfe"])


ALGORITHMS: dict[str, Pick] = {"maskgit_plus": Confidence(), "topk_margin": Margin(), "entropy": Entropy()}


@pytest.mark.parametrize("name", ["dream", "open_dcoder"])
@pytest.mark.parametrize("steps", [5, 12])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_dream(name: str, algorithm: str, steps: int) -> None:
    """Its three orders, at its own pace; a step that reveals nothing needs no network call."""
    sampler = Unmask(steps, ALGORITHMS[algorithm], TimePace())
    ours, theirs, nfe = written(name, sampler, f"gen_{algorithm}_steps{steps}")
    assert ours == theirs
    assert nfe <= steps
