"""`Compiled` gives the states of `Dense`, and compiles each bucket of shapes once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from redraft.core import Canvas, Context, rng
from redraft.decoding import AnyOrder, Unmask, final_canvas
from redraft.models import BlockCausal, DiffusionLM, Full, TransformerConfig
from redraft.models.networks.executors.compiled import Compiled
from redraft.models.networks.executors.dense import Dense

Build = Callable[..., DiffusionLM]
MASK = 6


class Padded(Compiled):
    """The buckets without the compiler, which is slow; it keeps the shapes of the passes."""

    @property
    def _compiled(self) -> Any:
        def run(network: Any, forward_pass: Any) -> Any:
            at = forward_pass.at
            SHAPES.add((tuple(forward_pass.tokens.shape), at and (at.shape, tuple(at.index.shape))))
            return Dense().trunk(network, forward_pass)

        return run


SHAPES: set[Any] = set()


def rows(count: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, noise levels and padding at the end of all rows but the first."""
    torch.manual_seed(count + length)
    z, level = torch.randint(MASK, (count, length)), torch.rand(count, length)
    return z, level, (torch.arange(length) >= length - 2) & (torch.arange(count) > 0)[:, None]


@pytest.mark.parametrize("time", [None, 8])
@pytest.mark.parametrize("positions", [None, 70])
@torch.no_grad()
def test_the_states_are_those_of_dense(
    build: Build, tiny: TransformerConfig, time: int | None, positions: int | None
) -> None:
    rotary = 10_000.0 if positions is None else None
    dense = build(Full(), replace(tiny, time=time, positions=positions, rotary=rotary)).eval().network
    for count, length in ((1, 5), (3, 7), (2, 64), (2, 66)):
        z, level, pad = rows(count, length)
        for levels in (level, level[:, :1]):
            for context in (Context(), Context(pad=pad)):
                for at in (None, torch.tensor([4]), torch.tensor([1, 2, 4, length * count - length])):
                    expected, states = (net(z, levels, context, at) for net in (dense, dense.on(Padded())))
                    if at is None:
                        expected, states = expected[~pad], states[~pad]
                    assert states.shape == expected.shape
                    assert torch.allclose(states, expected, atol=1e-5)


@torch.no_grad()
def test_texts_of_many_shapes_take_few_and_are_those_of_dense(build: Build, tiny: TransformerConfig) -> None:
    SHAPES.clear()
    model = build(Full(), replace(tiny, rotary=10_000.0)).eval()
    for length in (9, 20, 40):
        blank = torch.zeros(3, length, dtype=torch.int64)
        canvas, sampler = Canvas(blank, blank > 0), Unmask(length, AnyOrder())
        texts = [
            final_canvas(sampler(one, model.process, canvas, rng=rng(0, 3))).z for one in (model, model.on(Padded()))
        ]
        assert torch.equal(*texts)
    assert {((4, 64), ((4, 1), (4,)))} == SHAPES


@torch.no_grad()
def test_passes_with_a_cache_are_not_padded(build: Build, tiny: TransformerConfig) -> None:
    SHAPES.clear()
    network, tokens = build(BlockCausal(4), replace(tiny, rotary=10_000.0)).eval().network, torch.zeros(3, 8).long()
    expected, cache = (net.absorb(tokens) for net in (network, network.on(Padded())))
    pairs = zip(expected.layers, cache.layers, strict=True)
    assert all(torch.equal(a, b) for old, new in pairs for a, b in zip(old, new, strict=True))
    assert not SHAPES


@torch.no_grad()
def test_a_bucket_is_compiled_once(build: Build, tiny: TransformerConfig) -> None:
    """By torch.compile itself, with a backend that runs each graph as it is."""
    graphs: list[fx.GraphModule] = []

    def backend(graph: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    dense = build(Full(), replace(tiny, rotary=10_000.0)).eval().network
    compiled = dense.on(Compiled(backend=backend))
    for count, length, at in ((3, 9, [0, 10, 20]), (4, 30, [1, 31, 61, 100])):
        z, _, pad = rows(count, length)
        expected, states = (net(z, None, Context(pad=pad), torch.tensor(at)) for net in (dense, compiled))
        assert torch.allclose(states, expected, atol=1e-5)
    assert len(graphs) == 1
    torch._dynamo.reset()
