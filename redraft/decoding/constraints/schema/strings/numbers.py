"""Constraints on numbers, as sets of canonical texts: `-?(0|[1-9][0-9]*)(\\.[0-9]*[1-9])?`, never -0.

Parsers keep about 15 digits of a number. Where a value is compared, longer numbers are therefore left out, except
integers compared with an integer of at most 15 digits: rounding cannot move them past it.
"""

from __future__ import annotations

import math
from decimal import Decimal
from functools import lru_cache
from typing import Any

from redraft.decoding.constraints.dfa import AutomatonTooLarge
from redraft.decoding.constraints.schema.formula import _all_of, _any_of, _Formula, _not
from redraft.decoding.constraints.schema.strings.expressions import _parse_expression
from redraft.decoding.constraints.schema.strings.patterns import _strings_with_match
from redraft.decoding.constraints.schema.strings.words import (
    _exactly_strings,
    _single_characters,
    _strings_by_steps,
    _with_universe,
)

_DIGITS = 15
_MOST_REMAINDERS = 600  # without factors of 2 and 5, since the last digits decide about these
_LARGEST_DIVISOR = 10_000  # without its decimal point
_LETTERS = _single_characters("-.0123456789")  # 0: minus, 1: point, 2 … 11: digits


def _numbers_matching(expression: str) -> _Formula:
    return _strings_with_match(_parse_expression(expression)[0], expression).all


@lru_cache(1)
def _canonical_numbers() -> _Formula:
    return _all_of([_numbers_matching(r"^-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$"), _not(_numbers_matching("^-0$"))])


@lru_cache(1)
def _short_numbers() -> _Formula:
    return _numbers_matching(rf"^(-|\.)*([0-9]\.?){{1,{_DIGITS}}}$")


@lru_cache(1)
def _short_or_integers() -> _Formula:
    return _any_of([_short_numbers(), _numbers_matching("^-?[0-9]+$")])


@lru_cache(1)
def _nonzero_to_all() -> _Formula:
    """Numbers whose sign is the same after rounding: short ones, and those that no parser rounds to zero."""
    return _any_of([_short_numbers(), _numbers_matching(r"^-?([1-9]|0\.0{0,13}[1-9])")])


@lru_cache(1)
def _integers() -> _Formula:
    return _with_universe(next(iter(_numbers_matching("^-?[0-9]+$").atoms)).words, _short_or_integers()).all


def _comparable_numbers(value: Decimal) -> _Formula:
    """Return the numbers that every parser compares with this value in the same way, despite rounding."""
    if value == 0:
        return _nonzero_to_all()
    return _short_or_integers() if value == value.to_integral_value() and abs(value) < 10**_DIGITS else _short_numbers()


def _format_number(value: Decimal | int) -> str:
    """Format a number in its canonical form."""
    number = Decimal(value)
    if number == 0:
        return "0"
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _number_among(values: list[Decimal | int]) -> _Formula:
    """Return the formula that a number is one of these, of any length; numbers that are rounded to one are left out."""
    exact = all(Decimal(value) == Decimal(value).to_integral_value() and abs(value) < 10**_DIGITS for value in values)
    texts = tuple(dict.fromkeys(map(_format_number, values)))
    rounded = tuple(text for text in map(_rounded_number, texts) if text not in texts)
    words, same = _exactly_strings(texts), _exactly_strings(rounded).all
    known = _all_of([_short_or_integers() if exact else _short_numbers(), _not(same)])
    return _with_universe(words, _any_of([known, words.all])).all


def _rounded_number(text: str) -> str:
    """Return the shortest number that parsers with 64-bit floats round to the same value."""
    return _format_number(Decimal(repr(float(text)))) if math.isfinite(float(text)) else text


@lru_cache(256)
def _less_than(bound: Decimal, or_equal: bool) -> _Formula:
    """Return the formula that a number is below a bound or, with `or_equal`, equal to it."""
    if abs(bound.adjusted()) > 400 and bound != 0:
        raise AutomatonTooLarge("has more than 400 digits")
    text = _format_number(abs(bound))
    whole, _, fraction = text.partition(".")
    compare = _Comparison(whole, fraction, negative=bound < 0)
    accepted = {"<", "="} if or_equal else {"<"}
    words = _strings_by_steps(_LETTERS, compare.start, compare.step, lambda state: compare.order(state) in accepted)
    return _with_universe(words, _comparable_numbers(bound)).all


class _Comparison:
    """Compares a number with a bound, digit by digit. A state is (sign, part, number of digits read in it, order)."""

    start = ("", "whole", 0, "=")

    def __init__(self, whole: str, fraction: str, negative: bool) -> None:
        self.whole, self.fraction, self.negative = whole, fraction, negative

    def step(self, state: Any, letter: int) -> Any | None:
        sign, part, count, order = state
        if letter == 0:
            return ("-", "whole", 0, "=") if state == self.start else None
        if letter == 1:
            return (sign, "fraction", 0, self._ended(count, order)) if part == "whole" else None
        digits, digit = (self.whole if part == "whole" else self.fraction), str(letter - 2)
        if count >= len(digits):
            longer = part == "whole" or digit > "0"
            return sign, part, count, self._late(part, order, longer)
        if order == "=" and digit != digits[count]:
            order = "<" if digit < digits[count] else ">"
        return sign, part, count + 1, order

    def _late(self, part: str, order: str, longer: bool) -> str:
        """Return the order after a digit beyond those of the bound."""
        if part == "whole":
            return "longer"
        return ">" if order == "=" and longer else order

    def _ended(self, count: int, order: str) -> str:
        """Return the order of the whole parts once the number's is complete."""
        return "<" if count < len(self.whole) else ">" if order == "longer" else order

    def order(self, state: Any) -> str:
        """Return the order of the number relative to the bound if it ends here."""
        sign, part, count, order = state
        if part == "whole":
            order, count = self._ended(count, order), 0
        if order == "=" and count < len(self.fraction):
            order = "<"
        if (sign == "-") != self.negative:
            return "<" if sign == "-" else ">"
        return {"<": ">", ">": "<"}.get(order, order) if sign == "-" else order


@lru_cache(64)
def _multiple_of(divisor: Decimal) -> _Formula:
    places = max(0, -int(divisor.normalize().as_tuple().exponent))
    whole = int(divisor.scaleb(places))
    if whole == 1 and places == 0:
        return _integers()
    if _without_factors(whole, 2, 5) * (places + 1) > _MOST_REMAINDERS or whole > _LARGEST_DIVISOR:
        raise AutomatonTooLarge(f"has more than {_MOST_REMAINDERS} remainders or is above {_LARGEST_DIVISOR:,}")

    def step(state: Any, letter: int) -> Any | None:
        remainder, place = state
        if letter == 0:
            return state
        if letter == 1:
            return (remainder, 0)
        if place is not None and place == places:
            return None  # the last digit of a fraction is never 0
        return (10 * remainder + letter - 2) % whole, None if place is None else place + 1

    def final(state: Any) -> bool:
        remainder, place = state
        return remainder * 10 ** (places - (place or 0)) % whole == 0

    return _with_universe(_strings_by_steps(_LETTERS, (0, None), step, final), _short_numbers()).all


def _without_factors(number: int, *factors: int) -> int:
    """Divide a number by these factors as often as possible."""
    for factor in factors:
        while number and number % factor == 0:
            number //= factor
    return number
