"""Templates: texts with holes of a fixed length, a range of lengths, or any length. Needs no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from redraft.tasks.arguments.setting import ArgumentError

HOLE = re.compile(r"\[\[([^\[\]]*)\]\]")
_RANGE = re.compile(r"(\d{1,9})\s*[-–]\s*(\d{1,9})", re.ASCII)
_FORMS = "write [[?]] for a word, [[3]] for three tokens, [[2-6]] for two to six, or [[*]] for any number"
_WORD = 4  # most tokens of a word


@dataclass(frozen=True)
class Hole:
    """A gap of `least` to `most` tokens to fill; any number if `most` is None."""

    least: int
    most: int | None
    is_word: bool = False  # whether it gets a single word

    @property
    def sized(self) -> bool:
        """Whether its length is fixed."""
        return self.least == self.most

    def __str__(self) -> str:
        if self.is_word:
            return "[[?]]"
        inside = str(self.most) if self.sized else "*" if self.most is None else f"{self.least}-{self.most}"
        return f"[[{inside}]]"

    @classmethod
    def parse(cls, inside: str) -> Hole:
        """Parses the content of the brackets: "?", "3", "2-6" or "*"."""
        if inside == "?":
            return cls(1, _WORD, is_word=True)
        if inside == "*":
            return cls(0, None)
        if inside.isdecimal() and int(inside[:999]):
            if len(inside) > 9:
                raise ArgumentError(
                    "templates", f"the hole [[{inside}]] is too long; use fewer tokens, for example [[3]]"
                )
            return cls(int(inside), int(inside))
        if (ends := _RANGE.fullmatch(inside)) is None:
            raise ArgumentError("templates", f"the hole [[{inside}]] has no length; {_FORMS}")
        least, most = int(ends[1]), int(ends[2])
        if least > most or not most:
            raise ArgumentError("templates", f"the hole [[{inside}]] has an empty range of lengths; {_FORMS}")
        return cls(least, most)


@dataclass(frozen=True)
class Template:
    """A text with holes between its given parts: one part more than holes, and some parts may be empty."""

    parts: tuple[str, ...]
    holes: tuple[Hole, ...]

    def __post_init__(self) -> None:
        if not self.holes:
            raise ArgumentError("templates", f"{self.text!r:.60} has no hole; {_FORMS}")

    @classmethod
    def parse(cls, text: str) -> Template:
        """Parses a text such as "a [[3]] b [[*]]"; everything in double brackets is a hole."""
        return cls(tuple(HOLE.split(text)[::2]), tuple(map(Hole.parse, HOLE.findall(text))))

    @property
    def text(self) -> str:
        """The text with its holes in brackets, as `parse` reads it."""
        return "".join(part + hole for part, hole in zip(self.parts, (*map(str, self.holes), ""), strict=True))


def require_holes(template: str) -> None:
    """Raises unless a template has at least one hole and every hole has a valid length."""
    Template.parse(template)
