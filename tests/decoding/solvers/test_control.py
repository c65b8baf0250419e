"""Gradient control: where a linear energy moves samples to, what stays, and when nothing happens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from redraft.core import Canvas, Context, rng
from redraft.decoding import Adagrad, AtPlace, Ddim, Descent, Move, SignSteps, Steer, Together, last
from redraft.evaluation import PROCESS, Mixture, MixtureOracle, blank

MIXTURE = Mixture.of()
ORACLE = MixtureOracle(MIXTURE, PROCESS.path)
SOLVER = Ddim(20, eta=1.0)


@dataclass(frozen=True)
class Along:
    """Lower in a direction."""

    direction: tuple[float, float]

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Tensor:
        return -(z * torch.tensor(self.direction, dtype=z.dtype)).sum((1, 2))


RIGHT = Along((1.0, 0.0))


def drawn(sampler: Ddim | Steer, canvas: Canvas | None = None) -> Tensor:
    canvas = blank(2, 200) if canvas is None else canvas
    return last(sampler(ORACLE, PROCESS, canvas, rng=rng(0, len(canvas.z)))).z


@pytest.mark.parametrize(
    "steer",
    [Steer(RIGHT, SOLVER, inner=0), Steer(RIGHT, SOLVER, since=0.021, until=0.02)],
    ids=["no steps", "no time in the window"],
)
def test_without_control_it_is_ddim(steer: Steer) -> None:
    assert torch.equal(drawn(steer), drawn(SOLVER))


def test_fluency_alone_pulls_to_the_mean() -> None:
    """Without energy the only way down leads to μ."""
    move = Move(ORACLE, PROCESS.path, PROCESS.prior(blank(1, 50), rng=rng(0)), 0.9, 0.85, rng(1))
    z, mean = SOLVER.step(move), SOLVER.law(move)[0]
    steered = Steer(lambda z, t, c: z.new_zeros(len(z)), SOLVER, inner=1, descent=SignSteps(1e-3)).step(move)
    torch.testing.assert_close(steered, z - 1e-3 * (z - mean).sign())


def test_a_linear_energy_moves_samples() -> None:
    free, right, left = (
        drawn(sampler)[..., 0].mean()
        for sampler in (SOLVER, Steer(RIGHT, SOLVER, inner=1), Steer(Along((-1.0, 0.0)), SOLVER, inner=1))
    )
    assert left < free - 0.3
    assert right > free + 0.3
    held = drawn(Steer(RIGHT, SOLVER, inner=1, coef=1e6))[..., 0].mean()
    assert abs(float(held - free)) < 0.3 * float(right - free), "much fluency holds against the energy"


@pytest.mark.parametrize("descent", [SignSteps(), Adagrad()], ids=repr)
def test_given_places_never_move(descent: Descent) -> None:
    z = MIXTURE.sample(rng(1, 3), 4)
    fixed = torch.arange(4).expand(3, 4) % 2 == 0
    canvas = Canvas(z, fixed)
    for written in Steer(RIGHT, SOLVER, descent=descent)(ORACLE, PROCESS, canvas, rng=rng(0, 3)):
        assert torch.equal(written.z[fixed], z[fixed])
    shown: list[Tensor] = []

    def energy(z: Tensor, t: Tensor, context: Context) -> Tensor:
        shown.append(z.detach()[fixed])
        assert torch.equal(t == 0, fixed), "given places sit at time zero"
        return RIGHT(z, t, context)

    drawn(Steer(energy, SOLVER, descent=descent), canvas)
    assert all(torch.equal(seen, z[fixed]) for seen in shown)
    assert len(shown) == 3 * 19, "three steps at each time but the last"


def test_adagrad_made_anew_takes_sign_steps() -> None:
    """Against torch's own optimiser, kept for all steps and made anew for each."""
    z, goal = torch.tensor([[1.0, -2.0, 0.5]]), torch.tensor([[0.0, 3.0, 0.4]])
    ours, anew = (d(z, lambda at: at - goal, 4) for d in (Adagrad(0.1), SignSteps(0.1)))
    for made_anew, expected in ((False, ours), (True, anew)):
        at = z.clone().requires_grad_()
        optimiser = torch.optim.Adagrad([at], lr=0.1)
        for _ in range(4):
            optimiser = torch.optim.Adagrad([at], lr=0.1) if made_anew else optimiser
            at.grad = (at - goal).detach()
            optimiser.step()
        torch.testing.assert_close(at.detach(), expected)


def test_energies() -> None:
    z, t, target = torch.randn(2, 3, 2), torch.full((2, 1), 0.5), torch.tensor([1.0, 1.0])
    place = AtPlace(ORACLE, 1, target)
    expected = (ORACLE(z, t, Context()).x[:, 1] - target).square().sum(-1) / 2
    torch.testing.assert_close(place(z, t, Context()), expected)
    both = Together((place, RIGHT))(z, t, Context())
    torch.testing.assert_close(both, expected + RIGHT(z, t, Context()))
    near = drawn(Steer(AtPlace(ORACLE, 1, MIXTURE.means[1]), SOLVER, inner=2), blank(40, 2))
    far = (near - MIXTURE.means[1]).norm(dim=-1).mean(0)
    assert far[1] < 0.7 * far[0], "control acts at its place alone"


def test_a_row_is_steered_as_if_alone() -> None:
    canvas = blank(3, 4)
    together = drawn(Steer(RIGHT, SOLVER), canvas)
    rows = rng(0, 3)
    alone = last(
        Steer(RIGHT, SOLVER)(ORACLE, PROCESS, canvas.rows(torch.tensor([2])), rng=replace(rows, key=rows.key[2:]))
    )
    torch.testing.assert_close(alone.z[0], together[2])


def test_errors() -> None:
    with pytest.raises(ValueError, match="eta above 0"):
        Steer(RIGHT, Ddim(20))
    for wrong in ({"inner": -1}, {"until": 0.0}, {"until": 0.9, "since": 0.5}):
        with pytest.raises(ValueError, match="use inner and coef"):
            Steer(RIGHT, **wrong)  # type: ignore[arg-type]
