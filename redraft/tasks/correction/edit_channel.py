"""The error channel: P(spelling | word) from edits with learned probabilities."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import resources
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from redraft.tasks.correction.lexicon import _OTHER_CHAR, LETTERS, encode_word

EDITS = ("replace", "drop", "undouble", "insert", "double", "swap")
_SMALLEST = 1e-300


@dataclass(frozen=True)
class EditChannel:
    """P(spelling | word): each letter is copied or edited, with `noise` expected edits per letter.

    An edit replaces a letter, drops it (`undouble`: one of two equal letters), inserts one after it (`double`: the same
    letter), or swaps it with the next one. Probabilities are learned from pairs of words and misspellings, and the sum
    over all edit sequences is exact.
    """

    edits: tuple[float, ...]  # rate of each of EDITS where it is possible, per unit of noise
    replaced: tuple[tuple[float, ...], ...]  # P(new letter | old letter) of a replacement
    inserted: tuple[float, ...]  # P(letter) of an insertion
    space: float = 0.1  # rate of lost and of extra spaces, per unit of noise

    @classmethod
    def standard(cls) -> EditChannel:
        """The channel shipped with Redraft, learned half from human and half from synthetic errors.

        `recipes/spelling.py --channel FILE` learns it again.
        """
        data = json.loads((resources.files("redraft.tasks.correction") / "channel.json").read_text("utf-8"))
        return cls(tuple(data["edits"]), tuple(map(tuple, data["replaced"])), tuple(data["inserted"]), data["space"])

    @classmethod
    def uniform(cls) -> EditChannel:
        """A channel with equal probabilities for all edits and letters, from which learning starts."""
        n = _OTHER_CHAR + 1
        rows = tuple(tuple(0.0 if a == b else 1 / (n - 1) for b in range(n)) for a in range(n))
        return cls((1 / len(EDITS),) * len(EDITS), rows, (1 / n,) * n)

    def to_json(self) -> str:
        """The channel as JSON, rounded to five digits."""
        data = asdict(self)
        data["edits"] = [round(p, 5) for p in self.edits]
        data["inserted"] = [round(p, 5) for p in self.inserted]
        data["replaced"] = [[round(p, 5) for p in row] for row in self.replaced]
        return json.dumps(data)

    # --- probabilities ---

    def log_probs(self, spelling: str, codes: NDArray[np.int64], noise: float) -> NDArray[np.float64]:
        """(K,) log P(spelling | word) of the words in (K, M) codes, −1 after their ends.

        By the forward algorithm: entry (i, j) is the probability that the first i letters of the word have become the
        first j of the spelling.
        """
        observed, lengths = encode_word(spelling)[: len(spelling)], (codes >= 0).sum(1)
        before = self._first(codes, observed, noise)
        rows, totals = [before], np.full(len(codes), _SMALLEST)
        for i in range(1, int(lengths.max(initial=0)) + 1):
            rows.append(self._row(rows, codes, i, observed, noise))
            totals = np.where(lengths == i, rows[-1][:, -1], totals)
        return np.log(np.maximum(totals, _SMALLEST))

    def _first(self, codes: NDArray[np.int64], observed: Sequence[int], noise: float) -> NDArray[np.float64]:
        """(K, n + 1) forward probabilities before the first letter, where only insertions are possible."""
        insert, row = self._at(noise)["insert"], np.ones((len(codes), len(observed) + 1))
        for j, letter in enumerate(observed):
            row[:, j + 1] = row[:, j] * insert * self.inserted[letter]
        return row

    def _row(
        self,
        rows: Sequence[NDArray[np.float64]],
        codes: NDArray[np.int64],
        i: int,
        observed: Sequence[int],
        noise: float,
    ) -> NDArray[np.float64]:
        edits, nothing = self._at(noise), np.full(len(codes), -2)
        here, last = codes[:, i - 1], codes[:, i - 2] if i > 1 else nothing
        behind = codes[:, i] if i < codes.shape[1] else nothing
        # one of two equal letters is dropped in two ways
        drop = np.where((here == last) | (here == behind), edits["undouble"] / 2, edits["drop"])
        above, row = rows[-1], np.empty((len(codes), len(observed) + 1))
        row[:, 0] = above[:, 0] * drop
        for j in range(1, len(observed) + 1):
            letter = observed[j - 1]
            become = np.where(here == letter, 1 - noise, edits["replace"] * self._replaced[here, letter])
            insert = edits["insert"] * self.inserted[letter] + np.where(here == letter, edits["double"], 0.0)
            row[:, j] = above[:, j - 1] * become + above[:, j] * drop + row[:, j - 1] * insert
            if i > 1 and j > 1 and observed[j - 2] != letter:
                crossed = (here == observed[j - 2]) & (last == letter)
                row[:, j] += np.where(crossed, rows[-2][:, j - 2] * edits["swap"], 0.0)
        return row

    def _at(self, noise: float) -> dict[str, float]:
        """The probability of each edit where it is possible."""
        return {edit: min(0.5, noise * rate) for edit, rate in zip(EDITS, self.edits, strict=True)}

    @cached_property
    def _replaced(self) -> NDArray[np.float64]:
        return np.array(self.replaced)

    def log_prob(self, spelling: str, word: str, noise: float) -> float:
        """log P(spelling | word) of one word."""
        return float(self.log_probs(spelling, np.array([encode_word(word)]), noise)[0])

    def log_space(self, noise: float) -> float:
        """log of the probability that a space is lost, or that an extra one is inserted, at a given position."""
        return math.log(noise * self.space)

    # --- learning ---

    @classmethod
    def fit(cls, pairs: Iterable[tuple[str, str]], rounds: int = 3, space: float = 0.1) -> EditChannel:
        """Learns a channel from pairs (word, misspelling) by hard EM: counts the most likely edits, `rounds` times.

        Counts are smoothed, so that no edit is impossible.
        """
        data, channel = [(word.lower(), wrong.lower()) for word, wrong in pairs if word != wrong], cls.uniform()
        opportunities = Counter[str]()
        for word, _ in data:
            opportunities.update(_edit_opportunities(word))
        for _ in range(rounds):
            counts: Counter[tuple[str, str, str]] = Counter()
            for word, wrong in data:
                counts.update(channel.edits_of(word, wrong))
            channel = cls._counted(counts, opportunities, space)
        return channel

    @classmethod
    def _counted(cls, counts: Counter[tuple[str, str, str]], opportunities: Counter[str], space: float) -> EditChannel:
        alphabet = [*LETTERS, "?"]
        plan = [sum(n for (kind, *_), n in counts.items() if kind == edit) + 1.0 for edit in EDITS]
        noise = sum(plan) / (opportunities["drop"] + opportunities["undouble"])
        rates = tuple(n / (opportunities[edit] + 1.0) / noise for n, edit in zip(plan, EDITS, strict=True))
        rows = [[counts["replace", a, b] + (0.0 if a == b else 0.2) for b in alphabet] for a in alphabet]
        inserted = [sum(counts["insert", a, b] for a in ("", *alphabet)) + 0.5 for b in alphabet]
        *replaced, inserts = (tuple(value / sum(row) for value in row) for row in (*rows, inserted))
        return cls(rates, tuple(replaced), inserts, space)

    def edits_of(self, word: str, wrong: str) -> list[tuple[str, str, str]]:
        """The most likely edits that turn a word into a misspelling: kind, letter of the word, new letter."""
        a, b = (["?" if c not in LETTERS else c for c in text.lower()] for text in (word, wrong))
        cost: dict[tuple[int, int], tuple[float, tuple[int, int], tuple[str, str, str]]] = {}
        cost[0, 0] = (0.0, (0, 0), ("", "", ""))
        for i in range(len(a) + 1):
            for j in range(len(b) + 1):
                ways = [(cost[p][0] - math.log(q), p, edit) for p, edit, q in self._moves(a, b, i, j) if p in cost]
                if ways:
                    cost[i, j] = min(ways)
        edits, at = [], (len(a), len(b))
        while at != (0, 0):
            _, at, edit = cost[at]
            edits.append(edit)
        return [edit for edit in edits if edit[0] != "copy"]

    def _moves(
        self, a: Sequence[str], b: Sequence[str], i: int, j: int
    ) -> list[tuple[tuple[int, int], tuple[str, str, str], float]]:
        """The edits that lead to (i, j): previous position, edit, and probability at a noise of 5 %."""
        rates, noise = dict(zip(EDITS, self.edits, strict=True)), 0.05
        x, y = a[i - 1] if i else "", b[j - 1] if j else ""
        code = {letter: number for number, letter in enumerate([*LETTERS, "?"])}
        moves: list[tuple[tuple[int, int], tuple[str, str, str], float]] = []
        if i and j:
            become = 1 - noise if x == y else noise * rates["replace"] * self.replaced[code[x]][code[y]]
            moves.append(((i - 1, j - 1), ("copy" if x == y else "replace", x, y), become))
        if i:
            kind = "undouble" if _twin(a, i - 1) else "drop"
            moves.append(((i - 1, j), (kind, x, ""), noise * rates[kind]))
        if j:
            kind, weight = ("double", 1.0) if x == y else ("insert", self.inserted[code[y]])
            moves.append(((i, j - 1), (kind, x, y), noise * rates[kind] * weight))
        if i > 1 and j > 1 and a[i - 2] == y and b[j - 2] == x and x != y:
            moves.append(((i - 2, j - 2), ("swap", x, y), noise * rates["swap"]))
        return [(previous, edit, max(p, _SMALLEST)) for previous, edit, p in moves]


def _twin(letters: Sequence[str], at: int) -> bool:
    """Whether a neighboring letter is the same."""
    return letters[at] in (*letters[max(0, at - 1) : at], *letters[at + 1 : at + 2])


def _edit_opportunities(word: str) -> Counter[str]:
    """Number of letters of a word at which each edit is possible."""
    twins, pairs = sum(_twin(word, i) for i in range(len(word))), sum(a != b for a, b in pairwise(word))
    every = dict.fromkeys(("replace", "insert", "double"), len(word))
    return Counter({**every, "drop": len(word) - twins, "undouble": twins, "swap": pairs})
