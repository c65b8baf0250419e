"""Taggers: of noisy tokens, of noisy vectors, of what is to come; and the control that follows them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from redraft.core import Batch, Context, Gaussian, rng
from redraft.decoding import Ddim, GradientControl, SolverStep
from redraft.models import (
    BlockCausal,
    DiffusionLM,
    FutureTagger,
    Tagger,
    TaggerConfig,
    from_json,
    to_json,
)
from redraft.tasks import ArgumentError, TextModel, control
from redraft.tasks.controlled.tags import _TagEnergy
from redraft.training import (
    STORY_TAGS,
    FutureTaggerObjective,
    Objective,
    Run,
    StratifiedTimes,
    TaggerObjective,
    TrainStep,
    export,
    presets,
    tag_words,
)
from redraft.training.runs import variations

POS = "NUM NOUN NOUN PUNCT PROPN VERB ADJ"


def small(name: str) -> tuple[DiffusionLM, Run]:
    run: Run = variations._shrunken(getattr(presets, name)())
    torch.manual_seed(0)
    return DiffusionLM(run.model, run.tokenizer), run


def tags_of(model: DiffusionLM) -> TaggerConfig:
    tags = model.config.part(TaggerConfig)
    assert tags is not None
    return tags


def rows(model: DiffusionLM, step: int) -> Batch:
    """Rows in which kinds are told by neighbors: each kind is followed by the next one."""
    kinds = torch.tensor(tags_of(model).of)
    words = [(kinds == kind).nonzero().squeeze(-1)[:3] for kind in range(3)]
    u = rng(step, 32).uniform(8)
    begin = (3 * rng(step + 1000, 32).uniform(1)).long()
    kind = (begin + torch.arange(8)) % 3
    picks = torch.stack([some[(u * len(some)).long()] for some in words])
    return Batch.of(picks.gather(0, kind[None]).squeeze(0))


@pytest.mark.parametrize("name", ["mdlm_tagger_tiny", "diffusion_lm_tagger_tiny", "ar_tagger_tiny"])
def test_it_alone_learns_and_it_learns(name: str) -> None:
    model, run = small(name)
    assert from_json(to_json(run)) == run
    before = {n: p.clone() for n, p in model.named_parameters()}
    goal = (
        run.objective
        if isinstance(run.objective, FutureTaggerObjective)
        else TaggerObjective(StratifiedTimes(high=0.2))
    )
    step, losses = TrainStep(model, goal), []
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 3e-2)
    for i in range(60):
        optimizer.zero_grad()
        loss = step(rows(model, i), rng(i, 32)).mean
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    changed = {tuple(n.split(".")[:2]) for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert changed == {("parts", "tagger")}
    assert sum(losses[-10:]) < 0.6 * sum(losses[:10])
    ours = {id(p) for p in run.objective.trained_parameters(model)}
    assert not ours & {id(p) for p in Objective().trained_parameters(model)}, "the diffusion leaves it alone"


def test_the_future_is_the_chain_rule() -> None:
    """rest = Σ log p(kind | words so far, kinds since), asked one place at a time; a free kind is read as free."""
    model, _ = small("ar_tagger_tiny")
    tagger = model.part(FutureTagger)
    prefix, candidates, wanted = torch.tensor([[3, 7]]), torch.tensor([[5, 9]]), torch.tensor([1, -1, 2])
    found = tagger.future_log_prob(prefix, candidates, wanted)
    for c, token in enumerate((5, 9)):
        read, total = [3, 7, token], 0.0
        for kind in wanted.tolist():
            said = tagger(torch.tensor([[*read, 0]]))[0, len(read)].log_softmax(-1)  # the last item is not read
            total += 0.0 if kind < 0 else float(said[kind].detach())
            read.append(tagger.free if kind < 0 else tagger.size + kind)
        assert float(found[0, c].detach()) == pytest.approx(total, abs=1e-4)
    assert torch.equal(tagger.future_log_prob(prefix, candidates, wanted[:0]), torch.zeros(1, 2))


def test_the_slope_of_control_is_that_of_the_formula() -> None:
    """∇ of coef·‖z − μ‖²/σ − γ·Σ_l log p(y_l | z, s), written out with autograd."""
    model, _ = small("diffusion_lm_tagger_tiny")
    process = model.process
    assert isinstance(process, Gaussian)
    model.eval()
    for p in model.parameters():
        p.data.add_(0.05 * torch.randn(p.shape))  # output layers begin at zero
    canvas = model.canvas(new=6, rows=2)
    canvas = canvas.write(torch.randn(canvas.z.shape))
    wanted = torch.tensor([0, 2, -1, 1])
    steer = GradientControl(_TagEnergy(model.part(Tagger).log_prob(model, wanted), 3.0), Ddim(8, eta=1.0), coef=0.2)
    with torch.no_grad():
        move = SolverStep(model, process.path, canvas, 0.5, 0.4, rng(0, 2))
        mean, spread = steer.solver.moments(move)
    z = torch.randn(canvas.z.shape, requires_grad=True)
    t = torch.full((2, 1), 0.4, dtype=torch.float64)
    said = model.part(Tagger).logits(model, z, t).log_softmax(-1)
    cost = 0.2 * ((z - mean) ** 2).sum() / spread - 3.0 * (said[:, 0, 0] + said[:, 1, 2] + said[:, 3, 1]).sum()
    (expected,) = torch.autograd.grad(cost, z)
    found = steer._cost_gradient(move)(z.detach())
    assert torch.allclose(found, expected.float(), atol=1e-4)
    assert float(expected.abs().max()) > 1e-3


def test_one_hot_tokens_and_padding() -> None:
    model, _ = small("mdlm_tagger_tiny")
    model.eval()
    tokens = torch.tensor([[1, 2, 3, 4]])
    seen, t = F.one_hot(tokens, model.config.vocab.size).float(), torch.ones(1, 1)
    tagger = model.part(Tagger)
    pad = torch.tensor([[False, False, False, True]])
    whole, cut = tagger.logits(model, seen, t, Context(pad=pad))[:, :3], tagger.logits(model, seen[:, :3], t)
    assert whole.shape == (1, 3, len(tagger.tags.names) + 1)
    assert torch.allclose(whole, cut, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["mdlm_tagger_tiny", "ar_tagger_tiny", "diffusion_lm_tagger_tiny", "diffusion_lm_tiny"]
)
def test_control_demands_and_guides(name: str) -> None:
    """Fresh weights: what is demanded is right; with a scale the text only has its length, or less (vectors)."""
    it = TextModel(*small(name))
    demanded = control(it, pos=POS, n=2, steps=4 if it.lm.block is None else None)
    assert all(tag_words(each.text) == tuple(POS.split()) for each in demanded)
    guided = control(it, pos=f"{POS} *", scale=1.0, n=1, steps=4 if it.lm.block is None else None)
    assert it.lm.codec is not None or len(tag_words(guided[0].text)) == 8


def test_a_classifier_lies_in_a_directory_of_its_own(tmp_path: Path) -> None:
    model, run = small("mdlm_tagger_tiny")
    path = str(export(tmp_path / "tagger", model, run))
    plain = replace(run, model=replace(run.model, parts=()), objective=Objective())
    bare = DiffusionLM(plain.model, plain.tokenizer)
    bare.load_state_dict({n: p for n, p in model.state_dict().items() if not n.startswith("parts.tagger.")})
    with_it, own = (
        control(TextModel(m, r), pos=POS, scale=1.0, steps=4, **more)[0].text
        for m, r, more in ((bare, plain, {"classifier": path}), (model, run, {}))
    )
    assert with_it == own
    with pytest.raises(ArgumentError, match="leave one of them out"):
        control(TextModel(bare, plain), pos=POS, classifier=path, lexicon="some.json")
    with pytest.raises(ArgumentError, match="other noise or other words"):
        control(TextModel(*small("ar_tiny")), pos=POS, classifier=path)
    empty = str(export(tmp_path / "plain", bare, plain))
    with pytest.raises(ArgumentError, match="holds no tagger; train one"):
        control(TextModel(bare, plain), pos=POS, classifier=empty)
    with pytest.raises(ArgumentError, match="leave sampler=… out"):
        control(TextModel(*small("diffusion_lm_tagger_tiny")), pos=POS, scale=1.0, sampler=Ddim(4))


def test_kinds() -> None:
    kinds = TaggerConfig.of_words(["a", "Anna", "zzz"], 5, STORY_TAGS)
    assert kinds.names == ("DET", "PROPN")
    assert kinds.of == (0, 1, 2, 2, 2)
    with pytest.raises(ValueError, match="give at least one, each of them once"):
        TaggerConfig((), ())
    with pytest.raises(ValueError, match="use 0 to 1, where 1 means no tag"):
        TaggerConfig(("a",), (0, 2))
    run = presets.mdlm_tagger_tiny()
    with pytest.raises(ValueError, match="build the tags for this vocabulary"):
        run.model.with_part(TaggerConfig(("a",), (0,)))
    with pytest.raises(ValueError, match="not blocks"):
        variations.with_network(run, pattern=BlockCausal(4))
    with pytest.raises(ValueError, match="tokens are words"):
        variations.with_tagger(presets.mdlm_tiny_chars(), base="x")
    model, _ = small("mdlm_tagger_tiny")
    with pytest.raises(ValueError, match="no tagger of future tokens"):
        FutureTaggerObjective()(model, rows(model, 0), rng=rng(0, 32))
    with pytest.raises(ValueError, match="no tagger of noisy rows"):
        TaggerObjective()(DiffusionLM(replace(model.config, parts=())), rows(model, 0), rng=rng(0, 32))
