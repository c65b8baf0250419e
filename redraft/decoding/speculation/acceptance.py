"""Acceptance rules of speculative decoding: which drafted tokens to keep, so that the output distribution is exact.

A drafter proposes tokens d_1 … d_γ. The target reads them in one pass and returns p_1 … p_{γ+1}, where p_i is its
distribution of the i-th token given those before it. A rule accepts a prefix of the draft and emits one more token. All
rules are pure functions of probabilities in float64 and of random numbers.
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
    """The tokens that a drafter proposes."""

    tokens: Tensor  # (B, γ) ids of the draft
    log_q: Tensor | None = None  # (B, γ, V) distribution of each token given those to its left; None if unknown


@dataclass(frozen=True)
class _Acceptance:
    """The number of accepted tokens, and the token that follows them."""

    count: Tensor  # (B,) number of accepted tokens
    next: Tensor  # (B,) id of the token after them


def _accept_tokenwise(p: Tensor, q: Tensor, tokens: Tensor, u: Tensor, v: Tensor) -> _Acceptance:
    """Accept d_i with probability min(1, p_i(d_i)/q_i(d_i)); at the first rejection draw from (p_i − q_i)₊.

    From Leviathan et al. 2023. Each token is accepted with probability 1 − TV(p_i, q_i).

    Args:
        p: (B, γ + 1, V) the target's probabilities
        q: (B, γ, V) the drafter's distribution of d_i given d_1 … d_{i−1}
        tokens: (B, γ) the draft
        u: (B, γ) uniform random numbers, for acceptance
        v: (B,) uniform random numbers, for the token after the accepted ones
    """
    index = tokens[..., None]
    accepted = u * q.gather(-1, index).squeeze(-1) < p[:, :-1].gather(-1, index).squeeze(-1)
    count = _leading_count(accepted)
    return _Acceptance(count, _draw_residual(p, q, count, torch.ones_like(v), v))


def _accept_blockwise(p: Tensor, q: Tensor, tokens: Tensor, u: Tensor, v: Tensor) -> _Acceptance:
    """Verify the draft as a whole (block verification, Sun et al. 2024); accepts at least as many tokens on average.

    Let w_0 = 1, w_i = min(1, w_{i−1}·p_i(d_i)/q_i(d_i)), S_i = Σ_x (w_i·p_{i+1}(x) − q_{i+1}(x))₊, h_γ = w_γ, and h_i =
    S_i/(S_i + 1 − w_i) for i < γ. The first i tokens are accepted for the largest i with u_i ≤ h_i. The next token is
    drawn from p_{γ+1} if all are accepted, else from (w_i·p_{i+1} − q_{i+1})₊. Arguments as in `_accept_tokenwise`.
    """
    index, size = tokens[..., None], tokens.shape[1]
    ratio = p[:, :-1].gather(-1, index).squeeze(-1) / q.gather(-1, index).squeeze(-1)
    weights = [torch.ones_like(v)]
    for i in range(size):
        weights.append((weights[-1] * ratio[:, i]).clamp(max=1))
    w = torch.stack(weights, 1)  # (B, γ + 1)
    surplus = (w[:, 1:-1, None] * p[:, 1:-1] - q[:, 1:]).clamp(min=0).sum(-1)  # (B, γ − 1)
    lack = 1 - w[:, 1:-1]
    h = torch.cat([torch.where(lack > 0, surplus / (surplus + lack), 1.0), w[:, -1:]], 1)[:, :size]
    length = torch.arange(1, size + 1, device=tokens.device)
    count = torch.where(u <= h, length, 0).amax(-1) if size else torch.zeros_like(v, dtype=torch.int64)
    return _Acceptance(count, _draw_residual(p, q, count, w.gather(1, count[:, None]).squeeze(1), v))


def _accept_point_mass(p: Tensor, tokens: Tensor, u: Tensor, v: Tensor) -> _Acceptance:
    """Accept d_i with probability p_i(d_i), else draw from p_i without d_i; exact for any draft."""
    q = F.one_hot(tokens, p.shape[-1]).to(p.dtype)
    return _accept_tokenwise(p, q, tokens, u, v)


def _accept_matching(drawn: Tensor, tokens: Tensor) -> _Acceptance:
    """Accept the draft up to its first difference from tokens (B, γ + 1) that were drawn from p_1 … p_{γ+1}."""
    count = _leading_count(drawn[:, :-1] == tokens)
    return _Acceptance(count, drawn.gather(1, count[:, None]).squeeze(1))


def _leading_count(accepted: Tensor) -> Tensor:
    """(B, γ) bool → (B,) number of leading True values in each row."""
    return accepted.long().cumprod(-1).sum(-1)


def _draw_residual(p: Tensor, q: Tensor, count: Tensor, weight: Tensor, v: Tensor) -> Tensor:
    """Draw the token after `count` accepted ones, (B,): from (w·p − q)₊, or from p if all are accepted."""
    index = count[:, None, None].expand(-1, 1, p.shape[-1])
    target = p.gather(1, index).squeeze(1)
    residual = (weight[:, None] * target - F.pad(q, (0, 0, 0, 1)).gather(1, index).squeeze(1)).clamp(min=0)
    residual = torch.where(residual.sum(-1, keepdim=True) > 0, residual, target)  # all zeros only through rounding
    return randomness.sample_categorical(residual.log(), v)


@dataclass(frozen=True)
class _RoundNoise:
    """The random numbers of a round.

    `plain` and `gumbel` give a position the same numbers in every round; `fresh` gives new ones in each round.
    """

    rng: Rng  # one key per row
    begin: int  # position of the first token that the round writes

    def fresh(self) -> tuple[Rng, ...]:
        """Return three generators: for the draft, for acceptance, and for the token after the accepted ones."""
        return self.rng.fold(self.begin).split(5)[2:]

    def plain(self, position: Tensor) -> Tensor:
        """(n,) positions → (B, n) the uniform numbers with which `Blocks(Ancestral(1))` draws there."""
        rows = len(self.rng.key)
        keys = Rng(self.rng.key.repeat_interleave(len(position))).fold(position.repeat(rows))
        return keys.at(position.repeat(rows)[:, None]).fold(0).split(2)[1].uniform(1).view(rows, -1)

    def gumbel(self, position: Tensor, vocab_size: int) -> Tensor:
        """(n,) positions → (B, n, V) Gumbel noise."""
        u = self.rng.split(6)[5].at(position.expand(len(self.rng.key), -1)).uniform(len(position), vocab_size)
        return -(-u.log()).log()


class AcceptRule(ABC):
    """Draws and accepts drafts. With the drafters it is exact for, the text has the target's distribution."""

    @property
    def needs_log_q(self) -> bool:
        """Whether it needs `Proposal.log_q`, the distribution of each drafted token given those to its left."""
        return False

    @abstractmethod
    def propose(self, log_q: Tensor, position: Tensor, noise: _RoundNoise) -> Tensor:
        """Choose the drafted tokens (B, n), from the drafter's log-probabilities (B, n, V) at n positions (n,)."""

    @abstractmethod
    def __call__(self, log_p: Tensor, draft: Proposal, position: Tensor, noise: _RoundNoise) -> _Acceptance:
        """Accept a draft, from the target's normalized log-probabilities (B, γ + 1, V) at positions (γ + 1,)."""


