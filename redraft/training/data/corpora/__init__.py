"""Corpora whose truth is known: the embedded stories, tasks made of them, the E2E challenge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.training.data.corpora.e2e_nlg import e2e, said, slots
    from redraft.training.data.corpora.grammar import (
        Account,
        Alternatives,
        Entry,
        Every,
        Follow,
        Given,
        GrammarGuide,
        Let,
        Node,
        Option,
        Phrase,
        Say,
        Seq,
        StoryDraft,
        Telling,
        Text,
    )
    from redraft.training.data.corpora.grammar_rules import Case, Draw, Rules, entry
    from redraft.training.data.corpora.language import Language, Story, split_seed
    from redraft.training.data.corpora.points import Blobs
    from redraft.training.data.corpora.programs import PROGRAM_WORDS, Programs, bracketed
    from redraft.training.data.corpora.stories import SMALL, STORIES, StoriesData
    from redraft.training.data.corpora.story_tags import STORY_TAGS, TAGS, tags_of
    from redraft.training.data.corpora.story_tasks import (
        Content,
        StoryAttributes,
        StoryClasses,
        StorySummaries,
        Task,
        faithful,
    )

__getattr__, __dir__, __all__ = attach(__name__)
