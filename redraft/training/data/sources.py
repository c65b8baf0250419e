"""Sources of text: local files and the Hugging Face hub."""

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
    """Raised for unusable data; the message names the file and line."""


@dataclass
class DataStats:
    """Counts of documents and tokens that were used, skipped or cut."""

    documents: int = 0  # documents that could be read
    bad: int = 0  # lines, records or files that were skipped
    problems: list[str] = field(default_factory=list)  # descriptions of the first ten bad ones
    tokens: int = 0  # tokens of all documents, before framing
    cut: int = 0  # documents shortened to a row
    dropped: int = 0  # documents left out, because they are longer than a row or empty
    tail: int = 0  # tokens after the last full packed row

    def skip(self, problem: str) -> None:
        """Counts a skipped record, and keeps its problem if it is among the first ten."""
        self.bad += 1
        if len(self.problems) < 10:
            self.problems.append(problem)


class Corpus(Protocol):
    """A finite source of documents."""

    def documents(self, split: Split, tally: DataStats) -> Iterator[str]:
        """Yields the documents of one split, always in the same order."""
        ...


@runtime_checkable
class InfiniteCorpus(Protocol):
    """An infinite source of documents, each made on demand."""

    def document(self, split: Split, index: int) -> str: ...


@runtime_checkable
class KnownDistribution(InfiniteCorpus, Protocol):
    """An infinite source whose true distribution is known, so that models can be compared with it."""

    def log_prob(self, text: str) -> float:
        """Returns the true log-probability of a document in nats; -inf if it is impossible."""
        ...

    def entropy_per_char(self) -> float:
        """Returns the entropy in nats per character, which no model can beat."""
        ...


@dataclass(frozen=True)
class Files(ABC):
    """Documents from local files; every subclass is final.

    If `valid` and `test` name no files, every 20th document (index 18, 38, …) is held out for valid and the one after
    it for test. A bad line or record raises an error that names its file and line (`on_bad="error"`), or is skipped
    with its document and counted (`on_bad="skip"`). A file that cannot be opened is always an error.
    """

    paths: tuple[str, ...]
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    on_bad: Literal["error", "skip"] = "error"
    plain = True  # True for files of text, where a PDF or an archive is bad

    def __post_init__(self) -> None:
        for name in ("paths", "valid", "test"):
            if isinstance(given := getattr(self, name), str):
                raise DataError(f"{name}={given!r} is one string; give a tuple of paths: {name}=({given!r},)")
        if getattr(self, "max_line", 1) < 1:
            raise DataError(f"max_line={getattr(self, 'max_line', 1)}; it must be at least 1 byte")

    @abstractmethod
    def read(self, path: str) -> Iterator[FileRecord]:
        """Yields the records of one file, good and bad."""

    def documents(self, split: Split, tally: DataStats) -> Iterator[str]:
        return (record.text for record in self.good(split, tally))

    def good(self, split: Split, tally: DataStats) -> Iterator[FileRecord]:
        """Yields the usable records of one split."""
        own_files = bool(self.valid or self.test)
        paths = {"train": self.paths, "valid": self.valid, "test": self.test}[split] if own_files else self.paths
        index = -1
        for record in (record for path in paths for record in self._records(path)):
            if record.problem:
                self._reject(record, tally)
                continue
            index += 1
            if own_files or split == _HOLD_OUT.get(index % 20, "train"):
                tally.documents += 1
                yield record

    def _records(self, path: str) -> Iterator[FileRecord]:
        """Yields the records of one file, with the problem of each bad one."""
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

    def _reject(self, record: FileRecord, tally: DataStats) -> None:
        """Raises an error about a bad record, or counts it, as `on_bad` says."""
        problem = f"{record.location}: {record.problem}"
        if self.on_bad == "error":
            raise DataError(f"{problem}; fix it, or skip it: --data.on-bad skip, on_bad='skip' in Python")
        tally.skip(problem)


_HOLD_OUT = {18: "valid", 19: "test"}  # index modulo 20 → split


@dataclass(frozen=True)
class FileRecord:
    """One document of a file, or the reason why it is bad."""

    location: str  # file:line
    text: str = ""
    problem: str | None = None  # None if the document is good
    source: str = ""  # source of the text, in files of pairs


def _flaw(text: str) -> str | None:
    """Returns why a string is not valid text (empty, NUL characters, lone surrogates); None if it is valid."""
    if not text or text.isspace():
        return "the text is empty"
    if "\0" in text:
        return "the text has NUL characters, so it is binary or not UTF-8"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"the text has a lone surrogate, {text[error.start]!r}"
    return None


_SIGNATURES = {
    b"%PDF-": "a PDF",
    b"%!PS": "PostScript",
    b"{\\rtf": "rich text (RTF)",
    b"PK\x03\x04": "a zip archive, perhaps a docx, odt or epub",
    b"\xd0\xcf\x11\xe0": "an old Office file, perhaps a doc",
    b"\x1f\x8b": "compressed by gzip",
    b"BZh": "compressed by bzip2",
    b"\xfd7zXZ": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!": "a RAR archive",
    b"PAR1": "parquet, which needs the file extension .parquet",
    b"SQLite format 3": "a database",
    b"\x89PNG": "a picture",
    b"GIF8": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"\x7fELF": "a program",
}
_CONTROL = bytes(set(range(1, 32)) - set(b"\a\b\t\n\v\f\r\x1b"))  # NUL: see `_flaw`


