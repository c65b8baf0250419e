"""Parses regular expressions in ECMAScript syntax; refuses what Python would read differently."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from redraft.decoding.constraints.schema.strings.characters import (
    _LINE_ENDS,
    _complement,
    _disputed_characters,
    _escape_class,
    _Ranges,
    _unicode_category,
)

_MOST_REPEATS = 5_000
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
_Disputed = list[tuple[int, int]]


class _UnsupportedPattern(ValueError):
    """Raised for a regular expression that is invalid or not supported; the message says why."""


@dataclass(frozen=True)
class _Expression:
    """A node of the syntax tree; `op` is set, then, or, repeat, begin, end, look or look_not."""

    op: str
    args: tuple[_Expression, ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()
    counts: tuple[int, int | None] = (0, None)


@lru_cache(1024)
def _parse_expression(source: str) -> tuple[_Expression, tuple[tuple[int, int], ...], bool]:
    """Parse an expression: the tree, the characters on which engines disagree, and whether it contains $."""
    reader = _Reader(source)
    try:
        tree = reader.alternatives()
    except RecursionError:
        raise _UnsupportedPattern("has brackets nested too deeply") from None
    if reader.at < len(source):
        raise _UnsupportedPattern("has an unmatched )")
    return tree, tuple(sorted(set(reader.disputed))), reader.ends


class _Reader:
    def __init__(self, source: str) -> None:
        self.source, self.at = source, 0
        self.disputed: _Disputed = []
        self.ends = False

    def peek(self, text: str) -> bool:
        return self.source.startswith(text, self.at)

    def take(self, text: str) -> bool:
        matches = self.peek(text)
        self.at += len(text) * matches
        return matches

    def next(self) -> str:
        if self.at >= len(self.source):
            raise _UnsupportedPattern("ends too early")
        self.at += 1
        return self.source[self.at - 1]

    # --- structure ---

    def alternatives(self) -> _Expression:
        options = [self.sequence()]
        while self.take("|"):
            options.append(self.sequence())
        return options[0] if len(options) == 1 else _Expression("or", tuple(options))

    def sequence(self) -> _Expression:
        parts: list[_Expression] = []
        while self.at < len(self.source) and not self.peek("|") and not self.peek(")"):
            parts.append(self.repeated(self.single()))
        return parts[0] if len(parts) == 1 else _Expression("then", tuple(parts))

    def repeated(self, part: _Expression) -> _Expression:
        counts = self.counts()
        if counts is None:
            return part
        if part.op in ("begin", "end", "look", "look_not"):
            raise _UnsupportedPattern(
                f"repeats {'an anchor' if len(part.op) < 4 or part.op == 'begin' else 'a look-ahead'}"
            )
        self.take("?")  # lazy: the same strings
        if any(map(self.peek, "*+?")):
            raise _UnsupportedPattern("repeats a repetition")
        return _Expression("repeat", (part,), counts=counts)

    def counts(self) -> tuple[int, int | None] | None:
        for sign, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self.take(sign):
                return least, most
        end = self.source.find("}", self.at)
        if not self.peek("{") or end < 0:
            return None
        low, comma, high = self.source[self.at + 1 : end].partition(",")
        if comma and not low and (high.isdecimal() or not high):
            raise _UnsupportedPattern("has {,n}, which engines read differently; write {0,n}")
        if not low.isdecimal() or (high and not high.isdecimal()):
            return None  # a brace that means itself
        self.at = end + 1
        counts = int(low), int(low) if not comma else int(high) if high else None
        if max(counts[0], counts[1] or 0) > _MOST_REPEATS:
            raise _UnsupportedPattern(f"repeats something more than {_MOST_REPEATS:,} times")
        if counts[1] is not None and counts[1] < counts[0]:
            raise _UnsupportedPattern("has {m,n} with n below m")
        return counts

    def single(self) -> _Expression:
        letter = self.next()
        if letter == "(":
            return self.group()
        if letter == "[":
            return _Expression("set", ranges=tuple(self.bracket()))
        if letter == "\\":
            return _Expression("set", ranges=tuple(self.escape(inside=False)))
        if letter == ".":
            self.disputed += _disputed_characters(".")
            return _Expression("set", ranges=tuple(_complement(_LINE_ENDS)))
        if letter in "^$":
            self.ends |= letter == "$"
            return _Expression("begin" if letter == "^" else "end")
        if letter in "*+?":
            raise _UnsupportedPattern("repeats nothing")
        return _Expression("set", ranges=((ord(letter), ord(letter)),))

    def group(self) -> _Expression:
        op = ""
        if self.take("?="):
            op = "look"
        elif self.take("?!"):
            op = "look_not"
        elif self.peek("?<=") or self.peek("?<!"):
            raise _UnsupportedPattern("has look-behind")
        elif self.take("?<"):
            name = self.source[self.at : self.source.find(">", self.at)]
            if not name.isidentifier():
                raise _UnsupportedPattern("has a group without a name")
            self.at += len(name) + 1
        elif not self.take("?:") and self.peek("?"):
            raise _UnsupportedPattern("has inline flags or another extension")
        content = self.alternatives()
        if not self.take(")"):
            raise _UnsupportedPattern("has a ( without a )")
        return _Expression(op, (content,)) if op else content

    # --- characters ---

    def escape(self, inside: bool) -> _Ranges:
        letter = self.next()
        if letter in "dDwWsS":
            self.disputed += _disputed_characters(letter.lower())
            return _escape_class(letter)
        if letter in "pP":
            return self.category(letter)
        if letter in _CONTROLS and not (letter == "0" and self.source[self.at : self.at + 1].isdigit()):
            return [(_CONTROLS[letter],) * 2]
        if letter == "b" and inside:
            return [(8, 8)]
        if letter in "bB":
            raise _UnsupportedPattern(rf"has \{letter}, which looks at neighboring characters")
        if letter in "xu":
            return self.code(2 if letter == "x" else 4)
        if letter.isdigit() or letter == "k":
            raise _UnsupportedPattern("has a back-reference")
        if letter.isalnum() and letter.isascii():
            raise _UnsupportedPattern(rf"has the escape \{letter}, which engines read differently")
        return [(ord(letter),) * 2]

    def code(self, digits: int) -> _Ranges:
        text = self.source[self.at : self.at + digits]
        try:
            point = int(text, 16) if len(text) == digits and text.isalnum() else -1
        except ValueError:
            point = -1
        if point < 0 or 0xD800 <= point < 0xE000:
            raise _UnsupportedPattern("has an escape for half a character, or an incomplete one")
        self.at += digits
        return [(point, point)]

    def category(self, letter: str) -> _Ranges:
        end = self.source.find("}", self.at)
        name = self.source[self.at + 1 : end] if self.peek("{") and end > 0 else ""
        for prefix in ("General_Category=", "gc="):
            name = name.removeprefix(prefix)
        ranges = _unicode_category(name) if name.isidentifier() else None
        if ranges is None:
            raise _UnsupportedPattern(rf"has \{letter}{{{name}}}, which is no general category")
        self.at = end + 1
        return list(ranges) if letter == "p" else _complement(list(ranges))

    def bracket(self) -> _Ranges:
        inverted, ranges = self.take("^"), []
        if self.peek("]"):
            raise _UnsupportedPattern("has an empty [], which engines read differently")
        while not self.take("]"):
            first = self.member()
            if not (self.peek("-") and not self.peek("-]")):
                ranges += first
                continue
            before = self.at
            self.at += 1
            last = self.member()
            if len(first) == len(last) == 1 and first[0][0] == first[0][1] and last[0][0] == last[0][1]:
                if last[0][0] < first[0][0]:
                    raise _UnsupportedPattern("has a range such as z-a, whose end comes before its beginning")
                ranges.append((first[0][0], last[0][1]))
            else:  # [\w-.]: the hyphen means itself
                self.at = before + 1
                ranges += [*first, (45, 45)]
        return _complement(ranges) if inverted else ranges

    def member(self) -> _Ranges:
        letter = self.next()
        return self.escape(inside=True) if letter == "\\" else [(ord(letter),) * 2]
