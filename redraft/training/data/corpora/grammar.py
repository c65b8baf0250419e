"""Nodes of a probabilistic grammar, and traversals that sample, parse, enumerate and sum over derivations."""

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

from redraft.core.text.tokenizers import PUNCTUATION, join_words

_Phrase = tuple[str, ...]  # words; punctuation marks are words, too
_Entry = Mapping[str, _Phrase]  # form → words: {"name": ("Anna",), "they": ("she",)}
_Topic = tuple[str, str]  # (slot, form)
_Phrases = Mapping[_Topic, frozenset[_Phrase]]  # all phrases that memory can hold under each topic
_Remembered = frozenset[tuple[_Topic, _Phrase]]  # the part of memory that a sum distinguishes
_States = dict[_Remembered, tuple[float, float]]  # memory → (mass, mass × mean cost) of all derivations with it
_MASK = 2**64 - 1


def _chars(words: _Phrase) -> int:
    """Returns the number of characters that words add to a text, including the space before each."""
    return sum(len(word) + (word not in PUNCTUATION) for word in words)


def _draws(seed: int, index: int) -> Iterator[int]:
    """Yields the random 64-bit integers of one story: SplitMix64, seeded by a BLAKE2 hash of (seed, index)."""
    state = int.from_bytes(blake2b(f"{seed}/{index}".encode(), digest_size=8).digest(), "little")
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        yield z ^ (z >> 31)


# --- traversals: which derivations to follow ---


class _PartialStory(NamedTuple):
    """A partial derivation: the words so far, the memory, and the log-probability of the choices made."""

    words: _Phrase = ()
    memory: Mapping[str, _Entry] = MappingProxyType({})
    log_prob: float = 0.0

    def recall(self, topic: _Topic) -> _Phrase:
        """Returns a form of the entry in a slot."""
        return _recall(self.memory, topic)


def _recall(memory: Mapping[str, _Entry], topic: _Topic) -> _Phrase:
    slot, form = topic
    if slot not in memory:
        raise ValueError(f"{{{slot}.{form}}} is used before {slot!r} is drawn; draw it earlier")
    return memory[slot][form]


@dataclass
class _StoryDraft:
    """A story while it is sampled: a mutable `_PartialStory`, for speed."""

    draws: Iterator[int]
    words: list[str] = field(default_factory=list)
    memory: dict[str, _Entry] = field(default_factory=dict)
    log_prob: float = 0.0

    def pick(self, choice: _Alternatives) -> _Option:
        """Draws an option by its weight."""
        cumulative = choice.cumulative_weights
        draw = next(self.draws) * cumulative[-1] >> 64  # uniform below the sum of weights
        return choice.options[bisect_right(cumulative, draw)]


class _Traversal(ABC):
    """A rule for which derivations to follow."""

    @abstractmethod
    def options(self, choice: _Alternatives) -> Sequence[_Option]:
        """Returns the options of a choice to follow."""

    @abstractmethod
    def accepts(self, partial: _PartialStory, words: _Phrase) -> bool:
        """Whether these words may come next."""


class _AllDerivations(_Traversal):
    """A traversal of all derivations."""

    def options(self, choice: _Alternatives) -> Sequence[_Option]:
        return choice.options

    def accepts(self, partial: _PartialStory, words: _Phrase) -> bool:
        return True


@dataclass
class _ParseTraversal(_Traversal):
    """A traversal of the derivations of given words; also records how many leading words any of them matches."""

    target: _Phrase
    matched: int = 0  # the largest number of matching words
    # derivations that match this many words, before the step in which they fail
    furthest: list[_PartialStory] = field(default_factory=list)

    def options(self, choice: _Alternatives) -> Sequence[_Option]:
        return choice.options

    def accepts(self, partial: _PartialStory, words: _Phrase) -> bool:
        at = len(partial.words)
        matching = _common_prefix(self.target[at : at + len(words)], words)
        self._record(partial, at + matching)
        return matching == len(words)

    def _record(self, partial: _PartialStory, matched: int) -> None:
        best = (self.matched, len(self.furthest[0].words) if self.furthest else 0)
        if (matched, len(partial.words)) > best:
            self.matched, self.furthest = matched, [partial]
        elif (matched, len(partial.words)) == best:
            self.furthest.append(partial)


