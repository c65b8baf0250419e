"""Randomness that depends on the row alone, and draws that do not lose the tail."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from torch import Tensor

from redraft.core import Rng, ops, randomness, rng
from redraft.core.randomness import _bits, _hash, _unit

any_seed = st.integers(-(2**70), 2**70)
PValue = Callable[[Tensor, Tensor], float]
CHANCE = 1e-4  # a chi-square test below this fails; with fixed seeds it never changes its mind
LAST = 3558559446808474027  # the key whose first 64 bits are all ones: the hash can be inverted


# --- Rng ---


@given(seed=any_seed, rows=st.integers(1, 6))
def test_a_row_does_not_know_its_batch(seed: int, rows: int) -> None:
    whole = rng(seed, 6).uniform(5)
    assert torch.equal(rng(seed, rows).uniform(5), whole[:rows])
    picked = torch.tensor([5, 0, 3])
    assert torch.equal(rng(seed, picked).uniform(5), whole[picked])


@given(seed=any_seed)
def test_the_same_call_gives_the_same_numbers(seed: int) -> None:
    r = rng(seed, 3)
    assert torch.equal(r.uniform(4), r.uniform(4))
    assert torch.equal(r.fold(7).uniform(4), r.fold(7).uniform(4))
    assert torch.equal(r.uniform(2, 3), r.uniform(6).view(3, 2, 3))


@given(seed=any_seed, lo=st.integers(0, 100), count=st.integers(1, 40), width=st.integers(1, 3))
def test_a_window_draws_what_its_row_would_draw_there(seed: int, lo: int, count: int, width: int) -> None:
    r, n = rng(seed, 2), lo + count
    window = r.at(torch.arange(lo, n)[None])
    assert torch.equal(window.uniform(count), r.uniform(n)[:, lo:])
    assert torch.equal(window.uniform(count, width), r.uniform(n, width)[:, lo:]), "each place has its own numbers"
    assert torch.equal(window.once(), r.once())
    assert torch.equal(window.fold(3).normal(count), r.fold(3).normal(n)[:, lo:])


def test_rows_may_stand_at_different_places() -> None:
    r, place = rng(0, 3), torch.tensor([[0, 1], [5, 2], [3, 9]])
    whole = r.uniform(10, 2)
    assert torch.equal(r.at(place).uniform(2, 2), whole.take_along_dim(place[..., None], 1))
    with pytest.raises(ValueError, match="3 positions to draw for, but the window has 2"):
        r.at(place).uniform(3)


@given(seed=any_seed, numbers=st.lists(st.integers(-(2**40), 2**40), min_size=3, max_size=3))
def test_folding_a_tensor_folds_each_row(seed: int, numbers: list[int]) -> None:
    r = rng(seed, 3)
    together = r.fold(torch.tensor(numbers)).uniform(4)
    for row, n in enumerate(numbers):
        assert torch.equal(together[row], r.fold(n).uniform(4)[row])


def test_no_two_keys_are_equal() -> None:
    """Seeds, rows, folds and splits: 20 × 50 × 40 streams, and no key twice."""
    keys = []
    for seed in (*range(-8, 8), 2**63 - 1, -(2**63), 2**32, 12345):
        r = rng(seed, 50)
        keys += [f.key for f in (*map(r.fold, range(30)), *r.split(10))]
    stacked = torch.cat(keys)
    assert len(stacked) == 20 * 50 * 40
    assert len(stacked.unique()) == len(stacked)


@pytest.mark.parametrize("seed", [0, -1, 2**63, -(2**64) - 5, 10**30])
def test_uniform_numbers_are_uniform_for_any_seed(seed: int, p_value: PValue) -> None:
    u = rng(seed, 100).uniform(1000)
    assert (u.dtype, u.shape) == (torch.float64, (100, 1000))
    assert 0 < u.min() < u.max() < 1
    assert p_value(torch.histc(u, 64, 0, 1), torch.full((64,), len(u.flatten()) / 64)) > CHANCE
    fine = (u * 2**20) % 1  # the low bits too
    assert p_value(torch.histc(fine, 64, 0, 1), torch.full((64,), len(u.flatten()) / 64)) > CHANCE


def pairs() -> dict[str, tuple[Tensor, Tensor]]:
    """Numbers that must have nothing to do with each other."""
    r = rng(3, 200)
    u, (a, b) = r.uniform(501), r.split(2)
    return {
        "neighboring columns": (u[:, :-1], u[:, 1:]),
        "neighboring rows": (u[:-1], u[1:]),
        "neighboring steps": (r.fold(0).uniform(500), r.fold(1).uniform(500)),
        "a step and itself": (r.uniform(500), r.fold(0).uniform(500)),
        "split streams": (a.uniform(500), b.uniform(500)),
        "a split and a step": (a.uniform(500), r.fold(2).uniform(500)),
        "neighboring seeds": (rng(3, 200).uniform(500), rng(4, 200).uniform(500)),
        "opposite seeds": (rng(3, 200).uniform(500), rng(-3, 200).uniform(500)),
        "orders of folding": (r.fold(1).fold(2).uniform(500), r.fold(2).fold(1).uniform(500)),
    }


@pytest.mark.parametrize("name", list(pairs()))
def test_streams_are_independent(name: str, p_value: PValue) -> None:
    first, second = (u.flatten() for u in pairs()[name])
    cell = (first * 16).long() * 16 + (second * 16).long()
    assert p_value(cell.bincount(minlength=256), torch.full((256,), len(cell) / 256)) > CHANCE


def test_normal_numbers_are_normal(p_value: PValue) -> None:
    x = rng(0, 100).normal(1000).flatten()
    u = torch.special.ndtr(x)  # uniform if and only if x is normal
    assert p_value(torch.histc(u, 64, 0, 1), torch.full((64,), len(u) / 64)) > CHANCE


def test_a_training_stream_has_a_number_for_each_sample() -> None:
    samples = torch.tensor([10**12, 3, 2**62])
    assert torch.equal(rng(1, samples).uniform(2)[1:2], rng(1, torch.tensor([3])).uniform(2))


def test_one_is_never_reached() -> None:
    assert float(Rng(torch.tensor([LAST])).uniform(1)) < 1


def test_the_largest_number_draws_a_state() -> None:
    u = Rng(torch.tensor([LAST])).uniform(1)[:, 0]
    assert int(randomness.sample_categorical(torch.zeros(1, 4), u)) == 3


def test_no_columns_need_no_numbers() -> None:
    assert rng(0, 3).uniform(0).shape == (3, 0)


# --- draw ---


@given(
    weights=st.lists(st.sampled_from([0.0, 1e-12, 0.3, 1.0, 50.0]), min_size=1, max_size=8).filter(any),
    u=st.floats(0, 1, exclude_min=True, exclude_max=True),
)
def test_a_state_of_zero_weight_is_never_drawn(weights: list[float], u: float) -> None:
    drawn = randomness.sample_categorical(torch.tensor([weights]).log(), torch.tensor([u], dtype=torch.float64))
    assert weights[int(drawn)] > 0


@pytest.mark.parametrize("u", [2.0**-54, 1 - 2.0**-53])
def test_the_extreme_numbers_draw_the_extreme_states(u: float) -> None:
    log_weights = torch.tensor([-torch.inf, 0.0, 1.0, 2.0, -torch.inf]).expand(1, -1)
    drawn = int(randomness.sample_categorical(log_weights, torch.tensor([u], dtype=torch.float64)))
    assert drawn == (1 if u < 0.5 else 3)


@given(shift=st.floats(-80, 80), seed=st.integers(0, 100))
def test_draws_need_no_normalized_weights(shift: float, seed: int) -> None:
    log_weights = torch.randn(20, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    u = rng(seed, 20).uniform()
    assert torch.equal(
        randomness.sample_categorical(log_weights + shift, u), randomness.sample_categorical(log_weights, u)
    )


STATES, TAIL = 50_000, 2_000


def zipf() -> Tensor:
    weight = 1 / torch.arange(1, STATES + 1, dtype=torch.float64)
    return weight / weight.sum()


def test_draws_follow_a_zipf_law_to_its_tail(p_value: PValue) -> None:
    p, draws = zipf(), 1500
    log_p = p.log().float().expand(draws // 10, -1)
    drawn = torch.cat(
        [randomness.sample_categorical(log_p, r.uniform()) for r in map(rng(0, draws // 10).fold, range(10))]
    )
    edges = torch.tensor([0, 1, 2, 5, 10, 30, 100, 500, TAIL, 10_000, 25_000, STATES])
    expected = torch.stack([part.sum() for part in p.split(edges.diff().tolist())]) * draws
    observed = torch.bucketize(drawn, edges[1:], right=True).bincount(minlength=len(expected))
    assert p_value(observed, expected) > CHANCE
    tail = float(p[TAIL:].sum())
    assert float((drawn >= TAIL).double().mean()) == pytest.approx(tail, abs=4 * (tail * (1 - tail) / draws) ** 0.5)


def gumbel_reveals(dtype: torch.dtype, draws: int) -> float:
    """How often Gumbel noise picks one of 50 000 states of joint weight 1e-3 against a single heavy one.

    Uniform numbers lie on a grid of 2^-24 or 2^-53. The largest of n of them is the largest of n exact ones, U^(1/n),
    rounded down to the grid: two numbers per draw instead of 50 001.
    """
    heavy, lightest = (r.uniform(draws).flatten() for r in rng(0).split(2))
    step = torch.finfo(dtype).eps / 2
    on_grid = ((u / step).floor().clamp(min=1) * step for u in (heavy, lightest ** (1 / STATES)))
    stay, move = (-(-u.to(dtype).log()).log() for u in on_grid)
    log_weights = torch.tensor([1 - 1e-3, 1e-3 / STATES], dtype=dtype).log()
    return float((move + log_weights[1] > stay + log_weights[0]).double().mean())


def test_gumbel_noise_in_float32_loses_the_tail_and_ours_does_not() -> None:
    draws = 500_000
    assert gumbel_reveals(torch.float32, draws) < 0.3e-3
    assert gumbel_reveals(torch.float64, draws) == pytest.approx(1e-3, abs=4 * (1e-3 / draws) ** 0.5)
    weights = torch.full((STATES + 1,), 1e-3 / STATES, dtype=torch.float64)
    weights[0] = 1 - 1e-3
    u = torch.linspace(0, 1, 1001, dtype=torch.float64)[:-1] * 2e-3 + (1 - 2e-3) + 1e-6  # the upper end, evenly
    drawn = torch.cat(
        [randomness.sample_categorical(weights.log().float().expand(200, -1), part) for part in u.split(200)]
    )
    assert int((drawn > 0).sum()) == pytest.approx(500, abs=1)
    assert torch.histc(drawn[drawn > 0].double(), 5, 1, STATES + 1).tolist() == pytest.approx([100] * 5, abs=1)


@pytest.mark.parametrize("rows", [1, 3])
def test_keys_of_many_steps_are_those_of_each(rows: int) -> None:
    keys, place = randomness.rng(7, rows), torch.arange(4, 9)[None]
    for i, step in zip(range(70), keys.at(place).steps(), strict=False):
        assert torch.equal(step.key, keys.fold(i).key)
        assert torch.equal(step.uniform(5), keys.fold(i).at(place).uniform(5))
        for part, alone in zip(step.split(2), keys.fold(i).at(place).split(2), strict=True):
            assert torch.equal(part.uniform(5), alone.uniform(5))
            assert torch.equal(part.uniform(5, 2000), alone.uniform(5, 2000))  # too many to draw for all steps


def test_numpy_and_torch_hash_alike() -> None:
    """CPUs hash in numpy, other devices in torch: a seed gives one text."""
    numbers = torch.tensor([0, 1, -1, 2**62, -(2**63), 2**63 - 1, 1234567890123456789])
    unsigned = _hash(_bits(numbers))
    assert isinstance(unsigned, np.ndarray)
    assert unsigned.view(np.int64).tolist() == _hash(numbers).tolist()
    assert torch.equal(_unit(unsigned), _unit(_hash(numbers)))


# --- top, nll, entropy ---

rows_of_scores = st.lists(
    st.lists(st.sampled_from([-3.0, -0.5, 0.0, 0.25, 7.0]), min_size=6, max_size=6), min_size=1, max_size=4
)


@given(scores=rows_of_scores, data=st.data())
def test_top_marks_the_best_and_on_ties_the_first(scores: list[list[float]], data: st.DataObject) -> None:
    among = torch.tensor(data.draw(st.lists(st.booleans(), min_size=6, max_size=6))).expand(len(scores), -1)
    count = torch.tensor(data.draw(st.lists(st.integers(0, 7), min_size=len(scores), max_size=len(scores))))
    marked = ops.top_per_row(torch.tensor(scores), among, count)
    for row, score in enumerate(scores):
        order = sorted((i for i in range(6) if among[row, i]), key=lambda i: (-score[i], i))
        assert sorted(order[: int(count[row])]) == marked[row].nonzero().flatten().tolist()


def test_among_thousands_of_equal_scores_the_first_win() -> None:
    score = torch.arange(5000).remainder(2).float().expand(2, -1)  # the odd positions are better
    marked = ops.top_per_row(score, torch.ones(2, 5000, dtype=torch.bool), torch.tensor([100, 3000]))
    assert marked[0].nonzero().flatten().tolist() == list(range(1, 200, 2))
    assert marked[1].nonzero().flatten().tolist() == sorted([*range(1, 5000, 2), *range(0, 1000, 2)])


def test_top_counts_a_marked_position_without_any_score() -> None:
    marked = ops.top_per_row(torch.tensor([[0.0, -torch.inf]]), torch.tensor([[False, True]]), torch.tensor([1]))
    assert marked.tolist() == [[False, True]]


def test_the_cross_entropy_of_cpus_is_that_of_torch() -> None:
    raw, target = torch.randn(5, 7), torch.randint(0, 6, (5,))
    weight = torch.rand(5)

    def gradient(loss: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        leaf = raw.clone().requires_grad_()
        nats = loss(leaf * 1.0)
        (nats * weight).sum().backward()
        assert leaf.grad is not None
        return nats, leaf.grad

    ours = gradient(lambda a: ops.nll(ops.exclude(a, 6), target))
    plain = gradient(
        lambda a: F.cross_entropy(a.index_fill(-1, torch.tensor([6]), -torch.inf), target, reduction="none")
    )
    assert torch.equal(ours[0], plain[0])
    assert torch.allclose(ours[1], plain[1], atol=1e-7)
    assert (ours[1][:, 6] == 0).all()


def test_its_gradient_is_taken_once() -> None:
    """It overwrites what it was made of; a second one would be wrong."""
    loss = ops.nll(torch.randn(2, 3, requires_grad=True), torch.tensor([0, 1])).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="can run only once"):
        loss.backward()


def test_excluding_a_state_spares_what_is_not_part_of_a_graph() -> None:
    """Only fresh logits of a network in training are overwritten."""
    for raw in (torch.randn(2, 3), torch.randn(2, 3, requires_grad=True)):
        before = raw.detach().clone()
        assert (ops.exclude(raw, 1)[:, 1] == -torch.inf).all()
        assert torch.equal(raw, before)
    leaf = torch.randn(2, 3, requires_grad=True)
    ops.exclude(leaf * 2, 1).clamp(min=-9).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [[2, 0, 2], [2, 0, 2]]


def test_nll_and_entropy_of_impossible_states() -> None:
    log_weights = torch.tensor([[1.0, 1.0, -torch.inf]], dtype=torch.bfloat16)
    assert ops.nll(log_weights, torch.tensor([1])).tolist() == pytest.approx([0.6931472])
    assert ops.nll(log_weights, torch.tensor([1])).dtype == torch.float32
    assert float(ops.nll(log_weights, torch.tensor([2]))) == torch.inf
    assert ops.entropy(log_weights.float().log_softmax(-1)).tolist() == pytest.approx([0.6931472])


def test_dropout_of_nothing_draws_nothing() -> None:
    x = torch.ones(4)
    state = torch.get_rng_state()
    assert ops.dropout(x, 0.0, True) is x
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(ops.dropout(x, 0.5, False), x)


def test_the_price_of_a_wrong_rate() -> None:
    r, m = (torch.tensor(a, dtype=torch.float64) for a in ([2.0, 0.0, 1.0, 0.0], [3.0, 0.5, 0.0, 0.0]))
    assert ops.poisson_kl(r, m).tolist() == pytest.approx([1 + 2 * math.log(2 / 3), 0.5, math.inf, 0])
    assert ops.poisson_kl(r, r).tolist() == [0, 0, 0, 0]


def test_the_price_of_a_wrong_rate_has_finite_slopes() -> None:
    m = torch.tensor([3.0, 0.5, 0.0], requires_grad=True)
    ops.poisson_kl(torch.tensor([2.0, 0.0, 0.0]), m).sum().backward()
    assert m.grad is not None
    assert m.grad.tolist() == pytest.approx([1 / 3, 1, 1])


def test_an_intensity_costs_its_sum_and_the_log_of_its_target() -> None:
    """Σw − 1 − log w[target]: the cross-entropy if w sums to one, and minimal there."""
    log_weights = torch.tensor([[0.5, 1.5, 2.0], [0.2, 0.5, 0.3]]).log()
    cost = ops.intensity_nll(log_weights, torch.tensor([1, 2]))
    torch.testing.assert_close(cost, torch.tensor([3 - math.log(1.5), -math.log(0.3)]))
    scaled = torch.stack([ops.intensity_nll(log_weights[1:] + math.log(c), torch.tensor([2])) for c in (0.9, 1.0, 1.1)])
    assert int(scaled.argmin()) == 1
