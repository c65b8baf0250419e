"""Training: data, objectives, runs, presets and the one visible loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.training import data as data, objectives as objectives, presets as presets, runs as runs
    from redraft.training.data.corpora.benchmarks import Enwik8 as Enwik8, Sotu as Sotu, Text8 as Text8
    from redraft.training.data.corpora.e2e_nlg import e2e as e2e, said as said, slots as slots
    from redraft.training.data.corpora.grammar import (
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
    from redraft.training.data.corpora.grammar_rules import Case as Case, Draw as Draw, Rules as Rules, entry as entry
    from redraft.training.data.corpora.language import Language as Language, Story as Story, split_seed as split_seed
    from redraft.training.data.corpora.points import Blobs as Blobs
    from redraft.training.data.corpora.programs import (
        PROGRAM_WORDS as PROGRAM_WORDS,
        Programs as Programs,
        bracketed as bracketed,
    )
    from redraft.training.data.corpora.stories import SMALL as SMALL, STORIES as STORIES, StoriesData as StoriesData
    from redraft.training.data.corpora.story_tags import STORY_TAGS as STORY_TAGS, TAGS as TAGS, tags_of as tags_of
    from redraft.training.data.corpora.story_tasks import (
        Content as Content,
        StoryAttributes as StoryAttributes,
        StoryClasses as StoryClasses,
        StorySummaries as StorySummaries,
        Task as Task,
        faithful as faithful,
    )
    from redraft.training.data.detokenize import (
        DETOKENISERS as DETOKENISERS,
        Detokenised as Detokenised,
        detokenise as detokenise,
        rules_of as rules_of,
    )
    from redraft.training.data.framing import (
        Documents as Documents,
        Framing as Framing,
        Packed as Packed,
        Row as Row,
        Rows as Rows,
        require_some_rows as require_some_rows,
        side_by_side as side_by_side,
    )
    from redraft.training.data.loader import (
        Loader as Loader,
        evaluation as evaluation,
        permutation as permutation,
        prefetch as prefetch,
        tokenise as tokenise,
    )
    from redraft.training.data.pair_framing import (
        Answers as Answers,
        Labelled as Labelled,
        Pairs as Pairs,
        Sourced as Sourced,
        Spans as Spans,
    )
    from redraft.training.data.pairs import (
        Classified as Classified,
        CsvPairs as CsvPairs,
        EndlessPairs as EndlessPairs,
        JsonlClasses as JsonlClasses,
        JsonlPairs as JsonlPairs,
        Pair as Pair,
        PairCorpus as PairCorpus,
    )
    from redraft.training.data.sources import (
        SPLITS as SPLITS,
        Corpus as Corpus,
        DataError as DataError,
        Endless as Endless,
        FileRecord as FileRecord,
        Files as Files,
        HubDataset as HubDataset,
        Jsonl as Jsonl,
        KnownSource as KnownSource,
        Parquet as Parquet,
        Split as Split,
        Tally as Tally,
        TextFiles as TextFiles,
        field_record as field_record,
        json_lines as json_lines,
        json_record as json_record,
    )
    from redraft.training.distributed import (
        Workers as Workers,
        asked_to_stop as asked_to_stop,
        local as local,
        same_bits as same_bits,
        shard_like as shard_like,
        whole as whole,
        workers as workers,
    )
    from redraft.training.heldout import (
        BIT as BIT,
        HeldOut as HeldOut,
        Likelihood as Likelihood,
        Truth as Truth,
        decoded as decoded,
        ending as ending,
        excess as excess,
        likelihood as likelihood,
        reconstruction as reconstruction,
        token_bound as token_bound,
    )
    from redraft.training.log import Log as Log
    from redraft.training.loop import clip as clip, fit as fit, update as update
    from redraft.training.objectives.adaptation import Adapt as Adapt, causal_nats as causal_nats
    from redraft.training.objectives.conditioning import (
        drop_condition as drop_condition,
        self_condition as self_condition,
        torn as torn,
    )
    from redraft.training.objectives.distillation import Distil as Distil
    from redraft.training.objectives.fitted_times import (
        clipped as clipped,
        importance as importance,
        intervals as intervals,
        relative_variance as relative_variance,
    )
    from redraft.training.objectives.losses import (
        P2 as P2,
        Bound as Bound,
        BySnr as BySnr,
        Clip as Clip,
        Dynamic as Dynamic,
        Match as Match,
        MinSnr as MinSnr,
        Recover as Recover,
        Simple as Simple,
        Snr as Snr,
        Sum as Sum,
        Term as Term,
        Weight as Weight,
    )
    from redraft.training.objectives.objective import (
        Attribution as Attribution,
        Autoencode as Autoencode,
        Goal as Goal,
        Mistakes as Mistakes,
        Objective as Objective,
        Step as Step,
    )
    from redraft.training.objectives.tagging import Foreseeing as Foreseeing, Tagging as Tagging
    from redraft.training.objectives.time_samplers import (
        Clock as Clock,
        Importance as Importance,
        Stratified as Stratified,
    )
    from redraft.training.optimizers import (
        Muon as Muon,
        adjust as adjust,
        optimisers as optimisers,
        orthogonal as orthogonal,
        rate as rate,
    )
    from redraft.training.presets.chat import llada_chat_tiny as llada_chat_tiny, story_chat as story_chat
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
    from redraft.training.progress import ProgressBar as ProgressBar, waiting as waiting
    from redraft.training.runs.adaptation import adaptation as adaptation, merged as merged
    from redraft.training.runs.distillation import drafting as drafting
    from redraft.training.runs.loading import (
        Bundle as Bundle,
        Loaded as Loaded,
        assemble as assemble,
        begin_with as begin_with,
        bundled as bundled,
        describe as describe,
        export as export,
        load as load,
        load_with_run as load_with_run,
        newest as newest,
    )
    from redraft.training.runs.memory import least_memory as least_memory, parameters as parameters
    from redraft.training.runs.metrics import newest_values as newest_values
    from redraft.training.runs.run import Optimiser as Optimiser, Run as Run
    from redraft.training.samples import sample_texts as sample_texts, to_write as to_write
    from redraft.training.state import State as State, TrainingError as TrainingError

__getattr__, __dir__, __all__ = attach(__name__, __file__)
