"""One row of a causal network, the lean way: the same states, caches that stay what they were, int8 weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import redraft
from redraft.core import Canvas, Context
from redraft.decoding import Ancestral, Blocks, PromptLookup, Sampler, SpeculativeSampler, final_canvas
from redraft.models import (
    Causal,
    DiffusionLM,
    KeyValueCache,
    Shift,
    TransformerConfig,
)
from redraft.models.networks.int8 import Int8Linear

Build = Callable[..., DiffusionLM]
IDS = torch.tensor([[1, 4, 2, 0, 3, 5, 1, 1, 2, 4]])


def absorbed(
    model: DiffusionLM, first: int, end: int, cache: KeyValueCache | None = None, ids: Tensor = IDS
) -> KeyValueCache:
    found = model.absorb(ids[:, first:end], Context(positions=torch.arange(first, end)[None], cache=cache)).cache
    assert isinstance(found, KeyValueCache)
    return found


@pytest.fixture(params=["start", "shift", "learned", "gelu", "groups"])
def causal(request: pytest.FixtureRequest, build: Build, tiny: TransformerConfig) -> DiffusionLM:
    networks = {
        "learned": replace(tiny, rotary=None, positions=16, qkv_bias=True),
        "gelu": replace(tiny, norm="layer", norm_bias=True, gated=False, mlp_bias=True),
        "groups": replace(tiny, heads=4, kv_heads=2),
    }
    head = {"head": Shift()} if request.param in ("shift", "learned") else {}
    return build(Causal(), networks.get(request.param, tiny), **head).eval()


def test_the_states_of_the_ordinary_pass(causal: DiffusionLM) -> None:
    lean, start = absorbed(causal, 0, 3), 0 if causal.config.is_plain_causal else 1
    for first, end in ((3, 4), (4, 9), (9, 10)):
        lean = absorbed(causal, first, end, lean)
        assert lean.buffer is not None
    causal.train()  # the ordinary pass
    whole = absorbed(causal, 0, 10)
    assert whole.buffer is None
    assert lean.columns == whole.columns == 10 + start
    torch.testing.assert_close(lean.last_state, whole.last_state, rtol=1e-5, atol=1e-5)
    for one, other in zip(lean.layers, whole.layers, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_old_caches_stay_what_they_were(causal: DiffusionLM) -> None:
    """Growing one cache in two ways gives both; only the cropped end of a cache is overwritten, and then refused."""
    short = absorbed(causal, 0, 4)
    one, before = absorbed(causal, 4, 6, short), [k.clone() for k, _ in short.layers]
    held = one.layers[0][0].clone()
    other = absorbed(causal, 4, 7, short, IDS.flip(1))
    assert torch.equal(one.layers[0][0], held)
    assert all(torch.equal(k, old) for (k, _), old in zip(short.layers, before, strict=True))
    assert other.buffer is not one.buffer
    again = absorbed(causal, 5, 8, one.crop(5))
    assert again.buffer is one.buffer
    torch.testing.assert_close(again.last_state, absorbed(causal, 0, 8).last_state, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="were cropped"):
        absorbed(causal, 6, 7, one)


def test_a_row_alone_writes_what_it_writes_in_a_batch(causal: DiffusionLM) -> None:
    z = IDS.repeat(3, 2)[:, :16]
    canvas, first = Canvas(z, torch.arange(16).expand_as(z) < 2), torch.tensor([0])
    keys, sampler = redraft.rng(0, 3), Blocks(Ancestral(1))
    together = final_canvas(sampler(causal, causal.process, canvas, rng=keys)).z
    alone = final_canvas(sampler(causal, causal.process, canvas.rows(first), rng=keys.rows(first))).z
    assert torch.equal(alone[0], together[0])


# --- int8 ---


def test_int8_is_close_and_writes(build: Build, tiny: TransformerConfig, tmp_path: Path) -> None:
    redraft.export(tmp_path / "model", build(Causal(), replace(tiny, width=64, hidden=64), head=Shift()))
    model, fast = redraft.training.load(tmp_path / "model"), redraft.training.load(tmp_path / "model", weights="int8")
    assert sum(isinstance(part, Int8Linear) for part in fast.modules()) == 4 * 2
    masks, later = torch.full_like(IDS, 6), torch.arange(10)[None] > 0
    said, near = (m.predict(masks, torch.ones(1, 1), Context(clean=IDS)).at(later).exp() for m in (model, fast))
    assert 0 < (said - near).abs().max() < 0.05
    canvas = Canvas(IDS, ~later)
    samplers: tuple[Sampler, ...] = (Blocks(Ancestral(1)), SpeculativeSampler(PromptLookup()))
    texts = [final_canvas(sampler(fast, fast.process, canvas, rng=redraft.rng(0))).z for sampler in samplers]
    assert all(text.max() < 6 for text in texts)  # rounding depends on how many tokens are read: texts may differ


def test_other_weights_are_refused(build: Build, tmp_path: Path) -> None:
    redraft.export(tmp_path / "model", build(Causal()))
    with pytest.raises(ValueError, match="use fp16, int8"):
        redraft.training.load(tmp_path / "model", weights="int4")  # type: ignore[arg-type]
