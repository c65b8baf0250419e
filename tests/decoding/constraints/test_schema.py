"""JSON schemas: every text is valid, judged by the package `jsonschema`; inside the limits every valid value is one."""

from __future__ import annotations

import itertools
import json
import random
import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings, strategies as st

from bench.schemas import Reader, Walk, oracle
from redraft.decoding.constraints.rules import Json, Length, Regex, compile_rule
from redraft.decoding.constraints.schema.compile import _CompiledSchema, compile_schema
from redraft.decoding.constraints.schema.strings import formats
from redraft.decoding.constraints.schema.strings.numbers import _format_number, _integers, _less_than, _multiple_of
from redraft.decoding.constraints.schema.strings.patterns import _pattern_formula
from redraft.decoding.constraints.schema.strings.words import _holds
from tests.decoding.constraints.schemas import (
    ARRAYS,
    IMPOSSIBLE,
    MIXED,
    NUMBERS,
    OBJECTS,
    REFUSED,
    SCHEMAS,
    STRINGS,
    VALUES,
)


def compiled(schema: Any) -> _CompiledSchema:
    return compile_schema(json.dumps(schema))


def invalid_texts(schema: Any, count: int, draw: random.Random) -> list[bytes]:
    walk, truth = Walk(compiled(schema).dfa), oracle(schema)
    texts = [walk.text(draw, (0, 30, 100, 250)[i % 4]) for i in range(count)]
    return [text for text in texts if not truth.is_valid(json.loads(text))]


def accepted(schema: Any) -> list[Any]:
    reader = Reader(compiled(schema).dfa)
    return [value for value in VALUES if reader.accepts(value)]


def test_there_are_enough_schemas() -> None:
    assert len({json.dumps(schema) for schema in SCHEMAS}) >= 150


def test_texts_of_own_schemas_are_valid() -> None:
    draw = random.Random(0)
    assert {json.dumps(schema): wrong for schema in SCHEMAS if (wrong := invalid_texts(schema, 16, draw))} == {}


def test_only_valid_values_are_accepted_and_nearly_all_of_them() -> None:
    valid = wrong = missing = 0
    for schema in SCHEMAS:
        found, truth = accepted(schema), oracle(schema)
        wrong += sum(not truth.is_valid(value) for value in found)
        valid += sum(map(truth.is_valid, VALUES))
        missing += sum(map(truth.is_valid, VALUES)) - len(found)
    assert wrong == 0
    assert missing < 0.15 * valid  # names that no schema mentions, items that differ, formats the oracle does not check


def test_numbers_are_compared_exactly() -> None:
    values = [*map(Decimal, range(-1200, 1201, 7)), *(Decimal(i) / 1000 for i in range(-2500, 2500, 13))]
    for bound in map(Decimal, ("0", "1", "-1", "10", "359", "-359", "0.5", "-0.5", "1.25", "-12.34", "0.001", "1E+2")):
        around = [*values, *(bound + Decimal(i) / 100 for i in range(-30, 31)), bound, -bound]
        for value in around:
            assert _holds(_less_than(bound, False), _format_number(value)) == (value < bound), (value, bound)
            assert _holds(_less_than(bound, True), _format_number(value)) == (value <= bound), (value, bound)
    for divisor in map(Decimal, ("1", "2", "3", "7", "10", "0.5", "0.01", "0.25", "1.5", "1E+2")):
        assert all(_holds(_multiple_of(divisor), _format_number(value)) == (value % divisor == 0) for value in values)
    assert all(_holds(_integers(), _format_number(value)) == (value == value.to_integral_value()) for value in values)


PATTERNS = (
    *("a", "^a", "a$", "^a$", "^a|b$", "(a|b)*abb", "^(?=a)b|b", "^(?!a)[ab]{2}", "a{2,3}$", "^$", "", "(^a|b)c?$"),
    *(
        "[^a]b",
        "(^|b)a($|c)",
        "^(ab?)+$",
        "a.c",
        "x*",
        "^(?=.*a)(?=.*b)[ab]{2,3}$",
        "^(?:a|b){1,}?c",
        "[a-b]$",
        "^.{2}$",
    ),
)


def test_patterns_match_what_re_finds() -> None:
    texts = ["".join(letters) for n in range(5) for letters in itertools.product("abc", repeat=n)]
    for pattern in PATTERNS:
        assert [t for t in texts if _holds(_pattern_formula(pattern), t)] == [t for t in texts if re.search(pattern, t)]


