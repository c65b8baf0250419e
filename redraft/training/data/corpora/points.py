"""Points in the plane with known density, score and optimal denoiser, to visualize Gaussian diffusion."""

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

_CHUNK = 4096  # points drawn at a time


@dataclass(frozen=True)
class GaussianMixtureCorpus(AnnotatedCorpus):
    """Points of a mixture of isotropic Gaussians, written as "-1.204 +0.731"; the class of a point is its component.

    The default is three well-separated components with different weights and widths.
    """

    means: tuple[tuple[float, ...], ...] = ((-1.5, -0.5), (1.0, 1.0), (0.5, -1.5))
    stds: tuple[float, ...] = (0.2, 0.3, 0.15)
    weights: tuple[float, ...] = (0.5, 0.3, 0.2)
    seed: int = 0
    text_unit = "point"

    def __post_init__(self) -> None:
        widths = {len(mean) for mean in self.means}
        if not len(self.means) == len(self.stds) == len(self.weights) or len(widths) != 1 or 0 in widths:
            raise ValueError(f"each component needs a mean, all of the same dimension, a std and a weight; got {self}")
        if min(self.stds) <= 0 or min(self.weights) < 0 or not math.isclose(sum(self.weights), 1):
            raise ValueError(
                f"stds={self.stds}, weights={self.weights}; stds must be above 0 and weights must sum to 1"
            )

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(str(index) for index in range(len(self.means)))

    def document(self, split: Split, index: int) -> str:
        return self.pair(split, index).target

    def pair(self, split: Split, index: int) -> Pair:
        """Returns the index of a component and a point drawn from it."""
        chunk, position = divmod(index, _CHUNK)
        return _draw_chunk(self, split, chunk)[position]

    def log_prob(self, text: str) -> float:
        """Returns log p of a written point: density times cell size, accurate to 10⁻⁴ since cells are small."""
        point = parse_point(text)
        if point is None or len(point) != len(self.means[0]):
            return -math.inf
        x = torch.tensor(point, dtype=torch.float64)
        return float(self._log_density(x)) + len(point) * math.log(CELL_SIZE)

    def judge(self, text: str) -> Judgment:
        log_prob = self.log_prob(text)
        return Judgment(log_prob, len(text) if log_prob > -math.inf else 0)

    def entropy_per_char(self) -> float:
        """Returns nats per character, by numerical integration over each component."""
        width = len(self.means[0])
        unit = torch.linspace(-6, 6, 41, dtype=torch.float64)
        grid = torch.cartesian_prod(*[unit] * width).view(-1, width)
        weight = (-grid.square().sum(-1) / 2).softmax(-1)
        components = zip(self.means, self.stds, self.weights, strict=True)
        nats = -sum(w * (weight @ self._log_density(torch.tensor(m) + s * grid)) for m, s, w in components)
        return (float(nats) - width * math.log(CELL_SIZE)) / point_length(width)

    def _log_density(self, x: torch.Tensor) -> torch.Tensor:
        """(…, D) points → (…) log-density."""
        means, stds, weights = (torch.tensor(v, dtype=torch.float64) for v in (self.means, self.stds, self.weights))
        distance = ((x[..., None, :] - means) / stds[:, None]).square().sum(-1) / 2
        return (weights.log() - distance - means.shape[1] * (stds * math.sqrt(2 * math.pi)).log()).logsumexp(-1)


@lru_cache(16)
def _draw_chunk(corpus: GaussianMixtureCorpus, split: Split, chunk: int) -> list[Pair]:
    """Draws the pairs of one chunk."""
    for_component, for_point = randomness.rng(split_seed(corpus.seed, split), 1).fold(chunk).split(2)
    weights = torch.tensor(corpus.weights, dtype=torch.float64)
    u = for_component.uniform(_CHUNK)[0]
    component = randomness.sample_categorical(weights.log().expand(_CHUNK, -1), u)
    means, stds = (torch.tensor(v, dtype=torch.float64)[component] for v in (corpus.means, corpus.stds))
    points = means + stds[:, None] * for_point.normal(_CHUNK, means.shape[1])[0]
    return [Pair(str(k), format_point(p)) for k, p in zip(component.tolist(), points.tolist(), strict=True)]
