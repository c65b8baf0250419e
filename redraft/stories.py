"""An endless corpus of short English stories whose true probabilities are known.

The stories come from a probabilistic grammar, so that what is unknown for ordinary text is exact here: the
log-probability of any text (-inf outside the language), the entropy that no model can beat, the attributes of a story
(who, where, season, mood, ...) and a summary of it in one sentence. Nothing is downloaded and nothing is stored: story
number i of seed s is a pure function of (s, i).

    STORIES.story(0, 7).text          # the eighth story of seed 0
    STORIES.log_prob(text)            # nats, exact
    STORIES.entropy()                 # nats per story, exact

A grammar is built from six kinds of node: `Text` says words, `Seq` and `Choice` combine, `Let` remembers an entry in a
slot, `Say` recalls it later (the name, the pronoun, the thing that was found), and `Given` goes on according to it. One
walk, `Node.draw`, samples a derivation. Another, `Node.tell`, follows those that a guide allows: those behind a text to
parse (`Follow`), all to enumerate (`Every`). A third, `Node.weigh`, adds up entropy, mean length and support exactly. A
fourth, `Node.openings`, proves the grammar unambiguous: the next few words decide every choice (`Corpus.lookahead`), so
a text has one derivation at most, and the probability of the text is that derivation's.

Training, validation and test stories come from independent streams: `split_seed(seed, "valid")`. They are not
deduplicated, since the language is large: two stories are equal with probability `Corpus.collision()`, 6e-14 for
`STORIES`, so a million training stories and ten thousand test stories have one in common with probability 6e-4.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate, count
from types import MappingProxyType
from typing import NamedTuple

Words = tuple[str, ...]  # punctuation marks are words
Entry = Mapping[str, Words]  # form → words: {"name": ("Anna",), "they": ("she",)}
Topic = tuple[str, str]  # (slot, form)
Phrases = Mapping[Topic, frozenset[Words]]  # everything that may be remembered under each topic
Kept = frozenset[tuple[Topic, Words]]  # what an account remembers
Cloud = dict[Kept, tuple[float, float]]  # → (mass, mass × mean cost) of all derivations that led there

MARKS = ".", ",", "!", "?"
LENGTHS = ("short", "medium", "long")
SPLITS = ("train", "valid", "test")
_MASK = 2**64 - 1


# Words and chance


def split_words(text: str) -> Words:
    """Words and punctuation marks of a text; `spell` is the inverse."""
    return tuple(re.findall(r"\w+|[^\w\s]", text))


def spell(words: Iterable[str]) -> str:
    """The text of some words: a space before each word, none before a punctuation mark."""
    text = " ".join(words)
    for mark in MARKS:
        text = text.replace(f" {mark}", mark)
    return text


def _chars(words: Words) -> int:
    """Characters that words add to a text, counting the space before each."""
    return sum(len(word) + (word not in MARKS) for word in words)


def _draws(seed: int, index: int) -> Iterator[int]:
    """Endless 64-bit integers of one story: SplitMix64, started at a BLAKE2 hash of (seed, index)."""
    state = int.from_bytes(blake2b(f"{seed}/{index}".encode(), digest_size=8).digest(), "little")
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        yield z ^ (z >> 31)


def split_seed(seed: int, split: str) -> int:
    """The seed of an independent stream of stories for "train", "valid" or "test"."""
    if split not in SPLITS:
        raise ValueError(f"split={split!r} is not known; use one of {', '.join(SPLITS)}")
    return int.from_bytes(blake2b(f"{seed}/{split}".encode(), digest_size=8).digest(), "little")


# Guides: which derivations a walk follows


class Telling(NamedTuple):
    """A story half told: the words so far, what is remembered, and the log-probability of the choices made."""

    words: Words = ()
    memory: Mapping[str, Entry] = MappingProxyType({})
    log_prob: float = 0.0

    def recall(self, topic: Topic) -> Words:
        return _recall(self.memory, topic)


def _recall(memory: Mapping[str, Entry], topic: Topic) -> Words:
    slot, form = topic
    if slot not in memory:
        raise ValueError(f"{{{slot}.{form}}} comes before anything is remembered as {slot!r}; draw it earlier")
    return memory[slot][form]


@dataclass
class Draft:
    """A story while it is drawn: a `Telling` that grows in place, since training draws thousands a second."""

    draws: Iterator[int]
    words: list[str] = field(default_factory=list)
    memory: dict[str, Entry] = field(default_factory=dict)
    log_prob: float = 0.0

    def pick(self, choice: Choice) -> Option:
        ceilings = choice.ceilings
        ticket = next(self.draws) * ceilings[-1] >> 64  # uniform below the sum of weights
        return choice.options[bisect_right(ceilings, ticket)]


class Guide(ABC):
    """Says which options of a choice to try, and which words may come next."""

    @abstractmethod
    def options(self, choice: Choice) -> Sequence[Option]: ...

    @abstractmethod
    def accepts(self, told: Telling, words: Words) -> bool: ...


class Every(Guide):
    """Follows all derivations."""

    def options(self, choice: Choice) -> Sequence[Option]:
        return choice.options

    def accepts(self, told: Telling, words: Words) -> bool:
        return True


@dataclass
class Follow(Guide):
    """Follows the derivations of given words, and notes how far from the start any derivation agreed with them."""

    heard: Words
    reach: int = 0
    furthest: list[Telling] = field(default_factory=list)  # those that agreed so far, before their first wrong word

    def options(self, choice: Choice) -> Sequence[Option]:
        return choice.options

    def accepts(self, told: Telling, words: Words) -> bool:
        at = len(told.words)
        agreed = _agreement(self.heard[at : at + len(words)], words)
        self._note(told, at + agreed)
        return agreed == len(words)

    def _note(self, told: Telling, reach: int) -> None:
        best = (self.reach, len(self.furthest[0].words) if self.furthest else 0)
        if (reach, len(told.words)) > best:
            self.reach, self.furthest = reach, [told]
        elif (reach, len(told.words)) == best:
            self.furthest.append(told)


def _agreement(heard: Words, words: Words) -> int:
    """How many words agree from the start; `heard` is not the longer one."""
    n = 0
    while n < len(heard) and heard[n] == words[n]:
        n += 1
    return n


# Accounts: what a walk over all derivations adds up


@dataclass(frozen=True)
class Account:
    """A sum over all derivations: mass Π factor(p) and, weighted by it, cost Σ price(p) + Σ length(words).

    Only the topics in `keep` are remembered along the walk. Derivations that agree on them are added together, so that
    a sum over 10^14 stories visits a few dozen cases.
    """

    keep: frozenset[Topic]
    factor: Callable[[float], float]
    price: Callable[[float], float] = lambda p: 0
    length: Callable[[Topic | None, Words], float] = lambda topic, words: 0

    def branch(self, cloud: Cloud, p: float) -> Cloud:
        factor, price = self.factor(p), self.price(p)
        return {kept: (mass * factor, (cost + mass * price) * factor) for kept, (mass, cost) in cloud.items()}

    def remember(self, kept: Kept, slot: str, entry: Entry) -> Kept:
        others = {(topic, words) for topic, words in kept if topic[0] != slot}
        return frozenset(others | {((slot, form), entry[form]) for form in entry if (slot, form) in self.keep})


def _merge(clouds: Iterable[Cloud]) -> Cloud:
    total: Cloud = {}
    for cloud in clouds:
        for kept, (mass, cost) in cloud.items():
            old = total.get(kept, (0, 0))
            total[kept] = (old[0] + mass, old[1] + cost)
    return total


# Nodes


class Node(ABC):
    """A piece of grammar: a distribution over words, given what is remembered."""

    def parts(self) -> tuple[Node, ...]:
        """The nodes directly below."""
        return ()

    @abstractmethod
    def draw(self, draft: Draft) -> None:
        """One way to go on, drawn from its probability."""

    @abstractmethod
    def tell(self, told: Telling, guide: Guide) -> list[Telling]:
        """Every way to go on from `told` that the guide allows."""

    @abstractmethod
    def weigh(self, cloud: Cloud, account: Account) -> Cloud:
        """The sums of `account` after this node, from those before it."""

    @abstractmethod
    def openings(self, k: int, phrases: Phrases) -> frozenset[Words]:
        """The first k words of everything this node can say, whatever is remembered; shorter ones whole."""


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it, each once."""
    todo, seen = [node], {node}
    while todo:
        yield (node := todo.pop())
        fresh = [part for part in dict.fromkeys(node.parts()) if part not in seen]
        seen.update(fresh)
        todo += fresh


