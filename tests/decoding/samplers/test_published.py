"""Token for token what the originals' own decoders wrote: LLaDA, Fast-dLLM with its caches and without, Dream."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from redraft.core import Canvas, Masked, Pick, rng
from redraft.decoding import (
    Blocks,
    Confidence,
    ConfidenceThreshold,
    DualCache,
    EndTokensLast,
    Entropy,
    FactorThreshold,
    Margin,
    PrefixCache,
    Sampler,
    TimePace,
    Unmask,
    final_canvas,
)
from redraft.models import DiffusionLM, reference_outputs
from redraft.tasks import count_calls
from redraft.tasks.engine.sampler_choice import forbid_end_token
from redraft.training import load

GOLDEN = Path(__file__).parents[2] / "golden"


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
    with count_calls(model) as counted:
        ours = final_canvas(sampler(model, model.process, canvas, rng=rng(0)))
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


def llada_reference(
    model: DiffusionLM, prompt: Tensor, length: int, block: int, *, banned: list[int], late: list[int]
) -> list[int]:
    """LLaDA's `generate` at temperature 0, one token a step, in plain words: `banned` are its `logits_eos_inf`, `late`
    its `confidence_eos_eot_inf` as it is meant: a place whose likeliest token is one of them comes last.
    """
    z = torch.cat([prompt[0], torch.full((length,), 37)])
    for begin in range(len(prompt[0]), len(z), block):
        for _ in range(block):
            logits = reference_outputs(model, z[None])[0]
            logits[:, [37, *banned]] = -torch.inf
            confidence, tokens = logits.softmax(-1).max(-1)
            confidence[torch.isin(tokens, torch.tensor(late))] -= 10
            confidence[
                (z != 37) | (torch.arange(len(z)) >= begin + block) | (torch.arange(len(z)) < begin)
            ] = -torch.inf
            z[confidence.argmax()] = tokens[confidence.argmax()]
    return z.tolist()


@pytest.mark.parametrize("block", [4, 8, 16])
def test_the_end_tokens_of_llada(block: int) -> None:
    """Not at all, or last: each token that it writes freely serves as the end token once."""
    model, prompt = opened("llada"), io("llada")["prompt"]
    blank = Canvas(torch.cat([prompt, torch.zeros(1, 16, dtype=torch.int64)], 1), torch.arange(22)[None] < 6)
    free = written("llada", Blocks(Unmask(block), decode_block=block), "gen_low_conf_steps16_len16_block16")[0]
    for end in sorted(set(free[6:]))[:4]:
        late = Blocks(Unmask(block, EndTokensLast(tokens=(end, free[6]))), decode_block=block)
        ours = final_canvas(late(model, model.process, blank, rng=rng(0))).z[0].tolist()
        assert ours == llada_reference(model, prompt, 16, block, banned=[], late=[end, free[6]])
        process = Masked(replace(model.config.vocab, eos=end))
        banning = DiffusionLM(replace(model.config, process=process))
        banning.load_state_dict(model.state_dict())
        sampler = Blocks(Unmask(block), decode_block=block)
        ours = final_canvas(sampler(banning, process, forbid_end_token(blank), rng=rng(0))).z[0].tolist()
        assert ours == llada_reference(model, prompt, 16, block, banned=[end], late=[])
        assert end not in ours[6:]


CACHES = {"nocache": False, "prefix": PrefixCache(), "dual": DualCache()}


@pytest.mark.parametrize("name", [n for n in sorted(io("llada")) if n.startswith("fastdllm_")])
def test_fast_dllm(name: str) -> None:
    """Its parallel decoding without a cache and with its approximate ones, and how many network calls it takes."""
    block, kind = 16 if "len32" in name else 8, name.split("_")[1]
    rule, number = re.findall(r"(threshold|factor)_(none|[\d.]+)", name)[0]
    bound = float(number.replace("none", "2"))
    pick = ConfidenceThreshold(bound) if rule == "threshold" else FactorThreshold(bound)
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
