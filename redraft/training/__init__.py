"""Training: data, objectives, runs, presets and the one visible loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.training import data as data, objectives as objectives, presets as presets, runs as runs
    from redraft.training.data.annotations import (
        AnnotatedCorpus as AnnotatedCorpus,
        Judgment as Judgment,
        SourceCoverage as SourceCoverage,
        as_annotated as as_annotated,
        mean_coverage as mean_coverage,
    )
    from redraft.training.data.corpora.benchmarks import Enwik8 as Enwik8, Sotu as Sotu, Text8 as Text8
    from redraft.training.data.corpora.e2e_nlg import (
        e2e_corpus as e2e_corpus,
        slot_coverage as slot_coverage,
    )
    from redraft.training.data.corpora.grammar_rules import (
        CaseRule as CaseRule,
        DrawRule as DrawRule,
        RuleBook as RuleBook,
        entry as entry,
    )
    from redraft.training.data.corpora.language import Language as Language, Story as Story, split_seed as split_seed
    from redraft.training.data.corpora.points import GaussianMixtureCorpus as GaussianMixtureCorpus
    from redraft.training.data.corpora.programs import (
        Programs as Programs,
        brackets_match as brackets_match,
    )
    from redraft.training.data.corpora.stories import SMALL_LANGUAGE as SMALL_LANGUAGE, STORY_LANGUAGE as STORY_LANGUAGE
    from redraft.training.data.corpora.story_tags import (
        STORY_TAGS as STORY_TAGS,
        tag_words as tag_words,
    )
    from redraft.training.data.corpora.story_tasks import (
        StoryAttributes as StoryAttributes,
        StoryClasses as StoryClasses,
        StoryCorpus as StoryCorpus,
        StorySummaries as StorySummaries,
    )
    from redraft.training.data.detokenize import (
        DetokenizedCorpus as DetokenizedCorpus,
        detokenize_text as detokenize_text,
        detokenizer_for as detokenizer_for,
    )
    from redraft.training.data.framing import (
        DocumentRows as DocumentRows,
        FramedRows as FramedRows,
        Framing as Framing,
        PackedRows as PackedRows,
    )
    from redraft.training.data.loader import (
        Loader as Loader,
        first_batches as first_batches,
        load_rows as load_rows,
        prefetch as prefetch,
    )
    from redraft.training.data.local import open_corpus as open_corpus
    from redraft.training.data.pair_framing import (
        ChatRows as ChatRows,
        EncoderRows as EncoderRows,
        LabeledRows as LabeledRows,
        PairRows as PairRows,
        SpanRows as SpanRows,
    )
    from redraft.training.data.pairs import (
        CsvPairs as CsvPairs,
        HasClasses as HasClasses,
        InfinitePairs as InfinitePairs,
        JsonlClasses as JsonlClasses,
        JsonlPairs as JsonlPairs,
        Pair as Pair,
        PairCorpus as PairCorpus,
    )
    from redraft.training.data.registry import (
        CORPUS_NAMES as CORPUS_NAMES,
        named_corpus as named_corpus,
    )
    from redraft.training.data.sources import (
        SPLITS as SPLITS,
        Corpus as Corpus,
        DataError as DataError,
        DataStats as DataStats,
        FileRecord as FileRecord,
        Files as Files,
        HubDataset as HubDataset,
        InfiniteCorpus as InfiniteCorpus,
        Jsonl as Jsonl,
        KnownDistribution as KnownDistribution,
        Parquet as Parquet,
        Split as Split,
        TextFiles as TextFiles,
    )
    from redraft.training.data.vocabulary import make_tokenizer as make_tokenizer
    from redraft.training.heldout import (
        NATS_PER_BIT as NATS_PER_BIT,
        HeldOut as HeldOut,
        Likelihood as Likelihood,
        best_token_bound as best_token_bound,
        excess_bits as excess_bits,
        likelihood as likelihood,
        reconstruction_accuracy as reconstruction_accuracy,
        target_texts as target_texts,
        with_final_logsnr as with_final_logsnr,
    )
    from redraft.training.loop import (
        fit as fit,
    )
    from redraft.training.objectives.adaptation import (
        AdaptationObjective as AdaptationObjective,
    )
    from redraft.training.objectives.distillation import DrafterObjective as DrafterObjective
    from redraft.training.objectives.fitted_times import (
        fit_clipped_times as fit_clipped_times,
        fit_importance_times as fit_importance_times,
    )
    from redraft.training.objectives.losses import (
        Bound as Bound,
        BoundWeight as BoundWeight,
        ClippedWeight as ClippedWeight,
        ConstantWeight as ConstantWeight,
        DynamicWeight as DynamicWeight,
        LossTerm as LossTerm,
        MinSnrWeight as MinSnrWeight,
        OffsetSnrWeight as OffsetSnrWeight,
        P2Weight as P2Weight,
        SnrWeight as SnrWeight,
        SquaredError as SquaredError,
        SumOfTerms as SumOfTerms,
        TokenCrossEntropy as TokenCrossEntropy,
    )
    from redraft.training.objectives.objective import (
        Objective as Objective,
        TrainingGoal as TrainingGoal,
        TrainStep as TrainStep,
    )
    from redraft.training.objectives.parts import (
        AttributeObjective as AttributeObjective,
        CodecObjective as CodecObjective,
        ErrorHeadObjective as ErrorHeadObjective,
    )
    from redraft.training.objectives.tagging import (
        FutureTaggerObjective as FutureTaggerObjective,
        TaggerObjective as TaggerObjective,
    )
    from redraft.training.objectives.time_samplers import (
        ImportanceTimes as ImportanceTimes,
        StratifiedTimes as StratifiedTimes,
        TimeSampler as TimeSampler,
    )
    from redraft.training.optimizers import (
        Muon as Muon,
        build_optimizers as build_optimizers,
    )
    from redraft.training.runs.adaptation import adaptation_run as adaptation_run, merge_adapter as merge_adapter
    from redraft.training.runs.distillation import drafter_run as drafter_run
    from redraft.training.runs.loading import (
        BundledModel as BundledModel,
        LoadedModel as LoadedModel,
        describe_run as describe_run,
        export as export,
        load as load,
        load_with_run as load_with_run,
    )
    from redraft.training.runs.memory import minimum_memory as minimum_memory, parameter_count as parameter_count
    from redraft.training.runs.run import OptimizerConfig as OptimizerConfig, Run as Run
    from redraft.training.samples import (
        blank_canvases as blank_canvases,
    )
    from redraft.training.state import (
        TrainingError as TrainingError,
    )

__getattr__, __dir__, __all__ = attach(__name__, __file__)
