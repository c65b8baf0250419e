"""What else might have been written: the likeliest tokens at each place at the moment its token was drawn.

They come from the very prediction that the token was drawn from, filters and rules included, so keeping them asks the
network nothing more and changes no text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Denoiser, DenoiserWrapper, Draw, GapPrediction, Prediction, VectorPrediction
from redraft.core.processes.interpolating import GuidedPosterior
from redraft.core.randomness import Rng
from redraft.core.text.tokenizers import Tokenizer
from redraft.decoding.samplers.base import Sampler, sampler_layers
from redraft.decoding.samplers.guided import GuidedSampler, PromptGuidedSampler

_TopTokens = tuple[tuple[int, float], ...]  # tokens and their probabilities, the likeliest first


class LogprobRecorder:
    """The `count` likeliest tokens at each place of one row; a guidance that only listens.

    Places must stay where they are: for models that insert tokens or write vectors there are none.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.top: dict[int, _TopTokens] = {}  # by column, from the prediction of its last change
        self.fresh: dict[int, _TopTokens] = {}  # of the tokens that the last canvas brought
        self.entropy_bits: dict[int, float] = {}  # by column, the entropy of that prediction
        self._said: list[tuple[list[int], Tensor]] = []  # columns and log-weights since the last canvas
        self._joint: tuple[Prediction, list[int]] | None = None  # one that remembers its answers, and its columns
        self._before: Tensor | None = None

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return _Listening(denoise, self)

    def wrap(self, sampler: Any) -> Sampler:
        """The sampler with this inside of all its guidance, where it hears what tokens are drawn from."""
        if any(isinstance(part, GuidedSampler | PromptGuidedSampler) for part in sampler_layers(sampler)):
            inner: Sampler = replace(sampler, sampler=self.wrap(sampler.sampler))
            return inner
        return GuidedSampler(sampler, self)

    def record(self, where: Tensor, place: Tensor | None, log_x: Tensor) -> None:
        """(1, L) bool, (1, L) columns of the row, (N, V) what was said there."""
        if len(where) == 1:
            columns = where[0].nonzero().flatten() if place is None else place[0][where[0]]
            self._said.append((columns.tolist(), log_x))

    def record_joint(self, pred: Prediction, z: Tensor, place: Tensor | None) -> None:
        """A prediction under rules, which can be asked again without the network."""
        if len(z) == 1:
            self._joint = pred, list(range(z.shape[1])) if place is None else place[0].tolist()

    def observe(self, canvas: Canvas) -> None:
        """The next canvas: tokens that changed were drawn from what was said last at their places."""
        said, before, z = self._said, self._before, canvas.z
        joint, self._joint, self._said, self._before, self.fresh = self._joint, None, [], z, {}
        if z.dim() == 3 or canvas.open is not None or before is None or z.shape != before.shape:
            return
        changed = set(((z != before) & ~canvas.fixed)[0].nonzero().flatten().tolist())
        if joint is not None and (where := torch.tensor([[column in changed for column in joint[1]]])).any():
            said = [([column for column in joint[1] if column in changed], joint[0].at(where.to(z.device)))]
        for columns, log_x in reversed(said):
            found = [i for i, column in enumerate(columns) if column in changed]
            self.fresh |= {columns[i]: self._best(log_x[i]) for i in found}
            self.entropy_bits |= {columns[i]: _entropy(log_x[i]) for i in found}
            changed -= {columns[i] for i in found}
        self.top |= self.fresh

    def alternatives(self, column: int, tokenizer: Tokenizer) -> tuple[tuple[str, float], ...] | None:
        """The alternatives of a place as text, "" for the end of the text; None if nothing was written there."""
        top = self.top.get(column)
        return None if top is None else tuple((tokenizer.decode([token]), p) for token, p in top)

    def _best(self, log_x: Tensor) -> _TopTokens:
        p, tokens = log_x.float().softmax(-1).topk(min(self.count, len(log_x)))
        return tuple(
            (token, round(share, 6)) for token, share in zip(tokens.tolist(), p.tolist(), strict=True) if share
        )


def _entropy(log_x: Tensor) -> float:
    """In bits."""
    return round(float(ops.entropy(log_x.float().log_softmax(-1))) / math.log(2), 4)


@dataclass(frozen=True)
class _Listening(DenoiserWrapper):
    """A denoiser whose predictions are overheard."""

    log: LogprobRecorder

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        pred = self.denoise(z, t, context)
        if isinstance(pred, VectorPrediction) or (isinstance(pred, GuidedPosterior) and pred.steers):
            return pred
        if pred.joint:
            self.log.record_joint(pred, z, context.place)
            return pred
        return _RecordedPrediction(pred, self.log, context.place)


@dataclass(frozen=True, eq=False)
class _RecordedPrediction(Prediction):
    """A prediction that tells a log what it was asked and what it said."""

    inner: Prediction
    log: LogprobRecorder
    place: Tensor | None

    @property
    def normalised(self) -> bool:
        return self.inner.normalised

    @property
    def x(self) -> Tensor:
        found = self.inner.x
        self.log.record(torch.ones(found.shape[:2], dtype=torch.bool), self.place, found[0])
        return found

    def at(self, where: Tensor) -> Tensor:
        found = self.inner.at(where)
        self.log.record(where, self.place, found)
        return found

    def draw(self, where: Tensor, *, rng: Rng, temperature: float = 1.0) -> Draw:
        found = self.inner.draw(where, rng=rng, temperature=temperature)
        self.log.record(where, self.place, found.log_x)
        return found

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        return self.inner.nll(where, target)

    @property
    def gaps(self) -> GapPrediction:
        return self.inner.gaps