def _common_prefix(target: _Phrase, words: _Phrase) -> int:
    """Returns the number of equal leading words; `target` must not be longer than `words`."""
    n = 0
    while n < len(target) and target[n] == words[n]:
        n += 1
    return n


# --- sums over all derivations ---


@dataclass(frozen=True)
class _DerivationSum:
    """A sum over all derivations: their mass Π factor(p), and their cost Σ price(p) + Σ length(words) weighted by mass.

    Only the topics in `keep` are remembered. Derivations that agree on them are added up as one state, so a sum over
    10^14 stories visits only a few dozen states.
    """

    keep: frozenset[_Topic]
    factor: Callable[[float], float]
    price: Callable[[float], float] = lambda p: 0
    length: Callable[[_Topic | None, _Phrase], float] = lambda topic, words: 0

    def branch(self, states: _States, p: float) -> _States:
        """Returns the states after a choice with probability p."""
        factor, price = self.factor(p), self.price(p)
        return {
            remembered: (mass * factor, (cost + mass * price) * factor) for remembered, (mass, cost) in states.items()
        }

    def remember(self, remembered: _Remembered, slot: str, entry: _Entry) -> _Remembered:
        """Returns the memory after an entry is stored in a slot."""
        others = {(topic, words) for topic, words in remembered if topic[0] != slot}
        return frozenset(others | {((slot, form), entry[form]) for form in entry if (slot, form) in self.keep})


def _merge(branches: Iterable[_States]) -> _States:
    """Adds up the states of several branches."""
    total: _States = {}
    for states in branches:
        for remembered, (mass, cost) in states.items():
            old = total.get(remembered, (0, 0))
            total[remembered] = (old[0] + mass, old[1] + cost)
    return total


class _Node(ABC):
    """A node of a grammar: a distribution over words and updates of memory, given the memory so far."""

    def parts(self) -> tuple[_Node, ...]:
        """Returns the child nodes."""
        return ()

    def fixed_words(self) -> _Phrase:
        """Returns the words that this node itself always emits."""
        return ()

    def emitted(self) -> frozenset[_Topic]:
        """Returns the topics whose words this node itself emits."""
        return frozenset()

    def tested(self) -> frozenset[_Topic]:
        """Returns the topics by which this node itself chooses its child."""
        return frozenset()

    def stored(self) -> frozenset[tuple[_Topic, _Phrase]]:
        """Returns what this node itself stores in memory."""
        return frozenset()

    def choices(self) -> tuple[_Alternatives, ...]:
        """Returns the random choices that this node itself makes."""
        return ()

    def require(self, phrases: _Phrases) -> None:
        """Raises unless everything that this node itself recalls can be in memory."""
        if unknown := [topic for topic in self.emitted() | self.tested() if topic not in phrases]:
            raise ValueError(f"no entry has {{{'.'.join(unknown[0])}}}; add it to an entry")

    @abstractmethod
    def draw(self, draft: _StoryDraft) -> None:
        """Samples a continuation and appends it to the draft."""

    @abstractmethod
    def expand(self, partial: _PartialStory, traversal: _Traversal) -> list[_PartialStory]:
        """Returns every continuation of `partial` that the traversal allows."""

    @abstractmethod
    def accumulate_states(self, states: _States, summation: _DerivationSum) -> _States:
        """Returns the states after this node, from those before it."""

    @abstractmethod
    def openings(self, k: int, phrases: _Phrases) -> frozenset[_Phrase]:
        """Returns the first k words of everything this node can emit, for any memory; shorter phrases are complete."""


