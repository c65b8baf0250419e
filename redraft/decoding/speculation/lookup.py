"""Drafters without a network: what followed the same tokens before, in the text itself or in others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from redraft.core.vocab import require_range
from redraft.decoding.speculation.acceptance import Proposal
from redraft.decoding.speculation.drafters import DraftRequest


@dataclass(frozen=True)
class PromptLookup:
    """Proposes what followed the last few tokens when they occurred before: free, and good at copying.

    Tries the last `longest` tokens first, then fewer; of several occurrences it takes the latest. What followed a
    single token says little, and reading it costs more than it wins.
    """

    longest: int = 3
    shortest: int = 2
    ordered = False

    def __post_init__(self) -> None:
        require_range(self, 1, 64, "longest", "shortest")
        if self.shortest > self.longest:
            raise ValueError(f"shortest={self.shortest} is above longest={self.longest}; exchange them")

    def __call__(self, asked: DraftRequest) -> Proposal:
        return _proposal(asked, self.found(asked.z[0].tolist()))

    def found(self, text: list[int]) -> list[int]:
        """What followed the end of this text before, up to that end."""
        back, best, at, j = text[::-1], self.shortest - 1, 0, 0
        for _ in range(back.count(back[0]) - 1 if back else 0):
            j = back.index(back[0], j + 1)  # the last token stood there too
            same = next((n for n in range(1, self.longest) if back[j + n : j + n + 1] != back[n : n + 1]), self.longest)
            if same > best:
                best, at = same, j
            if best == self.longest:
                break
        return text[len(text) - at :]


@dataclass(frozen=True)
class TextLookup:
    """Proposes what the text itself repeats, else what followed its end most often in other texts (as REST, 2023).

    Best are texts that the model wrote itself. Each token follows the longest known context of up to `longest` tokens,
    with the share that it had there, one more occurrence assumed that it did not follow: a context seen once counts as
    half sure. A draft goes on while all of it is at least `sure`.
    """

    texts: tuple[tuple[int, ...], ...] = field(repr=False)
    longest: int = 4
    sure: float = 0.25
    here: PromptLookup = PromptLookup()
    ordered = False
    _next: Mapping[tuple[int, ...], tuple[int, float]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_range(self, 1, 64, "longest")
        require_range(self, 0, 1, "sure")
        object.__setattr__(self, "_next", _usual(self.texts, self.longest, self.sure))

    def __call__(self, asked: DraftRequest) -> Proposal:
        text = asked.z[0].tolist()
        return _proposal(asked, self.here.found(text) or self._guessed(text, asked.count))

    def _guessed(self, text: list[int], count: int) -> list[int]:
        text, begin, sure = text[-self.longest :], min(len(text), self.longest), 1.0
        while len(text) < begin + count:
            ends = (tuple(text[-n:]) for n in range(min(self.longest, len(text)), 0, -1))
            token, share = next((self._next[end] for end in ends if end in self._next), (0, 0.0))
            sure *= share
            if sure < self.sure:
                break
            text = [*text, token]
        return text[begin:]


def _usual(texts: Iterable[Sequence[int]], longest: int, least: float) -> dict[tuple[int, ...], tuple[int, float]]:
    """The token that usually follows each context, and its share, if that is enough."""
    counts: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for text in texts:
        for i, token in enumerate(text):
            for n in range(1, min(longest, i) + 1):
                counts[tuple(text[i - n : i])][token] += 1
    best = ((context, *found.most_common(1)[0], found.total() + 1) for context, found in counts.items())
    return {context: (token, count / seen) for context, token, count, seen in best if count >= least * seen}


def _proposal(asked: DraftRequest, tokens: list[int]) -> Proposal:
    return Proposal(torch.tensor([tokens[: asked.count]], dtype=torch.int64, device=asked.z.device).view(1, -1))
