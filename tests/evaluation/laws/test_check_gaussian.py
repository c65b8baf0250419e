"""The laws hold for Gaussian noise, and catch what is broken."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from redraft.core import (
    Canvas,
    ClampedLogSnr,
    Context,
    ForwardVariance,
    Gaussian,
    NoisySample,
    PosteriorVariance,
    Prediction,
    Rng,
    Sqrt,
    StraightPath,
    VarianceExploding,
    VariancePreserving,
    rng,
)
from redraft.decoding import Ancestral
from redraft.evaluation import Law
from redraft.evaluation.laws import gaussian, suite
from redraft.evaluation.laws.gaussian import Mixture, MixtureOracle, _nearest_modes, _sampled_vectors

Laws = Callable[[Gaussian], Iterator[Law]]


def failed(laws: Laws, process: Gaussian) -> list[str]:
    return [row.law for row in laws(process) if not row.ok]


@pytest.mark.parametrize("process", gaussian._built_in(), ids=lambda p: type(p.path).__name__)
def test_every_law_holds(process: Gaussian) -> None:
    rows = list(suite.check_process(process))
    assert [row for row in rows if not row.ok] == []
    assert len({row.law for row in rows}) == 24


def test_the_command_checks_all_paths() -> None:
    paths = [type(p.path) for p in gaussian._built_in()]
    assert paths == [VariancePreserving, VarianceExploding, StraightPath]


def test_the_noise_that_is_left_is_paid_for() -> None:
    """Diffusion-LM's schedule leaves σ = 0.1: the reconstruction is part of the bound, which is the entropy still."""
    process = Gaussian(gaussian._VECTOR_VOCAB, VariancePreserving(ClampedLogSnr(Sqrt())))
    close = replace(Mixture.tokens(), means=0.1 * Mixture.tokens().means)  # so close that noise confuses them
    left = gaussian._reconstruction(process.path, close) @ close.weights
    bound = gaussian._vector_bound(process, MixtureOracle(close, process.path)) @ close.weights
    assert float(left) > 0.1
    assert float(bound) == pytest.approx(close.entropy, abs=1e-3)


# --- what is broken ---


