"""Texts judged against the language they were trained on."""

from __future__ import annotations

from redraft.apps.reports.page import Sample
from redraft.core.text.tokenizers import spell, split_words
from redraft.training.data.corpora.grammar import Follow, Telling
from redraft.training.data.corpora.stories import STORIES
from redraft.training.heldout import BIT


def judged(text: str) -> Sample:
    """A text with its true log-probability, and how much of its beginning agrees with some story."""
    follow = Follow(split_words(text))
    STORIES.tale.tell(Telling(), follow)
    agreed = spell(follow.heard[: follow.reach])
    right = next(n for n in range(len(agreed), -1, -1) if text.startswith(agreed[:n]))
    return Sample(text, STORIES.log_prob(text) / BIT, right)
