"""Languages of stories with exact probabilities: sampling, parsing, entropy, attributes and summaries."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import count

from redraft.core.text.tokenizers import join_words, split_words
from redraft.training.data.annotations import AnnotatedCorpus, Judgment
from redraft.training.data.corpora.grammar import (
    _AllDerivations,
    _Alternatives,
    _chars,
    _DerivationSum,
    _draws,
    _Node,
    _ParseTraversal,
    _PartialStory,
    _Phrase,
    _Phrases,
    _StoryDraft,
    _subtree,
    _Topic,
)
from redraft.training.data.sources import SPLITS

_LENGTHS = ("short", "medium", "long")


def split_seed(seed: int, split: str) -> int:
    """Returns the seed of an independent stream for "train", "valid" or "test"."""
    if split not in SPLITS:
        raise ValueError(f"split={split!r} is not a split; use one of {', '.join(SPLITS)}")
    return int.from_bytes(blake2b(f"{seed}/{split}".encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True)
class Story:
    """A story with its attributes, a one-sentence summary and its exact log-probability in nats."""

    text: str
    attributes: Mapping[str, str]
    summary: str
    log_prob: float


@dataclass(frozen=True, eq=False, repr=False)
class Language(AnnotatedCorpus):
    """A language of stories: `tale` is their grammar, and `summary` makes one sentence of the memory of a story.

    `topics` maps each attribute of a story to its place in memory. The attribute "length" (short, medium or long) is
    the number of sentences; `lengths` holds the maximum of short and of medium. `keywords` are the words that reveal an
    attribute if they differ from its value: {"plot": {"find": "found"}}.
    """

    tale: _Node
    summary: _Node
    topics: Mapping[str, _Topic]
    lengths: tuple[int, int]
    keywords: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in (*_subtree(self.tale), *_subtree(self.summary)):
            node.require(self._phrases)
        if any(node.choices() for node in _subtree(self.summary)):
            raise ValueError(
                "the summary has a choice, but it must be determined by the story; move the choice to the story"
            )

    def story(self, seed: int, index: int) -> Story:
        """Returns the story with this seed and index, a pure function of both."""
        draft = self._draft(seed, index)
        return self._story(_PartialStory(tuple(draft.words), draft.memory, draft.log_prob))

    def text(self, seed: int, index: int) -> str:
        """Returns only the text of a story, in two thirds of the time."""
        return join_words(self._draft(seed, index).words)

    def _draft(self, seed: int, index: int) -> _StoryDraft:
        draft = _StoryDraft(_draws(seed, index))
        self.tale.draw(draft)
        return draft

    def stories(self, seed: int, start: int = 0) -> Iterator[Story]:
        """Yields the stories of a seed from index `start` on, forever."""
        return (self.story(seed, index) for index in count(start))

    def parse(self, text: str) -> Story | None:
        """Returns the story with this text; None if the text is outside the language."""
        words = split_words(text)
        if join_words(words) != text:
            return None
        derivations = [d for d in self.tale.expand(_PartialStory(), _ParseTraversal(words)) if d.words == words]
        if len(derivations) > 1:
            raise ValueError(f"the grammar derives {text!r} in {len(derivations)} ways; see Language.lookahead")
        return self._story(derivations[0]) if derivations else None

    def log_prob(self, text: str) -> float:
        """Returns the exact log-probability of a text in nats; -inf outside the language."""
        story = self.parse(text)
        return story.log_prob if story else -math.inf

    def judge(self, text: str) -> Judgment:
        return Judgment(self.log_prob(text), self._correct_chars(text))

    def grammatical_prefix(self, text: str) -> int:
        """Returns the number of leading sentences that are the beginning of some story."""
        return text[: self._correct_chars(text)].count(".")

    def recognize(self, text: str) -> Mapping[str, str]:
        """Returns the attributes that a text reveals before its first wrong word; a whole story reveals all of them.

        If several derivations match the words so far, attributes in which they differ are left out.
        """
        if (story := self.parse(text)) is not None:
            return story.attributes
        furthest = self._follow(text).furthest
        values = {
            name: {_recall_if_known(partial, topic) for partial in furthest} for name, topic in self.topics.items()
        }
        return {name: join_words(words) for name, (words, *more) in values.items() if words is not None and not more}

    def entropy(self) -> float:
        """Returns the exact entropy in nats per story, E[-ln p]; no model has a lower mean loss."""
        return self._sum(_DerivationSum(self._tested, factor=lambda p: p, price=lambda p: -math.log(p)))[1]

    def expected_chars(self) -> float:
        """Returns the exact mean number of characters of a story.

        The mean is linear, so each slot gets its own sum, and no joint distribution is needed.
        """
        slots = {slot for slot, _ in self._emitted}
        return sum(self._mean_chars(slot) for slot in (None, *sorted(slots))) - 1  # no space before the first word

    def entropy_per_char(self) -> float:
        """Returns nats per character: entropy / expected number of characters."""
        return self.entropy() / self.expected_chars()

    def support(self) -> int:
        """Returns the exact number of different stories."""
        return int(self._sum(_DerivationSum(self._tested, factor=lambda p: 1))[0])

    def collision(self) -> float:
        """Returns the exact probability Σ p² that two independent stories are equal."""
        return self._sum(_DerivationSum(self._tested, factor=lambda p: p * p))[0]

    def words(self) -> _Phrase:
        """Returns all words and punctuation marks of stories, summaries and attributes, sorted."""
        nodes = [*_subtree(self.tale), *_subtree(self.summary)]
        texts = (node.fixed_words() for node in nodes)
        topics = {topic for node in nodes for topic in node.emitted()}
        phrases = (words for topic in topics for words in self._phrases[topic])
        labels = (self.labels(name) for name in (*self.topics, "length"))
        return tuple(sorted({*self.topics, "length"}.union(*texts, *phrases, *labels)))

    def labels(self, attribute: str) -> _Phrase:
        """Returns all values of an attribute, sorted."""
        if attribute == "length":
            return _LENGTHS
        return tuple(sorted(join_words(words) for words in self._phrases[self.topics[attribute]]))

    def attributes(self) -> Mapping[str, _Phrase]:
        return {name: self.labels(name) for name in self.topics}

    def keyword(self, attribute: str, value: str) -> str:
        return self.keywords.get(attribute, {}).get(value, value)

    def enumerate(self) -> Iterator[tuple[str, float]]:
        """Yields all stories as (text, log-probability); for small grammars."""
        derivations = self.tale.expand(_PartialStory(), _AllDerivations())
        return ((join_words(derivation.words), derivation.log_prob) for derivation in derivations)

    def lookahead(self, limit: int = 16) -> int:
        """Returns how many next words decide every choice; raises if the grammar may be ambiguous.

        If no two alternatives of a choice can begin with the same words, at most one of them matches a given text, for
        any memory and any continuation. By induction from the first word, a text then has at most one derivation.
        """
        choices = (choice for node in _subtree(self.tale) for choice in node.choices())
        return max(self._words_to_decide(choice, limit) for choice in choices)

    def _words_to_decide(self, choice: _Alternatives, limit: int) -> int:
        k, clash = 1, choice.clash(1, self._phrases)
        while clash is not None:
            if len(clash) < k or k == limit:  # one alternative is a prefix of another, or they agree up to the limit
                raise ValueError(
                    f"ambiguous grammar: {join_words(clash)!r} begins two alternatives; make them begin differently"
                )
            k, clash = k + 1, choice.clash(k + 1, self._phrases)
        return k

    def _correct_chars(self, text: str) -> int:
        """Returns the number of leading characters that match some story."""
        parse = self._follow(text)
        matching = join_words(parse.target[: parse.matched])
        return next(n for n in range(len(matching), -1, -1) if text.startswith(matching[:n]))

    def _follow(self, text: str) -> _ParseTraversal:
        """Returns a traversal that has followed the words of a text as far as they match some story."""
        parse = _ParseTraversal(split_words(text))
        self.tale.expand(_PartialStory(), parse)
        return parse

    def _story(self, derivation: _PartialStory) -> Story:
        """Returns the story of a complete derivation."""
        (summary,) = self.summary.expand(_PartialStory(memory=derivation.memory), _AllDerivations())
        attributes = {name: join_words(derivation.recall(topic)) for name, topic in self.topics.items()}
        attributes["length"] = _LENGTHS[bisect_right(self.lengths, derivation.words.count(".") - 1)]
        return Story(join_words(derivation.words), attributes, join_words(summary.words), derivation.log_prob)

    def _sum(self, summation: _DerivationSum) -> tuple[float, float]:
        """Returns the total mass and cost of all derivations."""
        sums = self.tale.accumulate_states({frozenset(): (1, 0)}, summation).values()
        return sum(mass for mass, _ in sums), sum(cost for _, cost in sums)

    def _mean_chars(self, slot: str | None) -> float:
        """Returns the mean number of characters from a slot (emitted by `_Emit`), or, for None, of fixed words."""

        def length(topic: _Topic | None, words: _Phrase) -> float:
            return _chars(words) if (topic and topic[0]) == slot else 0

        keep = self._tested | {topic for topic in self._emitted if topic[0] == slot}
        return self._sum(_DerivationSum(keep, factor=lambda p: p, length=length))[1]

    @cached_property
    def _emitted(self) -> frozenset[_Topic]:
        return frozenset(topic for node in _subtree(self.tale) for topic in node.emitted())

    @cached_property
    def _tested(self) -> frozenset[_Topic]:
        return frozenset(topic for node in _subtree(self.tale) for topic in node.tested())

    @cached_property
    def _phrases(self) -> _Phrases:
        phrases: dict[_Topic, set[_Phrase]] = {}
        for node in _subtree(self.tale):
            for topic, words in node.stored():
                phrases.setdefault(topic, set()).add(words)
        return {topic: frozenset(words) for topic, words in phrases.items()}


def _recall_if_known(partial: _PartialStory, topic: _Topic) -> _Phrase | None:
    return partial.recall(topic) if topic[0] in partial.memory else None