@dataclass(frozen=True, eq=False)
class Text(Node):
    """Says fixed words."""

    words: Words

    def draw(self, draft: Draft) -> None:
        draft.words += self.words

    def tell(self, told: Telling, guide: Guide) -> list[Telling]:
        if not guide.accepts(told, self.words):
            return []
        return [Telling(told.words + self.words, told.memory, told.log_prob)]

    def weigh(self, cloud: Cloud, account: Account) -> Cloud:
        length = account.length(None, self.words)
        return {kept: (mass, cost + mass * length) for kept, (mass, cost) in cloud.items()}

    def openings(self, k: int, phrases: Phrases) -> frozenset[Words]:
        return frozenset({self.words[:k]})


@dataclass(frozen=True, eq=False)
class Seq(Node):
    """Says one part after the other."""

    nodes: tuple[Node, ...]

    def parts(self) -> tuple[Node, ...]:
        return self.nodes

    def draw(self, draft: Draft) -> None:
        for node in self.nodes:
            node.draw(draft)

    def tell(self, told: Telling, guide: Guide) -> list[Telling]:
        tellings = [told]
        for node in self.nodes:
            tellings = [after for before in tellings for after in node.tell(before, guide)]
        return tellings

    def weigh(self, cloud: Cloud, account: Account) -> Cloud:
        for node in self.nodes:
            cloud = node.weigh(cloud, account)
        return cloud

    def openings(self, k: int, phrases: Phrases) -> frozenset[Words]:
        done, open_ = frozenset[Words](), frozenset[Words]({()})
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
class Choice(Node):
    """Says one of several alternatives."""

    options: tuple[Option, ...]

    @cached_property
    def ceilings(self) -> list[int]:
        return list(accumulate(option.weight for option in self.options))

    def probability(self, option: Option) -> float:
        return option.weight / self.ceilings[-1]

    def parts(self) -> tuple[Node, ...]:
        return tuple(option.node for option in self.options)

    def draw(self, draft: Draft) -> None:
        option = draft.pick(self)
        option.node.draw(draft)
        draft.log_prob += math.log(self.probability(option))

    def tell(self, told: Telling, guide: Guide) -> list[Telling]:
        return [
            Telling(after.words, after.memory, after.log_prob + math.log(self.probability(option)))
            for option in guide.options(self)
            for after in option.node.tell(told, guide)
        ]

    def weigh(self, cloud: Cloud, account: Account) -> Cloud:
        branches = ((option.node, account.branch(cloud, self.probability(option))) for option in self.options)
        return _merge(node.weigh(branch, account) for node, branch in branches)

    def openings(self, k: int, phrases: Phrases) -> frozenset[Words]:
        return frozenset().union(*(option.node.openings(k, phrases) for option in self.options))

    def clash(self, k: int, phrases: Phrases) -> Words | None:
        """An opening of one alternative which, within k words, may also be another's; None if k words decide."""
        heads = [option.node.openings(k, phrases) for option in self.options]
        owners: dict[Words, set[int]] = {}
        for owner, openings in enumerate(heads):
            for prefix in {opening[:n] for opening in openings for n in range(k + 1)}:
                owners.setdefault(prefix, set()).add(owner)
        return next((head for openings in heads for head in openings if len(owners[head]) > 1), None)


