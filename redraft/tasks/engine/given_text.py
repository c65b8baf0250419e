"""Keeps given text byte for byte, even if the tokenizer would change its spaces, accents or capitals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, takewhile

from redraft.core.text.boundaries import GivenTokens
from redraft.core.text.tokenizers import Tokenizer, token_texts


@dataclass(frozen=True)
class GivenText:
    """Spells a filled template: given parts exactly as given, holes as the tokenizer decodes them."""

    tokenizer: Tokenizer
    parts: tuple[str, ...]  # given text before, between and after the holes
    given: tuple[GivenTokens, ...]  # tokens of each part, and the text of its ends that tokens of holes contain
    holes: tuple[int | None, ...]  # maximum number of tokens of each hole; None for any number

    def text(self, ids: Sequence[int], given: Sequence[bool]) -> str:
        """The whole text."""
        return "".join(text for text, _ in self._pieces(ids, given))

    def token_texts(self, ids: Sequence[int], given: Sequence[bool]) -> tuple[str, ...]:
        """The text of each token; given text without a token of its own is added to the token before it."""
        texts, at = [""] * (len(ids) or 1), 0
        for text, token in self._pieces(ids, given):
            at = max(at, token)
            texts[at] += text
        return tuple(texts[: len(ids)])

    def hole_texts(self, ids: Sequence[int], given: Sequence[bool]) -> tuple[str, ...]:
        """The text in each hole."""
        texts = token_texts(self.tokenizer, list(ids))
        runs = self._runs(given)
        return tuple("".join(self._hole(texts, runs, k)) for k in range(len(self.holes)))

    def hole_sizes(self, given: Sequence[bool]) -> tuple[int, ...]:
        """Number of tokens in each hole."""
        return tuple(len(hole) for _, hole in self._runs(given)[:-1])

    def _pieces(self, ids: Sequence[int], given: Sequence[bool]) -> Iterator[tuple[str, int]]:
        """Yields the text in pieces, each with the index of its token, or −1 if it has none."""
        texts, runs = token_texts(self.tokenizer, list(ids)), self._runs(given)
        for k, part in enumerate(self.parts):
            around, hole = runs[k]
            yield from zip(self._part(k, [texts[i] for i in around]), around, strict=True) if around else [(part, -1)]
            if k < len(self.holes):
                yield from zip(self._hole(texts, runs, k), hole, strict=True)

    def _part(self, k: int, texts: Sequence[str]) -> list[str]:
        """A given part, cut where its tokens end; text that belongs to tokens of holes is added at its ends."""
        part, head, tail = self.parts[k], self.given[k].head, self.given[k].tail
        first, *rest = _aligned(part[len(head) : len(part) - len(tail)], texts)
        *pieces, last = head + first, *rest
        return [*pieces, last + tail]

    def _runs(self, given: Sequence[bool]) -> list[tuple[range, range]]:
        """Token ranges of each part and of the hole after it."""
        runs, at = [], 0
        for tokens, most in zip(self.given, (*self.holes, 0), strict=True):
            part = range(at, at + len(tokens.ids))
            free = takewhile(lambda i: i < len(given) and not given[i], count(part.stop))
            size = len([i for i, _ in zip(free, count() if most is None else range(most), strict=False)])
            runs.append((part, range(part.stop, part.stop + size)))
            at = part.stop + size
        return runs

    def _hole(self, texts: Sequence[str], runs: Sequence[tuple[range, range]], hole: int) -> list[str]:
        """Texts of the tokens in a hole, without given text. Between words, given text keeps its own spaces."""
        pieces, after = [texts[i] for i in runs[hole][1]], runs[hole + 1][0]
        if not pieces:
            return pieces
        tail, head = self.given[hole].tail, self.given[hole + 1].head
        if tail and "".join(pieces).startswith(tail):
            pieces = _without_start(pieces, len(tail))
        elif self._space_is_in_hole[hole] and pieces[0][:1].isspace():
            pieces[0] = pieces[0][1:]
        if head and "".join(pieces).endswith(head):
            pieces = [piece[::-1] for piece in _without_start([piece[::-1] for piece in pieces[::-1]], len(head))][::-1]
        if after and texts[after[0]][:1].isspace() and not self.parts[hole + 1][:1].isspace():
            pieces[-1] += " "
        return pieces

    @cached_property
    def _space_is_in_hole(self) -> list[bool]:
        """Whether each part ends with a space that is not in its tokens but left to the hole."""
        ends = [self.tokenizer.decode(tokens.ids)[-1:].isspace() for tokens in self.given]
        return [part[-1:].isspace() and not in_tokens for part, in_tokens in zip(self.parts, ends, strict=True)]


def _without_start(pieces: Sequence[str], size: int) -> list[str]:
    """The pieces without their first `size` characters."""
    rest = []
    for piece in pieces:
        rest.append(piece[size:])
        size = max(0, size - len(piece))
    return rest


def _aligned(text: str, tokens: Sequence[str]) -> list[str]:
    """Cuts given text where its tokens end; text that no token spells goes to the next match, or to the last token."""
    pieces, at = [], 0
    for token in tokens:
        core = token.strip()
        begin = text.find(core, at) if core else -1
        end = begin + len(core) if begin >= 0 and not text[at:begin].strip() else at
        pieces.append(text[at:end])
        at = end
    pieces[-1] += text[at:]
    return pieces
