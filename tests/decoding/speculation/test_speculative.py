"""Speculation: the target's law and text, whoever drafts; caches are cropped exactly; biased rules are refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from redraft.core import Canvas, Context, Masked, Rng, Vocab, rng, sample_categorical
from redraft.decoding import (
    AcceptRule,
    Ancestral,
    AnyOrder,
    Blocks,
    BlockwiseRule,
    Confidence,
    DiffusionDraft,
    DraftCosts,
    Drafter,
    DraftRequest,
    MatchRule,
    NoDraft,
    PointMassRule,
    PromptLookup,
    Proposal,
    SampledDraft,
    Sampler,
    SharedGumbelRule,
    SpeculativeSampler,
    TextLookup,
    TokenwiseRule,
    Unmask,
    final_canvas,
)
from redraft.decoding.speculation.acceptance import ACCEPT_RULES, _accept_blockwise, _accept_tokenwise, _RoundNoise
from redraft.models import Causal, DiffusionLM, Full, KeyValueCache, Shift
from redraft.tasks import count_calls

Build = Callable[..., DiffusionLM]
Ragged = Callable[[int, int, int], Canvas]
Promises = Callable[[Sampler, DiffusionLM, Canvas, Rng], Canvas]
PValue = Callable[[Tensor, Tensor], float]
MASK, WORDS = 6, 3
RULE_LIST = list(ACCEPT_RULES.values())
by_rule = pytest.mark.parametrize("rule", RULE_LIST, ids=ACCEPT_RULES)


@pytest.fixture(scope="module")
def target(build: Build) -> DiffusionLM:
    return build(Causal())


@pytest.fixture(scope="module")
def plain(build: Build) -> DiffusionLM:
    """Without a start token, as Llama and GPT-2."""
    return build(Causal(), head=Shift())


@pytest.fixture(scope="module")
def other(build: Build) -> DiffusionLM:
    return build(seed=5)


def drafters(other: DiffusionLM) -> list[Drafter]:
    process = other.process
    assert isinstance(process, Masked)
    return [
        NoDraft(),
        PromptLookup(1, 1),
        TextLookup(((0, 1, 2, 0, 1, 1), (2, 1, 0, 0))),
        DiffusionDraft(other, process),
        DiffusionDraft(other, process, steps=2, row_length=9, window=4),
        SampledDraft(other, process, Unmask(2, Confidence(1.0))),
    ]


def fitting(rule: AcceptRule, found: list[Drafter]) -> list[Drafter]:
    return [draft for draft in found if draft.ordered or not rule.needs_log_q]


def write(sampler: Sampler, model: DiffusionLM, canvas: Canvas, seed: int = 0) -> Tensor:
    return final_canvas(sampler(model, model.process, canvas, rng=rng(seed, len(canvas.z)))).z


def begun(rows: int, length: int, prompt: int = 1) -> Canvas:
    z = torch.arange(rows)[:, None] % MASK + torch.zeros(rows, length, dtype=torch.int64)
    return Canvas(z, torch.arange(length).expand(rows, -1) < prompt)


# --- the law, on toys: three words, drafts of three tokens ---


def table(seed: int) -> Tensor:
    """(1 + 3 + 9 + 27, 3) a law of the next word after each text of up to three words."""
    return torch.rand(40, WORDS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).softmax(-1) ** 2


def laws(of: Tensor, tokens: Tensor, until: int) -> Tensor:
    """(B, until, 3) the law of each word given those before it."""
    number, begin, found = torch.zeros(len(tokens), dtype=torch.int64), [0, 1, 4, 13], []
    for i in range(until):
        found.append(of[begin[i] + number])
        number = number * WORDS + tokens[:, i] if i < tokens.shape[1] else number
    p = torch.stack(found, 1)
    return p / p.sum(-1, keepdim=True)


def texts_of(of: Tensor) -> Tensor:
    """(81,) the probability of each text of four words."""
    every = torch.tensor(list(product(range(WORDS), repeat=4)))
    return laws(of, every, 4).gather(-1, every[..., None]).squeeze(-1).prod(-1)


def drafted(q: Tensor, keys: Rng, groups: list[int], order: list[int]) -> tuple[Tensor, Tensor]:
    """Three words from a joint law, revealed in groups in this order, and the law each was drawn from.

    The law of a position given some others, wherever they stand, is that of an ideal diffusion model.
    """
    joint = texts_of(q).view([WORDS] * 4).sum(-1)
    tokens, said = torch.zeros(len(keys.key), 3, dtype=torch.int64), torch.zeros(len(keys.key), 3, WORDS).double()
    known: list[int] = []
    for number, size in enumerate(groups):
        group, order = order[:size], order[size:]
        for i in group:
            hidden = [k for k in range(3) if k != i and k not in known]
            law = (joint.sum(hidden, keepdim=True) if hidden else joint).movedim(i, -1)
            at = [torch.zeros_like(tokens[:, 0]) if k in hidden else tokens[:, k] for k in range(3) if k != i]
            said[:, i] = law[at[0], at[1]] / law[at[0], at[1]].sum(-1, keepdim=True)
        for i in group:
            tokens[:, i] = sample_categorical(said[:, i].log(), keys.fold(number).fold(i).uniform(1).squeeze(1))
        known += group
    return tokens, said


def rest(p: Tensor, tokens: Tensor, count: Tensor, after: Tensor, keys: Rng) -> Tensor:
    """(B,) the number of the text of four words that begins as accepted and goes on by the target's law."""
    text = torch.cat([tokens, torch.zeros_like(tokens[:, :1])], 1).scatter(1, count[:, None], after[:, None])
    for i in range(4):
        free = sample_categorical(laws(p, text, i + 1)[:, i].log(), keys.fold(i).uniform(1).squeeze(1))
        text[:, i] = torch.where(i > count, free, text[:, i])
    return (text * torch.tensor([27, 9, 3, 1])).sum(-1)