@dataclass(frozen=True, eq=False)
class Let(Node):
    """Remembers an entry in a slot and says nothing."""

    slot: str
    entry: Entry

    def draw(self, draft: Draft) -> None:
        draft.memory[self.slot] = self.entry

    def tell(self, told: Telling, guide: Guide) -> list[Telling]:
        return [Telling(told.words, {**told.memory, self.slot: self.entry}, told.log_prob)]

    def weigh(self, cloud: Cloud, account: Account) -> Cloud:
        return _merge({account.remember(kept, self.slot, self.entry): sums} for kept, sums in cloud.items())

    def openings(self, k: int, phrases: Phrases) -> frozenset[Words]:
        return frozenset({()})


@dataclass(frozen=True, eq=False)
class Say(Node):
    """Says a form of the entry remembered in a slot."""

    topic: Topic

    def draw(self, draft: Draft) -> None:
        draft.words += _recall(draft.memory, self.topic)

    def tell(self, told: Telling, guide: Guide) -> list[Telling]:
        words = told.recall(self.topic)
        return [Telling(told.words + words, told.memory, told.log_prob)] if guide.accepts(told, words) else []

    def weigh(self, cloud: Cloud, account: Account) -> Cloud:
        if self.topic not in account.keep:
            return cloud
        lengths = {kept: account.length(self.topic, dict(kept)[self.topic]) for kept in cloud}
        return {kept: (mass, cost + mass * lengths[kept]) for kept, (mass, cost) in cloud.items()}

    def openings(self, k: int, phrases: Phrases) -> frozenset[Words]:
        return frozenset(words[:k] for words in phrases[self.topic])


