"""Drafters that read the target's own states: what they learn is what they draft; texts and laws stay the target's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor

from redraft.core import Batch, Canvas, Context, Masked, Vocab, rng
from redraft.decoding import (
    AcceptRule,
    Ancestral,
    Blocks,
    BlockwiseRule,
    MatchRule,
    NoDraft,
    OwnDrafter,
    SharedGumbelRule,
    SpeculativeSampler,
    TokenwiseRule,
    Unmask,
    final_canvas,
)
from redraft.models import (
    Causal,
    CheckpointError,
    DiffusionLM,
    DraftConfig,
    DraftNetwork,
    KeyValueCache,
    LoraConfig,
    SelfDrafter,
    Shift,
    SideDrafter,
    TransformerConfig,
    with_weight_format,
    write_adapter,
)
from redraft.training import DrafterObjective, TrainStep, merge_adapter

Build = Callable[..., DiffusionLM]
PValue = Callable[[Tensor, Tensor], float]
KINDS: dict[str, DraftConfig] = {"beside": SideDrafter(3, layers=2, bigram=4), "itself": SelfDrafter(3, bigram=4)}
by_kind = pytest.mark.parametrize("kind", KINDS)
by_head = pytest.mark.parametrize("shift", [False, True], ids=["start token", "plain"])


def with_drafter(build: Build, tiny: TransformerConfig, kind: str, shift: bool = False, words: int = 7) -> DiffusionLM:
    """A causal model with random weights, adapter and drafter included."""
    network = replace(tiny, pattern=Causal(), lora=LoraConfig(2, 4.0) if kind == "itself" else None)
    process = Masked(Vocab(words, mask=words - 1))
    model = build(Causal(), network, process=process, **({"head": Shift()} if shift else {}))
    drafting = DiffusionLM(model.config.with_part(KINDS[kind]))
    old = dict(model.named_parameters())
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, p in drafting.named_parameters():
            p.copy_(old[name] if name in old else torch.randn(p.shape, generator=generator) * 0.3)
    return drafting.eval()


def write(sampler: object, model: DiffusionLM, canvas: Canvas, seed: int = 0) -> Tensor:
    return final_canvas(sampler(model, model.process, canvas, rng=rng(seed, len(canvas.z)))).z  # type: ignore[operator]


def begun(rows: int, length: int, prompt: int = 2) -> Canvas:
    z = torch.arange(rows)[:, None] % 6 + torch.zeros(rows, length, dtype=torch.int64)
    return Canvas(z, torch.arange(length).expand(rows, -1) < prompt)


def drafts(model: DiffusionLM) -> OwnDrafter:
    return OwnDrafter(model.part(DraftNetwork).state(model))


@by_head
@by_kind
def test_what_is_learned_is_what_is_drafted(build: Build, tiny: TransformerConfig, kind: str, shift: bool) -> None:
    """States behind an anchor, in training from a whole row, and while a text is written."""
    model, z = with_drafter(build, tiny, kind, shift), torch.tensor([[1, 4, 2, 0, 3, 5, 1, 2]])
    drafter = model.part(DraftNetwork)
    network = model.network
    with torch.no_grad():
        read = network.absorb(z.expand(2, -1))
        taught = drafter.block_states(network, read, z.expand(2, -1), torch.tensor([2, 4]))[:1]
    state, context, begin = drafter.state(model), Context(), 0
    for known in (3, 5):
        place = torch.arange(begin, known - 1)[None]
        context = model.absorb(z[:, begin : known - 1], replace(context, positions=place))
        state.observe(z[:, :known], context)
        said = state.logits(z[:, :known], context, 8)
        assert said is not None
        expected = drafter.logits(network, taught[0, known // 2 - 1])
        torch.testing.assert_close(said[0, drafter.target_tokens :], expected, rtol=1e-4, atol=1e-4)
        begin = known - 1


@by_head
@by_kind
def test_texts_are_those_of_plain_decoding(build: Build, tiny: TransformerConfig, kind: str, shift: bool) -> None:
    model = with_drafter(build, tiny, kind, shift)
    canvas = begun(3, 11)
    for temperature, plain in ((0.0, Blocks(Unmask(1))), (1.0, Blocks(Ancestral(1)))):
        alone = write(plain, model, canvas)
        for length in (1, 3, 8):
            sampler = SpeculativeSampler(drafts(model), MatchRule(), length, None, temperature=temperature)
            assert torch.equal(write(sampler, model, canvas), alone)
            assert sampler.tally.drafted > 0
    gumbel = [
        write(SpeculativeSampler(each, SharedGumbelRule(), 4, None), model, canvas)
        for each in (NoDraft(), drafts(model))
    ]
    assert torch.equal(*gumbel)


@pytest.mark.parametrize("weights", ["int8", "packed"])
@by_kind
def test_texts_in_other_forms_of_weights(build: Build, tiny: TransformerConfig, kind: str, weights: str) -> None:
    model = with_weight_format(with_drafter(build, tiny, kind), weights)
    alone = write(Blocks(Unmask(1)), model, begun(2, 12))
    assert torch.equal(
        write(SpeculativeSampler(drafts(model), length=5, costs=None, temperature=0), model, begun(2, 12)), alone
    )


def test_the_first_token_of_ones_own_draft_is_always_accepted(build: Build, tiny: TransformerConfig) -> None:
    """It is the model's own; two tokens per round at least."""
    model = with_drafter(build, tiny, "itself")
    for temperature in (0.0, 1.0):
        sampler = SpeculativeSampler(drafts(model), length=2, costs=None, temperature=temperature)
        write(sampler, model, begun(1, 13))
        assert sampler.tally.rounds <= 7  # eleven tokens; the first round has nothing to draft from


