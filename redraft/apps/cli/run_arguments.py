"""Runs, data and tokenizers from the arguments of a command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from redraft.apps.cli.arguments import suggest
from redraft.apps.cli.output import print_note
from redraft.apps.cli.user_code import _load_function, _load_object
from redraft.core.text.tokenizers import ByteTokenizer, Tokenizer
from redraft.training.data.local import open_corpus
from redraft.training.data.sources import Corpus, DataError, InfiniteCorpus
from redraft.training.data.vocabulary import training_texts, unknown_fraction
from redraft.training.presets.index import PRESETS
from redraft.training.runs.run import Run


def parse_run(
    name: str,
    data: Sequence[str] = (),
    tokenizer: str | None = None,
    length: int | None = None,
    change: Callable[[Run], Run] = lambda run: run,
) -> Run:
    """Return the run of a preset or of "file.py:function", on other data and with another tokenizer if given.

    `change` applies the flags for single settings, before a tokenizer is made for the data, which they may change.
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
    run = change(run.on(parse_source(data) if data else run.data, run.tokenizer, length))
    if not data and tokenizer is None:
        return run
    try:
        run = run.on(run.data, tokenizer)
    except DataError as error:
        raise ValueError(str(error) if tokenizer is None else f"--tokenizer {error}") from error
    if tokenizer is not None:
        warn_of_unknown(run.tokenizer, run.data)
    return run


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
    """Return the corpus that --data names, as `open_corpus` does; "file.py:NAME" names one in the user's own file."""
    if len(names) == 1 and ".py:" in names[0]:
        return _load_corpus(names[0])
    try:
        return open_corpus(names, undivided=undivided, tell=print_note)
    except DataError as error:
        raise ValueError(f"--data {error}") from error


def _load_corpus(spec: str) -> Corpus | InfiniteCorpus:
    """Return the corpus that "file.py:NAME" names."""
    corpus: Corpus | InfiniteCorpus = _load_object(spec)
    if not hasattr(corpus, "documents") and not hasattr(corpus, "document"):
        name = type(corpus).__name__
        raise ValueError(f"--data {spec}: {name} has neither the method documents nor document; add one")
    return corpus


def warn_of_unknown(tokenizer: Tokenizer, data: Corpus | InfiniteCorpus) -> None:
    """Note if more than 5 % of the words are unknown to a word tokenizer, since its figures are then too good."""
    known = len(tokenizer.known_words)
    if known and (fraction := unknown_fraction(tokenizer, training_texts(data))) > 0.05:
        print_note(
            f"{fraction:.0%} of the words are not among the tokenizer's {known:,}; they all become one "
            "unknown token, so bits per character look better than they are; use more words, bpe:N or bytes"
        )
