"""Prompts in the row: hidden by masking (LLaDA), or against another one; identities and the original's outputs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from redraft.core import Canvas, Condition, Context, Masked, Rng, Vocab, rng
from redraft.decoding import (
    Ancestral,
    Blocks,
    Confidence,
    DualCache,
    NegativePrompt,
    PromptGuidedSampler,
    Unmask,
    final_canvas,
)
from redraft.models import BlockCausal, DiffusionLM, from_json, to_json
from redraft.tasks import count_calls
from redraft.training import load

Build = Callable[..., DiffusionLM]
Ragged = Callable[[int, int, int], Canvas]
LLADA = Path(__file__).parents[2] / "golden" / "llada"
MASK = 6


def canvas(rows: int = 4, length: int = 9, prompt: int = 3) -> Canvas:
    z = torch.randint(0, MASK, (rows, length), generator=torch.Generator().manual_seed(0))
    return Canvas(z, torch.arange(length).expand(rows, length) < prompt)


@pytest.mark.parametrize("name", [n for n in sorted(load_file(LLADA / "io.safetensors")) if n.startswith("gen_cfg")])
def test_llada(name: str) -> None:
    """Token for token, at two network calls per step; its cfg_scale is γ − 1."""
    model, io = load(LLADA), load_file(LLADA / "io.safetensors")
    scale, *sizes = re.findall(r"cfg([\d.]+)_steps(\d+)_len(\d+)_block(\d+)", name)[0]
    steps, length, block = map(int, sizes)
    prompt, truth = io["prompt"], io[name]
    z = torch.cat([prompt, torch.zeros_like(truth[:, prompt.shape[1] :])], 1)
    blank = Canvas(z, torch.arange(z.shape[1])[None] < prompt.shape[1])
    inner = Blocks(Unmask(steps * block // length, Confidence()), decode_block=block)
    with count_calls(model) as counted:
        ours = final_canvas(PromptGuidedSampler(inner, float(scale) + 1)(model, model.process, blank, rng=rng(0)))
    assert ours.z.tolist() == truth.tolist()
    assert counted.rows == 2 * steps


@pytest.mark.parametrize("name", ["a2d_qwen3", "a2d_llama", "a2d_qwen2"])
def test_a2d(name: str) -> None:
    """The same in dllm's sampler, for rows of different lengths at once; padding is no prompt."""
    model, io = load(LLADA.parent / name, mask=37), load_file(LLADA.parent / name / "io.safetensors")
    prompts = [io[f"prompt_{i}"][0] for i in range(2)]
    length = max(map(len, prompts)) + 12
    place = torch.arange(length)
    begins = torch.tensor([len(prompt) for prompt in prompts])[:, None]
    pad = place >= begins + 12
    z = torch.stack([F.pad(prompt, (0, length - len(prompt))) for prompt in prompts])
    blank = Canvas(z, (place < begins) | pad, Context(pad=pad))
    sampler = PromptGuidedSampler(Blocks(Unmask(6, Confidence()), decode_block=6), 2.0)
    ours = final_canvas(sampler(model, model.process, blank, rng=rng(0, 2))).z
    assert torch.equal(ours[~pad], io["mdlm_gen_cfg1.0_new12_block6_steps12"][~pad])


def test_the_ends_are_the_branches_bit_for_bit(build: Build) -> None:
    model, blank = build(), canvas()
    hole = ~blank.fixed
    z = blank.z.masked_fill(hole, MASK)
    nothing = torch.full_like(z, MASK)
    assert NegativePrompt(MASK, 1.0)(model) is model
    context = Context(condition=Condition(negative=torch.where(blank.fixed, MASK, -1)))
    without = NegativePrompt(MASK, 0.0)(model).predict(z, hole.double(), context).at(hole)
    with torch.no_grad():
        alone = model.predict(nothing, torch.ones_like(z).double(), blank.context).at(hole)
    assert torch.equal(without, alone)


