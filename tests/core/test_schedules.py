"""Schedules: ends, monotony, inverse and derivative, for any parameters."""

from __future__ import annotations

import math

import pytest
import torch
from conftest import table
from hypothesis import given, strategies as st
from torch import Tensor

from redraft.core import (
    ClampedLogSnr,
    Cosine,
    CosineOffset,
    CosineRatio,
    CosineSquared,
    DiscreteChain,
    Exponential,
    Geometric,
    Linear,
    PiecewiseKeep,
    PiecewiseLogSnr,
    Polynomial,
    Schedule,
    ShiftedLogSnr,
    Sqrt,
    TanD,
    VPLinear,
)

eps = st.floats(0, 0.5)
KINDS: dict[type[Schedule], st.SearchStrategy[Schedule]] = {
    Linear: st.builds(Linear, eps),
    Cosine: st.builds(Cosine, eps),
    CosineSquared: st.builds(CosineSquared, eps),
    Polynomial: st.builds(Polynomial, st.floats(0.25, 4)),
    Exponential: st.builds(Exponential, st.floats(1e-5, 1e-1), st.floats(1, 12)),
    Geometric: st.builds(Geometric, st.floats(1e-5, 1e-2), st.floats(0.5, 20)),
    CosineRatio: st.builds(CosineRatio, st.floats(0, 0.1)),
    PiecewiseKeep: st.sampled_from(
        [PiecewiseKeep(), PiecewiseKeep((1.0, 0.7, 0.6, 0.0)), PiecewiseKeep((1.0, 0.2, 0.1))]
    ),
    VPLinear: st.builds(VPLinear, st.floats(0.05, 1), st.floats(5, 20)),
    CosineOffset: st.builds(CosineOffset, st.floats(0, 0.1), st.booleans()),
    Sqrt: st.builds(Sqrt, st.floats(1e-5, 1e-2)),
    TanD: st.builds(TanD, st.floats(0.2, 12)),
    ShiftedLogSnr: st.builds(ShiftedLogSnr, st.just(Linear()), st.floats(0.2, 5)),
    ClampedLogSnr: st.builds(ClampedLogSnr, st.just(VPLinear()), st.floats(-20, -11), st.floats(16, 20)),
    DiscreteChain: st.builds(DiscreteChain, st.just(Sqrt()), st.integers(10, 50), normalized=st.booleans()),
    PiecewiseLogSnr: st.sampled_from([PiecewiseLogSnr((9.0, -9.0)), PiecewiseLogSnr((6.0, 3.0, 2.0, -1.0, -7.0))]),
}
every_kind = pytest.mark.parametrize("kind", list(KINDS))
times = st.floats(0, 1)


def sigmoid(logsnr: float) -> float:
    return 1 / (1 + math.exp(-logsnr))


def double(t: float) -> Tensor:
    return torch.tensor(t, dtype=torch.float64)


@every_kind
@given(data=st.data())
def test_ends(kind: type[Schedule], data: st.DataObject) -> None:
    schedule = data.draw(KINDS[kind])
    assert float(schedule.keep(double(0))) == schedule.start
    assert float(schedule.keep(double(1))) == schedule.end
    match schedule:
        case Linear(eps) | Cosine(eps) | CosineSquared(eps):
            ends = (1.0, eps)
        case Polynomial() | CosineRatio():
            ends = (1.0, 0.0)
        case PiecewiseKeep(keeps):
            ends = (keeps[0], keeps[-1])
        case Exponential(low, high) | Geometric(low, high):
            ends = (math.exp(-low), math.exp(-high))
        case VPLinear(low, high):
            ends = (1.0, math.exp(-(low + high) / 2))
        case CosineOffset(offset, normalized):
            ends = (1.0 if normalized else math.cos(offset / (1 + offset) * math.pi / 2) ** 2, 0.0)
        case Sqrt(offset):
            ends = (1 - math.sqrt(offset), 0.0)
        case TanD() | ShiftedLogSnr():
            ends = (1.0, 0.0)
        case ClampedLogSnr(_, _, high):
            ends = (sigmoid(high), math.exp(-10.05))
        case DiscreteChain(sqrt, steps, cap, normalized):
            before, first, last = sqrt.keep(torch.tensor([0, 1 / steps, 1 - 1 / steps], dtype=torch.float64)).tolist()
            ends = tuple(keep / (before if normalized else 1) for keep in (first, (1 - cap) * last))
        case PiecewiseLogSnr(logsnrs):
            ends = (sigmoid(logsnrs[0]), sigmoid(logsnrs[-1]))
    assert (schedule.start, schedule.end) == pytest.approx(ends, abs=1e-15, rel=1e-12)


@pytest.mark.parametrize(
    "schedule", [Linear(), Cosine(), CosineSquared(), Polynomial(2), Polynomial(0.5), CosineRatio(), PiecewiseKeep()]
)
def test_whole_schedules_end_exactly(schedule: Schedule) -> None:
    """A prior of masks only, and no jump at the clean end, need exact ends."""
    assert (schedule.start, schedule.end) == (1.0, 0.0)


