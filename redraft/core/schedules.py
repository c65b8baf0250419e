"""Noise schedules: one decreasing function keep(t), the share of signal left at time t.

For tokens keep(t) is α_t, the probability that a token is still itself. Four different functions are called "cosine"
in the field; each has its own name here. Formulas run in the dtype of t: pass float64 where 1 − keep must be exact.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from redraft.core.ops import wide


class Schedule(ABC):
    """keep: [0, 1] → [0, 1], decreasing.

    Ends that are not exactly 1 and 0 leave a jump at the clean end (it enters the bound as reconstruction) or noise
    that has not forgotten x (it enters as the prior's KL).
    """

    @cached_property
    def start(self) -> float:
        """keep(0)"""
        return float(self.keep(torch.zeros((), dtype=torch.float64)))

    @cached_property
    def end(self) -> float:
        """keep(1)"""
        return float(self.keep(torch.ones((), dtype=torch.float64)))

    @abstractmethod
    def keep(self, t: Tensor) -> Tensor: ...

    @abstractmethod
    def inverse(self, keep: Tensor) -> Tensor:
        """The time at which `keep` of the signal is left."""

    def slope(self, t: Tensor) -> Tensor:
        """d keep / dt, by forward-mode differentiation (which works in inference mode too)."""
        return torch.func.jvp(self.keep, (t,), (torch.ones_like(t),))[1]

    def kept(self, t: Tensor) -> Tensor:
        """keep in the widest float, and 1 at t = 0: clean by definition (prompts), whatever the schedule's start."""
        t = t.to(wide(t.device))
        return torch.where(t == 0, 1.0, self.keep(t))

    def share(self, s: Tensor, t: Tensor) -> Tensor:
        """(keep_s − keep_t)/(1 − keep_t): the probability that a token lost at t comes back between t and s."""
        kept = self.kept(t)
        return (self.kept(s) - kept) / (1 - kept).clamp(min=1e-300)  # t = 0: a prompt, nothing is lost

    def rate(self, t: Tensor) -> Tensor:
        """−keep'/(1 − keep), the same per unit of time, zero while nothing is lost; 1/t for the linear schedule."""
        t = t.to(wide(t.device))
        lost = 1 - self.keep(t)
        return torch.where(lost > 0, -self.slope(t) / lost, 0.0)


@dataclass(frozen=True)
class Linear(Schedule):
    """α = 1 − (1 − ε) t: "log-linear" in MDLM and SEDD (linear in α, where σ = −log α); the mask weight is 1/t."""

    eps: float = 0.0

    def __post_init__(self) -> None:
        _require(0 <= self.eps < 1, f"eps={self.eps}; the signal left at t = 1 must be at least 0 and below 1")

    def keep(self, t: Tensor) -> Tensor:
        return 1 - (1 - self.eps) * t

    def inverse(self, keep: Tensor) -> Tensor:
        return (1 - keep) / (1 - self.eps)


@dataclass(frozen=True)
class Cosine(Schedule):
    """α = ε + (1 − ε) cos(πt/2) (MDLM's "cosine")."""

    eps: float = 0.0

    def __post_init__(self) -> None:
        _require(0 <= self.eps < 1, f"eps={self.eps}; the signal left at t = 1 must be at least 0 and below 1")

    def keep(self, t: Tensor) -> Tensor:
        return self.eps + (1 - self.eps) * _quarter(t)

    def inverse(self, keep: Tensor) -> Tensor:
        return 2 / torch.pi * ((keep - self.eps) / (1 - self.eps)).clamp(-1, 1).acos()


@dataclass(frozen=True)
class CosineSquared(Schedule):
    """α = ε + (1 − ε) cos²(πt/2) (MDLM's "cosinesqr"; Nichol & Dhariwal without their offset)."""

    eps: float = 0.0

    def __post_init__(self) -> None:
        _require(0 <= self.eps < 1, f"eps={self.eps}; the signal left at t = 1 must be at least 0 and below 1")

    def keep(self, t: Tensor) -> Tensor:
        return self.eps + (1 - self.eps) * _quarter(t) ** 2

    def inverse(self, keep: Tensor) -> Tensor:
        return 2 / torch.pi * ((keep - self.eps) / (1 - self.eps)).clamp(0, 1).sqrt().acos()


@dataclass(frozen=True)
class CosineRatio(Schedule):
    """α = cos((t + o)/(1 + o)·π/2)/cos(o/(1 + o)·π/2), o = 0.008 (Hoogeboom et al. 2021; D3PM's uniform noise).

    The square root of Nichol & Dhariwal's ᾱ. The released code lets no step keep less than a certain share, so that a
    little signal is left at the end of its chain; `floor` does the same (10⁻³ per step in D3PM, its root in multinomial
    diffusion: floor = √10⁻³·α(1 − 1/T)). Without a floor, noise forgets x exactly.
    """

    offset: float = 0.008
    floor: float = 0.0

    def __post_init__(self) -> None:
        _require(0 <= self.offset < math.inf, f"offset={self.offset}; the offset of the time must be at least 0")
        _require(0 <= self.floor < 1, f"floor={self.floor}; the signal left at t = 1 must be at least 0 and below 1")

    def keep(self, t: Tensor) -> Tensor:
        ratio = _quarter((t + self.offset) / (1 + self.offset)) / self._start
        return ratio.clamp(min=self.floor)

    def inverse(self, keep: Tensor) -> Tensor:
        angle = 2 / torch.pi * (keep * self._start).clamp(-1, 1).acos()
        return angle * (1 + self.offset) - self.offset

    @property
    def _start(self) -> float:
        """By the same rounding as `keep`, which is then exactly one at t = 0."""
        return float(_quarter(torch.tensor(self.offset, dtype=torch.float64) / (1 + self.offset)))


@dataclass(frozen=True)
class Tabulated(Schedule):
    """Straight lines between keeps[0] = 1, …, keeps[n] at the times 0, 1/n, …, 1: for measured schedules."""

    keeps: tuple[float, ...] = (1.0, 0.0)

    def __post_init__(self) -> None:
        falls = all(a > b for a, b in pairwise(self.keeps))
        _require(
            len(self.keeps) > 1 and self.keeps[0] <= 1 and falls and self.keeps[-1] >= 0,
            f"keeps={self.keeps}; give two values or more, each below the one before, from at most 1 to at least 0",
        )

    def keep(self, t: Tensor) -> Tensor:
        return _polyline(self.keeps, t)

    def inverse(self, keep: Tensor) -> Tensor:
        return _crossing(self.keeps, keep)


@dataclass(frozen=True)
class Polynomial(Schedule):
    """α = 1 − t^p: p = 2 and ½ are BD3-LM's "square" and "square root"."""

    power: float = 2.0

    def __post_init__(self) -> None:
        _require(0 < self.power < math.inf, f"power={self.power} does not decrease from 1 to 0; use a power above 0")

    def keep(self, t: Tensor) -> Tensor:
        return 1 - t**self.power

    def inverse(self, keep: Tensor) -> Tensor:
        return (1 - keep) ** (1 / self.power)


@dataclass(frozen=True)
class Mirrored(Schedule):
    """α = 1 − β(1 − t) of another schedule β: seen from the other end of time (FlexMDM's "cosine" and "polynomial")."""

    schedule: Schedule

    def keep(self, t: Tensor) -> Tensor:
        return 1 - self.schedule.keep(1 - t)

    def inverse(self, keep: Tensor) -> Tensor:
        return 1 - self.schedule.inverse(1 - keep)


@dataclass(frozen=True)
class Jumping(Schedule):
    """Another schedule that is exactly 1 at t = 0 and 0 at t = 1, by jumps (FlexMDM's "geometric")."""

    schedule: Schedule

    def keep(self, t: Tensor) -> Tensor:
        inner = self.schedule.keep(t)
        return torch.where(t <= 0, torch.ones_like(inner), torch.where(t >= 1, torch.zeros_like(inner), inner))

    def inverse(self, keep: Tensor) -> Tensor:
        return self.schedule.inverse(keep.clamp(self.schedule.end, self.schedule.start)).clamp(0, 1)


@dataclass(frozen=True)
class Exponential(Schedule):
    """α = e^{−σ}, σ = σ_min + t (σ_max − σ_min): constant rate ("linear" in MDLM)."""

    low: float = 1e-3
    high: float = 10.0

    def __post_init__(self) -> None:
        _require(0 < self.low < self.high < math.inf, f"low={self.low}, high={self.high}; use 0 < low < high")

    def keep(self, t: Tensor) -> Tensor:
        return (-(self.low + t * (self.high - self.low))).exp()

    def inverse(self, keep: Tensor) -> Tensor:
        return (-keep.log() - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Geometric(Schedule):
    """α = e^{−σ}, σ = σ_min^{1−t} σ_max^t (SEDD's default for uniform noise, with 10⁻⁴ and 20)."""

    low: float = 1e-3
    high: float = 1.0

    def __post_init__(self) -> None:
        _require(0 < self.low < self.high < math.inf, f"low={self.low}, high={self.high}; use 0 < low < high")

    def keep(self, t: Tensor) -> Tensor:
        return (-(self.low * (self.high / self.low) ** t)).exp()

    def inverse(self, keep: Tensor) -> Tensor:
        return (-keep.log() / self.low).log() / math.log(self.high / self.low)


# --- for Gaussian noise: keep is the square of the signal's scale, keep/(1 − keep) the signal-to-noise ratio ---


@dataclass(frozen=True)
class VPLinear(Schedule):
    """a² = exp(−½t²(β₁ − β₀) − tβ₀): the rate of noise rises in a line from `low` to `high` (Song et al. 2021, eq. 33).

    The limit of DDPM's "linear" chain of 1000 steps, β from 10⁻⁴ to 0.02.
    """

    low: float = 0.1
    high: float = 20.0

    def __post_init__(self) -> None:
        _require(0 < self.low < self.high < math.inf, f"low={self.low}, high={self.high}; use 0 < low < high")

    def keep(self, t: Tensor) -> Tensor:
        return (-(t**2) * (self.high - self.low) / 2 - t * self.low).exp()

    def inverse(self, keep: Tensor) -> Tensor:
        lost = -keep.log()
        return 2 * lost / (self.low + (self.low**2 + 2 * (self.high - self.low) * lost).sqrt())


@dataclass(frozen=True)
class CosineOffset(Schedule):
    """a² = cos²((t + o)/(1 + o)·π/2), o = 0.008 (Nichol & Dhariwal 2021, eq. 17); SSD-LM has o = 10⁻⁴.

    As written it begins a little below one. Chains of steps are built from ratios, which divides it by its value at
    zero: `normalized`.
    """

    offset: float = 0.008
    normalized: bool = False

    def __post_init__(self) -> None:
        _require(0 <= self.offset < math.inf, f"offset={self.offset}; the offset of the time must be at least 0")

    def keep(self, t: Tensor) -> Tensor:
        return _quarter((t + self.offset) / (1 + self.offset)) ** 2 / self._start

    def inverse(self, keep: Tensor) -> Tensor:
        angle = 2 / torch.pi * (keep * self._start).clamp(0, 1).sqrt().acos()
        return angle * (1 + self.offset) - self.offset

    @property
    def _start(self) -> float:
        """By the same rounding as `keep`, which is then exactly one at t = 0."""
        begin = torch.tensor(self.offset, dtype=torch.float64) / (1 + self.offset)
        return float(_quarter(begin) ** 2) if self.normalized else 1.0


@dataclass(frozen=True)
class Sqrt(Schedule):
    """a² = 1 − √(t + o), o = 10⁻⁴, never below zero (Li et al. 2022, "Diffusion-LM", appendix A).

    It starts noisy, with σ = 0.1 at t = 0, since embedded tokens survive a little noise.
    """

    offset: float = 1e-4

    def __post_init__(self) -> None:
        _require(0 < self.offset < 1, f"offset={self.offset}; the noise at first, its root, must be between 0 and 1")

    def keep(self, t: Tensor) -> Tensor:
        return (1 - (t + self.offset).sqrt()).clamp(min=0)

    def inverse(self, keep: Tensor) -> Tensor:
        return (1 - keep) ** 2 - self.offset


@dataclass(frozen=True)
class TanD(Schedule):
    """a² = 1/(1 + d²·tan²(πt/2)): cos²(πt/2) with its log-SNR lowered by 2·ln d (TEncDM has d = 9)."""

    d: float = 9.0

    def __post_init__(self) -> None:
        _require(0 < self.d < math.inf, f"d={self.d}; the factor of the tangent must be above 0")

    def keep(self, t: Tensor) -> Tensor:
        signal, noise = _quarter(t) ** 2, _quarter(1 - t) ** 2
        return signal / (signal + self.d**2 * noise)

    def inverse(self, keep: Tensor) -> Tensor:
        return 2 / torch.pi * torch.atan2((1 - keep).sqrt(), self.d * keep.sqrt())


@dataclass(frozen=True)
class Shifted(Schedule):
    """Another schedule with 2·ln(scale) added to its log-SNR: as if x were `scale` times as large."""

    schedule: Schedule
    scale: float

    def __post_init__(self) -> None:
        _require(0 < self.scale < math.inf, f"scale={self.scale}; what multiplies the signal must be above 0")

    def keep(self, t: Tensor) -> Tensor:
        kept = self.schedule.keep(t)
        return self.scale**2 * kept / (self.scale**2 * kept + (1 - kept))  # never above 1 by rounding

    def inverse(self, keep: Tensor) -> Tensor:
        return self.schedule.inverse(keep / (keep + self.scale**2 * (1 - keep)))


@dataclass(frozen=True)
class Clamped(Schedule):
    """Another schedule with its log-SNR held within [low, high] (PLANNER: ±15), so that both ends are finite.

    Where it is held, nothing happens: the inverse gives the time at which that ends or begins.
    """

    schedule: Schedule
    low: float = -15.0
    high: float = 15.0

    def __post_init__(self) -> None:
        _require(self.low < self.high, f"low={self.low}, high={self.high}; use low < high, limits of the log-SNR")

    def keep(self, t: Tensor) -> Tensor:
        return self.schedule.keep(t).clamp(_sigmoid(self.low), _sigmoid(self.high))

    def inverse(self, keep: Tensor) -> Tensor:
        return self.schedule.inverse(keep.clamp(_sigmoid(self.low), _sigmoid(self.high))).clamp(0, 1)


@dataclass(frozen=True)
class Retimed(Schedule):
    """Straight lines between log-SNRs at the times 0, 1/n, …, 1: for noise levels found by measuring."""

    logsnrs: tuple[float, ...]

    def __post_init__(self) -> None:
        falls = all(a > b for a, b in pairwise(self.logsnrs))
        finite = all(map(math.isfinite, self.logsnrs))
        _require(
            len(self.logsnrs) > 1 and falls and finite,
            f"logsnrs={self.logsnrs}; give two finite values or more, each below the one before",
        )

    def keep(self, t: Tensor) -> Tensor:
        return _polyline(self.logsnrs, t).sigmoid()

    def inverse(self, keep: Tensor) -> Tensor:
        return _crossing(self.logsnrs, keep.logit())


@dataclass(frozen=True)
class Chain(Schedule):
    """Another schedule as a chain of T steps, as DDPM and its successors build it; their checkpoints need it.

    β_i = min(1 − ᾱ(i/T)/ᾱ((i − 1)/T), cap) and keep = Π(1 − β) after steps 1, …, T, which stand at the times 0, …, 1,
    straight lines between them: the generative end is the first step, whose index is 0 there. Ratios divide ᾱ by its
    value at zero; `normalized=False` takes that back. The cap leaves a little signal at the end.
    """

    schedule: Schedule
    steps: int = 2000
    cap: float = 0.999
    normalized: bool = True

    def __post_init__(self) -> None:
        _require(self.steps > 1, f"steps={self.steps}; a chain needs two steps or more")
        _require(0 < self.cap < 1, f"cap={self.cap}; the largest β must be between 0 and 1")

    def keep(self, t: Tensor) -> Tensor:
        return _polyline(self._keeps, t)

    def inverse(self, keep: Tensor) -> Tensor:
        return _crossing(self._keeps, keep)

    @cached_property
    def _keeps(self) -> tuple[float, ...]:
        kept = self.schedule.keep(torch.linspace(0, 1, self.steps + 1, dtype=torch.float64))
        ratio = (kept[1:] / kept[:-1]).clamp(min=1 - self.cap)
        return tuple((ratio.cumprod(0) * (1.0 if self.normalized else kept[0])).tolist())


def _require(fine: bool, problem: str) -> None:
    if not fine:
        raise ValueError(problem)


def _quarter(t: Tensor) -> Tensor:
    """cos(πt/2) as sin(π(1−t)/2): exactly zero at t = 1."""
    return (torch.pi / 2 * (1 - t)).sin()


def _sigmoid(logsnr: float) -> float:
    return 1 / (1 + math.exp(-logsnr))


def _polyline(values: tuple[float, ...], t: Tensor) -> Tensor:
    """Straight lines between the values at the times 0, 1/n, …, 1."""
    value, n = torch.tensor(values, dtype=t.dtype, device=t.device), len(values) - 1
    index = (t * n).floor().clamp(0, n - 1).long()
    return value[index] + (t * n - index) * (value[index + 1] - value[index])


def _crossing(values: tuple[float, ...], level: Tensor) -> Tensor:
    """The time at which a falling `_polyline` passes the level."""
    value, n = torch.tensor(values, dtype=level.dtype, device=level.device), len(values) - 1
    index = torch.searchsorted(-value, -level.contiguous(), right=True).clamp(1, n) - 1
    return (index + (value[index] - level) / (value[index] - value[index + 1])) / n
