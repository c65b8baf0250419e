"""Small programs of a typed language, each with its result: an infinite corpus with exact probabilities and a checker.

    a = 7; b = a + 3; c = a < b; d = if c then b else 2; e = ( d * a ) - 1; e is 9

Every statement defines the next variable: an integer (arithmetic modulo 10) or a boolean (a comparison). The first
statement is a digit, the last an integer, and the text ends with its value. A wrong operator in the middle therefore
shows at the end: filling a hole correctly requires the text after it.
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
class _Variables:
    """The variables defined so far."""

    values: tuple[int | bool, ...] = ()

    def of(self, kind: type) -> list[str]:
        """Returns the names of all variables of this type."""
        return [_NAMES[i] for i, value in enumerate(self.values) if type(value) is kind]

    def __getitem__(self, word: str) -> int | bool:
        return int(word) if word in _DIGITS else self.values[_NAMES.index(word)]


@dataclass(frozen=True)
class Programs(AnnotatedCorpus):
    """Programs of `statements` statements; form and operands of each are drawn uniformly from the possible ones."""

    statements: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.statements <= len(_NAMES):
            raise ValueError(f"statements={self.statements}; it must be from 2 to {len(_NAMES)}")

    def document(self, split: Split, index: int) -> str:
        draws = randomness.rng(split_seed(self.seed, split), 1).fold(index).uniform(8 * self.statements)[0].tolist()
        variables, statements = _Variables(), list[str]()
        for i in range(self.statements):
            words = _statement(variables, draws[8 * i : 8 * i + 8], self._forms(variables, i))
            statements.append(f"{_NAMES[i]} = {' '.join(words)}")
            variables = _Variables((*variables.values, _value(words, variables)))
        return "; ".join([*statements, f"{_NAMES[self.statements - 1]} is {variables.values[-1]}"])

    def is_valid(self, text: str) -> bool:
        """Whether a text is a well-typed program with the correct result."""
        return self.log_prob(text) > -math.inf

    def log_prob(self, text: str) -> float:
        """Returns the exact log-probability in nats; -inf for an invalid program or a wrong result."""
        return self.judge(text).log_prob

    def judge(self, text: str) -> Judgment:
        """Compares a text with the true distribution; an invalid program may still begin with correct statements."""
        *statements, end = text.split("; ")
        variables, nats, right = _Variables(), 0.0, 0
        for i, statement in enumerate(statements[: self.statements]):
            name, _, body = statement.partition(" = ")
            words, forms = body.split(" "), self._forms(variables, i)
            form = _form(words, variables)
            if name != _NAMES[i] or form not in forms:
                return Judgment(-math.inf, right)
            nats -= math.log(len(forms)) + sum(math.log(n) for n in _choices(form, variables))
            variables = _Variables((*variables.values, _value(words, variables)))
            right += len(f"{statement}; ")
        if len(statements) != self.statements or end != f"{_NAMES[self.statements - 1]} is {variables.values[-1]}":
            return Judgment(-math.inf, right)
        return Judgment(nats, len(text))

    def entropy_per_char(self) -> float:
        """Returns exact nats per character; the choices depend only on the number of variables of each type."""
        nats, chars = self._expected(0, 0, 0)
        return nats / (chars + len("a is 7"))

    def _forms(self, variables: _Variables, index: int) -> tuple[str, ...]:
        """The forms that statement `index` can have."""
        return self._possible(index, bool(variables.of(bool)))

    def _possible(self, index: int, has_bool: bool) -> tuple[str, ...]:
        if index == 0:
            return ("digit",)
        last = index == self.statements - 1
        return tuple(form for form in _FORMS if not (form == "less" and last) and (has_bool or form != "choice"))

    def _expected(self, index: int, ints: int, bools: int) -> tuple[float, float]:
        """Returns the expected nats and characters from statement `index` on."""
        if index == self.statements:
            return 0.0, 0.0
        forms = self._possible(index, bools > 0)
        nats, chars = math.log(len(forms)), 0.0
        for form in forms:
            more = self._expected(index + 1, ints + (form != "less"), bools + (form == "less"))
            own = sum(math.log(n) for n in _counts(form, ints, bools))
            nats += (own + more[0]) / len(forms)
            chars += (_LENGTHS[form] + len("a = ; ") + more[1]) / len(forms)
        return nats, chars


_LENGTHS = {"digit": 1, "sum": 5, "nested": 13, "less": 5, "choice": 18}  # characters of a statement of each form


@cache
def _counts(form: str, ints: int, bools: int) -> tuple[int, ...]:
    """Returns the number of options for each word to choose; an operand is an integer variable or a digit."""
    operand, operator = ints + len(_DIGITS), len(_OPERATORS)
    return {
        "digit": (len(_DIGITS),),
        "sum": (ints, operator, operand),
        "nested": (ints, operator, operand, operator, operand),
        "less": (ints, operand),
        "choice": (bools, operand, operand),
    }[form]


def _choices(form: str, variables: _Variables) -> tuple[int, ...]:
    return _counts(form, len(variables.of(int)), len(variables.of(bool)))


def _statement(variables: _Variables, draws: Sequence[float], forms: Sequence[str]) -> list[str]:
    """Returns the words of a statement, chosen by uniform numbers in [0, 1)."""
    form = forms[int(draws[0] * len(forms))]
    ints, bools = variables.of(int), variables.of(bool)
    operand = [*ints, *_DIGITS]
    lists = {
        "digit": ([*_DIGITS],),
        "sum": (ints, [*_OPERATORS], operand),
        "nested": (ints, [*_OPERATORS], operand, [*_OPERATORS], operand),
        "less": (ints, operand),
        "choice": (bools, operand, operand),
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


def _form(words: Sequence[str], variables: _Variables) -> str | None:
    """Returns the form of a well-typed statement; None for anything else."""
    ints, bools = variables.of(int), variables.of(bool)

    def fits(*kinds: str) -> bool:
        groups = {"i": ints, "o": [*ints, *_DIGITS], "t": bools, "+": [*_OPERATORS], "d": [*_DIGITS]}
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


def _value(words: Sequence[str], variables: _Variables) -> int | bool:
    """Returns the value of a well-typed statement."""
    match list(words):
        case ["(", x, inner, y, ")", outer, z]:
            return _VALUES[outer](_VALUES[inner](variables[x], variables[y]), variables[z])
        case [x, "<", y]:
            return variables[x] < variables[y]
        case [x, operator, y]:
            return _VALUES[operator](variables[x], variables[y])
        case ["if", condition, "then", x, "else", y]:
            return variables[x] if variables[condition] else variables[y]
    return variables[words[0]]


def brackets_match(text: str) -> bool:
    """Whether the brackets of a text match, even if it is not a valid program."""
    depth = torch.tensor([(word == "(") - (word == ")") for word in text.split()] or [0]).cumsum(0)
    return bool((depth >= 0).all()) and int(depth[-1]) == 0
