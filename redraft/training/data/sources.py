"""Sources of text: files, the hub, the standard corpora of the field."""

from __future__ import annotations

import importlib
import importlib.util
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from types import ModuleType
from typing import Literal, Protocol, TypeVar, runtime_checkable

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
_T = TypeVar("_T")


class DataError(ValueError):
    """Text that cannot be used, and where it is."""


@dataclass
class DataStats:
    """What became of the text of a source."""

    documents: int = 0  # read well
    bad: int = 0  # lines, records or files that were skipped
    problems: list[str] = field(default_factory=list)  # descriptions of the first ten
    tokens: int = 0  # in all documents, before framing
    cut: int = 0  # documents shortened to a row
    dropped: int = 0  # documents left out: longer than a row, or without a token
    tail: int = 0  # tokens after the last full row of a packing

    def skip(self, problem: str) -> None:
        self.bad += 1
        if len(self.problems) < 10:
            self.problems.append(problem)


class Corpus(Protocol):
    """A finite source."""

    def documents(self, split: Split, tally: DataStats) -> Iterator[str]:
        """The documents of one split, always in the same order."""
        ...


@runtime_checkable
class InfiniteCorpus(Protocol):
    """A source that makes document number `index` on demand."""

    def document(self, split: Split, index: int) -> str: ...


@runtime_checkable
class KnownDistribution(InfiniteCorpus, Protocol):
    """A source whose true distribution is known, so that a model can be measured against it."""

    def log_prob(self, text: str) -> float:
        """True log-probability of a document in nats; -inf if the source never writes it."""
        ...

    def entropy_per_char(self) -> float:
        """Nats per character that no model can beat."""
        ...


@dataclass(frozen=True)
class Files(ABC):
    """Documents from local files; every subclass is final.

    If `valid` and `test` name no files, every 20th document (numbers 18, 38, …) is held out for valid and the one after
    it for test. A bad line or record ends in an error that names its place (`on_bad="error"`), or is skipped, together
    with the document it belongs to, and counted (`on_bad="skip"`). A file that cannot be opened is always an error.
    """

    paths: tuple[str, ...]
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    on_bad: Literal["error", "skip"] = "error"
    plain = True  # files of text; a PDF or an archive among them is bad

    def __post_init__(self) -> None:
        for name in ("paths", "valid", "test"):
            if isinstance(given := getattr(self, name), str):
                raise DataError(f"{name}={given!r} is one string; give a tuple of paths: {name}=({given!r},)")
        if getattr(self, "max_line", 1) < 1:
            raise DataError(f"max_line={getattr(self, 'max_line', 1)}; a line has at least one byte")

    @abstractmethod
    def read(self, path: str) -> Iterator[FileRecord]:
        """The records of one file with their places, good or bad."""

    def documents(self, split: Split, tally: DataStats) -> Iterator[str]:
        return (record.text for record in self.good(split, tally))

    def good(self, split: Split, tally: DataStats) -> Iterator[FileRecord]:
        """The records of one split that can be used."""
        apart = bool(self.valid or self.test)
        paths = {"train": self.paths, "valid": self.valid, "test": self.test}[split] if apart else self.paths
        number = -1
        for record in (record for path in paths for record in self._records(path)):
            if record.problem:
                self._refuse(record, tally)
                continue
            number += 1
            if apart or split == _HOLD_OUT.get(number % 20, "train"):
                tally.documents += 1
                yield record

    def _records(self, path: str) -> Iterator[FileRecord]:
        empty = True
        try:
            if self.plain and (problem := _binary(path)):
                yield FileRecord(path, problem=problem)
                return
            for record in self.read(path):
                empty = False
                yield record if record.problem else replace(record, problem=_flaw(record.text))
        except OSError as error:
            raise DataError(f"{path}: {error.strerror or error}; check the path") from error
        if empty:
            yield FileRecord(path, problem="the file has no text")

    def _refuse(self, record: FileRecord, tally: DataStats) -> None:
        problem = f"{record.place}: {record.problem}"
        if self.on_bad == "error":
            raise DataError(f"{problem}; mend it, or leave it out with on_bad='skip'")
        tally.skip(problem)


_HOLD_OUT = {18: "valid", 19: "test"}


@dataclass(frozen=True)
class FileRecord:
    """One document of a file, or what is wrong with it."""

    place: str  # file:line
    text: str = ""
    problem: str | None = None
    source: str = ""  # what the text answers, in files of pairs


def _flaw(text: str) -> str | None:
    """Why a string is not text: it is empty, or has NUL characters (UTF-16 or binary) or lone surrogates."""
    if not text or text.isspace():
        return "the text is empty"
    if "\0" in text:
        return "the text has NUL characters, so it is binary or not UTF-8"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"the text has half a surrogate pair, {text[error.start]!r}"
    return None


_SIGNATURES = {
    b"%PDF-": "a PDF",
    b"%!PS": "PostScript",
    b"{\\rtf": "rich text (RTF)",
    b"PK\x03\x04": "a zip archive, perhaps a docx, odt or epub",
    b"\xd0\xcf\x11\xe0": "an old Office file, perhaps a doc",
    b"\x1f\x8b": "packed by gzip",
    b"BZh": "packed by bzip2",
    b"\xfd7zXZ": "packed by xz",
    b"\x28\xb5\x2f\xfd": "packed by zstd",
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!": "a RAR archive",
    b"PAR1": "parquet, which the ending .parquet would tell",
    b"SQLite format 3": "a database",
    b"\x89PNG": "a picture",
    b"GIF8": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"\x7fELF": "a program",
}
_CONTROL = bytes(set(range(1, 32)) - set(b"\a\b\t\n\v\f\r\x1b"))  # NUL: see `_flaw`


