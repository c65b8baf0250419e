"""Drafters without a network: they propose what followed the same tokens before, in this text or in other texts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from redraft.core.vocab import require_range
from redraft.decoding.speculation.acceptance import Proposal
from redraft.decoding.speculation.costs import DraftCosts
from redraft.decoding.speculation.drafters import Drafter, DraftRequest


@dataclass(frozen=True)
class PromptLookup(Drafter):
    """Proposes what followed the last few tokens when they occurred earlier in the text (prompt lookup decoding).

    It costs nothing and is good at copying. The longest match with the end of the text wins; among equally long ones,
    the latest. By default a match of a single token is ignored: verifying such a draft costs more than it gains.
    """

    longest: int = 3  # maximum length of a match
    shortest: int = 2  # minimum length of a match
    ordered = False

    def __post_init__(self) -> None:
        require_range(self, 1, 64, "longest", "shortest")
        if self.shortest > self.longest:
            raise ValueError(f"shortest={self.shortest} is above longest={self.longest}; swap them")

    def __call__(self, request: DraftRequest) -> Proposal:
        return _proposal(request, self.continuation(request.z[0].tolist()))

    def costs(self) -> DraftCosts:
        return DraftCosts(draft=0.0)

    def continuation(self, text: list[int]) -> list[int]:
        """Return all tokens after the best match with the end of the text; empty if there is no match."""
        back, longest, distance, j = text[::-1], self.shortest - 1, 0, 0
        for _ in range(back.count(back[0]) - 1 if back else 0):
            j = back.index(back[0], j + 1)  # an earlier occurrence of the last token
            size = next((n for n in range(1, self.longest) if back[j + n : j + n + 1] != back[n : n + 1]), self.longest)
            if size > longest:
                longest, distance = size, j
            if longest == self.longest:
                break
        return text[len(text) - distance :]


@dataclass(frozen=True)
class TextLookup(Drafter):
    """Proposes what the text itself repeats, else what most often followed its last tokens in other texts (REST, 2023).

    Texts that the model wrote itself work best. Each next token is the most frequent one after the longest context of
    up to `longest` tokens that occurs in `texts`. Its probability is its count over the count of the context plus one,
    so a context seen once gives 1/2. Contexts in which it is below `min_probability` are ignored, and a draft ends
    before the product of these probabilities falls below it.
    """

    texts: tuple[tuple[int, ...], ...] = field(repr=False)
    longest: int = 4  # maximum length of a context
    min_probability: float = 0.25  # minimum probability of the draft as a whole
    in_text: PromptLookup = PromptLookup()  # looks for repetitions in the text itself
    ordered = False
    _next: Mapping[tuple[int, ...], tuple[int, float]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_range(self, 1, 64, "longest")
        require_range(self, 0, 1, "min_probability")
        object.__setattr__(self, "_next", _next_tokens(self.texts, self.longest, self.min_probability))

    def __call__(self, request: DraftRequest) -> Proposal:
        text = request.z[0].tolist()
        return _proposal(request, self.in_text.continuation(text) or self._continuation(text, request.count))

    def costs(self) -> DraftCosts:
        return DraftCosts(draft=0.0)

    def _continuation(self, text: list[int], count: int) -> list[int]:
        text, begin, total = text[-self.longest :], min(len(text), self.longest), 1.0
        while len(text) < begin + count:
            ends = (tuple(text[-n:]) for n in range(min(self.longest, len(text)), 0, -1))
            token, probability = next((self._next[end] for end in ends if end in self._next), (0, 0.0))
            total *= probability
            if total < self.min_probability:
                break
            text = [*text, token]
        return text[begin:]


def _next_tokens(
    texts: Iterable[Sequence[int]], longest: int, least: float
) -> dict[tuple[int, ...], tuple[int, float]]:
    """Map each context to its most frequent next token and that token's probability, if it is at least `least`."""
    counts: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for text in texts:
        for i, token in enumerate(text):
            for n in range(1, min(longest, i) + 1):
                counts[tuple(text[i - n : i])][token] += 1
    best = ((context, *tokens.most_common(1)[0], tokens.total() + 1) for context, tokens in counts.items())
    return {context: (token, count / total) for context, token, count, total in best if count >= least * total}


def _proposal(request: DraftRequest, tokens: list[int]) -> Proposal:
    return Proposal(torch.tensor([tokens[: request.count]], dtype=torch.int64, device=request.z.device).view(1, -1))
