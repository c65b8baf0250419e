"""Insertion: tokens are missing, masked or clean, so texts grow as they are written (Kim et al. 2025, "FlexMDM").

From noise to text, every token first arrives as a mask and is then revealed. The paper's time runs from 0 (empty)
to 1 (text): here it is 1 − t, so its α and β are `insert_schedule.keep(t)` and `unmask_schedule.keep(t)`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core import randomness
from redraft.core.batch import NoisySample
from redraft.core.canvas import Canvas
from redraft.core.prediction import GapPrediction, Prediction
from redraft.core.processes.base import TokenProcess, require_times
from redraft.core.processes.masked import IndependentReveal, Masked, Pick, _RevealResult
from redraft.core.randomness import Rng
from redraft.core.schedules.base import Schedule
from redraft.core.schedules.tokens import Linear
from redraft.core.vocab import Vocab


@dataclass(frozen=True)
class PoissonGaps(GapPrediction):
    """Expected number of missing tokens per gap. Arrivals are Poisson (tau-leaping): exact to first order."""

    log_expected: Tensor  # (B, L + 1) log of the expected count of each gap

    @classmethod
    def of(cls, expected: Tensor) -> PoissonGaps:
        """Build it from expected counts, which must be above zero."""
        return cls(expected.log())

    @property
    def log_mean(self) -> Tensor:
        return self.log_expected

    def nll(self, count: Tensor) -> Tensor:
        return self.mean - _times_log(count, self.log_expected) + torch.lgamma(count + 1.0)

    def draw(self, share: Tensor, *, rng: Rng) -> Tensor:
        gaps = self.log_expected.shape[1]
        return randomness.sample_poisson(share * self.mean, rng.uniform(gaps), gaps)


@dataclass(frozen=True)
class CategoricalGaps(GapPrediction):
    """A distribution over the count of each gap. Arrivals are drawn counts, thinned: exact for each gap."""

    log_p: Tensor  # (B, L + 1, most + 1) log-probability of each count in each gap

    @property
    def log_mean(self) -> Tensor:
        counts = torch.arange(self.log_p.shape[-1], device=self.log_p.device, dtype=self.log_p.dtype)
        return (self.log_p + counts.log())[..., 1:].logsumexp(-1)

    def nll(self, count: Tensor) -> Tensor:
        return -self.log_p.gather(-1, count[..., None]).squeeze(-1)

    def draw(self, share: Tensor, *, rng: Rng) -> Tensor:
        for_count, for_thinning = rng.split(2)
        u = for_count.uniform(self.log_p.shape[1])
        return randomness.thin_counts(
            randomness.sample_categorical(self.log_p.flatten(0, 1), u.flatten()).view_as(u), share, for_thinning
        )


@dataclass(frozen=True)
class Insertion(TokenProcess):
    """Each token independently is present at time t with probability a_t = insert.keep(t), else missing; if it arrived
    at time r > t, it is clean with probability (b_t − b_r)/(1 − b_r), b = unmask.keep, else masked. z holds the tokens
    that are present.

    Reverse rates: a mask is revealed as x̂ at −b'/(1 − b), a mask arrives in a gap at −a'/(1 − a)·m, m the expected
    number of tokens missing there.
    Bound: −b'/(1 − b)·Σ_{masked} −log x̂[x] − a'/(1 − a)·Σ_{gaps} (m − g − g·log m), g the true number. Every missing
    token is a separate event; the paper's loss has m − g + g·log(g/m) instead, which has the same gradient but is
    no likelihood: too large by g·log g. Pointwise the integrand may be negative. Continuous time only.
    The terms are large and cancel over time, so `nelbo` takes m relative to the average gap G/(k + 1), with G tokens
    missing and k present. That adds log(G/(k + 1)) at each arrival, log(n!/n!) = 0 in total, with much less variance.

    A row has one time. Tokens at time zero are given, and nothing is missing between two adjacent given tokens.
    The text must be packed to the left, before any padding.
    """

    vocab: Vocab
    insert_schedule: Schedule = Linear()
    unmask_schedule: Schedule = Linear()
    time_power = 2.0
    grows, moves = True, False

    def __post_init__(self) -> None:
        if self.vocab.pad is None and self.vocab.eos is None:
            raise ValueError("insertion needs an id to write where there is no token; give the vocabulary pad or eos")
        insert, unmask = self.insert_schedule, self.unmask_schedule
        if insert.start < 1 or unmask.start < 1 or insert.end > 0:
            raise ValueError(
                f"{insert} and {unmask} leave tokens missing or masked at t = 0, or present at t = 1; "
                "insertion needs schedules that begin at 1, and insert_schedule must end at 0"
            )

    def error_rate(self, t: float) -> float:
        return 0.0

    @property
    def unmasking(self) -> Masked:
        """The mask noise on tokens that have arrived."""
        return Masked(self.vocab, self.unmask_schedule)

    def prior(self, canvas: Canvas, *, rng: Rng) -> Canvas:
        """The given tokens, and masks in holes of known length; open gaps are empty."""
        if canvas.open is None:
            raise ValueError(
                "insertion needs a canvas that marks open gaps: Canvas(…, open=(B, L + 1)); DiffusionLM.canvas "
                "and .infill make one"
            )
        pad = canvas.context.pad
        masked = torch.full_like(canvas.z, self.vocab.masked)
        return canvas.write(masked if pad is None else torch.where(pad, canvas.z, masked))

    def prior_kl(self, x: Tensor) -> Tensor:
        return torch.zeros(x.shape, device=x.device)

    def noise(self, x: Tensor, t: Tensor, *, pad: Tensor | None = None, rng: Rng) -> NoisySample:
        require_times(x, t)
        now, given = t.amax(-1, keepdim=True), (t == 0).expand_as(x)
        if bool(((t != 0) & (t != now)).any()):
            raise ValueError("insertion takes one time per row (zero for given tokens); draw times without blocks")
        pad = torch.zeros_like(given) if pad is None else pad
        arrival, reveal = (half.uniform(x.shape[1]) for half in rng.split(2))
        missing = arrival > self.insert_schedule.kept(now)
        before = self.unmask_schedule.kept(self.insert_schedule.inverse(arrival))  # b when the token arrived
        hidden = before + (1 - before) * reveal > self.unmask_schedule.kept(now)
        free = ~given & ~pad
        return self.packed(x, now, missing & free, hidden & free, given, pad)

    def packed(self, x: Tensor, t: Tensor, missing: Tensor, hidden: Tensor, given: Tensor, pad: Tensor) -> NoisySample:
        """Pack the present tokens to the left; count the tokens missing in each gap and find the open gaps.

        A gap is closed if nothing is missing between two given tokens; the ends of the text count as given.
        """
        gone = missing | pad
        order, size = gone.byte().argsort(dim=-1, stable=True), (~gone).sum(-1, keepdim=True)
        slot = torch.arange(x.shape[1] + 1, device=x.device)
        end = slot[:-1] >= size
        z = x.masked_fill(hidden, self.vocab.masked).gather(1, order).masked_fill(end, self.vocab.filler)
        lost = missing.cumsum(-1)
        before = torch.cat([torch.where(end, lost[:, -1:], lost.gather(1, order)), lost[:, -1:]], 1)
        gaps = before.diff(prepend=torch.zeros_like(size))
        bounds = given.gather(1, order) | end
        closed = F.pad(bounds, (1, 0), value=True) & F.pad(bounds, (0, 1), value=True) & (gaps == 0) & (size > 0)
        arrived = (~gone & ~given).sum(-1, keepdim=True)
        return NoisySample(z, t, x.gather(1, order), end, gaps, ~closed & (slot <= size), arrived)

    def log_missing(self, t: Tensor) -> Tensor:
        """(B, 1) log(1 − a_t), the log-fraction of missing tokens; for (B, L) times, that of their row.

        Networks may predict counts relative to it (`TransformerConfig.gap_fraction`): the arrival rate is then
        −a'·e^raw, without the pole at t = 0. A gap with a small predicted count then gains e^raw tokens in total;
        with the pole it would gain log(1/t) times as many by the last step t.
        """
        return (1 - self.insert_schedule.kept(t.amax(-1, keepdim=True))).clamp(min=1e-12).log()

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
        rng: Rng,
    ) -> _RevealResult:
        """`step` with any pick; one prediction serves both insertion and revealing.

        With an exact prediction every order of reveals gives the same distribution, since the exact prediction does
        not depend on which tokens are masked. Nothing is inserted in the last step (s = 0): it would stay masked. The
        pick gets the schedule's fraction and `share` is ignored, because more tokens are still to arrive.
        """
        require_times(canvas.z, s, t)
        for_reveal, for_insertion = rng.split(2)
        revealed = self.unmasking.reveal(pred, canvas, s, t, pick, rng=for_reveal)
        if canvas.open is None or not bool((canvas.open & (s > 0)).any()):
            return revealed
        arrived = pred.gaps.draw(self.insert_schedule.share(s, t), rng=for_insertion)
        return revealed._replace(canvas=_insert_masks(revealed.canvas, arrived * (canvas.open & (s > 0)), self.vocab))

    def time_when_masked(self, fraction: Tensor) -> Tensor:
        """`fraction` itself: time falls evenly, since tokens arrive by one schedule and are revealed by another."""
        return fraction

    def nelbo(self, pred: Prediction, noised: NoisySample, s: Tensor | None = None) -> Tensor:
        """(B, L + 1) nats: column i is gap i plus token i; the last column is the last gap alone."""
        if s is not None:
            raise ValueError("insertion has only a continuous-time bound; use Bound() without steps")
        assert noised.gaps is not None
        assert noised.open is not None
        assert noised.arrived is not None
        log_mean, count = pred.gaps.log_mean, noised.gaps
        average = count.sum(-1, keepdim=True) / (noised.arrived + 1)
        rate = torch.where(noised.open, self.insert_schedule.rate(noised.t), 0.0)
        rate = rate.to(torch.promote_types(log_mean.dtype, torch.float32))
        missing = rate * (log_mean.exp() - count - _times_log(count, log_mean - average.log()))
        return F.pad(self.unmasking.nelbo(pred, noised), (0, 1)) + missing

    def undetermined(self, noised: NoisySample) -> Tensor:
        return self.unmasking.undetermined(noised)

    def evidence(self, z: Tensor, t: Tensor) -> Tensor:
        raise ValueError("insertion moves tokens, so it does not support constraints on positions; use mask noise")

    def marginal(self, t: float) -> Tensor:
        """(V, V + 1): the last column is a missing token. P(masked) = (1 − b_t)·J_t, J_t = ∫_t^1 −a'/(1 − b)."""
        inserted, clean, masked = self._occupied(t)
        table = F.pad(clean * torch.eye(self.vocab.size, dtype=torch.float64), (0, 1))
        table[:, self.vocab.masked] += masked
        table[:, -1] = 1 - inserted
        return table

    def transition(self, s: float, t: float) -> Tensor:
        """(V + 1, V + 1), missing last. A mask stays with probability J_t/J_s; a clean token may also become a mask."""
        (_, clean_s, masked_s), (_, clean_t, masked_t) = self._occupied(s), self._occupied(t)
        stays = self._arrived(t) / self._arrived(s)
        size, mask = self.vocab.size, self.vocab.masked
        table = clean_t / clean_s * torch.eye(size + 1, dtype=torch.float64)
        table[:, mask] += (masked_t - masked_s * stays) / clean_s
        table[mask], table[-1] = 0.0, 0.0
        table[mask, mask], table[-1, -1] = stays, 1.0
        table[:-1, -1] = 1 - table[:-1, :-1].sum(-1)
        return table

    @property
    def leaves_noise(self) -> bool:
        return False

    def _occupied(self, t: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return the probabilities that a token is present, that it is clean, and that it is masked."""
        at = torch.tensor(t, dtype=torch.float64)
        present, masked = self.insert_schedule.keep(at), (1 - self.unmask_schedule.keep(at)) * self._arrived(t)
        return present, present - masked, masked

    def _arrived(self, t: float) -> Tensor:
        """J_t = ∫_t^1 −a'(u)/(1 − b(u)) du, by quadrature in log u, where it is smooth."""
        node, weight = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(64))
        u = t ** ((node + 1) / 2)
        lost = 1 - self.unmask_schedule.keep(u)
        density = torch.where(lost > 0, -self.insert_schedule.slope(u) / lost, 0.0)
        return -np.log(t) / 2 * (weight * u * density).sum()


