"""The resampler: its attention written out, and what it does not see."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from redraft.models import TransformerSize
from redraft.models.codecs.modules.perceiver import Resampler, _ResamplerBlock, _window_states

SIZE = TransformerSize(width=8, layers=2, heads=2)


def rms(h: Tensor) -> Tensor:
    return h / (h.square().mean(-1, keepdim=True) + 1e-5).sqrt()


@torch.no_grad()
def test_queries_read_inputs_and_one_another() -> None:
    """softmax(q·kᵀ/√d)·v with keys and values of [inputs; queries], head by head, then the MLP."""
    torch.manual_seed(0)
    block = _ResamplerBlock(SIZE.network(5))
    h, inputs = torch.randn(1, 3, 8), torch.randn(1, 5, 8)
    both = torch.cat([rms(inputs), rms(h)], 1)[0]
    q, (k, v) = rms(h)[0] @ block.q.weight.T, (both @ block.kv.weight.T).chunk(2, -1)
    heads = []
    for part in (slice(0, 4), slice(4, 8)):
        score = (rms(q[:, part]) @ rms(k[:, part]).T / math.sqrt(4)).softmax(-1)
        assert score.shape == (3, 8)
        heads.append(score @ v[:, part])
    mixed = h + torch.cat(heads, -1) @ block.out.weight.T
    torch.testing.assert_close(block(h, inputs, None), mixed + block.mlp(rms(mixed)))


@torch.no_grad()
def test_padding_is_as_if_it_were_not_there() -> None:
    torch.manual_seed(0)
    resampler = Resampler(SIZE, reads=6, length=5, writes=4, count=3)
    states, pad = torch.randn(2, 5, 6), torch.tensor([[False] * 3 + [True] * 2] * 2)
    found = resampler(states, pad)
    assert found.shape == (2, 3, 4)
    torch.testing.assert_close(found, resampler(states[:, :3]))
    assert not torch.allclose(found, resampler(states))


def test_too_many_places_are_refused() -> None:
    with pytest.raises(ValueError, match="6 states are too many: this resampler has 5"):
        Resampler(SIZE, reads=6, length=5, writes=4, count=3)(torch.zeros(1, 6, 6))


def test_windows_lie_side_by_side_and_end_in_zeros() -> None:
    states = torch.arange(1.0, 6.0).view(1, 5, 1)
    assert _window_states(states, 3, 2).tolist() == [[[1, 2], [3, 4], [5, 0]]]
    assert _window_states(states, 2, 1).tolist() == [[[1], [2]]]  # the first ones


@torch.no_grad()
@pytest.mark.parametrize(("places", "count"), [(6, 3), (5, 3), (3, 6), (3, 7), (4, 4)])
def test_a_query_begins_with_what_lies_around_it(places: int, count: int) -> None:
    """Without any attention a change of one state reaches the queries of its own part of the text, and no others."""
    resampler = Resampler(SIZE, reads=6, length=places, writes=4, count=count)
    resampler.blocks = torch.nn.ModuleList()
    states = torch.randn(1, places, 6)
    there = resampler(states)
    assert there.shape == (1, count, 4)
    for place in range(places):
        other = states.clone()
        other[:, place] += 1
        changed = (resampler(other) - there).abs().sum(-1)[0] > 0
        window, parts = -(-places // count), -(-count // places)
        assert changed.nonzero().flatten().tolist() == [
            query for query in range(count) if query // parts == place // window
        ]
