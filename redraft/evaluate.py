"""Evaluation: how likely a model finds held-out text, what it writes at which cost, and how good that is.

Likelihood goes through objectives and processes, generation through samplers; judgements are pure functions of texts.
Every row draws from a key of its own, (seed, number of the row), so that no figure depends on the batch size.
"""

from __future__ import annotations

import importlib
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from redraft import ops
from redraft.data import Corpus as Source
from redraft.data import Documents, Endless, Framing, Split, StoriesData, Tally, evaluation, tokenise
from redraft.model import DiffusionLM
from redraft.objectives import Bound, Objective, Stratified
from redraft.ops import Rng
from redraft.processes.insertion import Insertion
from redraft.processes.masked import Masked
from redraft.samplers.base import Sampler, last
from redraft.stories import STORIES, Corpus, split_words
from redraft.text import Tokenizer
from redraft.types import Batch, Canvas, Vocab

BIT = math.log(2)  # nats


# Likelihood ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Likelihood:
    """−log p of N rows: an upper bound, or the exact value of a causal model, with its Monte-Carlo error.

    The error comes from two estimates for each row, so how much rows differ does not enter.
    """

    row_nats: Tensor  # (N,) float64
    row_variance: Tensor  # (N,) float64, Monte-Carlo variance of row_nats, itself a rough estimate; zero if exact
    row_tokens: Tensor  # (N,) learnt tokens, end signs included
    row_chars: Tensor  # (N,) characters of the learnt tokens' text; zero if nobody can tell it
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
    def stderr(self) -> float:
        """Standard error of `bits_per_token`."""
        return self.relative_error * self.bits_per_token

    def _bits_per(self, unit: str, counts: Tensor) -> float:
        if not int(counts.sum()):
            raise ValueError(
                f"the rows have no {unit} to learn; if they do, pass texts=, or give the model a tokenizer"
            )
        return float(self.row_nats.sum()) / BIT / int(counts.sum())


def likelihood(
    model: DiffusionLM,
    batches: Iterable[Batch],
    *,
    draws: int = 4,
    seed: int = 0,
    texts: Sequence[str] | None = None,
    bound: Bound | None = None,
) -> Likelihood:
    """An upper bound of −log p for each row by Monte Carlo; if the network is causal exactly −log p, at one call.

    Noise levels are drawn from `draws` strata, at one network call each, and all of that twice: the difference tells
    the error. Mask noise is estimated in count form, other processes, or whatever `bound` is asked for, at stratified
    times. `texts` say what the learnt tokens of the rows stand for, to count characters and bytes; without them the
    tokens are decoded.
    """
    if draws < 1:
        raise ValueError(f"draws={draws}; the bound needs one stratum of noise levels at least")
    parts, rows = [], 0
    with _evaluating(model) as device:
        for batch in batches:
            before, rows = rows, rows + len(batch.tokens)
            sample = torch.arange(before, rows) if batch.sample is None else batch.sample
            batch, keys = batch.to(device), ops.rng(seed, sample.to(device))
            nats = _twice(model, batch, keys, draws, bound).cpu().double()
            said = _decoded(model, batch) if texts is None else texts[before:rows]
            parts.append((nats.mean(0), nats.var(0) / 2, batch.learn.sum(-1).cpu(), *_extent(said)))
    if not rows or (texts is not None and len(texts) != rows):
        raise ValueError(
            f"{rows} rows and {0 if texts is None else len(texts)} texts; give rows, and all texts or none"
        )
    return Likelihood(*map(torch.cat, zip(*parts, strict=True)))


def told(model: DiffusionLM, batch: Batch) -> Tensor:
    """(B, L) bool: learnt tokens up to and with the first end sign; what follows it is no news"""
    eos = model.config.vocab.eos
    ends = torch.zeros_like(batch.learn) if eos is None else batch.tokens == eos
    return batch.learn & (ends.cumsum(-1) - ends.long() == 0)


def reconstruction(model: DiffusionLM, batches: Iterable[Batch]) -> float:
    """The share of told tokens that survive a model's codec: encoded and decoded, without noise."""
    if model.codec is None:
        raise ValueError("this model has no codec: its process works on tokens")
    right, count = 0, 0
    with _evaluating(model) as device:
        for batch in (b.to(device) for b in batches):
            ids = model.codec.decode(model.codec.encode(batch.tokens, batch.pad))[:, : batch.tokens.shape[1]]
            where = told(model, batch)
            right, count = right + int((ids == batch.tokens)[where].sum()), count + int(where.sum())
    return right / max(1, count)


