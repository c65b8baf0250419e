"""Automata on tokens, with equivalent tokens grouped into classes.

Two tokens are in the same class if they lead from every state to the same next state. Under typical patterns a
vocabulary of 50,000 tokens gives 60 to 4,000 transitions between states by class, instead of a million by token. So a
pass over the canvas is cheap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from redraft.core.vocab import Vocab
from redraft.decoding.constraints.dfa import AutomatonTooLarge, _can_reach, _Dfa, _unique_columns
from redraft.decoding.constraints.token_bytes import _TokenBytes


class _NotTokenizable(ValueError):
    """Raised if no sequence of tokens of the vocabulary spells a text that obeys the rule."""


_MAX_CELLS = 10**8  # states × tokens, while an automaton is built

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
    inner, first = _trie(token_bytes.inner), _trie(token_bytes.at(text_begins))
    table = np.vstack([dfa.table, np.full((1, 256), -1, np.int32)])  # −1 is the last row
    rows = [first.read(table, np.zeros(1, np.int64))]
    index_of, states = {}, [0]  # token state 0 reads the first token; every other one is a state of the byte automaton
    done = 0
    while done < len(rows):
        for state in np.unique(np.concatenate(rows[done:])).tolist():
            if state >= 0 and state not in index_of:
                index_of[state] = len(states)
                states.append(state)
        done = len(rows)
        if len(states) * vocab.size > _MAX_CELLS:
            raise AutomatonTooLarge(
                f"the pattern has more than {_MAX_CELLS // vocab.size:,} states for a vocabulary of {vocab.size:,}; "
                "use a simpler one, with smaller counts {m,n}"
            )
        if new := states[sum(map(len, rows)) :]:
            rows.append(inner.read(table, np.array(new)))
    renumber = np.full(len(dfa) + 1, -1, np.int64)
    renumber[list(index_of)] = list(index_of.values())
    return _group_tokens(renumber[np.concatenate(rows)], dfa.final[states], vocab)


def _group_tokens(table: _Ints, final: NDArray[np.bool_], vocab: Vocab) -> _TokenAutomaton:
    """Group tokens into classes, from next states (S, V), −1 for none; adds the end token and the state after it."""
    ended = len(table)
    table = np.vstack([table, np.full((1, table.shape[1]), -1)])
    final = np.append(final, False)
    fillers = sorted({token for token in (vocab.eos, vocab.pad) if token is not None and vocab.eos is not None})
    if vocab.eos is not None:
        table[final, vocab.eos] = ended
        table[ended, fillers] = ended
    group, first = _unique_columns(table)
    columns = table[:, first]
    useful = np.append(_can_reach(columns, final), False)
    useful[ended] = vocab.eos is not None
    if not useful[0]:
        raise _NotTokenizable
    columns = np.where(useful[columns], columns, -1)
    merged, shared = _unique_columns(columns)
    live = (columns[:, shared] >= 0).any(0)
    class_index = np.where(live, np.cumsum(live) - 1, -1)  # only classes with a transition are numbered
    class_of, columns = class_index[merged][group], columns[:, shared[live]]
    end = None if vocab.eos is None else int(class_of[vocab.eos])
    after = np.where(columns < 0, len(table), columns)
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


@lru_cache(8)
def _trie(pieces: Sequence[bytes | None]) -> _Trie:
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