def _times_log(count: Tensor, log_mean: Tensor) -> Tensor:
    """count·log m, zero where count is zero, even if m is zero."""
    return count * torch.where(count > 0, log_mean, 0.0)


def _insert_masks(canvas: Canvas, count: Tensor, vocab: Vocab) -> Canvas:
    """Insert `count` (B, L + 1) masks into the gaps; later tokens move right, with all their fields.

    New gaps are open if the gap they split was open. If a row runs out of room, its leftmost gaps are filled first.
    """
    pad = canvas.context.pad
    if pad is None or canvas.open is None:
        return canvas
    closed = pad & canvas.fixed  # never to be written
    arrived = count.cumsum(-1).minimum((pad & ~closed).sum(-1, keepdim=True))
    slot = torch.arange(count.shape[1], device=count.device).expand_as(count).contiguous()
    position = slot + arrived  # new position of each token, and of the end of the row
    owner = torch.searchsorted(position, slot)  # the token at each slot, or the next one if the slot is new
    new = (position.gather(1, owner) != slot)[:, :-1]
    at = owner[:, :-1]  # never the end of the row, since tokens only move right
    empty = slot[:, :-1] >= (~pad).sum(-1, keepdim=True) + arrived[:, -1:]
    z = canvas.z.gather(1, at).masked_fill(new, vocab.masked).masked_fill(empty, vocab.filler)
    fixed = torch.where(empty, closed, canvas.fixed.gather(1, at) & ~new)
    no_end_token = _inside(canvas, at, new)
    context = replace(canvas.context, pad=empty).with_constraints(no_end_token=no_end_token)
    confidence = None if canvas.confidence is None else canvas.confidence.gather(1, at).masked_fill(new | empty, 0.0)
    opened = canvas.open.gather(1, owner)
    return replace(canvas, z=z, fixed=fixed, context=context, open=opened, confidence=confidence)


def _inside(canvas: Canvas, owner: Tensor, new: Tensor) -> Tensor | None:
    """Return `no_end_token` for each slot. If the owner of a new slot is given, the text cannot end at that slot."""
    inside, pad = canvas.context.constraints.no_end_token, canvas.context.pad
    if inside is None or pad is None:
        return inside
    given = canvas.fixed & ~pad
    return inside.gather(1, owner) | (new & given.gather(1, owner))
