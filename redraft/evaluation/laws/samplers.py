"""Laws of samplers and picks: what they say about themselves holds, under mask noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from redraft.core.canvas import Context
from redraft.core.prediction import Prediction, TablePrediction
from redraft.core.processes.masked import Masked, Pick
from redraft.core.randomness import rng
from redraft.core.vocab import Vocab
from redraft.decoding.samplers.base import Sampler
from redraft.decoding.samplers.unmask import Unmask
from redraft.evaluation.laws.enumeration import _DRAWS, VOCAB, Oracle, ToyLanguage
from redraft.evaluation.laws.law import P_MIN, Law
from redraft.evaluation.laws.sampling import _blank_canvas, _sampling_p_value

_ROWS, _COLUMNS = 40, 12  # enough for every sampler that changes tokens to do so at least once


@dataclass(frozen=True)
class _RandomDenoiser:
    """A denoiser with random predictions that depend on the position and on the tokens on both sides."""

    vocab: Vocab
    block: int | None = None

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        noise = rng(0).uniform(61 * self.vocab.size)[0].view(61, -1)
        table = -2 * (-noise.log()).log()
        position = torch.arange(z.shape[1]) if context.positions is None else context.positions
        log_x = table[(position * 17 + z.roll(1, -1) * 7 + z.roll(-1, -1) * 13) % 61]
        log_x[..., self.vocab.masked] = -torch.inf
        return TablePrediction(log_x.log_softmax(-1))

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return context


def _pick_laws(pick: Pick) -> Iterator[Law]:
    """Check what a pick says about itself, in a sampler that reveals as few tokens per step as the pick allows."""
    return _laws(Unmask(None, pick), type(pick).__name__)


def _laws(sampler: Sampler, name: str | None = None) -> Iterator[Law]:
    """Check what a sampler says about itself: whether written tokens ever change, and the distribution of texts."""
    name = type(sampler).__name__ if name is None else name
    changed = _count_changed_tokens(sampler)
    if sampler.writes_once:
        yield Law("writes_once: no written token changes", name, changed == 0, changed, 0, "=")
    else:
        yield Law("not writes_once: a written token changes", name, changed > 0, changed, 1, ">=")
    if sampler.draws_exactly:
        p = _joint_p_value(sampler)
        yield Law("draws_exactly: the finest steps reproduce the joint", name, p >= P_MIN, p, P_MIN, ">=")


def _count_changed_tokens(sampler: Sampler) -> int:
    """Count how often a token changes after it was written, in 40 rows of 12 tokens."""
    process, canvas = Masked(Vocab(8, mask=7)), _blank_canvas(_ROWS, _COLUMNS)
    canvases = sampler(_RandomDenoiser(process.vocab), process, canvas, rng=rng(0, _ROWS))
    changes = (((a.z != process.vocab.mask) & (a.z != b.z)).sum() for a, b in pairwise(canvases))
    return int(sum(changes, torch.tensor(0)))


def _joint_p_value(sampler: Sampler) -> float:
    """Return the p-value of a χ² test of a sampler in its finest steps against the joint distribution of a language."""
    toy, process = ToyLanguage.of(), Masked(VOCAB)
    return _sampling_p_value(process, Oracle(toy, process), sampler.slowest(), rng(7, _DRAWS // 4))
