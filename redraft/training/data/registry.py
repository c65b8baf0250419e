"""Corpora that have a name on the command line; to add one, add a line to `corpora.NAMED`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from redraft.training.data import corpora

if TYPE_CHECKING:
    from redraft.training.data.sources import Corpus, InfiniteCorpus

CORPUS_NAMES = tuple(corpora.NAMED)


def named_corpus(name: str) -> Corpus | InfiniteCorpus:
    """Returns the corpus with this name, with default settings."""
    file, _, kind = corpora.NAMED[name].rpartition(".")
    corpus: Corpus | InfiniteCorpus = getattr(import_module(f"{corpora.__name__}.{file}"), kind)()
    return corpus


def corpus_of_class(kind: str) -> Corpus | InfiniteCorpus | None:
    """Returns the named corpus of this class name, which rows of results store; None if there is none."""
    return next((named_corpus(name) for name, path in corpora.NAMED.items() if path.endswith(f".{kind}")), None)
