"""Time conditioning: which noise level a network sees at time t, such as t itself, σ, keep(t) or the log-SNR."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from redraft.core.processes.base import Process
from redraft.core.schedules.base import Schedule
from redraft.core.schedules.tokens import Linear
from redraft.core.vocab import FINITE, require_range


class TimeConditioning(ABC):
    """The noise level that the network's time embedding sees, as a function of t."""

    @abstractmethod
    def __call__(self, t: Tensor, process: Process) -> Tensor:
        """Times t → noise levels, in the same shape."""


@dataclass(frozen=True)
class ConditionOnTime(TimeConditioning):
    """scale · t (GIDD); the scale is large because the sinusoids of the time embedding have periods from 2π up."""

    scale: float = 1000.0

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "scale")

    def __call__(self, t: Tensor, process: Process) -> Tensor:
        return self.scale * t


@dataclass(frozen=True)
class ConditionOnSigma(TimeConditioning):
    """σ = −log α_t (MDLM, SEDD, UDLM), at most 9.2 for schedules that reach α = 0, where σ would be infinite.

    The published code for α = 1 − t keeps σ finite by conditioning on α = 1 − 0.999 t instead; set `schedule` for that.
    """

    schedule: Schedule | None = None  # schedule that gives σ; None for that of the process

    def __call__(self, t: Tensor, process: Process) -> Tensor:
        schedule = self.schedule or process.schedule
        if schedule is None:
            raise ValueError(
                f"{type(process).__name__} has no α_t for σ; use ConditionOnTime() or ConditionOnSigma(schedule)"
            )
        return -schedule.keep(t).clamp(min=schedule.end or 1e-4).log()


@dataclass(frozen=True)
class ConditionOnKeep(TimeConditioning):
    """keep(t) of a schedule; with `Linear()`, 1 − t, which is FlexMDM's time, from noise (0) to text (1)."""

    schedule: Schedule = Linear()

    def __call__(self, t: Tensor, process: Process) -> Tensor:
        return self.schedule.keep(t)


@dataclass(frozen=True)
class ConditionOnLogSnr(TimeConditioning):
    """scale · log SNR of Gaussian noise: equal noise gives equal levels, whatever the schedule."""

    scale: float = 50.0

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "scale")

    def __call__(self, t: Tensor, process: Process) -> Tensor:
        return self.scale * process.logsnr(t)
