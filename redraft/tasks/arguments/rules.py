"""The arguments about what a text must obey, and how a canvas gets the rule; the arguments need no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from tyro.conf import UseAppendAction, arg

if TYPE_CHECKING:
    from torch import Tensor

    from redraft.core.canvas import Canvas
    from redraft.decoding.constraints.rules import Rule
    from redraft.models.diffusion_lm import DiffusionLM

HoleRules: TypeAlias = "tuple[tuple[int, Rule | None], ...]"  # how many tokens each hole has, and what it must obey


class ArgumentError(ValueError):
    """A wrong argument: its name, so that a server can say which one, and one line that says what to do."""

    def __init__(self, argument: str, reason: str) -> None:
        super().__init__(reason)
        self.argument = argument


@dataclass(frozen=True)
class _RuleSettings:
    """What every text must obey; holes by themselves, and beginnings that are given do not count."""

    pattern: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="REGEX", help_behavior_hint="")] = ()
    """A regular expression that what is written matches as a whole, for example "[A-Z][a-z ]+[.]". Given several times:
    one for each prompt, or for each hole. In Python also a list, with None for what is free; for several templates a
    list of such lists."""
    schema: Annotated[str | None, arg(metavar="JSON", help_behavior_hint="")] = None
    """A JSON schema of what is written; on the command line also a file that holds it."""
    banned: Annotated[tuple[str, ...], arg(metavar="WORD")] = ()
    """Words that are not written."""
    required: Annotated[tuple[str, ...], arg(metavar="WORD")] = ()
    """Words that are written."""

    def __post_init__(self) -> None:
        if isinstance(self.schema, Mapping):
            object.__setattr__(self, "schema", _dumped(self.schema))
        object.__setattr__(self, "pattern", _patterns(self.pattern))
        if self.schema is not None and not isinstance(self.schema, str):
            raise ArgumentError("schema", f"schema={self.schema!r:.60}: it must be a text")
        for name in ("banned", "required"):
            object.__setattr__(self, name, _as_tuple(name, getattr(self, name)))

    @property
    def every_pattern(self) -> tuple[str, ...]:
        """The patterns, whichever prompt or hole they are for."""
        return tuple(_flat(self.pattern))

    @property
    def ruled(self) -> bool:
        """Whether there is anything to obey."""
        return bool(self.pattern or self.schema is not None or self.banned or self.required)

    def rules(self, prompts: int) -> tuple[Rule | None, ...]:
        """One rule for each prompt."""
        return tuple(map(self._rule, self._spread(self.pattern, prompts, "prompts")))

    def hole_rules(self, template: int, templates: int, holes: int) -> tuple[Rule | None, ...]:
        """One rule for each hole of a template, of which this one has a number."""
        given: Any = self.pattern
        if any(isinstance(each, tuple) for each in given):
            given = self._spread(given, templates, "templates")[template]
        return tuple(map(self._rule, self._spread(given if isinstance(given, tuple) else (given,), holes, "holes")))

    def _spread(self, given: tuple[Any, ...], count: int, what: str) -> tuple[Any, ...]:
        if len(given) in (0, 1):
            return (given or (None,)) * count
        if len(given) != count:
            raise ArgumentError("pattern", f"pattern=…: {len(given)} patterns for {count} {what}; give one for each")
        return given

    def _rule(self, pattern: str | None) -> Rule | None:
        """All of it as one rule; None if there is none."""
        from redraft.decoding.constraints.rules import AllOf, Banned, Json, Regex, Required

        if isinstance(pattern, tuple):
            raise ArgumentError("pattern", "pattern=…: lists of patterns within a list are for the holes of templates")
        makers: list[tuple[str, Any, Any]] = [
            ("pattern", pattern, Regex),
            ("schema", self.schema, Json),
            ("banned", self.banned or None, lambda words: Banned(*words)),
            ("required", self.required or None, lambda words: Required(*words)),
        ]
        rules = [_made(name, make, value) for name, value, make in makers if value is not None]
        return None if not rules else rules[0] if len(rules) == 1 else AllOf(tuple(rules))


def _patterns(given: Any) -> tuple[Any, ...]:
    """A text, a list of texts (None: free), or a list of such lists; as tuples."""
    listed = (given,) if isinstance(given, str) else () if given is None else given
    if isinstance(listed, tuple | list):
        found = tuple(tuple(each) if isinstance(each, list) else each for each in listed)
        texts = [text for each in found for text in (each if isinstance(each, tuple) else (each,))]
        if all(text is None or isinstance(text, str) for text in texts):
            return found
    raise ArgumentError("pattern", f"pattern={given!r:.60}: it must be a text, or a list of texts")


def _dumped(schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError("schema", f"schema=…: it is not JSON: {error}") from None


def _as_tuple(name: str, given: Any) -> tuple[str, ...]:
    """A word, or a list of words, as a tuple."""
    words = (given,) if isinstance(given, str) else () if given is None else given
    if not isinstance(words, tuple | list) or not all(isinstance(word, str) and word.strip() for word in words):
        raise ArgumentError(name, f"{name}={given!r:.60}: give a list of words, none of them empty")
    return tuple(words)


def _made(name: str, make: Any, value: Any) -> Any:
    try:
        return make(value)
    except ValueError as error:
        raise ArgumentError(name, f"{name}=…: {error}") from None


def with_rules(
    model: DiffusionLM, canvas: Canvas, rules: Sequence[Rule | HoleRules | None], size: int | None = None
) -> Canvas:
    """The canvas with rules on it: for each row one for every hole, or one for each hole.

    Columns from `size` on are not part of the text.
    """
    from redraft.decoding.constraints.placement import constrain

    assert model.tokenizer is not None
    tokens = model.to_tokens(canvas)
    number = _numbered(tokens, rules, size)
    for hole in range(max(1, int(number.max()) + 1)):
        each = [_of_hole(rule, hole) for rule in rules]
        tokens = constrain(tokens, each, model.tokenizer, number == hole)
    marks = model.to_vectors(tokens).context.marks
    return replace(canvas, context=replace(canvas.context, marks=marks))


def _numbered(canvas: Canvas, rules: Sequence[Rule | HoleRules | None], size: int | None) -> Tensor:
    """(B, L) the number of the hole that each column is in; −1: in none."""
    import torch

    from redraft.decoding.constraints.placement import hole_numbers

    number = hole_numbers(canvas)
    for row, holes in enumerate(rules):
        if isinstance(holes, tuple):
            free = (~canvas.fixed[row]).nonzero().squeeze(-1)
            named = [hole for hole, (tokens, _) in enumerate(holes) for _ in range(tokens)]
            number[row] = -1
            number[row, free[: len(named)]] = torch.tensor(named, device=number.device)[: len(free)]
    return (
        number if size is None else torch.where(torch.arange(number.shape[1], device=number.device) < size, number, -1)
    )


def _of_hole(rule: Rule | HoleRules | None, hole: int) -> Rule | None:
    if isinstance(rule, tuple):
        return rule[hole][1] if hole < len(rule) else None
    return rule


def _flat(patterns: Any) -> Iterator[str]:
    for each in patterns:
        if each is not None:
            yield from [each] if isinstance(each, str) else _flat(each)
