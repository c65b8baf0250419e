"""Mask noise in closed form: a token stays itself or becomes the mask (Sahoo et al. 2024, "MDLM")."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core import ops
from redraft.core.batch import NoisySample
from redraft.core.canvas import Canvas
from redraft.core.prediction import Draw, Prediction
from redraft.core.processes.base import TokenProcess, _HeldOutRows, require_times
from redraft.core.randomness import Rng
from redraft.core.schedules.base import Schedule
from redraft.core.schedules.tokens import Linear
from redraft.core.tunable import Tunable
from redraft.core.vocab import Vocab


class PickResult(NamedTuple):
    """What a pick decided: N positions to reveal and their tokens, in the order of `where.nonzero()`."""

    where: Tensor  # (B, L) bool: positions to reveal
    tokens: Tensor  # (N,) ids to write there
    log_p: Tensor | None = None  # (N,) log-probability of each token, for `Canvas.confidence`; None if not tracked
    again: Tensor | None = None  # (B, L) bool: written tokens to mask again; None if there are none
    then: Pick | None = None  # pick for the next step, if picks carry state; None for the same one

    @classmethod
    def nothing(cls, hidden: Tensor) -> PickResult:
        """A result that reveals no position."""
        nowhere = torch.zeros_like(hidden)
        return cls(nowhere, hidden.new_empty(0, dtype=torch.int64), torch.empty(0, device=hidden.device))

    @classmethod
    def of(cls, where: Tensor, drawn: Draw, kept: Tensor | None = None) -> PickResult:
        """The tokens drawn at `where`; `kept` (N,) selects them if more positions were drawn."""
        if kept is None:
            return cls(where, drawn.tokens(), drawn.log_p())
        index = ops.flat_positions(kept)
        tokens = drawn.tokens(index)
        return cls(where, tokens, drawn.log_x[index, tokens])


class Pick(Tunable, ABC):
    """Decides which masked positions to reveal, and as which tokens. Its fields are its settings."""

    adaptive: ClassVar[bool] = False  # whether it may reveal more positions than requested

    @property
    @abstractmethod
    def writes_once(self) -> bool:
        """Whether a token, once revealed, is never masked again."""

    @property
    @abstractmethod
    def draws_exactly(self) -> bool:
        """Whether tokens are drawn from the prediction as it is, at positions chosen without looking at the tokens."""

    def with_end_tokens_last(self, tokens: tuple[int, ...]) -> Pick | None:
        """Return a copy that reveals these tokens after all others; None if this pick cannot."""
        return None

    @abstractmethod
    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        """hidden (B, L): positions that may be revealed; share (B, 1): fraction of them this step should reveal."""


class _RevealResult(NamedTuple):
    """The canvas after a pick, and the pick for the next step."""

    canvas: Canvas
    pick: Pick


@dataclass(frozen=True)
class IndependentReveal(Pick):
    """Reveals each masked position independently with probability `share`, its token drawn from x̂: ancestral sampling.

    The positions are drawn first, so the network is queried only there. This is exact (the two draws are independent)
    and safe in any precision, and a row in which nothing changes needs no network call.
    If Z = Σx̂ is free, the odds of a reveal are share·Z to 1 − share, so x̂ is needed at all masked positions.
    """

    writes_once = draws_exactly = True

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        for_positions, for_tokens = rng.split(2)
        u = for_positions.uniform(hidden.shape[1])
        where = hidden & (u < share) if pred.normalized else hidden
        if ops.known_zero(where):
            return PickResult.nothing(hidden)
        drawn = pred.draw(where, rng=for_tokens)
        if pred.normalized:
            return PickResult.of(where, drawn)
        log_mass = drawn.log_x.logsumexp(-1)
        mass = torch.ones_like(u).masked_scatter(hidden, log_mass.exp().to(u.dtype))
        where = hidden & (u * (1 + share * (mass - 1)) < share * mass)
        tokens = drawn.tokens(where[hidden])
        log_p = (drawn.log_x - log_mass[:, None])[where[hidden]].gather(-1, tokens[:, None]).squeeze(-1)
        return PickResult(where, tokens, log_p)


def _apply_pick(canvas: Canvas, choice: PickResult, vocab: Vocab) -> Canvas:
    """The canvas with the picked tokens and their probabilities written on it."""
    z, confidence = canvas.z.masked_scatter(choice.where, choice.tokens), canvas.confidence
    if choice.log_p is not None:
        confidence = torch.zeros_like(z, dtype=torch.float32) if confidence is None else confidence
        confidence = confidence.masked_scatter(choice.where, choice.log_p.float().exp())
    if choice.again is not None:
        z = z.masked_fill(choice.again, vocab.masked)
        confidence = None if confidence is None else confidence.masked_fill(choice.again & ~canvas.fixed, 0.0)
    return canvas.with_tokens(torch.where(canvas.fixed, canvas.z, z), confidence)


def _reveal_kl(pred: Prediction, where: Tensor, target: Tensor, share: Tensor) -> Tensor:
    """(B, L) KL of a step that reveals with probability `share`: share·(−log x̂[x]) + log(1 + share·(Σx̂ − 1))."""
    if pred.normalized or not where.any():
        nats = pred.nll(where, target)
        return share.to(nats.dtype) * nats
    log_x = pred.at(where)
    log_target, mass = log_x.gather(-1, target[where][:, None]).squeeze(-1), log_x.logsumexp(-1)
    share = share.to(log_x.dtype).expand_as(where)[where]
    loss = (share * mass.expm1()).log1p() - share * log_target
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
    title = "mask noise"
    moves = False

    @property
    def limiting_distribution(self) -> Tensor:
        return F.one_hot(torch.tensor(self.vocab.masked), self.vocab.size).double()

    def error_rate(self, t: float) -> float:
        return 0.0

    def prior(self, canvas: Canvas, *, rng: Rng) -> Canvas:
        return canvas.write(torch.full_like(canvas.z, self.vocab.masked))

    def prior_kl(self, x: Tensor) -> Tensor:
        # a token that is still visible at t = 1 is impossible under the prior
        return torch.full(x.shape, 0.0 if self.schedule.end <= 0 else torch.inf, device=x.device)

    def noise(self, x: Tensor, t: Tensor, *, pad: Tensor | None = None, rng: Rng) -> NoisySample:
        require_times(x, t)
        lost = rng.uniform(x.shape[1]) >= self.schedule.kept(t)
        if pad is not None:
            lost = lost & ~pad
        return NoisySample(x.masked_fill(lost, self.vocab.masked), t, x, pad)

    def step(self, pred: Prediction, canvas: Canvas, s: Tensor, t: Tensor, *, rng: Rng) -> Canvas:
        return self.reveal(pred, canvas, s, t, IndependentReveal(), rng=rng).canvas

    def reveal(
        self,
        pred: Prediction,
        canvas: Canvas,
        s: Tensor,
        t: Tensor,
        pick: Pick,
        *,
        share: Tensor | None = None,
        hidden: Tensor | None = None,
        rng: Rng,
    ) -> _RevealResult:
        """`step` with any pick. Only `IndependentReveal` follows Bayes' rule and has a bound.

        share: (B, 1) fraction of the masked positions to reveal; None for what the schedule reveals between t and s.
        hidden: (B, L) positions that may be revealed; None to compute them from the canvas.
        """
        require_times(canvas.z, s, t)
        share = self.schedule.share(s, t) if share is None else share
        choice = pick(pred, canvas, self.hidden(canvas) if hidden is None else hidden, share, rng=rng)
        if (ops.to_numpy(choice.tokens) == self.vocab.masked).any():
            raise ValueError("the mask token is never written, so x̂ must give it no weight; use the head Subs")
        return _RevealResult(_apply_pick(canvas, choice, self.vocab), choice.then or pick)

    def hidden(self, canvas: Canvas) -> Tensor:
        """(B, L) bool: masked positions that may be revealed."""
        return (canvas.z == self.vocab.masked) & ~canvas.fixed

    def time_when_masked(self, fraction: Tensor) -> Tensor:
        """The time at which this fraction of tokens is expected to be masked; never 0, the time of given tokens."""
        kept = (1 - fraction).clamp(self.schedule.end, self.schedule.start)
        return self.schedule.inverse(kept).clamp(1e-12, 1)

    def hit(self, canvas: Canvas, t: Tensor, *, rng: Rng) -> Tensor:
        """(B, 1) the time s < t of the next reveal in each row, without a grid (Zheng et al. 2024).

        With n masked positions, 1 − α_s = (1 − α_t)·U^{1/n}, the maximum of n uniforms; s = 0 if none is masked.
        """
        n = self.hidden(canvas).sum(-1, keepdim=True)
        lost = (1 - self.schedule.kept(t)) * rng.once() ** (1 / n)
        return self.schedule.inverse(1 - lost).clamp(min=0).to(t.dtype)

    def nelbo(self, pred: Prediction, noised: NoisySample, s: Tensor | None = None) -> Tensor:
        where = self.undetermined(noised)
        if s is None:
            nats = pred.nll(where, noised.target)
            loss = self.schedule.rate(noised.t).to(nats.dtype) * nats
        else:
            loss = _reveal_kl(pred, where, noised.target, self.schedule.share(s, noised.t))
        return torch.where(where, loss, 0.0)

    def estimates(self, held_out: _HeldOutRows, strata: int, *, rngs: Sequence[Rng]) -> Tensor:
        """Uses the count form; if block = 1, it is exactly −log p from a single network call.

        Rows with few learned tokens per block get the exact bound, if enumerating all subsets needs no more calls.
        """
        learn = held_out.batch.learn
        if held_out.block == 1:
            return self._hidden_nats(held_out, learn, torch.ones_like(learn, dtype=torch.float32)).expand(len(rngs), -1)
        few = int(math.log2(strata * len(rngs) + 1))
        small = _sizes(learn, _blocks(held_out)).amax(-1, keepdim=True) <= few
        nats = torch.stack([self._by_count(held_out, strata, learn & ~small, rng=rng) for rng in rngs])
        return torch.where(small.squeeze(-1), self._by_sets(held_out, learn & small), nats) if small.any() else nats

    def _by_count(self, held_out: _HeldOutRows, strata: int, learn: Tensor, *, rng: Rng) -> Tensor:
        """(B,) the bound in count form, which has no singular weight (as LLaDA is evaluated).

        −log p ≤ L · E_n E_S [(1/n) Σ_{l∈S} −log x̂[x_l]], n uniform in 1..L, S any n of the L learned tokens; with
        blocks it is summed over blocks. The strata of n/L end at sin²(πk/2K): narrow where n is small and S matters
        most, and where n is large and the sum depends most on n. Neighboring strata hide tokens from opposite ends of
        one random order, so that together they cover more tokens. Neither changes the mean; with four strata the
        variance is a third of that of plain sampling.
        """
        for_order, for_count = rng.split(2)
        length = learn.shape[1]
        block = _blocks(held_out)
        rank, size = _random_ranks(learn, block, rng=for_order)
        ends = [math.sin(math.pi / 2 * k / strata) ** 2 for k in range(strata + 1)]
        parts = []
        for k, (lo, hi) in enumerate(pairwise(ends)):
            u = lo + (hi - lo) * for_count.fold(k).uniform(length)[:, block]
            n = (u * size).ceil().clamp(min=1)
            where = learn & (rank < n if k % 2 == 0 else rank >= size - n)
            parts.append((hi - lo) * self._hidden_nats(held_out, where, n / size))
        return torch.stack(parts).sum(0)

    def _by_sets(self, held_out: _HeldOutRows, learn: Tensor) -> Tensor:
        """(B,) the exact bound: Σ_S Σ_{l∈S} −log x̂[x_l] / (n·C(L, n)) over all sets S of n of L learned tokens.

        Pass j hides, in every block, the tokens whose bits are set in j.
        """
        block = _blocks(held_out)
        sizes = _sizes(learn, block)
        most = int(sizes.max())
        rank = learn.cumsum(-1) - 1 - (sizes.cumsum(-1) - sizes)[:, block]  # among the learned tokens of its block
        size = sizes[:, block]
        choose = torch.tensor(
            [[math.comb(a, b) for b in range(most + 1)] for a in range(most + 1)], device=learn.device
        )
        nats = torch.zeros(len(learn), device=learn.device)
        for j in range(1, 2**most):
            n = j.bit_count()
            where = learn & (j >> rank.clamp(min=0) & 1).bool() & (j < 2**size)
            probability = 1 / (size * choose[size, n]).clamp(min=1)  # of drawing n, and then this set
            nats = nats + self._hidden_nats(held_out, where, n / size.clamp(min=n), probability)
        return nats

    def _hidden_nats(
        self, held_out: _HeldOutRows, where: Tensor, share: Tensor, weight: Tensor | float = 1.0
    ) -> Tensor:
        """(B,) Σ −log x̂[x] over the tokens to hide, each divided by the hidden fraction of its block."""
        batch = held_out.batch
        noise = torch.zeros_like(where) if batch.unknown is None else batch.unknown
        z = batch.tokens.masked_fill(where | noise, self.vocab.masked)
        t = self.schedule.inverse(1 - share).clamp(0, 1)  # time at which this fraction is hidden; prompts are at 0
        pred = held_out.predict(z, torch.where(batch.learn, t, noise.to(t.dtype)))
        return (pred.nll(where, batch.tokens) / share * weight).sum(-1)

    def undetermined(self, noised: NoisySample) -> Tensor:
        where = noised.z == self.vocab.masked
        return where if noised.pad is None else where & ~noised.pad

    def evidence(self, z: Tensor, t: Tensor) -> Tensor:
        return torch.where(z == self.vocab.masked, 0.0, torch.inf)

    def marginal(self, t: float) -> Tensor:
        return self._table(self.schedule.keep(torch.tensor(t, dtype=torch.float64)))

    def transition(self, s: float, t: float) -> Tensor:
        at = torch.tensor([s, t], dtype=torch.float64)
        kept_s, kept_t = self.schedule.keep(at)
        return self._table(kept_t / kept_s)

    @property
    def leaves_noise(self) -> bool:
        return self.schedule.start < 1

    def _table(self, keep: Tensor) -> Tensor:
        table = keep * torch.eye(self.vocab.size, dtype=torch.float64)
        table[:, self.vocab.masked] += 1 - keep
        return table


def _blocks(held_out: _HeldOutRows) -> Tensor:
    """(L,) block index of each position."""
    learn = held_out.batch.learn
    return torch.arange(learn.shape[1], device=learn.device) // (held_out.block or learn.shape[1])


def _sizes(learn: Tensor, block: Tensor) -> Tensor:
    """(B, L) number of learned tokens in block 0, 1, …"""
    return torch.zeros_like(learn, dtype=torch.int64).index_add(1, block, learn.long())


def _random_ranks(learn: Tensor, block: Tensor, *, rng: Rng) -> tuple[Tensor, Tensor]:
    """(B, L) rank of each learned token in a random order of its block, and the size of its block (at least 1)."""
    score = (block + rng.uniform(len(block))).masked_fill(~learn, torch.inf)
    rank = score.argsort(-1).argsort(-1)  # over the row, block after block
    size = _sizes(learn, block)
    before = size.cumsum(-1) - size
    return rank - before[:, block], size[:, block].clamp(min=1)
