"""DiffusionLM: process, network, head and tokenizer in one module – what a checkpoint holds."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class UpTo:
    """A hole of any length, up to a limit: for models of insertion."""

    most: int

    def __post_init__(self) -> None:
        if self.most < 0:
            raise ValueError(f"UpTo({self.most}); a hole has room for no token or more")


_BLANK, _ROOM, _EMPTY = -1, -2, -3  # in a sketch: a token to be written, one that may come, none


def _pieces(template: str, room: int) -> list[str | int | UpTo]:
    """ "a [[3]] b [[*]]" → ["a ", 3, " b ", UpTo(room)]"""
    pieces: list[str | int | UpTo] = []
    for i, part in enumerate(re.split(r"\[\[([^\[\]]*)\]\]", template)):
        if i % 2 == 0:
            pieces.append(part)
        elif part.isdecimal() and int(part) > 0:
            pieces.append(int(part))
        elif part == "*":
            pieces.append(UpTo(room))
        else:
            raise ValueError(f"the hole [[{part}]] has no length; write [[n]] for n tokens, say [[3]], or [[*]]")
    return pieces
