"""Small programs of a typed language, each with its result: an endless corpus with exact probabilities and a checker.

    a = 7; b = a + 3; c = a < b; d = if c then b else 2; e = ( d * a ) - 1; e is 9

Every statement defines the next variable: an integer (arithmetic modulo 10) or a truth value (a comparison). The first
is a digit, the last an integer, and the text ends with its value. So a wrong operator in the middle shows at the end:
to fill a hole, one must read what follows it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

from redraft.core import randomness
from redraft.training.data.annotations import AnnotatedCorpus, Judgment
from redraft.training.data.corpora.language import split_seed
from redraft.training.data.sources import Split

_NAMES, _DIGITS, _OPERATORS = "abcdefgh", "0123456789", "+-*"
PROGRAM_WORDS = (*_NAMES, *_DIGITS, *_OPERATORS, "<", "(", ")", "=", ";", "if", "then", "else", "is")
_FORMS = ("digit", "sum", "nested", "less", "choice")
_VALUES = {"+": lambda x, y: (x + y) % 10, "-": lambda x, y: (x - y) % 10, "*": lambda x, y: (x * y) % 10}


@dataclass(frozen=True)
class _Known:
    """What is defined so far: the value of each variable, an int or a bool."""

    values: tuple[int | bool, ...] = ()

    def of(self, kind: type) -> list[str]:
        return [_NAMES[i] for i, value in enumerate(self.values) if type(value) is kind]

    def __getitem__(self, word: str) -> int | bool:
        return int(word) if word in _DIGITS else self.values[_NAMES.index(word)]


@dataclass(frozen=True)
class Programs(AnnotatedCorpus):
    """Programs of `statements` statements, each of a form drawn evenly among the possible ones, with drawn operands."""

    statements: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.statements <= len(_NAMES):
            raise ValueError(f"statements={self.statements}; a program has 2 to {len(_NAMES)} of them")

    def document(self, split: Split, index: int) -> str:
        draws = randomness.rng(split_seed(self.seed, split), 1).fold(index).uniform(8 * self.statements)[0].tolist()
        known, said = _Known(), list[str]()
        for number in range(self.statements):
            words = _statement(known, draws[8 * number : 8 * number + 8], self._forms(known, number))
            said.append(f"{_NAMES[number]} = {' '.join(words)}")
            known = _Known((*known.values, _value(words, known)))
        return "; ".join([*said, f"{_NAMES[self.statements - 1]} is {known.values[-1]}"])

    def is_valid(self, text: str) -> bool:
        """Whether a text is a program whose types fit and whose result is right."""
        return self.log_prob(text) > -math.inf

    def log_prob(self, text: str) -> float:
        """Nats, exact; -inf for a text that is no program, or whose result is wrong."""
        return self.judge(text).log_prob

    def judge(self, text: str) -> Judgment:
        """A text against the truth; of one that is no program, whole statements can be right."""
        *statements, end = text.split("; ")
        known, nats, right = _Known(), 0.0, 0
        for number, statement in enumerate(statements[: self.statements]):
            name, _, body = statement.partition(" = ")
            words, forms = body.split(" "), self._forms(known, number)
            form = _form(words, known)
            if name != _NAMES[number] or form not in forms:
                return Judgment(-math.inf, right)
            nats -= math.log(len(forms)) + sum(math.log(n) for n in _choices(form, known))
            known = _Known((*known.values, _value(words, known)))
            right += len(f"{statement}; ")
        if len(statements) != self.statements or end != f"{_NAMES[self.statements - 1]} is {known.values[-1]}":
            return Judgment(-math.inf, right)
        return Judgment(nats, len(text))

    def entropy_per_char(self) -> float:
        """Nats, exact: what is drawn depends only on how many variables of each type there are."""
        nats, chars = self._expected(0, 0, 0)
        return nats / (chars + len("a is 7"))

    def _forms(self, known: _Known, number: int) -> tuple[str, ...]:
        return self._possible(number, bool(known.of(bool)))

    def _possible(self, number: int, truths: bool) -> tuple[str, ...]:
        if number == 0:
            return ("digit",)
        last = number == self.statements - 1
        return tuple(form for form in _FORMS if not (form == "less" and last) and (truths or form != "choice"))

    def _expected(self, number: int, ints: int, truths: int) -> tuple[float, float]:
        """Nats and characters from statement `number` on."""
        if number == self.statements:
            return 0.0, 0.0
        forms = self._possible(number, truths > 0)
        nats, chars = math.log(len(forms)), 0.0
        for form in forms:
            more = self._expected(number + 1, ints + (form != "less"), truths + (form == "less"))
            own = sum(math.log(n) for n in _counts(form, ints, truths))
            nats += (own + more[0]) / len(forms)
            chars += (_LENGTHS[form] + len("a = ; ") + more[1]) / len(forms)
        return nats, chars


_LENGTHS = {"digit": 1, "sum": 5, "nested": 13, "less": 5, "choice": 18}


@cache
def _counts(form: str, ints: int, truths: int) -> tuple[int, ...]:
    """How many there are to choose from, place by place; an operand is an integer variable or a digit."""
    operand, operator = ints + len(_DIGITS), len(_OPERATORS)
    return {
        "digit": (len(_DIGITS),),
        "sum": (ints, operator, operand),
        "nested": (ints, operator, operand, operator, operand),
        "less": (ints, operand),
        "choice": (truths, operand, operand),
    }[form]


def _choices(form: str, known: _Known) -> tuple[int, ...]:
    return _counts(form, len(known.of(int)), len(known.of(bool)))


def _statement(known: _Known, draws: Sequence[float], forms: Sequence[str]) -> list[str]:
    """The words of a statement, from numbers between 0 and 1."""
    form = forms[int(draws[0] * len(forms))]
    ints, truths = known.of(int), known.of(bool)
    operand = [*ints, *_DIGITS]
    lists = {
        "digit": ([*_DIGITS],),
        "sum": (ints, [*_OPERATORS], operand),
        "nested": (ints, [*_OPERATORS], operand, [*_OPERATORS], operand),
        "less": (ints, operand),
        "choice": (truths, operand, operand),
    }[form]
    picked = [choices[int(u * len(choices))] for choices, u in zip(lists, draws[1:], strict=False)]
    return _SHAPES[form].format(*picked).split(" ")


_SHAPES = {
    "digit": "{}",
    "sum": "{} {} {}",
    "nested": "( {} {} {} ) {} {}",
    "less": "{} < {}",
    "choice": "if {} then {} else {}",
}


def _form(words: Sequence[str], known: _Known) -> str | None:
    """The form of a statement whose types fit; None for anything else."""
    ints, truths = known.of(int), known.of(bool)

    def fits(*kinds: str) -> bool:
        groups = {"i": ints, "o": [*ints, *_DIGITS], "t": truths, "+": [*_OPERATORS], "d": [*_DIGITS]}
        return len(words) == len(kinds) and all(
            word in groups[kind] if kind in groups else word == kind for word, kind in zip(words, kinds, strict=True)
        )

    patterns = {
        "digit": ("d",),
        "sum": ("i", "+", "o"),
        "nested": ("(", "i", "+", "o", ")", "+", "o"),
        "less": ("i", "<", "o"),
        "choice": ("if", "t", "then", "o", "else", "o"),
    }
    return next((form for form, kinds in patterns.items() if fits(*kinds)), None)


def _value(words: Sequence[str], known: _Known) -> int | bool:
    """The value of a statement that fits."""
    match list(words):
        case ["(", x, first, y, ")", second, z]:
            return _VALUES[second](_VALUES[first](known[x], known[y]), known[z])
        case [x, "<", y]:
            return known[x] < known[y]
        case [x, operator, y]:
            return _VALUES[operator](known[x], known[y])
        case ["if", truth, "then", x, "else", y]:
            return known[x] if known[truth] else known[y]
    return known[words[0]]


def brackets_match(text: str) -> bool:
    """Whether its brackets match, whatever else is wrong with it."""
    depth = torch.tensor([(word == "(") - (word == ")") for word in text.split()] or [0]).cumsum(0)
    return bool((depth >= 0).all()) and int(depth[-1]) == 0
