"""Rewriting: drafts edited in place by every family, pinned words, and the consensus of several answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch

import redraft
from redraft.core import Canvas, Masked, NoisySample, rng
from redraft.decoding import Ancestral, AnyOrder, Ddim, Euler, FirstHitting, SDEdit, Unmask, final_canvas
from redraft.models import DiffusionLM
from redraft.tasks import ArgumentError, TextModel, rewrite
from redraft.training import Run, presets

DRAFT = "One spring day, Anna felt sad and went to the lake. She found a red kite near the nets."
EDITING = ["mdlm_tiny", "ar_tiny", "bd3_tiny", "udlm_tiny", "gidd_tiny", "d3pm_tiny", "flex_tiny", "diffusion_lm_tiny"]


@cache
def fresh(name: str) -> TextModel:
    run: Run = getattr(presets, name)()
    network = replace(run.model.network, width=32, hidden=32, layers=1, heads=4)
    codec = run.model.codec
    if codec is None or not hasattr(codec, "size"):
        run = replace(run, model=replace(run.model, network=network))
    torch.manual_seed(0)
    return TextModel(DiffusionLM(run.model, run.tokenizer), run)


@pytest.mark.parametrize("name", EDITING)
def test_pinned_words_stay(name: str) -> None:
    found = rewrite(fresh(name), DRAFT, strength=1.0, pinned=["Anna", "red kite"], n=2, steps=3)
    assert len(found) == 2
    for text in found:
        words = [piece.strip() for piece, given in zip(text.pieces, text.given, strict=True) if given]
        assert [word for word in words if word in ("Anna", "red", "kite")] == ["Anna", "red", "kite"]
        assert text.prompt == DRAFT
        assert text.text != DRAFT


@pytest.mark.parametrize("name", EDITING)
def test_little_noise_changes_little(name: str) -> None:
    """At a strength near zero there is nothing to write again; fresh weights would write anything."""
    it = fresh(name)
    (found,) = rewrite(it, DRAFT, strength=1e-6, steps=2)
    if name not in ("gidd_tiny", "diffusion_lm_tiny", "flex_tiny"):  # which correct, jump to x̂, or insert untaught
        assert found.text == DRAFT
    again = rewrite(it, [DRAFT, DRAFT], strength=0.6, steps=3)
    assert again[0].text == rewrite(it, DRAFT, strength=0.6, steps=3)[0].text, "a text depends on nothing else"
    assert again[0].text != again[1].text, "and the second of the same is another one"


def test_latents_are_edited_as_a_whole() -> None:
    it = fresh("ld4tg_tiny")
    (found,) = rewrite(it, DRAFT, strength=0.3, steps=2)
    assert found.tokens
    with pytest.raises(ArgumentError, match="single words cannot be kept"):
        rewrite(it, DRAFT, pinned="Anna")


def test_strength_is_the_share_of_words_that_mask_noise_hides() -> None:
    it = fresh("mdlm_tiny")
    found = rewrite(it, DRAFT, strength=0.3, n=64, steps=1)
    size = len(it.tokenizer.encode(DRAFT))
    kept = sum(sum(step == 0 for step in text.step[:size]) for text in found) / (64 * size)
    assert abs(kept - 0.7) < 0.05


@pytest.mark.parametrize("name", ["mdlm_tiny", "udlm_tiny", "flex_tiny"])
def test_words_that_stay_are_not_new(name: str) -> None:
    """Kept words are given ones: they do not count as written, in the whole call or in a text."""
    it = fresh(name)
    found = rewrite(it, DRAFT, strength=0.3, n=8, steps=4)
    assert found.new_tokens == sum(not given for text in found for given in text.given)
    draft = it.tokenizer.encode(DRAFT)
    for text in found:
        kept = [token for token, given in zip(text.tokens, text.given, strict=True) if given]
        rest = iter(draft)
        assert all(token in rest for token in kept), "words of the draft, in its order"
    assert 0 < found.new_tokens < 8 * len(draft)
    none = rewrite(it, DRAFT, strength=1e-6, steps=2)
    assert name == "flex_tiny" or (none.new_tokens == 0 and none[0].stop == "end")


def test_with_all_noise_it_is_a_new_text() -> None:
    """Strength 1 draws from the prior, as the sampler itself does; mask noise: the very same canvas."""
    it = fresh("mdlm_tiny")
    canvas = Canvas(torch.tensor([it.encode_row(DRAFT)]), torch.zeros(1, 68, dtype=torch.bool))
    process, sampler = it.lm.process, Unmask(4, AnyOrder())
    edited = final_canvas(SDEdit(sampler, 1.0)(it.lm, process, canvas, rng=rng(3, 1)))
    plain = final_canvas(sampler(it.lm, process, it.lm.canvas(new=68), rng=rng(3, 1).split(2)[1]))
    assert torch.equal(edited.z, plain.z)


@pytest.mark.parametrize("sampler", [Ancestral(4), Euler(4), FirstHitting()], ids=repr)
def test_samplers_begin_where_the_draft_is(sampler: redraft.Sampler, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network never sees a time beyond that of the draft."""
    name = "mdlm_tiny" if isinstance(sampler, FirstHitting) else "udlm_tiny"
    it, times = fresh(name), []

    def seen(z: torch.Tensor, t: torch.Tensor, context: redraft.Context = redraft.Context()) -> redraft.Prediction:
        times.append(float(t.max()))
        return DiffusionLM.predict(it.lm, z, t, context)

    monkeypatch.setattr(it.lm, "predict", seen)
    canvas = Canvas(torch.tensor([it.encode_row(DRAFT)]), torch.zeros(1, 68, dtype=torch.bool), start_time=0.25)
    assert canvas.start_time == 0.25
    final_canvas(sampler(it.lm, it.lm.process, canvas, rng=rng(0, 1)))
    assert times == [] if name == "mdlm_tiny" else max(times) == 0.25


