"""Speculation, the mathematics: which tokens of a draft are accepted, so that the text has exactly the target's law.

A drafter proposes tokens d_1 … d_γ, the target reads them in one pass and gives p_1 … p_{γ+1}, where p_i is its law of
the i-th token given those before it. A rule accepts the first few and emits one token more. All rules are pure
functions of probabilities in float64 and of random numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core import randomness
from redraft.core.randomness import Rng


class Proposal(NamedTuple):
    """What a drafter proposes."""

    tokens: Tensor  # (B, γ)
    log_q: Tensor | None = None  # (B, γ, V) the law each was drawn from, given those to its left; None: not known


@dataclass(frozen=True)
class Acceptance:
    """How many tokens of a proposal are accepted, and the token that comes after them."""

    count: Tensor  # (B,)
    next: Tensor  # (B,)


def accept_tokenwise(p: Tensor, q: Tensor, tokens: Tensor, u: Tensor, v: Tensor) -> Acceptance:
    """Accepts d_i with probability min(1, p_i(d_i)/q_i(d_i)); at the first rejection draws from (p_i − q_i)₊.

    Leviathan et al. 2023; each token is accepted with probability 1 − TV(p_i, q_i).
    p: (B, γ + 1, V). q: (B, γ, V), the law of d_i given d_1 … d_{i−1}. tokens: (B, γ). u: (B, γ), v: (B,) uniform.
    """
    at = tokens[..., None]
    accepted = u * q.gather(-1, at).squeeze(-1) < p[:, :-1].gather(-1, at).squeeze(-1)
    count = _leading(accepted)
    return Acceptance(count, _rest(p, q, count, torch.ones_like(v), v))


def accept_blockwise(p: Tensor, q: Tensor, tokens: Tensor, u: Tensor, v: Tensor) -> Acceptance:
    """Block verification (Sun et al. 2024): decides about the draft as a whole, and accepts at least as much.

    w_i = min(1, w_{i−1}·p_i(d_i)/q_i(d_i)), w_0 = 1; S_i = Σ_x (w_i·p_{i+1}(x) − q_{i+1}(x))₊; the longest i with
    u_i ≤ h_i is accepted, where h_i = S_i/(S_i + 1 − w_i), and h_γ = w_γ. The next token comes from p_{γ+1}, or from
    (w_i·p_{i+1} − q_{i+1})₊. Arguments as for `accept_tokenwise`.
    """
    at, size = tokens[..., None], tokens.shape[1]
    ratio = p[:, :-1].gather(-1, at).squeeze(-1) / q.gather(-1, at).squeeze(-1)
    weights = [torch.ones_like(v)]
    for i in range(size):
        weights.append((weights[-1] * ratio[:, i]).clamp(max=1))
    w = torch.stack(weights, 1)  # (B, γ + 1)
    surplus = (w[:, 1:-1, None] * p[:, 1:-1] - q[:, 1:]).clamp(min=0).sum(-1)  # (B, γ − 1)
    lack = 1 - w[:, 1:-1]
    h = torch.cat([torch.where(lack > 0, surplus / (surplus + lack), 1.0), w[:, -1:]], 1)[:, :size]
    number = torch.arange(1, size + 1, device=tokens.device)
    count = torch.where(u <= h, number, 0).amax(-1) if size else torch.zeros_like(v, dtype=torch.int64)
    return Acceptance(count, _rest(p, q, count, w.gather(1, count[:, None]).squeeze(1), v))


def accept_point_mass(p: Tensor, tokens: Tensor, u: Tensor, v: Tensor) -> Acceptance:
    """Accepts d_i with probability p_i(d_i), else draws from p_i without d_i; exact however the draft came about."""
    q = F.one_hot(tokens, p.shape[-1]).to(p.dtype)
    return accept_tokenwise(p, q, tokens, u, v)


def accept_matching(drawn: Tensor, tokens: Tensor) -> Acceptance:
    """Accepts the draft as far as it agrees with tokens (B, γ + 1) that were drawn from p_1 … p_{γ+1}."""
    count = _leading(drawn[:, :-1] == tokens)
    return Acceptance(count, drawn.gather(1, count[:, None]).squeeze(1))


def _leading(accepted: Tensor) -> Tensor:
    """(B, γ) bool → (B,) how many are true before the first that is not."""
    return accepted.long().cumprod(-1).sum(-1)


def _rest(p: Tensor, q: Tensor, count: Tensor, weight: Tensor, v: Tensor) -> Tensor:
    """(B,) a draw from (w·p − q)₊ after `count` tokens; from p if all are accepted."""
    at = count[:, None, None].expand(-1, 1, p.shape[-1])
    own = p.gather(1, at).squeeze(1)
    left = (weight[:, None] * own - F.pad(q, (0, 0, 0, 1)).gather(1, at).squeeze(1)).clamp(min=0)
    left = torch.where(left.sum(-1, keepdim=True) > 0, left, own)  # only rounding leaves nothing
    return randomness.sample_categorical(left.log(), v)


@dataclass(frozen=True)
class RoundNoise:
    """The random numbers of a round. Those of a place are the same in every round; fresh ones are new in each."""

    rng: Rng  # of the rows
    begin: int  # the place of the first token to be written

    def fresh(self) -> tuple[Rng, ...]:
        """Three generators: to draft, to accept, to go on."""
        return self.rng.fold(self.begin).split(5)[2:]

    def plain(self, place: Tensor) -> Tensor:
        """(n,) places → (B, n) the numbers with which `Blocks(Ancestral(1))` draws there."""
        rows = len(self.rng.key)
        own = Rng(self.rng.key.repeat_interleave(len(place))).fold(place.repeat(rows))
        return own.at(place.repeat(rows)[:, None]).fold(0).split(2)[1].uniform(1).view(rows, -1)

    def gumbel(self, place: Tensor, states: int) -> Tensor:
        """(n,) places → (B, n, V) Gumbel noise"""
        u = self.rng.split(6)[5].at(place.expand(len(self.rng.key), -1)).uniform(len(place), states)
        return -(-u.log()).log()


class AcceptRule(ABC):
    """How drafts are drawn and accepted. Every rule leaves the target's law as it is, for the drafters it admits."""

    @property
    def needs_law(self) -> bool:
        """Whether it needs the law of each drafted token given those to its left."""
        return False

    @abstractmethod
    def drafted(self, log_q: Tensor, place: Tensor, noise: RoundNoise) -> Tensor:
        """(B, n, V) what a drafter says of n places (n,) → (B, n) the tokens it proposes."""

    @abstractmethod
    def __call__(self, log_p: Tensor, draft: Proposal, place: Tensor, noise: RoundNoise) -> Acceptance:
        """log_p: (B, γ + 1, V) normalised, at the places (γ + 1,)."""


