"""Templates: a text with holes, of a known length, of a range, of any length. Needs no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from redraft.tasks.arguments.rules import ArgumentError

HOLE = re.compile(r"\[\[([^\[\]]*)\]\]")
_RANGE = re.compile(r"(\d{1,9})\s*[-–]\s*(\d{1,9})", re.ASCII)
_FORMS = "write [[n]] for n tokens, say [[3]], [[2-6]] for two to six, or [[*]] for any number"


@dataclass(frozen=True)
class Hole:
    """From `least` to `most` tokens that are missing; most is None: any number."""

    least: int
    most: int | None

    @property
    def sized(self) -> bool:
        """Whether its length is known."""
        return self.least == self.most

    def __str__(self) -> str:
        inside = str(self.most) if self.sized else "*" if self.most is None else f"{self.least}-{self.most}"
        return f"[[{inside}]]"

    @classmethod
    def parse(cls, inside: str) -> Hole:
        """What stands between the brackets: "3", "2-6" or "*"."""
        if inside == "*":
            return cls(0, None)
        if inside.isdecimal() and int(inside[:999]):
            if len(inside) > 9:
                raise ArgumentError(
                    "templates", f"the hole [[{inside}]] is too long; a hole has some tokens, say [[3]]"
                )
            return cls(int(inside), int(inside))
        if (ends := _RANGE.fullmatch(inside)) is None:
            raise ArgumentError("templates", f"the hole [[{inside}]] has no length; {_FORMS}")
        least, most = int(ends[1]), int(ends[2])
        if least > most or not most:
            raise ArgumentError("templates", f"the hole [[{inside}]] ends before it begins; {_FORMS}")
        return cls(least, most)


@dataclass(frozen=True)
class Template:
    """A text with holes; what is given stands around them: one part more than there are holes, some perhaps empty."""

    parts: tuple[str, ...]
    holes: tuple[Hole, ...]

    def __post_init__(self) -> None:
        if not self.holes:
            raise ArgumentError("templates", f"{self.text!r:.60} has no hole; {_FORMS}")

    @classmethod
    def parse(cls, text: str) -> Template:
        """ "a [[3]] b [[*]]": anything in double brackets is a hole."""
        return cls(tuple(HOLE.split(text)[::2]), tuple(map(Hole.parse, HOLE.findall(text))))

    @property
    def text(self) -> str:
        """As one would write it, with [[n]] for its holes."""
        return "".join(part + hole for part, hole in zip(self.parts, (*map(str, self.holes), ""), strict=True))


def require_holes(template: str) -> None:
    """Raises unless a template has holes, each with a length."""
    Template.parse(template)
