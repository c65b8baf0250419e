"""Tasks: generate, infill, choose, correct, rewrite, control and score in one call each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.tasks.arguments.aliases import ALIASES as ALIASES, settings_from as settings_from
    from redraft.tasks.arguments.rules import ArgumentError as ArgumentError
    from redraft.tasks.arguments.settings import (
        MOST_ROWS as MOST_ROWS,
        MOST_SEED as MOST_SEED,
        ControlSettings as ControlSettings,
        CorrectSettings as CorrectSettings,
        DecodingSettings as DecodingSettings,
        GenerationSettings as GenerationSettings,
        InfillSettings as InfillSettings,
        RewriteSettings as RewriteSettings,
        ScoreSettings as ScoreSettings,
        optional_argument as optional_argument,
        range_error as range_error,
        require_texts as require_texts,
        seed_error as seed_error,
        shorten_number as shorten_number,
    )
    from redraft.tasks.arguments.templates import Hole as Hole, Template as Template, require_holes as require_holes
    from redraft.tasks.canvases import sample_canvases as sample_canvases
    from redraft.tasks.chat import plan_chat_reply as plan_chat_reply
    from redraft.tasks.choice.choice import (
        ChoiceResult as ChoiceResult,
        ChoiceResults as ChoiceResults,
        choose as choose,
    )
    from redraft.tasks.controlled.controlled import (
        ControlRequest as ControlRequest,
        control as control,
        plan_control as plan_control,
    )
    from redraft.tasks.correction.correction import (
        CorrectionResult as CorrectionResult,
        CorrectionResults as CorrectionResults,
        WordChange as WordChange,
        correct as correct,
        known_lexicon as known_lexicon,
    )
    from redraft.tasks.correction.edit_channel import EDITS as EDITS, EditChannel as EditChannel
    from redraft.tasks.correction.human_errors import human_errors as human_errors, split_half as split_half
    from redraft.tasks.correction.lexicon import (
        LETTERS as LETTERS,
        LONGEST_WORD as LONGEST_WORD,
        WORD as WORD,
        Lexicon as Lexicon,
        encode_word as encode_word,
    )
    from redraft.tasks.correction.misspellings import (
        ERROR_KINDS as ERROR_KINDS,
        CorruptedText as CorruptedText,
        ErrorGenerator as ErrorGenerator,
        ErrorKind as ErrorKind,
    )
    from redraft.tasks.engine.given_text import GivenText as GivenText
    from redraft.tasks.engine.logprobs import LogprobRecorder as LogprobRecorder
    from redraft.tasks.engine.loop import DecodingLoop as DecodingLoop
    from redraft.tasks.engine.model import (
        ModelOrPath as ModelOrPath,
        TextModel as TextModel,
        as_text_model as as_text_model,
        open_model as open_model,
    )
    from redraft.tasks.engine.plan import DecodingPlan as DecodingPlan
    from redraft.tasks.engine.profiler import Profile as Profile, profile_model as profile_model
    from redraft.tasks.engine.result import (
        PartialText as PartialText,
        TextResult as TextResult,
        TextResults as TextResults,
    )
    from redraft.tasks.engine.sampler_choice import (
        MOST_STEPS as MOST_STEPS,
        batch_size as batch_size,
        choose_sampler as choose_sampler,
        forbid_end_token as forbid_end_token,
        with_steps as with_steps,
    )
    from redraft.tasks.engine.stop_strings import StopStrings as StopStrings, with_stop_strings as with_stop_strings
    from redraft.tasks.engine.streaming import StreamView as StreamView
    from redraft.tasks.engine.trace import (
        NetworkCalls as NetworkCalls,
        count_calls as count_calls,
        generated_mask as generated_mask,
    )
    from redraft.tasks.generation import generate as generate, plan_generation as plan_generation
    from redraft.tasks.infilling.causal_judge import CausalJudge as CausalJudge
    from redraft.tasks.infilling.infilling import infill as infill, plan_infilling as plan_infilling
    from redraft.tasks.infilling.propose_and_judge import (
        NextTokenScorer as NextTokenScorer,
        ProposeAndJudge as ProposeAndJudge,
        RowJudge as RowJudge,
    )
    from redraft.tasks.rewriting import keep_best as keep_best, plan_rewrite as plan_rewrite, rewrite as rewrite
    from redraft.tasks.scoring import ScoreResult as ScoreResult, ScoreResults as ScoreResults, score as score

__getattr__, __dir__, __all__ = attach(__name__, __file__)
