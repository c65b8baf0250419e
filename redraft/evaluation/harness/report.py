"""A report to accompany lm-eval's results: how scores were estimated, and how much of a result may be chance."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from redraft.core.text.tokenizers import UNKNOWN, Tokenizer
from redraft.evaluation.harness.scoring import AnswerScore, Scorer


class _EstimateSummary(NamedTuple):
    """How the log-likelihoods of a task were estimated."""

    kind: Literal["exact", "bound"]
    calls: int  # maximum number of network calls per answer
    stderr: float  # Monte-Carlo standard error of a log-likelihood in nats, root mean square over answers
    undecided: float  # fraction of questions whose best two answers differ by less than two standard errors


@dataclass
class Report:
    """Scores collected by task and question, with counts of unknown tokens and ignored settings."""

    kind: Literal["exact", "bound"] = "exact"
    calls: int = 0  # maximum number of network calls per answer
    ignored: set[str] = field(default_factory=set)  # names of task settings that have no meaning here
    tokens: int = 0  # number of tokens in all task texts
    unknown: int = 0  # number of tokens that the tokenizer does not know
    _scores: dict[str, dict[int, list[AnswerScore]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def record_scorer(self, scorer: Scorer) -> None:
        self.kind, self.calls = "exact" if scorer.exact else "bound", scorer.calls

    def add(self, task: str, question: int, score: AnswerScore) -> None:
        self._scores[task][question].append(score)

    def count_tokens(self, tokenizer: Tokenizer, ids: Sequence[int]) -> None:
        """Count the tokens of a text, and how many of them are the tokenizer's unknown token."""
        self.tokens += len(ids)
        self.unknown += sum(tokenizer.piece(token) == UNKNOWN for token in ids)

    def summary(self, tasks: Iterable[str]) -> _EstimateSummary | None:
        """Summarize how the scores of these tasks were estimated; None if they have no scores."""
        questions = [scores for task in tasks for scores in self._scores.get(task, {}).values()]
        all_scores = [score for scores in questions for score in scores]
        if not all_scores:
            return None
        stderr = math.sqrt(math.fsum(score.variance for score in all_scores) / len(all_scores))
        compared = [scores for scores in questions if len(scores) > 1]
        undecided = sum(map(_is_undecided, compared)) / len(compared) if compared else 0.0
        return _EstimateSummary(self.kind, self.calls, stderr, undecided)


def _is_undecided(scores: Sequence[AnswerScore]) -> bool:
    """Whether the best two answers differ by less than two standard errors.

    The variance estimate of a single answer is noisy, so the mean over the answers is used.
    """
    first, second = sorted((score.log_p for score in scores), reverse=True)[:2]
    variance = math.fsum(score.variance for score in scores) / len(scores)
    return first - second < 2 * math.sqrt(2 * variance)
