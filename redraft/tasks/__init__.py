"""Tasks: generate, infill, choose, correct, rewrite, control and score in one call each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.tasks.arguments.setting import ArgumentError as ArgumentError
    from redraft.tasks.arguments.settings import (
        ControlSettings as ControlSettings,
        CorrectSettings as CorrectSettings,
        DecodingSettings as DecodingSettings,
        GenerationSettings as GenerationSettings,
        InfillSettings as InfillSettings,
        RewriteSettings as RewriteSettings,
        ScoreSettings as ScoreSettings,
    )
    from redraft.tasks.arguments.templates import Hole as Hole, Template as Template
    from redraft.tasks.canvases import sample_canvases as sample_canvases
    from redraft.tasks.choice.choice import (
        ChoiceResult as ChoiceResult,
        ChoiceResults as ChoiceResults,
        choose as choose,
    )
    from redraft.tasks.controlled.controlled import ControlRequest as ControlRequest, control as control
    from redraft.tasks.correction.correction import (
        CorrectionResult as CorrectionResult,
        CorrectionResults as CorrectionResults,
        WordChange as WordChange,
        correct as correct,
    )
    from redraft.tasks.correction.edit_channel import EditChannel as EditChannel
    from redraft.tasks.correction.human_errors import human_errors as human_errors
    from redraft.tasks.correction.lexicon import Lexicon as Lexicon
    from redraft.tasks.correction.misspellings import (
        ERROR_KINDS as ERROR_KINDS,
        CorruptedText as CorruptedText,
        ErrorGenerator as ErrorGenerator,
        ErrorKind as ErrorKind,
    )
    from redraft.tasks.embedding import embed as embed
    from redraft.tasks.engine.loop import DecodingLoop as DecodingLoop
    from redraft.tasks.engine.model import TextModel as TextModel, open_model as open_model
    from redraft.tasks.engine.profiler import Profile as Profile, profile_model as profile_model
    from redraft.tasks.engine.result import (
        PartialText as PartialText,
        TextResult as TextResult,
        TextResults as TextResults,
    )
    from redraft.tasks.engine.trace import count_calls as count_calls
    from redraft.tasks.generation import generate as generate
    from redraft.tasks.infilling.infilling import infill as infill
    from redraft.tasks.infilling.propose_and_judge import ProposeAndJudge as ProposeAndJudge
    from redraft.tasks.language_model import LanguageModel as LanguageModel, load as load
    from redraft.tasks.prompt_scores import PromptScores as PromptScores, score_prompt as score_prompt
    from redraft.tasks.rewriting import rewrite as rewrite
    from redraft.tasks.scoring import ScoreResult as ScoreResult, ScoreResults as ScoreResults, score as score

__getattr__, __dir__, __all__ = attach(__name__, __file__)
