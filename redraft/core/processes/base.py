"""The forward process: how x becomes z, and how Bayes' rule reverses it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.batch import Batch, NoisySample
from redraft.core.canvas import Canvas
from redraft.core.prediction import Prediction
from redraft.core.randomness import Rng
from redraft.core.schedules.base import Schedule
from redraft.core.vocab import Vocab

_P = TypeVar("_P", bound="Process")


class _HeldOutRows(Protocol):
    """Clean rows and a denoiser that knows their context: the inputs of an estimate of the bound."""

    @property
    def batch(self) -> Batch: ...

    @property
    def block(self) -> int | None:
        """Tokens per block of the denoiser; None if it writes all at once."""
        ...

    def predict(self, z: Tensor, t: Tensor) -> Prediction: ...

    def by_time(self, strata: int, *, rng: Rng) -> Tensor:
        """(B,) nats: the bound, estimated at one time from each of `strata` strata."""
        ...


class Process(ABC):
    """A noising process on tokens (`TokenProcess`) or vectors (`Gaussian`): all probability lives here.

    x and z are (B, L) ids, or (B, N, D) vectors that a codec makes from ids.
    """

    vocab: Vocab  # vocabulary of the text, even if the process noises vectors
    title: ClassVar[str] = "any noise"  # name of the noise in error messages
    vectors: ClassVar[bool] = False  # whether x and z are vectors that a codec makes
    grows: ClassVar[bool] = False  # whether a reverse step inserts tokens, so that later ones change their position
    moves: ClassVar[bool] = True  # whether a reverse step may change a visible token
    schedule: Schedule | None = None  # keep(t) is the probability α_t that a token is kept; None without one
    time_power = 1.0  # estimates draw t = u^power, u uniform; above 1 draws more times near 0

    @abstractmethod
    def prior(self, canvas: Canvas, *, rng: Rng) -> Canvas:
        """The canvas with noise at t = 1 wherever nothing is fixed."""

    @abstractmethod
    def prior_kl(self, x: Tensor) -> Tensor:
        """(B, L) nats KL(q_1(z | x) ‖ prior); zero if z_1 is independent of x."""

    @abstractmethod
    def noise(self, x: Tensor, t: Tensor, *, pad: Tensor | None = None, rng: Rng) -> NoisySample:
        """Draws z ~ q_t(z | x), which is exactly x at t = 0."""

    @abstractmethod
    def step(self, pred: Prediction, canvas: Canvas, s: Tensor, t: Tensor, *, rng: Rng) -> Canvas:
        """Draws z_s ~ p(z_s | z_t, prediction). s, t: (B, 1) times of the rows."""

    @abstractmethod
    def nelbo(self, pred: Prediction, noised: NoisySample, s: Tensor | None = None) -> Tensor:
        """(B, L) nats, zero where z determines x: the bound's integrand at t, or given s the KL of the step t → s."""

    @abstractmethod
    def undetermined(self, noised: NoisySample) -> Tensor:
        """(B, L) bool: positions where z does not determine x, so that there is something to learn."""

    def estimates(self, held_out: _HeldOutRows, strata: int, *, rngs: Sequence[Rng]) -> Tensor:
        """(K, B) nats: an unbiased estimate of the bound for each of K generators, with `strata` network calls each.

        The default uses stratified times; processes with a lower-variance estimator override it.
        """
        return torch.stack([held_out.by_time(strata, rng=rng) for rng in rngs])

    def logsnr(self, t: Tensor) -> Tensor:
        """The log-signal-to-noise ratio at times t; only Gaussian noise has one."""
        raise ValueError(f"{type(self).__name__} has no signal-to-noise ratio; use ConditionOnTime()")

    @property
    def limiting_distribution(self) -> Tensor:
        """(V,) float64: π of q_t(z | x) = α_t·1[z = x] + (1 − α_t)·π_z, for noise of this form; scores need it."""
        raise ValueError(f"{type(self).__name__} noise has no limiting distribution; use Ancestral(steps)")

    def error_rate(self, t: float) -> float:
        """The fraction of the tokens visible at time t that are wrong; 0 if noise never turns a token into another."""
        return 0.0

    def evidence(self, z: Tensor, t: Tensor) -> Tensor:
        """(B, L) log q_t(z | x = z) − log q_t(z | x ≠ z), the log-odds that z is the clean token; ∞ if it must be.

        Constraints need it (`Constrained`). It exists only for noise that treats all tokens x ≠ z alike.
        """
        raise ValueError(f"{type(self).__name__} noise cannot obey rules: it does not treat all other tokens alike")

    @property
    def fills_masks(self) -> bool:
        """Whether a reverse step only replaces masks by tokens, in place; all other tokens stay as they are."""
        return not (self.vectors or self.grows or self.moves)

    def narrowed(self, kind: type[_P], user: str, instead: str) -> _P:
        """The process as the kind that `user` needs; any other raises an error that says what to use instead."""
        if isinstance(self, kind):
            return self
        raise ValueError(f"{user} is for {kind.title}, not {type(self).__name__}; {instead}")

    @property
    def base(self) -> Process:
        """The process without any change to its reverse steps: the one inside `Remask`, otherwise this one."""
        return self

    @property
    def continuous(self) -> bool:
        """False if the bound exists only for discrete steps: `nelbo` then needs s, which `Bound(steps=T)` passes."""
        return True

    @property
    @abstractmethod
    def leaves_noise(self) -> bool:
        """Whether noise remains as t → 0, so that the bound needs a reconstruction term."""


