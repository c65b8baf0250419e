"""Tasks made from the embedded stories: a story from attributes or a class, a summary of a story."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from redraft.core.text.tokenizers import split_words
from redraft.training.data.corpora.grammar import Text
from redraft.training.data.corpora.language import Story, split_seed
from redraft.training.data.corpora.stories import STORIES
from redraft.training.data.pairs import EndlessPairs, Pair
from redraft.training.data.sources import Split


class Content(NamedTuple):
    """How much of its source a text fulfils: for one text, or the mean over several."""

    share: float  # of the facts that are right
    exact: float  # 1 if all are right and the text is grammatical


@runtime_checkable
class Task(EndlessPairs, Protocol):
    """A source of pairs that can judge any answer."""

    def check(self, source: str, target: str) -> Content: ...


@dataclass(frozen=True)
class StoryAttributes:
    """Attributes → a story that has them.

    "who Leo, friend Carl, where river, season summer, mood tired, plot help": the mood is that of the beginning, and in
    the plot something is found, helped or made.
    """

    seed: int = 0
    topics: tuple[str, ...] = tuple(STORIES.topics)

    def __post_init__(self) -> None:
        _require_topics(self.topics)

    def pair(self, split: Split, index: int) -> Pair:
        story = _story(self.seed, split, index)
        return Pair(", ".join(f"{topic} {story.attributes[topic]}" for topic in self.topics), story.text)

    def document(self, split: Split, index: int) -> str:
        return self.pair(split, index).target

    def check(self, source: str, target: str) -> Content:
        """Attributes count if the text reveals them before its first wrong word."""
        wanted = dict(part.strip().split(" ", 1) for part in source.split(","))
        told = STORIES.understood(target)
        right = [told.get(topic) == value for topic, value in wanted.items()]
        return Content(sum(right) / len(right), float(all(right) and STORIES.parse(target) is not None))


@dataclass(frozen=True)
class StoryClasses:
    """The value of one attribute → a story, such as "sad" for the topic mood: the source is one of a few names."""

    topic: str = "mood"
    seed: int = 0

    def __post_init__(self) -> None:
        _require_topics((self.topic,))

    @property
    def classes(self) -> tuple[str, ...]:
        return STORIES.labels(self.topic)

    def pair(self, split: Split, index: int) -> Pair:
        story = _story(self.seed, split, index)
        return Pair(story.attributes[self.topic], story.text)

    def document(self, split: Split, index: int) -> str:
        return self.pair(split, index).target

    def check(self, source: str, target: str) -> Content:
        """Whether the text shows that it is of this class before its first wrong word."""
        return StoryAttributes(topics=(self.topic,)).check(f"{self.topic} {source}", target)


@dataclass(frozen=True)
class StorySummaries:
    """A story → what happens in it, in one sentence that follows from the story."""

    seed: int = 0

    def pair(self, split: Split, index: int) -> Pair:
        story = _story(self.seed, split, index)
        return Pair(story.text, story.summary)

    def document(self, split: Split, index: int) -> str:
        return self.pair(split, index).target

    def check(self, source: str, target: str) -> Content:
        """Facts are the words of the true summary that not all summaries share, each at its position."""
        story = STORIES.parse(source)
        if story is None:
            raise ValueError(f"{source!r:.60} is not a story of the grammar, so its summary is unknown")
        always = {word for node in STORIES.summary.parts() if isinstance(node, Text) for word in node.words}
        true, said = split_words(story.summary), split_words(target)
        right = [place < len(said) and said[place] == word for place, word in enumerate(true) if word not in always]
        return Content(sum(right) / len(right), float(said == true))


def faithful(task: Task, sources: Sequence[str], texts: Sequence[str]) -> Content:
    """The means over texts, each the answer to one source."""
    found = [task.check(source, text) for source, text in zip(sources, texts, strict=True)]
    if not found:
        raise ValueError("there is no text to judge; give at least one")
    return Content(*(sum(values) / len(found) for values in zip(*found, strict=True)))


def _require_topics(topics: Sequence[str]) -> None:
    if unknown := [topic for topic in topics if topic not in (*STORIES.topics, "length")]:
        raise ValueError(f"stories have no {unknown[0]!r}; choose from {', '.join(STORIES.topics)}, length")


def _story(seed: int, split: Split, index: int) -> Story:
    return STORIES.story(split_seed(seed, split), index)
