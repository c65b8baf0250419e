"""The engine of all tasks: from a request to a plan, to rows being written, to a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
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

__getattr__, __dir__, __all__ = attach(__name__)
