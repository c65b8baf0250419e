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
        Controlling as Controlling,
        Correcting as Correcting,
        Decoding as Decoding,
        Generation as Generation,
        Infilling as Infilling,
        Rewriting as Rewriting,
        Scoring as Scoring,
        optional as optional,
        out_of_range as out_of_range,
        require_texts as require_texts,
        short as short,
        wrong_seed as wrong_seed,
    )
    from redraft.tasks.arguments.templates import Hole as Hole, Template as Template, require_holes as require_holes
    from redraft.tasks.canvases import fill as fill
    from redraft.tasks.chat import answering as answering
    from redraft.tasks.choice.choice import Choices as Choices, Chosen as Chosen, choose as choose
    from redraft.tasks.controlled.controlled import Wishes as Wishes, control as control, controlling as controlling
    from redraft.tasks.correction.correction import (
        Change as Change,
        Corrected as Corrected,
        Corrections as Corrections,
        correct as correct,
        known_words as known_words,
    )
    from redraft.tasks.correction.edit_channel import EDITS as EDITS, EditChannel as EditChannel
    from redraft.tasks.correction.human_errors import half_of as half_of, human_errors as human_errors
    from redraft.tasks.correction.lexicon import (
        LETTERS as LETTERS,
        LONGEST_WORD as LONGEST_WORD,
        WORD as WORD,
        Lexicon as Lexicon,
        encoded as encoded,
    )
    from redraft.tasks.correction.misspellings import (
        ERROR_KINDS as ERROR_KINDS,
        Corrupted as Corrupted,
        ErrorKind as ErrorKind,
        SpellingErrors as SpellingErrors,
    )
    from redraft.tasks.engine.given_text import Verbatim as Verbatim
    from redraft.tasks.engine.logprobs import LikelyTokens as LikelyTokens
    from redraft.tasks.engine.loop import Writing as Writing
    from redraft.tasks.engine.model import Model as Model, Opened as Opened, as_opened as as_opened, opened as opened
    from redraft.tasks.engine.plan import Plan as Plan
    from redraft.tasks.engine.profiler import Profile as Profile, profiled as profiled
    from redraft.tasks.engine.result import Draft as Draft, Record as Record, Written as Written
    from redraft.tasks.engine.sampler_choice import (
        MOST_STEPS as MOST_STEPS,
        batch_size as batch_size,
        choose_sampler as choose_sampler,
        layers as layers,
        unending as unending,
        with_steps as with_steps,
    )
    from redraft.tasks.engine.stop_strings import StopTexts as StopTexts, with_stops as with_stops
    from redraft.tasks.engine.streaming import View as View
    from redraft.tasks.engine.trace import Calls as Calls, calls as calls, generated as generated
    from redraft.tasks.generation import generate as generate, generation as generation
    from redraft.tasks.infilling.causal_judge import CausalJudge as CausalJudge
    from redraft.tasks.infilling.infilling import infill as infill, infilling as infilling
    from redraft.tasks.infilling.propose_and_judge import (
        NextToken as NextToken,
        ProposeAndJudge as ProposeAndJudge,
        RowJudge as RowJudge,
    )
    from redraft.tasks.rewriting import chosen as chosen, rewrite as rewrite, rewriting as rewriting
    from redraft.tasks.scoring import Scored as Scored, ScoreRecord as ScoreRecord, score as score

__getattr__, __dir__, __all__ = attach(__name__, __file__)