@dataclass(frozen=True, eq=False)
class Given(Node):
    """Goes on according to a form of the entry remembered in a slot."""

    topic: Topic
    cases: Mapping[Words, Node]

    def parts(self) -> tuple[Node, ...]:
        return tuple(self.cases.values())

    def draw(self, draft: Draft) -> None:
        self.cases[_recall(draft.memory, self.topic)].draw(draft)

    def tell(self, told: Telling, guide: Guide) -> list[Telling]:
        return self.cases[told.recall(self.topic)].tell(told, guide)

    def weigh(self, cloud: Cloud, account: Account) -> Cloud:
        groups = {
            words: {kept: sums for kept, sums in cloud.items() if (self.topic, words) in kept} for words in self.cases
        }
        return _merge(self.cases[words].weigh(group, account) for words, group in groups.items())

    def openings(self, k: int, phrases: Phrases) -> frozenset[Words]:
        return frozenset().union(*(node.openings(k, phrases) for node in self.cases.values()))


# The corpus


@dataclass(frozen=True)
class Story:
    """A story, what is true of it, a summary in one sentence, and its exact log-probability in nats."""

    text: str
    attributes: Mapping[str, str]
    summary: str
    log_prob: float


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """A language of stories: `tale` tells them, `summary` retells in one sentence what a tale has left in memory.

    `topics` names the attributes of a story and where memory holds them; the attribute "length" (short, medium or long)
    comes from the number of sentences, `lengths` being the largest short and the largest medium number.
    """

    tale: Node
    summary: Node
    topics: Mapping[str, Topic]
    lengths: tuple[int, int]

    def __post_init__(self) -> None:
        for node in (*walk(self.tale), *walk(self.summary)):
            if isinstance(node, Say | Given) and node.topic not in self._phrases:
                raise ValueError(f"nothing is ever remembered as {{{'.'.join(node.topic)}}}; add it to an entry")
            if isinstance(node, Given) and (lacking := self._phrases[node.topic] - node.cases.keys()):
                raise ValueError(f"a case of {{{'.'.join(node.topic)}}} lacks {sorted(map(spell, lacking))}; add them")
        if any(isinstance(node, Choice) for node in walk(self.summary)):
            raise ValueError("the summary has a choice; it must follow from the story alone, so move the choice there")

    def story(self, seed: int, index: int) -> Story:
        """Story number `index` of a seed, a pure function of both."""
        draft = self._draft(seed, index)
        return self._story(Telling(tuple(draft.words), draft.memory, draft.log_prob))

    def text(self, seed: int, index: int) -> str:
        """The text of a story alone, which takes two thirds of the time."""
        return spell(self._draft(seed, index).words)

    def _draft(self, seed: int, index: int) -> Draft:
        draft = Draft(_draws(seed, index))
        self.tale.draw(draft)
        return draft

    def stories(self, seed: int, start: int = 0) -> Iterator[Story]:
        """The endless stories of a seed, from number `start` on."""
        return (self.story(seed, index) for index in count(start))

    def parse(self, text: str) -> Story | None:
        """The story behind a text, or None if the text is outside the language."""
        words = split_words(text)
        if spell(words) != text:
            return None
        tellings = [told for told in self.tale.tell(Telling(), Follow(words)) if told.words == words]
        if len(tellings) > 1:
            raise ValueError(f"the grammar derives {text!r} in {len(tellings)} ways; see Corpus.lookahead")
        return self._story(tellings[0]) if tellings else None

    def log_prob(self, text: str) -> float:
        """Exact log-probability of a text in nats; -inf outside the language."""
        story = self.parse(text)
        return story.log_prob if story else -math.inf

    def grammatical_prefix(self, text: str) -> int:
        """How many sentences from the start are right: the text up to the last of them begins some story."""
        follow = Follow(split_words(text))
        self.tale.tell(Telling(), follow)
        reached = follow.heard[: follow.reach]
        ends = [n + 1 for n, word in enumerate(reached) if word == "."]
        return sum(text.startswith(spell(reached[:end])) for end in ends)

    def understood(self, text: str) -> Mapping[str, str]:
        """The attributes of a text as far as it is right: what is told before its first wrong word.

        Of a whole story all of them. Where several derivations agree with the words so far, what they differ in is
        not told yet.
        """
        if (story := self.parse(text)) is not None:
            return story.attributes
        follow = Follow(split_words(text))
        self.tale.tell(Telling(), follow)
        told = {name: {_recalled(telling, topic) for telling in follow.furthest} for name, topic in self.topics.items()}
        return {name: spell(words) for name, (words, *more) in told.items() if words is not None and not more}

    def entropy(self) -> float:
        """Exact entropy in nats per story, E[-ln p]; no model has a lower mean loss."""
        return self._sum(Account(self._tested, factor=lambda p: p, price=lambda p: -math.log(p)))[1]

    def expected_chars(self) -> float:
        """Exact mean number of characters of a story.

        A mean is linear, so each slot is followed in a walk of its own and no joint distribution is needed.
        """
        slots = {slot for slot, _ in self._said}
        return sum(self._mean_chars(slot) for slot in (None, *sorted(slots))) - 1  # no space before the first word

    def entropy_per_char(self) -> float:
        """Entropy per character in nats: entropy / mean characters."""
        return self.entropy() / self.expected_chars()

    def support(self) -> int:
        """Exact number of different stories."""
        return int(self._sum(Account(self._tested, factor=lambda p: 1))[0])

    def collision(self) -> float:
        """Exact probability Σ p² that two stories drawn independently are equal."""
        return self._sum(Account(self._tested, factor=lambda p: p * p))[0]

    def words(self) -> Words:
        """All words and punctuation marks that a story, its summary or its attributes can hold, sorted."""
        nodes = [*walk(self.tale), *walk(self.summary)]
        texts = (node.words for node in nodes if isinstance(node, Text))
        topics = {node.topic for node in nodes if isinstance(node, Say)}
        phrases = (words for topic in topics for words in self._phrases[topic])
        labels = (self.labels(name) for name in (*self.topics, "length"))
        return tuple(sorted({*self.topics, "length"}.union(*texts, *phrases, *labels)))

    def labels(self, attribute: str) -> Words:
        """All values of an attribute, sorted."""
        if attribute == "length":
            return LENGTHS
        return tuple(sorted(spell(words) for words in self._phrases[self.topics[attribute]]))

    def enumerate(self) -> Iterator[tuple[str, float]]:
        """All stories as (text, log-probability); for small grammars."""
        return ((spell(told.words), told.log_prob) for told in self.tale.tell(Telling(), Every()))

    def lookahead(self, limit: int = 16) -> int:
        """How many next words decide every choice, which proves the grammar unambiguous.

        If no alternative of a choice can begin like another, at most one of them agrees with a given text, whatever is
        remembered and whatever follows. By induction from the first word on, a text then has one derivation at most.
        """
        choices = [node for node in walk(self.tale) if isinstance(node, Choice)]
        return max(self._words_to_decide(choice, limit) for choice in choices)

    def _words_to_decide(self, choice: Choice, limit: int) -> int:
        k, clash = 1, choice.clash(1, self._phrases)
        while clash is not None:
            if len(clash) < k or k == limit:  # a whole alternative begins another, or they go on alike
                raise ValueError(f"ambiguous: {spell(clash)!r} begins two alternatives; let them open differently")
            k, clash = k + 1, choice.clash(k + 1, self._phrases)
        return k

    def _story(self, told: Telling) -> Story:
        (summary,) = self.summary.tell(Telling(memory=told.memory), Every())
        attributes = {name: spell(told.recall(topic)) for name, topic in self.topics.items()}
        length = LENGTHS[bisect_right(self.lengths, told.words.count(".") - 1)]
        return Story(spell(told.words), attributes | {"length": length}, spell(summary.words), told.log_prob)

    def _sum(self, account: Account) -> tuple[float, float]:
        sums = self.tale.weigh({frozenset(): (1, 0)}, account).values()
        return sum(mass for mass, _ in sums), sum(cost for _, cost in sums)

    def _mean_chars(self, slot: str | None) -> float:
        """Mean number of characters that `Say` takes from a slot, or (None) that `Text` says."""

        def length(topic: Topic | None, words: Words) -> float:
            return _chars(words) if (topic and topic[0]) == slot else 0

        keep = self._tested | {topic for topic in self._said if topic[0] == slot}
        return self._sum(Account(keep, factor=lambda p: p, length=length))[1]

    @cached_property
    def _said(self) -> frozenset[Topic]:
        return frozenset(node.topic for node in walk(self.tale) if isinstance(node, Say))

    @cached_property
    def _tested(self) -> frozenset[Topic]:
        return frozenset(node.topic for node in walk(self.tale) if isinstance(node, Given))

    @cached_property
    def _phrases(self) -> Phrases:
        phrases: dict[Topic, set[Words]] = {}
        for node in walk(self.tale):
            if isinstance(node, Let):
                for form, words in node.entry.items():
                    phrases.setdefault((node.slot, form), set()).add(words)
        return {topic: frozenset(words) for topic, words in phrases.items()}


