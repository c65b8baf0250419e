"""Schedules: ends, monotony, inverse and derivative, for any parameters."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from redraft.schedules import (
    Cosine,
    CosineRatio,
    CosineSquared,
    Exponential,
    Geometric,
    Linear,
    Polynomial,
    Schedule,
    Tabulated,
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
    Tabulated: st.sampled_from([Tabulated(), Tabulated((1.0, 0.7, 0.6, 0.0)), Tabulated((1.0, 0.2, 0.1))]),
}
every_kind = pytest.mark.parametrize("kind", list(KINDS))
times = st.floats(0, 1)


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
        case Tabulated(keeps):
            ends = (keeps[0], keeps[-1])
        case Exponential(low, high) | Geometric(low, high):
            ends = (math.exp(-low), math.exp(-high))
    assert (schedule.start, schedule.end) == pytest.approx(ends, abs=1e-15, rel=1e-12)


@pytest.mark.parametrize(
    "schedule", [Linear(), Cosine(), CosineSquared(), Polynomial(2), Polynomial(0.5), CosineRatio(), Tabulated()]
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
    assert float(schedule.inverse(kept)) == pytest.approx(t, abs=1e-5)
    assert float(schedule.keep(schedule.inverse(kept))) == pytest.approx(float(kept), abs=1e-9)


@every_kind
@given(data=st.data(), t=st.floats(0.02, 0.98))
def test_the_slope_is_the_derivative(kind: type[Schedule], data: st.DataObject, t: float) -> None:
    schedule, h = data.draw(KINDS[kind]), 1e-5
    difference = (schedule.keep(double(t + h)) - schedule.keep(double(t - h))) / (2 * h)
    assert float(schedule.slope(double(t))) == pytest.approx(float(difference), rel=1e-4, abs=1e-9)


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


@pytest.mark.parametrize(
    "make",
    [
        lambda: Linear(1.0),
        lambda: Cosine(-0.1),
        lambda: Exponential(10, 1e-3),
        lambda: CosineRatio(-1.0),
        lambda: CosineRatio(floor=1.0),
        lambda: Tabulated((1.0,)),
        lambda: Tabulated((1.0, 0.5, 0.5)),
    ],
)
def test_a_schedule_that_does_not_decrease_within_bounds_is_refused(make: type[Schedule]) -> None:
    with pytest.raises(ValueError):
        make()


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
    keep = Tabulated((1.0, 0.5, 0.4, 0.0)).keep(torch.tensor([0, 1 / 6, 1 / 3, 0.5, 2 / 3, 1], dtype=torch.float64))
    assert keep.tolist() == pytest.approx([1, 0.75, 0.5, 0.45, 0.4, 0])
