from .adaptive import (
    Adaptive as Adaptive,
    ConfidenceThreshold as ConfidenceThreshold,
    EntropyBound as EntropyBound,
    Factor as Factor,
    FrechetProfile as FrechetProfile,
    Klass as Klass,
    Revoke as Revoke,
)
from .order import (
    AnyOrder as AnyOrder,
    Confidence as Confidence,
    DemandedFirst as DemandedFirst,
    EndsLast as EndsLast,
    Entropy as Entropy,
    LeftToRight as LeftToRight,
    Margin as Margin,
    Ranked as Ranked,
)
from .pace import EvenPace as EvenPace, Pace as Pace, TimePace as TimePace
