"""Corpora made from the embedded stories: plain texts, a story from attributes or a class, a summary of a story."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redraft.core.text.tokenizers import split_words
from redraft.training.data.annotations import AnnotatedCorpus, Judgment, SourceCoverage
from redraft.training.data.corpora.grammar import Terminal
from redraft.training.data.corpora.language import Story, split_seed
from redraft.training.data.corpora.stories import STORY_LANGUAGE
from redraft.training.data.corpora.story_tags import STORY_TAGS
from redraft.training.data.pairs import Pair
from redraft.training.data.sources import Split


class _StoryWords(AnnotatedCorpus):
    """Texts of the words that the grammar knows."""

    def tags(self) -> Mapping[str, str]:
        return STORY_TAGS

    def words(self) -> tuple[str, ...]:
        return STORY_LANGUAGE.words()


class _WholeStories(_StoryWords):
    """Texts that are stories of the grammar."""

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
    """The embedded corpus: an endless stream of stories for each split."""

    seed: int = 0

    def document(self, split: Split, index: int) -> str:
        return STORY_LANGUAGE.text(split_seed(self.seed, split), index)

    def log_prob(self, text: str) -> float:
        """True log-probability of a story in nats; -inf if the grammar never writes it."""
        return STORY_LANGUAGE.log_prob(text)

    def entropy_per_char(self) -> float:
        """Exact, in nats."""
        return STORY_LANGUAGE.entropy_per_char()


@dataclass(frozen=True)
class StoryAttributes(_WholeStories):
    """Attributes → a story that has them.

    "who Leo, friend Carl, where river, season summer, mood tired, plot help": the mood is that of the beginning, and in
    the plot something is found, helped or made.
    """

    seed: int = 0
    topics: tuple[str, ...] = tuple(STORY_LANGUAGE.topics)

    def __post_init__(self) -> None:
        _require_topics(self.topics)

    def pair(self, split: Split, index: int) -> Pair:
        story = _story(self.seed, split, index)
        return Pair(", ".join(f"{topic} {story.attributes[topic]}" for topic in self.topics), story.text)

    def document(self, split: Split, index: int) -> str:
        return self.pair(split, index).target

    def check(self, source: str, text: str) -> SourceCoverage:
        """Attributes count if the text reveals them before its first wrong word."""
        wanted = dict(part.strip().split(" ", 1) for part in source.split(","))
        told = STORY_LANGUAGE.recognize(text)
        right = [told.get(topic) == value for topic, value in wanted.items()]
        return SourceCoverage(sum(right) / len(right), float(all(right) and STORY_LANGUAGE.parse(text) is not None))


@dataclass(frozen=True)
class StoryClasses(_WholeStories):
    """The value of one attribute → a story, such as "sad" for the topic mood: the source is one of a few names."""

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
        """Whether the text shows that it is of this class before its first wrong word."""
        return StoryAttributes(topics=(self.topic,)).check(f"{self.topic} {source}", text)


@dataclass(frozen=True)
class StorySummaries(_StoryWords):
    """A story → what happens in it, in one sentence that follows from the story."""

    seed: int = 0

    def pair(self, split: Split, index: int) -> Pair:
        story = _story(self.seed, split, index)
        return Pair(story.text, story.summary)

    def document(self, split: Split, index: int) -> str:
        return self.pair(split, index).target

    def check(self, source: str, text: str) -> SourceCoverage:
        """Facts are the words of the true summary that not all summaries share, each at its position."""
        story = STORY_LANGUAGE.parse(source)
        if story is None:
            raise ValueError(f"{source!r:.60} is not a story of the grammar, so its summary is unknown")
        always = {word for node in STORY_LANGUAGE.summary.parts() if isinstance(node, Terminal) for word in node.words}
        true, said = split_words(story.summary), split_words(text)
        right = [place < len(said) and said[place] == word for place, word in enumerate(true) if word not in always]
        return SourceCoverage(sum(right) / len(right), float(said == true))


def _require_topics(topics: Sequence[str]) -> None:
    if unknown := [topic for topic in topics if topic not in (*STORY_LANGUAGE.topics, "length")]:
        raise ValueError(f"stories have no {unknown[0]!r}; choose from {', '.join(STORY_LANGUAGE.topics)}, length")


def _story(seed: int, split: Split, index: int) -> Story:
    return STORY_LANGUAGE.story(split_seed(seed, split), index)
