"""The most likely tokens at each position when its token was drawn: alternatives, as in OpenAI's `top_logprobs`.

They come from the prediction the token was drawn from, after filters and rules. Recording them therefore makes no
network calls and changes no text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Denoiser, DenoiserWrapper, Draw, GapPrediction, Prediction
from redraft.core.randomness import Rng
from redraft.core.text.tokenizers import Tokenizer
from redraft.decoding.guidance.base import Guidance
from redraft.decoding.samplers.base import Sampler
from redraft.decoding.samplers.guided import GuidedSampler

_TopTokens = tuple[tuple[int, float], ...]  # tokens and their probabilities, most likely first


class LogprobRecorder(Guidance):
    """Records the `count` most likely tokens at each position of one row; a guidance that changes nothing.

    Positions must not move, so it records nothing for models that insert tokens or sample vectors.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.top: dict[int, _TopTokens] = {}  # column → alternatives from the prediction of its last change
        self.fresh: dict[int, _TopTokens] = {}  # column → alternatives of tokens that are new in the last canvas
        self.entropy_bits: dict[int, float] = {}  # column → entropy of the prediction of its last change
        self._log_weights: list[tuple[list[int], Tensor]] = []  # columns and log-weights since the last canvas
        self._joint: tuple[Prediction, list[int]] | None = None  # newest joint prediction and its columns
        self._before: Tensor | None = None

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return _RecordedDenoiser(denoise, self)

    def wrap(self, sampler: Sampler) -> Sampler:
        """The sampler with this recorder inside all its guidance, where it sees what tokens are drawn from."""
        return sampler.inside_guidance(lambda inner: GuidedSampler(inner, self))

    def record(self, where: Tensor, position: Tensor | None, log_x: Tensor) -> None:
        """Stores the log-weights (N, V) predicted where a (1, L) mask is true; `position` is (1, L)."""
        if len(where) == 1:
            columns = where[0].nonzero().flatten() if position is None else position[0][where[0]]
            self._log_weights.append((columns.tolist(), log_x))

    def record_joint(self, pred: Prediction, z: Tensor, position: Tensor | None) -> None:
        """Stores a joint prediction under rules, which can be queried again without a network call."""
        if len(z) == 1:
            self._joint = pred, list(range(z.shape[1])) if position is None else position[0].tolist()

    def observe(self, canvas: Canvas) -> None:
        """Takes the next canvas: a changed token was drawn from the newest prediction at its position."""
        log_weights, before, z = self._log_weights, self._before, canvas.z
        joint, self._joint, self._log_weights, self._before, self.fresh = self._joint, None, [], z, {}
        if z.dim() == 3 or canvas.open is not None or before is None or z.shape != before.shape:
            return
        changed = set(((z != before) & ~canvas.fixed)[0].nonzero().flatten().tolist())
        if joint is not None and (where := torch.tensor([[column in changed for column in joint[1]]])).any():
            log_weights = [([column for column in joint[1] if column in changed], joint[0].at(where.to(z.device)))]
        for columns, log_x in reversed(log_weights):
            new = [i for i, column in enumerate(columns) if column in changed]
            self.fresh |= {columns[i]: self._best(log_x[i]) for i in new}
            self.entropy_bits |= {columns[i]: _entropy_bits(log_x[i]) for i in new}
            changed -= {columns[i] for i in new}
        self.top |= self.fresh

    def alternatives(self, column: int, tokenizer: Tokenizer) -> tuple[tuple[str, float], ...] | None:
        """The alternatives at a position as text, "" for the end of the text; None if nothing was written there."""
        top = self.top.get(column)
        return None if top is None else tuple((tokenizer.decode([token]), p) for token, p in top)

    def _best(self, log_x: Tensor) -> _TopTokens:
        p, tokens = log_x.float().softmax(-1).topk(min(self.count, len(log_x)))
        return tuple(
            (token, round(value, 6)) for token, value in zip(tokens.tolist(), p.tolist(), strict=True) if value
        )


def _entropy_bits(log_x: Tensor) -> float:
    return round(float(ops.entropy(log_x.float().log_softmax(-1))) / math.log(2), 4)


@dataclass(frozen=True)
class _RecordedDenoiser(DenoiserWrapper):
    """A denoiser whose predictions are recorded."""

    recorder: LogprobRecorder

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        pred = self.denoise.predict(z, t, context)
        if pred.vectors is not None or pred.steers:
            return pred
        if pred.joint:
            self.recorder.record_joint(pred, z, context.positions)
            return pred
        return _RecordedPrediction(pred, self.recorder, context.positions)


@dataclass(frozen=True, eq=False)
class _RecordedPrediction(Prediction):
    """A prediction whose queries and results are recorded."""

    inner: Prediction
    recorder: LogprobRecorder
    position: Tensor | None

    @property
    def normalized(self) -> bool:
        return self.inner.normalized

    @property
    def x(self) -> Tensor:
        log_x = self.inner.x
        self.recorder.record(torch.ones(log_x.shape[:2], dtype=torch.bool), self.position, log_x[0])
        return log_x

    def at(self, where: Tensor) -> Tensor:
        log_x = self.inner.at(where)
        self.recorder.record(where, self.position, log_x)
        return log_x

    def draw(self, where: Tensor, *, rng: Rng, temperature: float = 1.0) -> Draw:
        draw = self.inner.draw(where, rng=rng, temperature=temperature)
        self.recorder.record(where, self.position, draw.log_x)
        return draw

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        return self.inner.nll(where, target)

    @property
    def gaps(self) -> GapPrediction:
        return self.inner.gaps
