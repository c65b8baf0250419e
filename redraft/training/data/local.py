"""Text on this machine by name: a corpus of the package, files, or folders of files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic

from redraft.training.data.registry import CORPUS_NAMES, named_corpus
from redraft.training.data.sources import Corpus, DataError, Files, InfiniteCorpus, Jsonl, Parquet, TextFiles

_READERS: dict[str, type[Files]] = {".txt": TextFiles, ".jsonl": Jsonl, ".parquet": Parquet}
_SYSTEM_FOLDERS = ("/", "/proc", "/sys", "/dev")
_MOST_FILES = 1_000_000


def open_corpus(
    names: Sequence[str], *, undivided: bool = False, tell: Callable[[str], None] | None = None
) -> Corpus | InfiniteCorpus:
    """Returns a corpus by its name, or a corpus of files and directories with text, JSON lines or parquet.

    Out of every 20 documents in files, one is held out for validation and one for testing.

    Args:
        names: one name of a corpus, or paths of files and directories
        undivided: every split has all documents
        tell: called every few seconds with a line that says how far the search in a directory is
    """
    if len(names) == 1 and names[0] in CORPUS_NAMES:
        return named_corpus(names[0])
    paths = [path for name in names for path in _files(name, tell)]
    readers = {_READERS.get(path.suffix, TextFiles) for path in paths}
    if len(readers) > 1:
        kinds = ", ".join(sorted({path.suffix or "no suffix" for path in paths}))
        raise DataError(f"{' '.join(names):.80} names files of several kinds ({kinds}); give files of one kind")
    files = tuple(map(str, paths))
    return readers.pop()(files, *((files, files) if undivided else ()))


def _files(name: str, tell: Callable[[str], None] | None) -> list[Path]:
    path = Path(name)
    if not name.strip():
        raise DataError(f"{name!r} is an empty name; give {', '.join(CORPUS_NAMES)}, files or a directory of text")
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"{path} is neither a corpus ({', '.join(CORPUS_NAMES)}) nor an existing file or folder")
    if str(path.resolve()) in _SYSTEM_FOLDERS:
        raise DataError(f"{path} is a system directory; give the directory of your texts")
    files = sorted(_walk(path, tell))
    if not files:
        raise DataError(f"{path} has no files that end in {', '.join(_READERS)}; give a directory of texts")
    return files


def _walk(folder: Path, tell: Callable[[str], None] | None) -> Iterator[Path]:
    """Yields the text files below a folder, except hidden ones."""
    seen, last = 0, monotonic()
    for directory, folders, names in os.walk(folder, onerror=_raise_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        seen += len(names)
        if seen > _MOST_FILES:
            raise DataError(f"{folder} has more than {_MOST_FILES:,} files; give a smaller directory")
        if tell is not None and monotonic() - last > 5:
            last = monotonic()
            tell(f"looking for text in {folder}: {seen:,} files so far, now in {directory}")
        visible = (Path(directory, name) for name in names if not name.startswith("."))
        yield from (path for path in visible if path.suffix in _READERS and path.is_file())


def _raise_unreadable(error: OSError) -> None:
    raise DataError(f"{error.filename}: {error.strerror}; give a directory that you may read")
