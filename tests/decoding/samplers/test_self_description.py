"""What samplers, picks and guidance say about themselves holds: for all of them, and a planted liar is caught."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import redraft
from redraft import decoding
from redraft.apps.cli.user_code import load_module
from redraft.core import (
    Canvas,
    CappedRate,
    Context,
    Denoiser,
    Pick,
    PickResult,
    Prediction,
    Process,
    Rng,
)
from redraft.core.prediction import DenoiserWrapper
from redraft.decoding import (
    SAMPLER_NAMES,
    Ancestral,
    AnyOrder,
    Blocks,
    Confidence,
    ConfidenceThreshold,
    ConstantScore,
    CriticPick,
    EndTokensLast,
    Entropy,
    EntropyBound,
    Euler,
    FactorThreshold,
    FirstHitting,
    FrechetProfile,
    Gibbs,
    Guidance,
    GuidedSampler,
    GuidedStar,
    Klass,
    LeftToRight,
    LogitFilter,
    Margin,
    MultiBlock,
    NegativePrompt,
    PathPlanning,
    PrefixCache,
    PromptGuidedSampler,
    RequiredFirst,
    Sampler,
    SamplerWrapper,
    SDEdit,
    SlidingWindow,
    SubBlocks,
    Unmask,
    WideInNarrowOut,
    WithRemasking,
    named_sampler,
)
from redraft.evaluation.laws import suite
from redraft.evaluation.laws.law import P_MIN
from redraft.evaluation.laws.samplers import _count_changed_tokens, _joint_p_value
from redraft.models.diffusion_lm import DiffusionLM
from redraft.training import presets


class NeighborCritic:
    """A critic that judges each token by its left neighbor."""

    def error_logits(self, x: Tensor, context: Context) -> Tensor:
        return ((x * 5 + x.roll(1, -1) * 3) % 11).float()


@dataclass(frozen=True)
class SameGuidance(Guidance):
    """Guidance that changes nothing."""

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return _Same(denoise)


@dataclass(frozen=True)
class _Same(DenoiserWrapper):
    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        return self.denoise.predict(z, t, context)


PICKS: list[Pick] = [
    *(kind(t) for kind in (AnyOrder, LeftToRight, Confidence, Margin, Entropy) for t in (0.0, 1.0)),
    *(EndTokensLast(0.0, Confidence(), (1,)), RequiredFirst(), RequiredFirst(Entropy(1.0))),
    *(ConfidenceThreshold(0.5), FactorThreshold(), FrechetProfile(), EntropyBound(0.0, 1.0), Klass(0.3, 1.0, 1)),
    *(WideInNarrowOut(0.5, 0.9), CriticPick(NeighborCritic()), CriticPick(NeighborCritic(), remask=True)),
]
GUIDANCE: list[Guidance] = [SameGuidance(), LogitFilter(top_k=2), NegativePrompt(7, 1.0)]
UNMASKING: list[Sampler] = [*(Unmask(12, pick) for pick in PICKS), *(MultiBlock(pick, 3, 1.0, 1.0) for pick in PICKS)]
PLAIN: list[Sampler] = [
    *(Ancestral(20), FirstHitting(), Euler(20), PathPlanning(8), GuidedStar(20, guide=ConstantScore())),
    *(Blocks(Ancestral(8), decode_block=4), SlidingWindow(Ancestral(8), window=8, stride=4)),
    *(SubBlocks(Ancestral(8), 3), SDEdit(Ancestral(20), 0.5), WithRemasking(Ancestral(20), CappedRate(0.3))),
    *(Gibbs(Unmask(1, AnyOrder()), 40), Gibbs(Unmask(6), 40, 2)),
    *(PromptGuidedSampler(Ancestral(8), 1.0), *(GuidedSampler(Unmask(6), guidance) for guidance in GUIDANCE)),
]
WRAPPED: list[Sampler] = [
    *(Blocks(Unmask(3, pick), decode_block=4) for pick in PICKS),
    *(GuidedSampler(Unmask(3, pick), guidance) for pick in PICKS for guidance in GUIDANCE[:2]),
]
NO_TOKENS = {"SelfCorrection", "ParticleSampler", "SpeculativeSampler", "NoisedPrompt"}  # need other noise or models


def test_a_token_of_a_sampler_that_writes_once_never_changes_and_others_have_a_witness() -> None:
    for sampler in (*PLAIN, *UNMASKING):
        assert (_count_changed_tokens(sampler) == 0) == sampler.writes_once, sampler
    for sampler in WRAPPED:
        assert _count_changed_tokens(sampler) == 0 or not sampler.writes_once, sampler


def test_every_sampler_and_pick_of_the_door_is_held_to_it() -> None:
    covered = {type(value) for value in (*PLAIN, *UNMASKING, *PICKS)}
    offered = [kind for _, kind in inspect.getmembers(decoding, inspect.isclass) if issubclass(kind, Sampler | Pick)]
    concrete = [kind for kind in offered if not inspect.isabstract(kind) and kind is not SamplerWrapper]
    vectors = {kind for kind in concrete if ".solvers." in kind.__module__}
    assert {kind.__name__ for kind in {*concrete} - covered - vectors} == NO_TOKENS
    assert not any(kind.writes_once for kind in vectors if isinstance(kind.writes_once, bool))


@pytest.mark.parametrize("part", range(8))
def test_a_sampler_that_draws_exactly_reproduces_the_joint(part: int) -> None:
    exact = [sampler for sampler in (*PLAIN, *UNMASKING) if sampler.draws_exactly]
    for sampler in exact[part::8]:
        blank = replace(sampler, strength=1.0) if isinstance(sampler, SDEdit) else sampler
        assert _joint_p_value(blank) >= P_MIN, sampler


def test_what_does_not_draw_exactly_says_so() -> None:
    """Sharp, ranked by confidence, or filtered: all of them miss the joint, so that the claim means something."""
    for sampler in (Unmask(6, Confidence(1.0)), Unmask(6, AnyOrder(0.5)), GuidedSampler(Ancestral(), LogitFilter(0.9))):
        assert not sampler.draws_exactly
    assert _joint_p_value(Unmask(6, AnyOrder(0.5))) < P_MIN
    assert [GuidedSampler(Ancestral(), g).draws_exactly for g in GUIDANCE] == [True, False, True]


def test_no_field_hides_an_answer() -> None:
    """A field with the name of a property without a plain default would break the dataclass."""
    for base in (Sampler, Pick):
        own = {name for kind in (base, SamplerWrapper) for name in vars(kind) if not name.startswith("__")}
        for value in (*PLAIN, *UNMASKING, *PICKS):
            if isinstance(value, base) and is_dataclass(value):
                assert not {field.name for field in fields(value)} & (own - {"sampler"}), value


# --- settings ---


def test_settings_reach_the_part_that_has_them() -> None:
    for sampler in (*PLAIN, *UNMASKING):
        for name in ("steps", "temperature", "threshold"):
            if sampler.has_setting(name):
                assert sampler.with_setting(name, 1).setting(name) == 1
            else:
                assert sampler.setting(name) is None
                with pytest.raises(ValueError, match=f"has no {name}"):
                    sampler.with_setting(name, 1)
    deep = Blocks(GuidedSampler(Unmask(8, ConfidenceThreshold(0.9)), LogitFilter()), decode_block=4)
    changed = deep.with_setting("threshold", 0.5).with_setting("steps", 3)
    assert changed == Blocks(GuidedSampler(Unmask(3, ConfidenceThreshold(0.5)), LogitFilter()), decode_block=4)


def test_wrappers_pass_changes_on() -> None:
    stack = GuidedSampler(Blocks(Unmask(8), decode_block=4), LogitFilter())
    assert stack.in_blocks(2) == GuidedSampler(Blocks(Unmask(8), decode_block=2), LogitFilter())
    assert stack.with_cache(PrefixCache()) == replace(stack, sampler=replace(stack.sampler, cache=PrefixCache()))
    assert stack.with_cache(PrefixCache()).cache_kind(None) == "approximate"  # type: ignore[union-attr]
    assert stack.with_core(Ancestral(3)) == GuidedSampler(Blocks(Ancestral(3), decode_block=4), LogitFilter())
    assert stack.with_total_steps(16, 64, 64) == stack.with_setting("steps", 1)
    last = stack.with_end_tokens_last((1,))
    assert last is not None
    assert last.with_core(Unmask(8)) == stack
    assert GuidedSampler(Unmask(8, AnyOrder()), LogitFilter()).with_end_tokens_last((1,)) is None
    assert (stack.block_size, stack.guided, Unmask(8).in_blocks(4), Ancestral().is_ancestral) == (4, True, None, True)
    assert [SlidingWindow(Blocks(), 8, 4).longest_read(n) for n in (6, 20)] == [6, 8]


def test_a_description_names_the_stack_and_the_settings_that_matter() -> None:
    stack = GuidedSampler(Blocks(Unmask(8, ConfidenceThreshold(0.9)), decode_block=4), LogitFilter())
    assert stack.describe() == "confidence threshold, threshold 0.9, 8 steps, in blocks of 4, with logit filter"
    assert WithRemasking(Ancestral(20), CappedRate(0.3)).describe() == "ancestral, 20 steps, with remasking"
    assert (
        SlidingWindow(SubBlocks(FirstHitting(), 3), 8, 4).describe()
        == "first hitting, in sub-blocks of 3, in windows of 8"
    )
    assert all(sampler.describe().isascii() for sampler in (*PLAIN, *UNMASKING, *WRAPPED))


# --- streaming ---


@pytest.fixture(scope="module")
def model() -> DiffusionLM:
    torch.manual_seed(0)
    run = presets.mdlm_tiny()
    config = replace(run.model, network=replace(run.model.network, width=32, heads=2, layers=1))
    return DiffusionLM(config, run.tokenizer).eval()


@pytest.mark.parametrize("guidance", [1.0, 2.0])
def test_what_is_written_once_is_streamed_early(model: DiffusionLM, guidance: float) -> None:
    """Every sampler commits text before the end, if it says that written tokens stay, and never takes it back.

    These are all samplers, with every pick and every kind of guidance around them, and all that have a name. Those
    around another one say what it says, so none of them is late by a wrong claim.
    """
    assert all(sampler.writes_once == sampler.sampler.writes_once for sampler in WRAPPED)  # type: ignore[attr-defined]
    named: list[tuple[str | Sampler, Sampler]] = [(name, named_sampler(name)) for name in SAMPLER_NAMES]
    streamed = 0
    for sampler, claim in (*named, *((each, each) for each in (*PLAIN, *UNMASKING, *WRAPPED))):
        drafts = list(
            redraft.generate(model, "One", stream=True, max_new_tokens=8, sampler=sampler, guidance=guidance, seed=1)
        )
        committed = [draft.committed for draft in drafts]
        assert all(b.startswith(a) for a, b in pairwise(committed)), sampler
        early = any(len(text) > len("One") for text in committed[:-1])
        assert early == claim.writes_once, sampler
        streamed += early
    assert streamed > 80


# --- liars ---


@dataclass(frozen=True)
class Rewriting(Sampler):
    """Writes a text, and then another one over it, but says that it writes once."""

    writes_once = draws_exactly = True

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        for key in rng.split(2):
            yield from Unmask(4)(denoise, process, canvas, rng=key)


@dataclass(frozen=True)
class Sharp(Pick):
    """Takes the most likely token, but says that it draws."""

    writes_once = draws_exactly = True

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        return Confidence()(pred, canvas, hidden, share, rng=rng)


def test_a_liar_is_caught(tmp_path: Path) -> None:
    assert _count_changed_tokens(Rewriting()) > 0
    assert _joint_p_value(Unmask(None, Sharp())) < P_MIN
    (tmp_path / "liars.py").write_text("\n".join(_SOURCE))
    pieces = suite.find_pieces(load_module(tmp_path / "liars.py"))
    laws = list(suite.check_all(pieces))
    assert [(law.process, law.ok) for law in laws] == [
        ("Honest", True),
        ("Honest", True),
        ("Liar", True),
        ("Liar", False),
    ]


_SOURCE = (
    "from dataclasses import dataclass",
    "import redraft",
    "from redraft.core import Pick",
    "from redraft.decoding import AnyOrder, Confidence",
    "@dataclass(frozen=True)",
    "class Liar(Pick):",
    "    writes_once = draws_exactly = True",
    "    def __call__(self, pred, canvas, hidden, share, *, rng):",
    "        return Confidence()(pred, canvas, hidden, share, rng=rng)",
    "@dataclass(frozen=True)",
    "class Honest(Pick):",
    "    writes_once = draws_exactly = True",
    "    def __call__(self, pred, canvas, hidden, share, *, rng):",
    "        return AnyOrder()(pred, canvas, hidden, share, rng=rng)",
)


def test_a_class_that_says_nothing_cannot_be_made() -> None:
    class Silent(Sampler):
        def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
            yield canvas

    with pytest.raises(TypeError, match="abstract"):
        Silent()  # type: ignore[abstract]


def test_a_function_is_no_sampler(model: DiffusionLM) -> None:
    function: Callable[..., Any] = Unmask(4).__call__
    with pytest.raises(ValueError, match=r"must be a name, or an object derived from redraft\.Sampler or Pick"):
        redraft.generate(model, "One", max_new_tokens=4, sampler=function)