def test_given_text_in_the_middle(build: Build, tiny: TransformerConfig) -> None:
    fixed = torch.tensor([[True, True, False, False, False, True, True, True, False, False, False, False]])
    canvas = Canvas(torch.arange(12)[None] % 6, fixed)
    for kind in KINDS:
        model = with_drafter(build, tiny, kind)
        sampler = SpeculativeSampler(drafts(model), length=3, costs=None, temperature=0)
        assert torch.equal(write(sampler, model, canvas), write(Blocks(Unmask(1)), model, canvas))


ROWS = 250


@pytest.mark.parametrize("rule", [TokenwiseRule(), BlockwiseRule()], ids=["token", "block"])
@by_kind
def test_the_law_is_the_models(
    build: Build, tiny: TransformerConfig, kind: str, rule: AcceptRule, p_value: PValue
) -> None:
    """χ² over the last two of four tokens behind a given one, three words, drafts of two; these rules need q itself."""
    model = with_drafter(build, tiny, kind, words=4)
    texts = torch.tensor([[0, *rest] for rest in product(range(3), repeat=4)])
    with torch.no_grad():
        said = model.predict(texts.clone().fill_(3), torch.ones(len(texts), 1), Context(clean=texts)).x
    joint = said.gather(-1, texts[..., None]).squeeze(-1)[:, 1:].double().sum(-1).exp()
    canvas = Canvas(torch.zeros(ROWS, 5, dtype=torch.int64), torch.arange(5).expand(ROWS, -1) < 1)
    sampler = SpeculativeSampler(drafts(model), rule, 2, None)
    number = (write(sampler, model, canvas)[:, 3:] * torch.tensor([3, 1])).sum(-1)
    expected = joint.view(9, 9).sum(0) * ROWS
    cell = torch.where(expected < 6, expected.argsort()[-3], torch.arange(9))  # rare ones join another
    observed, expected = (
        torch.zeros(9).double().index_add(0, cell, a) for a in (number.bincount(minlength=9).double(), expected)
    )
    assert p_value(observed[expected > 0], expected[expected > 0]) > 1e-3
    assert sampler.tally.accepted > 0.1 * sampler.tally.drafted


@by_kind
def test_only_the_drafter_learns(build: Build, tiny: TransformerConfig, kind: str) -> None:
    """And with its gradient the drafter comes nearer to the model; the model says what it said."""
    model = with_drafter(build, tiny, kind)
    tokens = torch.randint(0, 6, (8, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = model.predict(tokens, torch.zeros(8, 1), Context(clean=tokens)).x
    step, batch = TrainStep(model, DrafterObjective(stride=2)), Batch.of(tokens)
    learning = {n for n, p in model.named_parameters() if p.requires_grad}
    assert all(n.startswith("parts.drafter.") or "lora_" in n for n in learning)
    assert any("lora_" in n for n in learning) == (kind == "itself")
    adam = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 0.02)
    losses = []
    for _ in range(25):
        loss = step(batch, rng(0, 8)).mean
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
    with torch.no_grad():
        assert torch.equal(model.eval().predict(tokens, torch.zeros(8, 1), Context(clean=tokens)).x, before)


def test_an_adapter_that_drafts_is_not_merged_into_the_model(
    build: Build, tiny: TransformerConfig, tmp_path: Path
) -> None:
    model, z = with_drafter(build, tiny, "itself"), torch.tensor([[1, 4, 2, 0]])
    plain = merge_adapter(model)
    assert plain.config.network.lora is None
    assert "drafter" not in plain.parts
    with torch.no_grad():
        assert torch.equal(plain.network(z), model.network(z))
    with pytest.raises(CheckpointError, match="only drafts for its own model"):
        write_adapter(tmp_path / "adapter", model, "base")


def test_what_cannot_be_is_refused(build: Build, tiny: TransformerConfig) -> None:
    plain = build(Causal())
    with pytest.raises(ValueError, match="no drafter; train one"):
        DrafterObjective().trained_parameters(plain)
    with pytest.raises(ValueError, match="no drafter; train one"):
        plain.part(DraftNetwork)
    with pytest.raises(ValueError, match="are for causal networks"):
        build().config.with_part(SideDrafter())
    with pytest.raises(ValueError, match="needs an adapter"):
        plain.config.with_part(SelfDrafter())
    model = with_drafter(build, tiny, "beside")
    with pytest.raises(ValueError, match="lacks some"):
        model.part(DraftNetwork).state(model).observe(
            torch.zeros(1, 4, dtype=torch.int64), Context(cache=KeyValueCache())
        )
    with pytest.raises(ValueError, match="leave nothing to draft"):
        DrafterObjective()(model, Batch.of(torch.zeros(1, 1, dtype=torch.int64)), rng=rng(0))
    assert TokenwiseRule().needs_log_q
    assert drafts(model).ordered
