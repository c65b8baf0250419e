"""All weight formats: a token gets the same bits read alone or with others, so drafts change no greedy text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import redraft
from redraft.core import Canvas, Context, least_invariant_rows
from redraft.decoding import Ancestral, Blocks, PromptLookup, SharedGumbelRule, SpeculativeSampler, Unmask, final_canvas
from redraft.models import (
    Causal,
    DiffusionLM,
    KeyValueCache,
    Shift,
    TransformerConfig,
)
from redraft.models.networks.prepacked import PrepackedLinear

Build = Callable[..., DiffusionLM]
KINDS = ("fp16", "int8", "onnx", "packed")


@pytest.fixture(scope="module", params=KINDS)
def even(
    request: pytest.FixtureRequest, build: Build, tiny: TransformerConfig, tmp_path_factory: pytest.TempPathFactory
) -> DiffusionLM:
    if request.param == "onnx":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnx")
    network = replace(tiny, width=64, heads=4, kv_heads=2, hidden=160, layers=2)
    folder: Path = tmp_path_factory.mktemp("even") / "model"
    redraft.export(folder, build(Causal(), network, head=Shift()))
    return redraft.training.load(folder, weights=request.param).eval()


def read(model: DiffusionLM, ids: torch.Tensor, cuts: list[int]) -> tuple[torch.Tensor, KeyValueCache]:
    """The logits of all tokens, read in pieces that begin at these columns."""
    cache, said = None, []
    with torch.no_grad():
        for first, end in zip(cuts, [*cuts[1:], ids.shape[1]], strict=True):
            cache = model.absorb(
                ids[:, first:end], Context(positions=torch.arange(first, end)[None], cache=cache)
            ).cache
            assert isinstance(cache, KeyValueCache)
            assert cache.outputs is not None
            said.append(model.network.logits(cache.outputs.states))
    assert cache is not None
    return torch.cat(said, 1), cache


def test_bits_do_not_depend_on_company(even: DiffusionLM) -> None:
    """Read at once, token by token and in pieces of all sizes, over the edge of 64 keys and beyond 64 tokens."""
    ids = torch.arange(150)[None] * 7 % 6
    one, cache = read(even, ids, list(range(150)))
    for cuts in ([0], [0, 1, 3, 6, 10, 61, 70, 75, 120, 127, 131], [0, 62, 64, 66, 149]):
        other, again = read(even, ids, cuts)
        assert torch.equal(one, other)
        assert all(
            torch.equal(a, b)
            for x, y in zip(cache.layers, again.layers, strict=True)
            for a, b in zip(x, y, strict=True)
        )


def test_a_draft_changes_no_text(even: DiffusionLM) -> None:
    """48 prompts, greedy; and sampled with shared Gumbel noise or plain sampling's own numbers."""
    z = (torch.arange(48)[:, None] * torch.tensor([1, 5, 3]) + torch.tensor([0, 2, 1])) % 6
    prompt = torch.nn.functional.pad(z, (0, 13))
    canvas, keys = Canvas(prompt, torch.arange(16).expand_as(prompt) < 3), redraft.rng(0, 48)

    def written(sampler: redraft.Sampler, rows: int) -> torch.Tensor:
        found = []
        for i in range(rows):
            one = torch.tensor([i])
            found.append(final_canvas(sampler(even, even.process, canvas.rows(one), rng=keys.rows(one))).z)
        return torch.cat(found)

    draft = SpeculativeSampler(PromptLookup(), length=5, costs=None, temperature=0)
    assert torch.equal(written(draft, 48), written(Blocks(Unmask(1)), 48))
    assert draft.tally.accepted > 48
    assert torch.equal(
        written(SpeculativeSampler(PromptLookup(), length=5, costs=None), 20), written(Blocks(Ancestral(1)), 20)
    )
    shared = [SpeculativeSampler(PromptLookup(), SharedGumbelRule(), n, None) for n in (1, 5)]
    assert torch.equal(*(written(sampler, 20) for sampler in shared))


def test_packed_is_the_same_product() -> None:
    torch.manual_seed(0)
    layer, h = torch.nn.Linear(96, 50), torch.randn(2, 3, 96)
    torch.testing.assert_close(PrepackedLinear(layer.weight, layer.bias)(h), layer(h))


def test_a_product_that_rounds_by_company_is_told() -> None:
    def by_rows(x: torch.Tensor) -> torch.Tensor:
        return x.sum(-1, keepdim=True) + len(x) * 1e-3

    assert least_invariant_rows(by_rows, 32) is None
    assert least_invariant_rows(lambda x: x.flip(0) if len(x) == 1 else x, 32) == 1
    assert least_invariant_rows(lambda x: x + (len(x) < 3), 32) == 4
