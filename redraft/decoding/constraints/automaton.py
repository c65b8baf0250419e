"""Automata on tokens: which token leads from which state to which, with equal tokens grouped into classes.

Two tokens are of the same class if they lead from every state to the same one. A vocabulary of 50,000 has 60 to 4,000
different steps under usual patterns, where it has a million by token; so a pass over the canvas costs little.
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
    """No tokens of a vocabulary spell a text that obeys a rule."""


_MOST_CELLS = 10**8  # states × tokens

_Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _TokenAutomaton:
    """An automaton on tokens, starting in state 0; the last state is the one behind the end token.

    Edges, steps (source, class, target), come in the order of their sources; class −1 is that of tokens that lead
    nowhere.
    """

    class_of: _Ints  # (V,) the class of each token; −1: it leads nowhere
    after: _Ints  # (S, C) the next state; S, one more than there are, where there is none
    final: NDArray[np.bool_]  # (S,) the text may stop here, before anything else
    end: int | None  # the class of the end token, None if there is none
    filler: tuple[int, ...]  # classes of tokens that may stand behind the end

    @property
    def states(self) -> int:
        return len(self.after)

    @property
    def classes(self) -> int:
        return self.after.shape[1]

    @property
    def ended(self) -> int:
        """The state behind the end token."""
        return self.states - 1

    def goals(self, open_ended: bool) -> NDArray[np.bool_]:
        """(S,) in which states the constrained part may be over."""
        goals = self.final.copy()
        goals[self.ended] = open_ended
        return goals

    def shortest(self) -> int:
        """The fewest tokens of a text that obeys."""
        return next(length for length, obeys in enumerate(self._by_length()) if obeys)

    def lengths(self, most: int) -> list[int]:
        """How many tokens texts that obey have, up to `most`."""
        return [length for length, obeys in zip(range(most + 1), self._by_length(), strict=False) if obeys]

    def _by_length(self) -> Iterator[bool]:
        """Whether texts of 0, 1, 2 … tokens obey."""
        reached = np.arange(self.states) == 0
        text = np.setdiff1d(np.arange(self.classes), [*self.filler, -1 if self.end is None else self.end])
        while True:
            yield bool((reached & self.final).any())
            after = np.unique(self.after[reached][:, text])
            reached = np.isin(np.arange(self.states), after)


def _token_automaton(dfa: _Dfa, spelling: _TokenBytes, vocab: Vocab, text_begins: bool) -> _TokenAutomaton:
    """The texts of an automaton on bytes, as sequences of tokens that spell them in any way, then the end token."""
    inner, first = _trie(spelling.inner), _trie(spelling.at(text_begins))
    table = np.vstack([dfa.table, np.full((1, 256), -1, np.int32)])  # −1 is the last row
    rows = [first.read(table, np.zeros(1, np.int64))]
    number, states = {}, [0]  # state 0 of the tokens reads the beginning; any other one is a state of the bytes
    done = 0
    while done < len(rows):
        for state in np.unique(np.concatenate(rows[done:])).tolist():
            if state >= 0 and state not in number:
                number[state] = len(states)
                states.append(state)
        done = len(rows)
        if len(states) * vocab.size > _MOST_CELLS:
            raise AutomatonTooLarge(
                f"the pattern has more than {_MOST_CELLS // vocab.size:,} states for a vocabulary of {vocab.size:,}; "
                "use a simpler one, with smaller counts {m,n}"
            )
        if fresh := states[sum(map(len, rows)) :]:
            rows.append(inner.read(table, np.array(fresh)))
    renumber = np.full(len(dfa) + 1, -1, np.int64)
    renumber[list(number)] = list(number.values())
    return _grouped(renumber[np.concatenate(rows)], dfa.final[states], vocab)


def _grouped(table: _Ints, final: NDArray[np.bool_], vocab: Vocab) -> _TokenAutomaton:
    """(S, V) next states, −1 for none → classes; the end token and the state behind it are added."""
    ended = len(table)
    table = np.vstack([table, np.full((1, table.shape[1]), -1)])
    final = np.append(final, False)
    fillers = sorted({token for token in (vocab.eos, vocab.pad) if token is not None and vocab.eos is not None})
    if vocab.eos is not None:
        table[final, vocab.eos] = ended
        table[ended, fillers] = ended
    kind, first = _unique_columns(table)
    columns = table[:, first]
    useful = np.append(_can_reach(columns, final), False)
    useful[ended] = vocab.eos is not None
    if not useful[0]:
        raise _NotTokenizable
    columns = np.where(useful[columns], columns, -1)
    again, shared = _unique_columns(columns)
    live = (columns[:, shared] >= 0).any(0)
    number = np.where(live, np.cumsum(live) - 1, -1)  # of those that lead anywhere
    class_of, columns = number[again][kind], columns[:, shared[live]]
    end = None if vocab.eos is None else int(class_of[vocab.eos])
    after = np.where(columns < 0, len(table), columns)
    return _TokenAutomaton(class_of, after, final, end, tuple(sorted({int(class_of[token]) for token in fillers})))


@dataclass(frozen=True, eq=False)
class _Trie:
    """The spellings of a vocabulary with common beginnings shared, level by level."""

    levels: tuple[tuple[_Ints, NDArray[np.uint8]], ...]  # per level: the parent of each node, and its byte
    node: _Ints  # (V,) where each token ends; the number of nodes for tokens without spelling

    def read(self, table: NDArray[np.int32], states: _Ints) -> _Ints:
        """(n,) states of bytes → (n, V) the states after each token, −1 for none; some states at a time."""
        return np.concatenate([self._some(table, part) for part in np.array_split(states, len(states) // 64 + 1)])

    def _some(self, table: NDArray[np.int32], states: _Ints) -> _Ints:
        level = states[:, None].astype(np.int32)
        found = [level]
        for parent, byte in self.levels:
            level = table[level[:, parent], byte]
            found.append(level)
        nowhere = np.full((len(states), 1), -1, np.int32)
        return np.concatenate([*found, nowhere], 1)[:, self.node].astype(np.int64)


@lru_cache(8)
def _trie(spelled: Sequence[bytes | None]) -> _Trie:
    levels: list[tuple[_Ints, NDArray[np.uint8]]] = []
    node = np.full(len(spelled), -1, np.int64)
    at, before, begin = {b"": 0}, 0, 1
    open_tokens = [(token, piece) for token, piece in enumerate(spelled) if piece]
    for depth in range(1, 1 + max((len(piece) for _, piece in open_tokens), default=0)):
        beginnings = sorted({piece[:depth] for _, piece in open_tokens})
        parents = np.array([at[beginning[:-1]] - before for beginning in beginnings])
        levels.append((parents, np.array([beginning[-1] for beginning in beginnings], np.uint8)))
        at = {beginning: begin + i for i, beginning in enumerate(beginnings)}
        for token, piece in open_tokens:
            if len(piece) == depth:
                node[token] = at[piece]
        before, begin = begin, begin + len(beginnings)
        open_tokens = [(token, piece) for token, piece in open_tokens if len(piece) > depth]
    return _Trie(tuple(levels), node)
