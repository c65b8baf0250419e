"""Fills a hole with a word of unknown length: proposes words of several lengths, judged with the text on both sides.

For each length, a beam search extends the text before the hole with the causal model that an adapter was trained on.
Its rank adds log q, what the adapted model, which sees both sides, predicts at each position in one pass with the whole
hole masked. The best fillings of all lengths are then compared by log q plus log p of the filling and the text after it
under the causal model, as ProposeAndJudge compares fillings of one length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from redraft.core import ops, randomness
from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.processes.masked import Masked
from redraft.core.randomness import Rng
from redraft.decoding.samplers.base import Sampler
from redraft.models.causal_base import causal_base
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.networks.kv_cache import KeyValueCache
from redraft.tasks.infilling.propose_and_judge import _fill_row

_BEAM = 16
_JUDGED = 8  # fillings of each length that are judged
_AFTER = 16  # tokens after the hole that a filling is judged by


class _Filling(NamedTuple):
    """A way to fill a hole."""

    ids: tuple[int, ...]
    score: float  # log q of the filling plus log p of it and the text after it under the causal model


class _Beam(NamedTuple):
    """Fillings up to some position."""

    ids: Tensor  # (K, N)
    rank: Tensor  # (K,) causal log p plus the adapted model's log-probabilities
    states: Tensor  # (K, D) causal states that predict the next token
    cache: KeyValueCache


@dataclass(frozen=True, eq=False)
class _WordSearch:
    """A hole between two parts of a text, filled by an adapted model."""

    lm: DiffusionLM
    left: Sequence[int]
    right: Sequence[int]
    accepts: Callable[[str], bool]  # whether a filling's text may stand in the hole

    @torch.no_grad()
    def best(self, lengths: Sequence[int]) -> list[_Filling]:
        """The judged fillings of all lengths, best first; none if no proposal is accepted."""
        device = next(self.lm.parameters()).device
        start = self._causal.network.extend(torch.tensor([list(self.left)], device=device))
        proposed = [proposal for length in lengths for proposal in self._propose(start, length)]
        if not proposed:
            return []
        log_p = self._judge(start, [ids for ids, _ in proposed])
        fillings = [_Filling(ids, log_q + own) for (ids, log_q), own in zip(proposed, log_p, strict=True)]
        return sorted(fillings, key=lambda filling: -filling.score)

    @property
    def _causal(self) -> DiffusionLM:
        return causal_base(self.lm)

    def _propose(self, start: tuple[Tensor, KeyValueCache], length: int) -> list[tuple[tuple[int, ...], float]]:
        """The accepted fillings of one length with the highest ranks, and log q of each."""
        log_q = self._both_sides(length)
        beam = _Beam(start[0].new_zeros(1, 0).long(), log_q.new_zeros(1), start[0][:, -1], start[1])
        for position in range(length):
            beam = self._extend(beam, log_q[position], last=position == length - 1)
        decode = self.lm.tokenizer.decode if self.lm.tokenizer else str
        accepted = [tuple(row) for row in beam.ids.tolist() if self.accepts(decode(row))]
        positions = torch.arange(length)
        return [(row, float(log_q[positions, list(row)].sum())) for row in accepted[:_JUDGED]]

    def _extend(self, beam: _Beam, log_q: Tensor, last: bool) -> _Beam:
        log_p = self._causal.network.logits(beam.states).double().log_softmax(-1)
        rank, at = (beam.rank[:, None] + log_p + log_q[: log_p.shape[-1]]).flatten().topk(_BEAM)
        row, token = at // log_p.shape[-1], at % log_p.shape[-1]
        ids = torch.cat([beam.ids[row], token[:, None]], 1)
        if last:
            return beam._replace(ids=ids, rank=rank)
        states, cache = self._causal.network.extend(token[:, None], beam.cache.rows(row))
        return _Beam(ids, rank, states[:, -1], cache)

    def _both_sides(self, length: int) -> Tensor:
        """(length, V) log-probabilities of the adapted model at each position of a hole, all of it masked."""
        process = self.lm.process.narrowed(Masked, "filling holes", "use a masked model")
        mask = process.vocab.masked
        z = torch.tensor([[*self.left, *[mask] * length, *self.right]], device=next(self.lm.parameters()).device)
        hidden = z == mask
        t = torch.where(hidden, process.time_when_masked(hidden.double().mean(-1, keepdim=True)), 0.0)
        return self.lm.predict(z, t, Context()).at(hidden).double()

    def _judge(self, start: tuple[Tensor, KeyValueCache], fillings: Sequence[tuple[int, ...]]) -> list[float]:
        """log p of each filling and the text after it."""
        rows = [[*ids, *self.right[:_AFTER]] for ids in fillings]
        width, network = max(map(len, rows)), self._causal.network
        z = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=start[0].device)
        states, _ = network.extend(z[:, :-1], start[1].rows(torch.zeros(len(z), dtype=torch.int64, device=z.device)))
        states = torch.cat([start[0][:, -1:].expand(len(z), -1, -1), states], 1)
        nats = ops.nll(network.logits(states.flatten(0, 1)), z.flatten()).view(z.shape).double()
        return [-float(nats[i, : len(row)].sum()) for i, row in enumerate(rows)]


@dataclass(frozen=True, eq=False)
class _KnownFillings(Sampler):
    """Writes one of several known fillings of a row: the best, or drawn with weights (q·p)^(1/temperature)."""

    fillings: tuple[_Filling, ...]
    temperature: float = 0.0
    writes_once = draws_exactly = False

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        canvas = process.prior(canvas, rng=rng)
        yield canvas
        scores = torch.tensor([filling.score for filling in self.fillings], device=canvas.z.device).double()
        for row in range(len(canvas.z)):
            index = torch.tensor([row], device=canvas.z.device)
            best = self._choose(scores, rng.rows(index))
            z = canvas.z[row].clone()
            z[~canvas.fixed[row]] = torch.tensor(self.fillings[best].ids, dtype=z.dtype, device=z.device)
            canvas = _fill_row(canvas, index, z, scores.log_softmax(-1)[best].expand(len(z)))
            yield canvas

    def _choose(self, scores: Tensor, rng: Rng) -> int:
        if not self.temperature:
            return int(scores.argmax())
        weights = (scores / self.temperature).log_softmax(-1)[None]
        return int(randomness.sample_categorical(weights, rng.once().squeeze(1)))

    def describe(self) -> str:
        return "fillings, judged by the causal model with the text on both sides"
