"""Tasks: generate, infill, choose, correct, rewrite, control and score in one call each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.tasks.arguments.aliases import ALIASES, settings_from
    from redraft.tasks.arguments.settings import (
        MOST_ROWS,
        MOST_SEED,
        ArgumentError,
        Controlling,
        Correcting,
        Decoding,
        Generation,
        Infilling,
        Rewriting,
        Scoring,
        optional,
        out_of_range,
        require_texts,
        short,
        wrong_seed,
    )
    from redraft.tasks.arguments.templates import Hole, Template, require_holes
    from redraft.tasks.canvases import fill, to_write
    from redraft.tasks.chat import answering
    from redraft.tasks.choice.choice import Choices, Chosen, choose
    from redraft.tasks.controlled.controlled import Wishes, control, controlling
    from redraft.tasks.correction.correction import Change, Corrected, Corrections, correct, known_words
    from redraft.tasks.correction.edit_channel import EDITS, EditChannel
    from redraft.tasks.correction.human_errors import half_of, human_errors
    from redraft.tasks.correction.lexicon import LETTERS, LONGEST_WORD, WORD, Lexicon, encoded
    from redraft.tasks.correction.misspellings import ERROR_KINDS, Corrupted, ErrorKind, SpellingErrors
    from redraft.tasks.engine.given_text import Verbatim
    from redraft.tasks.engine.logprobs import LikelyTokens
    from redraft.tasks.engine.model import Model, Opened, as_opened, opened
    from redraft.tasks.engine.plan import Plan, Writing, generate, generation
    from redraft.tasks.engine.profiler import Profile, profiled
    from redraft.tasks.engine.result import Draft, Record, Written
    from redraft.tasks.engine.sampler_choice import MOST_STEPS, batch_size, choose_sampler, layers, unending, with_steps
    from redraft.tasks.engine.stop_strings import StopTexts, with_stops
    from redraft.tasks.engine.streaming import View
    from redraft.tasks.engine.trace import Calls, calls, generated
    from redraft.tasks.infilling.causal_judge import CausalJudge
    from redraft.tasks.infilling.infilling import infill, infilling
    from redraft.tasks.infilling.propose_and_judge import NextToken, ProposeAndJudge, RowJudge
    from redraft.tasks.rewriting import chosen, rewrite, rewriting
    from redraft.tasks.scoring import Scored, ScoreRecord, score

__getattr__, __dir__, __all__ = attach(__name__)