def _recalled(told: Telling, topic: Topic) -> Words | None:
    return told.recall(topic) if topic[0] in told.memory else None


# Notation: a grammar is a dictionary of named rules


@dataclass(frozen=True)
class Draw:
    """A rule: draws an entry of a table, remembers it in a slot and says one of its forms."""

    slot: str
    table: Sequence[Entry]
    form: str = "name"


@dataclass(frozen=True)
class Case:
    """A rule: the template that belongs to a remembered form."""

    topic: Topic
    templates: Mapping[str, str]


Rule = str | Sequence[str] | Mapping[str, int] | Draw | Case


@dataclass(frozen=True)
class Rules:
    """Named rules, written as templates; several make an even choice, a mapping to integers a weighted one.

    In a template, `{rule}` stands for another rule, `{slot.form}` for what is remembered, and `{slot=word}` remembers a
    word (under the form "name") without saying it.
    """

    rules: Mapping[str, Rule]
    built: dict[str, Node | None] = field(default_factory=dict, repr=False)  # None while a rule is being built

    def node(self, name: str) -> Node:
        """The grammar of a rule; a rule used in many places is one node."""
        if name not in self.rules:
            raise ValueError(f"there is no rule {name!r}; write {{slot.form}} to recall what is remembered")
        if name not in self.built:
            self.built[name] = None
            self.built[name] = self._build(self.rules[name])
        node = self.built[name]
        if node is None:
            raise ValueError(f"rule {name!r} contains itself; only a finite grammar has an exact entropy here")
        return node

    def _build(self, rule: Rule) -> Node:
        match rule:
            case str():
                return self._template(rule)
            case Draw(slot, table, form):
                return _even(Seq((Text(entry[form]), Let(slot, entry))) for entry in table)
            case Case(topic, templates):
                return Given(topic, {split_words(word): self._template(t) for word, t in templates.items()})
            case Mapping():
                return Choice(tuple(Option(weight, self._template(text)) for text, weight in rule.items()))
            case _:
                return _even(self._template(text) for text in rule)

    def _template(self, template: str) -> Node:
        pieces = re.findall(r"\{[^}]*\}|[^{}]+", template)
        nodes = tuple(self._piece(piece) for piece in pieces if not piece.isspace())
        return nodes[0] if len(nodes) == 1 else Seq(nodes)

    def _piece(self, piece: str) -> Node:
        if not piece.startswith("{"):
            return Text(split_words(piece))
        parsed = re.fullmatch(r"\{(\w+)(?:([.=])(\w+))?\}", piece)
        if parsed is None:
            raise ValueError(f"{piece!r} is not a reference; write {{rule}}, {{slot.form}} or {{slot=word}}")
        name, mark, rest = parsed.groups()
        match mark:
            case ".":
                return Say((name, rest))
            case "=":
                return Let(name, entry(name=rest))
            case _:
                return self.node(name)


