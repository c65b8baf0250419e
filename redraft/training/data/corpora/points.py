"""Points of the plane whose density, score and best denoiser are known: what Gaussian noise does, to look at."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch

from redraft.core import randomness
from redraft.models.codecs.coordinates import CELL_SIZE, format_point, parse_point, point_length
from redraft.training.data.annotations import AnnotatedCorpus, Judgment
from redraft.training.data.corpora.language import split_seed
from redraft.training.data.pairs import Pair
from redraft.training.data.sources import Split

_TOGETHER = 4096  # points that are drawn at a time


@dataclass(frozen=True)
class GaussianMixtureCorpus(AnnotatedCorpus):
    """Points of a mixture of round normal distributions, spelt as "-1.204 +0.731"; the class of a point is its blob.

    By default three blobs, apart, of different weight and width.
    """

    means: tuple[tuple[float, ...], ...] = ((-1.5, -0.5), (1.0, 1.0), (0.5, -1.5))
    stds: tuple[float, ...] = (0.2, 0.3, 0.15)
    weights: tuple[float, ...] = (0.5, 0.3, 0.2)
    seed: int = 0

    def __post_init__(self) -> None:
        widths = {len(mean) for mean in self.means}
        if not len(self.means) == len(self.stds) == len(self.weights) or len(widths) != 1 or 0 in widths:
            raise ValueError(f"each blob needs a mean of the same width, a width and a weight; got {self}")
        if min(self.stds) <= 0 or min(self.weights) < 0 or not math.isclose(sum(self.weights), 1):
            raise ValueError(f"stds={self.stds}, weights={self.weights}; widths are above 0, and weights sum to one")

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(str(number) for number in range(len(self.means)))

    def document(self, split: Split, index: int) -> str:
        return self.pair(split, index).target

    def pair(self, split: Split, index: int) -> Pair:
        """The number of a blob, and a point of it."""
        together, place = divmod(index, _TOGETHER)
        return _drawn(self, split, together)[place]

    def log_prob(self, text: str) -> float:
        """Nats of a spelling: the density times the cell, right to 10⁻⁴ since blobs are much wider than cells."""
        point = parse_point(text)
        if point is None or len(point) != len(self.means[0]):
            return -math.inf
        x = torch.tensor(point, dtype=torch.float64)
        return float(self._log_density(x)) + len(point) * math.log(CELL_SIZE)

    def judge(self, text: str) -> Judgment:
        log_prob = self.log_prob(text)
        return Judgment(log_prob, len(text) if log_prob > -math.inf else 0)

    def entropy_per_char(self) -> float:
        """Nats, by integration over each blob."""
        width = len(self.means[0])
        unit = torch.linspace(-6, 6, 41, dtype=torch.float64)
        grid = torch.cartesian_prod(*[unit] * width).view(-1, width)
        weight = (-grid.square().sum(-1) / 2).softmax(-1)
        blobs = zip(self.means, self.stds, self.weights, strict=True)
        nats = -sum(w * (weight @ self._log_density(torch.tensor(m) + s * grid)) for m, s, w in blobs)
        return (float(nats) - width * math.log(CELL_SIZE)) / point_length(width)

    def _log_density(self, x: torch.Tensor) -> torch.Tensor:
        """(…, D) → (…)"""
        means, stds, weights = (torch.tensor(v, dtype=torch.float64) for v in (self.means, self.stds, self.weights))
        far = ((x[..., None, :] - means) / stds[:, None]).square().sum(-1) / 2
        return (weights.log() - far - means.shape[1] * (stds * math.sqrt(2 * math.pi)).log()).logsumexp(-1)


@lru_cache(16)
def _drawn(blobs: GaussianMixtureCorpus, split: Split, together: int) -> list[Pair]:
    which, where = randomness.rng(split_seed(blobs.seed, split), 1).fold(together).split(2)
    weights = torch.tensor(blobs.weights, dtype=torch.float64)
    u = which.uniform(_TOGETHER)[0]
    blob = randomness.sample_categorical(weights.log().expand(_TOGETHER, -1), u)
    means, stds = (torch.tensor(v, dtype=torch.float64)[blob] for v in (blobs.means, blobs.stds))
    points = means + stds[:, None] * where.normal(_TOGETHER, means.shape[1])[0]
    return [Pair(str(k), format_point(p)) for k, p in zip(blob.tolist(), points.tolist(), strict=True)]
