"""Mask noise in closed form: a token stays itself or becomes the mask (Sahoo et al. 2024, "MDLM")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from redraft import ops
from redraft.ops import Rng
from redraft.processes.base import TokenProcess, require_times
from redraft.schedules import Linear, Schedule
from redraft.types import Canvas, Noised, Prediction, Vocab


class Choice(NamedTuple):
    """What a pick decided: N positions and their tokens, in the order of `where.nonzero()`."""

    where: Tensor  # (B, L) bool
    tokens: Tensor  # (N,)


class Pick(Protocol):
    """Which of the masked positions to reveal, and as what."""

    def __call__(self, pred: Prediction, hidden: Tensor, share: Tensor, *, rng: Rng) -> Choice:
        """hidden (B, L): positions that may be revealed; share (B, 1): the part of them that this step is to reveal."""
        ...


@dataclass(frozen=True)
class Chance:
    """Each masked position by itself with probability `share`, its token drawn from x̂: ancestral sampling.

    Which positions change is drawn first, so the network is asked for these alone: exact in law (the two draws are
    independent), safe in any precision, and a row in which nothing changes needs no network call at all.
    """

    def __call__(self, pred: Prediction, hidden: Tensor, share: Tensor, *, rng: Rng) -> Choice:
        where, tokens, _ = self.draw(pred, hidden, share, rng=rng)
        return Choice(where, tokens)

    def draw(self, pred: Prediction, hidden: Tensor, share: Tensor, *, rng: Rng) -> tuple[Tensor, Tensor, Tensor]:
        """The choice, and (N,) log x̂ of its tokens.

        A free sum Z = Σx̂ weighs in, share·Z for a reveal against 1 − share: every position must then be asked.
        """
        (which, what), length = rng.split(2), hidden.shape[1]
        u = which.uniform(length)
        where = hidden & (u < share) if pred.normalised else hidden
        if not where.any():
            return where, where.new_empty(0, dtype=torch.int64), torch.empty(0, device=where.device)
        log_x = pred.at(where)
        if not pred.normalised:
            log_mass = log_x.logsumexp(-1)
            mass = torch.ones_like(u).masked_scatter(hidden, log_mass.exp().to(u.dtype))
            where = hidden & (u * (1 + share * (mass - 1)) < share * mass)
            log_x = (log_x - log_mass[:, None])[where[hidden]]
        tokens = ops.draw(log_x, what.uniform(length)[where])
        return where, tokens, log_x.gather(-1, tokens[:, None]).squeeze(-1)


def draw_at(pred: Prediction, where: Tensor, *, rng: Rng) -> Tensor:
    """(N,) tokens drawn from x̂; each position has its own random number."""
    if not where.any():
        return where.new_empty(0, dtype=torch.int64)
    return ops.draw(pred.at(where), rng.uniform(where.shape[1])[where])


def reveal_kl(pred: Prediction, where: Tensor, target: Tensor, share: Tensor) -> Tensor:
    """(B, L) KL of the reveal with probability `share`: share·(−log x̂[x]) + log(1 + share·(Σx̂ − 1))."""
    if pred.normalised or not where.any():
        nats = pred.nll(where, target)
        return share.to(nats.dtype) * nats
    log_x = pred.at(where)
    said, mass = log_x.gather(-1, target[where][:, None]).squeeze(-1), log_x.logsumexp(-1)
    share = share.to(log_x.dtype).expand_as(where)[where]
    loss = (share * mass.expm1()).log1p() - share * said
    return torch.zeros_like(where, dtype=loss.dtype).masked_scatter(where, loss)


@dataclass(frozen=True)
class Masked(TokenProcess):
    """q_t(z | x) = α_t·1[z = x] + (1 − α_t)·1[z = m].

    Bayes: a visible token stays; a masked one is revealed as x̂ with probability (α_s − α_t)/(1 − α_t) (eq. 7).
    Bound: −α'_t/(1 − α_t) · Σ_{masked} −log x̂[x] (eq. 10), (α_s − α_t)/(1 − α_t) for a step t → s (eq. 8). It depends
    on the schedule only through its ends. x̂ must put no weight on the mask: use the head `Subs`, or `Score`, whose sum
    Z = Σx̂ is free: the bound then has Z − 1 − log x̂[x] in place of −log x̂[x], which is SEDD's score entropy.
    """

    vocab: Vocab
    schedule: Schedule = Linear()

    def prior(self, canvas: Canvas, *, rng: Rng) -> Canvas:
        return canvas.write(torch.full_like(canvas.z, self.vocab.masked))

    def prior_kl(self, x: Tensor) -> Tensor:
        # a token that is still visible at t = 1 is impossible under the prior
        return torch.full(x.shape, 0.0 if self.schedule.end <= 0 else torch.inf, device=x.device)

    def noise(self, x: Tensor, t: Tensor, *, pad: Tensor | None = None, rng: Rng) -> Noised:
        require_times(x, t)
        lost = rng.uniform(x.shape[1]) >= self.schedule.kept(t)
        if pad is not None:
            lost = lost & ~pad
        return Noised(x.masked_fill(lost, self.vocab.masked), t, x, pad)

    def step(self, pred: Prediction, canvas: Canvas, s: Tensor, t: Tensor, *, rng: Rng) -> Canvas:
        return self.reveal(pred, canvas, s, t, Chance(), rng=rng)

    def reveal(
        self, pred: Prediction, canvas: Canvas, s: Tensor, t: Tensor, pick: Pick, *, left: int | None = None, rng: Rng
    ) -> Canvas:
        """`step` with another rule of which positions to reveal. Only `Chance` is Bayes' rule and carries a bound.

        The pick is told the share that the schedule reveals between t and s; with `left`, the number of steps left
        (this one included), an even share instead, 1/left, whatever the schedule.
        """
        require_times(canvas.z, s, t)
        hidden = (canvas.z == self.vocab.masked) & ~canvas.fixed
        share = self.schedule.share(s, t) if left is None else torch.full_like(t, 1 / left)
        where, tokens = pick(pred, hidden, share, rng=rng)
        return canvas.write(canvas.z.masked_scatter(where, tokens))

    def moment(self, hidden: Tensor) -> Tensor:
        """The time at which this share of the tokens is expected to be masked; above 0, where tokens are given."""
        kept = (1 - hidden).clamp(self.schedule.end, self.schedule.start)
        return self.schedule.inverse(kept).clamp(1e-12, 1)

    def hit(self, canvas: Canvas, t: Tensor, *, rng: Rng) -> Tensor:
        """(B, 1) the time s < t of the next reveal in each row, without a grid (Zheng et al. 2024).

        With n masked positions 1 − α_s = (1 − α_t)·U^{1/n}, the largest of n uniform times; 0 if none is left.
        """
        n = ((canvas.z == self.vocab.masked) & ~canvas.fixed).sum(-1, keepdim=True)
        lost = (1 - self.schedule.kept(t)) * rng.once() ** (1 / n)
        return self.schedule.inverse(1 - lost).clamp(min=0).to(t.dtype)

    def nelbo(self, pred: Prediction, noised: Noised, s: Tensor | None = None) -> Tensor:
        where = self.undetermined(noised)
        if s is None:
            nats = pred.nll(where, noised.target)
            loss = self.schedule.rate(noised.t).to(nats.dtype) * nats
        else:
            loss = reveal_kl(pred, where, noised.target, self.schedule.share(s, noised.t))
        return torch.where(where, loss, 0.0)

    def undetermined(self, noised: Noised) -> Tensor:
        where = noised.z == self.vocab.masked
        return where if noised.pad is None else where & ~noised.pad

    def marginal(self, t: float) -> Tensor:
        return self._table(self.schedule.keep(torch.tensor(t, dtype=torch.float64)))

    def transition(self, s: float, t: float) -> Tensor:
        at = torch.tensor([s, t], dtype=torch.float64)
        kept_s, kept_t = self.schedule.keep(at)
        return self._table(kept_t / kept_s)

    @property
    def jump(self) -> bool:
        return self.schedule.start < 1

    def _table(self, keep: Tensor) -> Tensor:
        table = keep * torch.eye(self.vocab.size, dtype=torch.float64)
        table[:, self.vocab.masked] += 1 - keep
        return table
