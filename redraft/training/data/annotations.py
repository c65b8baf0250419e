"""Annotations of a corpus: attributes, parts of speech, words, and whether a text is correct.

Tasks, evaluation, server and command line read them through `as_annotated(data)`, so they work with any corpus that
inherits `AnnotatedCorpus` and overrides what it knows:

    @dataclass(frozen=True)
    class Weather(AnnotatedCorpus):
        def document(self, split, index): ...
        def attributes(self):
            return {"sky": ("clear", "cloudy")}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from redraft.core.text.tokenizers import split_words
from redraft.training.data.sources import InfiniteCorpus


class SourceCoverage(NamedTuple):
    """How much of its source a text states correctly: for one text, or the mean over several."""

    share: float  # fraction of the facts that are correct
    exact: float  # 1 if all facts are correct and the text is grammatical


class Judgment(NamedTuple):
    """The comparison of a text with the true distribution of its corpus."""

    log_prob: float  # true log-probability in nats; -inf if the corpus never writes the text
    right: int  # leading characters of the text that some text of the corpus begins with


class AnnotatedCorpus:
    """A corpus that knows something about its texts. By default nothing is known; override what your corpus knows."""

    text_unit: ClassVar[str | None] = None
    """Name of a whole text if its characters mean nothing by themselves, such as "point"; None for prose."""

    def attributes(self) -> Mapping[str, tuple[str, ...]]:
        """Returns all values of each attribute, such as {"mood": ("happy", "sad")}; {} if texts have no attributes."""
        return {}

    def keyword(self, attribute: str, value: str) -> str:
        """Returns the word that shows this value of the attribute in a text."""
        return value

    def recognize(self, text: str) -> Mapping[str, str]:
        """Returns the attributes that a text shows: by default those of which exactly one keyword occurs in it."""
        words = set(split_words(text))
        shown = {
            name: [value for value in values if self.keyword(name, value) in words]
            for name, values in self.attributes().items()
        }
        return {name: values[0] for name, values in shown.items() if len(values) == 1}

    def classified(self, attribute: str | None = None) -> InfiniteCorpus | None:
        """Returns these texts with the values of an attribute as classes (`HasClasses`); None if there are none.

        Args:
            attribute: one of `attributes()`; None to let the corpus choose
        """
        return None

    def tags(self) -> Mapping[str, str] | None:
        """Returns the part of speech of each word; None if unknown."""
        return None

    def words(self) -> tuple[str, ...]:
        """Returns all words that the texts can contain; () if any word may occur."""
        return ()

    def check(self, source: str, text: str) -> SourceCoverage | None:
        """Returns how many facts of its source (a condition or summary) a text states correctly; None if unknown."""
        return None

    def judge(self, text: str) -> Judgment | None:
        """Compares a text with the true distribution; None if that is unknown."""
        return None


def as_annotated(data: object) -> AnnotatedCorpus:
    """Returns the data itself if it is an `AnnotatedCorpus`, else one that knows nothing."""
    return data if isinstance(data, AnnotatedCorpus) else AnnotatedCorpus()


def mean_coverage(data: object, sources: Sequence[str], texts: Sequence[str]) -> SourceCoverage | None:
    """Returns the mean coverage of texts, one per source; None if the corpus cannot check any of them."""
    if not texts:
        raise ValueError("texts is empty; give at least one text")
    corpus = as_annotated(data)
    checked = [corpus.check(source, text) for source, text in zip(sources, texts, strict=True)]
    known = [coverage for coverage in checked if coverage is not None]
    return SourceCoverage(*(sum(values) / len(known) for values in zip(*known, strict=True))) if known else None
