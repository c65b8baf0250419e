"""Held-out text: how likely a model finds it, and how far that is from the truth where the truth is known.

Every row draws from its own key, (seed, number of the row), so no figure depends on the batch size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from redraft.core import randomness
from redraft.core.batch import Batch
from redraft.core.prediction import Prediction
from redraft.core.processes.gaussian import Gaussian
from redraft.core.randomness import Rng
from redraft.core.text.tokenizers import Tokenizer
from redraft.models.diffusion_lm import DiffusionLM, inference
from redraft.training.data.framing import DocumentRows, Framing
from redraft.training.data.loader import first_batches, load_rows
from redraft.training.data.sources import Corpus, InfiniteCorpus, KnownDistribution, Split
from redraft.training.objectives.losses import Bound
from redraft.training.objectives.objective import Objective
from redraft.training.objectives.time_samplers import StratifiedTimes

NATS_PER_BIT = math.log(2)  # nats
_CHAIN = 1000  # steps of the bound where noise has none in continuous time: the published protocol


@dataclass(frozen=True)
class Likelihood:
    """−log p of N rows: an upper bound, or the exact value of a causal model, with its Monte-Carlo error.

    The error comes from two estimates of each row, so it does not include the differences between rows.
    """

    row_nats: Tensor  # (N,) float64
    row_variance: Tensor  # (N,) float64, Monte-Carlo variance of row_nats, itself a rough estimate; zero if exact
    row_tokens: Tensor  # (N,) learnt tokens, end tokens included
    row_chars: Tensor  # (N,) characters of the learnt tokens' text; zero if unknown
    row_bytes: Tensor  # (N,) the same in bytes of UTF-8

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
    def perplexity(self) -> float:
        """exp(nats per token)"""
        return 2.0**self.bits_per_token

    @property
    def relative_error(self) -> float:
        """Standard error as a share of the value: the same for bits per token, character and byte."""
        return float(self.row_variance.sum().sqrt() / self.row_nats.sum())

    @property
    def bits_per_token_stderr(self) -> float:
        return self.relative_error * self.bits_per_token

    @property
    def bits_per_char_stderr(self) -> float:
        return self.relative_error * self.bits_per_char

    @property
    def stderr(self) -> float:
        """Standard error of `bits_per_token`, and of nothing else: prefer the names that say their unit."""
        return self.bits_per_token_stderr

    def row_error(self, unit: Literal["token", "char"]) -> float:
        """Standard error of the bits per token or character over another choice of rows and noise: that of a ratio."""
        counts = self.row_tokens if unit == "token" else self.row_chars
        bits, rows = self.row_nats / NATS_PER_BIT, len(self.row_nats)
        apart = bits - bits.sum() / counts.sum() * counts
        return float(apart.var().sqrt() * math.sqrt(rows) / counts.sum()) if rows > 1 else math.nan

    def _bits_per(self, unit: str, counts: Tensor) -> float:
        if not int(counts.sum()):
            raise ValueError(
                f"the rows have no {unit} to learn; if they do, pass texts=, or give the model a tokenizer"
            )
        return float(self.row_nats.sum()) / NATS_PER_BIT / int(counts.sum())


def likelihood(
    model: DiffusionLM,
    batches: Iterable[Batch],
    *,
    draws: int = 4,
    seed: int = 0,
    texts: Sequence[str] | None = None,
    bound: Bound | None = None,
) -> Likelihood:
    """An upper bound of −log p for each row by Monte Carlo; if the network is causal, exactly −log p at one call.

    Every row is estimated twice; the difference gives the error. The process chooses the estimate: mask noise counts
    hidden tokens, other noise draws stratified times.

    Args:
        model: the model to measure; it is put into evaluation mode meanwhile
        batches: held-out rows, such as `first_batches(rows, count)` makes
        draws: strata of noise levels, each costing one network call per estimate; more give a smaller error
        seed: seed of the noise; a row draws from (seed, its number), whatever its batch
        texts: the text of each row, to count characters and bytes; None: decode the tokens
        bound: another bound to estimate, always at stratified times, such as `Bound(steps=1000)`; None: the process
            decides, and noise that has a bound only as a chain of steps is measured with 1000 of them
    """
    if draws < 1:
        raise ValueError(f"draws={draws}; the bound needs at least one stratum of noise levels")
    parts, rows = [], 0
    with inference(model) as device:
        for batch in batches:
            before, rows = rows, rows + len(batch.tokens)
            sample = torch.arange(before, rows) if batch.sample is None else batch.sample
            batch, keys = model.learnable(batch.to(device)), randomness.rng(seed, sample.to(device))
            nats = _twice(model, batch, keys, draws, bound).cpu().double()
            said = target_texts(model, batch) if texts is None else texts[before:rows]
            parts.append((nats.mean(0), nats.var(0) / 2, batch.learn.sum(-1).cpu(), *_extent(said)))
    if not rows or (texts is not None and len(texts) != rows):
        raise ValueError(
            f"{rows} rows and {0 if texts is None else len(texts)} texts; give rows, and all texts or none"
        )
    return Likelihood(*map(torch.cat, zip(*parts, strict=True)))


def scored_positions(model: DiffusionLM, batch: Batch) -> Tensor:
    """(B, L) bool: learnt tokens up to the first end token, inclusive; what follows it is known"""
    eos = model.config.vocab.eos
    ends = torch.zeros_like(batch.learn) if eos is None else batch.tokens == eos
    return batch.learn & (ends.cumsum(-1) - ends.long() == 0)


def reconstruction_accuracy(model: DiffusionLM, batches: Iterable[Batch]) -> float:
    """The share of told tokens that survive a model's codec: encoded and decoded, without noise."""
    if model.codec is None:
        raise ValueError("this model has no codec: its process works on tokens")
    right, count = 0, 0
    with inference(model) as device:
        for batch in (b.to(device) for b in batches):
            ids = model.codec.decode(model.codec.encode(batch.tokens, batch.pad))[:, : batch.tokens.shape[1]]
            where = scored_positions(model, batch)
            right, count = right + int((ids == batch.tokens)[where].sum()), count + int(where.sum())
    return right / max(1, count)


