"""Points: the spelling codec, the corpus with its truth, a trained score against the exact one, the picture of it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch

import redraft
from redraft.apps import (
    learned_scene,
)
from redraft.apps.cli import main
from redraft.apps.reports.score_field import (
    _score_error,
    _score_of,
)
from redraft.core import Canvas, Condition, Context, Gaussian, VectorPrediction, randomness
from redraft.decoding import ClassifierFree, GradientClassifier, Heun, UniformLogSnrGrid, final_canvas
from redraft.evaluation.laws.gaussian import Mixture, MixtureOracle, _nearest_modes
from redraft.evaluation.laws.solvers import ModeClassifier
from redraft.models import Coordinates
from redraft.models.codecs.coordinates import CELL_SIZE, format_point, parse_point
from redraft.training import GaussianMixtureCorpus, first_batches, fit, load_rows, presets
from redraft.training.runs import variations

SVG = "{http://www.w3.org/2000/svg}"
RUN = presets.points_tiny()
PROCESS = RUN.model.process
assert isinstance(PROCESS, Gaussian)
MIXTURE = Mixture.of_blobs(GaussianMixtureCorpus())


def test_a_text_is_a_point() -> None:
    codec = Coordinates().build(RUN.tokenizer.vocab)
    texts = ["-1.204 +0.731", "+0.000 -9.999", format_point((123.0, -0.0004))]
    tokens = torch.tensor([RUN.tokenizer.encode(text) for text in texts])
    x = codec.encode(tokens)
    assert torch.allclose(x[:, 0], torch.tensor([[-1.204, 0.731], [0, -9.999], [9.999, 0]]))
    assert [RUN.tokenizer.decode(row.tolist()) for row in codec.decode(x)] == [*texts[:2], "+9.999 +0.000"]
    assert parse_point("-1.204 +0.731") == (-1.204, 0.731)
    assert [parse_point(text) for text in ("1.204 0.731", "a b", "", "-1.204 +0.73")] == [None] * 4
    with pytest.raises(ValueError, match="a point of 2 numbers has 13 characters, not 12"):
        codec.encode(tokens[:, :12])


def test_cells_share_the_mass_of_the_decoder() -> None:
    codec = Coordinates(width=1, noise=2 * CELL_SIZE).build(RUN.tokenizer.vocab)
    cells = [format_point((0.5 + k * CELL_SIZE,)) for k in range(-30, 31)]
    tokens = torch.tensor([RUN.tokenizer.encode(text) for text in cells])
    z = torch.full((len(cells), 1, 1), 0.50037)
    nats = codec.nll(z, tokens)
    assert torch.allclose((-nats.sum(-1)).exp().sum(), torch.tensor(1.0), atol=1e-4)
    assert bool((nats[:, 1:] == 0).all())
    far = codec.nll(torch.full((1, 1, 1), 9.0), tokens[:1])
    assert math.isfinite(float(far.sum()))


def test_points_have_the_law_they_claim() -> None:
    blobs = GaussianMixtureCorpus()
    texts = [blobs.document("valid", index) for index in range(4000)]
    assert texts[:3] != [blobs.document("train", index) for index in range(3)]
    x = torch.tensor([parse_point(text) for text in texts], dtype=torch.float64)
    mean, covariance = MIXTURE.moments()
    assert torch.allclose(x.mean(0), mean, atol=0.08)
    assert torch.allclose(x.T.cov(), covariance, atol=0.1)
    nats = -torch.tensor([blobs.log_prob(text) for text in texts], dtype=torch.float64)
    entropy = blobs.entropy_per_char() * 13
    assert abs(float(nats.mean()) - entropy) < 4 * float(nats.std()) / math.sqrt(len(nats))
    assert blobs.log_prob("hello") == blobs.log_prob("+1.000") == -math.inf
    with pytest.raises(ValueError, match="weights must sum to 1"):
        replace(blobs, weights=(0.5, 0.3, 0.3))


def test_guidance_with_and_without_a_classifier_is_the_same() -> None:
    """∇log p(y | z) is the difference of the two scores, so with exact ones both move x̂ alike, whatever γ."""

    class Conditional:
        block = None

        def predict(self, z: torch.Tensor, t: torch.Tensor, context: Context) -> VectorPrediction:
            toward = Mixture(*(v[1:2] for v in (MIXTURE.means, MIXTURE.std)), one)
            some = MIXTURE if context.condition.label is None else toward
            return MixtureOracle(some, PROCESS.path).predict(z, t, context)

        def absorb(self, z: torch.Tensor, context: Context, t: torch.Tensor | None = None) -> Context:
            raise NotImplementedError

    one = torch.ones(1, dtype=torch.float64)
    z, t = 2 * randomness.rng(0, 20).normal(1, 2), torch.linspace(0.05, 1, 20)[:, None]
    oracle, classifier = MixtureOracle(MIXTURE, PROCESS.path), ModeClassifier(MIXTURE, PROCESS.path, 1)
    for scale in (0.0, 1.0, 3.0):
        by_classifier = GradientClassifier(classifier, PROCESS, scale)(oracle).predict(z, t, Context()).x
        free = (
            ClassifierFree(scale)(Conditional())
            .predict(z, t, Context(condition=Condition(label=torch.ones(20, dtype=torch.int64))))
            .x
        )
        assert torch.allclose(by_classifier, free, atol=1e-6)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few hundred steps of the preset with classes, which is also the one without."""
    out = tmp_path_factory.mktemp("points")
    run = variations.with_budget(presets.points_class_tiny(), 400)
    fit(replace(run, optimizer=replace(run.optimizer, ema=0.98)), out, quiet=True)
    return out


