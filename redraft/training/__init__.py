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
        parse_slots as parse_slots,
        slot_coverage as slot_coverage,
    )
    from redraft.training.data.corpora.grammar import (
        AllDerivations as AllDerivations,
        Alternatives as Alternatives,
        Assign as Assign,
        CaseOf as CaseOf,
        DerivationSum as DerivationSum,
        Emit as Emit,
        Entry as Entry,
        Node as Node,
        Option as Option,
        ParseTraversal as ParseTraversal,
        PartialStory as PartialStory,
        Phrase as Phrase,
        Sequential as Sequential,
        StoryDraft as StoryDraft,
        Terminal as Terminal,
        Traversal as Traversal,
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
        PROGRAM_WORDS as PROGRAM_WORDS,
        Programs as Programs,
        brackets_match as brackets_match,
    )
    from redraft.training.data.corpora.stories import SMALL_LANGUAGE as SMALL_LANGUAGE, STORY_LANGUAGE as STORY_LANGUAGE
    from redraft.training.data.corpora.story_tags import STORY_TAGS as STORY_TAGS, TAGS as TAGS, tag_words as tag_words
    from redraft.training.data.corpora.story_tasks import (
        StoryAttributes as StoryAttributes,
        StoryClasses as StoryClasses,
        StoryCorpus as StoryCorpus,
        StorySummaries as StorySummaries,
    )
    from redraft.training.data.detokenize import (
        DETOKENIZERS as DETOKENIZERS,
        DetokenizedCorpus as DetokenizedCorpus,
        detokenize_text as detokenize_text,
        detokenizer_for as detokenizer_for,
    )
    from redraft.training.data.framing import (
        DocumentRows as DocumentRows,
        FramedRows as FramedRows,
        Framing as Framing,
        PackedRows as PackedRows,
        Row as Row,
        pad_rows as pad_rows,
        require_some_rows as require_some_rows,
    )
    from redraft.training.data.loader import (
        Loader as Loader,
        epoch_order as epoch_order,
        first_batches as first_batches,
        load_rows as load_rows,
        prefetch as prefetch,
    )
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
        corpus_of_class as corpus_of_class,
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
        parse_json_record as parse_json_record,
        read_json_lines as read_json_lines,
        record_from_fields as record_from_fields,
    )
    from redraft.training.distributed import (
        Workers as Workers,
        deterministic_kernels as deterministic_kernels,
        gather_rows as gather_rows,
        join_workers as join_workers,
        local_rows as local_rows,
        shard_like as shard_like,
        stop_signals as stop_signals,
    )
    from redraft.training.heldout import (
        NATS_PER_BIT as NATS_PER_BIT,
        HeldOut as HeldOut,
        Likelihood as Likelihood,
        TrueProbabilities as TrueProbabilities,
        best_token_bound as best_token_bound,
        excess_bits as excess_bits,
        likelihood as likelihood,
        reconstruction_accuracy as reconstruction_accuracy,
        target_texts as target_texts,
        with_final_logsnr as with_final_logsnr,
    )
    from redraft.training.log import Log as Log
    from redraft.training.loop import clip_gradients as clip_gradients, fit as fit, optimizer_step as optimizer_step
    from redraft.training.objectives.adaptation import (
        AdaptationObjective as AdaptationObjective,
        causal_nats as causal_nats,
    )
    from redraft.training.objectives.conditioning import (
        drop_condition as drop_condition,
        punch_holes as punch_holes,
        self_condition as self_condition,
    )
    from redraft.training.objectives.distillation import DrafterObjective as DrafterObjective
    from redraft.training.objectives.fitted_times import (
        candidate_intervals as candidate_intervals,
        fit_clipped_times as fit_clipped_times,
        fit_importance_times as fit_importance_times,
        relative_variance as relative_variance,
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
        AttributeObjective as AttributeObjective,
        CodecObjective as CodecObjective,
        ErrorHeadObjective as ErrorHeadObjective,
        Objective as Objective,
        TrainingGoal as TrainingGoal,
        TrainStep as TrainStep,
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
        learning_rate_fraction as learning_rate_fraction,
        orthogonalize as orthogonalize,
        set_learning_rates as set_learning_rates,
    )
    from redraft.training.presets.chat import (
        llada_chat_tiny as llada_chat_tiny,
        story_chat_tokenizer as story_chat_tokenizer,
    )
    from redraft.training.presets.index import (
        PRESETS as PRESETS,
        PUBLISHED as PUBLISHED,
        PURPOSES as PURPOSES,
        TINY as TINY,
    )
    from redraft.training.presets.latents import (
        cosmos_codec_roc as cosmos_codec_roc,
        cosmos_codec_tiny as cosmos_codec_tiny,
        cosmos_roc as cosmos_roc,
        cosmos_tiny as cosmos_tiny,
        ld4tg_class_tiny as ld4tg_class_tiny,
        ld4tg_codec_roc as ld4tg_codec_roc,
        ld4tg_codec_tiny as ld4tg_codec_tiny,
        ld4tg_roc as ld4tg_roc,
        ld4tg_tiny as ld4tg_tiny,
        planner_codec_reviews as planner_codec_reviews,
        planner_codec_tiny as planner_codec_tiny,
        planner_reviews as planner_reviews,
        planner_tiny as planner_tiny,
        tencdm_codec_roc as tencdm_codec_roc,
        tencdm_codec_tiny as tencdm_codec_tiny,
        tencdm_roc as tencdm_roc,
        tencdm_tiny as tencdm_tiny,
    )
    from redraft.training.presets.small import (
        diffuseq_e2e as diffuseq_e2e,
        genie_e2e as genie_e2e,
        ld4tg_codec_e2e as ld4tg_codec_e2e,
        ld4tg_e2e as ld4tg_e2e,
        tencdm_codec_prose as tencdm_codec_prose,
        tencdm_prose as tencdm_prose,
    )
    from redraft.training.presets.tiny import (
        STORY_LENGTH as STORY_LENGTH,
        ar_code_tiny as ar_code_tiny,
        ar_tagger_tiny as ar_tagger_tiny,
        ar_tiny as ar_tiny,
        bd3_tiny as bd3_tiny,
        d3pm_tiny as d3pm_tiny,
        flex_tiny as flex_tiny,
        gidd_tiny as gidd_tiny,
        gstar_tiny as gstar_tiny,
        mdlm_attribute_tiny as mdlm_attribute_tiny,
        mdlm_code_tiny as mdlm_code_tiny,
        mdlm_tagger_tiny as mdlm_tagger_tiny,
        mdlm_tiny as mdlm_tiny,
        mdlm_tiny_chars as mdlm_tiny_chars,
        mlm_tiny as mlm_tiny,
        multinomial_tiny as multinomial_tiny,
        sedd_tiny as sedd_tiny,
        sedd_uniform_tiny as sedd_uniform_tiny,
        udlm_tiny as udlm_tiny,
    )
    from redraft.training.presets.tokens import (
        ar_owt as ar_owt,
        bd3_owt as bd3_owt,
        d3pm_lm1b as d3pm_lm1b,
        d3pm_text8 as d3pm_text8,
        flex_owt as flex_owt,
        gidd_owt as gidd_owt,
        llada_8b as llada_8b,
        mdlm_lm1b as mdlm_lm1b,
        mdlm_owt as mdlm_owt,
        mdlm_text8 as mdlm_text8,
        multinomial_enwik8 as multinomial_enwik8,
        multinomial_text8 as multinomial_text8,
        sedd_owt as sedd_owt,
        sedd_text8 as sedd_text8,
        sedd_uniform_text8 as sedd_uniform_text8,
        udlm_lm1b as udlm_lm1b,
        udlm_text8 as udlm_text8,
    )
    from redraft.training.presets.vectors import (
        diffuseq_qqp as diffuseq_qqp,
        diffuseq_summary_tiny as diffuseq_summary_tiny,
        diffuseq_tiny as diffuseq_tiny,
        diffusion_lm_e2e as diffusion_lm_e2e,
        diffusion_lm_roc as diffusion_lm_roc,
        diffusion_lm_tagger_tiny as diffusion_lm_tagger_tiny,
        diffusion_lm_tiny as diffusion_lm_tiny,
        genie_cpd_books as genie_cpd_books,
        genie_cpd_tiny as genie_cpd_tiny,
        genie_summary_tiny as genie_summary_tiny,
        genie_tiny as genie_tiny,
        genie_xsum as genie_xsum,
        points_class_tiny as points_class_tiny,
        points_tiny as points_tiny,
        ssd_owt as ssd_owt,
        ssd_tiny as ssd_tiny,
    )
    from redraft.training.progress import ProgressBar as ProgressBar, show_waiting as show_waiting
    from redraft.training.runs.adaptation import adaptation_run as adaptation_run, merge_adapter as merge_adapter
    from redraft.training.runs.distillation import drafter_run as drafter_run
    from redraft.training.runs.loading import (
        BundledModel as BundledModel,
        LoadedModel as LoadedModel,
        build_model as build_model,
        bundle_model as bundle_model,
        describe_run as describe_run,
        export as export,
        init_from as init_from,
        load as load,
        load_newest as load_newest,
        load_with_run as load_with_run,
    )
    from redraft.training.runs.memory import minimum_memory as minimum_memory, parameter_count as parameter_count
    from redraft.training.runs.metrics import latest_values as latest_values
    from redraft.training.runs.run import OptimizerConfig as OptimizerConfig, Run as Run
    from redraft.training.samples import blank_canvases as blank_canvases, sample_texts as sample_texts
    from redraft.training.state import TrainingError as TrainingError, TrainState as TrainState

__getattr__, __dir__, __all__ = attach(__name__, __file__)