@dataclass(frozen=True)
class TokenwiseRule(AcceptRule):
    """`accept_tokenwise`. Exact for drafters that write left to right: one token or a group of independent ones at a time."""

    @property
    def needs_law(self) -> bool:
        return True

    def drafted(self, log_q: Tensor, place: Tensor, noise: RoundNoise) -> Tensor:
        u = noise.fresh()[0].at(place[None]).uniform(len(place))
        return randomness.sample_categorical(log_q.flatten(0, 1), u.flatten()).view(log_q.shape[:2])

    def __call__(self, log_p: Tensor, draft: Proposal, place: Tensor, noise: RoundNoise) -> Acceptance:
        return accept_tokenwise(log_p.double().exp(), *_known(draft), *_numbers(draft, noise))


@dataclass(frozen=True)
class BlockwiseRule(TokenwiseRule):
    """`accept_blockwise`. Exact for the drafters of `TokenwiseRule`, and never accepts fewer tokens on average."""

    def __call__(self, log_p: Tensor, draft: Proposal, place: Tensor, noise: RoundNoise) -> Acceptance:
        return accept_blockwise(log_p.double().exp(), *_known(draft), *_numbers(draft, noise))


@dataclass(frozen=True)
class PointMassRule(AcceptRule):
    """`accept_point_mass`. Exact for any drafter: of the draft only its tokens count. It drafts the likeliest ones."""

    def drafted(self, log_q: Tensor, place: Tensor, noise: RoundNoise) -> Tensor:
        return log_q.argmax(-1)

    def __call__(self, log_p: Tensor, draft: Proposal, place: Tensor, noise: RoundNoise) -> Acceptance:
        return accept_point_mass(log_p.double().exp(), draft.tokens, *_numbers(draft, noise))


@dataclass(frozen=True)
class MatchRule(PointMassRule):
    """Sample and match: draws from p with the random numbers of plain sampling, accepts what the draft guessed right.

    The text is that of plain sampling with the same seed, whatever the draft. The drafter draws with the same numbers,
    so that where it says what the target says, it guesses right.
    """

    def drafted(self, log_q: Tensor, place: Tensor, noise: RoundNoise) -> Tensor:
        return randomness.sample_categorical(log_q.flatten(0, 1), noise.plain(place).flatten()).view(log_q.shape[:2])

    def __call__(self, log_p: Tensor, draft: Proposal, place: Tensor, noise: RoundNoise) -> Acceptance:
        drawn = randomness.sample_categorical(log_p.flatten(0, 1), noise.plain(place).flatten()).view(log_p.shape[:2])
        return accept_matching(drawn, draft.tokens)


@dataclass(frozen=True)
class SharedGumbelRule(AcceptRule):
    """Target and drafter take argmax(log p + g) with the same Gumbel noise g at each place; accepted while they agree.

    Exact for any drafter, since the text depends on p and g alone: it is the same for all drafters and none. A token
    agrees with probability (1 − TV)/(1 + TV) at least.
    """

    def drafted(self, log_q: Tensor, place: Tensor, noise: RoundNoise) -> Tensor:
        return (log_q.double() + noise.gumbel(place, log_q.shape[-1])).argmax(-1)

    def __call__(self, log_p: Tensor, draft: Proposal, place: Tensor, noise: RoundNoise) -> Acceptance:
        return accept_matching(self.drafted(log_p, place, noise), draft.tokens)


@dataclass(frozen=True)
class GreedyRule(PointMassRule):
    """Temperature 0: the likeliest token everywhere; accepted as far as the draft has them. For any drafter."""

    def __call__(self, log_p: Tensor, draft: Proposal, place: Tensor, noise: RoundNoise) -> Acceptance:
        return accept_matching(log_p.argmax(-1), draft.tokens)


def _known(draft: Proposal) -> tuple[Tensor, Tensor]:
    assert draft.log_q is not None
    return draft.log_q.double().exp(), draft.tokens


def _numbers(draft: Proposal, noise: RoundNoise) -> tuple[Tensor, Tensor]:
    """(B, γ) to accept, (B,) to go on"""
    _, accept, on = noise.fresh()
    return accept.uniform(draft.tokens.shape[1]), on.once().squeeze(1)


ACCEPT_RULES: dict[str, AcceptRule] = {
    "matched": MatchRule(),
    "gumbel": SharedGumbelRule(),
    "token": TokenwiseRule(),
    "block": BlockwiseRule(),
    "point": PointMassRule(),
}
