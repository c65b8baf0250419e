"""Data: texts from files and hubs, rows made from them, batches in a fixed order."""

from redraft.data.benchmarks import DETOKENISERS, Detokenised, detokenise, rules_of
from redraft.data.framings import Documents, Framing, Packed, Row, Rows, require_some_rows, side_by_side
from redraft.data.loader import Loader, evaluation, permutation, prefetch, tokenise
from redraft.data.pairs import (
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
from redraft.data.sources import (
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
