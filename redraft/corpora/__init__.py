"""Corpora whose truth is known: the embedded stories, tasks made of them, the E2E challenge."""

from redraft.corpora.grammar import (
    Account,
    Draft,
    Entry,
    Every,
    Follow,
    Given,
    GrammarGuide,
    Let,
    Node,
    OneOf,
    Option,
    Phrase,
    Say,
    Seq,
    Telling,
    Text,
)
from redraft.corpora.language import Language, Story, split_seed
from redraft.corpora.restaurants import e2e, said, slots
from redraft.corpora.rules import Case, Draw, Rules, entry
from redraft.corpora.stories import SMALL, STORIES, StoriesData
from redraft.corpora.tasks import Content, StoryAttributes, StoryClasses, StorySummaries, Task, faithful
