"""Training: data, objectives, runs, presets and the one visible loop."""

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
    from redraft.training.distributed import Workers, asked_to_stop, local, same_bits, shard_like, whole, workers
    from redraft.training.heldout import (
        BIT,
        HeldOut,
        Likelihood,
        Truth,
        decoded,
        ending,
        excess,
        likelihood,
        reconstruction,
        token_bound,
    )
    from redraft.training.log import Log
    from redraft.training.loop import clip, fit, update
    from redraft.training.objectives.adaptation import Adapt, causal_nats
    from redraft.training.objectives.conditioning import drop_condition, self_condition, torn
    from redraft.training.objectives.distillation import Distil
    from redraft.training.objectives.fitted_times import clipped, importance, intervals, relative_variance
    from redraft.training.objectives.losses import (
        P2,
        Bound,
        BySnr,
        Clip,
        Dynamic,
        Match,
        MinSnr,
        Recover,
        Simple,
        Snr,
        Sum,
        Term,
        Weight,
    )
    from redraft.training.objectives.objective import Attribution, Autoencode, Goal, Mistakes, Objective, Step
    from redraft.training.objectives.tagging import Foreseeing, Tagging
    from redraft.training.objectives.time_samplers import Clock, Importance, Stratified
    from redraft.training.optimizers import Muon, adjust, optimisers, orthogonal, rate
    from redraft.training.presets.chat import llada_chat_tiny, story_chat
    from redraft.training.presets.index import PRESETS, PUBLISHED, PURPOSES, TINY
    from redraft.training.presets.latents import (
        cosmos_codec_roc,
        cosmos_codec_tiny,
        cosmos_roc,
        cosmos_tiny,
        ld4tg_class_tiny,
        ld4tg_codec_roc,
        ld4tg_codec_tiny,
        ld4tg_roc,
        ld4tg_tiny,
        planner_codec_reviews,
        planner_codec_tiny,
        planner_reviews,
        planner_tiny,
        tencdm_codec_roc,
        tencdm_codec_tiny,
        tencdm_roc,
        tencdm_tiny,
    )
    from redraft.training.presets.small import (
        diffuseq_e2e,
        genie_e2e,
        ld4tg_codec_e2e,
        ld4tg_e2e,
        tencdm_codec_prose,
        tencdm_prose,
    )
    from redraft.training.presets.tiny import (
        STORY_LENGTH,
        ar_code_tiny,
        ar_tagger_tiny,
        ar_tiny,
        bd3_tiny,
        d3pm_tiny,
        flex_tiny,
        gidd_tiny,
        gstar_tiny,
        mdlm_attribute_tiny,
        mdlm_code_tiny,
        mdlm_tagger_tiny,
        mdlm_tiny,
        mdlm_tiny_chars,
        mlm_tiny,
        multinomial_tiny,
        sedd_tiny,
        sedd_uniform_tiny,
        udlm_tiny,
    )
    from redraft.training.presets.tokens import (
        ar_owt,
        bd3_owt,
        d3pm_lm1b,
        d3pm_text8,
        flex_owt,
        gidd_owt,
        llada_8b,
        mdlm_lm1b,
        mdlm_owt,
        mdlm_text8,
        multinomial_enwik8,
        multinomial_text8,
        sedd_owt,
        sedd_text8,
        sedd_uniform_text8,
        udlm_lm1b,
        udlm_text8,
    )
    from redraft.training.presets.vectors import (
        diffuseq_qqp,
        diffuseq_summary_tiny,
        diffuseq_tiny,
        diffusion_lm_e2e,
        diffusion_lm_roc,
        diffusion_lm_tagger_tiny,
        diffusion_lm_tiny,
        genie_cpd_books,
        genie_cpd_tiny,
        genie_summary_tiny,
        genie_tiny,
        genie_xsum,
        points_class_tiny,
        points_tiny,
        ssd_owt,
        ssd_tiny,
    )
    from redraft.training.progress import ProgressBar, waiting
    from redraft.training.runs.adaptation import adaptation, merged
    from redraft.training.runs.distillation import drafting
    from redraft.training.runs.metrics import newest_values
    from redraft.training.runs.run import (
        Bundle,
        Loaded,
        Optimiser,
        Run,
        assemble,
        begin_with,
        bundled,
        describe,
        export,
        in_int8,
        in_weights,
        least_memory,
        load,
        load_with_run,
        newest,
        parameters,
        weights_form,
    )
    from redraft.training.state import State, TrainingError

__getattr__, __dir__, __all__ = attach(__name__)
