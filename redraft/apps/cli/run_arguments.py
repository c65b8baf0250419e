"""Words of the command line to a Run: presets and files, data, tokenizers."""

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
from redraft.apps.cli.user_code import _load_function
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
_SIZES = {"words": 8192, "bpe": 2048}
_NO_TEXTS = ("/", "/proc", "/sys", "/dev")
_MOST_FILES = 1_000_000
_PAIRS = (
    "name a folder of pairs, or write file.py:function with JsonlPairs, CsvPairs, JsonlClasses (redraft/data/pairs.py)"
)


def parse_run(
    name: str, data: Sequence[str] = (), tokenizer: str | None = None, length: int | None = None
) -> tuple[Run, str | None]:
    """The run of a preset or of "file.py:function", on other data and with rows of another length if wished for.

    Also the tokenizer that it is still to get, if it is not to keep its own: that learns from the data, of which more
    may be said by further flags.
    """
    function = _function(name)
    takes = signature(function).parameters if name in PRESETS else {}
    given: dict[str, Any] = {}
    for parameter, fits in (("path", Path.is_file), ("folder", Path.is_dir)):
        if parameter in takes and data and fits(Path(data[0])):
            given[parameter], data = data[0], ()
    if "tokenizer" in takes and tokenizer is not None:
        given["tokenizer"] = ByteTokenizer()  # until the right one is made
    _require_files(name, takes, {*given, "path"} if data else {*given})
    run = _built(function, name, given)
    if data and run.framing.asked:
        raise ValueError(f"{name} learns to answer sources, but --data {data[0]} has no pairs; {_PAIRS}")
    if data and (text := parse_source(data)) != run.data:
        if tokenizer is None and as_annotated(run.data).words():  # which do not fit other text
            tokenizer = "chars" if isinstance(run.tokenizer, CharTokenizer) else "bpe"
        run = variations.with_data(run, text)
    return (run if length is None else variations.with_length(run, length)), tokenizer


def _function(name: str) -> Callable[..., Any]:
    if name in PRESETS:
        return PRESETS[name]
    if ":" in name or name.endswith(".py"):
        return _load_function(name)
    advice = f"{suggest(name, PRESETS)} `redraft show` lists the presets; a recipe of your own is file.py:function"
    raise ValueError(f"there is no preset {name!r}; {advice}")


def _require_files(name: str, takes: Mapping[str, Parameter], given: set[str]) -> None:
    """What a preset reads from a file must be given, unless it lies where the preset looks for it."""
    flags = {"path": "data", "folder": "data", "tokenizer": "tokenizer"}
    for parameter, flag in flags.items():
        if parameter in takes and parameter not in given and not Path(takes[parameter].default).exists():
            default = takes[parameter].default
            raise ValueError(
                f"{name} reads {default}, which does not exist here; give its path: --{flag} path/to/{default}"
            )


def _built(function: Callable[..., Any], name: str, given: Mapping[str, Any]) -> Run:
    try:
        run = function(**given)
    except (Exception, SystemExit) as error:  # a user's function may raise anything
        raise ValueError(f"{name} raised {type(error).__name__}: {error}") from error
    if not isinstance(run, Run):
        raise ValueError(f"{name} returned {str(run)[:40]!r}; it must return a redraft.Run")
    return run


# --- data ---


def parse_source(names: Sequence[str], *, undivided: bool = False) -> Corpus | InfiniteCorpus:
    """A named corpus, or files and directories of text, JSON lines or parquet.

    Of files every 20th document is held out for valid and one for test; undivided, all of them are in every split.
    """
    if len(names) == 1 and names[0] in CORPUS_NAMES:
        return named_corpus(names[0])
    paths = [path for name in names for path in _files(name)]
    readers = {_READERS.get(path.suffix, TextFiles) for path in paths}
    if len(readers) > 1:
        kinds = ", ".join(sorted({path.suffix or "no ending" for path in paths}))
        raise ValueError(f"--data names files of several kinds ({kinds}); give one kind at a time")
    all_of_it = tuple(map(str, paths))
    return readers.pop()(all_of_it, *((all_of_it, all_of_it) if undivided else ()))


