"""A pick by a critic: the positions that another model finds most likely right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Prediction
from redraft.core.processes.masked import PickResult
from redraft.core.randomness import Rng
from redraft.decoding.picks.order import _even_count, require_temperature, round_scores


@dataclass(frozen=True)
class CriticPick:
    """The `share` of the masked positions (rounded up) that a critic finds least likely to be wrong.

    Every masked position is filled in, and the critic reads the whole text: one call of its own per step. It may be the
    error layer of the model itself (`presets.gstar`). With `remask`, all tokens that are not given compete for their
    places at each step, so that one written before may be masked again (Peng et al. 2025, "P2").
    """

    critic: Critic
    remask: bool = False
    temperature: float = 0.0

    def __post_init__(self) -> None:
        require_temperature(self.temperature)

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        if not ops.to_numpy(hidden).any():
            return PickResult.nothing(hidden)
        drawn = pred.draw(hidden, rng=rng, temperature=self.temperature)
        text = canvas.z.masked_scatter(hidden, drawn.tokens())
        scores = round_scores(-self.critic.error_logits(text, canvas.context))
        free = ~canvas.fixed if self.remask else hidden
        kept = ops.Ranking.of(scores, free).first(ops.to_numpy((free & ~hidden).sum(-1)) + _even_count(hidden, share))
        where = hidden & kept
        return PickResult.of(where, drawn, where[hidden])._replace(again=free & ~kept & ~hidden)


@runtime_checkable
class Critic(Protocol):
    """A denoiser that also judges finished texts; `DiffusionLM` with an error layer is one."""

    def error_logits(self, x: Tensor, context: Context) -> Tensor:
        """(B, L) logits that tokens are wrong."""
        ...
