"""Automata on tokens, with equivalent tokens grouped into classes.

Two tokens are in the same class if they lead from every state to the same next state. Under typical patterns a
vocabulary of 50,000 tokens gives 60 to 4,000 transitions between states by class, instead of a million by token. So a
pass over the canvas is cheap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from redraft.core.vocab import Vocab
from redraft.decoding.constraints.dfa import AutomatonTooLarge, _can_reach, _Dfa, _unique_columns
from redraft.decoding.constraints.token_bytes import _TokenBytes


class _NotTokenizable(ValueError):
    """Raised if no sequence of tokens of the vocabulary spells a text that obeys the rule."""


_MAX_CELLS = 10**8  # states × groups of tokens, while an automaton is built
_MAX_EDGES = 10**8  # transitions by tokens, while they are grouped

_Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _TokenAutomaton:
    """A deterministic automaton on tokens. It starts in state 0; the last state is the one after the end token."""

    class_of: _Ints  # (V,) class of each token; −1 if no accepted text has it
    after: _Ints  # (S, C) next state, 0 … S − 1; S where there is no transition
    final: NDArray[np.bool_]  # (S,) accepting states: the text may end here, without an end token
    end: int | None  # class of the end token; None if the vocabulary has none
    filler: tuple[int, ...]  # classes of the tokens allowed after the end token: end tokens and padding

    @property
    def states(self) -> int:
        return len(self.after)

    @property
    def classes(self) -> int:
        return self.after.shape[1]

    @property
    def ended(self) -> int:
        """The state after the end token."""
        return self.states - 1

    def goals(self, open_ended: bool) -> NDArray[np.bool_]:
        """(S,) bool: states in which the constrained part may end; `open_ended` if it may contain end tokens."""
        goals = self.final.copy()
        goals[self.ended] = open_ended
        return goals

    def shortest(self) -> int:
        """The number of tokens in the shortest accepted text."""
        return next(length for length, accepted in enumerate(self._by_length()) if accepted)

    def lengths(self, most: int) -> list[int]:
        """Return all lengths of accepted texts in tokens, up to `most`."""
        return [length for length, accepted in zip(range(most + 1), self._by_length(), strict=False) if accepted]

    def _by_length(self) -> Iterator[bool]:
        """Yield whether there is an accepted text of 0, 1, 2, … tokens."""
        reached = np.arange(self.states) == 0
        text = np.setdiff1d(np.arange(self.classes), [*self.filler, -1 if self.end is None else self.end])
        while True:
            yield bool((reached & self.final).any())
            after = np.unique(self.after[reached][:, text])
            reached = np.isin(np.arange(self.states), after)


def _token_automaton(dfa: _Dfa, token_bytes: _TokenBytes, vocab: Vocab, text_begins: bool) -> _TokenAutomaton:
    """Turn an automaton on bytes into one on tokens.

    It accepts every tokenization of the accepted texts, and allows the end token after them. `text_begins` says whether
    the constrained part is at the beginning of the text, where some tokenizers write no space.
    """
    first, inner = _trie(token_bytes.at(text_begins)), _trie(token_bytes.inner)
    table = np.vstack([dfa.table, np.full((1, 256), -1, np.int32)])  # −1 is the last row
    states, group, representative = _explore(table, first, inner)
    if len(states) * len(representative) > _MAX_CELLS:
        raise AutomatonTooLarge(
            f"the pattern has {len(states):,} states with {len(representative):,} kinds of tokens; use a simpler one, "
            "with smaller counts {m,n}"
        )
    renumber = np.full(len(table), -1, np.int64)
    renumber[states[1:]] = np.arange(1, len(states))
    pieces = (
        tuple(token_bytes.at(text_begins)[token] for token in representative),
        tuple(token_bytes.inner[token] for token in representative),
    )
    rows = [_new_trie(pieces[0]).read(table, states[:1]), _new_trie(pieces[1]).read(table, states[1:])]
    return _with_end(renumber[np.concatenate(rows)], group, dfa.final[states], vocab)


def _explore(table: NDArray[np.int32], first: _Trie, inner: _Trie) -> tuple[_Ints, _Ints, _Ints]:
    """Find the states that tokens reach, and group the tokens that lead everywhere to the same states.

    Returns the state of the byte automaton for each token state, the group of each token (−1 if it leads nowhere), and
    one token of each group. Tokens are compared by two random sums of 64 bits over (state, next state).
    """
    sums, live = np.zeros((2, len(first.node)), np.int64), np.zeros(len(first.node), np.bool_)
    weights = np.asarray(np.random.Philox(0).random_raw(2 * len(table) + 2)).astype(np.int64).reshape(2, -1)
    states, known, edges = [np.zeros(1, np.int64)], np.zeros(len(table), np.bool_), 0
    wave, trie, done = states[0], first, 0
    while len(wave):
        fresh = known.copy()
        for part in np.array_split(wave, len(wave) // 64 + 1):
            source, token, target = trie.walk(table, part)
            for total, weight in zip(sums, weights, strict=True):
                np.add.at(total, token, weight[done + source] * (target + 1))
            live[token], fresh[target] = True, True
            done, edges = done + len(part), edges + len(token)
            if edges > _MAX_EDGES:
                raise AutomatonTooLarge(
                    f"the pattern allows more than {_MAX_EDGES:,} transitions by tokens; use a simpler one, with "
                    "smaller counts {m,n}"
                )
        wave, known, trie = np.flatnonzero(fresh & ~known), fresh, inner
        states.append(wave)
    tokens = np.flatnonzero(live)
    representative, kind = np.unique(sums[:, tokens], axis=1, return_index=True, return_inverse=True)[1:]
    group = np.full(len(live), -1, np.int64)
    group[tokens] = kind.reshape(-1)
    return np.concatenate(states), group, tokens[representative]


def _with_end(table: _Ints, group: _Ints, final: NDArray[np.bool_], vocab: Vocab) -> _TokenAutomaton:
    """Turn groups of tokens into classes, from next states (S, groups), −1 for none; adds the end token."""
    ended, kinds = table.shape
    fillers = sorted({token for token in (vocab.eos, vocab.pad) if token is not None and vocab.eos is not None})
    columns = np.full((ended + 1, kinds + len(fillers)), -1)
    columns[:ended, :kinds] = table
    final, group = np.append(final, False), group.copy()
    for column, token in enumerate(fillers, kinds):
        group[token] = column
        columns[ended, column] = ended
        if token == vocab.eos:
            columns[final, column] = ended
    useful = np.append(_can_reach(columns, final), False)
    useful[ended] = vocab.eos is not None
    if not useful[0]:
        raise _NotTokenizable
    columns = np.where(useful[columns], columns, -1)
    merged, shared = _unique_columns(columns)
    live = (columns[:, shared] >= 0).any(0)
    class_index = np.where(live, np.cumsum(live) - 1, -1)  # only classes with a transition are numbered
    class_of = np.where(group < 0, -1, class_index[merged][group])
    columns = columns[:, shared[live]]
    end = None if vocab.eos is None else int(class_of[vocab.eos])
    after = np.where(columns < 0, len(columns), columns)
    return _TokenAutomaton(class_of, after, final, end, tuple(sorted({int(class_of[token]) for token in fillers})))


@dataclass(frozen=True, eq=False)
class _Trie:
    """The bytes of all tokens as a prefix tree, level by level."""

    levels: tuple[tuple[_Ints, NDArray[np.uint8]], ...]  # per level: parent of each node, and its byte
    node: _Ints  # (V,) node at which each token ends; −1 for tokens without bytes

    def read(self, table: NDArray[np.int32], states: _Ints) -> _Ints:
        """(n,) states of the byte automaton → (n, V) states after each token, −1 for none; in chunks to save memory."""
        return np.concatenate([self._read_chunk(table, part) for part in np.array_split(states, len(states) // 64 + 1)])

    def _read_chunk(self, table: NDArray[np.int32], states: _Ints) -> _Ints:
        level = states[:, None].astype(np.int32)
        levels = [level]
        for parent, byte in self.levels:
            level = table[level[:, parent], byte]
            levels.append(level)
        nowhere = np.full((len(states), 1), -1, np.int32)
        return np.concatenate([*levels, nowhere], 1)[:, self.node].astype(np.int64)

    def walk(self, table: NDArray[np.int32], states: _Ints) -> tuple[_Ints, _Ints, _Ints]:
        """All transitions of some states: (index of the state, token, next state); dead ends are never followed."""
        source, node, state = np.arange(len(states)), np.zeros(len(states), np.int64), states
        transitions, offset = [], 1
        for (_, byte), begin in zip(self.levels, self._children, strict=True):
            parent, child = _expand(begin, node)
            after = table[state[parent], byte[child]]
            kept = after >= 0
            source, node, state = source[parent[kept]], child[kept], after[kept].astype(np.int64)
            pair, token = _expand(self._tokens[1], offset + node)
            transitions.append(np.stack([source[pair], self._tokens[0][token], state[pair]]))
            offset += len(byte)
        source, token, after = np.concatenate(transitions, 1) if transitions else np.zeros((3, 0), np.int64)
        return source, token, after

    @cached_property
    def _children(self) -> tuple[_Ints, ...]:
        """For each level, where the children of each node of the level above begin."""
        sizes = [1, *(len(byte) for _, byte in self.levels)]
        return tuple(
            np.searchsorted(parent, np.arange(size + 1)) for size, (parent, _) in zip(sizes, self.levels, strict=False)
        )

    @cached_property
    def _tokens(self) -> tuple[_Ints, _Ints]:
        """The tokens in the order of the nodes at which they end, and where those of each node begin."""
        order = np.argsort(self.node, kind="stable")
        order = order[self.node[order] >= 0]
        count = 1 + sum(len(byte) for _, byte in self.levels)
        return order, np.searchsorted(self.node[order], np.arange(count + 1))


def _expand(begin: _Ints, chosen: _Ints) -> tuple[_Ints, _Ints]:
    """The members of some groups, which begin at `begin`: the position of each group in `chosen`, and the member."""
    counts = begin[chosen + 1] - begin[chosen]
    position = np.repeat(np.arange(len(chosen)), counts)
    first = np.cumsum(counts) - counts
    return position, np.arange(len(position)) - first[position] + begin[chosen][position]


@lru_cache(8)
def _trie(pieces: Sequence[bytes | None]) -> _Trie:
    return _new_trie(pieces)


def _new_trie(pieces: Sequence[bytes | None]) -> _Trie:
    """Build the prefix tree of the bytes of each token; None for tokens without bytes."""
    levels: list[tuple[_Ints, NDArray[np.uint8]]] = []
    node = np.full(len(pieces), -1, np.int64)
    node_of, previous, begin = {b"": 0}, 0, 1  # nodes of the last level; index of the first node of it and of the next
    open_tokens = [(token, piece) for token, piece in enumerate(pieces) if piece]
    for depth in range(1, 1 + max((len(piece) for _, piece in open_tokens), default=0)):
        prefixes = sorted({piece[:depth] for _, piece in open_tokens})
        parents = np.array([node_of[prefix[:-1]] - previous for prefix in prefixes])
        levels.append((parents, np.array([prefix[-1] for prefix in prefixes], np.uint8)))
        node_of = {prefix: begin + i for i, prefix in enumerate(prefixes)}
        for token, piece in open_tokens:
            if len(piece) == depth:
                node[token] = node_of[piece]
        previous, begin = begin, begin + len(prefixes)
        open_tokens = [(token, piece) for token, piece in open_tokens if len(piece) > depth]
    return _Trie(tuple(levels), node)
