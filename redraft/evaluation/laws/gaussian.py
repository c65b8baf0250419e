"""The laws of Gaussian noise, on mixtures of normal distributions whose best denoiser is known in closed form.

Under Gaussian noise a mixture of normal distributions remains one, so x̂, score and density are known at every time,
and samplers must recover its moments. If the components have no width, they are embedded tokens, and the bound must
equal their entropy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from redraft.core.batch import NoisySample
from redraft.core.canvas import Canvas, Context
from redraft.core.ops import entropy
from redraft.core.prediction import VectorPrediction
from redraft.core.processes import gaussian
from redraft.core.processes.gaussian import Gaussian, NoisePath, StraightPath, VarianceExploding, VariancePreserving
from redraft.core.randomness import Rng, rng, sample_categorical
from redraft.core.vocab import Vocab
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.base import Sampler, final_canvas
from redraft.evaluation.laws.law import P_MIN, Law, _Integral, _integrate, _law_at_least, _law_equal, chi_square

_VECTOR_VOCAB = Vocab(4)
_DRAWS = 20_000
_MAX_STANDARD_ERRORS = 5.0  # a correct estimate may be off by this many standard errors; the seeds are fixed
_PAIRS = ((0.2, 0.5), (0.5, 0.9), (0.1, 0.95))  # s, t


# --- mixtures ---


@runtime_checkable
class PointMixture(Protocol):
    """A corpus of points drawn from a mixture of isotropic normal distributions."""

    @property
    def means(self) -> tuple[tuple[float, ...], ...]: ...
    @property
    def stds(self) -> tuple[float, ...]: ...
    @property
    def weights(self) -> tuple[float, ...]: ...


@dataclass(frozen=True)
class Mixture:
    """x ~ Σ_k w_k·N(m_k, σ_k²), so z ~ Σ_k w_k·N(a·m_k, a²σ_k² + s²) under noise. Scales a, s broadcast to (…, 1)."""

    means: Tensor  # (K, D) float64 means m_k
    std: Tensor  # (K,) standard deviations σ_k
    weights: Tensor  # (K,) weights w_k, which sum to 1

    @classmethod
    def of(cls) -> Mixture:
        """Three separate modes in the plane, of different weights and widths."""
        means = torch.tensor([[-1.5, -0.5], [1.0, 1.0], [0.5, -1.5]], dtype=torch.float64)
        return cls(means, *(torch.tensor(v, dtype=torch.float64) for v in ((0.2, 0.3, 0.15), (0.5, 0.3, 0.2))))

    @classmethod
    def of_blobs(cls, blobs: PointMixture) -> Mixture:
        """The distribution of a corpus of points."""
        return cls(*(torch.tensor(v, dtype=torch.float64) for v in (blobs.means, blobs.stds, blobs.weights)))

    @classmethod
    def tokens(cls) -> Mixture:
        """Four embedded tokens: modes without width."""
        means = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]], dtype=torch.float64)
        weights = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
        return cls(means, torch.zeros(4, dtype=torch.float64), weights)

    def log_density(self, z: Tensor, a: Tensor, s: Tensor) -> Tensor:
        """(…) log q(z)."""
        return self._log_joint(z, a, s).logsumexp(-1)

    def log_mode(self, z: Tensor, a: Tensor, s: Tensor) -> Tensor:
        """(…, K) log-probability of each mode, given z."""
        return self._log_joint(z, a, s).log_softmax(-1)

    def posterior_mean(self, z: Tensor, a: Tensor, s: Tensor) -> Tensor:
        """(…, D) E[x | z], the average over modes of m_k + a·σ_k²/(a²σ_k² + s²)·(z − a·m_k)."""
        gain = a * self.std**2 / (a**2 * self.std**2 + s**2)  # (…, K)
        p = self.log_mode(z, a, s).exp()
        return (p * (1 - a * gain)) @ self.means + (p * gain).sum(-1, keepdim=True) * z

    def sample(self, rng: Rng, n: int) -> Tensor:
        """(B, n, D) points."""
        for_mode, for_point = rng.split(2)
        u = for_mode.uniform(n)
        k = sample_categorical(self.weights.log().expand(u.numel(), -1), u.flatten()).view_as(u)
        return self.means[k] + self.std[k][..., None] * for_point.normal(n, self.means.shape[1])

    def moments(self) -> tuple[Tensor, Tensor]:
        """(D,) mean and (D, D) covariance."""
        mean = self.weights @ self.means
        deviation = self.means - mean
        within = (self.weights * self.std**2).sum() * torch.eye(len(mean), dtype=mean.dtype)
        return mean, (self.weights[:, None] * deviation).T @ deviation + within

    @property
    def entropy(self) -> float:
        """Entropy of the mode, in nats."""
        return float(entropy(self.weights.log()))

    def _log_joint(self, z: Tensor, a: Tensor, s: Tensor) -> Tensor:
        """(…, K) log(w_k·q(z | mode k))."""
        variance = a**2 * self.std**2 + s**2  # (…, K)
        distance = (z[..., None, :] - a[..., None] * self.means).square().sum(-1)
        log_norm = self.means.shape[1] / 2 * (2 * torch.pi * variance).log()
        return self.weights.log() - distance / (2 * variance) - log_norm


@dataclass(frozen=True)
class MixtureOracle:
    """The best denoiser: x̂ = E[x | z], each position independently."""

    mixture: Mixture
    path: NoisePath
    block: int | None = None

    def predict(self, z: Tensor, t: Tensor, context: Context) -> VectorPrediction:
        return VectorPrediction(self.mixture.posterior_mean(z.double(), *self.path.scales(t[..., None])))

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        raise ValueError("MixtureOracle needs no cache: positions are independent; sample without blocks")


@dataclass(frozen=True)
class _WarpedPath(NoisePath):
    """Another path at time t^power, which has the same noise levels at other times."""

    path: NoisePath
    power: float

    def signal(self, t: Tensor) -> Tensor:
        return self.path.signal(t**self.power)

    def noise(self, t: Tensor) -> Tensor:
        return self.path.noise(t**self.power)

    def time(self, logsnr: Tensor) -> Tensor:
        return self.path.time(logsnr).clamp(min=0) ** (1 / self.power)

    @property
    def prior_std(self) -> float:
        return self.path.prior_std


def _sampled_vectors(process: Gaussian, mixture: Mixture, sampler: Sampler, keys: Rng, count: int = 1000) -> Tensor:
    """(B, count, D) vectors drawn by a sampler with the best denoiser."""
    z = torch.zeros(len(keys.key), count, mixture.means.shape[1], dtype=torch.float64)
    canvas = Canvas(z, torch.zeros_like(z[..., 0], dtype=torch.bool))
    return final_canvas(sampler(MixtureOracle(mixture, process.path), process, canvas, rng=keys)).z


# --- the laws ---


def _laws(process: Gaussian) -> Iterator[Law]:
    """Check all laws of Gaussian noise on one process."""
    yield from _vector_forward_laws(process)
    yield from _vector_reverse_laws(process)
    yield from _conversion_laws(process)
    yield from _vector_bound_laws(process)
    yield from _vector_sampling_laws(process)


def _vector_forward_laws(process: Gaussian) -> Iterator[Law]:
    """Check marginals, prior and transitions."""
    x = torch.tensor([[[0.7, -1.3]]], dtype=torch.float64).expand(3, _DRAWS, 2)
    t = torch.tensor([[0.1], [0.5], [0.95]])
    clean = process.noise(x, 0 * t, rng=rng(1, 3)).z
    yield _law_equal(process, "time zero is clean", float((clean != x).sum()), 0, 0)
    a, s = process.path.scales(t[..., None])
    noisy = process.noise(x, t, rng=rng(2, 3)).z
    error = _moment_errors(noisy, a * x, s)
    yield _law_equal(process, "draws match marginals (standard errors)", error, 0, _MAX_STANDARD_ERRORS)
    blank = Canvas(torch.zeros_like(x), torch.zeros(3, _DRAWS, dtype=torch.bool))
    prior = process.prior(blank, rng=rng(3, 3)).z
    std = torch.full_like(prior, process.path.prior_std)
    error = _moment_errors(prior, torch.zeros_like(prior), std)
    yield _law_equal(process, "draws match the prior (standard errors)", error, 0, _MAX_STANDARD_ERRORS)
    yield _law_equal(process, "marginals compose", max(_composition_error(process, *pair) for pair in _PAIRS), 0, 1e-9)
    large = 300 * x[:1, :1]  # for an ordinary x the KL would be tiny
    yield _law_equal(process, "prior KL", float(process.prior_kl(large)), _prior_kl(process, large.flatten()), 1e-6)


def _moment_errors(z: Tensor, mean: Tensor, std: Tensor) -> float:
    """Return the largest error of the means and variances of normal draws z, (B, n, D), in standard errors."""
    unit, n = (z - mean) / std, z.shape[1]
    mean_error, variance_error = unit.mean(1) * n**0.5, (unit.square().mean(1) - 1) * (n / 2) ** 0.5
    return float(torch.maximum(mean_error.abs(), variance_error.abs()).max())


def _composition_error(process: Gaussian, s_value: float, t_value: float) -> float:
    """Return how far q(z_s | x) followed by q(z_t | z_s) is from q(z_t | x)."""
    s, t = _time(s_value), _time(t_value)
    (a_s, noise_s), (a_t, noise_t) = process.path.scales(s), process.path.scales(t)
    factor, variance = process.transition(s, t)
    signal, noise = factor * a_s / a_t, (factor**2 * noise_s**2 + variance) / noise_t**2
    return float(torch.maximum((signal - 1).abs(), (noise - 1).abs()))


def _prior_kl(process: Gaussian, x: Tensor) -> float:
    """Return the KL of q(z_1 | x) from the prior for x (D,), by integration over each coordinate."""
    a, s = process.path.scales(_time(1.0))
    unit, weight = _normal_nodes()
    z = a * x[:, None] + s.squeeze() * unit
    prior = torch.distributions.Normal(0.0, process.path.prior_std)
    return float(((_normal_log_density(unit) - s.log() - prior.log_prob(z)) * weight).sum())


def _vector_reverse_laws(process: Gaussian) -> Iterator[Law]:
    """Check posterior and steps."""
    bayes = [_bayes_error(process, *pair) for pair in _PAIRS]
    yield _law_equal(process, "posterior is Bayes' rule", max(bayes), 0, 1e-10)
    yield _law_equal(
        process,
        "stepping back keeps marginals",
        max(_reverse_marginal_error(process, *pair) for pair in _PAIRS),
        0,
        1e-9,
    )
    x, z = rng(4).normal(2, 1, 2)[0].expand(2, _DRAWS, 2)[:, None]
    s, t = _time(0.4), _time(0.7)
    canvas = Canvas(z, torch.zeros(1, _DRAWS, dtype=torch.bool))
    mean, variance = process.reverse(VectorPrediction(x), z, s, t)
    drawn = process.step(VectorPrediction(x), canvas, s, t, rng=rng(5)).z
    error = _moment_errors(drawn, mean, variance.sqrt())
    yield _law_equal(process, "steps match the reverse distribution", error, 0, _MAX_STANDARD_ERRORS)
    end = process.step(VectorPrediction(x), canvas, 0 * s, t, rng=rng(5)).z
    yield _law_equal(process, "the last step returns x̂", float((end - x).abs().max()), 0, 1e-12)


def _bayes_error(process: Gaussian, s_value: float, t_value: float) -> float:
    """Return how far `posterior` is from q(z_t | z_s)·q(z_s | x), normalized on a grid of z_s."""
    s, t = _time(s_value), _time(t_value)
    x, z = (torch.full((1, 1, 1), value, dtype=torch.float64) for value in (0.7, -0.4))
    mean, variance = process.posterior(x, z, s, t)
    a, noise = process.path.scales(s)
    factor, transition_variance = process.transition(s, t)
    z_s = (mean + variance.sqrt() * torch.linspace(-12, 12, 2001, dtype=torch.float64)).flatten()
    log_p = -((z_s - a * x) ** 2) / (2 * noise**2) - (z - factor * z_s) ** 2 / (2 * transition_variance)
    p = log_p.softmax(-1).flatten()
    grid_mean = (p * z_s).sum()
    grid_variance = (p * (z_s - grid_mean) ** 2).sum()
    return max(float((grid_mean - mean).abs()), float((grid_variance - variance).abs()))


def _reverse_marginal_error(process: Gaussian, s_value: float, t_value: float) -> float:
    """Return how far the posterior, averaged over z_t ~ q(z_t | x), is from q(z_s | x).

    The posterior mean is linear in z and x, so its two coefficients say everything.
    """
    s, t, one = _time(s_value), _time(t_value), torch.ones(1, 1, 1, dtype=torch.float64)
    (of_z, variance), (of_x, _) = process.posterior(0 * one, one, s, t), process.posterior(one, 0 * one, s, t)
    (a_s, noise_s), (a_t, noise_t) = process.path.scales(s), process.path.scales(t)
    mean_error, variance_error = of_z * a_t + of_x - a_s, of_z**2 * noise_t**2 + variance - noise_s**2
    return float(torch.maximum(mean_error.abs(), variance_error.abs()))


def _conversion_laws(process: Gaussian) -> Iterator[Law]:
    """Check the conversions between x, ε, v and score."""
    t = torch.linspace(1e-4, 1, 200, dtype=torch.float64)[:, None, None]
    a, s = process.path.scales(t)
    x, eps = rng(6).normal(2, 200, 1, 2)[0]
    z = a * x + s * eps
    errors = [_round_trip_error(x, z, a, s, *pair) for pair in product(_CONVERSIONS, repeat=2)]
    yield _law_equal(process, "ε, v and score convert into each other", max(errors), 0, 1e-8)
    eps_error = float((gaussian.eps_from_x(x, z, a, s) - eps).abs().max())
    yield _law_equal(process, "ε is the noise that was added", eps_error, 0, 1e-9)
    mixture = Mixture.of()
    z_with_grad = z.clone().requires_grad_()
    (true_score,) = torch.autograd.grad(mixture.log_density(z_with_grad, a, s).sum(), z_with_grad)
    score = gaussian.score_from_x(mixture.posterior_mean(z, a, s), z, a, s)
    score_error = float(((score - true_score) * s).abs().max())
    yield _law_equal(process, "x̂ of a mixture gives its score", score_error, 0, 1e-8)
    noise = gaussian.eps_from_x(mixture.posterior_mean(z, a, s), z, a, s)
    yield _law_equal(process, "score = −ε/s", float((score * s + noise).abs().max()), 0, 1e-9)


_Conversion = tuple[Callable[..., Tensor], Callable[..., Tensor]]  # to x, and from x
_CONVERSIONS: list[_Conversion] = [
    (gaussian.x_from_eps, gaussian.eps_from_x),
    (gaussian.x_from_v, gaussian.v_from_x),
    (gaussian.x_from_score, gaussian.score_from_x),
]


def _round_trip_error(x: Tensor, z: Tensor, a: Tensor, s: Tensor, one: _Conversion, other: _Conversion) -> float:
    """Return the relative error of the round trip x → one → x → other → x → one."""
    before = one[1](x, z, a, s)
    after = one[1](other[0](other[1](one[0](before, z, a, s), z, a, s), z, a, s), z, a, s)
    return float(((after - before).abs() / (1 + before.abs())).max())


def _vector_bound_laws(process: Gaussian) -> Iterator[Law]:
    """Check the bound, in steps and in continuous time, for good and bad denoisers."""
    yield _law_equal(process, "KL of a step = ½ΔSNR·error²", max(_kl_error(process, *pair) for pair in _PAIRS), 0, 1e-9)
    mixture = Mixture.tokens()
    H, oracle = mixture.entropy, MixtureOracle(mixture, process.path)
    few, many = (_vector_bound(process, oracle, steps) @ mixture.weights for steps in (64, 128))
    yield _law_at_least(process, "T-step bound falls with T", float(few - many), 0.01)
    yield _law_equal(process, "T-step bound → entropy, as 1/T", float(many + (many - few)), H, 0.02)
    token_bounds, error = _integrated_vector_bound(process, oracle)
    yield _law_equal(process, "bound = entropy", _Integral(token_bounds @ mixture.weights, error), H, 2e-3)
    difference = _Integral((token_bounds + mixture.weights.log()).abs().max(), error)
    yield _law_equal(process, "bound = −log p of each token", difference, 0, 2e-3)
    uniform = replace(mixture, weights=torch.full_like(mixture.weights, 0.25))
    token_bounds, error = _integrated_vector_bound(process, MixtureOracle(uniform, process.path))
    worse = _Integral(token_bounds @ mixture.weights, error)
    yield _law_equal(process, "bound of a denoiser for uniform weights", worse, math.log(4), 2e-3)
    path = _WarpedPath(process.path, 2.0)
    token_bounds, error = _integrated_vector_bound(replace(process, path=path), MixtureOracle(uniform, path))
    warped = _Integral(token_bounds @ mixture.weights, error + worse.error)
    yield _law_equal(process, "bound does not depend on the schedule", warped, float(worse), 2e-3)


def _kl_error(process: Gaussian, s_value: float, t_value: float) -> float:
    """Return the relative error of `nelbo` of a step, against the KL of two normal distributions."""
    s, t, (x, x_hat, z) = _time(s_value), _time(t_value), rng(7).normal(3, 1, 1, 2)[0]
    q = torch.distributions.Normal(*_mean_and_std(process.posterior(x, z, s, t)))
    p = torch.distributions.Normal(*_mean_and_std(process.reverse(VectorPrediction(x_hat), z, s, t)))
    kl = torch.distributions.kl_divergence(q, p).sum()
    return float((process.nelbo(VectorPrediction(x_hat), NoisySample(z, t, x), s) / kl - 1).abs())


def _mean_and_std(moments: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation, given mean and variance."""
    mean, variance = moments
    return mean, variance.sqrt().expand_as(mean)


