"""Metrics of generated texts: grammar, diversity, copying. Pure functions of the texts."""

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

    share: float  # fraction of the texts that the language can produce
    bits: float  # mean true log2-probability of these texts
    by_sentence: tuple[float, ...]  # entry k − 1: fraction of texts with k or more sentences whose first k are correct


def grammar_score(texts: Sequence[str], corpus: AnnotatedCorpus) -> GrammarScore:
    """Scores texts against the true distribution of a corpus; sentences end at full stops."""
    judged = [(text, _judgment(text, corpus)) for text in texts]
    log_probs = [judgment.log_prob for _, judgment in judged if judgment.log_prob > -math.inf]
    counts = [(split_words(text).count("."), text[: judgment.right].count(".")) for text, judgment in judged]
    most = max((sentences for sentences, _ in counts), default=0)
    by_sentence = (_mean([right >= k for sentences, right in counts if sentences >= k]) for k in range(1, most + 1))
    fraction = len(log_probs) / len(texts) if texts else math.nan
    return GrammarScore(fraction, _mean(log_probs) / NATS_PER_BIT, tuple(by_sentence))


def _judgment(text: str, corpus: AnnotatedCorpus) -> Judgment:
    if (judgment := corpus.judge(text)) is None:
        raise ValueError(f"{type(corpus).__name__} does not know the true probabilities of texts; use one that does")
    return judgment


def fraction_possible(texts: Sequence[str], source: KnownDistribution) -> float:
    """Return the fraction of texts to which a known distribution gives a probability above 0."""
    return _mean([source.log_prob(text) > -math.inf for text in texts])


def unigram_entropy(texts: Sequence[str], split: WordSplitter = split_words) -> tuple[float, float]:
    """Return word entropies in nats: within a text (mean over texts), and of all texts together."""
    counts = [Counter(split(text)) for text in texts]
    return _mean([_entropy(count) for count in counts]), _entropy(sum(counts, Counter()))


def distinct_ngrams(texts: Sequence[str], n: int, split: WordSplitter = split_words) -> float:
    """Return the number of different n-grams, divided by that of all n-grams; low if texts repeat themselves."""
    grams = [gram for text in texts for gram in ngrams(split(text), n)]
    return len(set(grams)) / len(grams) if grams else math.nan


def fraction_copied(texts: Sequence[str], training: Iterable[str]) -> float:
    """Return the fraction of texts that are identical to a training text."""
    copies = set(texts).intersection(training)
    return _mean([text in copies for text in texts])


def _entropy(counts: Counter[Hashable]) -> float:
    total = counts.total()
    return sum(count / total * math.log(total / count) for count in counts.values())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def figure_record(
    name: str, value: float, *, run: str, seed: int, **more: float | str | None
) -> dict[str, float | str | None]:
    """Return a figure as a JSON object with its run (a digest), its seed and further entries, `more`.

    Keys always come in the same order. JSON has no nan and inf, so they become None.
    """
    entries = {"name": name, "value": value, "run": run, "seed": seed, **dict(sorted(more.items()))}
    return {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in entries.items()}
