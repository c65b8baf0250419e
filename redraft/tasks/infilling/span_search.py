"""Fills a hole of several tokens with fillings that the text after the hole has picked.

For each length, a beam search extends the text before the hole as in `_WordSearch`. A filling that fits the text before
the hole well often does not lead to the text after it, so the last step keeps many fillings. All of them are read with
the first token after the hole, the best of these with a few tokens, and the best of those with as many as `_WordSearch`
judges by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from redraft.core import ops
from redraft.models.networks.kv_cache import KeyValueCache
from redraft.tasks.infilling.word_search import _AFTER, _Beam, _Filling, _WordSearch

_STAGES = ((256, 1), (48, 3), (16, _AFTER))  # fillings that are read, and tokens after the hole that are read with them
_BEAM = 32  # beginnings of fillings
_FEWEST = 4  # the rows are divided among the lengths, but by no more than this
_READ = 64  # rows read at once
_BOTH_SIDES = 0.5  # weight of the adapted model's log-probabilities; those of different lengths are not comparable
_SPARE = 8  # extensions looked at for each that is kept, because some do not begin with the given text


class _Finals(NamedTuple):
    """Whole fillings of one length."""

    ids: Tensor  # (K, N)
    rank: Tensor  # (K,) as in `_Beam`
    score: Tensor  # (K,) rank, and log p of the text after the hole as far as it was read
    row: Tensor  # (K,) row of the cache that holds all tokens but the last

    def best(self, count: int) -> _Finals:
        index = self.score.topk(min(count, len(self.score))).indices
        return _Finals(*(field[index] for field in self))


@dataclass(frozen=True, eq=False)
class _SpanSearch(_WordSearch):
    """A hole for several words between two parts of a text, filled by an adapted model."""

    before: str  # given text that the first tokens of the hole begin with

    @torch.no_grad()
    def best(self, lengths: Sequence[int]) -> list[_Filling]:
        """The judged fillings of all lengths, best first; none if no proposal is accepted."""
        device = next(self.lm.parameters()).device
        start = self._causal.network.extend(torch.tensor([list(self.left)], device=device))
        share = min(len(lengths), _FEWEST)
        weight = _BOTH_SIDES if len(lengths) == 1 else 0.0
        fillings = [filling for length in lengths for filling in self._fillings(start, length, share, weight)]
        return sorted(fillings, key=lambda filling: -filling.score)

    def _fillings(self, start: tuple[Tensor, KeyValueCache], length: int, share: int, weight: float) -> list[_Filling]:
        """The accepted fillings of one length that were read to the end; `weight` is that of log q in their score."""
        log_q = self._both_sides(length)
        beam = _Beam(start[0].new_zeros(1, 0).long(), log_q.new_zeros(1), start[0][:, -1], start[1])
        for position in range(length - 1):
            finals = self._extensions(beam, log_q[position], max(1, _BEAM // share))
            states, cache = self._causal.network.extend(finals.ids[:, -1:], beam.cache.rows(finals.row))
            beam = _Beam(finals.ids, finals.rank, states[:, -1], cache)
        finals = self._extensions(beam, log_q[-1], _STAGES[0][0] // share)
        for rows, after in _STAGES:
            finals = finals.best(max(1, rows // share))
            finals = finals._replace(score=finals.rank + self._log_p_after(finals, beam.cache, self.right[:after]))
        own = log_q.gather(1, finals.ids.T).sum(0)  # log q of each filling
        scores = finals.score - (_BOTH_SIDES - weight) * own
        decode = self.lm.tokenizer.decode if self.lm.tokenizer else str
        pairs = zip(map(tuple, finals.ids.tolist()), scores.tolist(), strict=True)
        return [_Filling(ids, score) for ids, score in pairs if self.accepts(decode(ids))]

    def _extensions(self, beam: _Beam, log_q: Tensor, count: int) -> _Finals:
        """The `count` best extensions by a token whose text may stand in the hole."""
        log_p = self._causal.network.logits(beam.states).double().log_softmax(-1)
        total = (beam.rank[:, None] + log_p + _BOTH_SIDES * log_q[: log_p.shape[-1]]).flatten()
        rank, at = total.topk(min(count * _SPARE, len(total)))
        row, token = at // log_p.shape[-1], at % log_p.shape[-1]
        ids = torch.cat([beam.ids[row], token[:, None]], 1)
        kept = [*islice((i for i, filling in enumerate(ids.tolist()) if self._may_begin(filling)), count)]
        index = torch.tensor(kept or [0], device=ids.device)  # the final check rejects what does not begin right
        return _Finals(ids[index], rank[index], rank[index], row[index])

    def _may_begin(self, ids: Sequence[int]) -> bool:
        """Whether a filling may begin with these tokens: it spells the given text and has no special token."""
        tokenizer = self.lm.tokenizer
        if tokenizer is None:
            return True
        vocab, text = tokenizer.vocab, tokenizer.decode(ids)
        if ids[-1] in (*vocab.ends, vocab.mask) or not tokenizer.piece(ids[-1]):
            return False
        return text.startswith(self.before) or self.before.startswith(text)

    def _log_p_after(self, finals: _Finals, cache: KeyValueCache, after: Sequence[int]) -> Tensor:
        """(K,) log p of these tokens after each filling."""
        targets = torch.tensor([list(after)], device=finals.ids.device)
        log_p = list[Tensor]()
        for ids, row in zip(finals.ids.split(_READ), finals.row.split(_READ), strict=True):
            tokens = torch.cat([ids[:, -1:], targets[:, :-1].expand(len(ids), -1)], 1)
            states, _ = self._causal.network.extend(tokens, cache.rows(row))
            nats = ops.nll(self._causal.network.logits(states.flatten(0, 1)), targets.expand(len(ids), -1).flatten())
            log_p.append(-nats.view(len(ids), -1).double().sum(-1))
        return torch.cat(log_p)
