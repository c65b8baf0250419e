"""Templates: a text with holes, of a known length, of a range, of any length. Needs no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from redraft.write.ruled import ArgumentError

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

    text: str

    @cached_property
    def parts(self) -> tuple[str, ...]:
        return tuple(HOLE.split(self.text)[::2])

    @cached_property
    def holes(self) -> tuple[Hole, ...]:
        return tuple(map(Hole.parse, HOLE.findall(self.text)))


def require_holes(template: str) -> None:
    """Raises unless a template has holes, each with a length."""
    if not Template(template).holes:
        raise ArgumentError("templates", f"{template!r:.60} has no hole; {_FORMS}")
