"""Toys whose best denoiser is known in closed form, and the laws of Gaussian noise on them.

A mixture of normal distributions stays one under Gaussian noise, so x̂, score and density are known at every time:
samplers must recover its moments. Without spread its components are embedded tokens, whose bound must be their entropy.
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
from redraft.evaluation.laws.law import _P_MIN, Law, _chi_square, _Integral, _law_at_least, _law_equal, integral

_VECTOR_VOCAB = Vocab(4)
_DRAWS = 20_000
_ERRORS = 5.0  # a correct estimate may be off by this many standard errors; the seeds are fixed
_PAIRS = ((0.2, 0.5), (0.5, 0.9), (0.1, 0.95))  # s, t
# --- the toys ---


@runtime_checkable
class PointMixture(Protocol):
    """A source of points whose true distribution is a mixture of round normal distributions."""

    @property
    def means(self) -> tuple[tuple[float, ...], ...]: ...
    @property
    def stds(self) -> tuple[float, ...]: ...
    @property
    def weights(self) -> tuple[float, ...]: ...


@dataclass(frozen=True)
class Mixture:
    """x ~ Σ_k w_k·N(m_k, σ_k²); under noise z ~ Σ_k w_k·N(a·m_k, a²σ_k² + s²). The scales a, s broadcast to (…, 1)."""

    means: Tensor  # (K, D) float64
    std: Tensor  # (K,)
    weights: Tensor  # (K,)

    @classmethod
    def of(cls) -> Mixture:
        """Three modes in the plane, apart, of different weight and width."""
        means = torch.tensor([[-1.5, -0.5], [1.0, 1.0], [0.5, -1.5]], dtype=torch.float64)
        return cls(means, *(torch.tensor(v, dtype=torch.float64) for v in ((0.2, 0.3, 0.15), (0.5, 0.3, 0.2))))

    @classmethod
    def of_blobs(cls, blobs: PointMixture) -> Mixture:
        """The true distribution of a corpus of points."""
        return cls(*(torch.tensor(v, dtype=torch.float64) for v in (blobs.means, blobs.stds, blobs.weights)))

    @classmethod
    def tokens(cls) -> Mixture:
        """Four embedded tokens: no spread at all."""
        means = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]], dtype=torch.float64)
        weights = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
        return cls(means, torch.zeros(4, dtype=torch.float64), weights)

    def log_density(self, z: Tensor, a: Tensor, s: Tensor) -> Tensor:
        """(…) log q(z)"""
        return self._log_joint(z, a, s).logsumexp(-1)

    def log_mode(self, z: Tensor, a: Tensor, s: Tensor) -> Tensor:
        """(…, K) log-probability of each component, given z."""
        return self._log_joint(z, a, s).log_softmax(-1)

    def posterior_mean(self, z: Tensor, a: Tensor, s: Tensor) -> Tensor:
        """(…, D) E[x | z]: for each component m_k + a·σ_k²/(a²σ_k² + s²)·(z − a·m_k), averaged."""
        gain = a * self.std**2 / (a**2 * self.std**2 + s**2)  # (…, K)
        p = self.log_mode(z, a, s).exp()
        return (p * (1 - a * gain)) @ self.means + (p * gain).sum(-1, keepdim=True) * z

    def sample(self, rng: Rng, n: int) -> Tensor:
        """(B, n, D)"""
        which, where = rng.split(2)
        u = which.uniform(n)
        k = sample_categorical(self.weights.log().expand(u.numel(), -1), u.flatten()).view_as(u)
        return self.means[k] + self.std[k][..., None] * where.normal(n, self.means.shape[1])

    def moments(self) -> tuple[Tensor, Tensor]:
        """(D,) mean and (D, D) covariance."""
        mean = self.weights @ self.means
        off = self.means - mean
        within = (self.weights * self.std**2).sum() * torch.eye(len(mean), dtype=mean.dtype)
        return mean, (self.weights[:, None] * off).T @ off + within

    @property
    def entropy(self) -> float:
        """The entropy of the component."""
        return float(entropy(self.weights.log()))

    def _log_joint(self, z: Tensor, a: Tensor, s: Tensor) -> Tensor:
        variance = a**2 * self.std**2 + s**2  # (…, K)
        far = (z[..., None, :] - a[..., None] * self.means).square().sum(-1)
        return self.weights.log() - far / (2 * variance) - self.means.shape[1] / 2 * (2 * torch.pi * variance).log()


@dataclass(frozen=True)
class MixtureOracle:
    """The best denoiser: x̂ = E[x | z], each place independently."""

    mixture: Mixture
    path: NoisePath
    block: int | None = None

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> VectorPrediction:
        return VectorPrediction(self.mixture.posterior_mean(z.double(), *self.path.scales(t[..., None])))

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        raise ValueError("the places of a mixture are independent: there is nothing to remember about finished ones")


@dataclass(frozen=True)
class _WarpedPath(NoisePath):
    """Another path at the time t^power: the same noise levels at other times."""

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


def _sampled_vectors(process: Gaussian, mixture: Mixture, sampler: Sampler, keys: Rng, each: int = 1000) -> Tensor:
    """(B, each, D) vectors that a sampler writes with the best denoiser."""
    z = torch.zeros(len(keys.key), each, mixture.means.shape[1], dtype=torch.float64)
    canvas = Canvas(z, torch.zeros_like(z[..., 0], dtype=torch.bool))
    return final_canvas(sampler(MixtureOracle(mixture, process.path), process, canvas, rng=keys)).z


# --- the laws ---


def _laws(process: Gaussian) -> Iterator[Law]:
    """All laws of Gaussian noise on one process."""
    yield from _vector_forward_laws(process)
    yield from _vector_reverse_laws(process)
    yield from _conversion_laws(process)
    yield from _vector_bound_laws(process)
    yield from _vector_sampling_laws(process)


def _vector_forward_laws(process: Gaussian) -> Iterator[Law]:
    x = torch.tensor([[[0.7, -1.3]]], dtype=torch.float64).expand(3, _DRAWS, 2)
    t = torch.tensor([[0.1], [0.5], [0.95]])
    clean = process.noise(x, 0 * t, rng=rng(1, 3)).z
    yield _law_equal(process, "time zero is clean", float((clean != x).sum()), 0, 0)
    a, s = process.path.scales(t[..., None])
    noisy = process.noise(x, t, rng=rng(2, 3)).z
    yield _law_equal(process, "draws match marginals (standard errors)", _errors(noisy, a * x, s), 0, _ERRORS)
    blank = Canvas(torch.zeros_like(x), torch.zeros(3, _DRAWS, dtype=torch.bool))
    prior = process.prior(blank, rng=rng(3, 3)).z
    std = torch.full_like(prior, process.path.prior_std)
    yield _law_equal(process, "so do those of the prior", _errors(prior, torch.zeros_like(prior), std), 0, _ERRORS)
    yield _law_equal(process, "marginals compose", max(_composed(process, *pair) for pair in _PAIRS), 0, 1e-9)
    far = 300 * x[:1, :1]  # otherwise the differences would be tiny
    yield _law_equal(process, "prior KL", float(process.prior_kl(far)), _prior_kl(process, far.flatten()), 1e-6)


def _errors(z: Tensor, mean: Tensor, std: Tensor) -> float:
    """(B, n, D) normal draws: the largest error of their means and variances, in standard errors."""
    unit, n = (z - mean) / std, z.shape[1]
    first, second = unit.mean(1) * n**0.5, (unit.square().mean(1) - 1) * (n / 2) ** 0.5
    return float(torch.maximum(first.abs(), second.abs()).max())


def _composed(process: Gaussian, early: float, late: float) -> float:
    """How far q(z_t | z_s) and q(z_s | x) are from q(z_t | x)."""
    s, t = _moment(early), _moment(late)
    (a_s, noise_s), (a_t, noise_t) = process.path.scales(s), process.path.scales(t)
    factor, variance = process.transition(s, t)
    signal, noise = factor * a_s / a_t, (factor**2 * noise_s**2 + variance) / noise_t**2
    return float(torch.maximum((signal - 1).abs(), (noise - 1).abs()))


def _prior_kl(process: Gaussian, x: Tensor) -> float:
    """(D,) → the KL of the noise at t = 1 and the prior, by integration over each coordinate."""
    a, s = process.path.scales(_moment(1.0))
    unit, weight = _line()
    z = a * x[:, None] + s.squeeze() * unit
    prior = torch.distributions.Normal(0.0, process.path.prior_std)
    return float(((_normal_log(unit) - s.log() - prior.log_prob(z)) * weight).sum())


def _vector_reverse_laws(process: Gaussian) -> Iterator[Law]:
    bayes = [_bayes(process, *pair) for pair in _PAIRS]
    yield _law_equal(process, "posterior is Bayes' rule", max(bayes), 0, 1e-10)
    yield _law_equal(
        process, "stepping back keeps marginals", max(_returned(process, *pair) for pair in _PAIRS), 0, 1e-9
    )
    x, z = rng(4).normal(2, 1, 2)[0].expand(2, _DRAWS, 2)[:, None]
    s, t = _moment(0.4), _moment(0.7)
    canvas = Canvas(z, torch.zeros(1, _DRAWS, dtype=torch.bool))
    mean, variance = process.reverse(VectorPrediction(x), z, s, t)
    drawn = process.step(VectorPrediction(x), canvas, s, t, rng=rng(5)).z
    yield _law_equal(process, "steps are draws of it", _errors(drawn, mean, variance.sqrt()), 0, _ERRORS)
    end = process.step(VectorPrediction(x), canvas, 0 * s, t, rng=rng(5)).z
    yield _law_equal(process, "the last step gives x̂", float((end - x).abs().max()), 0, 1e-12)


def _bayes(process: Gaussian, early: float, late: float) -> float:
    """How far `posterior` is from q(z_t | z_s)·q(z_s | x), normalised on a grid of z_s."""
    s, t, x, z = _moment(early), _moment(late), _moment(0.7)[..., None], _moment(-0.4)[..., None]
    mean, variance = process.posterior(x, z, s, t)
    a, noise = process.path.scales(s)
    factor, width = process.transition(s, t)
    y = (mean + variance.sqrt() * torch.linspace(-12, 12, 2001, dtype=torch.float64)).flatten()
    log_p = -((y - a * x) ** 2) / (2 * noise**2) - (z - factor * y) ** 2 / (2 * width)
    p = log_p.softmax(-1).flatten()
    found = (p * y).sum()
    return max(float((found - mean).abs()), float(((p * (y - found) ** 2).sum() - variance).abs()))


def _returned(process: Gaussian, early: float, late: float) -> float:
    """How far the posterior, averaged over z_t ~ q(z_t | x), is from q(z_s | x): it is linear in z and x."""
    s, t, one = _moment(early), _moment(late), torch.ones(1, 1, 1, dtype=torch.float64)
    (of_z, variance), (of_x, _) = process.posterior(0 * one, one, s, t), process.posterior(one, 0 * one, s, t)
    (a_s, noise_s), (a_t, noise_t) = process.path.scales(s), process.path.scales(t)
    mean_gap, variance_gap = of_z * a_t + of_x - a_s, of_z**2 * noise_t**2 + variance - noise_s**2
    return float(torch.maximum(mean_gap.abs(), variance_gap.abs()))


def _conversion_laws(process: Gaussian) -> Iterator[Law]:
    t = torch.linspace(1e-4, 1, 200, dtype=torch.float64)[:, None, None]
    a, s = process.path.scales(t)
    x, eps = rng(6).normal(2, 200, 1, 2)[0]
    z = a * x + s * eps
    gaps = [_there_and_back(x, z, a, s, *pair) for pair in product(_READINGS, repeat=2)]
    yield _law_equal(process, "ε, v and score are one another", max(gaps), 0, 1e-8)
    yield _law_equal(
        process, "ε is what was added", float((gaussian.eps_from_x(x, z, a, s) - eps).abs().max()), 0, 1e-9
    )
    mixture = Mixture.of()
    at = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(mixture.log_density(at, a, s).sum(), at)
    said = gaussian.score_from_x(mixture.posterior_mean(z, a, s), z, a, s)
    yield _law_equal(process, "x̂ of a mixture gives its score", float(((said - slope) * s).abs().max()), 0, 1e-8)
    noise = gaussian.eps_from_x(mixture.posterior_mean(z, a, s), z, a, s)
    yield _law_equal(process, "score = −ε/s", float((said * s + noise).abs().max()), 0, 1e-9)


_Reading = tuple[Callable[..., Tensor], Callable[..., Tensor]]
_READINGS: list[_Reading] = [
    (gaussian.x_from_eps, gaussian.eps_from_x),
    (gaussian.x_from_v, gaussian.v_from_x),
    (gaussian.x_from_score, gaussian.score_from_x),
]


def _there_and_back(x: Tensor, z: Tensor, a: Tensor, s: Tensor, one: _Reading, other: _Reading) -> float:
    """x → one → x → other → x → one: the relative gap between the first and the last."""
    said = one[1](x, z, a, s)
    again = one[1](other[0](other[1](one[0](said, z, a, s), z, a, s), z, a, s), z, a, s)
    return float(((again - said).abs() / (1 + said.abs())).max())


def _vector_bound_laws(process: Gaussian) -> Iterator[Law]:
    yield _law_equal(process, "KL of a step = ½ΔSNR·error²", max(_kl_gap(process, *pair) for pair in _PAIRS), 0, 1e-9)
    mixture = Mixture.tokens()
    H, oracle = mixture.entropy, MixtureOracle(mixture, process.path)
    few, many = (_vector_bound(process, oracle, steps) @ mixture.weights for steps in (64, 128))
    yield _law_at_least(process, "T-step bound falls with T", float(few - many), 0.01)
    yield _law_equal(process, "… to the entropy, as 1/T", float(many + (many - few)), H, 0.02)
    each, error = _integrated_vector_bound(process, oracle)
    yield _law_equal(process, "bound = entropy", _Integral(each @ mixture.weights, error), H, 2e-3)
    gap = _Integral((each + mixture.weights.log()).abs().max(), error)
    yield _law_equal(process, "bound = −log p of each token", gap, 0, 2e-3)
    even = replace(mixture, weights=torch.full_like(mixture.weights, 0.25))
    other, error = _integrated_vector_bound(process, MixtureOracle(even, process.path))
    worse = _Integral(other @ mixture.weights, error)
    yield _law_equal(process, "bound of a denoiser for even weights", worse, math.log(4), 2e-3)
    path = _WarpedPath(process.path, 2.0)
    other, error = _integrated_vector_bound(replace(process, path=path), MixtureOracle(even, path))
    again = _Integral(other @ mixture.weights, error + worse.error)
    yield _law_equal(process, "… the same noise at other times", again, float(worse), 2e-3)


def _kl_gap(process: Gaussian, early: float, late: float) -> float:
    """`nelbo` of a step against the KL of two normal distributions."""
    s, t, (x, guess, z) = _moment(early), _moment(late), rng(7).normal(3, 1, 1, 2)[0]
    q = torch.distributions.Normal(*_with_std(process.posterior(x, z, s, t)))
    p = torch.distributions.Normal(*_with_std(process.reverse(VectorPrediction(guess), z, s, t)))
    kl = torch.distributions.kl_divergence(q, p).sum()
    return float((process.nelbo(VectorPrediction(guess), NoisySample(z, t, x), s) / kl - 1).abs())


def _with_std(moments: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    mean, variance = moments
    return mean, variance.sqrt().expand_as(mean)


def _vector_bound(process: Gaussian, oracle: MixtureOracle, steps: int | None = None) -> Tensor:
    """(K,) bound of each embedded token in nats, by integration over noise and time, or summation over steps.

    With the best denoiser for some weights it is −log of the weight, even if tokens occur with other weights.
    """
    if steps is None:
        return _integrated_vector_bound(process, oracle).value
    grid = torch.arange(steps + 1, dtype=torch.float64) / steps
    return _ends(process, oracle) + _expected(process, oracle, grid[1:], grid[:-1]).sum(0)


def _integrated_vector_bound(process: Gaussian, oracle: MixtureOracle) -> _Integral:
    """The same in continuous time, and the error of the integral."""
    found = integral(lambda t: _expected(process, oracle, t), nodes=128)  # most happens in a short time
    return found._replace(value=found.value + _ends(process, oracle))


def _ends(process: Gaussian, oracle: MixtureOracle) -> Tensor:
    return process.prior_kl(oracle.mixture.means[None])[0] + _reconstruction(process.path, oracle.mixture)


def _reconstruction(path: NoisePath, mixture: Mixture) -> Tensor:
    """(K,) E[−log p(w | z_0)] with the best decoder, z_0 at the generative end."""
    a, s = (f(torch.zeros(1, 1, 1)) for f in (path.signal, path.noise))
    unit, weight = _plane()
    log_p = mixture.log_mode(a * mixture.means[:, None] + s * unit, a, s)  # (K, M, K)
    return -weight @ log_p.diagonal(dim1=0, dim2=2)


def _expected(process: Gaussian, oracle: MixtureOracle, t: Tensor, s: Tensor | None = None) -> Tensor:
    """(T,) times → (T, K) the bound's term at each of them for each token, averaged over the noise."""
    parts = zip(t.split(16), [None] * len(t) if s is None else s.split(16), strict=False)
    return torch.cat([_average(process, oracle, late, early) for late, early in parts])