def _subtree(node: _Node) -> Iterator[_Node]:
    """Yields a node and all its descendants, each once."""
    todo, seen = [node], {node}
    while todo:
        yield (node := todo.pop())
        fresh = [part for part in dict.fromkeys(node.parts()) if part not in seen]
        seen.update(fresh)
        todo += fresh


@dataclass(frozen=True, eq=False)
class _Terminal(_Node):
    """A node that emits fixed words."""

    words: _Phrase

    def fixed_words(self) -> _Phrase:
        return self.words

    def draw(self, draft: _StoryDraft) -> None:
        draft.words += self.words

    def expand(self, partial: _PartialStory, traversal: _Traversal) -> list[_PartialStory]:
        if not traversal.accepts(partial, self.words):
            return []
        return [_PartialStory(partial.words + self.words, partial.memory, partial.log_prob)]

    def accumulate_states(self, states: _States, summation: _DerivationSum) -> _States:
        length = summation.length(None, self.words)
        return {remembered: (mass, cost + mass * length) for remembered, (mass, cost) in states.items()}

    def openings(self, k: int, phrases: _Phrases) -> frozenset[_Phrase]:
        return frozenset({self.words[:k]})


@dataclass(frozen=True, eq=False)
class _Sequential(_Node):
    """A node that expands its parts in order."""

    nodes: tuple[_Node, ...]

    def parts(self) -> tuple[_Node, ...]:
        return self.nodes

    def draw(self, draft: _StoryDraft) -> None:
        for node in self.nodes:
            node.draw(draft)

    def expand(self, partial: _PartialStory, traversal: _Traversal) -> list[_PartialStory]:
        partials = [partial]
        for node in self.nodes:
            partials = [after for before in partials for after in node.expand(before, traversal)]
        return partials

    def accumulate_states(self, states: _States, summation: _DerivationSum) -> _States:
        for node in self.nodes:
            states = node.accumulate_states(states, summation)
        return states

    def openings(self, k: int, phrases: _Phrases) -> frozenset[_Phrase]:
        done, open_ = frozenset[_Phrase](), frozenset[_Phrase]({()})
        for node in self.nodes:
            grown = {head + tail for head in open_ for tail in node.openings(k - len(head), phrases)}
            done |= {head for head in grown if len(head) == k}
            open_ = frozenset(grown - done)
            if not open_:
                break
        return done | open_


class _Option(NamedTuple):
    """An alternative and its weight; its probability is weight / sum of weights."""

    weight: int
    node: _Node


@dataclass(frozen=True, eq=False)
class _Alternatives(_Node):
    """A node that expands one of several alternatives."""

    options: tuple[_Option, ...]

    @cached_property
    def cumulative_weights(self) -> list[int]:
        return list(accumulate(option.weight for option in self.options))

    def probability(self, option: _Option) -> float:
        return option.weight / self.cumulative_weights[-1]

    def parts(self) -> tuple[_Node, ...]:
        return tuple(option.node for option in self.options)

    def choices(self) -> tuple[_Alternatives, ...]:
        return (self,)

    def draw(self, draft: _StoryDraft) -> None:
        option = draft.pick(self)
        option.node.draw(draft)
        draft.log_prob += math.log(self.probability(option))

    def expand(self, partial: _PartialStory, traversal: _Traversal) -> list[_PartialStory]:
        return [
            _PartialStory(after.words, after.memory, after.log_prob + math.log(self.probability(option)))
            for option in traversal.options(self)
            for after in option.node.expand(partial, traversal)
        ]

    def accumulate_states(self, states: _States, summation: _DerivationSum) -> _States:
        branches = ((option.node, summation.branch(states, self.probability(option))) for option in self.options)
        return _merge(node.accumulate_states(branch, summation) for node, branch in branches)

    def openings(self, k: int, phrases: _Phrases) -> frozenset[_Phrase]:
        return frozenset().union(*(option.node.openings(k, phrases) for option in self.options))

    def clash(self, k: int, phrases: _Phrases) -> _Phrase | None:
        """Returns an opening of up to k words that two alternatives share; None if k words decide between them."""
        heads = [option.node.openings(k, phrases) for option in self.options]
        owners: dict[_Phrase, set[int]] = {}
        for owner, openings in enumerate(heads):
            for prefix in {opening[:n] for opening in openings for n in range(k + 1)}:
                owners.setdefault(prefix, set()).add(owner)
        return next((head for openings in heads for head in openings if len(owners[head]) > 1), None)