def _files(name: str) -> list[Path]:
    path = Path(name)
    if not name.strip():
        raise ValueError(
            f"--data names nothing (an empty word); give {', '.join(CORPUS_NAMES)}, files or a directory of text"
        )
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ValueError(f"--data {path} is none of {', '.join(CORPUS_NAMES)}, nor a file or directory that exists")
    if str(path.resolve()) in _NO_TEXTS:
        raise ValueError(f"--data {path} is the whole system or a part that holds no text; name the directory of texts")
    found = sorted(_walk(path))
    if not found:
        raise ValueError(f"--data {path} is a directory without files that end in {', '.join(_READERS)}")
    return found


def _walk(folder: Path) -> Iterator[Path]:
    """The files of text below a folder, hidden ones passed over; says now and then how many files it has seen."""
    seen, spoke = 0, monotonic()
    for place, folders, names in os.walk(folder, onerror=_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        seen += len(names)
        if seen > _MOST_FILES:
            raise ValueError(f"--data {folder} holds more than {_MOST_FILES:,} files; name a smaller directory")
        if monotonic() - spoke > 5:
            spoke = monotonic()
            print_note(f"looking for text in {folder}: {seen:,} files so far, now in {place}")
        readable = (Path(place, name) for name in names if not name.startswith("."))
        yield from (path for path in readable if path.suffix in _READERS and path.is_file())


def _unreadable(error: OSError) -> None:
    raise ValueError(f"--data: {error.filename}: {error.strerror}; name directories that can be read")


# --- tokenizers ---


def make_tokenizer(choice: str, text: Corpus | InfiniteCorpus) -> Tokenizer:
    """`chars`, `bytes`, `words`, `words:N`, `bpe`, `bpe:N`, learnt from the training split, or a tokenizer.json."""
    kind, _, size = choice.partition(":")
    specials: tuple[Special, ...] = ("bos", *_SPECIALS) if isinstance(text, PairCorpus) else _SPECIALS
    if choice == "chars":
        return CharTokenizer.collect(training_texts(text), specials)
    if choice == "bytes":
        return ByteTokenizer(specials)
    if kind in _SIZES and (size.isdecimal() or kind == choice):
        learn = train_bpe if kind == "bpe" else WordTokenizer.collect
        learnt = learn(training_texts(text), int(size or _SIZES[kind]), specials)
        warn_of_unknown(learnt, training_texts(text))
        return learnt
    if not Path(choice).exists():
        raise ValueError(f"--tokenizer {choice} is not chars, bytes, words:N or bpe:N, nor a tokenizer.json")
    try:
        return HubTokenizer.load(choice)
    except ValueError as error:  # also what is no UTF-8 or no JSON
        raise ValueError(f"--tokenizer {choice} cannot be used: {error}") from error


def warn_of_unknown(tokenizer: Tokenizer, texts: Iterable[str]) -> None:
    """Says if a list of words knows too few of those in a text: the others look alike, which flatters all figures."""
    if not isinstance(tokenizer, WordTokenizer):
        return
    ids = [token for text in islice(texts, 1000) for token in tokenizer.encode(text)]
    share = ids.count(tokenizer.unknown) / max(1, len(ids))
    if share > 0.05:
        print_note(
            f"{share:.0%} of the words are not among the tokenizer's {len(tokenizer.words):,}; it cannot tell "
            "them apart, so bits per character look better than they are: use more words, bpe:N or bytes"
        )


def training_texts(text: Corpus | InfiniteCorpus) -> Iterable[str]:
    """Texts to train a tokenizer on: the training split; all words and the first 4096 texts of an infinite corpus."""
    if isinstance(text, PairCorpus):
        return chain.from_iterable(text.pairs("train", DataStats()))
    if not isinstance(text, InfiniteCorpus):
        return text.documents("train", DataStats())
    words = filter(None, [" ".join(as_annotated(text).words())])
    return chain(words, (text.document("train", index) for index in range(4096)))
