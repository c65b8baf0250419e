"""Nodes of a probabilistic grammar, and the guides that walk it: to sample, to parse, to enumerate, to weigh."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple

from redraft.core.text.tokenizers import PUNCTUATION

Phrase = tuple[str, ...]  # punctuation marks are words
Entry = Mapping[str, Phrase]  # form → words: {"name": ("Anna",), "they": ("she",)}
_Topic = tuple[str, str]  # (slot, form)
_Phrases = Mapping[_Topic, frozenset[Phrase]]  # everything that may be remembered under each topic
_Kept = frozenset[tuple[_Topic, Phrase]]  # what an account remembers
_Cloud = dict[_Kept, tuple[float, float]]  # → (mass, mass × mean cost) of all derivations that led there
_MASK = 2**64 - 1


def _chars(words: Phrase) -> int:
    """Characters that words add to a text, counting the space before each."""
    return sum(len(word) + (word not in PUNCTUATION) for word in words)


def _draws(seed: int, index: int) -> Iterator[int]:
    """Endless 64-bit integers of one story: SplitMix64, started at a BLAKE2 hash of (seed, index)."""
    state = int.from_bytes(blake2b(f"{seed}/{index}".encode(), digest_size=8).digest(), "little")
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        yield z ^ (z >> 31)


# --- guides: which derivations a walk follows ---


class PartialStory(NamedTuple):
    """A story half told: the words so far, what is remembered, and the log-probability of the choices made."""

    words: Phrase = ()
    memory: Mapping[str, Entry] = MappingProxyType({})
    log_prob: float = 0.0

    def recall(self, topic: _Topic) -> Phrase:
        return _recall(self.memory, topic)


def _recall(memory: Mapping[str, Entry], topic: _Topic) -> Phrase:
    slot, form = topic
    if slot not in memory:
        raise ValueError(f"{{{slot}.{form}}} comes before anything is remembered as {slot!r}; draw it earlier")
    return memory[slot][form]


@dataclass
class StoryDraft:
    """A story while it is drawn: a `PartialStory` that grows in place, since training draws thousands a second."""

    draws: Iterator[int]
    words: list[str] = field(default_factory=list)
    memory: dict[str, Entry] = field(default_factory=dict)
    log_prob: float = 0.0

    def pick(self, choice: Alternatives) -> Option:
        ceilings = choice.ceilings
        ticket = next(self.draws) * ceilings[-1] >> 64  # uniform below the sum of weights
        return choice.options[bisect_right(ceilings, ticket)]


class Traversal(ABC):
    """Says which options of a choice to try, and which words may come next."""

    @abstractmethod
    def options(self, choice: Alternatives) -> Sequence[Option]: ...

    @abstractmethod
    def accepts(self, told: PartialStory, words: Phrase) -> bool: ...


class AllDerivations(Traversal):
    """Follows all derivations."""

    def options(self, choice: Alternatives) -> Sequence[Option]:
        return choice.options

    def accepts(self, told: PartialStory, words: Phrase) -> bool:
        return True


@dataclass
class ParseTraversal(Traversal):
    """Follows the derivations of given words, and notes how far from the start any derivation agreed with them."""

    heard: Phrase
    reach: int = 0
    furthest: list[PartialStory] = field(
        default_factory=list
    )  # those that agreed so far, before their first wrong word

    def options(self, choice: Alternatives) -> Sequence[Option]:
        return choice.options

    def accepts(self, told: PartialStory, words: Phrase) -> bool:
        at = len(told.words)
        agreed = _agreement(self.heard[at : at + len(words)], words)
        self._note(told, at + agreed)
        return agreed == len(words)

    def _note(self, told: PartialStory, reach: int) -> None:
        best = (self.reach, len(self.furthest[0].words) if self.furthest else 0)
        if (reach, len(told.words)) > best:
            self.reach, self.furthest = reach, [told]
        elif (reach, len(told.words)) == best:
            self.furthest.append(told)


def _agreement(heard: Phrase, words: Phrase) -> int:
    """How many words agree from the start; `heard` is at most as long as `words`."""
    n = 0
    while n < len(heard) and heard[n] == words[n]:
        n += 1
    return n


# --- accounts: what a walk over all derivations adds up ---


@dataclass(frozen=True)
class DerivationSum:
    """A sum over all derivations: mass Π factor(p) and, weighted by it, cost Σ price(p) + Σ length(words).

    Only the topics in `keep` are remembered along the walk. Derivations that agree on them are added together, so that
    a sum over 10^14 stories visits a few dozen cases.
    """

    keep: frozenset[_Topic]
    factor: Callable[[float], float]
    price: Callable[[float], float] = lambda p: 0
    length: Callable[[_Topic | None, Phrase], float] = lambda topic, words: 0

    def branch(self, cloud: _Cloud, p: float) -> _Cloud:
        factor, price = self.factor(p), self.price(p)
        return {kept: (mass * factor, (cost + mass * price) * factor) for kept, (mass, cost) in cloud.items()}

    def remember(self, kept: _Kept, slot: str, entry: Entry) -> _Kept:
        others = {(topic, words) for topic, words in kept if topic[0] != slot}
        return frozenset(others | {((slot, form), entry[form]) for form in entry if (slot, form) in self.keep})


def _merge(clouds: Iterable[_Cloud]) -> _Cloud:
    total: _Cloud = {}
    for cloud in clouds:
        for kept, (mass, cost) in cloud.items():
            old = total.get(kept, (0, 0))
            total[kept] = (old[0] + mass, old[1] + cost)
    return total


class Node(ABC):
    """A piece of grammar: a distribution over words, given what is remembered."""

    def parts(self) -> tuple[Node, ...]:
        """The nodes directly below."""
        return ()

    @abstractmethod
    def draw(self, draft: StoryDraft) -> None:
        """One continuation, drawn by its probability."""

    @abstractmethod
    def tell(self, told: PartialStory, guide: Traversal) -> list[PartialStory]:
        """Every continuation of `told` that the guide allows."""

    @abstractmethod
    def weigh(self, cloud: _Cloud, account: DerivationSum) -> _Cloud:
        """The sums of `account` after this node, from those before it."""

    @abstractmethod
    def openings(self, k: int, phrases: _Phrases) -> frozenset[Phrase]:
        """The first k words of everything this node can say, whatever is remembered; shorter texts are whole."""


def _subtree(node: Node) -> Iterator[Node]:
    """A node and all below it, each once."""
    todo, seen = [node], {node}
    while todo:
        yield (node := todo.pop())
        fresh = [part for part in dict.fromkeys(node.parts()) if part not in seen]
        seen.update(fresh)
        todo += fresh


@dataclass(frozen=True, eq=False)
class Terminal(Node):
    """Says fixed words."""

    words: Phrase

    def draw(self, draft: StoryDraft) -> None:
        draft.words += self.words

    def tell(self, told: PartialStory, guide: Traversal) -> list[PartialStory]:
        if not guide.accepts(told, self.words):
            return []
        return [PartialStory(told.words + self.words, told.memory, told.log_prob)]

    def weigh(self, cloud: _Cloud, account: DerivationSum) -> _Cloud:
        length = account.length(None, self.words)
        return {kept: (mass, cost + mass * length) for kept, (mass, cost) in cloud.items()}

    def openings(self, k: int, phrases: _Phrases) -> frozenset[Phrase]:
        return frozenset({self.words[:k]})


@dataclass(frozen=True, eq=False)
class Sequential(Node):
    """Says one part after the other."""

    nodes: tuple[Node, ...]

    def parts(self) -> tuple[Node, ...]:
        return self.nodes

    def draw(self, draft: StoryDraft) -> None:
        for node in self.nodes:
            node.draw(draft)

    def tell(self, told: PartialStory, guide: Traversal) -> list[PartialStory]:
        tellings = [told]
        for node in self.nodes:
            tellings = [after for before in tellings for after in node.tell(before, guide)]
        return tellings

    def weigh(self, cloud: _Cloud, account: DerivationSum) -> _Cloud:
        for node in self.nodes:
            cloud = node.weigh(cloud, account)
        return cloud

    def openings(self, k: int, phrases: _Phrases) -> frozenset[Phrase]:
        done, open_ = frozenset[Phrase](), frozenset[Phrase]({()})
        for node in self.nodes:
            grown = {head + tail for head in open_ for tail in node.openings(k - len(head), phrases)}
            done |= {head for head in grown if len(head) == k}
            open_ = frozenset(grown - done)
            if not open_:
                break
        return done | open_


class Option(NamedTuple):
    """An alternative and its weight; its probability is weight / sum of weights."""

    weight: int
    node: Node


@dataclass(frozen=True, eq=False)
class Alternatives(Node):
    """Says one of several alternatives."""

    options: tuple[Option, ...]

    @cached_property
    def ceilings(self) -> list[int]:
        return list(accumulate(option.weight for option in self.options))

    def probability(self, option: Option) -> float:
        return option.weight / self.ceilings[-1]

    def parts(self) -> tuple[Node, ...]:
        return tuple(option.node for option in self.options)

    def draw(self, draft: StoryDraft) -> None:
        option = draft.pick(self)
        option.node.draw(draft)
        draft.log_prob += math.log(self.probability(option))

    def tell(self, told: PartialStory, guide: Traversal) -> list[PartialStory]:
        return [
            PartialStory(after.words, after.memory, after.log_prob + math.log(self.probability(option)))
            for option in guide.options(self)
            for after in option.node.tell(told, guide)
        ]

    def weigh(self, cloud: _Cloud, account: DerivationSum) -> _Cloud:
        branches = ((option.node, account.branch(cloud, self.probability(option))) for option in self.options)
        return _merge(node.weigh(branch, account) for node, branch in branches)

    def openings(self, k: int, phrases: _Phrases) -> frozenset[Phrase]:
        return frozenset().union(*(option.node.openings(k, phrases) for option in self.options))

    def clash(self, k: int, phrases: _Phrases) -> Phrase | None:
        """An opening of one alternative which, within k words, may also be another's; None if k words decide."""
        heads = [option.node.openings(k, phrases) for option in self.options]
        owners: dict[Phrase, set[int]] = {}
        for owner, openings in enumerate(heads):
            for prefix in {opening[:n] for opening in openings for n in range(k + 1)}:
                owners.setdefault(prefix, set()).add(owner)
        return next((head for openings in heads for head in openings if len(owners[head]) > 1), None)


