"""Evaluation: bounds against enumeration, honest errors, and counts that are counted by hand."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import redraft
from redraft import tasks
from redraft.core import (
    Batch,
    BatchOrigin,
    ByteTokenizer,
    Canvas,
    CharTokenizer,
    CleanBatch,
    Context,
    Cosine,
    Linear,
    Masked,
    Prediction,
    Process,
    Schedule,
    TokenProcess,
    Vocab,
    rng,
    split_words,
)
from redraft.decoding import Ancestral, Blocks, Unmask
from redraft.evaluation import ModelJudge, TransformersJudge
from redraft.evaluation.laws import tokens as check
from redraft.models import AttentionPattern, BlockCausal, Causal, DiffusionLM, Full, TransformerConfig
from redraft.tasks import sample_canvases
from redraft.tasks.engine.trace import _generated_mask
from redraft.training import (
    STORY_LANGUAGE,
    Bound,
    DataStats,
    DocumentRows,
    Likelihood,
    Objective,
    Split,
    StoryCorpus,
    first_batches,
    likelihood,
    load_rows,
)

Build = Callable[..., DiffusionLM]
MASK = 6
SEVEN = CharTokenizer("aé世🙂 .")  # its vocabulary is that of the fixtures: six tokens and the mask


def ragged() -> Batch:
    """Twelve rows of five: prompts of 0..2 tokens, 0..2 empty places, at least one token to learn."""
    tokens = torch.randint(0, MASK, (12, 5), generator=torch.Generator().manual_seed(0))
    place, row = torch.arange(5), torch.arange(12)[:, None]
    pad = place >= 5 - row % 3
    return Batch(tokens, (place >= row // 3 % 3) & ~pad, pad)


def tile(batch: Batch, times: int) -> Batch:
    """The same rows again and again, each time as other samples."""
    assert batch.pad is not None
    rows = [t.repeat(times, 1) for t in (batch.tokens, batch.learn, batch.pad)]
    return Batch(*rows, origin=BatchOrigin(sample=torch.arange(len(rows[0]))))


@torch.no_grad()
def enumerated(model: DiffusionLM, batch: Batch) -> Tensor:
    """(B,) the bound of mask noise from all sets S of hidden tokens: Σ_S Σ_{l∈S} −log x̂[x_l] / (n·(L choose n))."""
    B, length = batch.tokens.shape
    size, process = model.block or length, model.process
    assert isinstance(process, Masked)
    total = torch.zeros(B, dtype=torch.float64)
    for lo in range(0, length, size):
        inside = batch.learn.clone()
        inside[:, :lo] = inside[:, lo + size :] = False
        many = inside.sum(-1)
        for hide in product((False, True), repeat=min(size, length - lo)):
            where = torch.zeros(length, dtype=torch.bool)
            where[lo : lo + len(hide)] = torch.tensor(hide)
            rows = (where <= inside).all(-1) & where.any()
            n = max(int(where.sum()), 1)
            t = process.schedule.inverse(1 - n / many.clamp(min=n)).clamp(0, 1)[:, None]
            hidden = where.expand_as(batch.tokens)
            pred = model.predict(
                batch.tokens.masked_fill(hidden, MASK), torch.where(batch.learn, t, 0.0), model.read(batch).context
            )
            weight = torch.tensor(
                [1 / (n * math.comb(int(m), n)) if ok else 0.0 for m, ok in zip(many, rows, strict=True)]
            )
            total += weight * pred.nll(hidden, batch.tokens).double().sum(-1)
    return total


def timed(config: TransformerConfig) -> TransformerConfig:
    return replace(config, time=8)


# --- likelihood ---


@pytest.mark.parametrize(
    ("pattern", "schedule", "draws"),
    [
        (Full(), Linear(), 1),
        (Full(), Linear(1e-2), 3),
        (BlockCausal(2), Cosine(), 1),
        (BlockCausal(3), Linear(), 1),
        (BlockCausal(5), Cosine(), 4),
    ],
)
def test_the_estimate_is_the_enumerated_bound_and_its_error_is_honest(
    build: Build, tiny: TransformerConfig, vocab: Vocab, pattern: AttentionPattern, schedule: Schedule, draws: int
) -> None:
    """No bias within 4.5 errors, and z-scores by the stated error have the spread of a normal."""
    model = build(pattern, timed(tiny), process=Masked(vocab, schedule))
    batch = ragged()
    found, exact = likelihood(model, [tile(batch, 400)], draws=draws, seed=1), enumerated(model, batch)
    nats = found.row_nats.view(400, 12)
    bias = (nats.mean(0) - exact) / (nats.std(0) / 400**0.5).clamp(min=1e-6)
    assert bias.abs().max() < 4.5
    # groups of 48 rows, as if each were a small test set
    total, variance = (a.view(100, 48).sum(1) for a in (found.row_nats, found.row_variance))
    z = (total - 4 * exact.sum()) / variance.sqrt()
    assert abs(float(z.mean())) < 0.4
    assert 0.75 < float(z.std()) < 1.3


@pytest.mark.parametrize(("pattern", "draws"), [(BlockCausal(2), 2), (BlockCausal(3), 4), (Full(), 16)])
def test_the_bound_itself_where_it_costs_no_more_calls(
    build: Build, tiny: TransformerConfig, vocab: Vocab, pattern: AttentionPattern, draws: int
) -> None:
    model, batch = build(pattern, timed(tiny), process=Masked(vocab, Cosine())), ragged()
    found = likelihood(model, [batch], draws=draws)
    assert torch.allclose(found.row_nats, enumerated(model, batch), rtol=1e-5)
    assert float(found.row_variance.max()) == 0


def test_rows_with_one_token_to_learn_are_exact(build: Build) -> None:
    batch, model = ragged(), build()
    found = likelihood(model, [batch], draws=8)
    single = batch.learn.sum(-1) == 1
    assert single.sum() == 1
    assert torch.allclose(found.row_nats[single], enumerated(model, batch)[single], rtol=1e-5)
    assert float(found.row_variance[single].max()) < 1e-10 < float(found.row_variance[~single].mean())


@pytest.mark.parametrize("block", [None, 1, 2, 3])
def test_the_oracle_s_bound_is_the_entropy(block: int | None) -> None:
    toy, process = check.ToyLanguage.of(), Masked(check.VOCAB)
    model = Told(check.Oracle(toy, process, block))
    repeats = 60
    rows = toy.sequences.repeat(repeats, 1)
    found = likelihood(model, [Batch.of(rows)], draws=2)  # type: ignore[arg-type]
    entropy = (found.row_nats.view(repeats, -1) * toy.p).sum(1)
    error = float(entropy.std()) / repeats**0.5
    assert abs(float(entropy.mean()) - toy.entropy) < 4.5 * error + 1e-6
    assert (error < 1e-6) == (block in (1, 2))  # blocks of two tokens have three sets to hide: all of them are tried


class Told(nn.Module):
    """An oracle that passes for a model."""

    tokenizer, config = None, SimpleNamespace(learnable=lambda batch: batch)

    def __init__(self, oracle: check.Oracle) -> None:
        super().__init__()
        self.oracle, self.process, self.block = oracle, oracle.process, oracle.block
        self.weight = nn.Parameter(torch.zeros(1))

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        return self.oracle.predict(z, t, context)

    def read(self, batch: Batch) -> CleanBatch:
        return CleanBatch(
            batch.tokens, batch.learn, batch.pad, Context(clean=None if self.block is None else batch.tokens)
        )


def disguised(inner: TokenProcess) -> TokenProcess:
    """The same process under a name that no shortcut knows."""

    def call(name: str) -> Callable[..., Any]:
        return lambda self, *args, **kwargs: getattr(inner, name)(*args, **kwargs)

    methods: dict[str, Any] = {name: call(name) for name in TokenProcess.__abstractmethods__}
    return type("Disguised", (TokenProcess,), methods | {"leaves_noise": inner.leaves_noise, "vocab": inner.vocab})()


@pytest.mark.parametrize("pattern", [Full(), BlockCausal(2)])
def test_stratified_times_estimate_the_same_bound(build: Build, vocab: Vocab, pattern: AttentionPattern) -> None:
    """The count form against the integral over time, by request and for a process that has no count form."""
    batch = tile(ragged(), 400)
    model, other = build(pattern), build(pattern, process=disguised(Masked(vocab)))
    exact = enumerated(model, ragged())
    asked, needed = likelihood(model, [batch], draws=2, bound=Bound()), likelihood(other, [batch], draws=2)
    assert torch.equal(asked.row_nats, needed.row_nats)
    nats, variance = (a.view(400, 12) for a in (asked.row_nats, asked.row_variance))
    bias = (nats.mean(0) - exact) / (nats.std(0) / 400**0.5)
    assert bias.abs().max() < 4.5
    # the weight 1/t has a heavy tail: only the mean of the stated variances is to be trusted
    assert 0.8 < float((variance.mean(0).sum() / nats.var(0).sum()).sqrt()) < 1.25


def test_a_chain_of_one_step_is_asked_for(build: Build) -> None:
    """Bound(1) with full attention: everything hidden at once, nothing random."""
    model, batch = build(), ragged()
    found = likelihood(model, [batch], draws=2, bound=Bound(1))
    hidden = batch.tokens.masked_fill(batch.learn, MASK)
    with torch.no_grad():
        nll = model.predict(hidden, torch.where(batch.learn, 1.0, 0.0), model.read(batch).context).nll(
            batch.learn, batch.tokens
        )
    assert torch.allclose(found.row_nats, nll.sum(-1).double())
    assert float(found.row_variance.max()) < 1e-10
    assert float(found.row_nats.sum()) != pytest.approx(float(enumerated(model, batch).sum()), rel=1e-3)


def test_the_count_form_has_a_fraction_of_the_variance(build: Build) -> None:
    """At eight network calls each: against plain times with weight 1/t, and against stratified ones."""
    model, rows = build(), 2000
    x = torch.randint(0, MASK, (1, 8), generator=torch.Generator().manual_seed(1)).expand(rows, -1)
    batch = replace(Batch.of(x), origin=BatchOrigin(sample=torch.arange(rows), total=1))
    with torch.no_grad():
        plain = torch.stack([Objective()(model, batch, rng=rng(5, rows).fold(i)).nats for i in range(8)]).mean(0)
    strata = likelihood(model, [batch], draws=4, bound=Bound()).row_nats
    single = likelihood(model, [batch], draws=1).row_nats
    count = likelihood(model, [batch], draws=4).row_nats
    assert float(plain.mean()) == pytest.approx(float(count.mean()), rel=0.05)
    assert float(plain.var() / count.var()) > 20
    assert float(strata.var() / count.var()) > 10
    assert float(single.var() / 4 / count.var()) > 1.4, "strata and opposite ends help"


class ByTimeOnly(Masked):
    estimates = Process.estimates


def test_the_process_chooses_the_estimate(build: Build) -> None:
    """Without its own form mask noise is measured at stratified times, as any bound that is asked for."""
    vocab, batch = Vocab(7, mask=MASK), ragged()
    count, time = (likelihood(build(process=kind(vocab)), [batch], seed=4) for kind in (Masked, ByTimeOnly))
    asked = likelihood(build(process=Masked(vocab)), [batch], seed=4, bound=Bound())
    assert torch.equal(time.row_nats, asked.row_nats)
    assert not torch.allclose(count.row_nats, asked.row_nats, rtol=1e-3)


@pytest.mark.parametrize("bound", [None, Bound()])
def test_every_row_visits_every_stratum_twice(
    build: Build, bound: Bound | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, length, asked = build(), 40, list[Tensor]()
    predict = model.predict
    batch = Batch.of(torch.randint(0, MASK, (7, length), generator=torch.Generator().manual_seed(2)))
    monkeypatch.setattr(model, "predict", lambda z, t, context: asked.append(t.amax(-1)) or predict(z, t, context))
    likelihood(model, [batch], draws=4, bound=bound)
    t = torch.stack(asked).sort(0).values  # (8, B)
    ends = torch.arange(5) / 4 if bound else (torch.pi / 8 * torch.arange(5)).sin() ** 2
    step = 0 if bound else 1 / length  # n tokens hidden of L: t = n/L, rounded up
    for k in range(4):
        assert (t[2 * k : 2 * k + 2] > ends[k]).all()
        assert (t[2 * k : 2 * k + 2] < ends[k + 1] + step).all()
    assert len(t.unique()) > 20, "each row has times of its own"


def test_strata_of_times_draw_noise_of_their_own(build: Build) -> None:
    """One noise for all strata would add its errors up instead of averaging them."""
    model, rows = build(), 1000
    batch = replace(
        Batch.of(torch.arange(8).expand(rows, -1) % MASK), origin=BatchOrigin(sample=torch.arange(rows), total=1)
    )
    with torch.no_grad():
        plain = torch.stack([Objective(Bound(4))(model, batch, rng=rng(5, rows).fold(i)).nats for i in range(8)])
    strata = likelihood(model, [batch], draws=4, bound=Bound(4)).row_nats
    assert float(strata.var() / plain.mean(0).var()) < 1.3


@pytest.mark.parametrize("pattern", [Causal(MASK), BlockCausal(1)])
def test_causal_likelihood_is_exact_at_one_call_and_sums_to_one(build: Build, pattern: AttentionPattern) -> None:
    model = build(pattern, process=Masked(Vocab(7, mask=MASK), Linear(1e-3)))
    x = torch.tensor(list(product(range(MASK), repeat=3)))
    with tasks.count_calls(model) as counted:
        found = likelihood(model, [Batch.of(x)], draws=8)
    assert counted.rows == len(x) == 216
    assert float((-found.row_nats).exp().sum()) == pytest.approx(1, abs=1e-5)
    assert (found.stderr, found.relative_error) == (0, 0)
    prompted = Batch(x, (torch.arange(3) >= 1).expand_as(x))
    given_first = (-likelihood(model, [prompted]).row_nats).exp().view(6, 36).sum(1)
    assert torch.allclose(given_first, torch.ones(6, dtype=torch.float64), atol=1e-5)


@pytest.mark.parametrize(
    ("pattern", "bound"), [(Full(), None), (BlockCausal(3), None), (Full(), Bound()), (Full(), Bound(3))]
)
def test_neither_batches_nor_padding_change_a_row(build: Build, pattern: AttentionPattern, bound: Bound | None) -> None:
    model, batch = build(pattern), ragged()
    assert batch.pad is not None
    whole = likelihood(model, [batch], draws=3, seed=4, bound=bound)
    for size in (1, 5):
        cut = zip(*(t.split(size) for t in (batch.tokens, batch.learn, batch.pad)), strict=True)
        split = likelihood(model, [Batch(*rows) for rows in cut], draws=3, seed=4, bound=bound)
        assert torch.allclose(split.row_nats, whole.row_nats, rtol=1e-5)
        assert torch.allclose(split.row_variance, whole.row_variance, rtol=1e-3, atol=1e-6)
    wide = [nn.functional.pad(t, (0, 3), value=v) for t, v in ((batch.tokens, 2), (batch.learn, 0), (batch.pad, 1))]
    assert torch.allclose(likelihood(model, [Batch(*wide)], draws=3, seed=4, bound=bound).row_nats, whole.row_nats)
    other = likelihood(model, [batch], draws=3, seed=5, bound=bound)
    assert not torch.allclose(other.row_nats, whole.row_nats, rtol=1e-2)


def test_samples_carry_the_key_of_a_row(build: Build) -> None:
    model, batch = build(), replace(ragged(), origin=BatchOrigin(sample=torch.arange(12) + 70))
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    assert batch.pad is not None
    assert batch.origin.sample is not None
    origin = BatchOrigin(batch.origin.sample[order])
    mixed = Batch(batch.tokens[order], batch.learn[order], batch.pad[order], origin=origin)
    straight, shuffled = (likelihood(model, [b]).row_nats for b in (batch, mixed))
    assert torch.allclose(straight[order], shuffled, rtol=1e-5)
    assert not torch.allclose(straight, likelihood(model, [ragged()]).row_nats, rtol=1e-2)


def test_units_are_those_of_the_learned_text(build: Build) -> None:
    model = build(tokenizer=SEVEN)
    batch = Batch(torch.tensor([SEVEN.encode("aé世🙂."), SEVEN.encode("世世 .a")]), torch.ones(2, 5, dtype=torch.bool))
    batch.learn[0, 0] = False  # a prompt: the a of the first row
    found = likelihood(model, [batch])
    bits = float(found.row_nats.sum()) / math.log(2)
    assert found.row_tokens.tolist() == found.row_chars.tolist() == [4, 5]
    assert found.row_bytes.tolist() == [2 + 3 + 4 + 1, 3 + 3 + 1 + 1 + 1]
    assert found.bits_per_token == pytest.approx(bits / 9)
    assert found.bits_per_char == pytest.approx(bits / 9)
    assert found.bits_per_byte == pytest.approx(bits / 19)
    assert found.perplexity == pytest.approx(math.exp(float(found.row_nats.sum()) / 9))
    assert found.stderr == pytest.approx(float(found.row_variance.sum()) ** 0.5 / math.log(2) / 9)
    named = likelihood(model, [batch], texts=["éé", "\udcff"])  # a byte that is no UTF-8, as `ByteTokenizer` keeps it
    assert (named.row_chars.tolist(), named.row_bytes.tolist()) == ([2, 1], [4, 1])
    assert torch.equal(named.row_nats, found.row_nats)


def test_the_model_comes_back_as_it_was(build: Build) -> None:
    model = build(network=TransformerConfig(width=16, layers=2, heads=2, hidden=32, dropout=0.5))
    model.train()
    model.network.blocks[1].eval()
    first, second = (likelihood(model, [ragged()]).row_nats for _ in range(2))
    assert torch.equal(first, second), "dropout is off"
    assert (model.training, model.network.blocks[0].training, model.network.blocks[1].training) == (True, True, False)
    assert torch.is_grad_enabled()
    with pytest.raises(ValueError, match="0 rows"):
        likelihood(model, [])
    assert model.training


def test_errors_say_what_to_do(build: Build) -> None:
    model = build()
    with pytest.raises(ValueError, match="one stratum"):
        likelihood(model, [ragged()], draws=0)
    with pytest.raises(ValueError, match="12 rows and 2 texts"):
        likelihood(model, [ragged()], texts=["a", "b"])
    found = likelihood(model, [ragged()], draws=1)
    with pytest.raises(ValueError, match="give the model a tokenizer"):
        _ = found.bits_per_char


def known(nats: list[float], chars: list[int]) -> Likelihood:
    n, c = torch.tensor(nats, dtype=torch.float64), torch.tensor(chars)
    return Likelihood(n, 0 * n, c, c, c)


def test_excess_cancels_what_stories_differ_in() -> None:
    truth = [-5.0, -50.0, -20.0]
    value, error = redraft.training.excess_bits(known([6.0, 54.0, 22.0], [10, 40, 20]), truth)
    assert value == pytest.approx(0.1 / math.log(2))
    assert error == pytest.approx(0, abs=1e-9)
    value, error = redraft.training.excess_bits(known([6.0, 54.0, 25.0], [10, 40, 20]), truth)
    rest = [d - 10 / 70 * c for d, c in ((1, 10), (4, 40), (5, 20))]
    assert value == pytest.approx(10 / 70 / math.log(2))
    assert error == pytest.approx((sum(r * r for r in rest) * 3 / 2) ** 0.5 / 70 / math.log(2))
    for wrong in (truth[:2], [-5.0, -math.inf, -20.0]):
        with pytest.raises(ValueError, match="finite one"):
            redraft.training.excess_bits(known([6.0, 54.0, 22.0], [10, 40, 20]), wrong)


# --- generation ---


def test_texts_do_not_depend_on_the_batch(build: Build) -> None:
    model = build(tokenizer=SEVEN)
    canvas = model.compose([["aé", 4], [5], ["世", 3, "a"], [7], ["🙂🙂", 1], [2]])
    whole = sample_canvases(model, Ancestral(8), canvas, seed=3)
    assert [len(text) for text in whole.texts] == [6, 5, 5, 7, 3, 2]
    for batch in (1, 4):
        assert sample_canvases(model, Ancestral(8), canvas, seed=3, batch=batch).texts == whole.texts
    assert sample_canvases(model, Ancestral(8), canvas, seed=4).texts != whole.texts
    assert whole.new_tokens == 4 + 5 + 3 + 7 + 1 + 2
    assert whole.tokens_per_second == pytest.approx(whole.new_tokens / whole.seconds)


def test_network_calls_are_counted_per_row(build: Build) -> None:
    full, causal = build(tokenizer=SEVEN), build(Causal(MASK), tokenizer=SEVEN)
    assert sample_canvases(full, Unmask(4), full.canvas(new=8, rows=5)).nfe == 4
    assert sample_canvases(full, Unmask(4), full.canvas(new=8, rows=5), batch=2).nfe == 4
    assert sample_canvases(causal, Blocks(Ancestral(1)), causal.canvas(new=6, rows=3)).nfe == 6, "one call per token"
    assert sample_canvases(causal, Blocks(Ancestral(1), cache=False), causal.canvas(new=6, rows=3)).nfe == 6
    mixed = full.compose([[8], ["é" * 7, 1]])
    assert sample_canvases(full, Unmask(4), mixed).nfe == (4 + 1) / 2, "a finished row is not called"


def test_the_counting_ends_with_its_block(build: Build) -> None:
    model = build()
    with tasks.count_calls(model) as counted:
        likelihood(model, [ragged()], draws=2)
    sizes = ragged().learn.sum(-1).tolist()
    assert counted.rows == sum(2**size - 1 if size <= 2 else 2 * 2 for size in sizes) < 2 * 2 * 12
    before = counted.rows
    likelihood(model, [ragged()], draws=2)
    assert counted.rows == before


def test_generated_tokens_are_neither_given_nor_empty_nor_behind_the_end() -> None:
    eos, vocab = 5, Vocab(7, eos=5, mask=6)
    z = torch.tensor([[1, eos, 2, 3, 4, 0], [1, 2, 3, eos, eos, eos], [1, 2, eos, 3, 4, 1], [eos, 1, 2, 3, 4, 0]])
    fixed = torch.zeros_like(z, dtype=torch.bool)
    fixed[0, :3] = True  # a prompt that holds an end token of its own
    fixed[2, 5] = True  # something given behind the end
    pad = torch.zeros_like(fixed)
    pad[0, 4:] = True
    start = Canvas(torch.full_like(z, 6), fixed, Context(pad=pad))
    assert _generated_mask(start, Canvas(z, fixed), vocab).sum(-1).tolist() == [1, 3, 2, 0]
    assert _generated_mask(start, Canvas(z, fixed), Vocab(7, mask=6)).sum(-1).tolist() == [1, 6, 5, 6]
    assert _generated_mask(replace(start, context=Context()), Canvas(z, fixed), vocab).sum(-1).tolist() == [
        3,
        3,
        2,
        0,
    ]


# --- judgments ---


def test_texts_against_the_true_language() -> None:
    stories = [STORY_LANGUAGE.story(1, i) for i in range(3)]
    first, second, third = (story.text for story in stories)
    sentences = [s + "." for s in second.removesuffix(".").split(".")]
    broken = "".join([sentences[0], " The the the.", *sentences[2:]])
    found = redraft.evaluation.grammar_score([first, broken, third, "no story"], STORY_LANGUAGE)
    assert found.share == redraft.evaluation.fraction_possible([first, broken, third, "no story"], StoryCorpus()) == 0.5
    assert found.bits == pytest.approx((stories[0].log_prob + stories[2].log_prob) / 2 / math.log(2))
    counts = [split_words(text).count(".") for text in (first, broken, third)]
    for k, share in enumerate(found.by_sentence, 1):
        have = [i for i in range(3) if counts[i] >= k]
        assert share == sum(i != 1 or k == 1 for i in have) / len(have)
    assert (len(found.by_sentence), found.by_sentence[0]) == (max(counts), 1)
    assert found.by_sentence[1] == pytest.approx(2 / 3)


def test_no_text_is_no_figure() -> None:
    nothing = redraft.evaluation.grammar_score([], STORY_LANGUAGE)
    assert math.isnan(nothing.share)
    assert nothing.by_sentence == ()
    strange = redraft.evaluation.grammar_score(["word"], STORY_LANGUAGE)
    assert (strange.share, math.isnan(strange.bits), strange.by_sentence) == (0, True, ())
    assert math.isnan(redraft.evaluation.distinct_ngrams(["one"], 2))


def test_diversity_by_hand() -> None:
    texts = ["a b a b", "a a"]
    within, together = redraft.evaluation.unigram_entropy(texts)
    assert within == pytest.approx(math.log(2) / 2)
    assert together == pytest.approx(-(4 / 6 * math.log(4 / 6) + 2 / 6 * math.log(2 / 6)))
    assert [redraft.evaluation.distinct_ngrams(texts, n) for n in (1, 2, 3)] == [2 / 6, 3 / 4, 2 / 2]
    assert redraft.evaluation.distinct_ngrams(["aba"], 1, split=CharTokenizer("ab").encode) == 2 / 3


def test_memory_by_hand() -> None:
    training = ["a b c d e", "c d x y"]
    texts = ["a b c d e", "a b c d x y", "a b x y", "a"]
    assert redraft.evaluation.fraction_copied(texts, training) == 1 / 4


# --- judges ---

MARKED = CharTokenizer("ab .", ("bos", "eos", "pad", "mask"))


@pytest.mark.parametrize("tokenizer", [MARKED, CharTokenizer("ab .", ("eos", "mask")), CharTokenizer("ab .")])
def test_our_judge_tells_its_model_s_likelihood(build: Build, tokenizer: CharTokenizer) -> None:
    vocab, text = tokenizer.vocab, "ab ba."
    network = TransformerConfig(width=16, layers=2, heads=2, hidden=32)
    model = build(Causal(vocab.masked), network, process=Masked(vocab), tokenizer=tokenizer)
    row = DocumentRows(20).frame(tokenizer.encode(text), vocab, DataStats())
    stream = torch.tensor([[vocab.masked, *row[:-1]]])
    with torch.no_grad():  # the chain rule by hand
        raw = model.network.logits(model.network(stream, None, Context(pattern=Causal())))
    log_p = raw.index_fill(-1, torch.tensor([vocab.masked]), -torch.inf).log_softmax(-1)[0]
    nll = [-float(log_p[i, token]) for i, token in enumerate(row)][vocab.bos is not None :]
    nats, tokens = ModelJudge(model).nats(text)
    assert nats == pytest.approx(sum(nll), rel=1e-5)
    assert tokens == len(nll) == len(text) + (vocab.eos is not None)
    judged = redraft.evaluation.generative_perplexity([text, text], ModelJudge(model))
    assert judged.perplexity == pytest.approx(math.exp(nats / tokens))
    assert judged.unigram_entropy == pytest.approx(redraft.evaluation.unigram_entropy([text])[0])
    assert judged.tokens == 2 * tokens


def test_only_exact_models_may_judge(build: Build) -> None:
    for model in (build(tokenizer=SEVEN), build(BlockCausal(2), tokenizer=SEVEN), build(Causal(MASK))):
        with pytest.raises(ValueError, match="causal model that has a tokenizer"):
            ModelJudge(model)


class FakeLibrary:
    """As much of transformers as a judge touches: letters as tokens, and a fixed table of bigrams as the model."""

    table = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))

    def __init__(self, bos: int | None) -> None:
        self.asked: list[dict[str, object]] = []
        encode = lambda text, add_special_tokens: ["abc".index(letter) for letter in text]  # noqa: E731
        self.AutoTokenizer = SimpleNamespace(
            from_pretrained=self._give(SimpleNamespace(bos_token_id=bos, encode=encode))
        )
        self.AutoModelForCausalLM = SimpleNamespace(from_pretrained=self._give(self._model()))

    def _give(self, thing: object) -> Callable[..., object]:
        def from_pretrained(path: str, **options: object) -> object:
            self.asked.append({"path": path, **options})
            return thing

        return from_pretrained

    def _model(self) -> nn.Module:
        table = self.table

        class Bigrams(nn.Module):
            def forward(self, ids: Tensor) -> SimpleNamespace:
                assert ids.shape[1] <= 4
                return SimpleNamespace(logits=table[ids])

        return Bigrams()


@pytest.mark.parametrize("bos", [3, None])
def test_a_transformers_judge_scores_each_token_once(monkeypatch: pytest.MonkeyPatch, bos: int | None) -> None:
    library = FakeLibrary(bos)
    monkeypatch.setitem(sys.modules, "transformers", library)  # type: ignore[arg-type]
    judge, text = TransformersJudge("some/model", window=4), "abcabcacb"
    ids = ([] if bos is None else [bos]) + ["abc".index(letter) for letter in text]
    log_p = library.table.log_softmax(-1)
    nats, tokens = judge.nats(text)
    assert nats == pytest.approx(-sum(float(log_p[a, b]) for a, b in pairwise(ids)), rel=1e-5)
    assert tokens == len(ids) - 1
    assert judge.nats("") == (0, 0)
    assert len(library.asked) == 2, "loaded once"
    assert all(options["trust_remote_code"] is False for options in library.asked)
    assert library.asked[1]["use_safetensors"] is True


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ValueError, match=r"pip install 'redraft\[judge\]'"):
        TransformersJudge("gpt2").nats("text")


# --- records, and all together ---


def test_records_are_json_with_stable_keys() -> None:
    line = redraft.evaluation.figure_record(
        "bits_per_char", 0.25, run="0123", seed=3, stderr=math.nan, draws=4, best=math.inf
    )
    assert json.dumps(line, allow_nan=False) == (
        '{"name": "bits_per_char", "value": 0.25, "run": "0123", "seed": 3, "best": null, "draws": 4, "stderr": null}'
    )


@dataclass(frozen=True)
class Coins:
    """Three fair coins to a document."""

    def document(self, split: Split, index: int) -> str:
        return f"{index % 8:03b}"

    def log_prob(self, text: str) -> float:
        return -3 * math.log(2)

    def entropy_per_char(self) -> float:
        return math.log(2)


class Untold:
    """The same documents; nobody says how likely they are."""

    document = Coins.document


def test_any_source_may_know_its_truth() -> None:
    held = redraft.training.HeldOut.of(Coins(), "valid", ByteTokenizer(), DocumentRows(8), 5)
    assert held.truth == redraft.training.heldout._TrueProbabilities([-3 * math.log(2)] * 5, math.log(2))
    assert redraft.training.HeldOut.of(Untold(), "valid", ByteTokenizer(), DocumentRows(8), 5).truth is None
    assert redraft.training.HeldOut.of(Coins(), "valid", ByteTokenizer(), DocumentRows(2), 5).truth is None, (
        "a document was cut"
    )
    told = redraft.training.HeldOut.of(StoryCorpus(), "test", ByteTokenizer(), DocumentRows(600), 3).truth
    texts = [StoryCorpus().document("test", i) for i in range(3)]
    assert told == redraft.training.heldout._TrueProbabilities(
        [STORY_LANGUAGE.log_prob(text) for text in texts], STORY_LANGUAGE.entropy_per_char()
    )


def test_stories_from_data_to_excess(build: Build) -> None:
    """An untrained model knows nothing: log2 of the number of ids for each token."""
    tokenizer = ByteTokenizer()
    network = TransformerConfig(width=16, layers=1, heads=2, hidden=32)
    model = DiffusionLM(build(network=network, process=Masked(tokenizer.vocab)).config, tokenizer)
    rows = load_rows(StoryCorpus(), "valid", tokenizer, DocumentRows(600))
    batches = first_batches(rows, 4, batch=3)
    found = likelihood(model, batches, draws=2)
    texts = [StoryCorpus().document("valid", i) for i in range(4)]
    assert found.row_chars.tolist() == [len(text) for text in texts]
    assert found.row_tokens.tolist() == [len(text) + 1 for text in texts]
    assert found.bits_per_token == pytest.approx(math.log2(tokenizer.vocab.size - 1), rel=1e-4)
    value, _ = redraft.training.excess_bits(found, [STORY_LANGUAGE.log_prob(text) for text in texts])
    truth = -sum(STORY_LANGUAGE.log_prob(text) for text in texts) / math.log(2) / sum(map(len, texts))
    assert value == pytest.approx(found.bits_per_char - truth)
