"""What a corpus knows about its texts: attributes, parts of speech, words, and whether a text is right.

Tasks, evaluation, server and command line ask the data of a run through `as_annotated(data)`, so they work with any
corpus that inherits `AnnotatedCorpus` and answers what it knows:

    @dataclass(frozen=True)
    class Weather(AnnotatedCorpus):
        def document(self, split, index): ...
        def attributes(self):
            return {"sky": ("clear", "cloudy")}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from redraft.core.text.tokenizers import split_words
from redraft.training.data.sources import InfiniteCorpus


class SourceCoverage(NamedTuple):
    """How much of its source a text fulfills: for one text, or the mean over several."""

    share: float  # of the facts that are right
    exact: float  # 1 if all are right and the text is grammatical


class Judgment(NamedTuple):
    """A text against the true distribution of its corpus."""

    log_prob: float  # true log-probability in nats; -inf if the corpus never writes the text
    right: int  # leading characters of the text that some text of the corpus begins with


class AnnotatedCorpus:
    """What a corpus can say about its texts. The defaults say nothing; override what is known."""

    def attributes(self) -> Mapping[str, tuple[str, ...]]:
        """Attribute → all its values, such as {"mood": ("happy", "sad")}; {} if the texts have none."""
        return {}

    def keyword(self, attribute: str, value: str) -> str:
        """The word that a text with this value of the attribute contains."""
        return value

    def recognize(self, text: str) -> Mapping[str, str]:
        """The attributes that a text shows; by default those of which just one keyword occurs in it."""
        words = set(split_words(text))
        shown = {
            name: [value for value in values if self.keyword(name, value) in words]
            for name, values in self.attributes().items()
        }
        return {name: values[0] for name, values in shown.items() if len(values) == 1}

    def classified(self, attribute: str | None = None) -> InfiniteCorpus | None:
        """The same texts with the values of an attribute as their classes (`HasClasses`); None if there are none.

        Args:
            attribute: one of `attributes()`; None: the corpus chooses
        """
        return None

    def tags(self) -> Mapping[str, str] | None:
        """Word → part of speech; None if unknown."""
        return None

    def words(self) -> tuple[str, ...]:
        """All words that the texts can contain; () if any word may occur."""
        return ()

    def check(self, source: str, text: str) -> SourceCoverage | None:
        """How much of a source a text fulfills; None if unknown."""
        return None

    def judge(self, text: str) -> Judgment | None:
        """A text against the truth; None if the truth is unknown."""
        return None


def as_annotated(data: object) -> AnnotatedCorpus:
    """What a corpus knows about its texts: nothing, unless it is an `AnnotatedCorpus`."""
    return data if isinstance(data, AnnotatedCorpus) else AnnotatedCorpus()


def mean_coverage(data: object, sources: Sequence[str], texts: Sequence[str]) -> SourceCoverage | None:
    """The means over texts, each the answer to one source; None if the corpus cannot check them."""
    if not texts:
        raise ValueError("there is no text to judge; give at least one")
    corpus = as_annotated(data)
    found = [corpus.check(source, text) for source, text in zip(sources, texts, strict=True)]
    known = [content for content in found if content is not None]
    return SourceCoverage(*(sum(values) / len(known) for values in zip(*known, strict=True))) if known else None
