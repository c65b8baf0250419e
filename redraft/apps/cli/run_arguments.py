"""Runs, data and tokenizers from the arguments of a command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import Parameter, signature
from itertools import chain, islice
from pathlib import Path
from time import monotonic
from typing import Any

from redraft.apps.cli.arguments import suggest
from redraft.apps.cli.output import print_note
from redraft.apps.cli.user_code import _load_function, load_object
from redraft.core.text.tokenizers import (
    ByteTokenizer,
    CharTokenizer,
    HubTokenizer,
    Special,
    Tokenizer,
    WordTokenizer,
    train_bpe,
)
from redraft.training.data.annotations import as_annotated
from redraft.training.data.pairs import PairCorpus
from redraft.training.data.registry import CORPUS_NAMES, named_corpus
from redraft.training.data.sources import Corpus, DataStats, Files, InfiniteCorpus, Jsonl, Parquet, TextFiles
from redraft.training.presets.index import PRESETS
from redraft.training.runs import variations
from redraft.training.runs.run import Run

_READERS: dict[str, type[Files]] = {".txt": TextFiles, ".jsonl": Jsonl, ".parquet": Parquet}
_SPECIALS: tuple[Special, ...] = ("eos", "pad", "mask")
_SIZES = {"words": 8192, "bpe": 2048}  # default vocabulary sizes
_SYSTEM_FOLDERS = ("/", "/proc", "/sys", "/dev")
_MOST_FILES = 1_000_000
_PAIRS = (
    "give a folder of pairs, or write file.py:function with JsonlPairs, CsvPairs or JsonlClasses "
    "(redraft/training/data/pairs.py)"
)


def parse_run(
    name: str, data: Sequence[str] = (), tokenizer: str | None = None, length: int | None = None
) -> tuple[Run, str | None]:
    """Return the run of a preset or of "file.py:function", with other data and another row length if given.

    Also returns the choice of a tokenizer that still has to be made for the run, None if it keeps its own. The
    tokenizer is trained on the data, and flags that are parsed later may change the data.
    """
    function = _find_function(name)
    parameters = signature(function).parameters if name in PRESETS else {}
    values: dict[str, Any] = {}
    for parameter, fits in (("path", Path.is_file), ("folder", Path.is_dir)):
        if parameter in parameters and data and fits(Path(data[0])):
            values[parameter], data = data[0], ()
    if "tokenizer" in parameters and tokenizer is not None:
        values["tokenizer"] = ByteTokenizer()  # a stand-in until the tokenizer is made
    _require_files(name, parameters, {*values, "path"} if data else {*values})
    run = _call(function, name, values)
    if data and run.framing.conditional:
        raise ValueError(f"{name} trains on pairs of source and target, but --data {data[0]} has no pairs; {_PAIRS}")
    if data and (text := parse_source(data)) != run.data:
        if tokenizer is None and as_annotated(run.data).words():  # a word list made for the preset's own corpus
            tokenizer = "chars" if isinstance(run.tokenizer, CharTokenizer) else "bpe"
        run = variations.with_data(run, text)
    return (run if length is None else variations.with_length(run, length)), tokenizer


def _find_function(name: str) -> Callable[..., Any]:
    if name in PRESETS:
        return PRESETS[name]
    if ":" in name or name.endswith(".py"):
        return _load_function(name)
    advice = f"{suggest(name, PRESETS)} `redraft show` lists the presets; for your own run give file.py:function"
    raise ValueError(f"there is no preset {name!r}; {advice}")


def _require_files(name: str, parameters: Mapping[str, Parameter], given: set[str]) -> None:
    """Raise if a preset needs a file that is neither given nor at its default path."""
    flags = {"path": "data", "folder": "data", "tokenizer": "tokenizer"}
    for parameter, flag in flags.items():
        if parameter in parameters and parameter not in given and not Path(parameters[parameter].default).exists():
            default = parameters[parameter].default
            raise ValueError(
                f"{name} reads {default}, which does not exist here; give its path: --{flag} path/to/{default}"
            )


def _call(function: Callable[..., Any], name: str, values: Mapping[str, Any]) -> Run:
    """Call the function of a preset or of a user's file, which must return a run."""
    try:
        run = function(**values)
    except (Exception, SystemExit) as error:  # a user's function may raise anything
        raise ValueError(f"{name} raised {type(error).__name__}: {error}") from error
    if not isinstance(run, Run):
        raise ValueError(f"{name} returned {str(run)[:40]!r}; it must return a redraft.Run")
    return run


# --- data ---


