"""A pick by a critic: the positions whose tokens a critic finds most likely correct."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Prediction
from redraft.core.processes.masked import Pick, PickResult
from redraft.core.randomness import Rng
from redraft.decoding.picks.order import _share_count, require_temperature, round_scores


@dataclass(frozen=True)
class CriticPick(Pick):
    """The fraction `share` of the masked positions (rounded up) that a critic finds least likely to be wrong.

    A token is drawn for every masked position, and the critic reads the whole text, at one more network call per step.
    The critic may be the model's own error head (`presets.gstar_tiny`): `ErrorCritic(model)`. With `remask`, written
    tokens that are not given compete with the new ones in each step, so they may be masked again (Peng et al. 2025,
    "P2").
    """

    critic: Critic
    remask: bool = False
    temperature: float = 0.0
    draws_exactly = False  # the critic judges the drawn tokens

    def __post_init__(self) -> None:
        require_temperature(self.temperature)

    @property
    def writes_once(self) -> bool:
        return not self.remask

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        if not ops.to_numpy(hidden).any():
            return PickResult.nothing(hidden)
        drawn = pred.draw(hidden, rng=rng, temperature=self.temperature)
        text = canvas.z.masked_scatter(hidden, drawn.tokens())
        scores = round_scores(-self.critic.error_logits(text, canvas.context))
        free = ~canvas.fixed if self.remask else hidden
        count = ops.to_numpy((free & ~hidden).sum(-1)) + _share_count(hidden, share)
        visible = ops.Ranking.of(scores, free).first(count)
        where = hidden & visible
        return PickResult.of(where, drawn, where[hidden])._replace(again=free & ~visible & ~hidden)


class Critic(Protocol):
    """A judge of finished texts, such as the error head of a model."""

    def error_logits(self, x: Tensor, context: Context) -> Tensor:
        """(B, L) logits that each token is wrong."""
        ...