SMALL = [*NUMBERS[:12], *STRINGS[:10], *ARRAYS[1:14], *MIXED[:8], *(s for s in OBJECTS if "additionalProperties" in s)]


def test_combinations_are_those_of_sets() -> None:
    """Each value is accepted by `allOf`, `anyOf`, `oneOf` and `not` as its truth under the parts says."""
    draw, decided = random.Random(1), 0
    for one, other in (draw.sample(SMALL, 2) for _ in range(40)):
        a, b = oracle(one), oracle(other)
        truth = {"allOf": lambda x, y: x and y, "anyOf": lambda x, y: x or y, "oneOf": lambda x, y: x != y}
        for keyword, holds in truth.items():
            try:
                reader = Reader(compiled({keyword: [one, other]}).dfa)
            except ValueError:
                assert keyword == "allOf"  # nothing obeys both
                continue
            found = [value for value in VALUES if reader.accepts(value)]
            assert all(holds(a.is_valid(value), b.is_valid(value)) for value in found), (keyword, one, other)
            decided += len(found)
    assert decided > 1000


def test_formats_are_inside_of_what_checkers_accept() -> None:
    samples = {
        "date": ("2024-02-29", "2023-02-29"), "time": ("12:30:00.5Z", "24:00:00Z"), "uuid": ("0" * 8, "x"),
        "date-time": ("2024-01-31T00:00:00+01:00", "2024-01-31"), "ipv4": ("127.0.0.1", "1.2.3.256"),
        "ipv6": ("fe80::1", "1::2::3"), "email": ("a.b@c-d.org", "a@"), "hostname": ("a-b.org", "-a"),
        "uri": ("https://a.org/b?c=%20#d", "a b"), "json-pointer": ("/a~1b", "a"), "duration": ("P1DT2H", "P"),
    }  # fmt: skip
    for name, (good, bad) in samples.items():
        assert name in formats._FORMATS
        reader = Reader(compiled({"type": "string", "format": name}).dfa)
        assert reader.accepts(good) or name == "uuid"
        assert not reader.accepts(bad)


def test_what_cannot_be_obeyed_is_refused_by_name_and_place() -> None:
    for schema, keyword, pointer in REFUSED:
        with pytest.raises(ValueError, match=re.escape(f"exactly: {keyword!r} at {pointer} ")) as error:
            compiled(schema)
        assert "\n" not in str(error.value)


def test_a_schema_that_nothing_obeys_is_refused() -> None:
    """The error names the keyword without which some text would obey, or the schema would fit."""
    for schema, keyword, pointer in IMPOSSIBLE:
        with pytest.raises(ValueError, match=f"without {keyword!r} at {re.escape(pointer)} (some|it) would") as error:
            compiled(schema)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="no text that Redraft can write obeys the JSON schema; check what"):
        compiled(False)


def test_names_that_no_schema_mentions_are_counted_if_they_differ() -> None:
    """Groups of names, by the last character or the first, prove that several names differ."""
    for names, least in (
        ({}, 6),
        ({"propertyNames": {"pattern": "^x-[a-z]+$"}}, 4),
        ({"propertyNames": {"format": "uuid"}}, 2),
    ):
        schema = {"type": "object", "minProperties": least, "additionalProperties": {"type": "boolean"}, **names}
        walk, draw = Walk(compiled(schema).dfa), random.Random(0)
        assert all(len(json.loads(walk.text(draw, 10 * i))) >= least for i in range(20))


def test_what_does_not_fit_is_left_out_and_named() -> None:
    wide = {"type": "string", "maxLength": 60}
    fields = {f"field {i}": wide for i in range(90)}
    found = compiled({"type": "object", "properties": fields, "required": ["field 0"]})
    assert found.limits.characters < 64  # longer strings were given up first
    deep: dict[str, Any] = {"type": "object", "properties": {f"f{i}": {"type": "string"} for i in range(8)}}
    for _ in range(4):
        deep = {"type": "object", "properties": {f"p{i}": deep for i in range(5)} | {"kind": {"const": 1}}}
    found = compiled({**deep, "required": ["kind"]})
    assert found.left_out
    assert invalid_texts(deep, 8, random.Random(0)) == []


def test_free_names_are_never_those_of_the_schema() -> None:
    """Nor those of properties that were left out: any value would do for them."""
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "additionalProperties": {"type": "string"}}
    reader = Reader(compiled(schema).dfa)
    assert reader.accepts({"a": 1, "b": "x"})
    assert not reader.accepts({"a": "x"})


