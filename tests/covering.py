"""Products of options, thinned: every pair of values occurs together in some case, not every combination."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any


def all_pairs(*options: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Cases in which every value of an option meets every value of every other option at least once.

    Greedy: of all combinations, the next case is the first one with the most pairs that are not covered yet.
    """
    sizes = [range(len(values)) for values in options]
    candidates = [_pairs(case) for case in product(*sizes)]
    cases, missing = [], frozenset[Any]().union(*candidates)
    while missing:
        best = max(candidates, key=lambda pairs: len(pairs & missing))
        missing -= best
        cases.append(best)
    chosen = [dict(point for pair in pairs for point in pair) for pairs in cases]
    return [tuple(values[case[i]] for i, values in enumerate(options)) for case in chosen]


def _pairs(case: tuple[int, ...]) -> frozenset[Any]:
    return frozenset(combinations(enumerate(case), 2))