def best_token_bound(
    model: DiffusionLM,
    batches: Sequence[Batch],
    ends: Sequence[float] = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0),
    *,
    draws: int = 4,
    seed: int = 0,
) -> tuple[float, Likelihood]:
    """The best bound of a model of vectors over the end of its diffusion: a log-SNR, and the likelihood with it.

    x̂ is compared with x more and more strictly as noise vanishes, although a codec could name the tokens long before.
    The generative model z ~ p at log-SNR `end`, w ~ p(w | z) is a model of text for every end; choose the end on other
    text than you report.
    """
    ended = {end: likelihood(with_final_logsnr(model, end), batches, draws=draws, seed=seed) for end in ends}
    return min(ended.items(), key=lambda item: float(item[1].row_nats.sum()))


def with_final_logsnr(model: DiffusionLM, logsnr: float) -> DiffusionLM:
    """The same model, sharing its weights, whose diffusion ends at this log-SNR; the codec decodes from there."""
    process = model.process
    if not isinstance(process, Gaussian):
        raise ValueError(f"only Gaussian noise can end elsewhere, not {type(process).__name__}")
    other = copy(model)
    other.config = replace(model.config, process=replace(process, path=process.path.ending(logsnr)))
    return other


def _twice(model: DiffusionLM, batch: Batch, keys: Rng, draws: int, bound: Bound | None) -> Tensor:
    """(2, B) two independent estimates in nats; for a causal network the exact value, twice."""
    if bound is None and not model.process.continuous:
        bound = Bound(steps=_CHAIN)
    sight, halves = _HeldOutBatch(model, batch, bound or Bound()), keys.split(2)
    if bound is not None:
        return torch.stack([sight.by_time(draws, rng=half) for half in halves])
    return model.process.estimates(sight, draws, rngs=halves)