def test_a_negative_prompt_is_moved_away_from(build: Build) -> None:
    model, blank = build(), canvas(prompt=4)
    other = (5, 0)
    hole, z = ~blank.fixed, blank.z.masked_fill(~blank.fixed, MASK)
    negative = z.clone()
    negative[:, :4] = torch.tensor([MASK, MASK, *other])
    ids = PromptGuidedSampler(Unmask(), 2.0, other)._replacement(blank, blank.fixed, MASK)
    context = Context(condition=Condition(negative=torch.where(blank.fixed, ids, -1)))
    guided = NegativePrompt(MASK, 2.0)(model).predict(z, hole.double(), context).at(hole)
    late = (negative == MASK).double()
    with torch.no_grad():
        mine, theirs = (
            model.predict(z, hole.double(), blank.context).at(hole),
            model.predict(negative, late, blank.context).at(hole),
        )
    expected = (2 * mine - theirs)[:, :MASK].log_softmax(-1)
    assert torch.allclose(guided[:, :MASK], expected, atol=1e-5)
    assert (guided[:, MASK] == -torch.inf).all()


def test_one_and_zero_write_what_the_branches_write(build: Build) -> None:
    model, blank = build(), canvas(prompt=3)
    plain = Unmask(4, Confidence(1.0))
    one = final_canvas(PromptGuidedSampler(plain, 1.0)(model, model.process, blank, rng=rng(0, 4))).z
    assert torch.equal(one, final_canvas(plain(model, model.process, blank, rng=rng(0, 4))).z)
    zero = final_canvas(PromptGuidedSampler(plain, 0.0)(model, model.process, blank, rng=rng(0, 4)))
    assert torch.equal(zero.z[:, :3], blank.z[:, :3]), "the prompt itself stays"


@pytest.mark.parametrize("scale", [0.0, 2.0])
def test_each_branch_has_a_cache(build: Build, scale: float) -> None:
    model, blank = build(BlockCausal(3)), canvas(6, 12, 5)
    cached, whole = (
        final_canvas(
            PromptGuidedSampler(Blocks(Ancestral(3), cache=c), scale)(model, model.process, blank, rng=rng(0, 6))
        ).z
        for c in (True, False)
    )
    assert torch.equal(cached, whole)


@pytest.mark.parametrize("cache", [False, DualCache(1)])
def test_rows_that_are_done_leave_and_prompts_go_with_them(
    build: Build, ragged: Ragged, cache: bool | DualCache
) -> None:
    """Rows of different lengths in blocks of their own: each is guided by its own prompt, as if alone."""
    model, blank = build(), ragged(12, 9, 2)
    sampler = PromptGuidedSampler(Blocks(Unmask(2), decode_block=2, cache=cache), 2.0)
    together = final_canvas(sampler(model, model.process, blank, rng=rng(0, 12))).z
    for row in range(12):
        alone = blank.rows(torch.tensor([row]))
        keys = Rng(rng(0, 12).key[row : row + 1])
        assert torch.equal(final_canvas(sampler(model, model.process, alone, rng=keys)).z[0], together[row])


def test_a_config_remembers_it() -> None:
    sampler = PromptGuidedSampler(Unmask(4), 2.0, (1, 2))
    assert from_json(to_json(sampler)) == sampler


def test_errors(build: Build) -> None:
    model, blank = build(), canvas(prompt=2)
    with pytest.raises(ValueError, match="the negative prompt has 3 tokens, but a prompt has only 2"):
        next(PromptGuidedSampler(Unmask(), 2.0, (1, 2, 3))(model, model.process, blank, rng=rng(0, 4)))
    with pytest.raises(ValueError, match=r"scale=-1; use 0 \(unconditional\)"):
        NegativePrompt(MASK, -1)
    with pytest.raises(ValueError, match="the canvas has no other prompt; use PromptGuidedSampler"):
        NegativePrompt(MASK)(model).predict(blank.z, torch.ones(4, 1), Context())
    grows = Canvas(blank.z, blank.fixed, open=torch.ones(4, 10, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"rows must be tokens at fixed positions; use ClassifierFree"):
        PromptGuidedSampler(Unmask())(model, Masked(Vocab(7, mask=MASK)), grows, rng=rng(0, 4))