def test_readings_of_other_drafts_are_obeyed_too() -> None:
    """Keywords that the named draft does not know yet, or that it ignores beside a reference."""
    reader = Reader(compiled({"$schema": "http://json-schema.org/draft-04/schema#", "const": 3}).dfa)
    assert (reader.accepts(3), reader.accepts(4)) == (True, False)
    beside = {"$ref": "#/definitions/a", "minimum": 1, "definitions": {"a": {"maximum": 3}}}
    reader = Reader(compiled({"$schema": "http://json-schema.org/draft-07/schema#", **beside}).dfa)
    assert [value for value in range(-1, 6) if reader.accepts(value)] == [1, 2, 3]


@dataclass
class Invoice:
    number: int
    paid: bool = False
    lines: list[str] = field(default_factory=list)


class Model(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(ge=0, le=150)
    invoice: Invoice | None = None


def test_classes_are_schemas() -> None:
    """And rules about JSON combine with others."""
    reader = Reader(compile_rule(Json(Model)))
    assert reader.accepts({"name": "A", "age": 150, "invoice": {"number": 1, "paid": True, "lines": ["x"]}})
    assert not reader.accepts({"name": "A", "age": 151})
    assert Reader(compile_rule(Json(Invoice) & Regex(".*7.*") & Length(4))).accepts({"number": 17})
    with pytest.raises(ValueError, match="no text obeys all of"):
        compile_rule(Json({"type": "integer"}) & Regex("[a-z]+"))


# --- schemas made by hypothesis ---

NAMES = st.sampled_from(["a", "b", "ab", "é"])
LEAVES = st.one_of(
    st.sampled_from([True, {"type": "null"}, {"type": "boolean"}, {"const": 1}, {"enum": ["a", 2, None]}]),
    st.builds(
        lambda a, b: {"type": "integer", "minimum": a, "maximum": a + b}, st.integers(-50, 50), st.integers(0, 99)
    ),
    st.builds(lambda a: {"exclusiveMaximum": a / 8, "type": "number"}, st.integers(-99, 99)),
    st.builds(
        lambda a, b: {"type": "string", "minLength": a, "maxLength": a + b}, st.integers(0, 3), st.integers(0, 5)
    ),
    st.sampled_from(["^a+$", "b", "^[^b]*$", "^(a|bc){2}$"]).map(
        lambda pattern: {"type": "string", "pattern": pattern}
    ),
    st.sampled_from(["date", "uuid", "ipv4"]).map(lambda name: {"type": "string", "format": name}),
    st.builds(lambda a: {"multipleOf": a}, st.sampled_from([2, 5, 0.5, 0.25])),
)


def _structures(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(NAMES, inner, max_size=3)
    return st.one_of(
        st.builds(
            lambda properties, required, rest: {"properties": properties, "required": required} | rest,
            named,
            st.lists(NAMES, max_size=2, unique=True),
            st.one_of(
                st.just({}), inner.map(lambda rest: {"additionalProperties": rest}), st.just({"maxProperties": 2})
            ),
        ),
        st.builds(lambda names, more: {"patternProperties": names} | more, named, st.just({"type": "object"})),
        st.builds(lambda item, least: {"type": "array", "items": item, "minItems": least}, inner, st.integers(0, 2)),
        st.builds(lambda items, item: {"prefixItems": items, "items": item}, several, inner),
        st.builds(lambda item, most: {"contains": item, "maxContains": most}, inner, st.integers(1, 2)),
        st.builds(lambda keyword, parts: {keyword: parts}, st.sampled_from(["allOf", "anyOf", "oneOf"]), several),
        st.builds(
            lambda part, kinds: {"not": part, "type": kinds}, inner, st.sampled_from(["object", "string", "array"])
        ),
        st.builds(lambda a, b, c: {"if": a, "then": b, "else": c}, inner, inner, inner),
    )


@settings(max_examples=120, deadline=None, derandomize=True)
@given(st.recursive(LEAVES, _structures, max_leaves=6))
def test_texts_of_made_up_schemas_are_valid(schema: Any) -> None:
    truth = oracle(schema)
    try:
        found = compiled(schema)
    except ValueError:
        return  # nothing obeys it, or it is too large
    assert invalid_texts(schema, 6, random.Random(0)) == []
    reader = Reader(found.dfa)
    assert all(truth.is_valid(value) for value in VALUES[::2] if reader.accepts(value))