@dataclass(frozen=True)
class _HeldOutBatch:
    """A batch as a process needs it to estimate its bound."""

    model: DiffusionLM
    batch: Batch
    bound: Bound

    @property
    def block(self) -> int | None:
        return self.model.block

    def predict(self, z: Tensor, t: Tensor) -> Prediction:
        return self.model(z, t, self.model.context(self.batch))

    def by_time(self, strata: int, *, rng: Rng) -> Tensor:
        """(B,) the bound of any process, at a time in each of K equal strata.

        The last of T steps gives x itself, and a step drawn among T would hardly ever be that one: it is always
        measured, and the strata are those of the others. With as many strata as other steps nothing is left to chance
        but z.
        """
        T, power = self.bound.steps, self.model.process.time_power
        if T is None:
            return self._drawn(StratifiedTimes(block=self.model.block, power=power), strata, rng=rng)
        last = self._drawn(StratifiedTimes(0, 1 / T, self.model.block), 1, rng=rng.fold(strata)) / T
        if T == 1:
            return last
        return last + (1 - 1 / T) * self._drawn(StratifiedTimes(1 / T, 1, self.model.block), strata, rng=rng)

    def _drawn(self, times: StratifiedTimes, strata: int, *, rng: Rng) -> Tensor:
        """(B,) the mean of the bound over times, one in each stratum.

        In turn k `StratifiedTimes` puts row i into stratum (k + i) mod K; the row's key depends on the stratum, so after all
        turns the row's place in its batch does not matter.
        """
        objective, row = Objective(self.bound, times), torch.arange(len(self.batch.tokens))
        turns = [(replace(self.batch, first=k, total=strata), (row + k) % strata) for k in range(strata)]
        nats = [objective(self.model, part, rng=rng.fold(stratum.to(rng.key.device))).nats for part, stratum in turns]
        return torch.stack(nats).mean(0)


def _extent(texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Characters and bytes of some texts."""
    sizes = [len(text.encode("utf-8", "surrogateescape")) for text in texts]
    return torch.tensor([len(text) for text in texts]), torch.tensor(sizes)


def target_texts(model: DiffusionLM, batch: Batch) -> list[str]:
    """The text of the learnt tokens of each row; empty if there is no tokenizer."""
    rows = [x[learn].tolist() for x, learn in zip(batch.tokens, batch.learn, strict=True)]
    return ["" if model.tokenizer is None else model.tokenizer.decode(row) for row in rows]


def excess_bits(found: Likelihood, log_probs: Sequence[float]) -> tuple[float, float]:
    """Bits per character above the truth, and their standard error, for rows whose true log p (nats) is known.

    Paired: R = Σ d_i / Σ c_i with d_i = nats_i + log p_i and c_i characters, so differences between rows in likelihood
    cancel. The error is that of a ratio, from the spread of d_i − R·c_i: how R would change with other rows and draws.
    """
    truth, chars, rows = torch.tensor(log_probs, dtype=torch.float64), found.row_chars, len(found.row_nats)
    if len(truth) != rows or not bool(truth.isfinite().all() & (chars > 0).all()):
        raise ValueError(f"got {len(truth)} log-probabilities for {rows} rows; each row needs a finite one and a text")
    over = found.row_nats + truth
    ratio = over.sum() / chars.sum()
    spread = (over - ratio * chars).var() if rows > 1 else torch.tensor(torch.nan)  # one row has no spread
    error = (spread * rows).sqrt() / chars.sum()
    return float(ratio) / NATS_PER_BIT, float(error) / NATS_PER_BIT


class TrueProbabilities(NamedTuple):
    """The true probabilities of held-out rows, from a source of known distribution."""

    log_probs: list[float]  # of each row, in nats
    entropy_per_char: float  # of the source, in nats


@dataclass(frozen=True)
class HeldOut:
    """Rows to measure a model on, and their true probabilities."""

    batches: list[Batch]
    truth: TrueProbabilities | None = None  # None if unknown

    @classmethod
    def of(
        cls, data: Corpus | InfiniteCorpus, split: Split, tokenizer: Tokenizer, framing: Framing, count: int
    ) -> HeldOut:
        """The first `count` rows of a split. The truth is known if the source knows it and no row is cut."""
        rows = load_rows(data, split, tokenizer, framing)
        batches = first_batches(rows, count)
        total = sum(len(batch.tokens) for batch in batches)
        if not isinstance(data, KnownDistribution) or not isinstance(framing, DocumentRows) or rows.tally.cut:
            return cls(batches)
        log_probs = [data.log_prob(data.document(split, index)) for index in range(total)]
        return cls(batches, TrueProbabilities(log_probs, data.entropy_per_char()))