def _vector_bound(process: Gaussian, oracle: MixtureOracle, steps: int | None = None) -> Tensor:
    """(K,) bound of each embedded token in nats, integrated over the noise and over time, or summed over steps.

    With the best denoiser for given weights it is −log of the weight, even if tokens occur with other weights.
    """
    if steps is None:
        return _integrated_vector_bound(process, oracle).value
    grid = torch.arange(steps + 1, dtype=torch.float64) / steps
    return _end_terms(process, oracle) + _mean_bound_terms(process, oracle, grid[1:], grid[:-1]).sum(0)


def _integrated_vector_bound(process: Gaussian, oracle: MixtureOracle) -> _Integral:
    """(K,) bound of each embedded token in continuous time, with the error of the integral."""
    # the integrand is large only in a short interval of time, so more nodes are needed
    result = _integrate(lambda t: _mean_bound_terms(process, oracle, t), nodes=128)
    return result._replace(value=result.value + _end_terms(process, oracle))


def _end_terms(process: Gaussian, oracle: MixtureOracle) -> Tensor:
    """(K,) terms of the bound at the ends of time: prior KL and reconstruction."""
    return process.prior_kl(oracle.mixture.means[None])[0] + _reconstruction(process.path, oracle.mixture)


def _reconstruction(path: NoisePath, mixture: Mixture) -> Tensor:
    """(K,) E[−log p(w | z_0)] with the best decoder, where z_0 is at the clean end, which still has a little noise."""
    a, s = (f(torch.zeros(1, 1, 1)) for f in (path.signal, path.noise))
    unit, weight = _normal_nodes_2d()
    log_p = mixture.log_mode(a * mixture.means[:, None] + s * unit, a, s)  # (K, M, K)
    return -weight @ log_p.diagonal(dim1=0, dim2=2)