def _average(process: Gaussian, oracle: MixtureOracle, t: Tensor, s: Tensor | None) -> Tensor:
    (unit, weight), means = _plane(), oracle.mixture.means
    a, noise = process.path.scales(t[:, None, None, None])
    x = means[:, None].expand(len(t), -1, len(unit), -1)
    noised = NoisySample((a * x + noise * unit).flatten(1, 2), t[:, None], x.flatten(1, 2))
    nats = process.nelbo(oracle(noised.z, noised.t, Context()), noised, None if s is None else s[:, None])
    return nats.view(len(t), len(means), -1) @ weight


def _vector_sampling_laws(process: Gaussian) -> Iterator[Law]:
    """The error falls as 1/steps: too little spread within the modes, by a twentieth at this number of steps."""
    mixture, sampler = Mixture.of(), Ancestral(steps=128)
    z = _sampled_vectors(process, mixture, sampler, rng(8, 4)).flatten(0, 1)
    mean, covariance = mixture.moments()
    yield _law_equal(process, "ancestral sampling recovers the mean", float((z.mean(0) - mean).abs().max()), 0, 0.08)
    yield _law_equal(process, "… and the covariance", float((z.T.cov() - covariance).abs().max()), 0, 0.08)
    mode, width = nearest_modes(z, mixture)
    yield _law_at_least(process, "… and the weights of the modes", _chi_square(mode, mixture.weights), _P_MIN)
    yield _law_equal(process, "… and their widths", float((width / mixture.std).mean()), 1, 0.1)


