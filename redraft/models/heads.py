"""Heads: what the network's raw numbers mean. Row-wise, so that a prediction can be queried at some positions only."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.prediction import VectorPrediction
from redraft.core.processes import gaussian
from redraft.core.processes.base import Process
from redraft.core.processes.gaussian import Gaussian
from redraft.core.processes.interpolating import Interpolating, MaskNoise


class Head(ABC):
    """raw logits → log-weights of the clean token, whose softmax is x̂."""

    @property
    def normalised(self) -> bool:
        """False: the weights are x̂ themselves, whatever their sum."""
        return True

    @abstractmethod
    def estimate(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        """(N, V) raw, (N,) noisy tokens, (N,) times → (N, V) fp32 log-weights, not yet normalised.

        In training raw may be overwritten.
        """

    def source(self, position: Tensor) -> Tensor:
        """The position of the hidden state that predicts this position; −1: the one before the first."""
        return position


@dataclass(frozen=True)
class Softmax(Head):
    """x̂ = softmax(raw): nothing is known beforehand (uniform noise)."""

    def estimate(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        return raw.float()


@dataclass(frozen=True)
class Subs(Head):
    """MDLM's substitution: the clean token is never the mask, and a visible token is itself.

    Either half can be switched off, as in the paper's ablation. Without carry-over nothing changes as long as steps are
    Bayes' rule; it counts where the last step asks x̂ for visible tokens too: `Interpolating(…, direct=True)`.
    """

    zero_mask: bool = True
    carry_over: bool = True

    def estimate(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        mask, raw = process.vocab.masked, raw.float()
        if self.zero_mask:
            raw = ops.exclude(raw, mask)
        if self.carry_over and (ops.to_numpy(z) != mask).any():
            itself = torch.full_like(raw, -torch.inf).scatter(-1, z[:, None], 0.0)
            raw = torch.where((z != mask)[:, None], itself, raw)
        return raw


@dataclass(frozen=True)
class Score(Head):
    """x̂ = exp(raw)/(V − 1) with a free sum: the scores of SEDD (Lou et al. 2024) for mask noise, as predictions.

    A score is a ratio of probabilities, s_y = q_t(y)/q_t(z) = (α·x̂_y + b_y)/(α·x̂_z + b_z). At a masked position that is
    x̂_y/(e^σ − 1): the scale by σ of the original's output layer, which need not be computed. The bound of the process
    with this x̂ *is* the score entropy, and weights of the original fit exactly.
    """

    head: Head = Subs()

    @property
    def normalised(self) -> bool:
        return False

    def estimate(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        if isinstance(process, Interpolating) and not isinstance(process.mixing, MaskNoise):
            raise ValueError(
                "where words become other words, ratios of α·x̂ + b do not determine the sum of x̂; use Softmax() or "
                "Subs(carry_over=False): the bound is the score entropy all the same"
            )
        # raw = 0 is the even guess, as in the original
        return self.head.estimate(raw.float() - math.log(process.vocab.size - 1), z, t, process)

    def source(self, position: Tensor) -> Tensor:
        return self.head.source(position)


@dataclass(frozen=True)
class Shift(Head):
    """The state at position i − 1 predicts token i: autoregressive networks, and those that began as such (Dream).

    Behind a cache the state of its last token predicts the first one. Nothing stands before the first token of a row:
    it should be given (a BOS). Where attention is not causal it predicts itself, as in those models.
    """

    head: Head = Subs()
    finished: bool = False  # in training, the token before a block is finished, as in writing, not noisy

    @property
    def normalised(self) -> bool:
        return self.head.normalised

    def estimate(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        return self.head.estimate(raw, z, t, process)

    def source(self, position: Tensor) -> Tensor:
        return position - 1


# --- vectors ---


class VectorHead(ABC):
    """raw numbers → x̂, for networks that read vectors; the loss sees only x̂, with a weight."""

    def outputs(self, width: int, vocab: int) -> int:
        """Number of outputs per place, for vectors of this width and a vocabulary of this size."""
        return width

    @abstractmethod
    def __call__(
        self, raw: Tensor, z: Tensor, t: Tensor, process: Gaussian, table: Tensor | None = None
    ) -> VectorPrediction:
        """(B, N, outputs) raw, (B, N, D) z, (B, 1) or (B, N) times, (V, D) the vectors of tokens if they have some"""


@dataclass(frozen=True)
class PredictX(VectorHead):
    """x̂ = raw: commits to words at all noise levels (Diffusion-LM)."""

    def __call__(
        self, raw: Tensor, z: Tensor, t: Tensor, process: Gaussian, table: Tensor | None = None
    ) -> VectorPrediction:
        return VectorPrediction(raw.float())


@dataclass(frozen=True)
class PredictEps(VectorHead):
    """raw = ε̂, the noise (DDPM)."""

    def __call__(
        self, raw: Tensor, z: Tensor, t: Tensor, process: Gaussian, table: Tensor | None = None
    ) -> VectorPrediction:
        return VectorPrediction(gaussian.x_from_eps(raw.float(), z, *_scales(process, t)))


@dataclass(frozen=True)
class PredictV(VectorHead):
    """raw = v̂ = a·ε̂ − s·x̂ (LD4TG): well scaled at both ends."""

    def __call__(
        self, raw: Tensor, z: Tensor, t: Tensor, process: Gaussian, table: Tensor | None = None
    ) -> VectorPrediction:
        return VectorPrediction(gaussian.x_from_v(raw.float(), z, *_scales(process, t)))


@dataclass(frozen=True)
class PredictScore(VectorHead):
    """raw = s·∇ log q_t(z), the score in units of the noise: −ε̂."""

    def __call__(
        self, raw: Tensor, z: Tensor, t: Tensor, process: Gaussian, table: Tensor | None = None
    ) -> VectorPrediction:
        return VectorPrediction(gaussian.x_from_eps(-raw.float(), z, *_scales(process, t)))


@dataclass(frozen=True)
class PredictTokens(VectorHead):
    """raw = logits of tokens, x̂ the mean of their vectors Σ p_w·e_w (CDCD); on the simplex 2·softmax − 1 (SSD-LM).

    With `prior` the network's output is added to what z alone tells about its token, log q(z | w) =
    (a·z·e_w − a²·‖e_w‖²/2)/s² + c, so it learns only what the neighbours add (Gulrajani & Hashimoto 2023, "Plaid": the
    output prior).
    """

    prior: bool = False

    def outputs(self, width: int, vocab: int) -> int:
        return vocab

    def __call__(
        self, raw: Tensor, z: Tensor, t: Tensor, process: Gaussian, table: Tensor | None = None
    ) -> VectorPrediction:
        said = raw.float() + _evidence(z, t, process, table) if self.prior else raw.float()
        log_p = said.log_softmax(-1)
        return VectorPrediction(2 * log_p.exp() - 1 if table is None else log_p.exp() @ table, log_p, table=table)


def _evidence(z: Tensor, t: Tensor, process: Gaussian, table: Tensor | None) -> Tensor:
    """(B, N, V) log q_t(z | w) up to a constant that all tokens share; s is clamped, so the end t → 0 stays finite."""
    a, s = _scales(process, t)
    inner = 2 * z if table is None else z @ table.T - a * table.square().sum(-1) / 2
    return inner.float() * a / s.square().clamp(min=1e-6)


@dataclass(frozen=True)
class WithVariance(VectorHead):
    """The outputs of the inner head, and D more: where the variance lies between its least and its largest value."""

    head: VectorHead = PredictX()

    def outputs(self, width: int, vocab: int) -> int:
        return self.head.outputs(width, vocab) + width

    def __call__(
        self, raw: Tensor, z: Tensor, t: Tensor, process: Gaussian, table: Tensor | None = None
    ) -> VectorPrediction:
        said, spread = raw.float().split([raw.shape[-1] - z.shape[-1], z.shape[-1]], -1)
        return replace(self.head(said, z, t, process, table), spread=spread.sigmoid())


def _scales(process: Gaussian, t: Tensor) -> tuple[Tensor, Tensor]:
    """(B, 1 or N, 1) a and s in fp32"""
    a, s = process.path.scales(t)
    return a.float()[..., None], s.float()[..., None]
