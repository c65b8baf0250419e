"""Corpora by name, for the command line: a file of `corpora/` may end with a dictionary `_NAMED` of corpora."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from redraft.core.lazy import named_value, read_names

if TYPE_CHECKING:
    from redraft.training.data.sources import Corpus, InfiniteCorpus

_NAMES = read_names("redraft.training.data.corpora", Path(__file__).with_name("corpora"))
CORPUS_NAMES = tuple(_NAMES)


def named_corpus(name: str) -> Corpus | InfiniteCorpus:
    """Returns the corpus with this name, with default settings."""
    corpus: Corpus | InfiniteCorpus = named_value(_NAMES, name)
    return corpus


def corpus_of_class(kind: str) -> Corpus | InfiniteCorpus | None:
    """Returns the named corpus of this class name, which rows of results store; None if there is none."""
    return next((corpus for corpus in map(named_corpus, CORPUS_NAMES) if type(corpus).__name__ == kind), None)
