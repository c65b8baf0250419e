"""Heads: turn a network's raw outputs into a prediction, position by position, so that any subset can be queried."""

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
    """Turns raw logits into log-weights of the clean token, whose softmax is x̂."""

    vectors = False  # x̂ is a token
    shifts = False  # whether the state of a token predicts the next one
    finished = False  # whether the first token of a block is predicted from the clean stream in training

    @property
    def normalized(self) -> bool:
        """Whether x̂ is the softmax of the log-weights; if not, it is their exponential, with any sum."""
        return True

    @abstractmethod
    def estimate(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        """(N, V) raw logits, (N,) noisy tokens, (N,) times → (N, V) fp32 log-weights, not yet normalized.

        May overwrite `raw` in training.
        """

    def source(self, position: Tensor) -> Tensor:
        """The position whose hidden state predicts the token at `position`; −1 is the one before the first."""
        return position


@dataclass(frozen=True)
class Softmax(Head):
    """x̂ = softmax(raw), without constraints; for uniform noise."""

    def estimate(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        return raw.float()


@dataclass(frozen=True)
class Subs(Head):
    """MDLM's SUBS parameterization: the clean token is never the mask, and a visible token predicts itself.

    Each half can be switched off, as in the paper's ablation. Without carry-over, sampling is unchanged as long as
    steps follow Bayes' rule; it matters if the last step also uses x̂ of visible tokens, as with
    `Interpolating(…, direct=True)`.
    """

    zero_mask: bool = True  # the mask has probability 0
    carry_over: bool = True  # a visible token predicts itself with probability 1

    def estimate(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        mask, raw = process.vocab.masked, raw.float()
        if self.zero_mask:
            raw = ops.exclude(raw, mask)
        if self.carry_over and not ops.known_zero(z != mask):
            itself = torch.full_like(raw, -torch.inf).scatter(-1, z[:, None], 0.0)
            raw = torch.where((z != mask)[:, None], itself, raw)
        return raw


@dataclass(frozen=True)
class Score(Head):
    """x̂ = exp(raw)/(V − 1), with any sum: the scores of SEDD (Lou et al. 2024) for mask noise, as predictions.

    A score is a ratio of probabilities, s_y = q_t(y)/q_t(z) = (α·x̂_y + b_y)/(α·x̂_z + b_z). At a masked position that is
    x̂_y/(e^σ − 1). The original's output layer scales by σ accordingly; predicting x̂ makes this scaling unnecessary. The
    bound of the process with this x̂ *is* the score entropy, and the original's weights can be used unchanged.
    """

    head: Head = Subs()

    @property
    def normalized(self) -> bool:
        return False

    def estimate(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        if isinstance(process, Interpolating) and not isinstance(process.mixing, MaskNoise):
            raise ValueError(
                "Score() needs mask noise: if tokens become other tokens, ratios of α·x̂ + b do not determine the sum "
                "of x̂; use Softmax() or Subs(carry_over=False), whose bound is the score entropy as well"
            )
        # as in the original, raw = 0 means a uniform x̂
        return self.head.estimate(raw.float() - math.log(process.vocab.size - 1), z, t, process)

    def source(self, position: Tensor) -> Tensor:
        return self.head.source(position)


@dataclass(frozen=True)
class Shift(Head):
    """The state at position i − 1 predicts token i: for autoregressive networks, and models made from them (Dream).

    After a cache, the state of its last token predicts the first new one. No state precedes the first token of a row,
    so that token should be given (a start token). If attention is not causal, its own state predicts it, as in Dream.
    """

    head: Head = Subs()
    finished: bool = False  # in training, predict the first token of a block from the clean stream, as in sampling
    shifts = True

    @property
    def normalized(self) -> bool:
        return self.head.normalized

    def estimate(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        return self.head.estimate(raw, z, t, process)

    def source(self, position: Tensor) -> Tensor:
        return position - 1


# --- vectors ---


class VectorHead(ABC):
    """Turns raw outputs into x̂, for networks that read vectors."""

    vectors = True  # x̂ is a vector
    shifts = False  # the state of a position predicts that position

    @property
    def predicts_tokens(self) -> bool:
        """Whether x̂ is a mean over tokens, whose probabilities the prediction has too."""
        return False

    def outputs(self, width: int, vocab: int) -> int:
        """Number of outputs per position, for vectors of this width and a vocabulary of this size."""
        return width

    @abstractmethod
    def __call__(
        self, raw: Tensor, z: Tensor, t: Tensor, process: Gaussian, table: Tensor | None = None
    ) -> VectorPrediction:
        """Return the prediction for (B, N, outputs) raw outputs, (B, N, D) noisy vectors and (B, 1) or (B, N) times.

        table: (V, D) vector of each token; None if the codec has no such table.
        """


@dataclass(frozen=True)
class PredictX(VectorHead):
    """raw = x̂ (Diffusion-LM)."""

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
    """raw = v̂ = a·ε̂ − s·x̂ (LD4TG), which is well scaled at all noise levels."""

    def __call__(
        self, raw: Tensor, z: Tensor, t: Tensor, process: Gaussian, table: Tensor | None = None
    ) -> VectorPrediction:
        return VectorPrediction(gaussian.x_from_v(raw.float(), z, *_scales(process, t)))


@dataclass(frozen=True)
class PredictScore(VectorHead):
    """raw = s·∇ log q_t(z) = −ε̂, the score scaled by the noise."""

    def __call__(
        self, raw: Tensor, z: Tensor, t: Tensor, process: Gaussian, table: Tensor | None = None
    ) -> VectorPrediction:
        return VectorPrediction(gaussian.x_from_eps(-raw.float(), z, *_scales(process, t)))


@dataclass(frozen=True)
class PredictTokens(VectorHead):
    """raw = logits of tokens, and x̂ = Σ p_w·e_w, their mean vector (CDCD); on the simplex 2·softmax − 1 (SSD-LM).

    With `prior`, the evidence of z about its own token is added to the logits, log q(z | w) =
    (a·z·e_w − a²·‖e_w‖²/2)/s² + c. The network then only learns what the context adds (the output prior of "Plaid",
    Gulrajani & Hashimoto 2023).
    """

    prior: bool = False  # add log q(z | w) to the logits

    @property
    def predicts_tokens(self) -> bool:
        return True

    def outputs(self, width: int, vocab: int) -> int:
        return vocab

    def __call__(
        self, raw: Tensor, z: Tensor, t: Tensor, process: Gaussian, table: Tensor | None = None
    ) -> VectorPrediction:
        logits = raw.float() + _evidence(z, t, process, table) if self.prior else raw.float()
        log_p = logits.log_softmax(-1)
        return VectorPrediction(2 * log_p.exp() - 1 if table is None else log_p.exp() @ table, log_p, table=table)


def _evidence(z: Tensor, t: Tensor, process: Gaussian, table: Tensor | None) -> Tensor:
    """(B, N, V) log q_t(z | w) up to a constant that all tokens share; s is clamped to stay finite as t → 0."""
    a, s = _scales(process, t)
    inner = 2 * z if table is None else z @ table.T - a * table.square().sum(-1) / 2
    return inner.float() * a / s.square().clamp(min=1e-6)


@dataclass(frozen=True)
class WithVariance(VectorHead):
    """An inner head plus D outputs for the variance, interpolated between its smallest and largest value."""

    head: VectorHead = PredictX()

    @property
    def predicts_tokens(self) -> bool:
        return self.head.predicts_tokens

    def outputs(self, width: int, vocab: int) -> int:
        return self.head.outputs(width, vocab) + width

    def __call__(
        self, raw: Tensor, z: Tensor, t: Tensor, process: Gaussian, table: Tensor | None = None
    ) -> VectorPrediction:
        inner, spread = raw.float().split([raw.shape[-1] - z.shape[-1], z.shape[-1]], -1)
        return replace(self.head(inner, z, t, process, table), spread=spread.sigmoid())


def _scales(process: Gaussian, t: Tensor) -> tuple[Tensor, Tensor]:
    """The scales a and s at time t, each (B, 1 or N, 1) in fp32."""
    a, s = process.path.scales(t)
    return a.float()[..., None], s.float()[..., None]