def parse_source(names: Sequence[str], *, undivided: bool = False) -> Corpus | InfiniteCorpus:
    """Return a named corpus, or a corpus of files and directories with text, JSON lines or parquet.

    Out of every 20 documents in files, one is held out for validation and one for testing. With `undivided` every split
    has all documents.
    """
    if len(names) == 1 and names[0] in CORPUS_NAMES:
        return named_corpus(names[0])
    if len(names) == 1 and ".py:" in names[0]:
        return _load_corpus(names[0])
    paths = [path for name in names for path in _files(name)]
    readers = {_READERS.get(path.suffix, TextFiles) for path in paths}
    if len(readers) > 1:
        kinds = ", ".join(sorted({path.suffix or "no suffix" for path in paths}))
        raise ValueError(f"--data names files of several kinds ({kinds}); give files of one kind")
    files = tuple(map(str, paths))
    return readers.pop()(files, *((files, files) if undivided else ()))


def _load_corpus(spec: str) -> Corpus | InfiniteCorpus:
    """Return the corpus that "file.py:NAME" names."""
    corpus: Corpus | InfiniteCorpus = load_object(spec)
    if not hasattr(corpus, "documents") and not hasattr(corpus, "document"):
        name = type(corpus).__name__
        raise ValueError(f"--data {spec}: {name} has neither the method documents nor document; add one")
    return corpus


def _files(name: str) -> list[Path]:
    path = Path(name)
    if not name.strip():
        raise ValueError(f"--data has an empty value; give {', '.join(CORPUS_NAMES)}, files or a directory of text")
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ValueError(
            f"--data {path} is neither a corpus ({', '.join(CORPUS_NAMES)}) nor an existing file or folder"
        )
    if str(path.resolve()) in _SYSTEM_FOLDERS:
        raise ValueError(f"--data {path} is a system directory; give the directory of your texts")
    files = sorted(_walk(path))
    if not files:
        raise ValueError(f"--data {path} has no files that end in {', '.join(_READERS)}; give a directory of texts")
    return files


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the text files below a folder, except hidden ones; notes every few seconds how many files it has seen."""
    seen, last_note = 0, monotonic()
    for directory, folders, names in os.walk(folder, onerror=_raise_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        seen += len(names)
        if seen > _MOST_FILES:
            raise ValueError(f"--data {folder} has more than {_MOST_FILES:,} files; give a smaller directory")
        if monotonic() - last_note > 5:
            last_note = monotonic()
            print_note(f"looking for text in {folder}: {seen:,} files so far, now in {directory}")
        visible = (Path(directory, name) for name in names if not name.startswith("."))
        yield from (path for path in visible if path.suffix in _READERS and path.is_file())


def _raise_unreadable(error: OSError) -> None:
    raise ValueError(f"--data: {error.filename}: {error.strerror}; give a directory that you may read")


# --- tokenizers ---


def make_tokenizer(choice: str, text: Corpus | InfiniteCorpus) -> Tokenizer:
    """Return the tokenizer of a choice: chars, bytes, words, words:N, bpe, bpe:N, or the path of a tokenizer.json.

    Tokenizers of characters, words and byte pairs are trained on the training split of the text.
    """
    kind, _, size = choice.partition(":")
    specials: tuple[Special, ...] = ("bos", *_SPECIALS) if isinstance(text, PairCorpus) else _SPECIALS
    if choice == "chars":
        return CharTokenizer.collect(training_texts(text), specials)
    if choice == "bytes":
        return ByteTokenizer(specials)
    if kind in _SIZES and (size.isdecimal() or kind == choice):
        train = train_bpe if kind == "bpe" else WordTokenizer.collect
        tokenizer = train(training_texts(text), int(size or _SIZES[kind]), specials)
        warn_of_unknown(tokenizer, training_texts(text))
        return tokenizer
    if not Path(choice).exists():
        raise ValueError(f"--tokenizer {choice} is neither chars, bytes, words:N, bpe:N nor an existing tokenizer.json")
    try:
        return HubTokenizer.load(choice)
    except ValueError as error:  # includes errors of UTF-8 and of JSON
        raise ValueError(f"--tokenizer {choice} cannot be used: {error}") from error


def warn_of_unknown(tokenizer: Tokenizer, texts: Iterable[str]) -> None:
    """Note if more than 5 % of the words are unknown to a word tokenizer, since its figures are then too good."""
    if tokenizer.unknown is None:
        return
    ids, known = [token for text in islice(texts, 1000) for token in tokenizer.encode(text)], len(tokenizer.known_words)
    fraction = ids.count(tokenizer.unknown) / max(1, len(ids))
    if fraction > 0.05:
        print_note(
            f"{fraction:.0%} of the words are not among the tokenizer's {known:,}; they all become one "
            "unknown token, so bits per character look better than they are; use more words, bpe:N or bytes"
        )


def training_texts(text: Corpus | InfiniteCorpus) -> Iterable[str]:
    """Return texts to train a tokenizer on: the training split; of an infinite corpus its word list and 4096 texts."""
    if isinstance(text, PairCorpus):
        return chain.from_iterable(text.pairs("train", DataStats()))
    if not isinstance(text, InfiniteCorpus):
        return text.documents("train", DataStats())
    words = filter(None, [" ".join(as_annotated(text).words())])
    return chain(words, (text.document("train", index) for index in range(4096)))
