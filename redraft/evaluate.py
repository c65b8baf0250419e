"""Evaluation: how likely a model finds held-out text, what it writes at which cost, and how good that is.

Likelihood goes through objectives and processes, generation through samplers; judgements are pure functions of texts.
Every row draws from a key of its own, (seed, number of the row), so that no figure depends on the batch size.
"""

from __future__ import annotations

import importlib
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from redraft import ops
from redraft.data import Documents, Tally
from redraft.model import DiffusionLM
from redraft.objectives import Bound, Objective, Stratified
from redraft.ops import Rng
from redraft.processes.masked import Masked
from redraft.samplers.base import Sampler, last
from redraft.stories import STORIES, Corpus, split_words
from redraft.types import Batch, Canvas, Vocab

BIT = math.log(2)  # nats


# Likelihood ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Likelihood:
    """−log p of N rows: an upper bound, or the exact value of a causal model, with its Monte-Carlo error.

    The error comes from the spread of the draws *within* rows, so how much rows differ does not enter; it is known
    from two draws on. Characters and bytes are those of the learnt tokens' text, None if nobody can tell it.
    """

    row_nats: Tensor  # (N,) float64
    row_variance: Tensor  # (N,) float64, Monte-Carlo variance of row_nats: zero if exact, nan after a single draw
    row_tokens: Tensor  # (N,) learnt tokens, end signs included
    row_chars: Tensor | None = None  # (N,)
    row_bytes: Tensor | None = None  # (N,) in UTF-8

    @classmethod
    def join(cls, parts: Sequence[Likelihood]) -> Likelihood:
        """All rows of some parts in their order."""
        chars, sizes = [p.row_chars for p in parts], [p.row_bytes for p in parts]
        return cls(
            torch.cat([p.row_nats for p in parts]),
            torch.cat([p.row_variance for p in parts]),
            torch.cat([p.row_tokens for p in parts]),
            None if None in chars else torch.cat(chars),
            None if None in sizes else torch.cat(sizes),
        )

    @property
    def nats(self) -> float:
        """The sum over all rows."""
        return float(self.row_nats.sum())

    @property
    def relative_error(self) -> float:
        """Standard error as a share of the value: the same for nats and for bits per token, character and byte."""
        return float(self.row_variance.sum().sqrt()) / self.nats

    @property
    def bits_per_token(self) -> float:
        return self._bits_per("token", self.row_tokens)

    @property
    def bits_per_char(self) -> float:
        return self._bits_per("character", self.row_chars)

    @property
    def bits_per_byte(self) -> float:
        return self._bits_per("byte", self.row_bytes)

    @property
    def stderr(self) -> float:
        """Standard error of `bits_per_token`."""
        return self.relative_error * self.bits_per_token

    @property
    def perplexity(self) -> float:
        """exp(nats per token)"""
        return 2.0**self.bits_per_token

    def _bits_per(self, unit: str, counts: Tensor | None) -> float:
        if counts is None:
            raise ValueError(f"bits per {unit} need the text of the rows: pass texts=, or give the model a tokenizer")
        if not int(counts.sum()):
            raise ValueError(f"bits per {unit}: the rows have no {unit} to learn")
        return self.nats / BIT / int(counts.sum())


def likelihood(
    model: DiffusionLM,
    batches: Iterable[Batch],
    *,
    draws: int = 3,
    seed: int = 0,
    texts: Sequence[str] | None = None,
    bound: Bound | None = None,
) -> Likelihood:
    """An upper bound of −log p for each row by Monte Carlo; exactly −log p, at one network call, if it is causal.

    A draw is two network calls at mirrored noise levels. Mask noise uses the count form (`_by_count`); other processes,
    or any `bound` that is asked for, stratified times (`_by_time`). `texts` say what the rows' learnt tokens stand for,
    to count characters and bytes; by default these are decoded.
    """
    if draws < 1:
        raise ValueError(f"draws={draws}; a bound takes one draw at least, and its error two")
    parts: list[Likelihood] = []
    rows = 0
    with _evaluating(model) as device:
        for batch in batches:
            before, rows = rows, rows + len(batch.tokens)
            sample = torch.arange(before, rows) if batch.sample is None else batch.sample
            batch = replace(batch, sample=sample).to(device)
            nats = _draws(model, batch, ops.rng(seed, sample.to(device)), draws, bound)
            written = _decoded(model, batch) if texts is None else texts[before:rows]
            parts.append(_summary(nats, batch, written))
    if not rows or (texts is not None and len(texts) != rows):
        raise ValueError(f"{rows} rows and {'no' if texts is None else len(texts)} texts; give each row its text")
    return Likelihood.join(parts)


def _draws(model: DiffusionLM, batch: Batch, keys: Rng, draws: int, bound: Bound | None) -> Tensor:
    """(draws, B) independent estimates in nats; a single exact one of a causal network."""
    if bound is not None or not isinstance(model.process, Masked):
        return torch.stack([_by_time(model, batch, bound or Bound(), keys.fold(i)) for i in range(draws)])
    if model.block == 1:
        return _hidden_nats(model, model.process, batch, batch.learn, torch.ones_like(batch.learn.double()))[None]
    return torch.stack([_by_count(model, model.process, batch, keys.fold(i)) for i in range(draws)])
