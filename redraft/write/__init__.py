"""Writing in one call: a function per use, which takes plain values and returns a record.

The settings need no torch; all else is imported when it is first used, so that a wrong flag costs no waiting.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from redraft.write.aliases import ALIASES, settings_from
from redraft.write.settings import (
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
from redraft.write.templates import Hole, Template, require_holes

if TYPE_CHECKING:
    from redraft.write.alternatives import LikelyTokens
    from redraft.write.choices import Choices, Chosen, choose
    from redraft.write.correction import Change, Corrected, Corrections, correct, known_words
    from redraft.write.filling import fill, to_write
    from redraft.write.holes import infill, infilling
    from redraft.write.judging import CausalJudge
    from redraft.write.models import Model, Opened, as_opened, opened
    from redraft.write.profile import Profile, profiled
    from redraft.write.record import Draft, Record, Written
    from redraft.write.rewrites import chosen, rewrite, rewriting
    from redraft.write.sampling import MOST_STEPS, batch_size, choose_sampler, layers, unending, with_steps
    from redraft.write.scores import Scored, ScoreRecord, score
    from redraft.write.steps import Calls, calls, generated
    from redraft.write.stopping import StopTexts, with_stops
    from redraft.write.streaming import View
    from redraft.write.typed import answering
    from redraft.write.verbatim import Verbatim
    from redraft.write.wishes import Wishes, control, controlling
    from redraft.write.writing import Plan, Writing, generate, generation

_HOMES = {
    "alternatives": "LikelyTokens",
    "choices": "Choices Chosen choose",
    "wishes": "Wishes control controlling",
    "correction": "Change Corrected Corrections correct known_words",
    "filling": "fill to_write",
    "holes": "infill infilling",
    "judging": "CausalJudge",
    "models": "Model Opened as_opened opened",
    "profile": "Profile profiled",
    "record": "Draft Record Written",
    "rewrites": "chosen rewrite rewriting",
    "sampling": "MOST_STEPS batch_size choose_sampler layers unending with_steps",
    "scores": "Scored ScoreRecord score",
    "steps": "Calls calls generated",
    "stopping": "StopTexts with_stops",
    "streaming": "View",
    "typed": "answering",
    "verbatim": "Verbatim",
    "writing": "Plan Writing generate generation",
}
_HOME = {name: f"redraft.write.{file}" for file, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'redraft.write' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