ORDERS = {"one shot": ([3], [0, 1, 2]), "groups": ([1, 2], [0, 1, 2]), "left to right": ([1, 1, 1], [0, 1, 2])}
DRAWS = 40_000


@by_rule
@pytest.mark.parametrize("order", ORDERS)
def test_the_law_is_the_targets(rule: AcceptRule, order: str, p_value: PValue) -> None:
    p, q, keys = table(0), table(1), rng(3, DRAWS)
    tokens, said = drafted(q, keys.fold(10), *ORDERS[order])
    if isinstance(rule, SharedGumbelRule):  # the drafter draws with the same noise
        tokens = rule.propose(said.log(), torch.arange(3), _RoundNoise(keys, 0))
        said = said * torch.nan  # and nobody looks at its law
    found = rule(laws(p, tokens, 4).log(), Proposal(tokens, said.log()), torch.arange(4), _RoundNoise(keys, 0))
    number = rest(p, tokens, found.count, found.next, keys.fold(11))
    assert found.count.double().mean() > 0.3
    assert p_value(number.bincount(minlength=81), texts_of(p) * DRAWS) > 1e-3


def test_a_biased_rule_is_caught(p_value: PValue) -> None:
    """Reveal-time probabilities of a draft that was not written left to right: the ratio rule is then wrong."""
    p, q, keys = table(0), table(1) ** 4, rng(3, DRAWS)
    tokens, said = drafted(q, keys.fold(10), [1, 1, 1], [2, 1, 0])
    wrong = TokenwiseRule()(
        laws(p, tokens, 4).log(), Proposal(tokens, said.log()), torch.arange(4), _RoundNoise(keys, 0)
    )
    right = PointMassRule()(laws(p, tokens, 4).log(), Proposal(tokens), torch.arange(4), _RoundNoise(keys, 0))
    for found, least, most in ((wrong, 0.0, 1e-6), (right, 1e-3, 1.0)):
        number = rest(p, tokens, found.count, found.next, keys.fold(11))
        assert least <= p_value(number.bincount(minlength=81), texts_of(p) * DRAWS) <= most


def test_block_verification_accepts_more_than_token_wise() -> None:
    p, q, keys = table(0), table(1), rng(3, DRAWS)
    tokens, said = drafted(q, keys, [1, 1, 1], [0, 1, 2])
    numbers = keys.fold(1).uniform(3), keys.fold(2).once().squeeze(1)
    by_token, by_block = (
        f(laws(p, tokens, 4), said, tokens, *numbers).count for f in (_accept_tokenwise, _accept_blockwise)
    )
    assert by_block.double().mean() > by_token.double().mean()


def test_a_perfect_draft_is_accepted_whole() -> None:
    p, keys = table(0), rng(3, 500)
    tokens, said = drafted(p, keys, [1, 1, 1], [0, 1, 2])
    for rule in (TokenwiseRule(), BlockwiseRule()):
        found = rule(laws(p, tokens, 4).log(), Proposal(tokens, said.log()), torch.arange(4), _RoundNoise(keys, 0))
        assert found.count.eq(3).all()


# --- the sampler ---