def _binary(path: str) -> str | None:
    """Returns a description of a file that is not text, judged by its first bytes; None if it may be text."""
    with open(path, "rb") as file:
        head = file.read(4096)
    for signature, kind in _SIGNATURES.items():
        if head.startswith(signature):
            return f"the file is {kind}, not plain text; extract its text first"
    control = len(head) - len(head.translate(None, _CONTROL))
    return "the file is binary, not plain text" if 20 * control > len(head) else None


def _lines(path: str, most: int) -> Iterator[FileRecord]:
    """Yields the lines of a UTF-8 file; one longer than `most` bytes becomes a bad record without being held."""
    with open(path, "rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(most + 1), b""), 1):
            location = f"{path}:{number}"
            if len(line) > most:
                while line and not line.endswith(b"\n"):
                    line = file.readline(most)
                yield FileRecord(location, problem=f"the line is longer than max_line={most} bytes")
                continue
            try:
                yield FileRecord(location, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n"))
            except UnicodeDecodeError as error:
                yield FileRecord(location, problem=f"byte {error.start + 1} of the line is not UTF-8")


@dataclass(frozen=True)
class TextFiles(Files):
    """Documents from plain text: paragraphs between blank lines, single lines, or whole files."""

    split_by: Literal["blank", "line", "file"] = "blank"
    max_line: int = 10_000_000  # maximum length of a line in bytes

    def read(self, path: str) -> Iterator[FileRecord]:
        """Yields the documents of a file; a bad line makes its whole document bad."""
        whole_file = self.split_by == "file"
        blocks = groupby(
            _lines(path, self.max_line), lambda line: whole_file or bool(line.problem or line.text.strip())
        )
        for block in (list(lines) for filled, lines in blocks if filled):
            for group in [[line] for line in block] if self.split_by == "line" else [block]:
                bad = next((line for line in group if line.problem), None)
                yield bad or FileRecord(group[0].location, "\n".join(line.text for line in group).strip())


@dataclass(frozen=True)
class Jsonl(Files):
    """Documents from JSON Lines: the text is one field of each object; blank lines are skipped."""

    field: str = "text"  # name of the field with the text
    max_line: int = 10_000_000  # maximum length of a line in bytes

    def read(self, path: str) -> Iterator[FileRecord]:
        return (_parse_json_record(line, self.field) for line in _read_json_lines(path, self.max_line))


def _read_json_lines(path: str, most: int) -> Iterator[FileRecord]:
    """Yields the lines of a file that are not blank."""
    return (line for line in _lines(path, most) if line.problem or line.text.strip())


def _parse_json_record(line: FileRecord, text: str, source: str | None = None) -> FileRecord:
    """Parses a line of JSON and takes the field `text`, and the field `source` unless it is None."""
    if line.problem:
        return line
    try:
        value = json.loads(line.text)
    except (ValueError, RecursionError) as error:
        return replace(line, problem=f"not JSON: {error}")
    return _record_from_fields(line.location, value if isinstance(value, dict) else {}, text, source)


def _record_from_fields(
    location: str, fields: Mapping[str, object], text: str, source: str | None = None
) -> FileRecord:
    """Returns the record with these fields of a JSON object or a table row, or a bad one if they are not strings."""
    values = {name: fields.get(name) for name in (text, source) if name is not None}
    for name, value in values.items():
        if not isinstance(value, str):
            return FileRecord(location, problem=f"not an object with a string in the field {name!r}")
    return FileRecord(location, str(values[text]), source="" if source is None else str(values[source]))


@dataclass(frozen=True)
class Parquet(Files):
    """Documents from Parquet files: the text is one string column. Needs `redraft[data]`."""

    field: str = "text"  # name of the column with the text
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
                    f"{path}, row {number + 1}", problem=f"not a parquet file with a column {self.field!r}: {error}"
                )

    def _record(self, location: str, text: object) -> FileRecord:
        if isinstance(text, str):
            return FileRecord(location, text)
        return FileRecord(location, problem=f"the column {self.field!r} has {text!r:.40} instead of a string")


@dataclass(frozen=True)
class HubDataset:
    """A dataset of the Hugging Face hub; empty rows are skipped and counted. Needs `redraft[hub]`."""

    name: str
    field: str = "text"  # name of the column with the text
    config: str | None = None  # configuration of the dataset; None for its default
    splits: tuple[str, str, str] = ("train", "validation", "test")  # the dataset's names for train, valid and test
    streaming: bool = True  # read rows on demand instead of downloading the whole dataset first
    limit: int | None = None  # maximum number of documents per split; all are held in memory

    def documents(self, split: Split, tally: DataStats) -> Iterator[str]:
        datasets = _library("datasets", "loading a dataset from the hub", "redraft[hub]")
        hub_split = self.splits[SPLITS.index(split)]
        rows = datasets.load_dataset(self.name, self.config, split=hub_split, streaming=self.streaming)
        for number, row in enumerate(islice(rows, self.limit)):
            location = f"{self.name}, {hub_split}, row {number}"
            if not isinstance(text := row.get(self.field), str):
                raise DataError(
                    f"{location}: no string in the field {self.field!r}; choose one of its fields, {sorted(row)}"
                )
            if problem := _flaw(text):
                tally.skip(f"{location}: {problem}")
                continue
            tally.documents += 1
            yield text


def _library(module: str, purpose: str, extra: str) -> ModuleType:
    """Imports an optional library when it is first needed, since these are slow to load."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise DataError(f"{purpose} needs {module.partition('.')[0]}: pip install '{extra}'") from None