@given(eps=eps)
def test_a_positive_end_makes_no_jump_at_the_start(eps: float) -> None:
    assert {Linear(eps).start, Cosine(eps).start, CosineSquared(eps).start} == {1.0}


@every_kind
@given(data=st.data(), a=times, b=times)
def test_signal_decreases(kind: type[Schedule], data: st.DataObject, a: float, b: float) -> None:
    schedule = data.draw(KINDS[kind])
    early, late = schedule.keep(double(min(a, b))), schedule.keep(double(max(a, b)))
    assert 0 <= late <= early <= 1
    if abs(a - b) > 1e-3:
        assert late < early


@every_kind
@given(data=st.data(), t=times)
def test_the_inverse_finds_the_time(kind: type[Schedule], data: st.DataObject, t: float) -> None:
    schedule = data.draw(KINDS[kind])
    kept = schedule.keep(double(t))
    if kept > 0:  # Sqrt reaches zero before t = 1: from there on every time has the same signal
        assert float(schedule.inverse(kept)) == pytest.approx(t, abs=1e-5)
    assert float(schedule.keep(schedule.inverse(kept))) == pytest.approx(float(kept), abs=1e-9)


@every_kind
@given(data=st.data(), t=st.floats(0.02, 0.98))
def test_the_slope_is_the_derivative(kind: type[Schedule], data: st.DataObject, t: float) -> None:
    schedule, h = data.draw(KINDS[kind]), 1e-5
    slope, around = float(schedule.slope(double(t))), torch.tensor([t - h, t, t + h], dtype=torch.float64)
    low, high = (schedule.keep(around).diff() / h).sort().values.tolist()
    tolerance = 1e-4 * abs(slope) + 1e-9  # of a table's corners it is that of one side
    assert low - tolerance <= slope <= high + tolerance


@every_kind
@given(data=st.data())
def test_a_schedule_takes_any_shape_and_keeps_the_dtype(kind: type[Schedule], data: st.DataObject) -> None:
    schedule, t = data.draw(KINDS[kind]), torch.linspace(0.1, 0.9, 6).view(2, 3)
    with torch.inference_mode():
        for value in (schedule.keep(t), schedule.slope(t), schedule.inverse(schedule.keep(t))):
            assert (value.shape, value.dtype) == (t.shape, t.dtype)
    assert torch.allclose(schedule.keep(t).double(), schedule.keep(t.double()), atol=1e-6)


@pytest.mark.parametrize("power", [0.0, -1.0])
def test_a_power_must_decrease(power: float) -> None:
    with pytest.raises(ValueError, match="use a power above 0"):
        Polynomial(power)


@table(
    "make",
    [
        lambda: Linear(1.0),
        lambda: Cosine(-0.1),
        lambda: Exponential(10, 1e-3),
        lambda: Exponential(0.0, 1.0),
        lambda: Geometric(0.0, 1.0),
        lambda: CosineRatio(-1.0),
        lambda: CosineRatio(floor=1.0),
        lambda: PiecewiseKeep((1.0,)),
        lambda: PiecewiseKeep((1.0, 0.5, 0.5)),
        lambda: VPLinear(20.0, 0.1),
        lambda: VPLinear(0.0, 1.0),
        lambda: CosineOffset(-1.0),
        lambda: Sqrt(0.0),
        lambda: TanD(0.0),
        lambda: ShiftedLogSnr(Linear(), 0.0),
        lambda: ClampedLogSnr(Linear(), 3.0, 3.0),
        lambda: DiscreteChain(Sqrt(), 1),
        lambda: DiscreteChain(Sqrt(), cap=1.0),
        lambda: PiecewiseLogSnr((1.0,)),
        lambda: PiecewiseLogSnr((math.inf, 0.0)),
        lambda: PiecewiseLogSnr((1.0, 1.0)),
    ],
)
def test_a_schedule_that_does_not_decrease_within_bounds_is_refused(make: type[Schedule]) -> None:
    with pytest.raises(ValueError):
        make()


@pytest.mark.parametrize(("schedule", "ends"), [(Geometric(), (1e-3, 1.0)), (Exponential(), (1e-3, 10.0))], ids=repr)
def test_defaults_of_total_noise(schedule: Schedule, ends: tuple[float, float]) -> None:
    """σ at both ends is the published code's."""
    assert (-schedule.keep(torch.tensor([0.0, 1.0]).double()).log()).tolist() == pytest.approx(ends)


def test_cosines_differ() -> None:
    """Half way: cos(π/4), its square, and the root of Nichol & Dhariwal's, which has an offset."""
    half = [float(s.keep(double(0.5))) for s in (Cosine(), CosineSquared(), CosineRatio(), CosineRatio(0.0))]
    assert half == pytest.approx([0.7071068, 0.5, 0.7026996, 0.7071068], abs=1e-4)
    improved = math.cos(0.508 / 1.008 * math.pi / 2) ** 2 / math.cos(0.008 / 1.008 * math.pi / 2) ** 2
    assert float(CosineRatio().keep(double(0.5))) ** 2 == pytest.approx(improved, rel=1e-12)


