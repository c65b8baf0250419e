"""A learned attribute of noisy text: trained as any objective, and followed by guidance; goals of one's own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core import Batch, Canvas, Condition, Context, Loss, Masked, Prediction, Rng, TablePrediction, Vocab, rng
from redraft.decoding import AnyOrder, FirstOrderClassifier, GuidedSampler, TokenClassifier, Unmask, final_canvas
from redraft.models import (
    AttributeClassifier,
    AttributeClassifierConfig,
    DiffusionLM,
    DiffusionLMConfig,
    TransformerConfig,
    from_json,
    to_json,
)
from redraft.training import AttributeObjective, Objective, TrainStep, presets

MASK = 6
CONFIG = DiffusionLMConfig(
    Masked(Vocab(7, mask=MASK)),
    TransformerConfig(width=16, layers=1, heads=2, hidden=32, rotary=100.0),
    parts=(AttributeClassifierConfig(2),),
)


def rows(seed: int, count: int = 64, length: int = 8) -> Batch:
    """Texts of two classes: mostly of the first three tokens, or of the last three; the last row has padding."""
    g = torch.Generator().manual_seed(seed)
    label = torch.arange(count) % 2
    odd = torch.rand(count, length, generator=g) < 0.2
    tokens = torch.randint(0, 3, (count, length), generator=g) + 3 * (label[:, None] ^ odd.long())
    pad = (torch.arange(length) >= 6) & (torch.arange(count)[:, None] == count - 1)
    return replace(Batch.of(tokens, pad), condition=Condition(label=label))


@pytest.fixture(scope="module")
def trained() -> DiffusionLM:
    torch.manual_seed(0)
    model = DiffusionLM(CONFIG)
    before = {name: p.clone() for name, p in model.named_parameters()}
    step = TrainStep(model, AttributeObjective())
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
    for i in range(60):
        optimizer.zero_grad()
        step(rows(i), rng(i, 64)).mean.backward()
        optimizer.step()
    changed = {tuple(name.split(".")[:2]) for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert changed == {("parts", "attributes")}, "nothing else is trained"
    return model.eval()


@pytest.mark.parametrize(("lost", "least"), [(0.0, 0.95), (0.5, 0.85), (0.8, 0.6)])
def test_it_knows_noisy_texts(trained: DiffusionLM, lost: float, least: float) -> None:
    batch = rows(1000, 400)
    z = trained.process.noise(batch.tokens, torch.full((400, 1), lost), rng=rng(0, 400)).z
    with torch.no_grad():
        said = trained.part(AttributeClassifier).logits(F.one_hot(z, 7).float(), Context(pad=batch.pad)).argmax(-1)
    assert float((said == batch.condition.label).float().mean()) > least


def test_padding_is_not_read(trained: DiffusionLM) -> None:
    batch = rows(5, 4)
    assert batch.pad is not None
    x = F.one_hot(torch.where(batch.pad, 5, batch.tokens), 7).float()
    with torch.no_grad():
        classify = trained.part(AttributeClassifier).logits
        whole, cut = classify(x, Context(pad=batch.pad))[-1:], classify(x[-1:, :6])
    assert torch.allclose(whole, cut, atol=1e-5)


@dataclass(frozen=True)
class Even:
    """A denoiser that knows nothing."""

    block: int | None = None

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        return TablePrediction(torch.tensor([1.0] * 6 + [0.0]).log().log_softmax(-1).expand(*z.shape, 7))

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return context


@pytest.mark.parametrize(("kind", "least"), [(FirstOrderClassifier, 0.58), (TokenClassifier, 0.7)])
@pytest.mark.parametrize("label", [0, 1])
def test_guidance_follows_it(trained: DiffusionLM, kind: type, least: float, label: int) -> None:
    """Half of the tokens fit by chance; the first order is an approximation."""
    canvas = Canvas(torch.zeros(60, 8, dtype=torch.int64), torch.zeros(60, 8, dtype=torch.bool))
    sampler = GuidedSampler(Unmask(8, AnyOrder()), kind(trained.part(AttributeClassifier).log_prob(label), 5.0))
    z = final_canvas(sampler(Even(), trained.process, canvas, rng=rng(0, 60))).z
    assert float(((z >= 3) == bool(label)).float().mean()) > least


def test_it_needs_classes_and_a_layer() -> None:
    with pytest.raises(ValueError, match="no attribute classifier; train one with AttributeObjective"):
        DiffusionLM(replace(CONFIG, parts=())).part(AttributeClassifier)
    with pytest.raises(ValueError, match="these rows have no classes to learn"):
        AttributeObjective()(DiffusionLM(CONFIG), replace(rows(0), condition=Condition()), rng=rng(0, 64))


def test_the_diffusion_leaves_it_alone() -> None:
    model = DiffusionLM(CONFIG)
    assert model.read(rows(0)).context.condition.label is None, "the classes are not for the network"
    ours = {id(p) for p in AttributeObjective().trained_parameters(model)}
    assert not ours & {id(p) for p in Objective().trained_parameters(model)}


@dataclass(frozen=True)
class Own:
    """A goal of the user's own."""

    def trained_parameters(self, model: DiffusionLM) -> list[nn.Parameter]:
        return list(model.parameters())

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        return Objective()(model, batch, rng=rng, total=total)


def test_a_run_takes_any_goal() -> None:
    run = replace(presets.mdlm_tiny(), objective=AttributeObjective())
    assert from_json(to_json(run)) == run
    own = replace(run, objective=Own())
    assert from_json(to_json(own), trust=[Own.__module__]) == own
