"""Guidance: identities that hold bit for bit, exact conditionals on a mixture, projections, tokens on a toy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor

from redraft.core import Canvas, Condition, Context, Denoiser, Prediction, TablePrediction, VectorPrediction, ops, rng
from redraft.decoding import (
    ClassifierFree,
    Ddim,
    DenoisedClassifier,
    DynamicThreshold,
    GradientClassifier,
    Guidance,
    ProjectedDenoiser,
    UnitNorm,
    final_canvas,
)
from redraft.decoding.guidance.base import _BranchCaches
from redraft.evaluation.laws import solvers
from redraft.evaluation.laws.gaussian import Mixture, MixtureOracle
from redraft.evaluation.laws.solvers import _PROCESS, ModeClassifier

MIXTURE = Mixture.of()
ORACLE = MixtureOracle(MIXTURE, _PROCESS.path)
LABEL = Context(condition=Condition(label=torch.tensor([1, 1])))


def one(mode: int) -> Mixture:
    return Mixture(MIXTURE.means[mode : mode + 1], MIXTURE.std[mode : mode + 1], torch.ones(1, dtype=torch.float64))


@dataclass(frozen=True)
class Labeled:
    """The best denoiser of the mixture, or of the mode that the label names; counts its calls."""

    calls: list[Context] = field(default_factory=list)
    block: int | None = None

    def predict(self, z: Tensor, t: Tensor, context: Context) -> VectorPrediction:
        self.calls.append(context)
        mixture = MIXTURE if context.condition.label is None else one(int(context.condition.label[0]))
        return MixtureOracle(mixture, _PROCESS.path).predict(z, t, context)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        self.calls.append(context)
        return replace(context, cache=Length(z.shape[1]), previous=None)


@dataclass(frozen=True)
class Length:
    length: int
    exact = True

    @property
    def covers(self) -> Tensor:
        return torch.ones(2, self.length, dtype=torch.bool)

    def rows(self, index: Tensor) -> Length:
        return self


class _Coarse(Length):
    exact = False


@pytest.fixture
def noisy() -> tuple[Tensor, Tensor]:
    t = torch.tensor([[0.3], [0.7]], dtype=torch.float64)
    return _PROCESS.noise(MIXTURE.sample(rng(3, 2), 5), t, rng=rng(4, 2)).z, t


# --- classifier-free ---


def test_zero_and_one_are_the_branches_bit_for_bit(noisy: tuple[Tensor, Tensor]) -> None:
    for scale, mixture in ((0.0, MIXTURE), (1.0, one(1))):
        labeled = Labeled()
        said = ClassifierFree(scale)(labeled).predict(*noisy, LABEL).x
        assert torch.equal(said, MixtureOracle(mixture, _PROCESS.path).predict(*noisy, LABEL).x)
        assert len(labeled.calls) == 1


def test_vectors_are_mixed_affinely(noisy: tuple[Tensor, Tensor]) -> None:
    labeled = Labeled()
    hint = torch.ones(2, 5, 2)
    said = (
        ClassifierFree(2.5)(labeled)
        .predict(*noisy, replace(LABEL.with_condition(source=hint, source_pad=hint[..., 0] > 0), previous=hint))
        .x
    )
    without, given = ORACLE.predict(*noisy, LABEL).x, MixtureOracle(one(1), _PROCESS.path).predict(*noisy, LABEL).x
    torch.testing.assert_close(said, -1.5 * without + 2.5 * given)
    a, s = _PROCESS.path.scales(noisy[1][..., None])
    eps = [(noisy[0] - a * x) / s for x in (said, without, given)]
    torch.testing.assert_close(eps[0], -1.5 * eps[1] + 2.5 * eps[2])  # the same rule in ε
    hidden, shown = sorted(labeled.calls, key=lambda context: context.condition.label is not None)
    assert (hidden.condition.source, hidden.condition.source_pad, hidden.condition.label) == (None, None, None)
    assert shown.condition.source is hint
    assert hidden.previous is hint, "both branches see the same hint"


def test_one_gives_the_same_samples(noisy: tuple[Tensor, Tensor]) -> None:
    canvas = Canvas(noisy[0], torch.zeros(2, 5, dtype=torch.bool), LABEL)
    plain, guided = (
        final_canvas(Ddim(4)(denoise, _PROCESS, canvas, rng=rng(0, 2))).z
        for denoise in (Labeled(), ClassifierFree(1.0)(Labeled()))
    )
    assert torch.equal(plain, guided)


def test_each_branch_has_a_cache(noisy: tuple[Tensor, Tensor]) -> None:
    labeled = Labeled()
    guided = ClassifierFree(2.0)(labeled)
    context = guided.absorb(noisy[0], replace(LABEL, previous=noisy[0]))
    assert context.cache is not None
    assert (context.cache.covers.shape, len(labeled.calls), context.previous) == ((2, 5), 2, None)
    assert context.cache.exact
    again = guided.absorb(noisy[0][:, :3], context.rows(torch.tensor([0, 1])))
    assert again.condition.label is LABEL.condition.label or torch.equal(again.condition.label, LABEL.condition.label)  # type: ignore[arg-type]
    guided.predict(*noisy, again)
    assert [type(call.cache) for call in labeled.calls[-2:]] == [Length, Length], "never the pair itself"
    alone = Labeled()
    kept = ClassifierFree(0.0)(alone).absorb(noisy[0], LABEL)
    assert (kept.cache, len(alone.calls)) == (Length(5), 1)


def test_two_caches_are_exact_if_both_are() -> None:
    coarse = _Coarse(5)
    assert _BranchCaches(Length(5), Length(5)).exact
    for caches in ((Length(5), coarse), (coarse, Length(5)), (coarse, coarse)):
        assert not _BranchCaches(*caches).exact


def test_nothing_to_exaggerate(noisy: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(ValueError, match="neither source nor label"):
        ClassifierFree(2.0)(Labeled()).predict(*noisy, Context())
    with pytest.raises(ValueError, match="scale=-1"):
        ClassifierFree(-1)


# --- tokens ---

P, Q = torch.tensor([0.5, 0.3, 0.2, 0.0]), torch.tensor([0.2, 0.2, 0.6, 0.0])


@dataclass(frozen=True)
class Tokens:
    """P without a label, Q with one; the last state is never said."""

    normalized: bool = True
    block: int | None = None

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        p = P if context.condition.label is None else Q
        return TablePrediction(p.log().expand(*z.shape, 4), self.normalized)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        raise NotImplementedError


def test_tokens_are_mixed_as_probabilities() -> None:
    z, t = torch.zeros(2, 3, dtype=torch.int64), torch.ones(2, 1)
    pred = ClassifierFree(2.0)(Tokens()).predict(z, t, LABEL)
    expected = Q**2 / P.clamp(min=1e-9)
    expected = expected / expected.sum()
    torch.testing.assert_close(pred.x.exp(), expected.expand(2, 3, 4))
    where = torch.tensor([[True, False, True], [False, False, False]])
    torch.testing.assert_close(pred.at(where).exp(), expected.expand(2, 4))
    nll = pred.nll(where, torch.full_like(z, 2))
    torch.testing.assert_close(nll, -expected[2].log() * where)
    for scale, p in ((0.0, P), (1.0, Q)):
        assert torch.equal(ClassifierFree(scale)(Tokens()).predict(z, t, LABEL).x[0, 0], p.log())
    with pytest.raises(ValueError, match="predicts unnormalized ratios"):
        ClassifierFree(2.0)(Tokens(normalized=False)).predict(z, t, LABEL)


def test_extrapolate_never_takes_infinity_from_infinity() -> None:
    log_p, log_q = P.log(), torch.tensor([0.0, 0.5, 0.5, 0.0]).log()
    for scale in (0.5, 3.0):
        mixed = ops.extrapolate(log_p, log_q, scale)
        assert mixed.exp().sum() == pytest.approx(1)
        assert (mixed == -torch.inf).tolist() == [True, False, False, True]
    assert ops.extrapolate(log_p, log_q, 0) is log_p
    assert ops.extrapolate(log_p, log_q, 1) is log_q


def test_named_tokens_of_vectors_are_mixed_too() -> None:
    @dataclass(frozen=True)
    class Named(Tokens):
        def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
            p = P if context.condition.label is None else Q
            return VectorPrediction(2 * p.expand(*z.shape[:2], 4) - 1, p.log().expand(*z.shape[:2], 4))

    pred = ClassifierFree(2.0)(Named()).predict(torch.zeros(2, 3, 4), torch.ones(2, 1), LABEL)
    assert isinstance(pred, VectorPrediction)
    assert pred.log_weights is not None
    torch.testing.assert_close(pred.log_weights[0, 0], ops.extrapolate(P.log(), Q.log(), 2.0))
    torch.testing.assert_close(pred.mean[0, 0], (2 * P - 1) * -1 + (2 * Q - 1) * 2)


# --- with a classifier ---


def test_laws() -> None:
    rows = list(solvers._guidance_laws(_PROCESS, MIXTURE, ORACLE))
    assert len(rows) == 3
    assert [row.law for row in rows if not row.ok] == []


def test_scale_zero_is_the_denoiser(noisy: tuple[Tensor, Tensor]) -> None:
    guides: list[Guidance] = [
        GradientClassifier(ModeClassifier(MIXTURE, _PROCESS.path, 0), _PROCESS, 0.0),
        DenoisedClassifier(lambda x, _: x.sum((1, 2)), _PROCESS, 0.0),
    ]
    for guide in guides:
        assert torch.equal(guide(ORACLE).predict(*noisy, Context()).x, ORACLE.predict(*noisy, Context()).x)


def test_given_places_are_not_pushed() -> None:
    z, t = MIXTURE.sample(rng(3, 2), 3), torch.tensor([[0.0, 0.5, 0.0], [0.0, 0.5, 0.5]])
    guided = GradientClassifier(ModeClassifier(MIXTURE, _PROCESS.path, 0), _PROCESS, 3.0)(ORACLE)
    moved = (guided.predict(z, t, Context()).x != ORACLE.predict(z, t, Context()).x).any(-1)
    assert torch.equal(moved, t > 0)


def test_through_the_denoiser(noisy: tuple[Tensor, Tensor]) -> None:
    """The slope of a linear log p(y | x) is its weight times the Jacobian of x̂; one call, no graph left."""
    weight, labeled = torch.tensor([1.0, -2.0], dtype=torch.float64), Labeled()
    guided = DenoisedClassifier(lambda x, _: (x @ weight).sum(-1), _PROCESS, 0.5)(labeled)
    with torch.no_grad():
        said = guided.predict(*noisy, Context()).x
    assert len(labeled.calls) == 1
    assert not said.requires_grad
    z = noisy[0].clone().requires_grad_()
    x = ORACLE.predict(z, noisy[1], Context()).x
    slope = torch.autograd.grad((x @ weight).sum(), z)[0]
    a, s = _PROCESS.path.scales(noisy[1][..., None])
    torch.testing.assert_close(said, (x + 0.5 * s**2 / a * slope).detach())


# --- projections ---


def test_clamping_from_a_time_on(noisy: tuple[Tensor, Tensor]) -> None:
    z, t = noisy  # times 0.3 and 0.7

    def nearest(x: Tensor) -> Tensor:
        return MIXTURE.means[torch.cdist(x.flatten(0, 1), MIXTURE.means).argmin(-1)].view_as(x)

    plain = ORACLE.predict(z, t, Context()).x
    late, always = (ProjectedDenoiser(nearest, since)(ORACLE).predict(z, t, Context()).x for since in (0.5, 1.0))
    assert torch.equal(late[0], nearest(plain)[0])
    assert torch.equal(late[1], plain[1])
    assert torch.equal(always, nearest(plain))
    assert torch.equal(ProjectedDenoiser(nearest, 0.2)(ORACLE).predict(z, t, Context()).x, plain)
    with pytest.raises(ValueError, match="since=0"):
        ProjectedDenoiser(nearest, 0.0)


def test_thresholds() -> None:
    x = torch.tensor([[[0.5, -0.5, 0.2, 0.1], [4.0, -2.0, 1.0, 0.0]]])
    held = DynamicThreshold(quantile=1.0)(x)
    assert torch.equal(held[0, 0], x[0, 0]), "within the limit nothing happens"
    torch.testing.assert_close(held[0, 1], x[0, 1] / 4)
    cut = DynamicThreshold(quantile=2 / 3)(x)[0, 1]
    torch.testing.assert_close(cut, torch.tensor([1.0, -1.0, 0.5, 0.0]))
    torch.testing.assert_close(UnitNorm()(x).norm(dim=-1), torch.full((1, 2), 2.0))


def test_gradients_are_for_vectors() -> None:
    tokens: Denoiser = Tokens()
    for guide in (GradientClassifier(lambda z, t, c: z.sum((1, 2)), _PROCESS), ProjectedDenoiser(lambda x: x)):
        with pytest.raises(ValueError, match="TablePrediction is a prediction of tokens"):
            guide(tokens).predict(torch.zeros(1, 2, 4), torch.ones(1, 1), Context())
