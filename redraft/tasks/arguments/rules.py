"""Constraints on generated text: their settings, which need no torch, and how they are placed on a canvas."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from redraft.tasks.arguments.setting import ArgumentError, Checked, _show_value, _texts_of, setting

if TYPE_CHECKING:
    from torch import Tensor

    from redraft.core.canvas import Canvas
    from redraft.decoding.constraints.rules import Json, Rule
    from redraft.models.diffusion_lm import DiffusionLM


@dataclass(frozen=True)
class RowRules:
    """The rules of a row: one that each of its holes obeys, or one for each hole."""

    rule: Rule | None = None
    holes: tuple[tuple[int, Rule | None], ...] | None = None  # (tokens, rule) of each; None if `rule` holds for all

    def of_hole(self, index: int) -> Rule | None:
        """The rule of one hole; None if it has none."""
        if self.holes is None:
            return self.rule
        return self.holes[index][1] if index < len(self.holes) else None

    @property
    def schemas(self) -> tuple[Json | None, ...]:
        """The JSON schema of the text, or of each hole."""
        rules = (self.rule,) if self.holes is None else (rule for _, rule in self.holes)
        return tuple(None if rule is None else rule.json for rule in rules)

    @property
    def hole_of_column(self) -> list[int] | None:
        """The hole index of each column to write; None if given text separates the holes."""
        if self.holes is None:
            return None
        return [hole for hole, (tokens, _) in enumerate(self.holes) for _ in range(tokens)]


def _read_patterns(name: str, given: Any) -> tuple[Any, ...]:
    """One pattern, a list of patterns (None for no constraint), or a list of such lists; then all are tuples."""
    listed = [] if given is None else [given] if isinstance(given, str) else given
    try:
        patterns = tuple(map(_as_pattern, listed))
    except TypeError:
        raise ArgumentError(name, f"{name}={_show_value(given)}: it must be a text, or a list of texts") from None
    by_hole = any(isinstance(pattern, tuple) for pattern in patterns)
    return tuple(pattern if isinstance(pattern, tuple) else (pattern,) for pattern in patterns) if by_hole else patterns


def _as_pattern(given: Any, inside: bool = False) -> Any:
    """A pattern, None, or a list of them as a tuple."""
    if given is None or isinstance(given, str):
        return given
    if inside or not isinstance(given, list | tuple):
        raise TypeError
    return tuple(_as_pattern(pattern, True) for pattern in given)


def _read_schema(name: str, given: Any) -> Any:
    """A schema given as a mapping becomes JSON text."""
    try:
        return json.dumps(dict(given)) if isinstance(given, Mapping) else given
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(name, f"{name}=…: it is not JSON: {error}") from None


def _read_words(name: str, given: Any) -> tuple[str, ...]:
    """One word or a list of words as a tuple."""
    if (words := _texts_of(given)) is None or not all(map(str.strip, words)):
        raise ArgumentError(name, f"{name}={_show_value(given)}: give a list of words, none of them empty")
    return words


@dataclass(frozen=True)
class _RuleSettings(Checked):
    """Constraints on the generated text. Prompts do not count; each hole is constrained separately."""

    pattern: tuple[str, ...] = setting(
        (),
        'A regular expression that the whole generated text must match, e.g. "[A-Z].*[.]". Repeat the '
        "flag to give one per prompt or hole. In Python also a list, with None for no constraint, or a list "
        "of lists for several templates.",
        metavar="REGEX",
        repeats=True,
        read=_read_patterns,
        group="Constraints",
    )
    schema: str | None = setting(
        None,
        "A JSON schema that the generated text must satisfy; on the command line also a file that holds it.",
        metavar="JSON",
        mapping=True,
        read=_read_schema,
        group="Constraints",
    )
    banned: tuple[str, ...] = setting(
        (), "Words the text must not contain.", metavar="WORD", read=_read_words, group="Constraints"
    )
    required: tuple[str, ...] = setting(
        (), "Words the text must contain.", metavar="WORD", read=_read_words, group="Constraints"
    )
    constraint: Any = None  # only in Python: a rule, or a pydantic model or dataclass whose JSON is written

    @property
    def every_pattern(self) -> tuple[str, ...]:
        """All patterns of all prompts and holes."""
        rows = self.pattern if self._by_hole else (self.pattern,)
        return tuple(pattern for row in rows for pattern in row if pattern is not None)

    @property
    def _by_hole(self) -> bool:
        """Whether each template has a list of patterns, one per hole."""
        return any(isinstance(pattern, tuple) for pattern in self.pattern)

    @property
    def ruled(self) -> bool:
        """Whether there is any constraint."""
        given = self.pattern or self.schema is not None or self.banned or self.required
        return bool(given) or self.constraint is not None

    def rules(self, prompts: int) -> tuple[RowRules, ...]:
        """One rule for each prompt."""
        if self._by_hole:
            raise ArgumentError("pattern", "pattern=…: lists of patterns within a list are for the holes of templates")
        return tuple(RowRules(self._rule(pattern)) for pattern in self._repeat(self.pattern, prompts, "prompts"))

    def hole_rules(self, template: int, templates: int, holes: int) -> tuple[Rule | None, ...]:
        """One rule for each hole of a template, which is number `template` of `templates`."""
        patterns: Any = self._repeat(self.pattern, templates, "templates")[template] if self._by_hole else self.pattern
        return tuple(map(self._rule, self._repeat(patterns, holes, "holes")))

    def _repeat(self, patterns: tuple[Any, ...], count: int, noun: str) -> tuple[Any, ...]:
        """`count` patterns: a single one is repeated."""
        if len(patterns) in (0, 1):
            return (patterns or (None,)) * count
        if len(patterns) != count:
            raise ArgumentError("pattern", f"pattern=…: {len(patterns)} patterns for {count} {noun}; give one for each")
        return patterns

    def _rule(self, pattern: str | None) -> Rule | None:
        """All constraints as one rule; None if there are none."""
        from redraft.decoding.constraints.rules import Banned, Json, Regex, Required, as_rule

        makers: list[tuple[str, Any, Any]] = [
            ("pattern", pattern, Regex),
            ("schema", self.schema, Json),
            ("banned", self.banned or None, lambda words: Banned(*words)),
            ("required", self.required or None, lambda words: Required(*words)),
            ("constraint", self.constraint, as_rule),
        ]
        rules = [_make_rule(name, make, value) for name, value, make in makers if value is not None]
        return reduce(and_, rules) if rules else None


def _make_rule(name: str, make: Any, value: Any) -> Any:
    try:
        return make(value)
    except ValueError as error:
        raise ArgumentError(name, f"{name}=…: {error}") from None


def with_rules(model: DiffusionLM, canvas: Canvas, rules: Sequence[RowRules], size: int | None = None) -> Canvas:
    """The canvas with the rules of each row; columns from `size` on are not part of the text."""
    from redraft.decoding.constraints.placement import constrain

    assert model.tokenizer is not None
    tokens = model.to_tokens(canvas)
    holes = _hole_of_column(tokens, rules, size)
    for hole in range(max(1, int(holes.max()) + 1)):
        hole_rules = [row.of_hole(hole) for row in rules]
        tokens = constrain(tokens, hole_rules, model.tokenizer, holes == hole)
    return canvas.with_constraints(rules=model.to_vectors(tokens).context.constraints.rules)


def _hole_of_column(canvas: Canvas, rules: Sequence[RowRules], size: int | None) -> Tensor:
    """(B, L) index of the hole that each column is in; −1 outside of holes."""
    import torch

    from redraft.decoding.constraints.placement import hole_indices

    index = hole_indices(canvas)
    for row, row_rules in enumerate(rules):
        if (indices := row_rules.hole_of_column) is not None:
            free = (~canvas.fixed[row]).nonzero().squeeze(-1)
            index[row] = -1
            index[row, free[: len(indices)]] = torch.tensor(indices, dtype=index.dtype, device=index.device)[
                : len(free)
            ]
    return index if size is None else torch.where(torch.arange(index.shape[1], device=index.device) < size, index, -1)
