"""What is given is as noisy as its row before the network sees it, and clean on the canvas."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from redraft.core import Canvas, Context, Prediction, rng
from redraft.decoding import Ddim, NoisedPrompt, final_canvas
from redraft.evaluation.laws.gaussian import Mixture, MixtureOracle
from redraft.evaluation.laws.solvers import _PROCESS, _blank_vectors

MIXTURE = Mixture.of()
FIXED = torch.tensor([[True, False, False, True], [False, True, False, False]])


@dataclass
class Seen:
    """An oracle that remembers what it was shown."""

    oracle: MixtureOracle = field(default_factory=lambda: MixtureOracle(MIXTURE, _PROCESS.path))
    shown: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    block: None = None

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        self.shown.append((z, t))
        return self.oracle.predict(z, t, context)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return context


def test_the_network_sees_one_level_of_noise_and_the_canvas_stays_clean() -> None:
    z, seen = MIXTURE.sample(rng(1, 2), 4), Seen()
    for written in NoisedPrompt(Ddim(6))(seen, _PROCESS, Canvas(z, FIXED), rng=rng(0, 2)):
        assert torch.equal(written.z[FIXED], z[FIXED])
    noises = []
    for shown, t in seen.shown:
        assert t.shape == (2, 1)
        a, s = _PROCESS.path.scales(t[..., None])
        noises.append(((shown - a * z) / s)[FIXED])
    assert len(noises) == 6
    for noise in noises[1:]:
        torch.testing.assert_close(noise, noises[0])  # the same at all times
    many = torch.cat([noises[0].flatten(), _noise_of(500)])
    assert abs(float(many.mean())) < 0.1
    assert abs(float(many.std()) - 1) < 0.1


def _noise_of(rows: int) -> Tensor:
    z, seen = MIXTURE.sample(rng(1, rows), 2), Seen()
    next(
        drawn := NoisedPrompt(Ddim(2))(
            seen, _PROCESS, Canvas(z, torch.tensor([[True, False]] * rows)), rng=rng(0, rows)
        )
    )
    next(drawn)
    shown, t = seen.shown[0]
    a, s = _PROCESS.path.scales(t[..., None])
    return ((shown - a * z) / s)[:, 0].flatten()


def test_where_nothing_is_given_it_is_the_inner_sampler() -> None:
    own, _ = rng(0, 3).split(2)
    plain = final_canvas(Ddim(4)(Seen(), _PROCESS, _blank_vectors(3, 4), rng=own)).z
    assert torch.equal(
        final_canvas(NoisedPrompt(Ddim(4))(Seen(), _PROCESS, _blank_vectors(3, 4), rng=rng(0, 3))).z, plain
    )


def test_a_row_is_the_same_in_any_batch() -> None:
    z = MIXTURE.sample(rng(1, 2), 4)
    both = final_canvas(NoisedPrompt(Ddim(4))(Seen(), _PROCESS, Canvas(z, FIXED), rng=rng(0, 2))).z
    alone = final_canvas(
        NoisedPrompt(Ddim(4))(Seen(), _PROCESS, Canvas(z[1:], FIXED[1:]), rng=rng(0, torch.tensor([1])))
    ).z
    torch.testing.assert_close(both[1:], alone)
