from .e2e_nlg import e2e as e2e, said as said, slots as slots
from .grammar import (
    Account as Account,
    Alternatives as Alternatives,
    Entry as Entry,
    Every as Every,
    Follow as Follow,
    Given as Given,
    GrammarGuide as GrammarGuide,
    Let as Let,
    Node as Node,
    Option as Option,
    Phrase as Phrase,
    Say as Say,
    Seq as Seq,
    StoryDraft as StoryDraft,
    Telling as Telling,
    Text as Text,
)
from .grammar_rules import Case as Case, Draw as Draw, Rules as Rules, entry as entry
from .language import Language as Language, Story as Story, split_seed as split_seed
from .points import Blobs as Blobs
from .programs import PROGRAM_WORDS as PROGRAM_WORDS, Programs as Programs, bracketed as bracketed
from .stories import SMALL as SMALL, STORIES as STORIES, StoriesData as StoriesData
from .story_tags import STORY_TAGS as STORY_TAGS, TAGS as TAGS, tags_of as tags_of
from .story_tasks import (
    Content as Content,
    StoryAttributes as StoryAttributes,
    StoryClasses as StoryClasses,
    StorySummaries as StorySummaries,
    Task as Task,
    faithful as faithful,
)
