from .adaptation import Adapt as Adapt, causal_nats as causal_nats
from .conditioning import drop_condition as drop_condition, self_condition as self_condition, torn as torn
from .distillation import Distil as Distil
from .fitted_times import (
    clipped as clipped,
    importance as importance,
    intervals as intervals,
    relative_variance as relative_variance,
)
from .losses import (
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
from .objective import (
    Attribution as Attribution,
    Autoencode as Autoencode,
    Goal as Goal,
    Mistakes as Mistakes,
    Objective as Objective,
    Step as Step,
)
from .tagging import Foreseeing as Foreseeing, Tagging as Tagging
from .time_samplers import Clock as Clock, Importance as Importance, Stratified as Stratified