class TokenProcess(Process):
    """A noising process on tokens; every subclass is final.

    It satisfies these laws, proved by `redraft check` (q_t(z | x) is the marginal, q_{t|s}(z | y) the transition):

    - draws: `noise` draws from `marginal`;
    - composition: q_t = q_s · q_{t|s};
    - Bayes: `step` draws z_s ∝ q_{t|s}(z_t | z_s) · q_s(z_s | x̂), each position independently;
    - bound: the integral of `nelbo` over t, plus `prior_kl`, equals the entropy of the data for the best denoiser and
      exceeds it for any other; summed over T steps it is larger, and falls to the integral as T grows;
    - reach: the noise at t = 1 is `prior`.

    The step plugs x̂ into the posterior. So at a *visible* position the optimal x̂ is the posterior given the other
    tokens (leave-one-out); for mask noise that is the ordinary posterior.
    """

    title = "noise of tokens"

    @abstractmethod
    def marginal(self, t: float) -> Tensor:
        """(V, V) float64 table q_t(z | x), row x, for t > 0; for laws and oracles on small vocabularies."""

    def channel(self, z: Tensor, t: Tensor) -> Tensor:
        """(N, V) log q_t(z | x) for every clean x, given N tokens z (N,) at times t (N,).

        x̂ at a visible token ignores that token, so the posterior there is p(x | z) ∝ x̂ · q_t(z | x). The default
        reads it from `marginal`.
        """
        times, index = t.unique(return_inverse=True)
        tables = torch.stack([self.marginal(float(time)).to(z.device) for time in times])  # (times, V, V)
        return tables[index, :, z].log()

    def error_rate(self, t: float) -> float:
        table, mask = self.marginal(t), self.vocab.mask
        words = [token for token in range(self.vocab.size) if token != mask]
        visible = table[words][:, words]
        return float(1 - (visible.diagonal() / visible.sum(-1)).mean())

    @abstractmethod
    def transition(self, s: float, t: float) -> Tensor:
        """(V, V) float64 table q_{t|s}(z | y), row y, for 0 < s < t."""


def require_times(z: Tensor, *times: Tensor) -> None:
    """Raises unless z is (B, L) int64 and all times are (B, 1) or (B, L)."""
    if z.dim() != 2 or z.dtype != torch.int64:
        raise ValueError(f"tokens must be int64 of shape (B, L); got {z.dtype} of shape {tuple(z.shape)}")
    _require_aligned(z, times)


def require_vectors(z: Tensor, *times: Tensor) -> None:
    """Raises unless z is (B, N, D) floats and all times are (B, 1) or (B, N)."""
    if z.dim() != 3 or not z.is_floating_point():
        raise ValueError(f"vectors must be floats of shape (B, N, D); got {z.dtype} of shape {tuple(z.shape)}")
    _require_aligned(z, times)


def _require_aligned(z: Tensor, times: Sequence[Tensor]) -> None:
    for t in times:
        if t.dim() != 2 or t.shape[0] != z.shape[0] or t.shape[1] not in (1, z.shape[1]):
            raise ValueError(
                f"times must have shape (B, 1) or (B, L) = {(z.shape[0], 1)} or {tuple(z.shape[:2])}; "
                f"got {tuple(t.shape)}"
            )


def _resampled_positions(noised: NoisySample, s: Tensor) -> Tensor:
    """(B, L) bool: positions a `direct` step to s draws from x̂ whatever z is: all but given tokens if s = 0."""
    where = ((s == 0) & (noised.t > 0)).expand_as(noised.z)
    return where if noised.pad is None else where & ~noised.pad


def exclude_mask(pred: Prediction, s: Tensor, vocab: Vocab) -> Prediction:
    """x̂ for a step to s, without the mask in rows with s = 0, which the step finishes.

    Heads that give the mask weight (`Subs(zero_mask=False)`, `Softmax()`) keep it in earlier steps, where it delays
    reveals.
    """
    if vocab.mask is None or pred.joint or not bool((s == 0).any()):
        return pred
    return _Finished(pred, s, vocab.mask)


@dataclass(frozen=True)
class _Finished(Prediction):
    """A prediction without the mask, renormalized, in the rows that this step finishes."""

    pred: Prediction
    s: Tensor  # (B, 1) time at which the step ends
    mask: int  # id of the mask

    @property
    def normalized(self) -> bool:
        return self.pred.normalized

    @property
    def x(self) -> Tensor:
        return self._unmasked(self.pred.x, (self.s == 0)[..., None])

    def at(self, where: Tensor) -> Tensor:
        return self._unmasked(self.pred.at(where), (self.s == 0).expand_as(where)[where][:, None])

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        return self.pred.nll(where, target)

    def _unmasked(self, log_x: Tensor, finished: Tensor) -> Tensor:
        if not bool((log_x[..., self.mask] > -torch.inf).any()):  # as after `Subs()`: return the same bits
            return log_x
        words = ops.exclude(log_x, self.mask)
        return torch.where(finished, words.log_softmax(-1) if self.normalized else words, log_x)
