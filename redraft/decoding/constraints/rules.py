"""Rules that a text must obey. `a & b` requires both; `a | b` requires at least one (only for rules about the text)."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce

from redraft.decoding.constraints import dfa
from redraft.decoding.constraints.compiler import _compile_regex
from redraft.decoding.constraints.dfa import _Dfa
from redraft.decoding.constraints.schema.compile import compile_schema


class Rule(ABC):
    """A constraint on a text, or on its number of tokens."""

    def __and__(self, other: Rule) -> Rule:
        return AllOf((*self.conjuncts, *other.conjuncts))

    @abstractmethod
    def automaton(self) -> _Dfa:
        """Build an automaton on bytes that accepts the texts that obey the rule."""

    @property
    def length(self) -> Length:
        """The allowed number of tokens."""
        return Length()

    @property
    def conjuncts(self) -> tuple[Rule, ...]:
        """The rules that must all hold: those of `a & b`, else the rule itself."""
        return (self,)

    @property
    def json(self) -> Json | None:
        """The JSON schema that the text follows; None if there is none."""
        return None


class TextRule(Rule):
    """A rule about the text itself, independent of its tokenization."""

    def __or__(self, other: TextRule) -> TextRule:
        return AnyOf((self, other))


@dataclass(frozen=True)
class Regex(TextRule):
    """The whole text matches a regular expression.

    The syntax is Rust's, which is nearly Python's: no look-around, no backreferences, no \\b. \\d and \\w cover all of
    Unicode, and `.` is any character but a line break. ^ and $ at the ends are ignored, because the whole text is
    always matched; for "contains" write .*dragon.*
    """

    pattern: str

    def __post_init__(self) -> None:
        _require_text(self.pattern, "a pattern")

    def automaton(self) -> _Dfa:
        return _compile_regex(self.pattern)


@dataclass(frozen=True)
class Json(TextRule):
    """The text is JSON that follows a schema: a mapping, a JSON string, a pydantic model or a dataclass.

    The compiled schema is exact: every text is valid, and a keyword that cannot be obeyed exactly is an error that
    names it. The JSON is on one line, with keys in the order of the schema and at most one space between its parts.
    Properties that the schema does not mention are written only if it speaks of them (`additionalProperties`,
    `patternProperties`). Schemas that contain themselves end after six levels, counted strings after 64 characters and
    counted arrays after 8 items, earlier if the schema is large (`left_out`).
    """

    schema: str
    kind: type | None = None  # the class that the schema was made from

    def __init__(self, schema: str | Mapping[str, object] | type) -> None:
        kind = schema if isinstance(schema, type) else None
        object.__setattr__(self, "kind", kind)
        schema = schema if kind is None else _schema_of_class(kind)
        object.__setattr__(self, "schema", schema if isinstance(schema, str) else _schema_json(schema))
        _require_text(self.schema, "a JSON schema")
        try:
            parsed = json.loads(self.schema)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the JSON schema is not JSON: {error}; give an object such as {_EXAMPLE}") from None
        if not isinstance(parsed, dict):
            raise ValueError(f"the JSON schema is {self.schema:.60}; give an object such as {_EXAMPLE}")

    def automaton(self) -> _Dfa:
        return compile_schema(self.schema).dfa

    @property
    def json(self) -> Json:
        return self

    @property
    def left_out(self) -> tuple[str, ...]:
        """Optional properties that are missing in some objects, because the automaton would be too large with them."""
        return compile_schema(self.schema).left_out

    def parse(self, text: str) -> object:
        """Read a text that obeys: an object of the class that the schema was made from, or plain data."""
        if self.kind is None:
            return json.loads(text)
        import pydantic

        return pydantic.TypeAdapter(self.kind).validate_json(text)

    def __str__(self) -> str:
        return f"Json({self.schema})" if len(self.schema) <= 80 else f"Json({self.schema[:77]}…)"


_EXAMPLE = '{"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}'


def _schema_of_class(kind: type) -> Mapping[str, object]:
    """The JSON schema of a pydantic model or a dataclass."""
    if not (dataclasses.is_dataclass(kind) or hasattr(kind, "model_json_schema")):
        raise ValueError(f"the JSON schema is {kind!r:.60}; give a pydantic model, a dataclass, or {_EXAMPLE}")
    if importlib.util.find_spec("pydantic") is None:
        raise ValueError("the schema of a dataclass needs an extra package: pip install pydantic")
    import pydantic

    return pydantic.TypeAdapter(kind).json_schema()


def _schema_json(schema: object) -> str:
    if not isinstance(schema, Mapping):
        raise ValueError(f"the JSON schema is {schema!r:.60}; give an object such as {_EXAMPLE}")
    try:
        return json.dumps(dict(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the JSON schema is not JSON: {error}; give an object such as {_EXAMPLE}") from None


@dataclass(frozen=True)
class OneOf(TextRule):
    """The text is one of these texts."""

    texts: tuple[str, ...]

    def __init__(self, *texts: str) -> None:
        object.__setattr__(self, "texts", _words(texts, "OneOf", "text"))

    def automaton(self) -> _Dfa:
        return dfa._literals(self.texts)


@dataclass(frozen=True)
class Banned(TextRule):
    """The text contains none of these words, in exactly this spelling.

    "cat" forbids "a cat!" but not "concatenate". A word next to a non-ASCII character is forbidden too, since that may
    be a quotation mark.
    """

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        object.__setattr__(self, "words", _words(words, "Banned", "word"))

    def automaton(self) -> _Dfa:
        return dfa._complement(dfa._containing_word(self.words, accents_join=False))


@dataclass(frozen=True)
class Required(TextRule):
    """The text contains each of these words, in exactly this spelling and not as part of a longer word."""

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        object.__setattr__(self, "words", _words(words, "Required", "word"))

    def automaton(self) -> _Dfa:
        return reduce(dfa._intersection, (dfa._containing_word([word], accents_join=True) for word in self.words))


@dataclass(frozen=True)
class Length(Rule):
    """The text has this many tokens, not counting the end token; for characters use Regex(".{5,10}")."""

    least: int = 0
    most: int | None = None  # None for no limit

    def __post_init__(self) -> None:
        for name, value in (("least", self.least), ("most", self.most)):
            if value is not None and (not isinstance(value, int) or value < 0):
                raise ValueError(f"{name}={value!r}; it must be a whole number of tokens, 0 or more")
        if self.most is not None and self.most < self.least:
            raise ValueError(f"least={self.least} is above most={self.most}; it must be at most {self.most}")

    def automaton(self) -> _Dfa:
        return dfa._all_strings()

    @property
    def length(self) -> Length:
        return self

    def intersect(self, other: Length) -> Length:
        """Return the length that obeys both."""
        limits = [most for most in (self.most, other.most) if most is not None]
        return Length(max(self.least, other.least), min(limits) if limits else None)


@dataclass(frozen=True)
class AllOf(Rule):
    """The text obeys all of these rules; made by `&`."""

    rules: tuple[Rule, ...]

    def automaton(self) -> _Dfa:
        automaton = reduce(dfa._intersection, map(compile_rule, self.rules), dfa._all_strings())
        if automaton.empty:
            raise ValueError(f"no text obeys all of {', '.join(map(str, self.rules))}; leave one out")
        return automaton

    @property
    def length(self) -> Length:
        return reduce(Length.intersect, (rule.length for rule in self.rules), Length())

    @property
    def conjuncts(self) -> tuple[Rule, ...]:
        return self.rules

    @property
    def json(self) -> Json | None:
        return next((rule.json for rule in self.rules if rule.json is not None), None)


@dataclass(frozen=True)
class AnyOf(TextRule):
    """The text obeys at least one of these rules; made by `|`."""

    rules: tuple[TextRule, ...]

    def automaton(self) -> _Dfa:
        return reduce(dfa._union, map(compile_rule, self.rules))


@dataclass(frozen=True)
class Between(Rule):
    """The text is given text, then a text that obeys a rule (any text without one), then given text again.

    For holes whose first or last token also contains given text.
    """

    before: str
    rule: Rule | None
    after: str
    tokens: int = 0  # number of tokens allowed in addition to those of the rule

    def __str__(self) -> str:
        return f"{self.before!r} … {self.after!r}" if self.rule is None else str(self.rule)

    def automaton(self) -> _Dfa:
        inner = dfa._all_strings() if self.rule is None else compile_rule(self.rule)
        return dfa._between(inner, self.before.encode(), self.after.encode())

    @property
    def length(self) -> Length:
        inner = Length() if self.rule is None else self.rule.length
        return Length(inner.least, None if inner.most is None else inner.most + self.tokens)

    @property
    def json(self) -> Json | None:
        return None if self.rule is None else self.rule.json


def as_rule(given: object) -> Rule:
    """Return a rule, or the JSON schema of a class."""
    if isinstance(given, Rule):
        return given
    if isinstance(given, type):
        return Json(given)
    raise ValueError(f"{given!r:.60} is not a rule; give one, such as Regex('[a-z]+') or Json(schema), or a class")


@lru_cache(256)
def compile_rule(rule: Rule) -> _Dfa:
    """Return the automaton of a rule; compiled automata are cached."""
    return rule.automaton()


def _words(words: tuple[str, ...], name: str, kind: str) -> tuple[str, ...]:
    if not words:
        raise ValueError(f"{name}() is empty; give at least one {kind}")
    for word in words:
        _require_text(word, f"a {kind}")
        if not word and name != "OneOf":
            raise ValueError(f"{name} got an empty {kind}, which every text contains; leave it out")
    return tuple(dict.fromkeys(words))


def _require_text(value: object, name: str) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.60} is not {name}; give a string")
    try:
        value.encode()
    except UnicodeError as error:
        raise ValueError(f"{name} has a lone surrogate, which is not valid UTF-8: {value!r:.60}") from error
