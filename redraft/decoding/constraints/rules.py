"""Rules: what a text must be. Each is a small value; `&` demands both, `|` (of rules about the text) either."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce

from redraft.decoding.constraints import dfa
from redraft.decoding.constraints.compiler import _compile_regex, _compile_schema
from redraft.decoding.constraints.dfa import _Dfa


class Rule(ABC):
    """A rule about a text, or about how many tokens it has."""

    def __and__(self, other: Rule) -> Rule:
        return AllOf((*_parts(self), *_parts(other)))

    @abstractmethod
    def automaton(self) -> _Dfa:
        """The texts that obey the rule, as an automaton on bytes."""

    @property
    def length(self) -> Length:
        """How many tokens the text may have."""
        return Length()


class TextRule(Rule):
    """A rule about the text alone, whatever its tokens."""

    def __or__(self, other: TextRule) -> TextRule:
        return AnyOf((self, other))


@dataclass(frozen=True)
class Regex(TextRule):
    """The whole text matches a regular expression.

    The syntax is that of Rust, nearly Python's: no look-around, no backreferences, no \\b; \\d and \\w know all of
    Unicode, and `.` is any character but a line break. ^ and $ at the ends mean nothing, the text is always matched
    as a whole; for "contains" write .*dragon.*
    """

    pattern: str

    def __post_init__(self) -> None:
        _require_text(self.pattern, "a pattern")

    def automaton(self) -> _Dfa:
        return _compile_regex(self.pattern)


@dataclass(frozen=True)
class Json(TextRule):
    """The text is JSON of a schema, on one line; give the schema as a mapping or as JSON itself.

    Keys come in the order of the schema, at most one space stands between the parts, and nested references end after
    three levels.
    """

    schema: str

    def __init__(self, schema: str | Mapping[str, object]) -> None:
        object.__setattr__(self, "schema", schema if isinstance(schema, str) else _dumped(schema))
        _require_text(self.schema, "a JSON schema")
        try:
            parsed = json.loads(self.schema)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the JSON schema is not JSON: {error}; give an object such as {_EXAMPLE}") from None
        if not isinstance(parsed, dict):
            raise ValueError(f"the JSON schema is {self.schema:.60}; give an object such as {_EXAMPLE}")

    def automaton(self) -> _Dfa:
        return _compile_schema(self.schema)


_EXAMPLE = '{"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}'


def _dumped(schema: object) -> str:
    if not isinstance(schema, Mapping):
        raise ValueError(f"the JSON schema is {schema!r:.60}; give an object such as {_EXAMPLE}")
    try:
        return json.dumps(dict(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the JSON schema is not JSON: {error}") from None


@dataclass(frozen=True)
class OneOf(TextRule):
    """The text is one of these."""

    texts: tuple[str, ...]

    def __init__(self, *texts: str) -> None:
        object.__setattr__(self, "texts", _words(texts, "OneOf", "text"))

    def automaton(self) -> _Dfa:
        return dfa._literals(self.texts)


@dataclass(frozen=True)
class Banned(TextRule):
    """None of these words occurs in the text, spelled exactly like this.

    "cat" forbids "a cat!" but not "concatenate". Beside a character beyond ASCII, which may be a letter or a quotation
    mark, the word is forbidden too.
    """

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        object.__setattr__(self, "words", _words(words, "Banned", "word"))

    def automaton(self) -> _Dfa:
        return dfa._complement(dfa._containing_word(self.words, accents_join=False))


@dataclass(frozen=True)
class Required(TextRule):
    """Each of these words occurs in the text, spelled exactly like this and not as a part of a longer word."""

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        object.__setattr__(self, "words", _words(words, "Required", "word"))

    def automaton(self) -> _Dfa:
        return reduce(dfa._intersection, (dfa._containing_word([word], accents_join=True) for word in self.words))


@dataclass(frozen=True)
class Length(Rule):
    """The number of tokens of the text, without its end token; for characters use Regex(".{5,10}")."""

    least: int = 0
    most: int | None = None  # None: as many as there is room for

    def __post_init__(self) -> None:
        for name, value in (("least", self.least), ("most", self.most)):
            if value is not None and (not isinstance(value, int) or value < 0):
                raise ValueError(f"{name}={value!r}; a text has 0 tokens or more")
        if self.most is not None and self.most < self.least:
            raise ValueError(f"a text of at least {self.least} and at most {self.most} tokens does not exist")

    def automaton(self) -> _Dfa:
        return dfa._all_strings()

    @property
    def length(self) -> Length:
        return self

    def narrowed(self, other: Length) -> Length:
        """Both at once."""
        limits = [most for most in (self.most, other.most) if most is not None]
        return Length(max(self.least, other.least), min(limits) if limits else None)


@dataclass(frozen=True)
class AllOf(Rule):
    """Every one of these rules: what `&` makes."""

    rules: tuple[Rule, ...]

    def automaton(self) -> _Dfa:
        about_text = [_compiled(rule) for rule in self.rules if not isinstance(rule, Length)]
        found = reduce(dfa._intersection, about_text, dfa._all_strings())
        if found.empty:
            raise ValueError(f"no text obeys all of {', '.join(map(str, self.rules))}; leave one out")
        return found

    @property
    def length(self) -> Length:
        return reduce(Length.narrowed, (rule.length for rule in self.rules), Length())


@dataclass(frozen=True)
class AnyOf(TextRule):
    """One of these rules about the text, or several: what `|` makes."""

    rules: tuple[TextRule, ...]

    def automaton(self) -> _Dfa:
        return reduce(dfa._union, map(_compiled, self.rules))


@dataclass(frozen=True)
class WithOptionalSpace(Rule):
    """The text obeys another rule, and a space may stand before it: that of a first token which brings its own."""

    rule: Rule

    def __str__(self) -> str:
        return str(self.rule)

    def automaton(self) -> _Dfa:
        return dfa._with_optional_space(_compiled(self.rule))

    @property
    def length(self) -> Length:
        return self.rule.length


@lru_cache(256)
def _compiled(rule: Rule) -> _Dfa:
    return rule.automaton()


def compile_rule(rule: Rule) -> _Dfa:
    """The automaton of a rule, from memory if it was compiled before."""
    return _compiled(rule)


def _parts(rule: Rule) -> tuple[Rule, ...]:
    return rule.rules if isinstance(rule, AllOf) else (rule,)


def _words(words: tuple[str, ...], name: str, kind: str) -> tuple[str, ...]:
    if not words:
        raise ValueError(f"{name}() has nothing to go by; give at least one {kind}")
    for word in words:
        _require_text(word, f"a {kind}")
        if not word and name != "OneOf":
            raise ValueError(f"{name} got an empty {kind}, which stands in every text")
    return tuple(dict.fromkeys(words))


def _require_text(given: object, what: str) -> None:
    if not isinstance(given, str):
        raise ValueError(f"{given!r:.60} is not {what}; give a string")
    try:
        given.encode()
    except UnicodeError as error:
        raise ValueError(f"{what} has a lone surrogate, which no UTF-8 text has: {given!r:.60}") from error
