"""Scores a corrector: which misspelled words were restored, and which right words were spoiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from redraft.tasks import CorruptedText
from redraft.tasks.correction.lexicon import WORD

Corrector = Callable[[Sequence[str]], Sequence[str]]


@dataclass
class Tallied:
    """Words of one kind of error: how many there were and how many came back."""

    words: int = 0
    right: int = 0

    def add(self, right: bool) -> None:
        self.words, self.right = self.words + 1, self.right + right


def returned(given: str, text: str) -> list[bool]:
    """For each word of the given text whether it stands in the other one, the two aligned word by word."""
    a, b = given.split(), text.split()
    kept = [False] * len(a)
    for start, _, size in SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks():
        kept[start : start + size] = [True] * size
    return kept


def judged(made: Sequence[CorruptedText], texts: Sequence[str], known: Collection[str]) -> dict[str, Any]:
    """The shares of misspelled words that came back, of all and by kind, and of right words that were spoilt.

    A misspelled word whose spelling is itself a known word is a real-word error, and counted apart. A word with errors
    of several kinds counts in each of them.
    """
    kinds: dict[str, Tallied] = {}
    wrong, real, right = Tallied(), Tallied(), Tallied()
    for each, text in zip(made, texts, strict=True):
        spelled = hidden(each, known)
        for is_right, errors, is_real in zip(returned(each.given, text), each.kinds, spelled, strict=True):
            if not errors:
                right.add(is_right)
            elif is_real:
                real.add(is_right)
            else:
                wrong.add(is_right)
                for kind in dict.fromkeys(errors):
                    kinds.setdefault(kind, Tallied()).add(is_right)
    return {
        "restored": share(wrong),
        "restored_with_real": share(Tallied(wrong.words + real.words, wrong.right + real.right)),
        "spoilt": 1 - share(right),
        "real_words": share(real),
        "misspelled": wrong.words,
        "real": real.words,
        "words": right.words,
        "kinds": {kind: share(is_right) for kind, is_right in sorted(kinds.items())},
    }


def hidden(each: CorruptedText, known: Collection[str]) -> list[bool]:
    """Whether the errors of each word turned it into other known words, which only the context reveals."""
    given, wrong = each.given.split(), each.text.split()
    is_word = [False] * len(given)
    for tag, a, b, c, d in SequenceMatcher(None, given, wrong, autojunk=False).get_opcodes():
        if tag != "equal":
            spelled = [w.lower() for text in wrong[c:d] for w in WORD.findall(text)]
            same = b - a == d - c
            for i in range(a, b):
                own = [w.lower() for w in WORD.findall(wrong[c + i - a])] if same else spelled
                is_word[i] = bool(own) and all(w in known for w in own)
    return is_word


def share(tallied: Tallied) -> float:
    return tallied.right / max(1, tallied.words)


def counted(texts: Iterable[str]) -> Counter[str]:
    return Counter(word for text in texts for word in WORD.findall(text))