def test_a_floor_leaves_signal_at_the_end() -> None:
    schedule = CosineRatio(floor=0.01)
    assert (schedule.start, schedule.end) == (1.0, 0.01)
    assert float(schedule.slope(double(0.9999))) == 0


def test_a_table_is_straight_between_its_points() -> None:
    keep = PiecewiseKeep((1.0, 0.5, 0.4, 0.0)).keep(torch.tensor([0, 1 / 6, 1 / 3, 0.5, 2 / 3, 1], dtype=torch.float64))
    assert keep.tolist() == pytest.approx([1, 0.75, 0.5, 0.45, 0.4, 0])


# --- for Gaussian noise: keep = a², log-SNR = logit(keep) ---

GRID = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)


@pytest.mark.parametrize("d", [0.5, 9.0])
def test_tan_d_is_the_cosine_shifted(d: float) -> None:
    """By −2 ln d of log-SNR."""
    tangent, cosine = TanD(d).keep(GRID), CosineSquared().keep(GRID)
    assert torch.allclose(tangent.logit(), cosine.logit() - 2 * math.log(d), atol=1e-9)
    assert torch.allclose(tangent, ShiftedLogSnr(CosineSquared(), 1 / d).keep(GRID), rtol=1e-9)


def test_shifts_add_up() -> None:
    twice = ShiftedLogSnr(ShiftedLogSnr(Cosine(), 0.5), 0.5)
    assert torch.allclose(twice.keep(GRID), ShiftedLogSnr(Cosine(), 0.25).keep(GRID), rtol=1e-9)


def test_the_linear_chain_of_ddpm_tends_to_vp_linear() -> None:
    """β from 10⁻⁴ to 0.02 in 1000 steps."""
    chain = (1 - torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)).log().cumsum(0)
    assert float(chain[499]) == pytest.approx(float(VPLinear().keep(double(0.5)).log()), rel=0.01)
    assert float(chain[-1]) == pytest.approx(float(VPLinear().keep(double(1)).log()), rel=0.01)


def test_sqrt_begins_with_a_tenth_of_noise() -> None:
    """σ is 0.1 at t = 0 and 0.157 after one of 2000 steps; a chain of ratios divides keep by its start: 0.121."""
    keep = Sqrt().keep(torch.tensor([0, 1 / 2000], dtype=torch.float64))
    assert (1 - keep).sqrt().tolist() == pytest.approx([0.1, 0.1565], abs=1e-4)
    starts = [DiscreteChain(Sqrt(), normalized=normalized).start for normalized in (True, False)]
    assert [math.sqrt(1 - start) for start in starts] == pytest.approx([0.1210, 0.1565], abs=1e-4)
    assert DiscreteChain(Sqrt()).end == pytest.approx(2e-7, rel=0.1)


def test_a_chain_has_the_steps_of_ddpm() -> None:
    """β_i = 1 − ᾱ(i/T)/ᾱ((i − 1)/T), and the cap at the end."""
    grid = torch.linspace(0, 1, 20, dtype=torch.float64)
    beta = 1 - (kept := DiscreteChain(CosineOffset(), 20).keep(grid))[1:] / kept[:-1]
    nominal = CosineOffset().keep(torch.linspace(0, 1, 21, dtype=torch.float64))
    assert torch.allclose(beta[:-1], (1 - nominal[1:] / nominal[:-1])[1:-1])
    assert float(beta[-1]) == pytest.approx(0.999)


def test_a_normalized_cosine_begins_with_one() -> None:
    assert CosineOffset(normalized=True).start == 1
    assert CosineOffset().start == pytest.approx(math.cos(0.008 / 1.008 * math.pi / 2) ** 2)
    ratio = CosineRatio().keep(GRID) ** 2
    assert torch.allclose(CosineOffset(normalized=True).keep(GRID), ratio, rtol=1e-9)


def test_a_clamp_holds_the_log_snr_and_changes_nothing_within() -> None:
    schedule = ClampedLogSnr(CosineSquared(), -4.0, 5.0)
    t = torch.linspace(0, 1, 101, dtype=torch.float64)
    logsnr, free = schedule.keep(t).logit(), CosineSquared().keep(t).logit()
    assert torch.allclose(logsnr, free.clamp(-4, 5), atol=1e-12)
    assert schedule.slope(torch.tensor([0.0, 0.01, 1.0], dtype=torch.float64)).tolist() == [0, 0, 0]
    edges = schedule.inverse(torch.tensor([schedule.start, schedule.end], dtype=torch.float64))
    assert CosineSquared().keep(edges).logit().tolist() == pytest.approx([5, -4])


def test_a_retimed_schedule_is_straight_in_log_snr() -> None:
    keep = PiecewiseLogSnr((6.0, 2.0, 0.0, -7.0)).keep(
        torch.tensor([0, 1 / 6, 1 / 3, 0.5, 2 / 3, 1], dtype=torch.float64)
    )
    assert keep.logit().tolist() == pytest.approx([6, 4, 2, 1, 0, -7])
