"""Diagnoses: counts and shapes on a model whose answers are known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

from redraft.core import Batch, ClampedLogSnr, CosineSquared, Gaussian, Masked, VariancePreserving, WordTokenizer
from redraft.evaluation import NoiseLevel, noise_levels as diagnose
from redraft.models import (
    Contextual,
    DiffusionLM,
    DiffusionLMConfig,
    Embedding,
    MaskedLM,
    PredictX,
    TransformerConfig,
    TransformerSize,
)

WORDS = WordTokenizer(tuple("abcdefgh"), ("eos", "mask"))
D = 32
PROCESS = Gaussian(WORDS.vocab, VariancePreserving(ClampedLogSnr(CosineSquared(), -8, 8)))


@pytest.fixture(scope="module")
def model() -> DiffusionLM:
    """Random vectors far apart, and a denoiser that always says zero."""
    network = TransformerConfig(width=8, layers=1, heads=2)
    torch.manual_seed(0)
    return DiffusionLM(DiffusionLMConfig(PROCESS, network, PredictX(), codec=Embedding(D)), WORDS).eval()


def batches(sizes: Sequence[int] = (6, 4)) -> list[Batch]:
    """Five words, the end token, and two more of it."""
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(0, 8, (sum(sizes), 5), generator=generator)
    rows = torch.cat([words, torch.full((len(words), 3), WORDS.vocab.eos)], 1)
    return [Batch.of(part) for part in rows.split(list(sizes))]


def test_tokens_are_told_from_little_noise_and_not_from_much(model: DiffusionLM) -> None:
    clean, noisy = diagnose.accuracy_by_noise(model, batches(), [0.05, 0.99])
    assert clean.accuracy == 1
    assert clean.nats < 0.01
    assert noisy.accuracy < 0.5
    assert noisy.nats > 1
    assert clean.noise == pytest.approx(math.sin(math.pi / 2 * 0.05), abs=1e-6)
    assert clean.logsnr == pytest.approx(-2 * math.log(math.tan(math.pi / 2 * 0.05)), abs=1e-6)


def test_a_denoiser_that_says_zero_knows_no_token(model: DiffusionLM) -> None:
    """x̂ = 0 leaves the bias alone, which is the same for all tokens: nats = ln V, squared error = that of x."""
    (level,) = diagnose.accuracy_by_noise(model, batches(), [0.5])
    assert level.denoised_nats == pytest.approx(math.log(WORDS.vocab.size), rel=1e-5)
    assert level.error == pytest.approx(1, rel=1e-5)  # vectors of the norm √D


def test_no_figure_depends_on_the_batch_size(model: DiffusionLM) -> None:
    one, other = (diagnose.accuracy_by_noise(model, batches(sizes), [0.8])[0] for sizes in ((6, 4), (10,)))
    assert one.accuracy == other.accuracy
    assert one.nats == pytest.approx(other.nats, rel=1e-5)


def test_robustness_falls_with_noise(model: DiffusionLM) -> None:
    shares = [right for _, right in diagnose.decoding_robustness(model, batches(), [0.0, 1.0, 8.0])]
    assert shares[0] == 1
    assert shares[0] >= shares[1] > shares[2]


def test_aubleu_of_one_who_gives_everything_back(model: DiffusionLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """A denoiser that sees through noise has an area of one, the one that says zero has far less."""
    blind = diagnose.area_under_bleu(model, batches(), [0.1, 0.5, 0.9])
    seeing = diagnose._noise_and_predict

    def oracle(model: DiffusionLM, *rest: object) -> tuple[torch.Tensor, ...]:
        z, _, x = seeing(model, *rest)  # type: ignore[arg-type]
        return z, x, x

    monkeypatch.setattr(diagnose, "_noise_and_predict", oracle)
    assert diagnose.area_under_bleu(model, batches(), [0.1, 0.5, 0.9]) == pytest.approx(1)
    assert blind < 0.5
    with pytest.raises(ValueError, match="needs at least two"):
        diagnose.area_under_bleu(model, batches(), [0.5])


def test_interpolation_begins_with_the_text_and_ends_with_the_next(model: DiffusionLM) -> None:
    (batch,) = batches((6,))
    heard: list[list[str]] = []

    def judge(texts: Sequence[str]) -> float:
        heard.append(list(texts))
        return float(len(texts))

    path = diagnose.interpolation_scores(model, batch, judge, [0.0, 0.5, 1.0])
    assert [(p.weight, p.linear, p.spherical) for p in path] == [(a, 6, 6) for a in (0.0, 0.5, 1.0)]
    said = [WORDS.decode(row[:5].tolist()) for row in batch.tokens]
    assert heard[0] == heard[1] == said
    assert heard[4] == heard[5] == [*said[1:], said[0]]


def test_the_arc_keeps_the_norm() -> None:
    x, y = torch.nn.functional.normalize(torch.randn(2, 5, 3, dtype=torch.float64), dim=-1)
    half = diagnose._slerp(x, y, 0.5)
    torch.testing.assert_close(half.norm(dim=-1), torch.ones(5, dtype=torch.float64))
    torch.testing.assert_close((half * x).sum(-1), (half * y).sum(-1))
    torch.testing.assert_close(diagnose._slerp(x, x, 0.5), x)


def level(logsnr: float, nats: float) -> NoiseLevel:
    return NoiseLevel(0.5, logsnr, 0.5, 0.0, 0.0, 0.0, nats, 0.0)


def test_retiming_spreads_the_news_evenly() -> None:
    """Cross-entropy rises between the log-SNRs 2 and −2 alone: there the new schedule spends most of its time."""
    table = [level(8, 0.0), level(2, 0.0), level(-2, 3.0), level(-8, 3.0)]
    schedule = diagnose.fit_schedule(table, points=40, even=0.1)
    assert schedule.logsnrs[0] == pytest.approx(8)
    assert schedule.logsnrs[-1] == pytest.approx(-8)
    inside = sum(-2 <= x <= 2 for x in schedule.logsnrs)
    assert inside >= 0.9 * 40
    with pytest.raises(ValueError, match="got 1 noise levels; a schedule needs at least two"):
        diagnose.fit_schedule(table[:1])


def test_retiming_of_a_line_changes_nothing() -> None:
    table = [level(8 - 2 * k, 0.5 * k) for k in range(9)]
    found = diagnose.fit_schedule(table, points=8).logsnrs
    assert found == pytest.approx([8 - 2 * k for k in range(9)])


def test_levels_that_share_a_log_snr_do_not_break_the_schedule() -> None:
    """Clamped schedules have several times with the same noise at either end, so the curve is flat there."""
    table = [level(8, 0.0), level(8, 0.0), level(2, 0.0), level(-2, 3.0), level(-8, 3.0), level(-8, 3.0)]
    schedule = diagnose.fit_schedule(table, points=8)
    assert schedule.logsnrs == diagnose.fit_schedule(table[1:-1], points=8).logsnrs
    noisy = diagnose.fit_schedule(
        [level(8, 0.0), level(2, 0.5), level(2, 1.5), level(-8, 3.5), level(-8, 2.5)], points=8
    )
    assert noisy == diagnose.fit_schedule([level(8, 0.0), level(2, 1.0), level(-8, 3.0)], points=8)
    flat = diagnose.fit_schedule([level(8, 1.0), level(0, 1.0), level(-8, 1.0)], points=4, even=0.0)
    assert flat.logsnrs[0] == 8


def test_how_well_an_encoder_guesses() -> None:
    codec = Contextual(MaskedLM(8, TransformerSize(8, 1, 2), mask_fraction=0.5), 8, TransformerSize(8, 1, 2))
    network = TransformerConfig(width=8, layers=1, heads=2)
    made = DiffusionLM(DiffusionLMConfig(PROCESS, network, PredictX(), codec=codec), WORDS).eval()
    assert made.codec is not None
    output = made.codec.get_submodule("encoder.network.output")
    words = sum(int((batch.tokens < 8).sum()) for batch in batches())
    with torch.no_grad():  # zero logits name the first of all tokens
        output.weight.zero_()
    firsts = sum(int((batch.tokens == 0).sum()) for batch in batches())
    assert diagnose.masked_accuracy(made, batches()) == pytest.approx(firsts / (words + 10), abs=0.1)


def test_models_without_vectors_are_refused(model: DiffusionLM) -> None:
    network = TransformerConfig(width=8, layers=1, heads=2)
    tokens = DiffusionLM(DiffusionLMConfig(Masked(WORDS.vocab), network), WORDS)
    with pytest.raises(ValueError, match="Gaussian noise"):
        diagnose.accuracy_by_noise(tokens, batches(), [0.5])
    with pytest.raises(ValueError, match="no codec"):
        diagnose.decoding_robustness(tokens, batches(), [0.5])
    with pytest.raises(ValueError, match="with a MaskedLM encoder"):
        diagnose.masked_accuracy(model, batches())
