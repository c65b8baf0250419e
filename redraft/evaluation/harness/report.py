"""What the harness has no place for: how scores were estimated and how far chance may have decided."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from redraft.core.text.tokenizers import UNKNOWN, Tokenizer
from redraft.evaluation.harness.scoring import AnswerScore, Scorer


class EstimateSummary(NamedTuple):
    """How the log-likelihoods of a task came about."""

    kind: Literal["exact", "bound"]
    calls: int  # network calls per answer at most
    stderr: float  # nats: Monte-Carlo standard error of one log-likelihood, root mean square over answers
    undecided: float  # share of the questions whose best two answers differ by less than two standard errors


@dataclass
class Report:
    """Collects scores by task and question."""

    kind: Literal["exact", "bound"] = "exact"
    calls: int = 0
    ignored: set[str] = field(default_factory=set)  # settings of tasks that mean nothing here
    tokens: int = 0
    unknown: int = 0
    _scores: dict[str, dict[int, list[AnswerScore]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def scoring(self, scorer: Scorer) -> None:
        self.kind, self.calls = "exact" if scorer.exact else "bound", scorer.calls

    def add(self, task: str, question: int, score: AnswerScore) -> None:
        self._scores[task][question].append(score)

    def read(self, tokenizer: Tokenizer, ids: Sequence[int]) -> None:
        """Counts the tokens that stand for anything the tokenizer does not know."""
        self.tokens += len(ids)
        self.unknown += sum(tokenizer.piece(token) == UNKNOWN for token in ids)

    def of(self, tasks: Iterable[str]) -> EstimateSummary | None:
        """How the scores of some tasks were estimated; None if they have none."""
        questions = [scores for task in tasks for scores in self._scores.get(task, {}).values()]
        every = [score for scores in questions for score in scores]
        if not every:
            return None
        stderr = math.sqrt(math.fsum(score.variance for score in every) / len(every))
        compared = [scores for scores in questions if len(scores) > 1]
        undecided = sum(map(_undecided, compared)) / len(compared) if compared else 0.0
        return EstimateSummary(self.kind, self.calls, stderr, undecided)


def _undecided(scores: Sequence[AnswerScore]) -> bool:
    """Whether the gap is below two standard errors; the variance of one answer is rough, so all of them share it."""
    first, second = sorted((score.log_p for score in scores), reverse=True)[:2]
    variance = math.fsum(score.variance for score in scores) / len(scores)
    return first - second < 2 * math.sqrt(2 * variance)