@dataclass(frozen=True)
class WrongPosterior(Gaussian):
    """x̂ counts a little less than it should."""

    def posterior(self, x: Tensor, z: Tensor, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return super().posterior(0.99 * x, z, s, t)


@dataclass(frozen=True)
class WrongWeight(Gaussian):
    """Without the half."""

    def nelbo(self, pred: Prediction, noised: NoisySample, s: Tensor | None = None) -> Tensor:
        return 2 * super().nelbo(pred, noised, s)


@dataclass(frozen=True)
class WrongNoise(Gaussian):
    """The variance where its root should be."""

    def noise(self, x: Tensor, t: Tensor, *, pad: Tensor | None = None, rng: Rng) -> NoisySample:
        noised, (a, s) = super().noise(x, t, pad=pad, rng=rng), self.path.scales(t[..., None])
        return noised._replace(z=a * x + s * (noised.z - a * x))


@dataclass(frozen=True)
class WrongPrior(Gaussian):
    def prior_kl(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x[..., 0])

    def prior(self, canvas: Canvas, *, rng: Rng) -> Canvas:
        return canvas.write(1.1 * super().prior(canvas, rng=rng).z)


@dataclass(frozen=True)
class Still(Gaussian):
    """A step without noise."""

    def step(self, pred: Prediction, canvas: Canvas, s: Tensor, t: Tensor, *, rng: Rng) -> Canvas:
        return canvas.write(self.reverse(pred, canvas.z, s, t)[0], previous=pred.x)


@pytest.mark.parametrize(
    ("broken", "laws", "caught"),
    [
        (WrongPosterior, gaussian._vector_reverse_laws, "posterior is Bayes' rule"),
        (WrongPosterior, gaussian._vector_reverse_laws, "stepping back keeps marginals"),
        (WrongNoise, gaussian._vector_forward_laws, "draws match marginals (standard errors)"),
        (WrongPrior, gaussian._vector_forward_laws, "draws match the prior (standard errors)"),
        (WrongPrior, gaussian._vector_forward_laws, "prior KL"),
        (Still, gaussian._vector_reverse_laws, "steps match the reverse distribution"),
        (Still, gaussian._vector_sampling_laws, "ancestral sampling recovers the mode widths"),
    ],
)
def test_what_is_broken_is_caught(broken: type[Gaussian], laws: Laws, caught: str) -> None:
    assert caught in failed(laws, broken(gaussian._VECTOR_VOCAB))
    assert caught not in failed(laws, Gaussian(gaussian._VECTOR_VOCAB))


def test_a_wrong_weight_is_caught() -> None:
    caught = failed(gaussian._vector_bound_laws, WrongWeight(gaussian._VECTOR_VOCAB))
    assert {"KL of a step = ½ΔSNR·error²", "bound = entropy", "bound = −log p of each token"} <= set(caught)


def test_too_large_a_variance_widens_the_modes() -> None:
    """β is the right variance for normal data, not for narrow modes; with more steps it matters less."""
    process, mixture = Gaussian(gaussian._VECTOR_VOCAB, variance=ForwardVariance()), Mixture.of()

    def width(process: Gaussian, steps: int) -> float:
        z = _sampled_vectors(process, mixture, Ancestral(steps), rng(1, 1)).flatten(0, 1)
        return float((_nearest_modes(z, mixture)[1] / mixture.std).mean())

    assert width(process, 16) > width(process, 64) > 1.02
    assert (
        width(replace(process, variance=PosteriorVariance()), 16)
        < width(replace(process, variance=PosteriorVariance()), 64)
        < 0.98
    )


# --- the toys ---


def test_a_mixture_s_draws_have_its_moments() -> None:
    mixture = Mixture.of()
    x = mixture.sample(rng(0, 4), 5000).flatten(0, 1)
    mean, covariance = mixture.moments()
    assert torch.allclose(x.mean(0), mean, atol=0.04)
    assert torch.allclose(x.T.cov(), covariance, atol=0.04)
    mode, width = _nearest_modes(x, mixture)
    assert torch.allclose(torch.bincount(mode) / len(x), mixture.weights.float(), atol=0.015)
    assert torch.allclose(width, mixture.std, rtol=0.03)


def test_a_mixture_s_density_is_one() -> None:
    mixture, (a, s) = Mixture.of(), VariancePreserving().scales(torch.tensor([0.3]))
    line = torch.linspace(-6, 6, 401, dtype=torch.float64)
    z = torch.cartesian_prod(line, line)
    density = mixture.log_density(z, a, s).exp() * (line[1] - line[0]) ** 2
    assert float(density.sum()) == pytest.approx(1, abs=1e-9)
    assert torch.allclose(density @ z, a * mixture.moments()[0], atol=1e-9)
    # E[x] = E[E[x | z]]
    assert torch.allclose(density @ mixture.posterior_mean(z, a, s), mixture.moments()[0], atol=1e-9)


def test_without_noise_x_is_known_and_with_much_it_is_the_mean() -> None:
    mixture, z = Mixture.of(), torch.tensor([[0.3, -0.8]], dtype=torch.float64)
    clean, drowned = ((torch.tensor([a]).double(), torch.tensor([s]).double()) for a, s in ((1.0, 0.0), (1e-9, 1.0)))
    assert torch.allclose(mixture.posterior_mean(z, *clean), z)
    assert torch.allclose(mixture.posterior_mean(z, *drowned), mixture.moments()[0], atol=1e-6)


def test_the_oracle_remembers_nothing() -> None:
    with pytest.raises(ValueError, match="needs no cache"):
        MixtureOracle(Mixture.of(), VariancePreserving()).absorb(torch.zeros(1, 1, 2), Context())


def test_the_entropy_of_the_tokens() -> None:
    p = (0.4, 0.3, 0.2, 0.1)
    assert Mixture.tokens().entropy == pytest.approx(-sum(q * math.log(q) for q in p))
    assert Mixture.tokens().entropy == pytest.approx(1.2799, abs=1e-4)