def token_bound(
    model: DiffusionLM,
    batches: Sequence[Batch],
    ends: Sequence[float] = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0),
    *,
    draws: int = 4,
    seed: int = 0,
) -> tuple[float, Likelihood]:
    """The best bound of a model of vectors over where its diffusion may end: a log-SNR, and the likelihood with it.

    x̂ is compared with x ever more strictly as noise vanishes, although a codec could name the tokens long before. The
    generative model z ~ p at log-SNR `end`, w ~ p(w | z) is a model of text for every end; choose it on other text than
    you report.
    """
    ended = {end: likelihood(model.ending(end), batches, draws=draws, seed=seed) for end in ends}
    return min(ended.items(), key=lambda item: float(item[1].row_nats.sum()))


def _twice(model: DiffusionLM, batch: Batch, keys: Rng, draws: int, bound: Bound | None) -> Tensor:
    """(2, B) two independent estimates in nats; of a causal network the exact value, twice."""
    process = model.process
    if bound is not None or not isinstance(process, Masked):
        return torch.stack([_by_time(model, batch, bound or Bound(), draws, rng=half) for half in keys.split(2)])
    if model.block == 1:
        everything = torch.ones_like(batch.tokens, dtype=torch.float32)
        return _hidden_nats(model, process, batch, batch.learn, everything).expand(2, -1)
    return torch.stack([_by_count(model, process, batch, draws, rng=half) for half in keys.split(2)])


def _by_count(model: DiffusionLM, process: Masked, batch: Batch, strata: int, *, rng: Rng) -> Tensor:
    """(B,) the bound of mask noise in count form, which has no singular weight (as LLaDA is evaluated).

    −log p ≤ L · E_n E_S [(1/n) Σ_{l∈S} −log x̂[x_l]], n uniform in 1..L, S any n of the L learnt tokens; with blocks the
    sum of this over blocks. The strata of n/L end at sin²(πk/2K): narrow where n is small and S matters most, and where
    it is large and the sum depends on n most. Neighbours hide from opposite ends of one random order, so that together
    they cover more tokens. Neither changes the mean; at four strata a third of the variance of plain draws is left.
    """
    which, how_many = rng.split(2)
    length = batch.tokens.shape[1]
    block = torch.arange(length, device=batch.tokens.device) // (model.block or length)
    place, size = _shuffled(batch.learn, block, rng=which)
    ends = [math.sin(math.pi / 2 * k / strata) ** 2 for k in range(strata + 1)]
    parts = []
    for k, (lo, hi) in enumerate(pairwise(ends)):
        u = lo + (hi - lo) * how_many.fold(k).uniform(length)[:, block]
        n = (u * size).ceil().clamp(min=1)
        where = batch.learn & (place < n if k % 2 == 0 else place >= size - n)
        parts.append((hi - lo) * _hidden_nats(model, process, batch, where, n / size))
    return torch.stack(parts).sum(0)


def _shuffled(learn: Tensor, block: Tensor, *, rng: Rng) -> tuple[Tensor, Tensor]:
    """(B, L) the place of each learnt token in a random order of its block, and how many its block has (1 if none)."""
    score = (block + rng.uniform(len(block))).masked_fill(~learn, torch.inf)
    place = score.argsort(-1).argsort(-1)  # block after block
    size = torch.zeros_like(place).index_add(1, block, learn.long())
    before = size.cumsum(-1) - size
    return place - before[:, block], size[:, block].clamp(min=1)


def _hidden_nats(model: DiffusionLM, process: Masked, batch: Batch, where: Tensor, share: Tensor) -> Tensor:
    """(B,) Σ −log x̂[x] over the tokens to hide, each divided by the share of its block that is hidden."""
    z = batch.tokens.masked_fill(where, process.vocab.masked)
    t = process.schedule.inverse(1 - share).clamp(0, 1)  # when so many are hidden; prompts sit at time zero
    pred = model(z, torch.where(batch.learn, t, 0.0), model.context(batch))
    return (pred.nll(where, batch.tokens) / share).sum(-1)


def _by_time(model: DiffusionLM, batch: Batch, bound: Bound, strata: int, *, rng: Rng) -> Tensor:
    """(B,) the bound of any process, at a time in each of K equal strata.

    In turn k `Stratified` puts row i into stratum (k + i) mod K; the row's key goes with the stratum, so that after all
    turns it does not matter which row of its batch it was.
    """
    times = Stratified(block=model.block, power=2.0 if isinstance(model.process, Insertion) else 1.0)
    objective, row = Objective(bound, times), torch.arange(len(batch.tokens))
    turns = [(replace(batch, first=k, total=strata), (row + k) % strata) for k in range(strata)]
    nats = [objective(model, part, rng=rng.fold(stratum.to(rng.key.device))).nats for part, stratum in turns]
    return torch.stack(nats).mean(0)