def _mean_bound_terms(process: Gaussian, oracle: MixtureOracle, t: Tensor, s: Tensor | None = None) -> Tensor:
    """(T,) times → (T, K) term of the bound at each time for each token, averaged over the noise, 16 times per call."""
    chunks = zip(t.split(16), [None] * len(t) if s is None else s.split(16), strict=False)
    return torch.cat([_mean_terms(process, oracle, ts, ss) for ts, ss in chunks])


def _mean_terms(process: Gaussian, oracle: MixtureOracle, t: Tensor, s: Tensor | None) -> Tensor:
    """(T,) times → (T, K) term of the bound, as in `_mean_bound_terms`, all times in one call."""
    (unit, weight), means = _normal_nodes_2d(), oracle.mixture.means
    a, noise = process.path.scales(t[:, None, None, None])
    x = means[:, None].expand(len(t), -1, len(unit), -1)
    noised = NoisySample((a * x + noise * unit).flatten(1, 2), t[:, None], x.flatten(1, 2))
    nats = process.nelbo(oracle.predict(noised.z, noised.t, Context()), noised, None if s is None else s[:, None])
    return nats.view(len(t), len(means), -1) @ weight


def _vector_sampling_laws(process: Gaussian) -> Iterator[Law]:
    """Check ancestral sampling. Its error falls as 1/steps; at 128 steps the modes are 1/20 too narrow."""
    mixture, sampler = Mixture.of(), Ancestral(steps=128)
    z = _sampled_vectors(process, mixture, sampler, rng(8, 4)).flatten(0, 1)
    mean, covariance = mixture.moments()
    yield _law_equal(process, "ancestral sampling recovers the mean", float((z.mean(0) - mean).abs().max()), 0, 0.08)
    yield _law_equal(
        process, "ancestral sampling recovers the covariance", float((z.T.cov() - covariance).abs().max()), 0, 0.08
    )
    mode, width = _nearest_modes(z, mixture)
    yield _law_at_least(
        process, "ancestral sampling recovers the mode weights", chi_square(mode, mixture.weights), P_MIN
    )
    yield _law_equal(
        process, "ancestral sampling recovers the mode widths", float((width / mixture.std).mean()), 1, 0.1
    )


