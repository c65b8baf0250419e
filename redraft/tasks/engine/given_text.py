"""Verbatim: given text is kept byte for byte, whatever a tokenizer does to spaces, accents or capitals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, takewhile

from redraft.core.text.tokenizers import Tokenizer, token_texts


def encode_given(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of given text that a hole follows.

    Many tokenizers write a space together with the word behind it. A space just before a hole would then be a token
    that training never shows there, so it is left to the hole, whose first token brings its own.
    """
    ids = tokenizer.encode(text)
    if not text.endswith(" ") or tokenizer.encode(f"{text}a")[: len(ids)] == ids:
        return ids
    return tokenizer.encode(text[:-1])


@dataclass(frozen=True)
class GivenText:
    """How a filled template is spelt: given parts as they were given, holes as the tokenizer has them."""

    tokenizer: Tokenizer
    parts: tuple[str, ...]  # given text, before, between and behind the holes
    ids: tuple[tuple[int, ...], ...]  # the tokens of each part
    holes: tuple[int | None, ...]  # how many tokens each hole has at most; None: any number

    def text(self, ids: Sequence[int], given: Sequence[bool]) -> str:
        return "".join(text for text, _ in self._spelt(ids, given))

    def token_texts(self, ids: Sequence[int], given: Sequence[bool]) -> tuple[str, ...]:
        """What each token adds to the text; text without a token of its own goes to the token before it."""
        found, at = [""] * (len(ids) or 1), 0
        for text, token in self._spelt(ids, given):
            at = max(at, token)
            found[at] += text
        return tuple(found[: len(ids)])

    def hole_texts(self, ids: Sequence[int], given: Sequence[bool]) -> tuple[str, ...]:
        """What stands in each hole."""
        said = token_texts(self.tokenizer, list(ids))
        runs = self._runs(given)
        return tuple("".join(self._filled(said, runs, k)) for k in range(len(self.holes)))

    def hole_sizes(self, given: Sequence[bool]) -> tuple[int, ...]:
        """How many tokens each hole has got."""
        return tuple(len(missing) for _, missing in self._runs(given)[:-1])

    def _spelt(self, ids: Sequence[int], given: Sequence[bool]) -> Iterator[tuple[str, int]]:
        """The text in pieces, each with its token; −1: it has none."""
        said, runs = token_texts(self.tokenizer, list(ids)), self._runs(given)
        for k, part in enumerate(self.parts):
            there, missing = runs[k]
            yield from zip(_aligned(part, [said[i] for i in there]), there, strict=True) if there else [(part, -1)]
            if k < len(self.holes):
                yield from zip(self._filled(said, runs, k), missing, strict=True)

    def _runs(self, given: Sequence[bool]) -> list[tuple[range, range]]:
        """The tokens of each part, and of the hole behind it."""
        runs, at = [], 0
        for ids, most in zip(self.ids, (*self.holes, 0), strict=True):
            there = range(at, at + len(ids))
            free = takewhile(lambda i: i < len(given) and not given[i], count(there.stop))
            size = len([i for i, _ in zip(free, count() if most is None else range(most), strict=False)])
            runs.append((there, range(there.stop, there.stop + size)))
            at = there.stop + size
        return runs

    def _filled(self, said: Sequence[str], runs: Sequence[tuple[range, range]], hole: int) -> list[str]:
        """What the tokens of a hole add: a space only where the given text beside them has none."""
        found, behind = [said[i] for i in runs[hole][1]], runs[hole + 1][0]
        if not found:
            return found
        if self._loose[hole] and found[0][:1].isspace():
            found[0] = found[0][1:]
        if behind and said[behind[0]][:1].isspace() and not self.parts[hole + 1][:1].isspace():
            found[-1] += " "
        return found

    @cached_property
    def _loose(self) -> list[bool]:
        """Whether each part ends with a space that none of its tokens has."""
        ends = [self.tokenizer.decode(ids)[-1:].isspace() for ids in self.ids]
        return [part[-1:].isspace() and not spelt for part, spelt in zip(self.parts, ends, strict=True)]


def _aligned(text: str, said: Sequence[str]) -> list[str]:
    """A given text, cut where its tokens end; where the tokenizer spells it otherwise, the next token has it all."""
    found, at = [], 0
    for piece in said:
        core = piece.strip()
        begin = text.find(core, at) if core else -1
        end = begin + len(core) if begin >= 0 and not text[at:begin].strip() else at
        found.append(text[at:end])
        at = end
    found[-1] += text[at:]
    return found
