"""BLEU, and the minimum-Bayes-risk candidate by it. Pure functions of the texts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import reduce
from operator import or_

from redraft.core.text.tokenizers import split_words

WordSplitter = Callable[[str], Sequence[Hashable]]  # text → words; a tokenizer's `encode` is one too


def bleu(texts: Sequence[str], references: Sequence[str | Sequence[str]], cut: WordSplitter = split_words) -> float:
    """BLEU-4 of texts, each against a reference or several: BP · exp(¼ Σ log p_n) (Papineni et al. 2002, §2).

    p_n is the share of n-grams that occur in a reference, each as often as in the one that has it most, counted over
    all texts; one is added to both counts for n > 1 (Lin & Och 2004), so that a single sentence has a BLEU too.
    BP = min(1, e^{1 − r/c}) for c words of text and r of reference: of each text's references the one closest to it in
    length, the shorter of two.
    """
    several = ([known] if isinstance(known, str) else known for known in references)
    pairs = [(cut(text), [cut(each) for each in known]) for text, known in zip(texts, several, strict=True)]
    long = sum(len(said) for said, _ in pairs)
    needed = sum(min((abs(len(true) - len(said)), len(true)) for true in known)[1] for said, known in pairs)
    logs = 0.0
    for n in range(1, 5):
        counts = [(Counter(ngrams(said, n)), _most(known, n)) for said, known in pairs]
        found, extra = sum((said & true).total() for said, true in counts), int(n > 1)
        if not (all_of_them := sum(said.total() for said, _ in counts) + extra) or not found + extra:
            return 0.0
        logs += math.log((found + extra) / all_of_them)
    return math.exp(logs / 4 + min(0.0, 1 - needed / long))


def minimum_bayes_risk(candidates: Sequence[str], cut: WordSplitter = split_words) -> str:
    """The candidate that is most similar to all of them, argmin_s mean_s' −BLEU(s, s') (Li et al. 2022, §3.4).

    Ties go to the first in the alphabet, so that the order of the candidates does not matter.
    """
    if not candidates:
        raise ValueError("there is nothing to choose from; give at least one candidate")
    return max(sorted(set(candidates)), key=lambda text: math.fsum(bleu([text], [other], cut) for other in candidates))


def _most(texts: Iterable[Sequence[Hashable]], n: int) -> Counter[tuple[Hashable, ...]]:
    """How often each n-gram occurs in the text that has it most often."""
    return reduce(or_, (Counter(ngrams(text, n)) for text in texts))


def ngrams(words: Sequence[Hashable], n: int) -> list[tuple[Hashable, ...]]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
