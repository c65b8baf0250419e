"""Muon against its definition, the rates against theirs, and who of the two optimizers gets what."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from redraft.models import DiffusionLM, NetworkIO, Transformer, TransformerConfig
from redraft.models.networks.inspection import hidden_matrices
from redraft.models.parts.error_head import ErrorHead
from redraft.training import (
    Muon,
    OptimizerConfig,
    build_optimizers,
)
from redraft.training.optimizers import (
    _learning_rate_fraction,
    _orthogonalize,
    _set_learning_rates,
)


def singular_values(m: Tensor) -> Tensor:
    return torch.linalg.svdvals(m.double())


@pytest.mark.parametrize("shape", [(16, 16), (48, 16), (16, 48), (3, 24, 8)])
def test_orthogonal_keeps_directions_and_levels_sizes(shape: tuple[int, ...]) -> None:
    m = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 37
    u, s, v = torch.linalg.svd(m.double(), full_matrices=False)
    turned = u.mT @ _orthogonalize(m).double() @ v.mT  # diagonal, in the coordinates of the decomposition
    sizes = turned.diagonal(dim1=-2, dim2=-1)
    assert (turned - torch.diag_embed(sizes)).abs().max() < 1e-4
    well = s > 0.02 * s.amax(-1, keepdim=True)  # the iteration lifts what is not vanishingly small
    assert sizes[well].min() > 0.6
    assert sizes.max() < 1.3


def test_orthogonal_of_many_is_each_alone() -> None:
    m = torch.randn(4, 6, 10, generator=torch.Generator().manual_seed(1))
    alone = torch.stack([_orthogonalize(one) for one in m])
    assert torch.allclose(_orthogonalize(m), alone, atol=1e-4)


def test_orthogonal_of_zero_is_zero() -> None:
    assert torch.equal(_orthogonalize(torch.zeros(3, 5)), torch.zeros(3, 5))


def test_muon_is_its_formula() -> None:
    """Two steps by hand, of two matrices of one shape and one of another; what has no gradient stays."""
    generator = torch.Generator().manual_seed(2)
    shapes = [(12, 4), (12, 4), (5, 7)]
    weights = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    idle = nn.Parameter(torch.ones(2, 2))
    by_hand = [w.detach().clone() for w in weights]
    moments = [torch.zeros_like(w) for w in by_hand]
    muon = Muon([*weights, idle], lr=0.1, momentum=0.9, weight_decay=0.5)
    for _ in range(2):
        for i, weight in enumerate(weights):
            weight.grad = grad = torch.randn(weight.shape, generator=generator)
            moments[i] = 0.9 * moments[i] + 0.1 * grad
            update = _orthogonalize(0.9 * moments[i] + 0.1 * grad)
            rows, columns = weight.shape
            by_hand[i] = by_hand[i] * (1 - 0.1 * 0.5) - 0.1 * max(1, rows / columns) ** 0.5 * update
        muon.step()
    for weight, expected in zip(weights, by_hand, strict=True):
        assert torch.allclose(weight, expected, atol=1e-5)
    assert torch.equal(idle, torch.ones(2, 2))


def test_muon_takes_the_matrices_of_the_blocks_and_adamw_the_rest(build: Callable[..., DiffusionLM]) -> None:
    model = build()
    adamw, muon = build_optimizers(model, OptimizerConfig(lr=1e-3, muon=0.02))
    names = {id(p): n for n, p in model.named_parameters()}
    taken = {names[id(p)] for p in muon.param_groups[0]["params"]}
    matrices = ("attention.qkv", "attention.out", "mlp.up", "mlp.down")
    assert taken == {f"network.blocks.{i}.{matrix}.weight" for i in range(2) for matrix in matrices}
    assert {names[id(p)] for p in adamw.param_groups[0]["params"]} == set(names.values()) - taken
    (alone,) = build_optimizers(model, OptimizerConfig(lr=1e-3))
    assert len(alone.param_groups[0]["params"]) == len(names)


def test_hidden_matrices_are_neither_those_that_read_the_time_nor_those_of_the_error_layer(
    tiny: TransformerConfig,
) -> None:
    model = nn.ModuleDict(
        {"network": Transformer(replace(tiny, time=8), NetworkIO(7, 7, cross=6)), "errors": ErrorHead(tiny)}
    )
    names = {id(p): n for n, p in model.named_parameters()}
    matrices = ("attention.qkv", "attention.out", "mlp.up", "mlp.down", "cross.q", "cross.kv", "cross.out")
    taken = [names[id(p)] for p in hidden_matrices(model)]
    assert taken == [f"network.blocks.{i}.{matrix}.weight" for i in range(2) for matrix in matrices]


def test_rates_are_shares_of_the_full_ones(build: Callable[..., DiffusionLM]) -> None:
    both = build_optimizers(build(), OptimizerConfig(lr=1e-3, muon=0.02))
    for share in (0.5, 0.25):
        _set_learning_rates(both, share)
        assert [optimizer.param_groups[0]["lr"] for optimizer in both] == [1e-3 * share, 0.02 * share]


def test_warm_up_then_cosine_to_the_floor() -> None:
    settings = OptimizerConfig(warmup=4, floor=0.1)
    shares = [_learning_rate_fraction(settings, step, 104) for step in range(105)]
    assert shares[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert shares[54] == pytest.approx(0.55)  # half way down
    assert shares[4 + 25] == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2)
    assert shares[104] == pytest.approx(0.1)
    assert all(a > b for a, b in pairwise(shares[4:]))


def test_floor_one_is_constant_and_no_warm_up_starts_in_full() -> None:
    assert {_learning_rate_fraction(OptimizerConfig(), step, 10) for step in range(10)} == {1.0}
    assert _learning_rate_fraction(OptimizerConfig(floor=0.0), 0, 10) == 1.0
    assert _learning_rate_fraction(OptimizerConfig(warmup=20), 9, 10) == 0.5  # a run shorter than its warm-up