def test_solvers_begin_where_the_draft_is(monkeypatch: pytest.MonkeyPatch) -> None:
    it, times = fresh("diffusion_lm_tiny"), []

    def seen(z: torch.Tensor, t: torch.Tensor, context: redraft.Context = redraft.Context()) -> redraft.Prediction:
        times.append(round(float(t.max()), 6))
        return DiffusionLM.predict(it.lm, z, t, context)

    monkeypatch.setattr(it.lm, "predict", seen)
    rewrite(it, DRAFT, strength=0.5, sampler=Ddim(4))
    assert times == [0.5, 0.375, 0.25, 0.125]


def test_consensus() -> None:
    it = fresh("mdlm_tiny")
    several = rewrite(it, DRAFT, strength=0.5, n=6, steps=2)
    (one,) = chosen = rewrite(it, DRAFT, strength=0.5, candidates=6, steps=2)
    assert one.text == redraft.core.minimum_bayes_risk(several.texts)
    assert chosen.nfe == pytest.approx(several.nfe * 6)
    two = rewrite(it, [DRAFT, "One winter day, Leo felt tired."], candidates=3, n=2, steps=2)
    assert [each.row for each in two] == [0, 1, 2, 3]
    assert [each.prompt for each in two] == [DRAFT] * 2 + ["One winter day, Leo felt tired."] * 2


@pytest.mark.parametrize("name", ["diffuseq_tiny", "genie_tiny"])
def test_models_of_pairs_answer(name: str) -> None:
    it = fresh(name)
    (found,) = rewrite(it, "who Leo, plot find", candidates=2, steps=2)
    assert found.prompt == "who Leo, plot find"
    for option in ({"strength": 0.5}, {"pinned": "Leo"}):
        with pytest.raises(ArgumentError, match="for texts edited in place"):
            rewrite(it, "who Leo, plot find", **option)


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: rewrite(fresh("mdlm_tiny"), DRAFT, pinned="Ana"), "no such word; did you mean Anna"),
    (lambda: rewrite(fresh("mdlm_tiny"), DRAFT, pinned=""), "none of them empty"),
    (lambda: rewrite(fresh("mdlm_tiny"), " "), "there is nothing to edit"),
    (lambda: rewrite(fresh("mdlm_tiny"), DRAFT, strength=0.0), "it must be above 0 and at most 1"),
    (lambda: rewrite(fresh("mdlm_tiny"), DRAFT, strength=float("nan")), "finite"),
    (lambda: rewrite(fresh("mdlm_tiny"), DRAFT, candidates=0), "from 1 to 10,000"),
    (lambda: rewrite(fresh("mdlm_tiny"), []), "at least one text"),
    (lambda: rewrite(fresh("mdlm_tiny"), "Once upon"), "does not know"),
    (lambda: rewrite(fresh("mdlm_tiny"), "One day. " * 40), "longer than the rows of this model"),
    (lambda: rewrite(fresh("mdlm_tiny"), DRAFT, pattern=".*"), "rules apply to new text"),
    (lambda: rewrite(fresh("mdlm_tiny"), DRAFT, source="x"), "not an argument here"),
]


@pytest.mark.parametrize(("call", "reason"), WRONG, ids=[reason for _, reason in WRONG])
def test_wrong_input(call: Callable[[], object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        call()


def test_text_that_stays_is_not_cut_off() -> None:
    """Mask noise: no end is written where kept words follow."""
    it = fresh("mdlm_tiny")
    process = it.lm.process
    assert isinstance(process, Masked)
    canvas = Canvas(torch.tensor([it.encode_row(DRAFT)] * 8), torch.zeros(8, 68, dtype=torch.bool))
    for written in SDEdit(Unmask(2, AnyOrder()), 0.5)(it.lm, process, canvas, rng=rng(0, 8)):
        words = written.fixed & (written.z != it.lm.config.vocab.eos)
        inside = written.context.constraints.no_end_token
        assert inside is not None
        behind = words.flip(-1).cumsum(-1).flip(-1) > 0
        assert torch.equal(inside, behind & ~written.fixed)
    assert bool((process.undetermined(NoisySample(written.z, torch.ones(8, 1), written.z)) == 0).all())