def test_the_learned_score_is_the_exact_one(trained: Path) -> None:
    from redraft.training import load

    model = load(trained)
    scene = learned_scene(MIXTURE, model, 1)
    assert _score_error(scene, 0.3) < 0.25
    assert _score_error(scene, 0.15) < 0.6
    knows_nothing = SimpleNamespace(predict=lambda z, t, context: VectorPrediction(torch.zeros_like(z)))
    still = replace(scene, denoise=knows_nothing)  # type: ignore[arg-type]
    assert _score_error(still, 0.15) > 0.8, "a denoiser that knows nothing is far off"
    blank = Canvas(torch.zeros(400, 1, 2), torch.zeros(400, 1, dtype=torch.bool))
    with torch.no_grad():
        x = (
            final_canvas(Heun(12, UniformLogSnrGrid())(model, model.process, blank, rng=randomness.rng(0, 400)))
            .z[:, 0]
            .double()
        )
    shares = torch.bincount(_nearest_modes(x, MIXTURE)[0], minlength=3) / len(x)
    assert torch.allclose(shares.double(), MIXTURE.weights, atol=0.12), "each mode has its weight"
    z = x[:1]
    assert torch.allclose(
        _score_of(MixtureOracle(MIXTURE, PROCESS.path), PROCESS.path, z, 0.2),
        _slope(z, 0.2),
        atol=1e-6,
    )


def _slope(z: torch.Tensor, t: float) -> torch.Tensor:
    """∇ log q_t(z) by differentiation."""
    at = z.clone().requires_grad_()
    scales = PROCESS.path.scales(torch.full((1, 1), t, dtype=torch.float64))
    return torch.autograd.grad(MIXTURE.log_density(at, *scales).sum(), at)[0]


def test_the_bound_of_points_is_above_the_truth(trained: Path) -> None:
    from redraft.training import load

    rows = first_batches(load_rows(RUN.data, "valid", RUN.tokenizer, RUN.framing), 64)
    found = redraft.training.likelihood(load(trained), rows, draws=32)
    truth = [GaussianMixtureCorpus().log_prob(GaussianMixtureCorpus().document("valid", index)) for index in range(64)]
    above, error = redraft.training.excess_bits(found, truth)
    assert -3 * error < above < 0.6


def test_the_picture_of_the_score(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["picture", "score"])
    main(["picture", "score", str(trained), "--out", "learned.svg", "--toward", "2", "--gamma", "0", "1", "2"])
    assert "score.svg: score, paths and guidance, exact" in capsys.readouterr().out
    for file, remark in (("score.svg", "∇ log q(z)"), ("learned.svg", "learned, off by")):
        drawn = ElementTree.fromstring((tmp_path / file).read_text("utf-8"))
        assert len(drawn.findall(f"{SVG}g")) == 9
        assert remark in drawn.attrib["aria-label"]
        assert "nan" not in (tmp_path / file).read_text("utf-8")
        assert "color-scheme:light dark" in (drawn.find(f"{SVG}style").text or "")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hills"], "score"),
        (["score", "--toward", "7"], "the mixture has 3 components"),
        (["score", "--gamma", "-1", "0", "1"], "--gamma -1"),
        (["score", "--gamma", "1"], "gamma"),
        (["score", "--out", "a.png"], "give the path of an .svg file"),
        (["score", "story"], "not a model of points in the plane; train one: redraft train points_tiny"),
        (["score", "nowhere"], "nowhere is not a directory"),
    ],
)
def test_wrong_pictures_are_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["picture", *words])
    shown = capsys.readouterr().err
    assert (end.value.code, shown.count("\n")) == (2, 1)
    assert said in shown
