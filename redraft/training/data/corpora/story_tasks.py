"""Corpora made from the built-in stories: plain stories, a story from attributes or a class, a summary of a story."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redraft.core.text.tokenizers import split_words
from redraft.training.data.annotations import AnnotatedCorpus, Judgment, SourceCoverage
from redraft.training.data.corpora.language import Story, split_seed
from redraft.training.data.corpora.stories import STORY_LANGUAGE
from redraft.training.data.corpora.story_tags import STORY_TAGS
from redraft.training.data.pairs import Pair
from redraft.training.data.sources import Split


class _StoryWords(AnnotatedCorpus):
    """A corpus of texts that use only words of the story grammar, whose parts of speech are known."""

    def tags(self) -> Mapping[str, str]:
        return STORY_TAGS

    def words(self) -> tuple[str, ...]:
        return STORY_LANGUAGE.words()


class _WholeStories(_StoryWords):
    """A corpus of whole stories, which the grammar can check."""

    seed: int

    def attributes(self) -> Mapping[str, tuple[str, ...]]:
        return STORY_LANGUAGE.attributes()

    def keyword(self, attribute: str, value: str) -> str:
        return STORY_LANGUAGE.keyword(attribute, value)

    def recognize(self, text: str) -> Mapping[str, str]:
        return STORY_LANGUAGE.recognize(text)

    def classified(self, attribute: str | None = None) -> StoryClasses:
        return StoryClasses(attribute or "mood", self.seed)

    def judge(self, text: str) -> Judgment:
        return STORY_LANGUAGE.judge(text)


@dataclass(frozen=True)
class StoryCorpus(_WholeStories):
    """The built-in corpus: an infinite stream of stories for each split."""

    seed: int = 0

    def document(self, split: Split, index: int) -> str:
        return STORY_LANGUAGE.text(split_seed(self.seed, split), index)

    def log_prob(self, text: str) -> float:
        """Returns the true log-probability of a story in nats; -inf if the grammar cannot produce it."""
        return STORY_LANGUAGE.log_prob(text)

    def entropy_per_char(self) -> float:
        """Returns the exact entropy in nats per character."""
        return STORY_LANGUAGE.entropy_per_char()


@dataclass(frozen=True)
class StoryAttributes(_WholeStories):
    """Pairs of attributes and a story that has them.

    A source is "who Leo, friend Carl, where river, season summer, mood tired, plot help". The mood is that at the
    beginning; in the plot, something is found, helped or made.
    """

    seed: int = 0
    topics: tuple[str, ...] = tuple(STORY_LANGUAGE.topics)  # attributes in the source

    def __post_init__(self) -> None:
        _require_topics(self.topics)

    def pair(self, split: Split, index: int) -> Pair:
        story = _story(self.seed, split, index)
        return Pair(", ".join(f"{topic} {story.attributes[topic]}" for topic in self.topics), story.text)

    def document(self, split: Split, index: int) -> str:
        return self.pair(split, index).target

    def check(self, source: str, text: str) -> SourceCoverage:
        """Counts the attributes that the text reveals before its first wrong word."""
        wanted = dict(part.strip().split(" ", 1) for part in source.split(","))
        shown = STORY_LANGUAGE.recognize(text)
        right = [shown.get(topic) == value for topic, value in wanted.items()]
        return SourceCoverage(sum(right) / len(right), float(all(right) and STORY_LANGUAGE.parse(text) is not None))


@dataclass(frozen=True)
class StoryClasses(_WholeStories):
    """Pairs of a class and a story of that class; classes are values of one attribute, such as the mood "sad"."""

    topic: str = "mood"
    seed: int = 0

    def __post_init__(self) -> None:
        _require_topics((self.topic,))

    @property
    def classes(self) -> tuple[str, ...]:
        return STORY_LANGUAGE.labels(self.topic)

    def pair(self, split: Split, index: int) -> Pair:
        story = _story(self.seed, split, index)
        return Pair(story.attributes[self.topic], story.text)

    def document(self, split: Split, index: int) -> str:
        return self.pair(split, index).target

    def check(self, source: str, text: str) -> SourceCoverage:
        """Checks whether the text shows its class before its first wrong word."""
        return StoryAttributes(topics=(self.topic,)).check(f"{self.topic} {source}", text)


@dataclass(frozen=True)
class StorySummaries(_StoryWords):
    """Pairs of a story and its summary, one sentence that is determined by the story."""

    seed: int = 0

    def pair(self, split: Split, index: int) -> Pair:
        story = _story(self.seed, split, index)
        return Pair(story.text, story.summary)

    def document(self, split: Split, index: int) -> str:
        return self.pair(split, index).target

    def check(self, source: str, text: str) -> SourceCoverage:
        """Counts the words at their positions that are right, without those that all summaries share."""
        story = STORY_LANGUAGE.parse(source)
        if story is None:
            raise ValueError(
                f"{source!r:.60} is not a story of the grammar, so its summary is unknown; give a story of StoryCorpus"
            )
        always = {word for node in STORY_LANGUAGE.summary.parts() for word in node.fixed_words()}
        expected, words = split_words(story.summary), split_words(text)
        right = [i < len(words) and words[i] == word for i, word in enumerate(expected) if word not in always]
        return SourceCoverage(sum(right) / len(right), float(words == expected))


def _require_topics(topics: Sequence[str]) -> None:
    if unknown := [topic for topic in topics if topic not in (*STORY_LANGUAGE.topics, "length")]:
        raise ValueError(
            f"stories have no attribute {unknown[0]!r}; choose from {', '.join(STORY_LANGUAGE.topics)}, length"
        )


def _story(seed: int, split: Split, index: int) -> Story:
    return STORY_LANGUAGE.story(split_seed(seed, split), index)


_NAMED = {
    "stories": StoryCorpus(),
}
