from .corpora.e2e_nlg import e2e as e2e, said as said, slots as slots
from .corpora.grammar import (
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
from .corpora.grammar_rules import Case as Case, Draw as Draw, Rules as Rules, entry as entry
from .corpora.language import Language as Language, Story as Story, split_seed as split_seed
from .corpora.points import Blobs as Blobs
from .corpora.programs import PROGRAM_WORDS as PROGRAM_WORDS, Programs as Programs, bracketed as bracketed
from .corpora.stories import SMALL as SMALL, STORIES as STORIES, StoriesData as StoriesData
from .corpora.story_tags import STORY_TAGS as STORY_TAGS, TAGS as TAGS, tags_of as tags_of
from .corpora.story_tasks import (
    Content as Content,
    StoryAttributes as StoryAttributes,
    StoryClasses as StoryClasses,
    StorySummaries as StorySummaries,
    Task as Task,
    faithful as faithful,
)
from .detokenize import (
    DETOKENISERS as DETOKENISERS,
    Detokenised as Detokenised,
    detokenise as detokenise,
    rules_of as rules_of,
)
from .framing import (
    Documents as Documents,
    Framing as Framing,
    Packed as Packed,
    Row as Row,
    Rows as Rows,
    require_some_rows as require_some_rows,
    side_by_side as side_by_side,
)
from .loader import (
    Loader as Loader,
    evaluation as evaluation,
    permutation as permutation,
    prefetch as prefetch,
    tokenise as tokenise,
)
from .pairs import (
    Answers as Answers,
    Classified as Classified,
    CsvPairs as CsvPairs,
    EndlessPairs as EndlessPairs,
    JsonlClasses as JsonlClasses,
    JsonlPairs as JsonlPairs,
    Labelled as Labelled,
    Pair as Pair,
    PairCorpus as PairCorpus,
    Pairs as Pairs,
    Sourced as Sourced,
    Spans as Spans,
)
from .sources import (
    SPLITS as SPLITS,
    Corpus as Corpus,
    DataError as DataError,
    Endless as Endless,
    Enwik8 as Enwik8,
    FileRecord as FileRecord,
    Files as Files,
    HubDataset as HubDataset,
    Jsonl as Jsonl,
    KnownSource as KnownSource,
    Parquet as Parquet,
    Sotu as Sotu,
    Split as Split,
    Tally as Tally,
    Text8 as Text8,
    TextFiles as TextFiles,
    field_record as field_record,
    json_lines as json_lines,
    json_record as json_record,
)