def _extent(texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Characters and bytes of some texts."""
    sizes = [len(text.encode("utf-8", "surrogateescape")) for text in texts]
    return torch.tensor([len(text) for text in texts]), torch.tensor(sizes)


def _decoded(model: DiffusionLM, batch: Batch) -> list[str]:
    """What the learnt tokens of each row say; nothing if there is no tokenizer to tell."""
    rows = [x[learn].tolist() for x, learn in zip(batch.tokens, batch.learn, strict=True)]
    return ["" if model.tokenizer is None else model.tokenizer.decode(row) for row in rows]


@contextmanager
def _evaluating(model: DiffusionLM) -> Iterator[torch.device]:
    """The model's device, without gradients and dropout for a while; every module is then as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield next(model.parameters()).device
    finally:
        for module, mode in modes:
            module.training = mode


def excess(found: Likelihood, log_probs: Sequence[float]) -> tuple[float, float]:
    """Bits per character above the truth, and their standard error, for rows whose true log p (nats) is known.

    Paired: R = Σ d_i / Σ c_i with d_i = nats_i + log p_i and c_i characters, so it does not matter that some rows are
    likelier than others. The error is that of a ratio, from the spread of d_i − R·c_i: how R would change with other
    rows and other draws.
    """
    truth, chars, rows = torch.tensor(log_probs, dtype=torch.float64), found.row_chars, len(found.row_nats)
    if len(truth) != rows or not bool(truth.isfinite().all() & (chars > 0).all()):
        raise ValueError(f"got {len(truth)} log-probabilities for {rows} rows; each row needs a finite one and a text")
    over = found.row_nats + truth
    ratio = over.sum() / chars.sum()
    spread = (over - ratio * chars).var() if rows > 1 else torch.tensor(torch.nan)  # one row tells of no spread
    error = (spread * rows).sqrt() / chars.sum()
    return float(ratio) / BIT, float(error) / BIT


@dataclass(frozen=True)
class HeldOut:
    """Rows to measure a model on, and what the truth says about them."""

    batches: list[Batch]
    truth: list[float] | None = None  # log p of each row in nats; None: nobody knows

    @classmethod
    def of(cls, data: Source | Endless, split: Split, tokenizer: Tokenizer, framing: Framing, count: int) -> HeldOut:
        """The first `count` rows of a split. The truth is known for stories, one per row, none of them cut."""
        rows = tokenise(data, split, tokenizer, framing)
        batches = evaluation(rows, count)
        total = sum(len(batch.tokens) for batch in batches)
        if not isinstance(data, StoriesData) or not isinstance(framing, Documents) or rows.tally.cut:
            return cls(batches)
        return cls(batches, [STORIES.log_prob(data.document(split, index)) for index in range(total)])


# Generation ---------------------------------------------------------------------------------------------------------


@dataclass
class Calls:
    """How often a network was called, each row by itself: divided by the rows written, the NFE of a sampler."""

    rows: int = 0


@contextmanager
def calls(model: DiffusionLM) -> Iterator[Calls]:
    """Counts the network's calls while it lasts, those that only fill a cache included."""
    counted = Calls()

    def count(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        counted.rows += len(inputs[0])

    handle = model.network.blocks[0].register_forward_pre_hook(count)
    try:
        yield counted
    finally:
        handle.remove()


def written(start: Canvas, end: Canvas, vocab: Vocab) -> Tensor:
    """(B,) how many tokens were generated: none that is given, no padding, nothing from the first new end sign on."""
    same = end.open is None and start.z.shape[1] == end.z.shape[1]
    filled = start if same else end  # insertion moves what is given; a compressed text has nothing given
    new = ~filled.fixed if filled.context.pad is None else ~filled.fixed & ~filled.context.pad
    ended = (new & (end.z == vocab.eos)).cumsum(-1) > 0 if vocab.eos is not None else torch.zeros_like(new)
    return (new & ~ended).sum(-1)


@dataclass(frozen=True)
class Generated:
    """Texts and what they cost."""

    texts: list[str]
    nfe: float  # network calls per row
    seconds: float  # of sampling
    tokens: int  # generated ones, as `written` counts

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


def generate(
    model: DiffusionLM, sampler: Sampler, canvas: Canvas, *, seed: int = 0, batch: int = 64, first: int = 0
) -> Generated:
    """Fills all rows of a canvas, `batch` at a time; row i draws from the key (seed, first + i), whatever its batch."""
    texts: list[str] = []
    seconds, tokens = 0.0, 0
    with _evaluating(model), calls(model) as counted:
        for rows in torch.arange(len(canvas.z), device=canvas.z.device).split(batch):
            clock = time.perf_counter()
            start = canvas.rows(rows)
            end = last(sampler(model, model.process, start, rng=ops.rng(seed, first + rows)))
            end = model.read(end)
            tokens += int(written(start, end, model.config.vocab).sum())  # also waits for the device
            seconds += time.perf_counter() - clock
            texts += model.text(end)
    return Generated(texts, counted.rows / len(texts), seconds, tokens)


def to_write(model: DiffusionLM, framing: Framing, rows: int, held_out: Batch) -> Canvas:
    """Empty canvases as long as the rows of a training, or answers to held-out sources if it is answers that it learns.

    Of the latter there are no more than the batch has rows.
    """
    device = next(model.parameters()).device
    if framing.asked:
        answers = model.blank(held_out.to(device))
        return answers.rows(torch.arange(min(rows, len(answers.z)), device=device))
    given = model.config.vocab.bos is not None  # a canvas begins with it
    return model.canvas(new=framing.length - given, rows=rows)


# Judgements of texts ------------------------------------------------------------------------------------------------

Cut = Callable[[str], Sequence[Hashable]]  # text → words; a tokenizer's `encode` is one too


class Grammar(NamedTuple):
    """How far texts belong to a language whose true probabilities are known; nan where there is nothing to count."""

    share: float  # of texts in the language
    bits: float  # mean true log2-probability of these
    by_sentence: tuple[float, ...]  # k-th: share of texts that are right up to sentence k, among those that have k


def grammatical(texts: Sequence[str], corpus: Corpus = STORIES) -> Grammar:
    """Texts against the truth of the embedded corpus; a sentence ends at a full stop."""
    true = [corpus.log_prob(text) for text in texts]
    inside = [log_p for log_p in true if log_p > -math.inf]
    right = [(split_words(text).count("."), corpus.grammatical_prefix(text)) for text in texts]
    longest = max((sentences for sentences, _ in right), default=0)
    by_sentence = (_mean([good >= k for sentences, good in right if sentences >= k]) for k in range(1, longest + 1))
    return Grammar(_mean([log_p in inside for log_p in true]), _mean(inside) / BIT, tuple(by_sentence))


def unigram_entropy(texts: Sequence[str], cut: Cut = split_words) -> tuple[float, float]:
    """Nats: the entropy of the words within a text (mean over texts), and of the words of all texts together."""
    counts = [Counter(cut(text)) for text in texts]
    return _mean([_entropy(count) for count in counts]), _entropy(sum(counts, Counter()))


def distinct(texts: Sequence[str], n: int, cut: Cut = split_words) -> float:
    """Different n-grams as a share of all n-grams: low where texts repeat themselves or each other."""
    grams = [gram for text in texts for gram in _grams(cut(text), n)]
    return len(set(grams)) / len(grams) if grams else math.nan


def seen(texts: Sequence[str], training: Iterable[str]) -> float:
    """The share of texts that are training texts, word for word."""
    known = set(texts).intersection(training)
    return _mean([text in known for text in texts])


def stitched(texts: Sequence[str], training: Iterable[str], n: int, cut: Cut = split_words) -> float:
    """The share of texts whose n-grams all stand in training texts: copied as a whole or in pieces."""
    wanted = [set(_grams(cut(text), n)) for text in texts]
    known = set().union(*wanted).intersection(gram for text in training for gram in _grams(cut(text), n))
    return _mean([bool(grams) and grams <= known for grams in wanted])


def bleu(texts: Sequence[str], references: Sequence[str], cut: Cut = split_words) -> float:
    """BLEU-4 of texts, each against one reference: BP · exp(¼ Σ log p_n) (Papineni et al. 2002, §2.3).

    p_n is the share of n-grams that stand in the reference, counted over all texts; one is added to both counts for
    n > 1 (Lin & Och 2004), so that a single sentence has a BLEU too. BP = min(1, e^{1 − r/c}) for r words of reference
    and c of text.
    """
    pairs = [(cut(text), cut(reference)) for text, reference in zip(texts, references, strict=True)]
    long, needed = (sum(len(pair[side]) for pair in pairs) for side in (0, 1))
    logs = 0.0
    for n in range(1, 5):
        counts = [(Counter(_grams(said, n)), Counter(_grams(true, n))) for said, true in pairs]
        found, extra = sum((said & true).total() for said, true in counts), int(n > 1)
        if not (all_of_them := sum(said.total() for said, _ in counts) + extra) or not found + extra:
            return 0.0
        logs += math.log((found + extra) / all_of_them)
    return math.exp(logs / 4 + min(0.0, 1 - needed / long))


def minimum_risk(candidates: Sequence[str], cut: Cut = split_words) -> str:
    """The candidate that is most like all of them, argmin_s mean_s' −BLEU(s, s') (Li et al. 2022, §3.4).

    Of equals the first in the alphabet, so that the order of the candidates does not matter.
    """
    if not candidates:
        raise ValueError("there is nothing to choose from; give one candidate at least")
    return max(sorted(set(candidates)), key=lambda text: math.fsum(bleu([text], [other], cut) for other in candidates))


def _grams(words: Sequence[Hashable], n: int) -> list[tuple[Hashable, ...]]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def _entropy(counts: Counter[Hashable]) -> float:
    total = counts.total()
    return sum(count / total * math.log(total / count) for count in counts.values())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


# Judges -------------------------------------------------------------------------------------------------------------


class Judge(Protocol):
    """A language model that says how likely it finds a text."""

    def nats(self, text: str) -> tuple[float, int]:
        """−log p of the text, and how many of the judge's own tokens it covers."""
        ...


@dataclass(frozen=True)
class ModelJudge:
    """One of our causal models: exact, for the text cut by its own tokenizer and the end sign, if it has one."""

    model: DiffusionLM

    def __post_init__(self) -> None:
        if self.model.block != 1 or self.model.tokenizer is None:
            raise ValueError("a judge must tell exact likelihoods of text: take a causal model that has a tokenizer")

    def nats(self, text: str) -> tuple[float, int]:
        assert self.model.tokenizer is not None
        vocab, ids = self.model.config.vocab, self.model.tokenizer.encode(text)
        tokens = torch.tensor([Documents(len(ids) + 2).frame(ids, vocab, Tally())], dtype=torch.int64)
        learn = torch.arange(tokens.shape[1])[None] >= (vocab.bos is not None)
        found = likelihood(self.model, [Batch(tokens, learn)], texts=[text])
        return float(found.row_nats.sum()), int(found.row_tokens.sum())


@dataclass(frozen=True)
class TransformersJudge:
    """A causal LM of the transformers library, from a folder or by its name on the hub; needs `redraft[judge]`."""

    path: str
    window: int = 1024  # tokens read at once; each window begins with the last token of the one before

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        """Tokenizer and model: weights from safetensors, and no code that comes with them."""
        try:
            library = importlib.import_module("transformers")
        except ImportError:
            raise ValueError("this judge needs transformers: pip install 'redraft[judge]'") from None
        tokenizer = library.AutoTokenizer.from_pretrained(self.path, trust_remote_code=False)
        model = library.AutoModelForCausalLM.from_pretrained(self.path, trust_remote_code=False, use_safetensors=True)
        return tokenizer, model.eval()

    @torch.no_grad()
    def nats(self, text: str) -> tuple[float, int]:
        """Of all tokens if the tokenizer has a bos to begin with, otherwise of all but the first."""
        tokenizer, model = self._loaded
        bos = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
        ids, total = torch.tensor([*bos, *tokenizer.encode(text, add_special_tokens=False)]), 0.0
        for lo in range(0, len(ids) - 1, self.window - 1):
            part = ids[lo : lo + self.window]
            total += float(ops.nll(model(part[None]).logits[0, :-1], part[1:]).double().sum())
        return total, max(len(ids) - 1, 0)


class Judged(NamedTuple):
    """A generative perplexity, never without the entropy: a text of one likely word has a low perplexity too."""

    perplexity: float
    unigram_entropy: float  # nats, mean over texts
    tokens: int  # of the judge


def generative_perplexity(texts: Sequence[str], judge: Judge) -> Judged:
    """exp(nats per token) of all texts under the judge."""
    scores = [judge.nats(text) for text in texts]
    nats, tokens = sum(nats for nats, _ in scores), sum(count for _, count in scores)
    return Judged(math.exp(nats / tokens) if tokens else math.nan, unigram_entropy(texts)[0], tokens)


# Records ------------------------------------------------------------------------------------------------------------


def record(
    name: str, value: float, *, run: str, seed: int, **more: float | str | None
) -> dict[str, float | str | None]:
    """One figure as one JSON object: of which run (its digest) and seed, and what else is worth knowing.

    Keys always come in the same order; what JSON lacks (nan, inf) is None.
    """
    entries = {"name": name, "value": value, "run": run, "seed": seed, **dict(sorted(more.items()))}
    return {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in entries.items()}
