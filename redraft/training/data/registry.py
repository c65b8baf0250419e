"""Corpora that have a name on the command line: each enters the table of its folder, `corpora`, by one line."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from redraft.training.data import corpora

if TYPE_CHECKING:
    from redraft.training.data.sources import Corpus, InfiniteCorpus

CORPUS_NAMES = tuple(corpora.NAMED)


def named_corpus(name: str) -> Corpus | InfiniteCorpus:
    """The corpus that is called so, with its default settings."""
    file, _, kind = corpora.NAMED[name].rpartition(".")
    made: Corpus | InfiniteCorpus = getattr(import_module(f"{corpora.__name__}.{file}"), kind)()
    return made


def corpus_of_class(kind: str) -> Corpus | InfiniteCorpus | None:
    """The named corpus whose class is called so, as rows of results name it; None if there is none."""
    return next((named_corpus(name) for name, home in corpora.NAMED.items() if home.endswith(f".{kind}")), None)
