"""Atoms: basic statements about objects and arrays, from which formulas are built.

An object or array is read property by property, or item by item; after each, an atom says what it requires of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from redraft.decoding.constraints.schema.document import _Node
from redraft.decoding.constraints.schema.formula import _FALSE, _TRUE, _constant, _fact, _Formula

_Holds = Callable[[_Formula], bool | None]  # whether a name satisfies a formula; None if parsers disagree
_Implied = tuple[_Formula, bool]  # a condition, and whether it is false if the atom is


def _schema_formula(node: _Node) -> _Formula:
    """Return the formula that a value obeys a schema."""
    node = node.plain
    if node.truth is not None:
        return _constant(node.truth)
    return _fact(node) if node.asserts else _TRUE


class _Atom:
    """A statement about an object or an array. The defaults here fit most atoms."""

    vacuous: ClassVar[bool] = True  # whether it holds if nothing more is written; False for minimum counts

    def of_value(self) -> _Implied | None:
        """Return what follows for a property or an item that it applies to; None if it is not about values."""
        return None


# --- objects ---


class _ObjectAtom(_Atom):
    repeats: ClassVar[bool] = False  # a second property with the same name may change it

    @property
    def own_name(self) -> str | None:
        """The only name that it is about."""
        return None

    @property
    def mentions(self) -> frozenset[str]:
        """The names that it mentions."""
        return frozenset() if self.own_name is None else frozenset((self.own_name,))

    @property
    def patterns(self) -> tuple[_Formula, ...]:
        """Formulas about names that decide whether it applies to a property."""
        return ()

    @property
    def every_name(self) -> _Formula | None:
        """The formula that it requires of every name."""
        return None

    def applies(self, name: str | None, holds: _Holds) -> bool | None:
        """Whether it depends on the value of a property with this name; None if parsers disagree."""
        return False

    def forbids(self, holds: _Holds) -> bool | None:
        """Whether it forbids a name; None if parsers disagree."""
        return False

    @property
    def distinct_names(self) -> int:
        """How many different names it needs."""
        return 0

    def withstands_repeats(self, required: bool) -> bool:
        """Whether a repeated name does no harm if this is required to be true; otherwise, if to be false."""
        return True

    def after_property(self, repeated: bool) -> _Formula | None:
        """Return what it requires after any property, whose name may be `repeated`; None if that is unchanged."""
        return None


@dataclass(frozen=True)
class _HasProperty(_ObjectAtom):
    """The object has a property with this name."""

    name: str

    vacuous = False

    @property
    def own_name(self) -> str:
        return self.name


@dataclass(frozen=True)
class _PropertyObeys(_ObjectAtom):
    """The property with this name, if present, obeys a formula about schemas."""

    name: str
    value: _Formula

    @property
    def own_name(self) -> str:
        return self.name

    def of_value(self) -> _Implied:
        return self.value, True


@dataclass(frozen=True)
class _OtherProperties(_ObjectAtom):
    """A property obeys `value` if its name is not in `names`, matches `like`, and matches none of `unlike`."""

    names: frozenset[str]
    like: _Formula
    unlike: tuple[_Formula, ...]
    value: _Formula

    repeats = True

    @property
    def mentions(self) -> frozenset[str]:
        return self.names

    @property
    def patterns(self) -> tuple[_Formula, ...]:
        return self.like, *self.unlike

    def of_value(self) -> _Implied:
        return self.value, False

    def applies(self, name: str | None, holds: _Holds) -> bool | None:
        truth = [holds(pattern) for pattern in self.patterns]
        return None if None in truth else name not in self.names and bool(truth[0]) and not any(truth[1:])

    def withstands_repeats(self, required: bool) -> bool:
        return required


@dataclass(frozen=True)
class _AllNames(_ObjectAtom):
    """Every property name obeys a formula about strings."""

    like: _Formula

    @property
    def every_name(self) -> _Formula:
        return self.like

    def forbids(self, holds: _Holds) -> bool | None:
        truth = holds(self.like)
        return None if truth is None else not truth


@dataclass(frozen=True)
class _PropertyCount(_ObjectAtom):
    """The object has at least `least` properties; with `distinct`, a repeated name counts once."""

    least: int
    distinct: bool

    vacuous = False
    repeats = True

    @property
    def distinct_names(self) -> int:
        return self.least if self.distinct else 0

    def withstands_repeats(self, required: bool) -> bool:
        return required == self.distinct

    def after_property(self, repeated: bool) -> _Formula:
        return _count_formula(_PropertyCount(self.least - (not (repeated and self.distinct)), self.distinct))


# --- arrays ---


@dataclass(frozen=True)
class _Item:
    """An item that was read."""

    truth: Mapping[_Formula, bool]  # whether it satisfies each uncertain formula
    matches: frozenset[int]  # indices of the listed values that it equals
    in_order: bool  # unique items are written in the order of the listed values

    def obeys(self, value: _Formula) -> bool:
        return self.truth.get(value, value is not _FALSE)


class _ArrayAtom(_Atom):
    @property
    def reach(self) -> int:
        """The number of items from the start that it treats unlike later ones."""
        return 0

    @property
    def about_next(self) -> _Formula | None:
        """The formula whose truth for the next item it depends on."""
        return None

    @property
    def every_item(self) -> _Formula | None:
        """The formula that it requires of every item."""
        return None

    @property
    def seen(self) -> frozenset[int]:
        """Indices of the listed values that may not be written again."""
        return frozenset()

    def after_item(self, item: _Item) -> _Formula:
        """Return what it requires of the rest of the array."""
        raise NotImplementedError


@dataclass(frozen=True)
class _ItemAt(_ArrayAtom):
    """The item at this index, if present, obeys a formula about schemas."""

    index: int
    value: _Formula

    @property
    def reach(self) -> int:
        return self.index

    @property
    def about_next(self) -> _Formula | None:
        return None if self.index else self.value

    def of_value(self) -> _Implied | None:
        return None if self.index else (self.value, True)

    def after_item(self, item: _Item) -> _Formula:
        return _fact(_ItemAt(self.index - 1, self.value)) if self.index else _constant(item.obeys(self.value))


@dataclass(frozen=True)
class _ItemsFrom(_ArrayAtom):
    """All items from this index on obey a formula about schemas."""

    index: int
    value: _Formula

    @property
    def reach(self) -> int:
        return self.index

    @property
    def about_next(self) -> _Formula | None:
        return None if self.index else self.value

    @property
    def every_item(self) -> _Formula | None:
        return None if self.index else self.value

    def of_value(self) -> _Implied | None:
        return None if self.index else (self.value, False)

    def after_item(self, item: _Item) -> _Formula:
        if self.index:
            return _fact(_ItemsFrom(self.index - 1, self.value))
        return _fact(self) if item.obeys(self.value) else _FALSE


@dataclass(frozen=True)
class _Contains(_ArrayAtom):
    """At least `least` items obey a formula."""

    value: _Formula
    least: int

    vacuous = False

    @property
    def reach(self) -> int:
        return self.least

    @property
    def about_next(self) -> _Formula:
        return self.value

    def after_item(self, item: _Item) -> _Formula:
        return _count_formula(_Contains(self.value, self.least - item.obeys(self.value)))


@dataclass(frozen=True)
class _ArrayLength(_ArrayAtom):
    """The array has at least `least` items."""

    least: int

    vacuous = False

    @property
    def reach(self) -> int:
        return self.least

    def after_item(self, item: _Item) -> _Formula:
        return _count_formula(_ArrayLength(self.least - 1))


@dataclass(frozen=True)
class _UniqueItems(_ArrayAtom):
    """No two items are equal; `written` holds the indices of the listed values that were already read."""

    written: frozenset[int] = frozenset()

    @property
    def seen(self) -> frozenset[int]:
        return self.written

    def after_item(self, item: _Item) -> _Formula:
        return _fact(_UniqueItems(item.matches if item.in_order else self.written | item.matches))


def _count_formula(atom: _Contains | _ArrayLength | _PropertyCount) -> _Formula:
    return _TRUE if atom.least <= 0 else _fact(atom)
