"""Noise that interpolates from x to uniform noise, masks, or both (multinomial diffusion, D3PM, UDLM, GIDD).

This is the reference for all of these; `Masked` is the closed form for mask noise. Only the network's output has size
V: the noise itself is two numbers per time, its probability on the mask and on each word.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core import ops, randomness
from redraft.core.batch import NoisySample
from redraft.core.canvas import Canvas
from redraft.core.prediction import Prediction
from redraft.core.processes.base import TokenProcess, _resampled_positions, exclude_mask, require_times
from redraft.core.randomness import Rng
from redraft.core.schedules.base import Schedule
from redraft.core.schedules.tokens import Linear
from redraft.core.vocab import Vocab


class _MixWeights(NamedTuple):
    """Compressed weights of α·x + b: the probability of x, of the mask, and of each word. They sum to one."""

    keep: Tensor  # α, the weight of x itself
    mask: Tensor  # b[mask], the weight of the mask
    word: Tensor  # b[y], equal for every y but the mask

    def pick(self, where: Tensor) -> _MixWeights:
        """(B, 1) or (B, L) → (N,) at the marked positions."""
        return _MixWeights(*(part.expand_as(where)[where] for part in self))


StateLogProbs: TypeAlias = Callable[[Tensor], Tensor]  # (N, V) log x̂ → (N, V) log-probabilities of z_s


def reverse_log_probs(pred: Prediction, state_log_probs: StateLogProbs, where: Tensor) -> Tensor:
    """(N, V) log-probabilities of z_s at the marked positions: guided, if guidance acts on z_s, else from x̂."""
    if pred.steers:
        return pred.next_log_probs(state_log_probs, where)
    return state_log_probs(pred.at(where))


class NoiseDistribution(ABC):
    """The distribution that replaces lost signal."""

    @abstractmethod
    def mix(self, keep: Tensor, words: int) -> _MixWeights:
        """The weights at `keep` of the schedule. Noising steps exist if b/α never decreases as keep falls."""

    def limiting_distribution(self, vocab: Vocab) -> Tensor:
        """(V,) float64: b/(1 − α), if it is the same at all times."""
        raise ValueError(
            f"{self} has no fixed limiting distribution; scores need mask or uniform noise: use Ancestral(steps)"
        )


@dataclass(frozen=True)
class UniformNoise(NoiseDistribution):
    """b = (1 − α)/K on each of the K words; a mask is optional, and never occurs."""

    def mix(self, keep: Tensor, words: int) -> _MixWeights:
        return _MixWeights(keep, torch.zeros_like(keep), (1 - keep) / words)

    def limiting_distribution(self, vocab: Vocab) -> Tensor:
        words = torch.ones(vocab.size, dtype=torch.float64)
        if vocab.mask is not None:
            words[vocab.mask] = 0
        return words / words.sum()


@dataclass(frozen=True)
class MaskNoise(NoiseDistribution):
    """b = 1 − α on the mask. `Masked` is the same process, but faster."""

    def mix(self, keep: Tensor, words: int) -> _MixWeights:
        return _MixWeights(keep, 1 - keep, torch.zeros_like(keep))

    def limiting_distribution(self, vocab: Vocab) -> Tensor:
        return F.one_hot(torch.tensor(vocab.masked), vocab.size).double()


@dataclass(frozen=True)
class HybridNoise(NoiseDistribution):
    """Mask and uniform noise (von Rütte et al. 2025, "GIDD"): with k = keep, which is 1 − t for `Linear`,

    α = k/C,  b[mask] = (1 − k)/C,  b[y] = c/(C·K),  c = B·(k(1 − k))^{γ/2},  C = 1 + c,  B = 2^γ·p_u/(1 − p_u):
    halfway, at k = ½, a fraction p_u of all tokens is uniform noise; at the ends none is. p_u = 0 is mask noise.
    """

    p_u: float = 0.1
    power: float = 1.0  # γ, the power of k(1 − k) in c

    def __post_init__(self) -> None:
        if not 0 <= self.p_u < 1:
            raise ValueError(f"p_u={self.p_u}; the fraction of uniform noise must be at least 0 and below 1")
        if not 0 < self.power <= 2:
            raise ValueError(
                f"power={self.power}; above 2 some noise would have to turn back into words; use 0 < power <= 2"
            )

    def mix(self, keep: Tensor, words: int) -> _MixWeights:
        c = 2**self.power * self.p_u / (1 - self.p_u) * (keep * (1 - keep)) ** (self.power / 2)
        return _MixWeights(keep / (1 + c), (1 - keep) / (1 + c), c / (1 + c) / words)


@dataclass(frozen=True)
class Interpolating(TokenProcess):
    """q_t(z | x) = α_t·1[z = x] + b_t[z], with b_t from `mixing` at keep = `schedule.keep(t)`.

    Bayes, with α_{t|s} = α_t/α_s and b_{t|s} = b_t − α_{t|s}·b_s:
    p(z_s = y | z_t = z) ∝ (α_{t|s}·1[y = z] + b_{t|s}[z]) · (α_s·x̂_y + b_s[y]): z stays, or y comes from q_s(· | x̂).
    Bound: r_t[z] · Σ_{y≠z} pkl(r_y, ŝ_y) with the rate r_t = b'_t − (α'_t/α_t)·b_t and r, ŝ the ratios of q_t(· | x)
    and q_t(· | x̂) to their value at z, or r_t[z]/q_t(z | x) · (KL(q ‖ q̂) + IS(q[z] ‖ q̂[z])), GIDD's form.
    It depends on the schedule only through its ends. If the sum of x̂ is free, it is SEDD's score entropy.

    Uniform noise covers all states but the mask. At a visible token the optimal x̂ ignores that token: use a head
    without carry-over, `Softmax()`, or `Subs(carry_over=False)` if the vocabulary has a mask.
    """

    vocab: Vocab
    schedule: Schedule = Linear()
    mixing: NoiseDistribution = UniformNoise()
    title = "interpolating noise"
    direct: bool = False  # the step to s = 0 draws all tokens from x̂, even visible ones (D3PM, multinomial)

    def __post_init__(self) -> None:
        if float(self.mixing.mix(torch.tensor(0.5), self.words).mask) > 0:
            _ = self.vocab.masked  # raises if there is no mask

    @property
    def words(self) -> int:
        """K, the number of states without the mask."""
        return self.vocab.size - (self.vocab.mask is not None)

    @property
    def _words_change(self) -> bool:
        """Whether words become other words; with mask noise only, guidance acts on x̂, as for `Masked`."""
        return float(self.mixing.mix(torch.tensor(0.5), self.words).word) > 0

    @property
    def limiting_distribution(self) -> Tensor:
        return self.mixing.limiting_distribution(self.vocab)

    def error_rate(self, t: float) -> float:
        mix = self.mix(torch.tensor(t, dtype=torch.float64))
        return float(mix.word * (self.words - 1) / (1 - mix.mask))

    # --- the forward process ---

    def mix(self, t: Tensor) -> _MixWeights:
        """The weights at t in the widest float; t = 0 is clean by definition (prompts), even if keep(0) < 1."""
        t = t.to(ops.widest_float(t.device))
        return self.mixing.mix(torch.where(t == 0, 1.0, self.schedule.keep(t)), self.words)

    def rate(self, t: Tensor) -> _MixWeights:
        """α_t·r_t = α_t·b'_t − α'_t·b_t on the mask and on each word, finite where α_t = 0; `keep` is α_t itself."""
        t = t.to(ops.widest_float(t.device)).clamp(1e-12, 1 - 1e-12)  # hybrid noise has square-root ends
        now, slope = torch.func.jvp(self._weights, (t,), (torch.ones_like(t),))[:2]
        return _MixWeights(now.keep, *(now.keep * d - slope.keep * b for b, d in zip(now[1:], slope[1:], strict=True)))

    def weight(self, noised: NoisySample) -> Tensor:
        """(B, L) r_t[z]/q_t(z | x): the weight of KL + IS in the bound."""
        rate, q = self.rate(noised.t), self._q(self.mix(noised.t), noised.z, noised.target)
        return self._b(rate, noised.z) / (rate.keep * q)

    def prior(self, canvas: Canvas, *, rng: Rng) -> Canvas:
        mix = self.mix(torch.ones(1, 1, device=canvas.z.device))
        return canvas.write(self._lost(mix, rng.uniform(canvas.z.shape[1])))

    def prior_kl(self, x: Tensor) -> Tensor:
        keep, _, word = self.mix(torch.ones((), device=x.device))
        if float(keep) == 0:
            return torch.zeros(x.shape, device=x.device)
        q, lost = keep + word, 1 - keep  # the prior is b/(1 − α)
        return (q * (q * lost / word).log() + (1 - q) * lost.log()).float().expand(x.shape)

    def noise(self, x: Tensor, t: Tensor, *, pad: Tensor | None = None, rng: Rng) -> NoisySample:
        require_times(x, t)
        mix, u = self.mix(t), rng.uniform(x.shape[1])
        lost = u >= mix.keep if pad is None else (u >= mix.keep) & ~pad
        rest = ((u - mix.keep) / _positive(1 - mix.keep)).clamp(0, 1)
        return NoisySample(torch.where(lost, self._lost(mix, rest), x), t, x, pad)

    def undetermined(self, noised: NoisySample) -> Tensor:
        where = self._b(self.mix(noised.t), noised.z) > 0
        return where if noised.pad is None else where & ~noised.pad

    def channel(self, z: Tensor, t: Tensor) -> Tensor:
        mix = self.mix(t)
        noise = self._b(mix, z)
        same = F.one_hot(z, self.vocab.size) > 0
        return torch.where(same, (mix.keep + noise)[:, None], noise[:, None]).log()

    def evidence(self, z: Tensor, t: Tensor) -> Tensor:
        mix = self.mix(t)
        log_odds = (mix.keep / self._b(mix, z)).log1p()  # α/0 where z is x: at t = 0, and without uniform noise
        return log_odds if self.vocab.mask is None else log_odds.masked_fill(z == self.vocab.mask, 0.0)

    def marginal(self, t: float) -> Tensor:
        return self._table(self.mix(torch.tensor(t, dtype=torch.float64)))

    def transition(self, s: float, t: float) -> Tensor:
        early, late = (self.mix(torch.tensor(a, dtype=torch.float64)) for a in (s, t))
        return self._table(_between(early, late))

    @property
    def continuous(self) -> bool:
        return not self.direct  # the cost of a last step that draws x̂ depends on where that step starts

    @property
    def leaves_noise(self) -> bool:
        return self.schedule.start < 1

    # --- Bayes ---

    def step(self, pred: Prediction, canvas: Canvas, s: Tensor, t: Tensor, *, rng: Rng) -> Canvas:
        """z stays with weight α_{t|s}·q_s(z | x̂), or comes from q_s(· | x̂) = α_s·x̂ + b_s with weight b_{t|s}[z].

        Uses thinning: whatever x̂ is, z stays with weight at least α_{t|s}·b_s[z]. So most tokens are known to stay
        before the network is queried, and a row in which all stay needs no network call.
        """
        require_times(canvas.z, s, t)
        z, early = canvas.z, self.mix(s)
        for_change, for_source, for_tokens = rng.split(3)
        whether, source = (part.uniform(z.shape[1]) for part in (for_change, for_source))
        between = _between(early, self.mix(t))
        into, least = self._b(between, z), between.keep * self._b(early, z)
        if pred.steers and self._words_change:
            return self._guided_step(pred, canvas, s, t, rng=for_tokens)
        last = (s == 0).expand_as(z) if self.direct else torch.zeros_like(canvas.fixed)
        where = ~canvas.fixed & (last | (whether * (into + least) < into if pred.normalized else into > 0))
        if not where.any():
            return canvas
        pred = exclude_mask(pred, s, self.vocab)
        if pred.joint:  # draw all of x first, then z_s given x: the same distribution, but tokens may be dependent
            x = z.masked_scatter(where, pred.draw(where, rng=rng.split(4)[-1]).tokens())
            pred = _Certain(x, self.vocab.size)
        drawn, at, tokens = pred.draw(where, rng=for_tokens), early.pick(where), z[where]
        log_x = drawn.log_x
        mass = 1 + at.keep * log_x.logsumexp(-1).expm1()  # Σq_s(· | x̂): one, unless the sum of x̂ is free
        stay = between.pick(where).keep * (at.keep * _log_prob(log_x, tokens).exp() + self._b(at, tokens))
        changes = last[where] | (whether[where] * (into[where] * mass + stay) < into[where] * mass)
        from_x = changes & (source[where] * mass >= 1 - at.keep)  # α·x̂ + b: from x̂, or from noise of mass 1 − α
        tokens = torch.where(changes & ~from_x, self._lost(at, for_tokens.uniform(z.shape[1])[where]), tokens)
        tokens = tokens.masked_scatter(from_x, drawn.tokens(from_x))
        return canvas.write(z.masked_scatter(where, tokens))

    def posterior(self, log_x: Tensor, z: Tensor, early: _MixWeights, late: _MixWeights) -> Tensor:
        """(N, V) log p(z_s = y | z_t = z) for log x̂ (N, V), tokens z (N,) and (N,) weights at s and t."""
        between = _between(early, late)
        noise = early.word[:, None].expand(log_x.shape)
        if self.vocab.mask is not None:
            noise = noise.index_copy(1, torch.tensor([self.vocab.mask], device=z.device), early.mask[:, None])
        reached = early.keep[:, None] * log_x.to(noise.dtype).exp() + noise
        onto = F.one_hot(z, log_x.shape[-1]) * between.keep[:, None] + self._b(between, z)[:, None]
        return (reached.log() + onto.log()).log_softmax(-1)

    def _guided_step(self, pred: Prediction, canvas: Canvas, s: Tensor, t: Tensor, *, rng: Rng) -> Canvas:
        """The step if guidance acts on z_s; it may also change tokens that would stay otherwise."""
        early, late = self.mix(s), self.mix(t)
        where = ~canvas.fixed & (self._b(_between(early, late), canvas.z) > 0)
        if not where.any():
            return canvas
        at, last = (early.pick(where), late.pick(where)), (s == 0).expand_as(where)[where][:, None]

        def state_log_probs(log_x: Tensor) -> Tensor:
            posterior = self.posterior(log_x, canvas.z[where], *at)
            return torch.where(last, log_x.to(posterior.dtype), posterior) if self.direct else posterior

        log_p = pred.next_log_probs(state_log_probs, where)
        tokens = randomness.sample_categorical(log_p, rng.uniform(where.shape[1])[where])
        return canvas.write(canvas.z.masked_scatter(where, tokens))

    # --- the bound ---

    def nelbo(self, pred: Prediction, noised: NoisySample, s: Tensor | None = None) -> Tensor:
        where = self.undetermined(noised)
        if self.direct and s is not None:
            where = where | _resampled_positions(noised, s)
        at = _Positions.of(pred, noised, where)
        mix = self.mix(noised.t).pick(where)
        if s is None:
            nats = self._continuous(at, self.rate(noised.t).pick(where), mix)
        else:
            nats = self._discrete(at, self.mix(s).pick(where), mix)
            if self.direct:
                nats = torch.where((s == 0).expand_as(where)[where], -_log_prob(at.log_x, at.x), nats)
        return ops.scatter(nats.to(at.log_x.dtype), where)

    def _continuous(self, at: _Positions, rate: _MixWeights, mix: _MixWeights) -> Tensor:
        """r_t[z]/q[z] · (Σ_y q_y·log(q_y/q̂_y) + Σq̂/ρ − 1 + log ρ), ρ = q̂[z]/q[z]; the bracket is of order α_t."""
        mix = mix._replace(keep=mix.keep.clamp(min=1e-12))
        ratio = self._log_ratio(at, at.z, mix)
        gap = self._divergence(at, mix) + ops.poisson_kl(torch.ones_like(ratio), (-ratio).exp())
        gap = gap + mix.keep * at.spare * (-ratio).exp()
        return self._b(rate, at.z) / self._q(mix, at.z, at.x) * gap / mix.keep

    def _discrete(self, at: _Positions, early: _MixWeights, late: _MixWeights) -> Tensor:
        """KL of the posteriors given x and x̂: b_{t|s}[z]/q_t·KL_s + log ρ_t − α_{t|s}·q_s/q_t·log ρ_s, all at z.

        Cancellation is confined to (N,) tensors in the widest float.
        """
        between, q = _between(early, late), self._q(late, at.z, at.x)
        into = self._b(between, at.z)
        predicted = late.keep * _log_prob(at.log_x, at.z).exp() + self._b(late, at.z) + into * early.keep * at.spare
        stay = between.keep * self._q(early, at.z, at.x) / q
        moved = into / q * self._divergence(at, early)
        return moved + predicted.log() - q.log() - stay * self._log_ratio(at, at.z, early)

    def _divergence(self, at: _Positions, mix: _MixWeights) -> Tensor:
        """(N,) Σ_y q_y·log(q_y/q̂_y) of q(· | x) against q(· | x̂): the KL if x̂ sums to one.

        One pass over the vocabulary, Σ_y log(1 + α·x̂_y/b): every word but x has q_y = b.
        """
        odds = (mix.keep / mix.word.clamp(min=1e-30)).log().to(at.log_x.dtype)
        others = F.softplus(at.log_x + odds[:, None]).sum(-1) - F.softplus(_log_prob(at.log_x, at.x) + odds)
        total = self._q(mix, at.x, at.x) * self._log_ratio(at, at.x, mix)
        if self.vocab.mask is not None:
            mask = torch.full_like(at.x, self.vocab.mask)
            others = others - F.softplus(_log_prob(at.log_x, mask) + odds)
            total = total + mix.mask * self._log_ratio(at, mask, mix)
        return -total - mix.word * others

    def _log_ratio(self, at: _Positions, y: Tensor, mix: _MixWeights) -> Tensor:
        """(N,) log(q(y | x̂)/q(y | x)), finite where both are zero."""
        predicted = torch.logaddexp(mix.keep.log() + _log_prob(at.log_x, y), _positive(self._b(mix, y)).log())
        return predicted - _positive(self._q(mix, y, at.x)).log()

    # --- compressed weights ---

    def _weights(self, t: Tensor) -> _MixWeights:
        return self.mixing.mix(self.schedule.keep(t), self.words)

    def _b(self, mix: _MixWeights, z: Tensor) -> Tensor:
        """b[z]"""
        mask = -1 if self.vocab.mask is None else self.vocab.mask
        return torch.where(z == mask, mix.mask, mix.word)

    def _q(self, mix: _MixWeights, z: Tensor, x: Tensor) -> Tensor:
        """q(z | x)"""
        return torch.where(z == x, mix.keep, 0.0) + self._b(mix, z)

    def _lost(self, mix: _MixWeights, v: Tensor) -> Tensor:
        """Noise tokens from v in (0, 1) by the inverse CDF of b/(1 − α): the mask first, then words in order."""
        amount = v * (mix.mask + self.words * mix.word) - mix.mask
        index = (amount / _positive(mix.word)).floor().clamp(-1, self.words - 1).long()
        if self.vocab.mask is None:
            return index.clamp(min=0)
        return torch.where(index < 0, self.vocab.mask, index + (index >= self.vocab.mask))

    def _table(self, mix: _MixWeights) -> Tensor:
        noise = torch.full((self.vocab.size,), float(mix.word), dtype=torch.float64)
        if self.vocab.mask is not None:
            noise[self.vocab.mask] = mix.mask
        return mix.keep * torch.eye(self.vocab.size, dtype=torch.float64) + noise


def _between(early: _MixWeights, late: _MixWeights) -> _MixWeights:
    """The weights of the noising step s → t: α_{t|s} = α_t/α_s, b_{t|s} = b_t − α_{t|s}·b_s."""
    keep = late.keep / _positive(early.keep)
    return _MixWeights(keep, *((b - keep * a).clamp(min=0) for a, b in zip(early[1:], late[1:], strict=True)))


def _positive(p: Tensor) -> Tensor:
    """Replaces zeros by the smallest float, so that quotients and logarithms stay finite."""
    return p.clamp(min=torch.finfo(p.dtype).tiny)


def _log_prob(log_x: Tensor, y: Tensor) -> Tensor:
    """(N, V), (N,) → (N,) log x̂[y]"""
    return log_x.gather(-1, y[:, None]).squeeze(-1)


class _Positions(NamedTuple):
    """Prediction, noisy token and clean token at N positions."""

    log_x: Tensor  # (N, V) predicted log-weights of the clean token
    spare: Tensor  # (N,) Σx̂ − 1, which is zero if x̂ is normalized
    z: Tensor  # (N,) ids of the noisy tokens
    x: Tensor  # (N,) ids of the clean tokens

    @classmethod
    def of(cls, pred: Prediction, noised: NoisySample, where: Tensor) -> _Positions:
        log_x = pred.at(where)
        spare = torch.zeros_like(log_x[:, 0]) if pred.normalized else log_x.logsumexp(-1).expm1()
        return cls(log_x, spare, noised.z[where], noised.target[where])


@dataclass(frozen=True)
class _Certain(Prediction):
    """A prediction that puts all probability on given tokens."""

    tokens: Tensor  # (B, L) ids
    size: int  # V, the number of states

    @property
    def x(self) -> Tensor:
        return self._one_hot(self.tokens)

    def at(self, where: Tensor) -> Tensor:
        return self._one_hot(self.tokens[where])

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        return torch.where(where & (target != self.tokens), torch.inf, 0.0)

    def _one_hot(self, tokens: Tensor) -> Tensor:
        impossible = torch.full((*tokens.shape, self.size), -torch.inf, device=tokens.device)
        return impossible.scatter(-1, tokens[..., None], 0.0)