def _binary(path: str) -> str | None:
    """What a file is if it is not text, judged by its first bytes."""
    with open(path, "rb") as file:
        head = file.read(4096)
    for signature, kind in _SIGNATURES.items():
        if head.startswith(signature):
            return f"the file is {kind}, not plain text; take the text out of it first"
    control = len(head) - len(head.translate(None, _CONTROL))
    return "the file is binary, not plain text" if 20 * control > len(head) else None


def _lines(path: str, most: int) -> Iterator[FileRecord]:
    """The lines of a UTF-8 file without their ends; a line longer than `most` bytes is skipped, never held whole."""
    with open(path, "rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(most + 1), b""), 1):
            place = f"{path}:{number}"
            if len(line) > most:
                while line and not line.endswith(b"\n"):
                    line = file.readline(most)
                yield FileRecord(place, problem=f"the line is longer than max_line={most} bytes")
                continue
            try:
                yield FileRecord(place, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n"))
            except UnicodeDecodeError as error:
                yield FileRecord(place, problem=f"byte {error.start + 1} of the line is not UTF-8")


@dataclass(frozen=True)
class TextFiles(Files):
    """Plain text: a document is a paragraph between blank lines, a line, or a whole file."""

    split_by: Literal["blank", "line", "file"] = "blank"
    max_line: int = 10_000_000  # bytes

    def read(self, path: str) -> Iterator[FileRecord]:
        """Blank lines separate paragraphs; a bad line makes its whole document bad."""
        together = self.split_by == "file"
        blocks = groupby(_lines(path, self.max_line), lambda line: together or bool(line.problem or line.text.strip()))
        for block in (list(lines) for filled, lines in blocks if filled):
            for group in [[line] for line in block] if self.split_by == "line" else [block]:
                bad = next((line for line in group if line.problem), None)
                yield bad or FileRecord(group[0].place, "\n".join(line.text for line in group).strip())


@dataclass(frozen=True)
class Jsonl(Files):
    """One JSON object per line, the document in one of its fields; blank lines are skipped."""

    field: str = "text"
    max_line: int = 10_000_000  # bytes

    def read(self, path: str) -> Iterator[FileRecord]:
        return (parse_json_record(line, self.field) for line in read_json_lines(path, self.max_line))


def read_json_lines(path: str, most: int) -> Iterator[FileRecord]:
    """The lines of a file that are not blank."""
    return (line for line in _lines(path, most) if line.problem or line.text.strip())


def parse_json_record(line: FileRecord, text: str, source: str | None = None) -> FileRecord:
    """What a line of JSON holds in the field `text`, and in the field `source` if one is named."""
    if line.problem:
        return line
    try:
        value = json.loads(line.text)
    except (ValueError, RecursionError) as error:
        return replace(line, problem=f"not JSON: {error}")
    return record_from_fields(line.place, value if isinstance(value, dict) else {}, text, source)


def record_from_fields(place: str, fields: Mapping[str, object], text: str, source: str | None = None) -> FileRecord:
    """What an object or a line of a table holds in these fields."""
    found = {name: fields.get(name) for name in (text, source) if name is not None}
    for name, value in found.items():
        if not isinstance(value, str):
            return FileRecord(place, problem=f"not an object with a string in the field {name!r}")
    return FileRecord(place, str(found[text]), source="" if source is None else str(found[source]))


@dataclass(frozen=True)
class Parquet(Files):
    """Parquet files, the document in one string column; needs `redraft[data]`."""

    field: str = "text"
    plain = False

    def read(self, path: str) -> Iterator[FileRecord]:
        parquet = _library("pyarrow.parquet", "reading parquet", "redraft[data]")
        number = 0
        with open(path, "rb") as file:
            try:
                for rows in parquet.ParquetFile(file).iter_batches(columns=[self.field]):
                    for text in rows[self.field].to_pylist():
                        number += 1
                        yield self._record(f"{path}, row {number}", text)
            except Exception as error:  # pyarrow has many exceptions for a broken file
                yield FileRecord(
                    f"{path}, row {number + 1}", problem=f"no parquet with a column {self.field!r}: {error}"
                )

    def _record(self, place: str, text: object) -> FileRecord:
        if isinstance(text, str):
            return FileRecord(place, text)
        return FileRecord(place, problem=f"no string in the column {self.field!r}, but {text!r:.40}")


@dataclass(frozen=True)
class HubDataset:
    """A dataset of the Hugging Face hub by name, its empty rows skipped and counted; needs `redraft[hub]`."""

    name: str
    field: str = "text"
    config: str | None = None
    splits: tuple[str, str, str] = ("train", "validation", "test")  # what train, valid and test are called there
    streaming: bool = True
    limit: int | None = None  # maximum number of documents per split; all are held in memory

    def documents(self, split: Split, tally: DataStats) -> Iterator[str]:
        datasets = _library("datasets", "a dataset of the hub", "redraft[hub]")
        theirs = self.splits[SPLITS.index(split)]
        rows = datasets.load_dataset(self.name, self.config, split=theirs, streaming=self.streaming)
        for number, row in enumerate(islice(rows, self.limit)):
            place = f"{self.name}, {theirs}, row {number}"
            if not isinstance(text := row.get(self.field), str):
                raise DataError(f"{place}: no string in the field {self.field!r}; its fields are {sorted(row)}")
            if problem := _flaw(text):
                tally.skip(f"{place}: {problem}")
                continue
            tally.documents += 1
            yield text


def _library(module: str, purpose: str, extra: str) -> ModuleType:
    """Import late: these libraries are optional and slow to load."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise DataError(f"{purpose} needs {module.partition('.')[0]}: pip install '{extra}'") from None
