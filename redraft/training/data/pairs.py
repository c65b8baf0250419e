"""Corpora of pairs: a source text and its target.

Its targets also form a corpus of plain documents, so any model can be trained on it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

from redraft.training.data.sources import (
    DataError,
    DataStats,
    FileRecord,
    Files,
    Split,
    _parse_json_record,
    _read_json_lines,
    _record_from_fields,
)


class Pair(NamedTuple):
    """A source text and the target to generate from it."""

    source: str
    target: str


@runtime_checkable
class PairCorpus(Protocol):
    """A finite source of pairs."""

    def pairs(self, split: Split, tally: DataStats) -> Iterator[Pair]:
        """Yields the pairs of one split, always in the same order."""
        ...


@runtime_checkable
class InfinitePairs(Protocol):
    """An infinite source of pairs, each made on demand."""

    def pair(self, split: Split, index: int) -> Pair: ...


@runtime_checkable
class HasClasses(Protocol):
    """A corpus of pairs in which every source is the name of a class."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of all classes; the position of a name is the index of its class."""
        ...


def class_names(data: object) -> tuple[str, ...] | None:
    """Returns the classes of a corpus; None if it has none."""
    return data.classes if isinstance(data, HasClasses) else None


def first_sources(data: object, split: Split, count: int) -> list[str]:
    """Returns the sources of the first pairs of an infinite corpus; none of any other corpus."""
    return [data.pair(split, index).source for index in range(count)] if isinstance(data, InfinitePairs) else []


@dataclass(frozen=True)
class JsonlPairs(Files):
    """Pairs from JSON Lines: source and target are two fields of each object; blank lines are skipped."""

    source: str = "source"  # name of the field
    target: str = "target"  # name of the field
    max_line: int = 10_000_000  # maximum length of a line in bytes

    def read(self, path: str) -> Iterator[FileRecord]:
        return (_parse_json_record(line, self.target, self.source) for line in _read_json_lines(path, self.max_line))

    def pairs(self, split: Split, tally: DataStats) -> Iterator[Pair]:
        return _pairs(self, split, tally)


@dataclass(frozen=True)
class JsonlClasses(Files):
    """Labeled texts from JSON Lines: the text and the name of its class are two fields of each object.

    The classes are given, so that their indices do not depend on the files; a line with any other class is bad.
    """

    classes: tuple[str, ...] = ()  # names of all classes, in order
    label: str = "label"  # name of the field with the class
    field: str = "text"  # name of the field with the text
    max_line: int = 10_000_000  # maximum length of a line in bytes

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.classes, str) or not self.classes or len(set(self.classes)) < len(self.classes):
            raise DataError(
                f"classes={self.classes!r}; give the names of all classes, each once, such as ('good', 'bad')"
            )

    def read(self, path: str) -> Iterator[FileRecord]:
        lines = _read_json_lines(path, self.max_line)
        return (self._require_class(_parse_json_record(line, self.field, self.label)) for line in lines)

    def pairs(self, split: Split, tally: DataStats) -> Iterator[Pair]:
        return _pairs(self, split, tally)

    def _require_class(self, record: FileRecord) -> FileRecord:
        """Marks a record as bad if its class is not known."""
        if record.problem or record.source in self.classes:
            return record
        known = ", ".join(self.classes)
        return replace(record, problem=f"{record.source!r:.40} is not one of the classes {known}; add it to classes")


@dataclass(frozen=True)
class CsvPairs(Files):
    """Pairs from CSV files with a header: source and target are two of the columns.

    The defaults are the column names of Novikova et al. (2017).
    """

    source: str = "mr"  # name of the column
    target: str = "ref"  # name of the column
    delimiter: str = ","  # "\t" for TSV files

    def read(self, path: str) -> Iterator[FileRecord]:
        with open(path, encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file, delimiter=self.delimiter)
            try:
                for row in table:
                    yield _record_from_fields(f"{path}:{table.line_num}", row, self.target, self.source)
            except (csv.Error, UnicodeDecodeError) as error:
                yield FileRecord(f"{path}:{table.line_num + 1}", problem=f"not a CSV table in UTF-8: {error}")

    def pairs(self, split: Split, tally: DataStats) -> Iterator[Pair]:
        return _pairs(self, split, tally)


def _pairs(files: Files, split: Split, tally: DataStats) -> Iterator[Pair]:
    return (Pair(record.source, record.text) for record in files.good(split, tally))