def _even(nodes: Iterable[Node]) -> Choice:
    return Choice(tuple(Option(1, node) for node in nodes))


def entry(**forms: str) -> Entry:
    """A table entry; a form with several phrases, "one / two", becomes the forms form1 and form2."""
    phrases = {form: text.split(" / ") for form, text in forms.items()}
    single = {form: split_words(texts[0]) for form, texts in phrases.items() if len(texts) == 1}
    return single | {
        f"{form}{n}": split_words(text)
        for form, texts in phrases.items()
        if len(texts) > 1
        for n, text in enumerate(texts, 1)
    }


def phrasings(slot: str, form: str, number: int) -> tuple[str, ...]:
    """Templates for the forms form1, form2, ... of a slot."""
    return tuple(f"{{{slot}.{form}{n}}}" for n in range(1, number + 1))


# The stories


def _people(women: str, men: str) -> list[Entry]:
    she = [entry(name=name, they="she", They="She", them="her", their="her") for name in women.split()]
    he = [entry(name=name, they="he", They="He", them="him", their="his") for name in men.split()]
    return she + he


def _names(names: str) -> list[Entry]:
    return [entry(name=name) for name in names.split()]


def _places(where: str, *, spot: str, play: str) -> list[Entry]:
    """Places of one kind, written "in the park / on the beach", with spots and pastimes that fit them all."""
    return [entry(name=at.split()[-1], at=at, spot=spot, play=play) for at in where.split(" / ")]


