"""Corpora whose truth is known: the embedded stories, tasks made of them, the E2E challenge."""

from redraft.corpora.corpus import Corpus, Story, split_seed
from redraft.corpora.grammar import (
    Account,
    Choice,
    Draft,
    Entry,
    Every,
    Follow,
    Given,
    Guide,
    Let,
    Node,
    Option,
    Say,
    Seq,
    Telling,
    Text,
    Words,
)
from redraft.corpora.restaurants import e2e, said, slots
from redraft.corpora.rules import Case, Draw, Rules, entry
from redraft.corpora.stories import SMALL, STORIES, StoriesData
from redraft.corpora.tasks import Content, StoryAttributes, StoryClasses, StorySummaries, Task, faithful