def nearest_modes(z: Tensor, mixture: Mixture) -> tuple[Tensor, Tensor]:
    """(n, D) → (n,) the nearest mode of each, and (K,) the standard deviation within each."""
    off = z[:, None] - mixture.means
    mode = off.square().sum(-1).argmin(-1)
    width = torch.stack([off[mode == k, k].square().mean().sqrt() for k in range(len(mixture.weights))])
    return mode, width


def _moment(t: float) -> Tensor:
    return torch.full((1, 1), t, dtype=torch.float64)


def _line() -> tuple[Tensor, Tensor]:
    """Points and weights to average over a standard normal: for smooth functions the trapezium rule is exact."""
    unit = torch.linspace(-6, 6, 31, dtype=torch.float64)
    return unit, _normal_log(unit).softmax(-1)


def _plane() -> tuple[Tensor, Tensor]:
    """(M, 2) and (M,): the same in two dimensions."""
    unit, weight = _line()
    return torch.cartesian_prod(unit, unit), torch.outer(weight, weight).flatten()


def _normal_log(unit: Tensor) -> Tensor:
    return -(unit**2 + math.log(2 * math.pi)) / 2


def _built_in() -> list[Gaussian]:
    """The built-in paths; the exploding one has less noise than by default, so that few times suffice."""
    return [
        Gaussian(_VECTOR_VOCAB, path) for path in (VariancePreserving(), VarianceExploding(0.05, 40.0), StraightPath())
    ]
