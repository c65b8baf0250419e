"""Standardization of states: mean 0 and variance 1 in each feature, over the whole corpus."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Standardizer(nn.Module):
    """(h − μ)/σ for each feature, with μ and σ learned by maximum likelihood.

    −log N(h; μ, σ²) = ½((h − μ)/σ)² + ln σ + const is smallest at the mean and standard deviation of the data. As
    parameters, μ and σ follow an encoder that is still in training, are averaged and saved like all weights, and use
    all the data. The statistics of a single batch (as in LD4LG's code) would have sampling error.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(width))
        self.log_std = nn.Parameter(torch.zeros(width))

    def forward(self, h: Tensor) -> Tensor:
        return (h - self.mean) * (-self.log_std).exp()

    def inverse(self, x: Tensor) -> Tensor:
        return x * self.log_std.exp() + self.mean

    def nll(self, h: Tensor) -> Tensor:
        """(…, D) states → (…) nats per feature, without the constant"""
        return (self(h).square() / 2 + self.log_std).mean(-1)