@dataclass(frozen=True)
class TokenwiseRule(AcceptRule):
    """Accepts token by token, with probability min(1, p/q) (Leviathan et al. 2023).

    Exact for drafters that write left to right, one token or one group of independent tokens at a time.
    """

    @property
    def needs_log_q(self) -> bool:
        return True

    def propose(self, log_q: Tensor, position: Tensor, noise: _RoundNoise) -> Tensor:
        u = noise.fresh()[0].at(position[None]).uniform(len(position))
        return randomness.sample_categorical(log_q.flatten(0, 1), u.flatten()).view(log_q.shape[:2])

    def __call__(self, log_p: Tensor, draft: Proposal, position: Tensor, noise: _RoundNoise) -> _Acceptance:
        return _accept_tokenwise(log_p.double().exp(), *_draft_probs(draft), *_uniforms(draft, noise))


@dataclass(frozen=True)
class BlockwiseRule(TokenwiseRule):
    """Block verification (Sun et al. 2024): accepts or rejects the draft as a whole.

    Exact for the same drafters as `TokenwiseRule`. On average it accepts at least as many tokens.
    """

    def __call__(self, log_p: Tensor, draft: Proposal, position: Tensor, noise: _RoundNoise) -> _Acceptance:
        return _accept_blockwise(log_p.double().exp(), *_draft_probs(draft), *_uniforms(draft, noise))


