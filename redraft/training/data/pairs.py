"""Corpora of pairs: a source text and its target.

A corpus of pairs is also a corpus of plain documents, its targets, so any model can learn from it.
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
    parse_json_record,
    read_json_lines,
    record_from_fields,
)


class Pair(NamedTuple):
    """Two texts; the second is to be written, given the first."""

    source: str
    target: str


@runtime_checkable
class PairCorpus(Protocol):
    """A finite source of pairs."""

    def pairs(self, split: Split, tally: DataStats) -> Iterator[Pair]:
        """The pairs of one split, always in the same order."""
        ...


@runtime_checkable
class InfinitePairs(Protocol):
    """A source that makes pair number `index` on demand."""

    def pair(self, split: Split, index: int) -> Pair: ...


@runtime_checkable
class HasClasses(Protocol):
    """Pairs in which every source is the name of a class."""

    @property
    def classes(self) -> tuple[str, ...]:
        """All names; the index of a name is the number of its class."""
        ...


@dataclass(frozen=True)
class JsonlPairs(Files):
    """One JSON object per line, source and target in two of its fields; blank lines are skipped."""

    source: str = "source"
    target: str = "target"
    max_line: int = 10_000_000  # bytes

    def read(self, path: str) -> Iterator[FileRecord]:
        return (parse_json_record(line, self.target, self.source) for line in read_json_lines(path, self.max_line))

    def pairs(self, split: Split, tally: DataStats) -> Iterator[Pair]:
        return _pairs(self, split, tally)


@dataclass(frozen=True)
class JsonlClasses(Files):
    """One JSON object per line, a text in one of its fields and the name of its class in another.

    The names are given, so that their numbers do not depend on the files; a line with another name is bad.
    """

    classes: tuple[str, ...] = ()
    label: str = "label"
    field: str = "text"
    max_line: int = 10_000_000  # bytes

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.classes, str) or not self.classes or len(set(self.classes)) < len(self.classes):
            raise DataError(f"classes={self.classes!r}; give the names of all classes, each once: ('good', 'bad')")

    def read(self, path: str) -> Iterator[FileRecord]:
        lines = read_json_lines(path, self.max_line)
        return (self._known(parse_json_record(line, self.field, self.label)) for line in lines)

    def pairs(self, split: Split, tally: DataStats) -> Iterator[Pair]:
        return _pairs(self, split, tally)

    def _known(self, record: FileRecord) -> FileRecord:
        if record.problem or record.source in self.classes:
            return record
        known = ", ".join(self.classes)
        return replace(record, problem=f"{record.source!r:.40} is none of the classes {known}; name it in classes=(…)")


@dataclass(frozen=True)
class CsvPairs(Files):
    """Tables with a line of column names, source and target in two of the columns; "\\t" separates those of TSV files.

    The defaults are the columns of Novikova et al. (2017).
    """

    source: str = "mr"
    target: str = "ref"
    delimiter: str = ","

    def read(self, path: str) -> Iterator[FileRecord]:
        with open(path, encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file, delimiter=self.delimiter)
            try:
                for row in table:
                    yield record_from_fields(f"{path}:{table.line_num}", row, self.target, self.source)
            except (csv.Error, UnicodeDecodeError) as error:
                yield FileRecord(f"{path}:{table.line_num + 1}", problem=f"no table in UTF-8: {error}")

    def pairs(self, split: Split, tally: DataStats) -> Iterator[Pair]:
        return _pairs(self, split, tally)


def _pairs(files: Files, split: Split, tally: DataStats) -> Iterator[Pair]:
    return (Pair(record.source, record.text) for record in files.good(split, tally))
