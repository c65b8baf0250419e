"""Where the tokens of a hole begin and end: text is cut into tokens as a whole, not part by part.

Byte-pair tokenizers write a word with the space before it as one token. Cut at a hole, "her [[?]]." would be "her",
" " and the tokens of an answer without its space, which training never shows. So a token that reaches across the
boundary of a hole belongs to the hole.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from redraft.core.text.tokenizers import UNKNOWN, Tokenizer

_Ids = tuple[int, ...]


@dataclass(frozen=True)
class JointTokens:
    """Tokenized texts with a common beginning and end: the common tokens, and those in between for each text."""

    before: _Ids
    inner: tuple[_Ids, ...]  # at least one token for each text
    after: _Ids


def split_joint_tokens(texts: Sequence[_Ids]) -> JointTokens:
    """Split off the longest common prefix and suffix of tokenized texts, leaving each at least one token."""
    spare = min(map(len, texts)) - 1
    before = min(spare, _common_prefix(texts))
    after = min(spare - before, _common_prefix([ids[::-1] for ids in texts]))
    inner = tuple(ids[before : len(ids) - after] for ids in texts)
    return JointTokens(texts[0][:before], inner, texts[0][len(texts[0]) - after :])


def _common_prefix(texts: Sequence[_Ids]) -> int:
    """Length of the longest common prefix."""
    return sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, zip(*texts, strict=False)))


@dataclass(frozen=True)
class GivenTokens:
    """Given text between holes, as tokens, except for its ends, which may be part of tokens in the holes beside it."""

    head: str
    ids: _Ids
    tail: str

    @classmethod
    def alone(cls, tokenizer: Tokenizer, text: str, *, hole_after: bool) -> GivenTokens:
        """The text as tokens of its own. Only a space that tokens join to the next word is left to a hole after it."""
        ids = tuple(tokenizer.encode(text))
        if hole_after and text.endswith(" ") and tuple(tokenizer.encode(f"{text}a"))[: len(ids)] != ids:
            return cls("", tuple(tokenizer.encode(text[:-1])), " ")
        return cls("", ids, "")


def _probes(beside: str) -> str:
    """The characters that a hole may begin or end with: digits beside a digit, letters beside all other characters."""
    return string.digits if beside.isdigit() else string.ascii_lowercase


def split_given_text(tokenizer: Tokenizer, text: str, *, hole_before: bool, hole_after: bool) -> GivenTokens:
    """Tokenize given text beside holes whose text is unknown.

    Tokens that depend on the letter or digit next to the boundary are left to the hole: the space of the next word, or
    the first part of a word that the hole continues.
    """
    encode = tokenizer.encode_inside if hole_before else tokenizer.encode
    head = _open_head(tokenizer, text) if hole_before and tokenizer.merges else ""
    rest = text.removeprefix(head)
    ids, tail = _stable_tokens(tokenizer, rest, encode) if hole_after and tokenizer.merges else (encode(rest), "")
    return GivenTokens(head, tuple(ids), tail)


def _stable_tokens(tokenizer: Tokenizer, text: str, encode: Callable[[str], list[int]]) -> tuple[list[int], str]:
    """The first tokens of a text, which are the same whatever letter or digit follows it, and the rest of the text."""
    rows = [tuple(encode(text + probe)) for probe in _probes(text[-1:])]
    stable = list(rows[0][: _common_prefix(rows)])
    while stable and tokenizer.decode(stable).endswith(UNKNOWN):  # part of a character
        stable.pop()
    tail = tokenizer.decode(rows[0])[len(tokenizer.decode(stable)) : -1] if stable else text
    return (stable, tail) if text.endswith(tail) else (encode(text), "")


def _open_head(tokenizer: Tokenizer, text: str) -> str:
    """The beginning of a text whose tokens depend on the letter or digit before it."""
    rows = [tuple(tokenizer.encode_inside(probe + text)) for probe in _probes(text[:1])]
    given = len(rows[0]) - _common_prefix([row[::-1] for row in rows])
    head = tokenizer.decode(rows[0])[1 : len(tokenizer.decode(rows[0][:given]))]
    return head if text.startswith(head) else ""
