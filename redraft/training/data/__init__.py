"""Data: texts from files and hubs, rows made from them, batches in a fixed order."""

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
    from redraft.training.data.detokenize import DETOKENISERS, Detokenised, detokenise, rules_of
    from redraft.training.data.framing import Documents, Framing, Packed, Row, Rows, require_some_rows, side_by_side
    from redraft.training.data.loader import Loader, evaluation, permutation, prefetch, tokenise
    from redraft.training.data.pairs import (
        Answers,
        Classified,
        CsvPairs,
        EndlessPairs,
        JsonlClasses,
        JsonlPairs,
        Labelled,
        Pair,
        PairCorpus,
        Pairs,
        Sourced,
        Spans,
    )
    from redraft.training.data.sources import (
        SPLITS,
        Corpus,
        DataError,
        Endless,
        Enwik8,
        FileRecord,
        Files,
        HubDataset,
        Jsonl,
        KnownSource,
        Parquet,
        Sotu,
        Split,
        Tally,
        Text8,
        TextFiles,
        field_record,
        json_lines,
        json_record,
    )

__getattr__, __dir__, __all__ = attach(__name__)