def _nearest_modes(z: Tensor, mixture: Mixture) -> tuple[Tensor, Tensor]:
    """(n, D) points → (n,) nearest mode of each point, and (K,) standard deviation within each mode."""
    deviation = z[:, None] - mixture.means
    mode = deviation.square().sum(-1).argmin(-1)
    width = torch.stack([deviation[mode == k, k].square().mean().sqrt() for k in range(len(mixture.weights))])
    return mode, width


def _time(t: float) -> Tensor:
    """(1, 1) time."""
    return torch.full((1, 1), t, dtype=torch.float64)


def _normal_nodes() -> tuple[Tensor, Tensor]:
    """(M,) points and weights to average over a standard normal. For smooth functions the trapezoidal rule is exact."""
    unit = torch.linspace(-6, 6, 31, dtype=torch.float64)
    return unit, _normal_log_density(unit).softmax(-1)


def _normal_nodes_2d() -> tuple[Tensor, Tensor]:
    """(M, 2) points and (M,) weights to average over a standard normal in two dimensions."""
    unit, weight = _normal_nodes()
    return torch.cartesian_prod(unit, unit), torch.outer(weight, weight).flatten()


def _normal_log_density(unit: Tensor) -> Tensor:
    return -(unit**2 + math.log(2 * math.pi)) / 2


def _built_in() -> list[Gaussian]:
    """Return a process for each built-in path; the exploding one has little noise, so that few nodes suffice."""
    return [
        Gaussian(_VECTOR_VOCAB, path) for path in (VariancePreserving(), VarianceExploding(0.05, 40.0), StraightPath())
    ]
