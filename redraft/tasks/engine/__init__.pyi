from .given_text import Verbatim as Verbatim
from .logprobs import LikelyTokens as LikelyTokens
from .model import Model as Model, Opened as Opened, as_opened as as_opened, opened as opened
from .plan import Plan as Plan, Writing as Writing, generate as generate, generation as generation
from .profiler import Profile as Profile, profiled as profiled
from .result import Draft as Draft, Record as Record, Written as Written
from .sampler_choice import (
    MOST_STEPS as MOST_STEPS,
    batch_size as batch_size,
    choose_sampler as choose_sampler,
    layers as layers,
    unending as unending,
    with_steps as with_steps,
)
from .stop_strings import StopTexts as StopTexts, with_stops as with_stops
from .streaming import View as View
from .trace import Calls as Calls, calls as calls, generated as generated
