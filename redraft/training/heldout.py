"""Likelihood of held-out text, and its distance from the true probabilities if the source knows them.

Every row has its own random key, (seed, row index), so no result depends on the batch size.
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

NATS_PER_BIT = math.log(2)
_CHAIN = 1000  # steps of the bound if the process has no continuous-time limit: the published protocol


@dataclass(frozen=True)
class Likelihood:
    """−log p of N rows: an upper bound, or the exact value for a causal model, with its Monte Carlo error.

    The error comes from two estimates of each row, so it does not include the variation between rows.
    """

    row_nats: Tensor  # (N,) float64: bound (or exact value) of each row in nats
    row_variance: Tensor  # (N,) float64, Monte Carlo variance of row_nats, itself a rough estimate; zero if exact
    row_tokens: Tensor  # (N,) learned tokens, end tokens included
    row_chars: Tensor  # (N,) characters in the text of the learned tokens; zero if unknown
    row_bytes: Tensor  # (N,) UTF-8 bytes in the text of the learned tokens; zero if unknown

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
        """Standard error divided by the value; the same for bits per token, character and byte."""
        return float(self.row_variance.sum().sqrt() / self.row_nats.sum())

    @property
    def bits_per_token_stderr(self) -> float:
        return self.relative_error * self.bits_per_token

    @property
    def bits_per_char_stderr(self) -> float:
        return self.relative_error * self.bits_per_char

    @property
    def stderr(self) -> float:
        """Standard error of `bits_per_token` only; prefer the properties that name their unit."""
        return self.bits_per_token_stderr

    def row_error(self, unit: Literal["token", "char"]) -> float:
        """Standard error of the bits per token or character over rows and noise: the error of a ratio estimate."""
        counts = self.row_tokens if unit == "token" else self.row_chars
        bits, rows = self.row_nats / NATS_PER_BIT, len(self.row_nats)
        residual = bits - bits.sum() / counts.sum() * counts
        return float(residual.var().sqrt() * math.sqrt(rows) / counts.sum()) if rows > 1 else math.nan

    def _bits_per(self, unit: str, counts: Tensor) -> float:
        if not int(counts.sum()):
            raise ValueError(
                f"the rows have no {unit} to learn; if they should, pass texts= or give the model a tokenizer"
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
    """Monte Carlo upper bound on −log p of each row; for a causal network the exact −log p, in one network call.

    Every row is estimated twice; the difference gives the error. The process chooses the estimator: mask noise
    stratifies the number of masked tokens, other noise stratifies times.

    Args:
        model: the model to measure; in evaluation mode during the call
        batches: held-out rows, for example from `first_batches(rows, count)`
        draws: strata of noise levels, each costing one network call per estimate; more give a smaller error
        seed: seed of the noise; a row's key is (seed, its index), whatever batch it is in
        texts: the text of each row, to count characters and bytes; None to decode the tokens
        bound: another bound to estimate, always at stratified times, such as `Bound(steps=1000)`; None lets the process
            choose, with a chain of 1000 steps if the process has no continuous-time bound
    """
    if draws < 1:
        raise ValueError(f"draws={draws}; the bound needs at least one stratum of noise levels")
    parts, rows = [], 0
    with inference(model) as device:
        for batch in batches:
            before, rows = rows, rows + len(batch.tokens)
            sample = torch.arange(before, rows) if batch.origin.sample is None else batch.origin.sample
            batch, keys = model.config.learnable(batch.to(device)), randomness.rng(seed, sample.to(device))
            nats = _twice(model, batch, keys, draws, bound).cpu().double()
            row_texts = target_texts(model, batch) if texts is None else texts[before:rows]
            counts = _char_and_byte_counts(row_texts)
            parts.append((nats.mean(0), nats.var(0) / 2, batch.learn.sum(-1).cpu(), *counts))
    if not rows or (texts is not None and len(texts) != rows):
        raise ValueError(
            f"{rows} rows and {0 if texts is None else len(texts)} texts; give at least one row, and a text per row or "
            "no texts"
        )
    return Likelihood(*map(torch.cat, zip(*parts, strict=True)))


def scored_positions(model: DiffusionLM, batch: Batch) -> Tensor:
    """(B, L) bool: learned tokens up to and including the first end token; the tokens after it are always the same."""
    eos = model.config.vocab.eos
    ends = torch.zeros_like(batch.learn) if eos is None else batch.tokens == eos
    return batch.learn & (ends.cumsum(-1) - ends.long() == 0)


def reconstruction_accuracy(model: DiffusionLM, batches: Iterable[Batch]) -> float:
    """Returns the fraction of scored tokens that the codec reproduces by encoding and decoding without noise."""
    if model.codec is None:
        raise ValueError("this model has no codec, as its process works on tokens; give a model with a codec")
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
    """Finds the final log-SNR with the tightest bound of a Gaussian model; returns (log-SNR, likelihood).

    As noise vanishes, the bound demands x̂ ever closer to x, although a codec could decode the tokens long before. For
    every final log-SNR, z ~ p followed by w ~ p(w | z) is a generative model of text. Choose the end on different text
    from the text you report.
    """
    results = {end: likelihood(with_final_logsnr(model, end), batches, draws=draws, seed=seed) for end in ends}
    return min(results.items(), key=lambda item: float(item[1].row_nats.sum()))


def with_final_logsnr(model: DiffusionLM, logsnr: float) -> DiffusionLM:
    """Returns a copy of the model, with shared weights, whose diffusion ends at this log-SNR."""
    process = model.process.narrowed(Gaussian, "a final log-SNR", "use a Gaussian model")
    other = copy(model)
    other.config = replace(model.config, process=replace(process, path=process.path.ending(logsnr)))
    return other


def _twice(model: DiffusionLM, batch: Batch, keys: Rng, draws: int, bound: Bound | None) -> Tensor:
    """(2, B) nats: two independent estimates; for a causal network the exact value, twice"""
    if bound is None and not model.process.continuous:
        bound = Bound(steps=_CHAIN)
    held_out, halves = _HeldOutBatch(model, batch, bound or Bound()), keys.split(2)
    if bound is not None:
        return torch.stack([held_out.by_time(draws, rng=half) for half in halves])
    return model.process.estimates(held_out, draws, rngs=halves)


@dataclass(frozen=True)
class _HeldOutBatch:
    """A held-out batch with its model and bound: what `Process.estimates` takes."""

    model: DiffusionLM
    batch: Batch
    bound: Bound

    @property
    def block(self) -> int | None:
        return self.model.block

    def predict(self, z: Tensor, t: Tensor) -> Prediction:
        return self.model.predict(z, t, self.model.read(self.batch).context)

    def by_time(self, strata: int, *, rng: Rng) -> Tensor:
        """(B,) bound of any process, with one time drawn in each of K equal strata.

        With T steps, the last one, which gives x itself, would hardly ever be drawn. It is therefore always measured,
        and the strata cover the other steps. With as many strata as other steps, only z is random.
        """
        T, power = self.bound.steps, self.model.process.time_power
        if T is None:
            return self._mean_bound(StratifiedTimes(block=self.model.block, power=power), strata, rng=rng)
        last = self._mean_bound(StratifiedTimes(0, 1 / T, self.model.block), 1, rng=rng.fold(strata)) / T
        if T == 1:
            return last
        return last + (1 - 1 / T) * self._mean_bound(StratifiedTimes(1 / T, 1, self.model.block), strata, rng=rng)

    def _mean_bound(self, times: StratifiedTimes, strata: int, *, rng: Rng) -> Tensor:
        """(B,) mean of the bound over one time in each stratum.

        In turn k, `StratifiedTimes` puts row i into stratum (k + i) mod K. The row's key depends on the stratum, so
        after all turns the position of a row in its batch does not matter.
        """
        objective, row = Objective(self.bound, times), torch.arange(len(self.batch.tokens))
        origins = [replace(self.batch.origin, first=k, total=strata) for k in range(strata)]
        turns = [(replace(self.batch, origin=origin), (row + origin.first) % strata) for origin in origins]
        nats = [objective(self.model, part, rng=rng.fold(stratum.to(rng.key.device))).nats for part, stratum in turns]
        return torch.stack(nats).mean(0)


def _char_and_byte_counts(texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """(n,) characters and (n,) UTF-8 bytes of each text"""
    sizes = [len(text.encode("utf-8", "surrogateescape")) for text in texts]
    return torch.tensor([len(text) for text in texts]), torch.tensor(sizes)


def target_texts(model: DiffusionLM, batch: Batch) -> list[str]:
    """Returns the text of the learned tokens of each row; empty strings if the model has no tokenizer."""
    rows = [x[learn].tolist() for x, learn in zip(batch.tokens, batch.learn, strict=True)]
    return ["" if model.tokenizer is None else model.tokenizer.decode(row) for row in rows]


def excess_bits(result: Likelihood, log_probs: Sequence[float]) -> tuple[float, float]:
    """Returns bits per character above the truth and their standard error, for rows whose true log p (nats) is known.

    A paired estimate: R = Σ d_i / Σ c_i with d_i = nats_i + log p_i and c_i characters, so variation in likelihood
    between rows cancels. The error is that of a ratio estimate, from the spread of d_i − R·c_i over rows and draws.
    """
    truth, chars, rows = torch.tensor(log_probs, dtype=torch.float64), result.row_chars, len(result.row_nats)
    if len(truth) != rows or not bool(truth.isfinite().all() & (chars > 0).all()):
        raise ValueError(f"got {len(truth)} log-probabilities for {rows} rows; each row needs a finite one and a text")
    excess = result.row_nats + truth
    ratio = excess.sum() / chars.sum()
    spread = (excess - ratio * chars).var() if rows > 1 else torch.tensor(torch.nan)  # one row has no spread
    error = (spread * rows).sqrt() / chars.sum()
    return float(ratio) / NATS_PER_BIT, float(error) / NATS_PER_BIT


class _TrueProbabilities(NamedTuple):
    """The true probabilities of held-out rows, from a source with a known distribution."""

    log_probs: list[float]  # log-probability of each row, in nats
    entropy_per_char: float  # entropy of the source, in nats per character


@dataclass(frozen=True)
class HeldOut:
    """Held-out rows, with their true probabilities if known."""

    batches: list[Batch]
    truth: _TrueProbabilities | None = None  # None if the source does not know its distribution

    @classmethod
    def of(
        cls, data: Corpus | InfiniteCorpus, split: Split, tokenizer: Tokenizer, framing: Framing, count: int
    ) -> HeldOut:
        """Loads the first `count` rows of a split, with the truth if the source knows it and no document was cut."""
        rows = load_rows(data, split, tokenizer, framing)
        batches = first_batches(rows, count)
        total = sum(len(batch.tokens) for batch in batches)
        if not isinstance(data, KnownDistribution) or not isinstance(framing, DocumentRows) or rows.tally.cut:
            return cls(batches)
        log_probs = [data.log_prob(data.document(split, index)) for index in range(total)]
        return cls(batches, _TrueProbabilities(log_probs, data.entropy_per_char()))