@pytest.mark.parametrize("rule", [TokenwiseRule(), BlockwiseRule()], ids=["token", "block"])
def test_texts_have_the_targets_law(rule: AcceptRule, build: Build, p_value: PValue) -> None:
    """Whole texts by the sampler itself, at another temperature, against their enumerated probabilities.

    The texts of the other rules are held to those of plain sampling, word for word.
    """
    process = Masked(Vocab(4, mask=3))
    model, drafter = (build(pattern, process=process, seed=s) for pattern, s in ((Causal(), 0), (Full(), 3)))
    rows, every = 200, torch.tensor(list(product(range(3), repeat=2)))
    said = model.predict(torch.full_like(every, 3), torch.ones(9, 1), Context(clean=every)).x.detach().double() / 3
    law = said.log_softmax(-1).gather(-1, every[..., None]).squeeze(-1).sum(-1).exp()
    sampler = SpeculativeSampler(DiffusionDraft(drafter, process), rule, costs=None, temperature=3)
    canvas = Canvas(torch.zeros(rows, 2, dtype=torch.int64), torch.zeros(rows, 2, dtype=torch.bool))
    count = (write(sampler, model, canvas, seed=1) * torch.tensor([3, 1])).sum(-1).bincount(minlength=9)
    assert p_value(count, law * rows) > 1e-3
    assert 0 < sampler.tally.acceptance < 1


@given(seed=st.integers(0, 10**6), rule=st.sampled_from(RULE_LIST), which=st.integers(0, 4), adapt=st.booleans())
def test_promises(
    target: DiffusionLM,
    other: DiffusionLM,
    ragged: Ragged,
    assert_promises: Promises,
    seed: int,
    rule: AcceptRule,
    which: int,
    adapt: bool,
) -> None:
    found = fitting(rule, drafters(other))
    sampler = SpeculativeSampler(found[which % len(found)], rule, 3, DraftCosts() if adapt else None)
    assert_promises(sampler, target, ragged(4, 8, seed), rng(seed, 4))


@pytest.mark.parametrize("kind", ["target", "plain"])
def test_the_text_of_plain_sampling(kind: str, other: DiffusionLM, request: pytest.FixtureRequest) -> None:
    """Sample and match: the same words as without a drafter, for any drafter, and in fewer passes."""
    model, canvas = request.getfixturevalue(kind), begun(3, 10)
    alone = write(Blocks(Ancestral(1)), model, canvas)
    likeliest = write(Blocks(Unmask(1)), model, canvas)
    for draft in [*drafters(other), DiffusionDraft(model, model.process, steps=9)]:
        assert torch.equal(write(SpeculativeSampler(draft, MatchRule(), 5, None), model, canvas), alone)
        assert torch.equal(
            write(SpeculativeSampler(draft, MatchRule(), 5, None, temperature=0), model, canvas), likeliest
        )


def test_shared_gumbel_text_is_the_same_for_every_drafter(target: DiffusionLM, other: DiffusionLM) -> None:
    canvas = begun(3, 10)
    first, *more = (
        write(SpeculativeSampler(draft, SharedGumbelRule(), 5, None), target, canvas) for draft in drafters(other)
    )
    assert all(torch.equal(first, text) for text in more)


@by_rule
def test_temperature_0_is_greedy_decoding(rule: AcceptRule, target: DiffusionLM, other: DiffusionLM) -> None:
    alone = write(Blocks(Unmask(1)), target, begun(2, 10))
    for draft in fitting(rule, drafters(other)):
        assert torch.equal(write(SpeculativeSampler(draft, rule, 4, temperature=0), target, begun(2, 10)), alone)


@by_rule
def test_rows_are_as_if_alone(rule: AcceptRule, target: DiffusionLM, other: DiffusionLM, ragged: Ragged) -> None:
    canvas, keys = ragged(4, 9, 1), rng(2, 4)
    sampler = SpeculativeSampler(DiffusionDraft(other, other.process), rule, 3)  # type: ignore[arg-type]
    together = final_canvas(sampler(target, target.process, canvas, rng=keys)).z
    for i in range(4):
        index = torch.tensor([i])
        assert torch.equal(
            final_canvas(sampler(target, target.process, canvas.rows(index), rng=keys.rows(index))).z[0], together[i]
        )


@pytest.mark.parametrize("kind", ["target", "plain"])
def test_a_cropped_cache_is_a_fresh_one(kind: str, request: pytest.FixtureRequest) -> None:
    """Bit for bit in what it holds of keys, values and states; and it predicts the same."""
    model = request.getfixturevalue(kind)
    z, place = torch.tensor([[1, 4, 2, 0, 3, 5]]), torch.arange(6)[None]
    whole = model.absorb(z, Context(positions=place))
    short = model.absorb(z[:, :4], Context(positions=place[:, :4]))
    for context in (whole, short):
        assert isinstance(context.cache, KeyValueCache)
    cropped = whole.cache.crop(4)
    assert cropped.covers.shape == (1, 4)
    for (k, v), (k2, v2) in zip(cropped.layers, short.cache.layers, strict=True):
        torch.testing.assert_close((k, v), (k2, v2), rtol=0, atol=1e-6)
    again = model.absorb(z[:, 4:5], Context(positions=place[:, 4:5], cache=cropped)).cache
    torch.testing.assert_close(again.last_state, whole.cache.crop(5).last_state, rtol=0, atol=1e-5)


