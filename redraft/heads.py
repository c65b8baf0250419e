"""Heads: what the network's raw numbers mean. Row-wise, so that a prediction can be asked at some positions only."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.processes.base import Process
from redraft.processes.interpolating import Interpolating, MaskNoise


class Head(ABC):
    """raw logits → log-weights of the clean token, whose softmax is x̂."""

    @property
    def normalised(self) -> bool:
        """False: the weights are x̂ themselves, whatever their sum."""
        return True

    @abstractmethod
    def weights(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        """(N, V) raw, (N,) noisy tokens, (N,) times → (N, V) fp32 log-weights, not yet normalised."""

    def source(self, position: Tensor) -> Tensor:
        """Where the hidden state stands that predicts a position."""
        return position


@dataclass(frozen=True)
class Softmax(Head):
    """x̂ = softmax(raw): nothing is known beforehand (uniform noise)."""

    def weights(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        return raw.float()


@dataclass(frozen=True)
class Subs(Head):
    """MDLM's substitution: the clean token is never the mask, and a visible token is itself.

    Either half can be switched off, as in the paper's ablation.
    """

    zero_mask: bool = True
    carry_over: bool = True

    def weights(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        mask, raw = process.vocab.masked, raw.float()
        if self.zero_mask:
            raw = raw.index_fill(-1, torch.tensor([mask], device=raw.device), -torch.inf)
        seen = z != mask
        if self.carry_over and bool(seen.any()):
            itself = torch.full_like(raw, -torch.inf).scatter(-1, z[:, None], 0.0)
            raw = torch.where(seen[:, None], itself, raw)
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

    def weights(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        if isinstance(process, Interpolating) and not isinstance(process.mixing, MaskNoise):
            raise ValueError(
                "where words become other words, ratios of α·x̂ + b do not determine the sum of x̂; use Softmax() or "
                "Subs(carry_over=False): the bound is the score entropy all the same"
            )
        # raw = 0 is the even guess, as in the original
        return self.head.weights(raw.float() - math.log(process.vocab.size - 1), z, t, process)

    def source(self, position: Tensor) -> Tensor:
        return self.head.source(position)


@dataclass(frozen=True)
class Shift(Head):
    """The state at position i − 1 predicts token i: networks that began as autoregressive ones (Dream, DiffuLLaMA).

    Nothing stands before position 0; it predicts itself, as in those models, and should be given (a BOS).
    """

    head: Head = Subs()

    @property
    def normalised(self) -> bool:
        return self.head.normalised

    def weights(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        return self.head.weights(raw, z, t, process)

    def source(self, position: Tensor) -> Tensor:
        return (position - 1).clamp(min=0)
