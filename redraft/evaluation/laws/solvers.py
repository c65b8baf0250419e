"""The laws of solvers: a mixture of normal distributions, whose best denoiser and density are known at every time.

A deterministic solver must converge at its order, every solver must recover the mixture, and solvers that are the same
in disguise must give the same numbers for the same draws.
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
from redraft.evaluation.laws.law import _P_MIN, Law, _chi_square, _law_at_least, _law_equal

_ROWS, _PLACES = 2, 500
_EVEN = UniformLogSnrGrid()
# log-SNR as far as the mixture needs it: beyond, equal steps of it would be wasted
PROCESS = Gaussian(_VECTOR_VOCAB, VariancePreserving(ClampedLogSnr(CosineSquared(), -9.0, 9.0)))
# name, sampler, how far the variance within modes may be off: few steps of DDIM(1) lose some, Langevin has too much
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
_ORDERS: tuple[tuple[str, type[Solver], float], ...] = (
    ("DDIM", Ddim, 0.9),
    ("Euler", OdeEuler, 0.9),
    ("Heun", Heun, 1.8),
    ("DPM-Solver++", DpmPP, 1.6),
)


def _laws(process: Gaussian) -> Iterator[Law]:
    """All laws of solvers on one process."""
    mixture = Mixture.of()
    oracle = MixtureOracle(mixture, process.path)
    yield from _convergence_laws(process, oracle)
    yield from _moment_laws(process, mixture)
    yield from _equivalence_laws(process, mixture, oracle)
    yield from _flow_laws(process, mixture, oracle)
    yield _renoise_law(process)
    yield from _guidance_laws(process, mixture, oracle)


def _convergence_laws(process: Gaussian, oracle: Denoiser) -> Iterator[Law]:
    """Doubling the steps of a method of order p divides its error by 2^p."""
    for name, kind, least in _ORDERS:
        yield _law_at_least(process, f"{name}: order of convergence", _convergence_order(process, oracle, kind), least)


def _convergence_order(process: Gaussian, oracle: Denoiser, kind: type[Solver], steps: int = 20) -> float:
    """log₂ of the change from n to 2n steps over that from 2n to 4n, from the same noise.

    Uses medians: a point on the border of two modes may end up in either, however small the steps.
    """
    noise = process.prior(blank_canvas(1, 50), rng=rng(0))
    coarse, fine, finest = (_solve_down(process, oracle, kind(n, _EVEN), noise) for n in (steps, 2 * steps, 4 * steps))
    return math.log2(float((coarse - fine).norm(dim=-1).median() / (fine - finest).norm(dim=-1).median()))


def _solve_down(process: Gaussian, oracle: Denoiser, solver: Solver, noise: Canvas) -> Tensor:
    """x from given noise."""
    times = solver.grid(process.path, solver.steps)
    return final_canvas(run_steps(solver.step, times, oracle, process.path, noise, rng=rng(5, len(noise.z)))).z


def _moment_laws(process: Gaussian, mixture: Mixture) -> Iterator[Law]:
    """Each sampler recovers mean and covariance, the weight of each mode, and the variance within modes."""
    for name, sampler, wide in _SAMPLERS:
        x = _sampled_vectors(process, mixture, sampler, rng(7, _ROWS), _PLACES).flatten(0, 1)
        mean, covariance = mixture.moments()
        off = max(float((x.mean(0) - mean).abs().max()), float((x.T.cov() - covariance).abs().max()))
        yield _law_equal(process, f"{name}: mean and covariance", off, 0, 0.15)
        mode = _nearest_mode(mixture, x)
        yield _law_at_least(process, f"{name}: weight of each mode", _chi_square(mode, mixture.weights), _P_MIN)
        yield _law_equal(process, f"{name}: variance within modes", _within(mixture, x, mode), 1, wide)


def _nearest_mode(mixture: Mixture, x: Tensor) -> Tensor:
    """(n,) the component that each point most likely comes from."""
    return mixture.log_mode(x, *(x.new_full((1, 1), scale) for scale in (1.0, 0.0))).argmax(-1)


def _within(mixture: Mixture, x: Tensor, mode: Tensor) -> float:
    """The mean of ((x − m_k)/σ_k)² over points and coordinates: 1 if modes are as wide as they should be."""
    return float(((x - mixture.means[mode]) / mixture.std[mode, None]).square().mean())


def _equivalence_laws(process: Gaussian, mixture: Mixture, oracle: Denoiser) -> Iterator[Law]:
    """Equal numbers for equal draws."""
    pair = [_sampled_vectors(process, mixture, s, rng(7, 2), 20) for s in (Ddim(12, eta=1.0), Ancestral(12))]
    yield _law_equal(process, "DDIM(1) = ancestral", _gap(*pair), 0, 1e-9)
    worst: list[float] = []
    for t, s in ((1.0, 0.8), (0.7, 0.4), (0.3, 0.05)):
        canvas = process.noise(mixture.sample(rng(3), 50), torch.tensor([[t]]), rng=rng(4))
        move = SolverStep(oracle, process.path, Canvas(canvas.z, blank_canvas(1, 50).fixed), t, s, rng(5))
        one = Ddim().step(move)
        slope = (move.z / move.at.signal - move.x) / move.at.ratio
        euler = move.to.signal * (move.z / move.at.signal + (move.to.ratio - move.at.ratio) * slope)
        worst += [_gap(one, DpmPP().step(move)), _gap(one, euler)]
        worst += [_gap(Ddim(eta=1.0).step(move), DpmPPSde().step(move))]
    yield _law_equal(process, "DDIM = first-order DPM-Solver++ = Euler in (y, ς)", max(worst), 0, 1e-9)


def _flow_laws(process: Gaussian, mixture: Mixture, oracle: Denoiser) -> Iterator[Law]:
    """The flow up and down again is the identity, and its likelihood is the density."""
    x, steps = mixture.sample(rng(8, 8), 1), 100
    canvas = Canvas(x, torch.zeros(x.shape[:2], dtype=torch.bool))
    *_, (_, noise) = encode_to_noise(oracle, process, canvas, steps=steps, rng=rng(9, 8))
    back = _solve_down(process, oracle, Heun(steps + 1, _EVEN), noise)
    yield _law_equal(process, "the flow up and down returns x", _gap(back, x), 0, 0.02)
    flow = flow_log_likelihood(oracle, process, canvas, steps=steps, rng=rng(9, 8), exact=True)
    yield _law_equal(
        process, "likelihood of the flow = density", _gap(flow, density(mixture, process.path, x[:, 0])), 0, 0.05
    )


def density(mixture: Mixture, path: NoisePath, x: Tensor) -> Tensor:
    """(n,) log-density of z/a at the clean end, where a little noise is left."""
    return mixture.log_density(
        x, *(x.new_full((1, 1), scale) for scale in (1.0, noise_scales(path, GENERATIVE_END).ratio))
    )


@dataclass(frozen=True)
class TokenOracle:
    """The best denoiser of tokens at the corners of a simplex, which also names them."""

    mixture: Mixture
    process: Gaussian
    block: int | None = None

    @classmethod
    def of(cls, process: Gaussian) -> TokenOracle:
        weights = torch.tensor([0.55, 0.3, 0.15], dtype=torch.float64)
        return cls(Mixture(2 * torch.eye(3, dtype=torch.float64) - 1, torch.zeros_like(weights), weights), process)

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> VectorPrediction:
        log_p = self.mixture.log_mode(z.double(), *self.process.path.scales(t[..., None]))
        return VectorPrediction(log_p.exp() @ self.mixture.means, log_p)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        raise ValueError("tokens are independent here: there is nothing to remember about finished ones")


def _renoise_law(process: Gaussian) -> Law:
    oracle = TokenOracle.of(process)
    p = _chi_square(renoised(oracle, Renoise(20, project=NucleusProjection())), oracle.mixture.weights)
    return _law_at_least(process, "renoising drawn tokens keeps their frequencies", p, _P_MIN)


def renoised(oracle: TokenOracle, sampler: Sampler) -> Tensor:
    """(n,) the tokens that a sampler writes."""
    canvas = blank_canvas(_ROWS, _PLACES, 3)
    return final_canvas(sampler(oracle, oracle.process, canvas, rng=rng(7, _ROWS))).z.argmax(-1).flatten()


def _guidance_laws(process: Gaussian, mixture: Mixture, oracle: Denoiser) -> Iterator[Law]:
    """With the exact classifier of noisy points and γ = 1, guidance gives the prediction and samples of one mode."""
    guided = GradientClassifier(ModeClassifier(mixture, process.path, 1), process)(oracle)
    alone = Mixture(mixture.means[1:2], mixture.std[1:2], torch.ones(1, dtype=torch.float64))
    t = torch.tensor([[0.05], [0.4], [0.8], [1.0]])
    z = process.noise(mixture.sample(rng(3, 4), 50), t, rng=rng(4, 4)).z
    gap = _gap(guided(z, t, Context()).x, alone.posterior_mean(z, *process.path.scales(t[..., None])))
    yield _law_equal(process, "classifier guidance: x̂ of one mode", gap, 0, 1e-9)
    x = final_canvas(Heun(20, _EVEN)(guided, process, blank_canvas(_ROWS, _PLACES), rng=rng(7, _ROWS))).z.flatten(0, 1)
    off = (x.mean(0) - alone.means[0]) / alone.std
    yield _law_equal(process, "classifier guidance: mean of one mode", float(off.abs().max()), 0, 0.15)
    within = _within(alone, x, torch.zeros(len(x), dtype=torch.int64))
    yield _law_equal(process, "classifier guidance: variance of one mode", within, 1, 0.12)


@dataclass(frozen=True)
class ModeClassifier:
    """log p(mode | z) of noisy points, summed over the places."""

    mixture: Mixture
    path: NoisePath
    mode: int

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Tensor:
        return self.mixture.log_mode(z, *self.path.scales(t[..., None]))[..., self.mode].sum(-1)


def blank_canvas(rows: int, places: int, width: int = 2) -> Canvas:
    """A canvas on which nothing is given."""
    z = torch.zeros(rows, places, width, dtype=torch.float64)
    return Canvas(z, torch.zeros_like(z[..., 0], dtype=torch.bool))


def _gap(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def _built_in() -> list[Gaussian]:
    return [PROCESS]
