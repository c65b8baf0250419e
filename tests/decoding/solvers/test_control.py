"""Gradient control: where a linear energy moves samples to, what stays, and when nothing happens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from redraft.core import Canvas, Context, rng
from redraft.decoding import (
    AdagradDescent,
    Ddim,
    DescentRule,
    GradientControl,
    PositionEnergy,
    SignDescent,
    SolverStep,
    SumOfEnergies,
    final_canvas,
)
from redraft.evaluation.laws.gaussian import Mixture, MixtureOracle
from redraft.evaluation.laws.solvers import _PROCESS, _blank_vectors

MIXTURE = Mixture.of()
ORACLE = MixtureOracle(MIXTURE, _PROCESS.path)
SOLVER = Ddim(20, eta=1.0)


@dataclass(frozen=True)
class Along:
    """Lower in a direction."""

    direction: tuple[float, float]

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Tensor:
        return -(z * torch.tensor(self.direction, dtype=z.dtype)).sum((1, 2))


RIGHT = Along((1.0, 0.0))


def drawn(sampler: Ddim | GradientControl, canvas: Canvas | None = None) -> Tensor:
    canvas = _blank_vectors(2, 200) if canvas is None else canvas
    return final_canvas(sampler(ORACLE, _PROCESS, canvas, rng=rng(0, len(canvas.z)))).z


@pytest.mark.parametrize(
    "steer",
    [GradientControl(RIGHT, SOLVER, inner=0), GradientControl(RIGHT, SOLVER, since=0.021, until=0.02)],
    ids=["no steps", "no time in the window"],
)
def test_without_control_it_is_ddim(steer: GradientControl) -> None:
    assert torch.equal(drawn(steer), drawn(SOLVER))


def test_fluency_alone_pulls_to_the_mean() -> None:
    """Without energy the only way down leads to μ."""
    move = SolverStep(ORACLE, _PROCESS.path, _PROCESS.prior(_blank_vectors(1, 50), rng=rng(0)), 0.9, 0.85, rng(1))
    z, mean = SOLVER.step(move), SOLVER.moments(move)[0]
    steered = GradientControl(lambda z, t, c: z.new_zeros(len(z)), SOLVER, inner=1, descent=SignDescent(1e-3)).step(
        move
    )
    torch.testing.assert_close(steered, z - 1e-3 * (z - mean).sign())


def test_a_linear_energy_moves_samples() -> None:
    free, right, left = (
        drawn(sampler)[..., 0].mean()
        for sampler in (
            SOLVER,
            GradientControl(RIGHT, SOLVER, inner=1),
            GradientControl(Along((-1.0, 0.0)), SOLVER, inner=1),
        )
    )
    assert left < free - 0.3
    assert right > free + 0.3
    held = drawn(GradientControl(RIGHT, SOLVER, inner=1, coef=1e6))[..., 0].mean()
    assert abs(float(held - free)) < 0.3 * float(right - free), "much fluency holds against the energy"


@pytest.mark.parametrize("descent", [SignDescent(), AdagradDescent()], ids=repr)
def test_given_places_never_move(descent: DescentRule) -> None:
    z = MIXTURE.sample(rng(1, 3), 4)
    fixed = torch.arange(4).expand(3, 4) % 2 == 0
    canvas = Canvas(z, fixed)
    for written in GradientControl(RIGHT, SOLVER, descent=descent)(ORACLE, _PROCESS, canvas, rng=rng(0, 3)):
        assert torch.equal(written.z[fixed], z[fixed])
    shown: list[Tensor] = []

    def energy(z: Tensor, t: Tensor, context: Context) -> Tensor:
        shown.append(z.detach()[fixed])
        assert torch.equal(t == 0, fixed), "given places sit at time zero"
        return RIGHT(z, t, context)

    drawn(GradientControl(energy, SOLVER, descent=descent), canvas)
    assert all(torch.equal(seen, z[fixed]) for seen in shown)
    assert len(shown) == 3 * 19, "three steps at each time but the last"


def test_adagrad_made_anew_takes_sign_steps() -> None:
    """Against torch's own optimizer, kept for all steps and made anew for each."""
    z, goal = torch.tensor([[1.0, -2.0, 0.5]]), torch.tensor([[0.0, 3.0, 0.4]])
    ours, anew = (d(z, lambda at: at - goal, 4) for d in (AdagradDescent(0.1), SignDescent(0.1)))
    for made_anew, expected in ((False, ours), (True, anew)):
        at = z.clone().requires_grad_()
        optimizer = torch.optim.Adagrad([at], lr=0.1)
        for _ in range(4):
            optimizer = torch.optim.Adagrad([at], lr=0.1) if made_anew else optimizer
            at.grad = (at - goal).detach()
            optimizer.step()
        torch.testing.assert_close(at.detach(), expected)


def test_energies() -> None:
    z, t, target = torch.randn(2, 3, 2), torch.full((2, 1), 0.5), torch.tensor([1.0, 1.0])
    place = PositionEnergy(ORACLE, 1, target)
    expected = (ORACLE.predict(z, t, Context()).x[:, 1] - target).square().sum(-1) / 2
    torch.testing.assert_close(place(z, t, Context()), expected)
    both = SumOfEnergies((place, RIGHT))(z, t, Context())
    torch.testing.assert_close(both, expected + RIGHT(z, t, Context()))
    near = drawn(GradientControl(PositionEnergy(ORACLE, 1, MIXTURE.means[1]), SOLVER, inner=2), _blank_vectors(40, 2))
    far = (near - MIXTURE.means[1]).norm(dim=-1).mean(0)
    assert far[1] < 0.7 * far[0], "control acts at its place alone"


def test_a_row_is_steered_as_if_alone() -> None:
    canvas = _blank_vectors(3, 4)
    together = drawn(GradientControl(RIGHT, SOLVER), canvas)
    rows = rng(0, 3)
    alone = final_canvas(
        GradientControl(RIGHT, SOLVER)(
            ORACLE, _PROCESS, canvas.rows(torch.tensor([2])), rng=replace(rows, key=rows.key[2:])
        )
    )
    torch.testing.assert_close(alone.z[0], together[2])


def test_errors() -> None:
    with pytest.raises(ValueError, match="eta above 0"):
        GradientControl(RIGHT, Ddim(20))
    for wrong in ({"inner": -1}, {"until": 0.0}, {"until": 0.9, "since": 0.5}):
        with pytest.raises(ValueError, match="use inner and coef"):
            GradientControl(RIGHT, **wrong)  # type: ignore[arg-type]
