"""Texts compared with the true distribution of their corpus."""

from __future__ import annotations

from redraft.apps.reports.page import _Sample
from redraft.training.data.annotations import as_annotated
from redraft.training.heldout import NATS_PER_BIT


def _judged_sample(text: str, corpus: object) -> _Sample:
    """Returns the text with its true log-probability and the length of its correct beginning, if known."""
    judgment = as_annotated(corpus).judge(text)
    return _Sample(text) if judgment is None else _Sample(text, judgment.log_prob / NATS_PER_BIT, judgment.right)
