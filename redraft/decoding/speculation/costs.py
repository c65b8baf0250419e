"""The cost of drafts and the estimated acceptance rate, which determine their length."""

from __future__ import annotations

from dataclasses import dataclass

from redraft.core.vocab import require_range


@dataclass(frozen=True)
class DraftCosts:
    """The costs of a round, in units of a single-token pass of the target; they determine the length of drafts.

    If each of γ drafted tokens is accepted with probability a, a round gives (1 − a^{γ+1})/(1 − a) tokens on average,
    and costs 1 + read·γ + draft. With `always_accepted` > 0 the first tokens of a draft count as accepted with
    probability 1.
    """

    read: float = 0.15  # cost of each additional token in a pass of the target
    draft: float = 0.3  # cost of a draft of any length
    always_accepted: int = 0  # tokens at the beginning of a draft that come from the target itself

    def __post_init__(self) -> None:
        require_range(self, 0, 1000, "read", "draft", "always_accepted")

    def best_length(self, acceptance: float, most: int) -> int:
        """Return the length, up to `most`, with the most tokens per cost; 0 if plain decoding is faster."""
        best_rate, length, tokens, power = 1.0, 0, 1.0, 1.0
        for n in range(1, most + 1):
            power *= acceptance if n > self.always_accepted else 1.0
            tokens += power
            rate = tokens / (1 + self.read * n + self.draft)
            if rate > best_rate:
                best_rate, length = rate, n
        return length


@dataclass(frozen=True)
class _AcceptanceEstimate:
    """A running estimate of the acceptance rate, as decayed counts of accepted and rejected tokens."""

    accepted: float = 2.0
    rejected: float = 1.0

    def update(self, drafted: int, accepted: int) -> _AcceptanceEstimate:
        """Return the estimate after a round; older rounds count less.

        A round without a draft moves the counts toward their initial values, so that drafting is tried again later.
        """
        decay, start = 0.9, _AcceptanceEstimate()
        if not drafted:
            change = (start.accepted - self.accepted, start.rejected - self.rejected)
            return _AcceptanceEstimate(self.accepted + 0.02 * change[0], self.rejected + 0.02 * change[1])
        return _AcceptanceEstimate(decay * self.accepted + accepted, decay * self.rejected + (accepted < drafted))

    @property
    def rate(self) -> float:
        return self.accepted / (self.accepted + self.rejected)
