"""How a network sees the time: as t itself, as σ, as the log-SNR or as the share of tokens kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from redraft.core.processes.base import Process
from redraft.core.processes.gaussian import Gaussian
from redraft.core.processes.interpolating import Interpolating
from redraft.core.processes.markov import Markov
from redraft.core.processes.masked import Masked
from redraft.core.schedules.base import Schedule
from redraft.core.schedules.tokens import Linear
from redraft.core.vocab import FINITE, require_range


class TimeConditioning(ABC):
    """The noise level that the network's time embedding sees, as a function of t."""

    @abstractmethod
    def __call__(self, t: Tensor, process: Process) -> Tensor: ...


@dataclass(frozen=True)
class ConditionOnTime(TimeConditioning):
    """t itself (GIDD), times a scale: the sinusoids of the time embedding have periods from 2π to 60 000."""

    scale: float = 1000.0

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "scale")

    def __call__(self, t: Tensor, process: Process) -> Tensor:
        return self.scale * t


@dataclass(frozen=True)
class ConditionOnSigma(TimeConditioning):
    """σ = −log α_t (MDLM, SEDD, UDLM), at most 9.2 for schedules that reach α = 0, which have no finite σ there.

    Original code with α = 1 − t gives its network the σ of 1 − 0.999 t, to keep it finite: `schedule` is for that.
    """

    schedule: Schedule | None = None  # None: that of the process

    def __call__(self, t: Tensor, process: Process) -> Tensor:
        own = process.schedule if isinstance(process, Masked | Interpolating | Markov) else None
        schedule = self.schedule or own
        if schedule is None:
            raise ValueError(f"{type(process).__name__} has no α_t to take σ from; use ByTime() or BySigma(schedule)")
        return -schedule.keep(t).clamp(min=schedule.end or 1e-4).log()


@dataclass(frozen=True)
class ConditionOnKeep(TimeConditioning):
    """keep(t) of a schedule: the time of FlexMDM, which runs from nothing (0) to text (1), is 1 − t."""

    schedule: Schedule = Linear()

    def __call__(self, t: Tensor, process: Process) -> Tensor:
        return self.schedule.keep(t)


@dataclass(frozen=True)
class ConditionOnLogSnr(TimeConditioning):
    """log SNR of Gaussian noise, times a scale: the same number for the same noise, whatever the schedule."""

    scale: float = 50.0

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "scale")

    def __call__(self, t: Tensor, process: Process) -> Tensor:
        if not isinstance(process, Gaussian):
            raise ValueError(f"{type(process).__name__} has no signal-to-noise ratio; use ByTime()")
        return self.scale * process.path.logsnr(t)