def test_one_pass_per_round(target: DiffusionLM) -> None:
    """A drafter that is always right writes length + 1 tokens per pass; prompt and first draft share a pass."""
    right = write(Blocks(Unmask(1)), target, begun(1, 13))

    class Knows(Drafter):
        ordered = False

        def __call__(self, asked: object) -> Proposal:
            done = asked.z.shape[1]  # type: ignore[attr-defined]
            return Proposal(right[:, done : done + asked.count])  # type: ignore[attr-defined]

    sampler = SpeculativeSampler(Knows(), length=3, costs=None, temperature=0)
    with count_calls(target) as counted:
        assert torch.equal(write(sampler, target, begun(1, 13)), right)
    assert counted.rows == 3  # twelve tokens, four per round
    assert (sampler.tally.rounds, sampler.tally.acceptance, sampler.tally.tokens_per_round) == (3, 1.0, 4.0)


def test_the_length_follows_acceptance(target: DiffusionLM) -> None:
    """Useless drafts are soon left out; now and then they are tried again."""

    class Wrong(Drafter):
        ordered = False

        def __call__(self, asked: object) -> Proposal:
            return Proposal(torch.full((1, asked.count), 7 - 2))  # type: ignore[attr-defined]

    sampler = SpeculativeSampler(Wrong(), length=6, temperature=0)
    model = target
    write(sampler, model, begun(1, 60))
    assert sampler.tally.drafted < 40
    assert [DraftCosts(0.1, 0.2).best_length(a, 8) for a in (0.0, 0.5, 0.99)] == [0, 2, 8]
    assert [DraftCosts(0.15, 1.2, always_accepted).best_length(2 / 3, 8) > 0 for always_accepted in (0, 1)] == [
        False,
        True,
    ]


def test_an_end_token_inside_a_draft_ends_the_row(build: Build, other: DiffusionLM) -> None:
    model = build(Causal(), process=Masked(Vocab(7, mask=6, eos=2)))
    canvas, seeds = begun(8, 16), 3
    alone = write(Blocks(Ancestral(1), stop=True), model, canvas, seeds)
    found = write(
        SpeculativeSampler(DiffusionDraft(other, other.process), length=4, costs=None, stop=True), model, canvas, seeds
    )  # type: ignore[arg-type]
    assert torch.equal(found, alone)
    assert (alone == 2).any()


# --- what is refused ---


@pytest.mark.parametrize("rule", [TokenwiseRule(), BlockwiseRule()], ids=["token", "block"])
def test_rules_that_would_be_biased_are_refused(rule: AcceptRule, other: DiffusionLM) -> None:
    for draft in (PromptLookup(), SampledDraft(other, other.process, Unmask(2, AnyOrder()))):
        with pytest.raises(ValueError, match="would bias the text"):
            SpeculativeSampler(draft, rule)


def test_full_attention_is_refused(other: DiffusionLM) -> None:
    with pytest.raises(ValueError, match="is for causal models"):
        write(SpeculativeSampler(), other, begun(1, 4))


def proposed(draft: Drafter, text: list[int]) -> list[int]:
    asked = DraftRequest(torch.tensor([text]), 3, 9, 1.0, MatchRule(), _RoundNoise(rng(0), len(text)))
    return draft(asked).tokens[0].tolist()


def test_lookup_finds_the_latest_repetition() -> None:
    draft = PromptLookup()
    assert proposed(draft, [1, 2, 3, 4, 1, 2]) == [3, 4, 1]
    assert proposed(draft, [1, 2, 5, 1, 2, 3, 1, 2]) == [3, 1, 2]
    assert proposed(draft, [0, 1, 2]) == []
    assert proposed(draft, [1, 2, 1]) == []
    assert proposed(PromptLookup(1, 1), [1, 2, 1]) == [2, 1]


def test_lookup_in_other_texts() -> None:
    texts = ((5, 6, 7, 8), (4, 6, 7, 1), (3, 6, 7, 1), (2, 2, 2), (0, 5), (0, 6))
    draft = TextLookup(texts, longest=2)
    assert proposed(draft, [5, 6]) == [7, 1], "the usual token first, then nothing: a text ended there"
    assert proposed(TextLookup(texts, longest=3), [5, 6]) == [7, 8], "the longer context decides"
    assert proposed(TextLookup(texts, min_probability=0.4), [0]) == [], "a third of a chance is too little"
    assert proposed(draft, [0]) == [5], "enough, but not for another token: a third of a half"
    assert proposed(draft, [5, 6, 0, 5, 6]) == [0, 5, 6], "the text itself comes before others"
    assert proposed(draft, [8]) == []
