"""The arguments about what a text must obey, and how a canvas gets the rule; the arguments need no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

if TYPE_CHECKING:
    from redraft.constraints import Rule
    from redraft.text import Tokenizer
    from redraft.types import Canvas


class ArgumentError(ValueError):
    """A wrong argument: its name, so that a server can say which one, and one line that says what to do."""

    def __init__(self, argument: str, reason: str) -> None:
        super().__init__(reason)
        self.argument = argument


@dataclass(frozen=True)
class Ruled:
    """What every text must obey; holes by themselves, and beginnings that are given do not count."""

    pattern: Annotated[str | None, arg(metavar="REGEX", help_behavior_hint="")] = None
    """A regular expression that what is written matches as a whole, for example "[A-Z][a-z ]+[.]"."""
    schema: Annotated[str | None, arg(metavar="JSON", help_behavior_hint="")] = None
    """A JSON schema of what is written; on the command line also a file that holds it."""
    banned: Annotated[tuple[str, ...], arg(metavar="WORD")] = ()
    """Words that are not written."""
    required: Annotated[tuple[str, ...], arg(metavar="WORD")] = ()
    """Words that are written."""

    def __post_init__(self) -> None:
        if isinstance(self.schema, Mapping):
            object.__setattr__(self, "schema", _dumped(self.schema))
        for name in ("pattern", "schema"):
            if (given := getattr(self, name)) is not None and not isinstance(given, str):
                raise ArgumentError(name, f"{name}={given!r:.60}: it must be a text")
        for name in ("banned", "required"):
            object.__setattr__(self, name, _listed(name, getattr(self, name)))

    def rule(self) -> Rule | None:
        """All of it as one rule; None if there is none."""
        from redraft.constraints import AllOf, Banned, Json, Regex, Required

        makers: list[tuple[str, Any]] = [
            ("pattern", lambda: Regex(self.pattern or "")),
            ("schema", lambda: Json(self.schema or "")),
            ("banned", lambda: Banned(*self.banned)),
            ("required", lambda: Required(*self.required)),
        ]
        rules = [_made(name, make) for name, make in makers if getattr(self, name) not in (None, ())]
        return None if not rules else rules[0] if len(rules) == 1 else AllOf(tuple(rules))


def _dumped(schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError("schema", f"schema=…: it is not JSON: {error}") from None


def _listed(name: str, given: Any) -> tuple[str, ...]:
    words = (given,) if isinstance(given, str) else () if given is None else given
    if not isinstance(words, tuple | list) or not all(isinstance(word, str) and word.strip() for word in words):
        raise ArgumentError(name, f"{name}={given!r:.60}: give a list of words, none of them empty")
    return tuple(words)


def _made(name: str, make: Any) -> Any:
    try:
        return make()
    except ValueError as error:
        raise ArgumentError(name, f"{name}=…: {error}") from None


def obedient(canvas: Canvas, rule: Rule, tokenizer: Tokenizer, size: int | None = None) -> Canvas:
    """The canvas with the rule on every hole; columns from `size` on are not part of the text."""
    import torch

    from redraft.constraints import constrain, hole

    shown = torch.arange(canvas.z.shape[1], device=canvas.z.device) < (canvas.z.shape[1] if size is None else size)
    free = ~canvas.fixed & shown
    holes = int((free & ~torch.nn.functional.pad(free, (1, 0))[:, :-1]).sum(-1).max())
    for number in range(holes):
        canvas = constrain(canvas, rule, tokenizer, hole(canvas, number) & shown)
    return canvas