@dataclass(frozen=True)
class PointMassRule(AcceptRule):
    """Accepts d_i with probability p_i(d_i). Drafts the most likely tokens.

    Exact for any drafter, because it uses only the tokens of the draft and not their probabilities.
    """

    def propose(self, log_q: Tensor, position: Tensor, noise: _RoundNoise) -> Tensor:
        return log_q.argmax(-1)

    def __call__(self, log_p: Tensor, draft: Proposal, position: Tensor, noise: _RoundNoise) -> _Acceptance:
        return _accept_point_mass(log_p.double().exp(), draft.tokens, *_uniforms(draft, noise))


@dataclass(frozen=True)
class MatchRule(PointMassRule):
    """Draws from p with the random numbers of plain sampling, and accepts the draft up to the first difference.

    For any drafter, the text is that of plain sampling with the same seed. The drafter draws with the same random
    numbers, so its guess is right wherever its distribution equals the target's.
    """

    def propose(self, log_q: Tensor, position: Tensor, noise: _RoundNoise) -> Tensor:
        return randomness.sample_categorical(log_q.flatten(0, 1), noise.plain(position).flatten()).view(log_q.shape[:2])

    def __call__(self, log_p: Tensor, draft: Proposal, position: Tensor, noise: _RoundNoise) -> _Acceptance:
        drawn = randomness.sample_categorical(log_p.flatten(0, 1), noise.plain(position).flatten()).view(
            log_p.shape[:2]
        )
        return _accept_matching(drawn, draft.tokens)


@dataclass(frozen=True)
class SharedGumbelRule(AcceptRule):
    """Target and drafter both take the argmax of log-probabilities plus the same Gumbel noise g at each position.

    The draft is accepted up to the first difference. Exact for any drafter: the text depends only on p and g, so it is
    the same for every drafter, and without one. A token is accepted with probability at least (1 − TV)/(1 + TV).
    """

    def propose(self, log_q: Tensor, position: Tensor, noise: _RoundNoise) -> Tensor:
        return (log_q.double() + noise.gumbel(position, log_q.shape[-1])).argmax(-1)

    def __call__(self, log_p: Tensor, draft: Proposal, position: Tensor, noise: _RoundNoise) -> _Acceptance:
        return _accept_matching(self.propose(log_p, position, noise), draft.tokens)


@dataclass(frozen=True)
class _GreedyRule(PointMassRule):
    """Temperature 0: takes the most likely tokens, and accepts the draft up to the first difference."""

    def __call__(self, log_p: Tensor, draft: Proposal, position: Tensor, noise: _RoundNoise) -> _Acceptance:
        return _accept_matching(log_p.argmax(-1), draft.tokens)


def _draft_probs(draft: Proposal) -> tuple[Tensor, Tensor]:
    """Return the probabilities q (B, γ, V) and the tokens (B, γ) of the draft."""
    assert draft.log_q is not None
    return draft.log_q.double().exp(), draft.tokens


def _uniforms(draft: Proposal, noise: _RoundNoise) -> tuple[Tensor, Tensor]:
    """Return uniform numbers (B, γ) for acceptance, and (B,) for the token after the accepted ones."""
    _, for_acceptance, for_next = noise.fresh()
    return for_acceptance.uniform(draft.tokens.shape[1]), for_next.once().squeeze(1)


ACCEPT_RULES: dict[str, AcceptRule] = {
    "matched": MatchRule(),
    "gumbel": SharedGumbelRule(),
    "token": TokenwiseRule(),
    "block": BlockwiseRule(),
    "point": PointMassRule(),
}
