"""Corpora whose truth is known: the embedded stories, tasks made of them, the E2E challenge."""

from redraft.corpora.grammar import (
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
from redraft.corpora.language import Language, Story, split_seed
from redraft.corpora.points import Blobs
from redraft.corpora.programs import PROGRAM_WORDS, Programs, bracketed
from redraft.corpora.restaurants import e2e, said, slots
from redraft.corpora.rules import Case, Draw, Rules, entry
from redraft.corpora.stories import SMALL, STORIES, StoriesData
from redraft.corpora.tags import STORY_TAGS, TAGS, tags_of
from redraft.corpora.tasks import Content, StoryAttributes, StoryClasses, StorySummaries, Task, faithful
