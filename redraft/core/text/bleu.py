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
    """BLEU-4 of texts, each against one or more references: BP · exp(¼ Σ log p_n) (Papineni et al. 2002, §2).

    p_n is the clipped n-gram precision over all texts, with one added to both counts for n > 1 (Lin & Och 2004), so
    that BLEU is defined for a single sentence. BP = min(1, e^{1 − r/c}) for c words of text and r words of reference;
    for each text, r counts the reference closest in length, or the shorter of two.
    """
    lists = ([given] if isinstance(given, str) else given for given in references)
    pairs = [(cut(text), [cut(reference) for reference in given]) for text, given in zip(texts, lists, strict=True)]
    length = sum(len(hypothesis) for hypothesis, _ in pairs)
    reference_length = sum(
        min((abs(len(reference) - len(hypothesis)), len(reference)) for reference in split)[1]
        for hypothesis, split in pairs
    )
    logs = 0.0
    for n in range(1, 5):
        counts = [(Counter(ngrams(hypothesis, n)), _most(split, n)) for hypothesis, split in pairs]
        matches, extra = sum((ours & reference).total() for ours, reference in counts), int(n > 1)
        if not (total := sum(ours.total() for ours, _ in counts) + extra) or not matches + extra:
            return 0.0
        logs += math.log((matches + extra) / total)
    return math.exp(logs / 4 + min(0.0, 1 - reference_length / length))


def minimum_bayes_risk(candidates: Sequence[str], cut: WordSplitter = split_words) -> str:
    """The candidate most similar to all candidates, argmin_s mean_s' −BLEU(s, s') (Li et al. 2022, §3.4).

    Ties go to the alphabetically first one, so that the order of candidates does not matter.
    """
    if not candidates:
        raise ValueError("there is nothing to choose from; give at least one candidate")
    return max(sorted(set(candidates)), key=lambda text: math.fsum(bleu([text], [other], cut) for other in candidates))


def _most(texts: Iterable[Sequence[Hashable]], n: int) -> Counter[tuple[Hashable, ...]]:
    """The largest count of each n-gram in any one text."""
    return reduce(or_, (Counter(ngrams(text, n)) for text in texts))


def ngrams(words: Sequence[Hashable], n: int) -> list[tuple[Hashable, ...]]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
