"""Judgements of texts: grammar, diversity, copying. Pure functions of the texts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from redraft.core.text.bleu import WordSplitter, ngrams
from redraft.core.text.tokenizers import split_words
from redraft.training.data.annotations import AnnotatedCorpus, Judgment
from redraft.training.data.sources import KnownDistribution
from redraft.training.heldout import NATS_PER_BIT


class GrammarScore(NamedTuple):
    """How well texts fit a language whose true probabilities are known; nan where there is nothing to count."""

    share: float  # of texts in the language
    bits: float  # mean true log2-probability of these
    by_sentence: tuple[float, ...]  # k-th: share of texts that are right up to sentence k, among those that have k


def grammar_score(texts: Sequence[str], corpus: AnnotatedCorpus) -> GrammarScore:
    """Scores texts against the true distribution of a corpus; a sentence ends at a full stop."""
    judged = [(text, _judgment(text, corpus)) for text in texts]
    inside = [judgment.log_prob for _, judgment in judged if judgment.log_prob > -math.inf]
    right = [(split_words(text).count("."), text[: judgment.right].count(".")) for text, judgment in judged]
    longest = max((sentences for sentences, _ in right), default=0)
    by_sentence = (_mean([good >= k for sentences, good in right if sentences >= k]) for k in range(1, longest + 1))
    share = len(inside) / len(texts) if texts else math.nan
    return GrammarScore(share, _mean(inside) / NATS_PER_BIT, tuple(by_sentence))


def _judgment(text: str, corpus: AnnotatedCorpus) -> Judgment:
    if (found := corpus.judge(text)) is None:
        raise ValueError(f"{type(corpus).__name__} does not know the true probabilities of its texts")
    return found


def fraction_possible(texts: Sequence[str], source: KnownDistribution) -> float:
    """The share of texts that a source of known distribution can write."""
    return _mean([source.log_prob(text) > -math.inf for text in texts])


def unigram_entropy(texts: Sequence[str], cut: WordSplitter = split_words) -> tuple[float, float]:
    """Nats: the entropy of the words within a text (mean over texts), and of the words of all texts together."""
    counts = [Counter(cut(text)) for text in texts]
    return _mean([_entropy(count) for count in counts]), _entropy(sum(counts, Counter()))


def distinct_ngrams(texts: Sequence[str], n: int, cut: WordSplitter = split_words) -> float:
    """Different n-grams as a share of all n-grams: low where texts repeat themselves or each other."""
    grams = [gram for text in texts for gram in ngrams(cut(text), n)]
    return len(set(grams)) / len(grams) if grams else math.nan


def fraction_copied(texts: Sequence[str], training: Iterable[str]) -> float:
    """The share of texts that are training texts, word for word."""
    known = set(texts).intersection(training)
    return _mean([text in known for text in texts])


def _entropy(counts: Counter[Hashable]) -> float:
    total = counts.total()
    return sum(count / total * math.log(total / count) for count in counts.values())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def figure_record(
    name: str, value: float, *, run: str, seed: int, **more: float | str | None
) -> dict[str, float | str | None]:
    """One figure as one JSON object, with its run (a digest), its seed, and what else is worth knowing.

    Keys always come in the same order; what JSON lacks (nan, inf) is None.
    """
    entries = {"name": name, "value": value, "run": run, "seed": seed, **dict(sorted(more.items()))}
    return {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in entries.items()}