HEROES = _people(
    "Anna Clara Emma Ida Julia Lena Mara Nora Rosa Sara Vera Zoe",
    "Adam Ben David Felix Hugo Jonas Leo Max Noah Oscar Paul Simon",
)
FRIENDS = _people("Agnes Bella Dora Greta Martha Olga Ruth Tilda", "Albert Bruno Carl Edgar Frank Martin Otto Walter")
THINGS = _names("kite lantern scarf hat basket box blanket bag drum flute doll puppet ball cup boat cushion")
COLOURS = _names("red blue green yellow white brown grey purple")
ANIMALS = _names("kitten puppy rabbit lamb goat goose hen pony")
NEEDS = _names("hungry cold thirsty frightened tired lost shy muddy")

# Phrases that can stand for each other have equally many words, and what may be left out comes last: a word's place in
# the story then tells its part in it, and a model that fills in a story in any order need not count.

SEASONS = (
    entry(
        name="spring",
        weather="The first flowers were open. / A soft rain was falling. / Birds sang in every tree. / "
        "The wind smelled of grass. / Small clouds crossed the sky.",
        treat="fresh pancakes / mint tea / lemon cake",
    ),
    entry(
        name="summer",
        weather="The air was still warm. / Bees hummed in the clover. / The air smelled of roses. / "
        "Swallows flew across the sky. / Not a single leaf moved.",
        treat="cold lemonade / ripe cherries / lemon ice",
    ),
    entry(
        name="autumn",
        weather="Yellow leaves covered the ground. / A cool wind was blowing. / Mist hung over the roofs. / "
        "The air smelled of smoke. / Wild geese were flying south.",
        treat="apple cake / pumpkin soup / sweet plums",
    ),
    entry(
        name="winter",
        weather="Fresh snow covered the roofs. / A cold wind was blowing. / The puddles were all frozen. / "
        "The sky was pale grey. / Snow fell without a sound.",
        treat="hot chocolate / warm gingerbread / roasted chestnuts",
    ),
)

PLACES = (
    *_places(
        "at the harbour / at the lake / by the river / on the beach",
        spot="beside the pier / near the nets / by the bridge / behind the boats",
        play="watched the boats / counted the ducks / threw flat stones",
    ),
    *_places(
        "in the park / in the orchard / in the garden / at the farm",
        spot="beside a bench / behind the pond / under the oak / by the gate",
        play="climbed a tree / watched the clouds / fed the birds",
    ),
    *_places(
        "at the market / in the square / at the station / at the theatre",
        spot="beside the fountain / behind a stall / under an arch / near the clock",
        play="heard a band / fed the pigeons / watched the crowd",
    ),
    *_places(
        "in the forest / on the hill / in the meadow / in the valley",
        spot="beside a stream / among the ferns / under a pine / behind a rock",
        play="followed a path / watched a hawk / picked some herbs",
    ),
)

MOODS = (
    entry(
        name="lonely",
        outcome="felt lonely no more / felt much less alone / thought of good friends",
    ),
    entry(
        name="sad",
        outcome="felt sad no more / began to smile again / felt so much better",
    ),
    entry(
        name="bored",
        outcome="felt bored no more / forgot the slow hours / wished for more adventures",
    ),
    entry(
        name="worried",
        outcome="felt worried no more / felt calm and brave / slept without a care",
    ),
    entry(
        name="tired",
        outcome="felt tired no more / felt fresh and strong / slept like a stone",
    ),
    entry(
        name="cheerful",
        outcome="felt happier than ever / sang a cheerful song / laughed with pure joy",
    ),
)

TRADES = (
    entry(name="baker", gift="a loaf of bread / a bag of rolls"),
    entry(name="gardener", gift="a bunch of roses / a pot of mint"),
    entry(name="farmer", gift="a dozen brown eggs / a bag of apples"),
    entry(name="teacher", gift="a book of poems / a map of stars"),
    entry(name="painter", gift="a picture of boats / a jar of paint"),
    entry(name="potter", gift="a small clay bird / a round clay bowl"),
    entry(name="tailor", gift="a pair of socks / a pair of gloves"),
    entry(name="beekeeper", gift="a jar of honey / a tall wax candle"),
    entry(name="sailor", gift="a big white shell / a story about whales"),
    entry(name="carpenter", gift="a small wooden horse / a long wooden spoon"),
)