@dataclass(frozen=True, eq=False)
class _Assign(_Node):
    """A node that stores an entry in a slot of the memory and emits nothing."""

    slot: str
    entry: _Entry

    def stored(self) -> frozenset[tuple[_Topic, _Phrase]]:
        return frozenset(((self.slot, form), words) for form, words in self.entry.items())

    def draw(self, draft: _StoryDraft) -> None:
        draft.memory[self.slot] = self.entry

    def expand(self, partial: _PartialStory, traversal: _Traversal) -> list[_PartialStory]:
        return [_PartialStory(partial.words, {**partial.memory, self.slot: self.entry}, partial.log_prob)]

    def accumulate_states(self, states: _States, summation: _DerivationSum) -> _States:
        return _merge(
            {summation.remember(remembered, self.slot, self.entry): sums} for remembered, sums in states.items()
        )

    def openings(self, k: int, phrases: _Phrases) -> frozenset[_Phrase]:
        return frozenset({()})


@dataclass(frozen=True, eq=False)
class _Emit(_Node):
    """A node that emits a form of the entry in a slot."""

    topic: _Topic

    def emitted(self) -> frozenset[_Topic]:
        return frozenset({self.topic})

    def draw(self, draft: _StoryDraft) -> None:
        draft.words += _recall(draft.memory, self.topic)

    def expand(self, partial: _PartialStory, traversal: _Traversal) -> list[_PartialStory]:
        words = partial.recall(self.topic)
        return (
            [_PartialStory(partial.words + words, partial.memory, partial.log_prob)]
            if traversal.accepts(partial, words)
            else []
        )

    def accumulate_states(self, states: _States, summation: _DerivationSum) -> _States:
        if self.topic not in summation.keep:
            return states
        lengths = {remembered: summation.length(self.topic, dict(remembered)[self.topic]) for remembered in states}
        return {remembered: (mass, cost + mass * lengths[remembered]) for remembered, (mass, cost) in states.items()}

    def openings(self, k: int, phrases: _Phrases) -> frozenset[_Phrase]:
        return frozenset(words[:k] for words in phrases[self.topic])


@dataclass(frozen=True, eq=False)
class _CaseOf(_Node):
    """A node that chooses its child by a form of the entry in a slot."""

    topic: _Topic
    cases: Mapping[_Phrase, _Node]

    def parts(self) -> tuple[_Node, ...]:
        return tuple(self.cases.values())

    def tested(self) -> frozenset[_Topic]:
        return frozenset({self.topic})

    def require(self, phrases: _Phrases) -> None:
        super().require(phrases)
        if lacking := phrases[self.topic] - self.cases.keys():
            raise ValueError(
                f"the cases of {{{'.'.join(self.topic)}}} lack {sorted(map(join_words, lacking))}; add them"
            )

    def draw(self, draft: _StoryDraft) -> None:
        self.cases[_recall(draft.memory, self.topic)].draw(draft)

    def expand(self, partial: _PartialStory, traversal: _Traversal) -> list[_PartialStory]:
        return self.cases[partial.recall(self.topic)].expand(partial, traversal)

    def accumulate_states(self, states: _States, summation: _DerivationSum) -> _States:
        groups = {
            words: {remembered: sums for remembered, sums in states.items() if (self.topic, words) in remembered}
            for words in self.cases
        }
        return _merge(self.cases[words].accumulate_states(group, summation) for words, group in groups.items())

    def openings(self, k: int, phrases: _Phrases) -> frozenset[_Phrase]:
        return frozenset().union(*(node.openings(k, phrases) for node in self.cases.values()))
