"""Solvers: laws on a mixture, grids, promises of every sampler, projections, the likelihood against another solver."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from redraft.core import (
    Canvas,
    ClampedLogSnr,
    Context,
    Gaussian,
    Masked,
    NoisePath,
    Rng,
    Sqrt,
    StraightPath,
    VarianceExploding,
    VariancePreserving,
    VectorPrediction,
    Vocab,
    normal_like,
    rng,
    sign_like,
)
from redraft.decoding import (
    ArgmaxProjection,
    Ddim,
    DpmPP,
    DpmPPSde,
    EulerMaruyama,
    Heun,
    HoldWarp,
    KarrasGrid,
    KeepMean,
    Langevin,
    MultiHotProjection,
    NoiseGrid,
    NucleusProjection,
    OdeEuler,
    PredictorCorrector,
    Projection,
    Renoise,
    Sampler,
    Solver,
    SolverStep,
    TruncatedGrid,
    UniformLogSnrGrid,
    UniformTimeGrid,
    final_canvas,
    flow_log_likelihood,
)
from redraft.evaluation import VOCAB
from redraft.evaluation.laws import solvers as check_solvers
from redraft.evaluation.laws.gaussian import Mixture, MixtureOracle
from redraft.evaluation.laws.solvers import _PROCESS, _blank_vectors, _clean_density, _sample_tokens, _TokenOracle
from redraft.models import (
    DiffusionLM,
    DiffusionLMConfig,
    Embedding,
    PredictTokens,
    PredictX,
    Simplex,
    TransformerConfig,
    VectorHead,
)

MIXTURE = Mixture.of()
PATHS: list[NoisePath] = [VariancePreserving(), VarianceExploding(0.05, 20.0), StraightPath()]
every_path = pytest.mark.parametrize("path", PATHS, ids=lambda path: type(path).__name__)
SAMPLERS: list[Sampler] = [
    Ddim(5),
    Ddim(5, eta=0.5),
    OdeEuler(5),
    Heun(5),
    DpmPP(5),
    DpmPPSde(5),
    EulerMaruyama(5),
    Langevin(5, inner=2),
    PredictorCorrector(Ddim(5)),
    Renoise(5, project=KeepMean()),
]
every_sampler = pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: f"{type(s).__name__}")


@pytest.mark.parametrize("law", ["order", "disguise", "flow"])
def test_laws(law: str) -> None:
    oracle = MixtureOracle(MIXTURE, _PROCESS.path)
    rows = {
        "order": lambda: check_solvers._convergence_laws(_PROCESS, oracle),
        "disguise": lambda: check_solvers._equivalence_laws(_PROCESS, MIXTURE, oracle),
        "flow": lambda: check_solvers._flow_laws(_PROCESS, MIXTURE, oracle),
    }[law]()
    assert [row.law for row in rows if not row.ok] == []


def test_samplers_recover_the_mixture() -> None:
    rows = list(check_solvers._moment_laws(_PROCESS, MIXTURE))
    assert len(rows) == 3 * len(check_solvers._SAMPLERS)
    assert [row.law for row in rows if not row.ok] == []


@every_path
def test_disguises_on_other_paths(path: NoisePath) -> None:
    process = Gaussian(VOCAB, path)
    rows = check_solvers._equivalence_laws(process, MIXTURE, MixtureOracle(MIXTURE, path))
    assert [row.law for row in rows if not row.ok] == []


@every_path
def test_orders_on_other_paths(path: NoisePath) -> None:
    process, oracle = Gaussian(VOCAB, path), MixtureOracle(MIXTURE, path)
    orders = [check_solvers._convergence_order(process, oracle, kind) for kind in (Ddim, Heun, DpmPP)]
    assert 0.9 < orders[0] < 1.6
    assert min(orders[1:]) > 1.6


@dataclass(frozen=True)
class Askew(Solver):
    """Deliberately wrong: DDIM with a tenth too much of ε̂."""

    def step(self, step: SolverStep) -> Tensor:
        signal, noise = step.scales_s
        return signal * step.x + 1.1 * noise * step.eps


def test_a_wrong_solver_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_solvers, "_SAMPLERS", (("wrong", Askew(60, UniformLogSnrGrid()), 0.12),))
    assert not all(row.ok for row in check_solvers._moment_laws(_PROCESS, MIXTURE))


# --- grids ---


@every_path
@pytest.mark.parametrize(
    "grid",
    [UniformTimeGrid(), UniformTimeGrid(HoldWarp()), UniformLogSnrGrid(), KarrasGrid(), KarrasGrid(1.0)],
    ids=repr,
)
def test_grids_fall_from_one_to_zero(path: NoisePath, grid: NoiseGrid) -> None:
    for steps in (1, 2, 9):
        times = grid(path, steps)
        assert len(times) == steps + 1
        assert (times[0], times[-1]) == (1.0, 0.0)
        assert all(t > s or grid == UniformTimeGrid(HoldWarp()) for t, s in pairwise(times))


@every_path
def test_spacing_of_grids(path: NoisePath) -> None:
    levels = path.logsnr(torch.tensor(UniformLogSnrGrid()(path, 9)[:-1], dtype=torch.float64))
    torch.testing.assert_close(levels.diff(), levels.diff().mean().expand(8), rtol=1e-5, atol=1e-6)
    ratio = (-path.logsnr(torch.tensor(KarrasGrid(3.0)(path, 9)[:-1], dtype=torch.float64)) / 2).exp()
    root = ratio ** (1 / 3.0)
    torch.testing.assert_close(root.diff(), root.diff().mean().expand(8), rtol=1e-5, atol=1e-6)
    nearly = torch.tensor(KarrasGrid(1e6)(path, 9), dtype=torch.float64)
    torch.testing.assert_close(
        nearly, torch.tensor(UniformLogSnrGrid()(path, 9), dtype=torch.float64), rtol=1e-4, atol=1e-6
    )
    assert TruncatedGrid(0.2)(path, 4) == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])


# --- what every sampler promises ---


@dataclass(frozen=True)
class Watched:
    """An oracle that keeps book of what it is shown."""

    path: NoisePath
    block: int | None = None
    times: list[Tensor] = field(default_factory=list)
    hints: list[Tensor | None] = field(default_factory=list)
    said: list[Tensor] = field(default_factory=list)

    def predict(self, z: Tensor, t: Tensor, context: Context) -> VectorPrediction:
        assert not torch.is_grad_enabled()
        pred = MixtureOracle(MIXTURE, self.path).predict(z, t, context)
        self.times.append(t)
        self.hints.append(context.previous)
        self.said.append(pred.x.to(z.dtype))
        return VectorPrediction(pred.x.float())

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        raise NotImplementedError


def given_canvas(rows: int = 3) -> Canvas:
    """The first of four places is given, the last one padding."""
    z = MIXTURE.sample(rng(1, rows), 4).float()
    place = torch.arange(4).expand(rows, 4)
    return Canvas(z, (place == 0) | (place == 3), Context(pad=place == 3))


@every_path
@every_sampler
def test_promises(path: NoisePath, sampler: Sampler) -> None:
    canvas, watched = given_canvas(), Watched(path)
    canvases = list(sampler(watched, Gaussian(VOCAB, path), canvas, rng=rng(0, 3)))
    assert len(canvases) == 6, "noise, and a canvas for each step"
    for written in canvases:
        assert torch.equal(written.z[canvas.fixed], canvas.z[canvas.fixed]), "given places never change"
        assert written.z.dtype == torch.float32
        assert bool(written.z.isfinite().all())
    assert all(torch.equal(t == 0, canvas.fixed) for t in watched.times), "given places sit at time zero"
    assert watched.hints[0] is None
    assert torch.is_grad_enabled()


@every_sampler
def test_a_row_is_written_as_if_alone(sampler: Sampler) -> None:
    canvas, keys = given_canvas(20), rng(3, 20)
    oracle, process = MixtureOracle(MIXTURE, _PROCESS.path), _PROCESS
    together = final_canvas(sampler(oracle, process, canvas, rng=keys)).z
    for i in (0, 7, 19):
        alone = Canvas(canvas.z[i : i + 1, :3], canvas.fixed[i : i + 1, :3])  # without its padding
        z = final_canvas(sampler(oracle, process, alone, rng=Rng(keys.key[i : i + 1]))).z
        torch.testing.assert_close(z[0], together[i, :3], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("solver", [Ddim(4), Heun(4), DpmPP(4)], ids=repr)
def test_the_hint_is_what_was_said_at_the_start_of_the_step_before(solver: Solver) -> None:
    watched, process = Watched(_PROCESS.path), _PROCESS
    final = final_canvas(solver(watched, process, given_canvas(), rng=rng(0, 3)))
    calls = 2 if isinstance(solver, Heun) else 1
    said, hints = watched.said[::calls], watched.hints[::calls]
    for before, hint in zip(said, hints[1:], strict=False):
        torch.testing.assert_close(hint, before)
    if calls == 2:  # within a step the hint stands still
        assert all(a is b for a, b in zip(hints, watched.hints[1::2], strict=False))
    torch.testing.assert_close(final.context.previous, said[-1])


@every_sampler
def test_the_last_step_gives_what_the_network_says(sampler: Sampler) -> None:
    canvas, watched = given_canvas(), Watched(_PROCESS.path)
    z = final_canvas(sampler(watched, _PROCESS, canvas, rng=rng(0, 3))).z
    exact = not isinstance(sampler, EulerMaruyama)  # which stops before
    assert torch.equal(z[~canvas.fixed], watched.said[-1][~canvas.fixed]) == exact


@pytest.mark.parametrize(
    ("sampler", "calls"), [(Ddim(6), 6), (DpmPP(6), 6), (Heun(6), 11), (Langevin(6, inner=3), 19)], ids=repr
)
def test_network_calls(sampler: Sampler, calls: int) -> None:
    watched = Watched(_PROCESS.path)
    final_canvas(sampler(watched, _PROCESS, given_canvas(), rng=rng(0, 3)))
    assert len(watched.times) == calls


def test_corrections_do_not_depend_on_given_places() -> None:
    canvas = given_canvas()
    other = replace(canvas, z=torch.where(canvas.fixed[..., None], canvas.z + 5, canvas.z))
    sampler, oracle = PredictorCorrector(Ddim(4), corrections=2), MixtureOracle(MIXTURE, _PROCESS.path)
    one, two = (final_canvas(sampler(oracle, _PROCESS, c, rng=rng(0, 3))).z[~canvas.fixed] for c in (canvas, other))
    assert torch.equal(one, two)
    plain = final_canvas(Ddim(4)(oracle, _PROCESS, canvas, rng=rng(0, 3))).z
    none = final_canvas(PredictorCorrector(Ddim(4), corrections=0)(oracle, _PROCESS, canvas, rng=rng(0, 3))).z
    assert torch.equal(plain, none)


@pytest.mark.parametrize("head", [PredictX(), PredictTokens()], ids=repr)
def test_with_a_network(tiny: TransformerConfig, vocab: Vocab, head: VectorHead) -> None:
    """Every solver, and the likelihood, on what a real model says, hints included."""
    codec = Simplex() if head == PredictTokens() else Embedding(4)
    process = Gaussian(vocab, VariancePreserving(ClampedLogSnr(Sqrt(), -12.0, 2.0)))
    config = DiffusionLMConfig(process, replace(tiny, time=8), head, codec=codec, self_conditioning=True)
    model = DiffusionLM(config)
    assert model.codec is not None
    x = model.codec.encode(torch.tensor([[0, 1, 2], [3, 4, 5]])).detach()
    canvas = Canvas(x, torch.tensor([[True, False, False], [True, True, False]]))
    for sampler in [*SAMPLERS, *([Renoise(3)] if head == PredictTokens() else [])]:
        written = final_canvas(sampler(model, process, canvas, rng=rng(0, 2)))
        assert torch.equal(written.z[canvas.fixed], x[canvas.fixed])
        assert bool(written.z.isfinite().all())
        assert written.context.previous is not None
    nats = flow_log_likelihood(model, process, canvas, steps=5, rng=rng(0, 2))
    assert nats.shape == (2,)
    assert bool(nats.isfinite().all())
    assert all(p.grad is None for p in model.parameters())


# --- renoising ---


@pytest.mark.parametrize("project", [ArgmaxProjection(), KeepMean()], ids=repr)
def test_only_drawn_tokens_keep_their_frequencies(project: Projection) -> None:
    oracle = _TokenOracle.of(_PROCESS)
    assert check_solvers._renoise_law(_PROCESS).ok
    share = (_sample_tokens(oracle, Renoise(20, project=project)) == 0).double().mean()
    assert float(share) > float(oracle.mixture.weights[0]) + 0.05


def test_projections() -> None:
    log_p = torch.tensor([[[0.5, 0.3, 0.2]]]).log()
    pred = VectorPrediction(torch.zeros(1, 1, 3), log_p)
    assert ArgmaxProjection()(pred, rng=rng(0)).tolist() == [[[1, -1, -1]]]
    assert MultiHotProjection(0.6)(pred, rng=rng(0)).tolist() == [[[1, 1, -1]]]
    assert MultiHotProjection(1e-6)(pred, rng=rng(0)).tolist() == [[[1, -1, -1]]]
    many = VectorPrediction(torch.zeros(1, 4000, 3), log_p.expand(1, 4000, 3))
    drawn = ((NucleusProjection()(many, rng=rng(0)) + 1) / 2)[0]
    assert drawn.sum(-1).unique().tolist() == [1]
    torch.testing.assert_close(drawn.mean(0), torch.tensor([0.5, 0.3, 0.2]), atol=0.04, rtol=0)
    nucleus = ((NucleusProjection(0.6)(many, rng=rng(0)) + 1) / 2)[0].mean(0)
    torch.testing.assert_close(nucleus, torch.tensor([0.625, 0.375, 0.0]), atol=0.04, rtol=0)


# --- draws ---


def test_draws_of_a_window_are_those_of_the_row() -> None:
    whole, part = torch.zeros(3, 6, 2, dtype=torch.float64), torch.zeros(3, 4, 2, dtype=torch.float64)
    for draw in (normal_like, sign_like):
        assert torch.equal(draw(whole, rng(0, 3))[:, 2:], draw(part, rng(0, 3).at(torch.arange(2, 6)[None])))
    signs = sign_like(torch.zeros(1, 4000, 1), rng(0))
    assert signs.unique().tolist() == [-1, 1]
    assert abs(float(signs.mean())) < 0.08


# --- the likelihood ---


def test_likelihood_against_another_solver() -> None:
    """torchdiffeq integrates dz/dt = a'·x̂ + s'·ε̂ and its divergence in time, in another form than ours."""
    torchdiffeq = pytest.importorskip("torchdiffeq")
    path, x = StraightPath(), MIXTURE.sample(rng(8, 4), 1)
    process, oracle = Gaussian(VOCAB, path), MixtureOracle(MIXTURE, path)

    def velocity(z: Tensor, t: Tensor) -> Tensor:
        when = t.expand(4, 1).clamp(min=1e-12)
        (a, s), (da, ds) = path.scales(when[..., None]), path.slopes(when[..., None])
        said = oracle.predict(z[:, None], when, Context()).x
        return (da * said + ds * (z[:, None] - a * said) / s)[:, 0]

    def flow(t: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        jacobian = torch.autograd.functional.jacobian(lambda z: velocity(z, t).sum(0), state[0])
        return velocity(state[0], t), jacobian.diagonal(dim1=0, dim2=2).sum(-1)

    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    begin = (path.signal(ends[0]) * x[:, 0], torch.zeros(4, dtype=torch.float64))
    z, gained = (a[-1] for a in torchdiffeq.odeint(flow, begin, ends, rtol=1e-4, atol=1e-5))
    normal = torch.distributions.Normal(0.0, path.prior_std)
    theirs = normal.log_prob(z).sum(-1) + gained + 2 * path.signal(ends[0]).log()
    canvas = Canvas(x, torch.zeros(4, 1, dtype=torch.bool))
    ours = flow_log_likelihood(oracle, process, canvas, steps=150, rng=rng(0, 4), exact=True)
    torch.testing.assert_close(ours, theirs, atol=0.02, rtol=0)


def test_hutchinson_is_unbiased() -> None:
    """In one dimension vᵀJv is the trace itself; in two, its mean over probes."""
    x = MIXTURE.sample(rng(8), 1).expand(200, 1, 2)
    oracle, canvas = MixtureOracle(MIXTURE, _PROCESS.path), Canvas(x, torch.zeros(200, 1, dtype=torch.bool))
    guessed = flow_log_likelihood(oracle, _PROCESS, canvas, steps=40, rng=rng(0, 200))
    exact = flow_log_likelihood(oracle, _PROCESS, canvas.rows(torch.tensor([0])), steps=40, rng=rng(0), exact=True)
    assert guessed.std() > 1e-3
    assert abs(float(guessed.mean() - exact)) < 5 * float(guessed.std()) / math.sqrt(200)


def test_likelihood_of_free_places_alone() -> None:
    x = MIXTURE.sample(rng(8, 2), 3)
    fixed = torch.tensor([[False, True, True], [False, False, True]])
    ours = flow_log_likelihood(
        MixtureOracle(MIXTURE, _PROCESS.path), _PROCESS, Canvas(x, fixed), steps=100, rng=rng(0, 2), exact=True
    )
    each = _clean_density(MIXTURE, _PROCESS.path, x.flatten(0, 1)).view(2, 3)
    torch.testing.assert_close(ours, (each * ~fixed).sum(-1), atol=0.1, rtol=0)


# --- errors ---


def test_errors() -> None:
    with pytest.raises(ValueError, match="steps=0; a sampler needs at least one step"):
        Heun(0)
    with pytest.raises(ValueError, match="eta=2; use a number from 0"):
        Ddim(5, eta=2)
    with pytest.raises(ValueError, match="rho=0"):
        KarrasGrid(0)
    with pytest.raises(ValueError, match="stop=0"):
        TruncatedGrid(0)
    with pytest.raises(ValueError, match="inner=0"):
        Langevin(5, inner=0)
    with pytest.raises(ValueError, match="corrections=-1"):
        PredictorCorrector(corrections=-1)
    with pytest.raises(ValueError, match="top_p=0"):
        NucleusProjection(0.0)
    oracle = MixtureOracle(MIXTURE, _PROCESS.path)
    with pytest.raises(ValueError, match="Gaussian noise, not Masked"):
        final_canvas(Ddim(2)(oracle, Masked(Vocab(3, mask=2)), _blank_vectors(1, 2), rng=rng(0)))
    with pytest.raises(ValueError, match="predicts no tokens"):
        final_canvas(Renoise(2)(oracle, _PROCESS, _blank_vectors(1, 2), rng=rng(0)))
