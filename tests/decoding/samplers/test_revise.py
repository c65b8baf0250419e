"""Second thoughts: blind remasking around any sampler, targeted remasking, and the layer that learns where to aim."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

import redraft
from redraft.core import (
    Batch,
    Canvas,
    CappedRate,
    Context,
    Cosine,
    Interpolating,
    LoopRate,
    Markov,
    Masked,
    Prediction,
    RescaledRate,
    Rng,
    StarRate,
    TablePrediction,
    Vocab,
    WindowedRate,
    rng,
)
from redraft.decoding import (
    Ancestral,
    Blocks,
    ConstantScore,
    EvenWarp,
    GuidedStar,
    HoldWarp,
    Sampler,
    WithRemasking,
    final_canvas,
)
from redraft.decoding.samplers.base import _time_grid
from redraft.evaluation.laws import tokens as check
from redraft.evaluation.laws.sampling import _sampling_p_value
from redraft.models import CheckpointError, DiffusionLM, ErrorCritic, ErrorHead, ErrorHeadConfig, TransformerConfig
from redraft.tasks import count_calls
from redraft.training import (
    ErrorHeadObjective,
    Objective,
    Run,
    TrainStep,
    first_batches,
    fit,
    load_rows,
    presets,
)
from redraft.training.runs import variations
from redraft.training.runs.loading import (
    init_from,
)

Build = Callable[..., DiffusionLM]
Ragged = Callable[[int, int, int], Canvas]
Promises = Callable[[Sampler, DiffusionLM, Canvas, Rng], Canvas]
RowsAlone = Callable[[Sampler, DiffusionLM], None]
PValue = Callable[[Tensor, Tensor], float]
MASK, CHANCE = 6, 1e-4
SAMPLERS = [
    WithRemasking(Ancestral(7), CappedRate(0.3)),
    WithRemasking(Ancestral(7), WindowedRate(StarRate(), 0.6, 0.1)),
    WithRemasking(Ancestral(9, HoldWarp(0.6, 0.2, 0.3)), LoopRate(0.5)),
    GuidedStar(7),
    GuidedStar(7, temperature=0.0, start_time=1.0, end_time=0.0),
    GuidedStar(7, guide=ConstantScore(), start_time=0.8, end_time=0.1),
    Blocks(GuidedStar(5, start_time=1.0, end_time=0.0), decode_block=3),
]


@pytest.fixture(scope="module")
def critic(vocab: Vocab, tiny: TransformerConfig) -> DiffusionLM:
    """A model with an error layer, all of it random; learned positions tell its masks apart."""
    from conftest import randomize

    config = redraft.DiffusionLMConfig(
        Masked(vocab), replace(tiny, rotary=None, positions=16), parts=(ErrorHeadConfig(),)
    )
    return randomize(DiffusionLM(config), 0).eval()


@dataclass(frozen=True)
class Fake:
    """A denoiser with opinions written down: x̂ is even, and so much doubt stands at each position."""

    doubts: Tensor  # (L,)
    block: int | None = None

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        even = torch.tensor([1.0] * MASK + [0.0]).log().log_softmax(-1)
        return TablePrediction(even.expand(*z.shape, -1))

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return context

    @property
    def parts(self) -> dict[str, Fake]:
        return {"errors": self}

    def logits(self, model: Fake, x: Tensor, context: Context) -> Tensor:
        assert not bool((x == MASK).any()), "the guide reads a finished text"
        return self.doubts.expand_as(x)


def blank(rows: int, length: int) -> Canvas:
    z = torch.zeros(rows, length, dtype=torch.int64)
    return Canvas(z, torch.zeros_like(z, dtype=torch.bool))


# --- what every sampler promises ---


@given(seed=st.integers(0, 10**6), sampler=st.sampled_from(SAMPLERS))
def test_promises(critic: DiffusionLM, ragged: Ragged, assert_promises: Promises, seed: int, sampler: Sampler) -> None:
    assert_promises(sampler, critic, ragged(4, 8, seed), rng(seed, 4))


@pytest.mark.parametrize("sampler", SAMPLERS[2:4], ids=repr)
def test_a_row_is_written_as_if_alone(critic: DiffusionLM, assert_rows_alone: RowsAlone, sampler: Sampler) -> None:
    assert_rows_alone(sampler, critic)


# --- blind ---


def test_no_remasking_is_the_sampler_itself(build: Build, ragged: Ragged) -> None:
    model, canvas, keys = build(), ragged(20, 9, 0), rng(3, 20)
    plain = final_canvas(Ancestral(8)(model, model.process, canvas, rng=keys)).z
    for sampler in (
        WithRemasking(Ancestral(8), CappedRate(0.0)),
        GuidedStar(8, guide=ConstantScore(), start_time=0.0, end_time=0.0),
    ):
        assert torch.equal(final_canvas(sampler(model, model.process, canvas, rng=keys)).z, plain)


def test_it_wraps_what_it_can(build: Build, vocab: Vocab) -> None:
    model = build(process=Interpolating(vocab), head=redraft.models.Subs(carry_over=False))
    end = final_canvas(WithRemasking(Ancestral(4), RescaledRate(0.5))(model, model.process, blank(3, 5), rng=rng(0, 3)))
    assert bool((end.z < MASK).all())
    with pytest.raises(ValueError, match="not Markov"):
        WithRemasking(Ancestral(4), CappedRate(0.1))(model, Markov(vocab), blank(1, 2), rng=rng(0))
    with pytest.raises(ValueError, match="GuidedStar is for mask noise, not Interpolating"):
        next(GuidedStar(4)(model, Interpolating(vocab), blank(1, 2), rng=rng(0)))


def test_blind_remasking_reproduces_the_joint() -> None:
    """With the exact denoiser; the error falls more slowly than without remasking."""
    toy, process = check.ToyLanguage.of(), Masked(check.VOCAB)
    oracle = check.Oracle(toy, process)
    for sampler in (
        WithRemasking(Ancestral(128), CappedRate(0.02)),
        GuidedStar(256, guide=ConstantScore(), start_time=0.3, end_time=0.02),
    ):
        assert _sampling_p_value(process, oracle, sampler, rng(5, 3000)) > CHANCE


# --- time that stands still ---


def test_hold() -> None:
    hold, canvas = HoldWarp(hold_from=0.5, hold_until=0.25, at=0.2), blank(1, 1)
    times = [float(t) for t in _time_grid(canvas, 8, hold)]
    assert times == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2, 0.1, 0.0])
    assert times[4] == times[5] == times[6]
    pause = HoldWarp(hold_from=0.5, hold_until=0.25, at=0.25 / 0.75)  # the even way with a pause
    assert [float(t) for t in _time_grid(canvas, 8, pause)] == pytest.approx(
        [i / 6 for i in (6, 5, 4, 3, 2, 2, 2, 1, 0)]
    )
    assert (
        [float(t) for t in _time_grid(canvas, 4)]
        == [float(t) for t in _time_grid(canvas, 4, EvenWarp())]
        == [1, 0.75, 0.5, 0.25, 0]
    )
    for wrong in (
        {"hold_from": 0.1, "hold_until": 0.2},
        {"at": 0.0},
        {"at": 1.0},
        {"hold_from": 1.0},
        {"hold_until": 0.0},
    ):
        with pytest.raises(ValueError, match="use 0 < hold_until <= hold_from < 1 and 0 < at < 1"):
            HoldWarp(**wrong)


def test_a_loop_revises_while_time_stands_still() -> None:
    """As many tokens are masked, but not the same ones; before and after nothing is taken back."""
    hold, rows, length = HoldWarp(hold_from=0.5, hold_until=0.25, at=0.4), 500, 10
    sampler = WithRemasking(Ancestral(8, hold), LoopRate(0.5))
    steps = list(sampler(Fake(torch.zeros(length)), Masked(Vocab(7, mask=MASK)), blank(rows, length), rng=rng(0, rows)))
    masked = torch.stack([canvas.z == MASK for canvas in steps])
    taken_back = (masked[1:] & ~masked[:-1]).double().mean((1, 2))
    assert (taken_back > 0).tolist() == [False, False, False, False, True, True, False, False]
    share = masked.double().mean((1, 2))
    assert share[4:7].tolist() == pytest.approx([0.4] * 3, abs=0.03)
    assert float(taken_back[4]) == pytest.approx(0.6 * 0.5, abs=0.03)


# --- targeted ---


def test_so_many_are_taken_back_as_the_time_says() -> None:
    process, length = Masked(Vocab(7, mask=MASK), Cosine()), 11
    sampler = GuidedStar(10, guide=ConstantScore(), start_time=0.65, end_time=0.15)
    steps = list(sampler(Fake(torch.zeros(length)), process, blank(30, length), rng=rng(0, 30)))
    assert len(steps) == 11
    for i, canvas in enumerate(steps[1:], 1):
        before, s = 1 - (i - 1) / 10, 1 - i / 10
        counts = (canvas.z == MASK).sum(-1)
        if 0.15 <= before <= 0.65:
            lost = 1 - math.sin(math.pi / 2 * (1 - s))
            assert counts.tolist() == [math.ceil(length * lost - 1e-6)] * 30
    assert not bool((steps[-1].z == MASK).any())


def test_the_last_step_takes_nothing_back() -> None:
    sampler = GuidedStar(4, guide=ConstantScore(), start_time=1.0, end_time=0.0)
    end = final_canvas(sampler(Fake(torch.zeros(5)), Masked(Vocab(7, mask=MASK)), blank(9, 5), rng=rng(0, 9)))
    assert not bool((end.z == MASK).any())


def test_the_most_doubtful_are_taken_back() -> None:
    doubts = torch.tensor([0.1, 3.0, -2.0, 1.0, 0.5, 2.0])
    sampler = GuidedStar(2, temperature=0.0, start_time=1.0, end_time=0.0)
    _, half, _ = sampler(Fake(doubts), Masked(Vocab(7, mask=MASK)), blank(8, 6), rng=rng(0, 8))
    assert (half.z == MASK).tolist() == [[False, True, False, True, False, True]] * 8


@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
def test_one_is_drawn_in_proportion_to_its_odds(temperature: float, p_value: PValue) -> None:
    """Gumbel noise: the first of a draw without replacement has probability softmax(score/temperature)."""
    doubts, rows = torch.tensor([0.0, 1.0, -1.0, 0.5]), 8000
    sampler = GuidedStar(4, temperature=temperature, start_time=0.5, end_time=0.0)
    *_, one, _ = sampler(Fake(doubts), Masked(Vocab(7, mask=MASK)), blank(rows, 4), rng=rng(1, rows))
    masked = one.z == MASK
    assert masked.sum(-1).tolist() == [1] * rows
    assert p_value(masked.sum(0), rows * (doubts / temperature).softmax(-1)) > CHANCE


def test_the_guide_costs_a_second_call(critic: DiffusionLM) -> None:
    """In three of ten steps: t = 0.4, 0.3 and 0.2; the last one takes nothing back."""
    counts = []
    for sampler in (
        GuidedStar(10, start_time=0.45, end_time=0.0),
        GuidedStar(10, guide=ConstantScore(), start_time=0.45, end_time=0.0),
    ):
        with count_calls(critic) as counted:
            final_canvas(sampler(critic, critic.process, blank(50, 12), rng=rng(0, 50)))
        counts.append(counted.rows)
    assert counts[0] - counts[1] == 3 * 50


def test_errors(build: Build) -> None:
    model, keys = build(), rng(0)
    with pytest.raises(ValueError, match="no error head"):
        final_canvas(GuidedStar(4, start_time=1.0)(model, model.process, blank(1, 3), rng=keys))
    oracle = check.Oracle(check.ToyLanguage.of(), Masked(check.VOCAB))
    with pytest.raises(ValueError, match=r"Oracle has no error head.*guide=ConstantScore"):
        final_canvas(GuidedStar(4, start_time=1.0)(oracle, Masked(check.VOCAB), blank(1, 3), rng=keys))
    for wrong in ({"temperature": -1.0}, {"start_time": 0.1, "end_time": 0.2}, {"start_time": 1.5}):
        with pytest.raises(ValueError, match="use a temperature of 0 or more and 0 <= end_time <= start_time <= 1"):
            GuidedStar(4, **wrong)
    with pytest.raises(ValueError, match="at least one step"):
        GuidedStar(0)


@pytest.mark.parametrize("name", ["bd3_tiny", "ar_tiny"])
def test_networks_of_blocks_have_no_error_layer(name: str) -> None:
    """It would learn from whole texts and be asked about a block."""
    with pytest.raises(ValueError, match="judges whole texts and needs a network with full attention"):
        DiffusionLM(variations.with_errors(presets.TINY[name](), base="runs/base").model)


# --- learning where to aim ---


def batch_of(rows: int, seed: int = 0) -> Batch:
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, MASK, (rows, 6), generator=g)
    pad = torch.arange(6) >= torch.randint(3, 7, (rows, 1), generator=g)
    return Batch(tokens, ~pad & (torch.arange(6) > 0), pad)


def test_only_the_new_layer_learns(critic: DiffusionLM) -> None:
    step = TrainStep(critic, ErrorHeadObjective())
    loss = step(batch_of(8), rng(0, 8))
    loss.mean.backward()
    moved = {name for name, p in critic.named_parameters() if p.grad is not None and bool((p.grad != 0).any())}
    assert moved == {name for name, _ in critic.named_parameters() if name.startswith("parts.errors.")}
    assert {name for name, p in critic.named_parameters() if p.requires_grad} == moved
    critic.zero_grad()
    TrainStep(critic, Objective())
    assert {name for name, p in critic.named_parameters() if not p.requires_grad} == moved
    for p in critic.parameters():
        p.requires_grad_(True)


def test_the_loss_is_the_cross_entropy_of_mistakes(critic: DiffusionLM) -> None:
    """By hand: noise, write anew, compare; prompts and padding count nothing and are never wrong."""
    batch, keys = batch_of(40), rng(3, 40)
    early, late, final = keys.split(3)
    process, given = critic.process, ~batch.learn & ~batch.pad
    t = torch.where(given, 0.0, redraft.training.StratifiedTimes()(batch, rng=early))
    z = process.noise(batch.tokens, t, pad=batch.pad, rng=late).z
    context = Context(pad=batch.pad)
    canvas = Canvas(z, ~batch.learn, context)
    written = process.step(critic.predict(z, t, context), canvas, torch.zeros_like(t), t, rng=final).z
    wrong = written != batch.tokens
    assert bool((wrong & batch.learn).any())
    assert not bool(wrong[~batch.learn].any())
    p = ErrorCritic(critic).error_logits(written, context).sigmoid()
    nats = torch.where(batch.learn, -torch.where(wrong, p, 1 - p).log(), 0.0)
    loss = ErrorHeadObjective()(critic, batch, rng=keys)
    torch.testing.assert_close(loss.nats, nats.sum(-1).detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(loss.mean, nats.sum() / batch.learn.sum(), rtol=1e-4, atol=1e-5)


def test_doubt_reads_the_whole_text_and_no_padding(critic: DiffusionLM) -> None:
    x = torch.randint(0, MASK, (3, 6), generator=torch.Generator().manual_seed(0))
    other = x.clone()
    other[:, 5] = (x[:, 5] + 1) % MASK
    pad = torch.zeros_like(x, dtype=torch.bool)
    pad[:, 5] = True
    judge = partial(critic.part(ErrorHead).logits, critic)
    with torch.no_grad():
        assert bool((judge(x) != judge(other))[:, :5].all())
        hidden = (judge(text, Context(pad=pad))[:, :5] for text in (x, other))
        torch.testing.assert_close(*hidden)
        torch.testing.assert_close(judge(x[:, :5]), judge(x, Context(pad=pad))[:, :5])


def test_networks_that_see_time_judge_clean_texts(critic: DiffusionLM) -> None:
    """At time zero, whatever the level says of it; a new layer finds every token as likely wrong as right."""
    model = DiffusionLM(replace(critic.config, network=replace(critic.config.network, time=8)))
    assert torch.equal(model.part(ErrorHead).logits(model, torch.zeros(2, 4, dtype=torch.int64)), torch.zeros(2, 4))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path, Path]:
    """A small run, and its error layer in a second directory."""
    folder = tmp_path_factory.mktemp("runs")
    base = presets.mdlm_tiny()
    network = replace(base.model.network, width=32, layers=1, heads=2)
    base = replace(
        base, model=replace(base.model, network=network), steps=30, batch=32, eval_rows=4, samples=0, save_every=30
    )
    fit(base, folder / "base", quiet=True)
    run = replace(
        variations.with_errors(base, str(folder / "base")), steps=40, save_every=40, log_every=40, eval_every=40
    )
    fit(run, folder / "gstar", quiet=True)
    return run, folder / "base", folder / "gstar"


def test_the_error_layer_is_trained_and_saved_with_its_model(trained: tuple[Run, Path, Path]) -> None:
    run, base, gstar = trained
    frozen, model = redraft.training.load(base), redraft.training.load(gstar)
    ours = dict(model.named_parameters())
    new = ours.keys() - dict(frozen.named_parameters()).keys()
    assert new == {name for name in ours if name.startswith("parts.errors.")} != set()
    for name, p in frozen.named_parameters():
        assert torch.equal(p, ours[name]), name
    assert model.config == run.model
    # the layer has learned: better than knowing only how often a token is wrong
    batch, *_ = first_batches(load_rows(run.data, "valid", run.tokenizer, run.framing), 32)
    keys = rng(1, len(batch.tokens))
    loss, even = (ErrorHeadObjective()(m, batch, rng=keys).mean.detach() for m in (model, begun(run, base)))
    assert float(even) == pytest.approx(math.log(2), rel=1e-5)
    assert float(loss) < 0.8 * float(even)


def begun(run: Run, base: Path) -> DiffusionLM:
    """The same with a new error layer, which knows nothing."""
    model = DiffusionLM(run.model, run.tokenizer).eval()
    init_from(model, base)
    return model


def test_a_base_must_fit(trained: tuple[Run, Path, Path], tmp_path: Path) -> None:
    run, base, _ = trained
    wider = replace(run.model, network=replace(run.model.network, width=64))
    with pytest.raises(CheckpointError, match=r"its network\.embedding\.weight is different"):
        init_from(DiffusionLM(wider), base)
    with pytest.raises(CheckpointError, match="is not a directory"):
        fit(replace(run, base=str(tmp_path / "nowhere")), tmp_path / "out", quiet=True)
