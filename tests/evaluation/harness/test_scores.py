"""Scores of the harness against exact enumeration, the chain rule, and our own likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest
import torch

from redraft.core import Batch, Canvas, CharTokenizer, Context, Interpolating, rng
from redraft.decoding import Blocks, Confidence, Sampler, Unmask, final_canvas
from redraft.evaluation import AnswerRequest, RowLayout, Scorer
from redraft.evaluation.harness.generation import _AnswerWriter, _TaskGeneration
from redraft.evaluation.harness.scoring import _is_greedy
from redraft.models import BlockCausal, Causal, DiffusionLM, Full, Shift, Softmax, Subs
from redraft.tasks import TextModel
from redraft.training import DocumentRows, Run, likelihood, presets

Build = Callable[..., DiffusionLM]
LETTERS = CharTokenizer("abcdef", ("mask",))
MASK = LETTERS.vocab.masked


def asked(layout: RowLayout, context: str, answer: str) -> AnswerRequest:
    return layout.request(context, answer, LETTERS.encode)


def bound_by_hand(model: DiffusionLM, context: list[int], answer: list[int], rest: int = 0) -> float:
    """Σ over all sets of hidden answer tokens; `rest` masks stand behind the answer."""
    size, total = len(answer), 0.0
    row = torch.tensor([[*context, *answer, *[MASK] * rest]])
    for n in range(1, size + 1):
        for chosen in combinations(range(size), n):
            where = torch.zeros_like(row, dtype=torch.bool)
            where[0, [len(context) + i for i in chosen]] = True
            z = row.masked_fill(where, MASK)
            nll = model.predict(z, torch.full((1, 1), n / size)).nll(where, row).sum()
            total += float(nll) / (n * math.comb(size, n))
    return total


@torch.no_grad()
@pytest.mark.parametrize(("context", "answer"), [("abca", "f"), ("ab", "fed"), ("", "dcba")])
def test_a_short_answer_has_its_bound_without_chance(build: Build, context: str, answer: str) -> None:
    model = build(tokenizer=LETTERS)
    scorer = Scorer(RowLayout(TextModel(model)), draws=8)
    (score,) = scorer([asked(scorer.layout, context, answer)])
    by_hand = bound_by_hand(model, LETTERS.encode(context), LETTERS.encode(answer))
    assert score.log_p == pytest.approx(-by_hand, abs=1e-4)
    assert score.variance == 0
    assert not scorer.exact


@torch.no_grad()
def test_a_long_answer_is_estimated_within_its_error(build: Build) -> None:
    """Over many seeds the mean is the enumerated bound, and the stated error is the spread."""
    model, answer = build(tokenizer=LETTERS), "fedcba"
    layout = RowLayout(TextModel(model))
    truth = bound_by_hand(model, [0, 1], LETTERS.encode(answer))
    found = [Scorer(layout, draws=3, seed=seed)([asked(layout, "ab", answer)])[0] for seed in range(60)]
    errors = torch.tensor([-score.log_p - truth for score in found])
    spread = float(errors.std())
    assert abs(float(errors.mean())) < 4 * spread / math.sqrt(len(found))
    stated = math.sqrt(sum(score.variance for score in found) / len(found))
    assert 0.7 < stated / spread < 1.4


@torch.no_grad()
def test_unknown_text_behind_the_answer_is_masked(build: Build) -> None:
    """Rows of a fixed length in training: what follows the answer is noise, not padding."""
    model = build(tokenizer=LETTERS)
    run = replace(tiny_run(model), framing=DocumentRows(7, fill_with_eos=True))
    (score,) = Scorer(layout := RowLayout(TextModel(model, run)))([asked(layout, "ab", "cd")])
    assert score.log_p == pytest.approx(-bound_by_hand(model, [0, 1], [2, 3], rest=3), abs=1e-4)


def tiny_run(model: DiffusionLM) -> Run:
    base = presets.mdlm_tiny()
    return replace(base, model=model.config, tokenizer=LETTERS)


@torch.no_grad()
def test_unknown_text_is_noise_at_all_times_for_other_noise(build: Build) -> None:
    """Its times are one, so what the filler says there does not matter."""
    process = Interpolating(LETTERS.vocab)
    model = build(tokenizer=LETTERS, process=process, head=Softmax())
    tokens, unknown = torch.tensor([[0, 1, 2, 3, 4, 5]]), torch.tensor([[False] * 4 + [True] * 2])
    learn = torch.tensor([[False, False, True, True, False, False]])
    batches = [Batch(tokens.masked_fill(unknown, filler), learn, unknown=unknown) for filler in (0, 5)]
    first, second = (float(likelihood(model, [batch], seed=3).row_nats) for batch in batches)
    assert first == pytest.approx(second, abs=1e-5)
    seen = float(likelihood(model, [replace(batches[0], unknown=None)], seed=3).row_nats)
    assert abs(first - seen) > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("pattern", [Causal(MASK), BlockCausal(2)], ids=["causal", "blocks of two"])
def test_conditionals_make_the_joint(build: Build, pattern: Causal | BlockCausal) -> None:
    """log p(answer | context) = log p(both) − log p(context): exact for causal models, for blocks at their ends."""
    model = build(pattern, tokenizer=LETTERS)
    scorer = Scorer(layout := RowLayout(TextModel(model)), draws=4)
    (score,) = scorer([asked(layout, "abca", "fed")])
    whole, before = (
        float(likelihood(model, [layout.batch([AnswerRequest((), tuple(LETTERS.encode(text)))])], draws=4).row_nats)
        for text in ("abcafed", "abca")
    )
    assert score.log_p == pytest.approx(before - whole, abs=1e-4)
    assert score.variance == 0
    assert scorer.exact == (pattern == Causal(MASK))
    assert scorer.calls == (1 if scorer.exact else 8)


@torch.no_grad()
def test_exact_likelihood_by_the_chain_rule(build: Build) -> None:
    model = build(Causal(MASK), tokenizer=LETTERS)
    ids = torch.tensor([LETTERS.encode("abcafed")])
    hidden = torch.full_like(ids, MASK)
    log_p = model.predict(hidden, torch.ones(1, 1), Context(clean=ids)).x
    each = log_p.gather(-1, ids[..., None]).squeeze()
    (score,) = Scorer(layout := RowLayout(TextModel(model)))([asked(layout, "abca", "fed")])
    assert score.log_p == pytest.approx(float(each[4:].sum()), abs=1e-4)


@torch.no_grad()
def test_a_plain_causal_model_is_exact_too(build: Build) -> None:
    """One without a start token: nothing predicts the first token of a row, all others count."""
    model = build(Causal(), tokenizer=LETTERS, head=Shift(Subs()))
    scorer = Scorer(layout := RowLayout(TextModel(model)))
    answer, whole, before = scorer(
        [asked(layout, "abca", "fed"), asked(layout, "", "abcafed"), asked(layout, "", "abca")]
    )
    assert answer.log_p == pytest.approx(whole.log_p - before.log_p, abs=1e-4)
    assert (answer.tokens, whole.tokens) == (3, 6)
    assert scorer.exact
    (text,) = _AnswerWriter(layout)([(asked(layout, "abca", "f"), _TaskGeneration(new=3))])
    assert scorer([asked(layout, "abca", text)])[0].greedy


@torch.no_grad()
def test_a_long_text_is_scored_in_windows(build: Build) -> None:
    """Each token once; every window after the first sees one token before it."""
    model = build(Causal(MASK), tokenizer=LETTERS)
    layout = RowLayout(TextModel(model), 4)
    request = asked(layout, "", "abcafedbac")
    parts = layout.windows(request)
    assert [part.answer for part in parts] == [(0, 1, 2, 0), (5, 4, 3), (1, 0, 2)]
    assert [part.context for part in parts] == [(), (0,), (3,)]
    (score,) = Scorer(layout)([request])
    single = Scorer(layout)(parts)
    assert score.log_p == pytest.approx(sum(each.log_p for each in single), abs=1e-5)
    assert score.tokens == 10


def test_a_long_context_is_cut_at_its_beginning(build: Build) -> None:
    layout = RowLayout(TextModel(build(tokenizer=LETTERS)), 5)
    assert layout.windows(asked(layout, "abcdef", "ab")) == [AnswerRequest((3, 4, 5), (0, 1))]


def test_spaces_belong_to_the_answer(build: Build) -> None:
    letters = CharTokenizer("ab cdf", ("mask",))
    layout = RowLayout(TextModel(build(tokenizer=letters)))
    assert layout.request("ab  ", "c", letters.encode) == AnswerRequest((0, 1), (2, 2, 3))


@torch.no_grad()
def test_a_score_does_not_depend_on_its_company(build: Build) -> None:
    model = build(tokenizer=LETTERS)
    scorer = Scorer(layout := RowLayout(TextModel(model)), draws=2)
    requests = [asked(layout, "ab" * n, "cdefab"[: n + 2]) for n in range(1, 5)]
    together, alone = scorer(requests), [scorer([request])[0] for request in requests]
    assert [s.log_p for s in together] == pytest.approx([s.log_p for s in alone], abs=1e-4)
    other = replace(scorer, seed=1)(requests)
    assert other[3].log_p != together[3].log_p
    assert scorer(requests) == together


def test_answers_to_one_question_share_their_noise() -> None:
    first, second, other = AnswerRequest((1, 2), (3,)), AnswerRequest((1, 2), (4,)), AnswerRequest((1,), (2, 3))
    assert first.sample == second.sample != other.sample


@torch.no_grad()
@pytest.mark.parametrize("pattern", [Full(), Causal(MASK), BlockCausal(3)], ids=["full", "causal", "blocks"])
def test_greedy_is_what_the_greedy_sampler_writes(build: Build, pattern: Full | Causal | BlockCausal) -> None:
    """Its own answer is greedy; with any token changed it is not."""
    model = build(pattern, tokenizer=LETTERS)
    inner = Unmask(6, Confidence())
    sampler: Sampler = inner if pattern == Full() else Blocks(inner)
    z = torch.tensor([[0, 1, 2] + [MASK] * 6, [3, 3, 3] + [MASK] * 6])
    fixed = z != MASK

    written = final_canvas(sampler(model, model.process, Canvas(z, fixed), rng=rng(0, 2))).z
    assert _is_greedy(model, Batch(written, ~fixed)).tolist() == [True, True]
    changed = written.clone()
    changed[1, 5] = (changed[1, 5] + 1) % 6
    assert _is_greedy(model, Batch(changed, ~fixed)).tolist() == [True, False]


def test_whole_texts_have_no_conditional_likelihood() -> None:
    run = presets.tencdm_tiny()
    model = DiffusionLM(run.model, run.tokenizer)
    with pytest.raises(ValueError, match="encodes whole texts"):
        Scorer(RowLayout(TextModel(model, run)))
