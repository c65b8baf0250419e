"""A language of stories with exact probabilities: samples, parses, entropy, support, attributes and summaries."""

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
    AllDerivations,
    Alternatives,
    Assign,
    CaseOf,
    DerivationSum,
    Emit,
    Node,
    ParseTraversal,
    PartialStory,
    Phrase,
    StoryDraft,
    Terminal,
    _chars,
    _draws,
    _Phrases,
    _subtree,
    _Topic,
)
from redraft.training.data.sources import SPLITS

_LENGTHS = ("short", "medium", "long")


def split_seed(seed: int, split: str) -> int:
    """The seed of an independent stream of stories for "train", "valid" or "test"."""
    if split not in SPLITS:
        raise ValueError(f"split={split!r} is not known; use one of {', '.join(SPLITS)}")
    return int.from_bytes(blake2b(f"{seed}/{split}".encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True)
class Story:
    """A story with its attributes, a summary in one sentence, and its exact log-probability in nats."""

    text: str
    attributes: Mapping[str, str]
    summary: str
    log_prob: float


@dataclass(frozen=True, eq=False, repr=False)
class Language(AnnotatedCorpus):
    """A language of stories: `tale` tells them, `summary` puts what a tale has left in memory into one sentence.

    `topics` names the attributes of a story and where memory holds them; the attribute "length" (short, medium or long)
    comes from the number of sentences, `lengths` being the largest short and the largest medium number. `keywords` are
    the words that reveal an attribute where they differ from its value: {"plot": {"find": "found"}}.
    """

    tale: Node
    summary: Node
    topics: Mapping[str, _Topic]
    lengths: tuple[int, int]
    keywords: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in (*_subtree(self.tale), *_subtree(self.summary)):
            if isinstance(node, Emit | CaseOf) and node.topic not in self._phrases:
                raise ValueError(f"nothing is ever remembered as {{{'.'.join(node.topic)}}}; add it to an entry")
            if isinstance(node, CaseOf) and (lacking := self._phrases[node.topic] - node.cases.keys()):
                raise ValueError(
                    f"a case of {{{'.'.join(node.topic)}}} lacks {sorted(map(join_words, lacking))}; add them"
                )
        if any(isinstance(node, Alternatives) for node in _subtree(self.summary)):
            raise ValueError("the summary has a choice; it must follow from the story alone, so move the choice there")

    def story(self, seed: int, index: int) -> Story:
        """Story number `index` of a seed, a pure function of both."""
        draft = self._draft(seed, index)
        return self._story(PartialStory(tuple(draft.words), draft.memory, draft.log_prob))

    def text(self, seed: int, index: int) -> str:
        """Only the text of a story, which takes two thirds of the time."""
        return join_words(self._draft(seed, index).words)

    def _draft(self, seed: int, index: int) -> StoryDraft:
        draft = StoryDraft(_draws(seed, index))
        self.tale.draw(draft)
        return draft

    def stories(self, seed: int, start: int = 0) -> Iterator[Story]:
        """The endless stories of a seed, from number `start` on."""
        return (self.story(seed, index) for index in count(start))

    def parse(self, text: str) -> Story | None:
        """The story behind a text, or None if the text is outside the language."""
        words = split_words(text)
        if join_words(words) != text:
            return None
        tellings = [told for told in self.tale.tell(PartialStory(), ParseTraversal(words)) if told.words == words]
        if len(tellings) > 1:
            raise ValueError(f"the grammar derives {text!r} in {len(tellings)} ways; see Language.lookahead")
        return self._story(tellings[0]) if tellings else None

    def log_prob(self, text: str) -> float:
        """Exact log-probability of a text in nats; -inf outside the language."""
        story = self.parse(text)
        return story.log_prob if story else -math.inf

    def judge(self, text: str) -> Judgment:
        return Judgment(self.log_prob(text), self._right(text))

    def grammatical_prefix(self, text: str) -> int:
        """The number of leading sentences that are correct: together they are the beginning of some story."""
        return text[: self._right(text)].count(".")

    def recognize(self, text: str) -> Mapping[str, str]:
        """The attributes that a text reveals before its first wrong word; a whole story reveals all of them.

        If several derivations agree with the words so far, attributes in which they differ are still open.
        """
        if (story := self.parse(text)) is not None:
            return story.attributes
        follow = self._follow(text)
        told = {name: {_recalled(telling, topic) for telling in follow.furthest} for name, topic in self.topics.items()}
        return {name: join_words(words) for name, (words, *more) in told.items() if words is not None and not more}

    def entropy(self) -> float:
        """Exact entropy in nats per story, E[-ln p]; no model has a lower mean loss."""
        return self._sum(DerivationSum(self._tested, factor=lambda p: p, price=lambda p: -math.log(p)))[1]

    def expected_chars(self) -> float:
        """Exact mean number of characters of a story.

        A mean is linear, so each slot gets its own walk and no joint distribution is needed.
        """
        slots = {slot for slot, _ in self._said}
        return sum(self._mean_chars(slot) for slot in (None, *sorted(slots))) - 1  # no space before the first word

    def entropy_per_char(self) -> float:
        """Entropy per character in nats: entropy / mean characters."""
        return self.entropy() / self.expected_chars()

    def support(self) -> int:
        """Exact number of different stories."""
        return int(self._sum(DerivationSum(self._tested, factor=lambda p: 1))[0])

    def collision(self) -> float:
        """Exact probability Σ p² that two stories drawn independently are equal."""
        return self._sum(DerivationSum(self._tested, factor=lambda p: p * p))[0]

    def words(self) -> Phrase:
        """All words and punctuation marks that a story, its summary or its attributes can hold, sorted."""
        nodes = [*_subtree(self.tale), *_subtree(self.summary)]
        texts = (node.words for node in nodes if isinstance(node, Terminal))
        topics = {node.topic for node in nodes if isinstance(node, Emit)}
        phrases = (words for topic in topics for words in self._phrases[topic])
        labels = (self.labels(name) for name in (*self.topics, "length"))
        return tuple(sorted({*self.topics, "length"}.union(*texts, *phrases, *labels)))

    def labels(self, attribute: str) -> Phrase:
        """All values of an attribute, sorted."""
        if attribute == "length":
            return _LENGTHS
        return tuple(sorted(join_words(words) for words in self._phrases[self.topics[attribute]]))

    def attributes(self) -> Mapping[str, Phrase]:
        return {name: self.labels(name) for name in self.topics}

    def keyword(self, attribute: str, value: str) -> str:
        return self.keywords.get(attribute, {}).get(value, value)

    def enumerate(self) -> Iterator[tuple[str, float]]:
        """All stories as (text, log-probability); for small grammars."""
        return ((join_words(told.words), told.log_prob) for told in self.tale.tell(PartialStory(), AllDerivations()))

    def lookahead(self, limit: int = 16) -> int:
        """How many next words decide every choice, which proves the grammar unambiguous.

        If no alternative of a choice can begin like another, at most one of them agrees with a given text, whatever is
        remembered and whatever follows. By induction from the first word on, a text then has at most one derivation.
        """
        choices = [node for node in _subtree(self.tale) if isinstance(node, Alternatives)]
        return max(self._words_to_decide(choice, limit) for choice in choices)

    def _words_to_decide(self, choice: Alternatives, limit: int) -> int:
        k, clash = 1, choice.clash(1, self._phrases)
        while clash is not None:
            if len(clash) < k or k == limit:  # one alternative is the beginning of another, or both go on alike
                raise ValueError(f"ambiguous: {join_words(clash)!r} begins two alternatives; let them open differently")
            k, clash = k + 1, choice.clash(k + 1, self._phrases)
        return k

    def _right(self, text: str) -> int:
        """The number of leading characters that agree with some story."""
        follow = self._follow(text)
        agreed = join_words(follow.heard[: follow.reach])
        return next(n for n in range(len(agreed), -1, -1) if text.startswith(agreed[:n]))

    def _follow(self, text: str) -> ParseTraversal:
        """How far the words of a text agree with some story."""
        follow = ParseTraversal(split_words(text))
        self.tale.tell(PartialStory(), follow)
        return follow

    def _story(self, told: PartialStory) -> Story:
        (summary,) = self.summary.tell(PartialStory(memory=told.memory), AllDerivations())
        attributes = {name: join_words(told.recall(topic)) for name, topic in self.topics.items()}
        length = _LENGTHS[bisect_right(self.lengths, told.words.count(".") - 1)]
        return Story(join_words(told.words), attributes | {"length": length}, join_words(summary.words), told.log_prob)

    def _sum(self, account: DerivationSum) -> tuple[float, float]:
        sums = self.tale.weigh({frozenset(): (1, 0)}, account).values()
        return sum(mass for mass, _ in sums), sum(cost for _, cost in sums)

    def _mean_chars(self, slot: str | None) -> float:
        """Mean number of characters that `Emit` takes from a slot, or (None) that `Terminal` says."""

        def length(topic: _Topic | None, words: Phrase) -> float:
            return _chars(words) if (topic and topic[0]) == slot else 0

        keep = self._tested | {topic for topic in self._said if topic[0] == slot}
        return self._sum(DerivationSum(keep, factor=lambda p: p, length=length))[1]

    @cached_property
    def _said(self) -> frozenset[_Topic]:
        return frozenset(node.topic for node in _subtree(self.tale) if isinstance(node, Emit))

    @cached_property
    def _tested(self) -> frozenset[_Topic]:
        return frozenset(node.topic for node in _subtree(self.tale) if isinstance(node, CaseOf))

    @cached_property
    def _phrases(self) -> _Phrases:
        phrases: dict[_Topic, set[Phrase]] = {}
        for node in _subtree(self.tale):
            if isinstance(node, Assign):
                for form, words in node.entry.items():
                    phrases.setdefault((node.slot, form), set()).add(words)
        return {topic: frozenset(words) for topic, words in phrases.items()}


def _recalled(told: PartialStory, topic: _Topic) -> Phrase | None:
    return told.recall(topic) if topic[0] in told.memory else None
