"""Texts judged against the corpus they were trained on."""

from __future__ import annotations

from redraft.apps.reports.page import _Sample
from redraft.training.data.annotations import as_annotated
from redraft.training.heldout import NATS_PER_BIT


def _judged_sample(text: str, corpus: object) -> _Sample:
    """A text with its true log-probability and how much of its beginning is right, if the corpus knows them."""
    judgment = as_annotated(corpus).judge(text)
    return _Sample(text) if judgment is None else _Sample(text, judgment.log_prob / NATS_PER_BIT, judgment.right)
