"""What schemas say of numbers, as sets of their canonical texts: `-?(0|[1-9][0-9]*)(\\.[0-9]*[1-9])?`, never -0.

Readers keep 15 digits of a number. Where its value is compared, longer ones are left out, unless they are integers and
compared with an integer of at most 15 digits: rounding cannot take them across it.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from typing import Any

from redraft.decoding.constraints.dfa import AutomatonTooLarge
from redraft.decoding.constraints.schema.expressions import _parsed
from redraft.decoding.constraints.schema.formula import _all_of, _any_of, _Formula, _negated
from redraft.decoding.constraints.schema.patterns import _searched
from redraft.decoding.constraints.schema.words import _among, _by_steps, _characters, _within

_DIGITS = 15
_MOST_REMAINDERS = 3_000
_LETTERS = _characters("-.0123456789")  # 0: minus, 1: point, 2 … 11: digits


def _like(expression: str) -> _Formula:
    return _searched(_parsed(expression)[0], expression).all


@lru_cache(1)
def _any_number() -> _Formula:
    return _all_of([_like(r"^-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$"), _negated(_like("^-0$"))])


@lru_cache(1)
def _short() -> _Formula:
    return _like(rf"^(-|\.)*([0-9]\.?){{1,{_DIGITS}}}$")


@lru_cache(1)
def _short_or_integer() -> _Formula:
    return _any_of([_short(), _like("^-?[0-9]+$")])


@lru_cache(1)
def _visible() -> _Formula:
    """Short, or one that no reader rounds to zero."""
    return _any_of([_short(), _like(r"^-?([1-9]|0\.0{0,13}[1-9])")])


@lru_cache(1)
def _integer() -> _Formula:
    return _within(next(iter(_like("^-?[0-9]+$").atoms)).words, _short_or_integer()).all


def _universe(value: Decimal) -> _Formula:
    """The numbers whose order to a value is the same to every reader."""
    if value == 0:
        return _visible()
    return _short_or_integer() if value == value.to_integral_value() and abs(value) < 10**_DIGITS else _short()


def _text(value: Decimal | int) -> str:
    """A number as it is written."""
    number = Decimal(value)
    if number == 0:
        return "0"
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _number_among(values: list[Decimal | int]) -> _Formula:
    exact = all(Decimal(value) == Decimal(value).to_integral_value() and abs(value) < 10**_DIGITS for value in values)
    words = _among(tuple(dict.fromkeys(map(_text, values))))
    return _within(words, _short_or_integer() if exact else _short()).all


@lru_cache(256)
def _below(bound: Decimal, or_equal: bool) -> _Formula:
    """That a number is below a bound, or also equal to it."""
    if abs(bound.adjusted()) > 400 and bound != 0:
        raise AutomatonTooLarge("has more than 400 digits")
    text = _text(abs(bound))
    whole, _, fraction = text.partition(".")
    compare = _Comparison(whole, fraction, negative=bound < 0)
    accepted = {"<", "="} if or_equal else {"<"}
    words = _by_steps(_LETTERS, compare.start, compare.step, lambda state: compare.order(state) in accepted)
    return _within(words, _universe(bound)).all


class _Comparison:
    """Compares a number with a bound while it is read. A state is (sign, digits of which part, how many, order)."""

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
        """The order behind a digit that the bound does not have."""
        if part == "whole":
            return "longer"
        return ">" if order == "=" and longer else order

    def _ended(self, count: int, order: str) -> str:
        """The order of the whole parts."""
        return "<" if count < len(self.whole) else ">" if order == "longer" else order

    def order(self, state: Any) -> str:
        """The order of the number to the bound, if it ends here."""
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
        return _integer()
    if whole * (places + 1) > _MOST_REMAINDERS:
        raise AutomatonTooLarge(f"has more than {_MOST_REMAINDERS:,} remainders")

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

    return _within(_by_steps(_LETTERS, (0, None), step, final), _short()).all