_STORY_RULES = Rules(
    {
        "story": "{opening} {plot} {giving} {end}",
        # Where, when and in what mood
        "opening": "One {season} {day}, {hero} felt {mood} and {moved} to the {place}.",
        "season": Draw("season", SEASONS),
        "day": ("morning", "afternoon", "day", "Saturday", "Sunday"),
        "hero": Draw("hero", HEROES),
        "mood": Draw("mood", MOODS),
        "moved": ("walked", "went", "cycled", "wandered", "hurried"),
        "place": Draw("place", PLACES),
        # Something is found, helped or made
        "plot": ("{plot=find} {find} {owner}", "{plot=help} {help} {owner}", "{plot=make} {make} {wish}"),
        "find": "{hero.They} found a {colour} {thing} {spot}.",
        "help": "{hero.They} helped a {need} {animal} {spot}.",
        "make": "{hero.They} made a {colour} {thing} {spot}.",
        "owner": "It belonged to {friend} the {trade}.",
        "wish": "It was for {friend} the {trade}.",
        "spot": phrasings("place", "spot", 4),
        "colour": Draw("look", COLOURS),
        "need": Draw("look", NEEDS),
        "thing": Draw("thing", THINGS),
        "animal": Draw("thing", ANIMALS),
        "friend": Draw("friend", FRIENDS),
        "trade": Draw("trade", TRADES),
        # It goes where it belongs, and somebody is glad
        "giving": "{hero.They} {brought} the {thing.name} to {friend.name}, who {smiled} and gave {hero.them} {gift}.",
        "brought": ("brought", "took"),
        "smiled": ("smiled", "laughed", "danced", "sang"),
        "gift": phrasings("trade", "gift", 2),
        # The mood turns; perhaps there is more to tell
        "end": {"{last}, {turn}": 2, "{first}, {turn} {more}": 2},
        "last": ("That evening", "That night"),
        "first": ("At home", "After supper"),
        "turn": "{hero.name} {outcome}.",
        "outcome": phrasings("mood", "outcome", 3),
        "more": ("Later they {together}.", "Soon they {together}. {weather}"),
        "together": ("shared {treat}", "{play}"),
        "treat": phrasings("season", "treat", 3),
        "play": phrasings("place", "play", 3),
        "weather": phrasings("season", "weather", 5),
        # In one sentence
        "summary": "In {season.name}, {hero.name} {deed} a {look.name} {thing.name} {place.at} and brings it to "
        "{friend.name} the {trade.name}.",
        "deed": Case(("plot", "name"), {"find": "finds", "help": "helps", "make": "makes"}),
    }
)

STORIES = Corpus(
    tale=_STORY_RULES.node("story"),
    summary=_STORY_RULES.node("summary"),
    topics={
        "who": ("hero", "name"),
        "friend": ("friend", "name"),
        "where": ("place", "name"),
        "season": ("season", "name"),
        "mood": ("mood", "name"),
        "plot": ("plot", "name"),
    },
    lengths=(5, 6),
)


# A language small enough to list

_SMALL_RULES = Rules(
    {
        "story": "{hero} {went} to the {place}. {scene}",
        "hero": Draw("hero", _people("Anna Rosa", "Ben")),
        "went": {"went": 3, "ran": 1},
        "place": Draw("place", (entry(name="lake", spot="boat / pier"), entry(name="park", spot="tree / gate"))),
        "scene": {"{mood} {find}": 2, "{find}": 1},
        "mood": "{hero.They} was {feeling}.",
        "feeling": ("sad", "happy"),
        "find": "Near the {spot}, {hero.they} found a {thing}. {end}",
        "spot": phrasings("place", "spot", 2),
        "thing": Draw("thing", _names("kite drum")),
        "end": Case(("place", "name"), {"lake": "{swim}", "park": "{home}"}),
        "swim": {"{home}": 1, "Then {hero.they} swam.": 2},
        "home": "{hero.name} took the {thing.name} home.",
        "summary": "{hero.name} finds a {thing.name}.",
    }
)

SMALL = Corpus(
    tale=_SMALL_RULES.node("story"),
    summary=_SMALL_RULES.node("summary"),
    topics={"who": ("hero", "name"), "where": ("place", "name"), "thing": ("thing", "name")},
    lengths=(3, 3),
)
