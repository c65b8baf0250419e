"""The laws of solvers, on a mixture of normal distributions, whose best denoiser and density are known at every time.

Deterministic solvers must converge at their order, all solvers must recover the mixture, and mathematically equal
solvers must give equal numbers from equal draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Denoiser, VectorPrediction
from redraft.core.processes.gaussian import Gaussian, NoisePath, VariancePreserving
from redraft.core.randomness import rng
from redraft.core.schedules.tokens import CosineSquared
from redraft.core.schedules.transforms import ClampedLogSnr
from redraft.decoding.guidance.vectors import GradientClassifier
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.base import Sampler, final_canvas
from redraft.decoding.solvers.flow import encode_to_noise, flow_log_likelihood
from redraft.decoding.solvers.grids import GENERATIVE_END, UniformLogSnrGrid
from redraft.decoding.solvers.langevin import EulerMaruyama, Langevin, PredictorCorrector
from redraft.decoding.solvers.ode import Ddim, DpmPP, DpmPPSde, Heun, OdeEuler, Solver
from redraft.decoding.solvers.renoise import NucleusProjection, Renoise
from redraft.decoding.solvers.step import SolverStep, noise_scales, run_steps
from redraft.evaluation.laws.gaussian import _VECTOR_VOCAB, Mixture, MixtureOracle, _sampled_vectors
from redraft.evaluation.laws.law import P_MIN, Law, _law_at_least, _law_equal, chi_square

_ROWS, _POSITIONS = 2, 500
_EVEN = UniformLogSnrGrid()
# log-SNR is clamped to the range that matters for the mixture; equal steps of it would be wasted elsewhere
_PROCESS = Gaussian(_VECTOR_VOCAB, VariancePreserving(ClampedLogSnr(CosineSquared(), -9.0, 9.0)))
# name, sampler, tolerance of the variance within modes: too low with few steps of DDIM(1), too high with Langevin
_SAMPLERS: tuple[tuple[str, Sampler, float], ...] = (
    ("DDIM", Ddim(60, _EVEN), 0.12),
    ("Euler", OdeEuler(50), 0.12),
    ("Heun", Heun(20, _EVEN), 0.1),
    ("DPM-Solver++", DpmPP(25, _EVEN), 0.1),
    ("DDIM(1)", Ddim(60, eta=1.0), 0.22),
    ("2M-SDE", DpmPPSde(40, _EVEN), 0.1),
    ("Euler–Maruyama", EulerMaruyama(50), 0.12),
    ("Langevin", Langevin(30, inner=8, rate=0.4), 0.35),
    ("predictor–corrector", PredictorCorrector(Ddim(40), corrections=2), 0.12),
)
_ORDERS: tuple[tuple[str, type[Solver], float], ...] = (  # name, solver, minimum order of convergence
    ("DDIM", Ddim, 0.9),
    ("Euler", OdeEuler, 0.9),
    ("Heun", Heun, 1.8),
    ("DPM-Solver++", DpmPP, 1.6),
)


def _laws(process: Gaussian) -> Iterator[Law]:
    """Check all laws of solvers on one process."""
    mixture = Mixture.of()
    oracle = MixtureOracle(mixture, process.path)
    yield from _convergence_laws(process, oracle)
    yield from _moment_laws(process, mixture)
    yield from _equivalence_laws(process, mixture, oracle)
    yield from _flow_laws(process, mixture, oracle)
    yield _renoise_law(process)
    yield from _guidance_laws(process, mixture, oracle)


def _convergence_laws(process: Gaussian, oracle: Denoiser) -> Iterator[Law]:
    """Check that doubling the steps of a method of order p divides its error by 2^p."""
    for name, solver, least in _ORDERS:
        order = _convergence_order(process, oracle, solver)
        yield _law_at_least(process, f"{name}: order of convergence", order, least)


def _convergence_order(process: Gaussian, oracle: Denoiser, solver: type[Solver], steps: int = 20) -> float:
    """Return log₂ of the change from n to 2n steps over that from 2n to 4n, from the same noise.

    Uses medians, because a point on the border of two modes may end up in either one, however small the steps.
    """
    noise = process.prior(_blank_vectors(1, 50), rng=rng(0))
    solvers = (solver(n, _EVEN) for n in (steps, 2 * steps, 4 * steps))
    coarse, fine, finest = (_solve_down(process, oracle, s, noise) for s in solvers)
    return math.log2(float((coarse - fine).norm(dim=-1).median() / (fine - finest).norm(dim=-1).median()))


def _solve_down(process: Gaussian, oracle: Denoiser, solver: Solver, noise: Canvas) -> Tensor:
    """Solve for x from given noise."""
    times = solver.grid(process.path, solver.steps)
    return final_canvas(run_steps(solver.step, times, oracle, process.path, noise, rng=rng(5, len(noise.z)))).z


def _moment_laws(process: Gaussian, mixture: Mixture) -> Iterator[Law]:
    """Check that each sampler recovers mean and covariance, mode weights, and the variance within modes."""
    for name, sampler, tolerance in _SAMPLERS:
        x = _sampled_vectors(process, mixture, sampler, rng(7, _ROWS), _POSITIONS).flatten(0, 1)
        mean, covariance = mixture.moments()
        error = max(float((x.mean(0) - mean).abs().max()), float((x.T.cov() - covariance).abs().max()))
        yield _law_equal(process, f"{name}: mean and covariance", error, 0, 0.15)
        mode = _most_likely_mode(mixture, x)
        yield _law_at_least(process, f"{name}: weight of each mode", chi_square(mode, mixture.weights), P_MIN)
        yield _law_equal(process, f"{name}: variance within modes", _relative_variance(mixture, x, mode), 1, tolerance)


def _most_likely_mode(mixture: Mixture, x: Tensor) -> Tensor:
    """(n,) mode that each point most likely comes from."""
    return mixture.log_mode(x, *(x.new_full((1, 1), scale) for scale in (1.0, 0.0))).argmax(-1)


def _relative_variance(mixture: Mixture, x: Tensor, mode: Tensor) -> float:
    """Return the mean of ((x − m_k)/σ_k)² over points and coordinates, which is 1 for modes of the right width."""
    return float(((x - mixture.means[mode]) / mixture.std[mode, None]).square().mean())


def _equivalence_laws(process: Gaussian, mixture: Mixture, oracle: Denoiser) -> Iterator[Law]:
    """Check that mathematically equal solvers give equal numbers from equal draws."""
    pair = [_sampled_vectors(process, mixture, s, rng(7, 2), 20) for s in (Ddim(12, eta=1.0), Ancestral(12))]
    yield _law_equal(process, "DDIM(1) = ancestral", _max_difference(*pair), 0, 1e-9)
    worst: list[float] = []
    for t, s in ((1.0, 0.8), (0.7, 0.4), (0.3, 0.05)):
        canvas = process.noise(mixture.sample(rng(3), 50), torch.tensor([[t]]), rng=rng(4))
        step = SolverStep(oracle, process.path, Canvas(canvas.z, _blank_vectors(1, 50).fixed), t, s, rng(5))
        ddim = Ddim().step(step)
        slope = (step.z / step.scales_t.signal - step.x) / step.scales_t.ratio
        euler = step.scales_s.signal * (
            step.z / step.scales_t.signal + (step.scales_s.ratio - step.scales_t.ratio) * slope
        )
        worst += [_max_difference(ddim, DpmPP().step(step)), _max_difference(ddim, euler)]
        worst += [_max_difference(Ddim(eta=1.0).step(step), DpmPPSde().step(step))]
    yield _law_equal(process, "DDIM = first-order DPM-Solver++ = Euler in (y, ς)", max(worst), 0, 1e-9)


def _flow_laws(process: Gaussian, mixture: Mixture, oracle: Denoiser) -> Iterator[Law]:
    """Check that the flow to noise and back is the identity, and that its likelihood is the density."""
    x, steps = mixture.sample(rng(8, 8), 1), 100
    canvas = Canvas(x, torch.zeros(x.shape[:2], dtype=torch.bool))
    *_, (_, noise) = encode_to_noise(oracle, process, canvas, steps=steps, rng=rng(9, 8))
    back = _solve_down(process, oracle, Heun(steps + 1, _EVEN), noise)
    yield _law_equal(process, "the flow to noise and back returns x", _max_difference(back, x), 0, 0.02)
    flow = flow_log_likelihood(oracle, process, canvas, steps=steps, rng=rng(9, 8), exact=True)
    yield _law_equal(
        process,
        "likelihood of the flow = density",
        _max_difference(flow, _clean_density(mixture, process.path, x[:, 0])),
        0,
        0.05,
    )


def _clean_density(mixture: Mixture, path: NoisePath, x: Tensor) -> Tensor:
    """(n,) log-density of z/a at the clean end of the path, where a little noise is left."""
    return mixture.log_density(
        x, *(x.new_full((1, 1), scale) for scale in (1.0, noise_scales(path, GENERATIVE_END).ratio))
    )


@dataclass(frozen=True)
class _TokenOracle:
    """The best denoiser of tokens at the corners of a simplex, which also predicts token probabilities."""

    mixture: Mixture
    process: Gaussian
    block: int | None = None

    @classmethod
    def of(cls, process: Gaussian) -> _TokenOracle:
        """The best denoiser of three tokens of different frequencies."""
        weights = torch.tensor([0.55, 0.3, 0.15], dtype=torch.float64)
        return cls(Mixture(2 * torch.eye(3, dtype=torch.float64) - 1, torch.zeros_like(weights), weights), process)

    def predict(self, z: Tensor, t: Tensor, context: Context) -> VectorPrediction:
        log_p = self.mixture.log_mode(z.double(), *self.process.path.scales(t[..., None]))
        return VectorPrediction(log_p.exp() @ self.mixture.means, log_p)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        raise ValueError("_TokenOracle needs no cache: positions are independent; sample without blocks")


def _renoise_law(process: Gaussian) -> Law:
    """Check that renoising drawn tokens samples each with its frequency."""
    oracle = _TokenOracle.of(process)
    p = chi_square(_sample_tokens(oracle, Renoise(20, project=NucleusProjection())), oracle.mixture.weights)
    return _law_at_least(process, "renoising drawn tokens keeps their frequencies", p, P_MIN)


def _sample_tokens(oracle: _TokenOracle, sampler: Sampler) -> Tensor:
    """(n,) tokens drawn by a sampler."""
    canvas = _blank_vectors(_ROWS, _POSITIONS, 3)
    return final_canvas(sampler(oracle, oracle.process, canvas, rng=rng(7, _ROWS))).z.argmax(-1).flatten()


def _guidance_laws(process: Gaussian, mixture: Mixture, oracle: Denoiser) -> Iterator[Law]:
    """Check that guidance by the exact classifier at γ = 1 gives the prediction and samples of a single mode."""
    guided = GradientClassifier(ModeClassifier(mixture, process.path, 1), process)(oracle)
    one_mode = Mixture(mixture.means[1:2], mixture.std[1:2], torch.ones(1, dtype=torch.float64))
    t = torch.tensor([[0.05], [0.4], [0.8], [1.0]])
    z = process.noise(mixture.sample(rng(3, 4), 50), t, rng=rng(4, 4)).z
    error = _max_difference(
        guided.predict(z, t, Context()).x, one_mode.posterior_mean(z, *process.path.scales(t[..., None]))
    )
    yield _law_equal(process, "classifier guidance: x̂ of one mode", error, 0, 1e-9)
    x = final_canvas(Heun(20, _EVEN)(guided, process, _blank_vectors(_ROWS, _POSITIONS), rng=rng(7, _ROWS))).z.flatten(
        0, 1
    )
    mean_error = (x.mean(0) - one_mode.means[0]) / one_mode.std
    yield _law_equal(process, "classifier guidance: mean of one mode", float(mean_error.abs().max()), 0, 0.15)
    variance = _relative_variance(one_mode, x, torch.zeros(len(x), dtype=torch.int64))
    yield _law_equal(process, "classifier guidance: variance of one mode", variance, 1, 0.12)


@dataclass(frozen=True)
class ModeClassifier:
    """log p(mode | z) of noisy points, summed over the positions of a row."""

    mixture: Mixture
    path: NoisePath
    mode: int

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Tensor:
        return self.mixture.log_mode(z, *self.path.scales(t[..., None]))[..., self.mode].sum(-1)


def _blank_vectors(rows: int, positions: int, width: int = 2) -> Canvas:
    """Return a canvas of vectors on which nothing is given."""
    z = torch.zeros(rows, positions, width, dtype=torch.float64)
    return Canvas(z, torch.zeros_like(z[..., 0], dtype=torch.bool))


def _max_difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def _built_in() -> list[Gaussian]:
    return [_PROCESS]