@dataclass(frozen=True, eq=False)
class Assign(Node):
    """Remembers an entry in a slot and says nothing."""

    slot: str
    entry: Entry

    def draw(self, draft: StoryDraft) -> None:
        draft.memory[self.slot] = self.entry

    def tell(self, told: PartialStory, guide: Traversal) -> list[PartialStory]:
        return [PartialStory(told.words, {**told.memory, self.slot: self.entry}, told.log_prob)]

    def weigh(self, cloud: _Cloud, account: DerivationSum) -> _Cloud:
        return _merge({account.remember(kept, self.slot, self.entry): sums} for kept, sums in cloud.items())

    def openings(self, k: int, phrases: _Phrases) -> frozenset[Phrase]:
        return frozenset({()})


@dataclass(frozen=True, eq=False)
class Emit(Node):
    """Says a form of the entry remembered in a slot."""

    topic: _Topic

    def draw(self, draft: StoryDraft) -> None:
        draft.words += _recall(draft.memory, self.topic)

    def tell(self, told: PartialStory, guide: Traversal) -> list[PartialStory]:
        words = told.recall(self.topic)
        return [PartialStory(told.words + words, told.memory, told.log_prob)] if guide.accepts(told, words) else []

    def weigh(self, cloud: _Cloud, account: DerivationSum) -> _Cloud:
        if self.topic not in account.keep:
            return cloud
        lengths = {kept: account.length(self.topic, dict(kept)[self.topic]) for kept in cloud}
        return {kept: (mass, cost + mass * lengths[kept]) for kept, (mass, cost) in cloud.items()}

    def openings(self, k: int, phrases: _Phrases) -> frozenset[Phrase]:
        return frozenset(words[:k] for words in phrases[self.topic])


@dataclass(frozen=True, eq=False)
class CaseOf(Node):
    """Goes on according to a form of the entry remembered in a slot."""

    topic: _Topic
    cases: Mapping[Phrase, Node]

    def parts(self) -> tuple[Node, ...]:
        return tuple(self.cases.values())

    def draw(self, draft: StoryDraft) -> None:
        self.cases[_recall(draft.memory, self.topic)].draw(draft)

    def tell(self, told: PartialStory, guide: Traversal) -> list[PartialStory]:
        return self.cases[told.recall(self.topic)].tell(told, guide)

    def weigh(self, cloud: _Cloud, account: DerivationSum) -> _Cloud:
        groups = {
            words: {kept: sums for kept, sums in cloud.items() if (self.topic, words) in kept} for words in self.cases
        }
        return _merge(self.cases[words].weigh(group, account) for words, group in groups.items())

    def openings(self, k: int, phrases: _Phrases) -> frozenset[Phrase]:
        return frozenset().union(*(node.openings(k, phrases) for node in self.cases.values()))
