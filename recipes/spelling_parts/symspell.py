"""SymSpell as a baseline, with the dictionary and bigrams of the training text; it also skips names and digits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from redraft.tasks import EditChannel, Lexicon
from redraft.tasks.correction.suspects import _WHOLE_WORD, _CandidateGenerator
from spelling_parts.judged import Corrector, counted

EDITS = 2


def symspell(train: Sequence[str], names: bool) -> Corrector:
    """Every word by itself: the nearest known one, of equally near ones the most frequent."""
    dictionary = _dictionary(train)
    from symspellpy import Verbosity

    def word(spelling: str) -> str:
        near = dictionary.lookup(spelling, Verbosity.TOP, EDITS, include_unknown=True, transfer_casing=True)
        return str(near[0].term)

    return lambda texts: [_replaced(text, names, lambda run: " ".join(map(word, run.split(" ")))) for text in texts]


def symspell_compound(train: Sequence[str], names: bool) -> Corrector:
    """Words together, `lookup_compound`: spaces may be lost or too many, and bigrams decide."""
    dictionary = _dictionary(train)

    def several(run: str) -> str:
        return str(dictionary.lookup_compound(run, EDITS, transfer_casing=True)[0].term)

    return lambda texts: [_replaced(text, names, several) for text in texts]


def _dictionary(train: Sequence[str]) -> Any:
    from symspellpy import SymSpell

    dictionary, words = SymSpell(EDITS, 7), Counter[str]()
    for word, count in counted(train).items():
        words[word.lower()] += count
    for word, count in words.items():
        dictionary.create_dictionary_entry(word, count)
    for pair, count in _bigrams(train).items():
        dictionary._bigrams[pair] = count
        dictionary.bigram_count_min = min(dictionary.bigram_count_min, count)
    return dictionary


def _bigrams(train: Sequence[str]) -> Counter[str]:
    runs = (run for text in train for _, _, run in _runs(text, True))
    return Counter(f"{a} {b}" for run in runs for a, b in pairwise(run.lower().split(" ")))


def _replaced(text: str, names: bool, correct: Any) -> str:
    pieces, at = [], 0
    for start, end, run in _runs(text, names):
        pieces += [text[at:start], correct(run)]
        at = end
    return "".join([*pieces, text[at:]])


def _runs(text: str, names: bool) -> Iterator[tuple[int, int, str]]:
    """Words that may be touched with single spaces between them, as long as possible."""
    speller = _CandidateGenerator(Lexicon({}), EditChannel.uniform(), 0.02, names=names)
    free = [piece for piece in _WHOLE_WORD.finditer(text) if speller.may_change(text, piece.start(), piece.group())]
    begin = 0
    for i in range(1, len(free) + 1):
        if i == len(free) or text[free[i - 1].end() : free[i].start()] != " ":
            yield free[begin].start(), free[i - 1].end(), text[free[begin].start() : free[i - 1].end()]
            begin = i
