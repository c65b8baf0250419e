"""Diagnostics for diffusion of vectors: what can be read at each noise level, and how smooth the latent space is.

All are pure functions of a model and batches. Row i draws from the key (seed, i), whatever batch it is in. Only tokens
up to the first end token are scored (inclusive): what follows it is certain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core import randomness
from redraft.core.batch import Batch
from redraft.core.canvas import Canvas
from redraft.core.processes.gaussian import Gaussian
from redraft.core.randomness import Rng
from redraft.core.schedules.transforms import PiecewiseLogSnr
from redraft.core.text.bleu import bleu
from redraft.models.codecs.base import Codec
from redraft.models.codecs.modules.corruption import mask_tokens
from redraft.models.codecs.modules.encoder import MaskedEncoder
from redraft.models.diffusion_lm import DiffusionLM
from redraft.training.heldout import scored_positions
from redraft.training.objectives.conditioning import self_condition


class NoiseLevel(NamedTuple):
    """How well tokens w can be read at one noise level: from the noisy z, and from the denoiser's x̂."""

    t: float
    logsnr: float
    noise: float  # s/√(a² + s²), from 0 to 1
    accuracy: float  # fraction of tokens that decode(z) gets right
    nats: float  # −log p(w | z) per token
    denoised_accuracy: float  # fraction of tokens that decode(x̂) gets right
    denoised_nats: float  # −log p(w | x̂) per token
    error: float  # mean squared error of x̂ per coordinate


def accuracy_by_noise(
    model: DiffusionLM, batches: Sequence[Batch], times: Sequence[float], *, seed: int = 0
) -> list[NoiseLevel]:
    """Measure how well tokens can be read at each time. It shows useless noise levels.

    Near the clean end z alone gives every token away; near the noisy end even x̂ reveals nothing. The model must be in
    `eval` mode, as `load` returns it, so that every row is self-conditioned.
    """
    return [_level(model, batches, t, seed) for t in times]


def _level(model: DiffusionLM, batches: Sequence[Batch], t: float, seed: int) -> NoiseLevel:
    path = _gaussian(model).path
    time = torch.tensor([[t]], dtype=torch.float64)
    a, s = (float(scale) for scale in path.scales(time))
    sums = torch.stack([_sums(model, b, t, randomness.rng(seed, rows)) for b, rows in _with_indices(batches)]).sum(0)
    correct, nats, denoised_correct, denoised_nats, tokens, error, coordinates = sums.tolist()
    return NoiseLevel(
        t,
        float(path.logsnr(time)),
        s / math.hypot(a, s),
        correct / tokens,
        nats / tokens,
        denoised_correct / tokens,
        denoised_nats / tokens,
        error / coordinates,
    )


@torch.no_grad()
def _sums(model: DiffusionLM, batch: Batch, t: float, rng: Rng) -> Tensor:
    """(7,) correct tokens and nats of z, then of x̂; number of tokens, squared error of x̂, number of coordinates."""
    codec, scored = _codec(model), scored_positions(model, batch)
    z, x_hat, x = _noise_and_predict(model, batch, t, rng)
    signal = _gaussian(model).path.scales(torch.tensor(t, dtype=torch.float64))[0].to(z)
    parts = [part for v in (codec.decoder_input(z, signal), x_hat) for part in _read(codec, v, batch, scored)]
    return torch.stack([*parts, scored.sum(), (x_hat - x).square().sum(), torch.tensor(x.numel())]).double()


def _read(codec: Codec, vectors: Tensor, batch: Batch, scored: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number of tokens that are decoded correctly, and the nats of all scored tokens."""
    correct = _decode(codec, vectors, batch.tokens.shape[1]) == batch.tokens
    return correct[scored].sum(), codec.nll(vectors, batch.tokens, batch.pad)[scored].sum()


def _noise_and_predict(model: DiffusionLM, batch: Batch, t: float, rng: Rng) -> tuple[Tensor, Tensor, Tensor]:
    """Return z at time t, the model's x̂, and the clean x; prompts are noised like everything else."""
    for_noise, for_hint = rng.split(2)
    clean = model.read(batch)
    times = torch.full((len(batch.tokens), 1), t, dtype=torch.float64, device=batch.tokens.device)
    sample = model.process.noise(clean.x, times, pad=clean.pad, rng=for_noise)
    context = self_condition(model, sample, clean.context, rng=for_hint)
    return sample.z, model.predict(sample.z, sample.t, context).x, clean.x


def fit_schedule(table: Sequence[NoiseLevel], points: int = 32, even: float = 0.1) -> PiecewiseLogSnr:
    """Fit a schedule under which the cross-entropy of x̂ grows linearly with time, so each step decides equally much.

    This is the time warping of "CDCD" (Dieleman et al. 2022, §3.4). F is the measured cross-entropy as a function of
    the log-SNR, made monotone and scaled to 0..1. The log-SNR itself is mixed in with weight `even`, so that no level
    is skipped. The schedule has the log-SNR at which F is k/points at time k/points.
    """
    levels = sorted({row.logsnr for row in table}, reverse=True)
    if len(levels) < 2:
        raise ValueError(
            f"got {len(table)} noise levels; a schedule needs at least two different ones, so measure more"
        )
    logsnr = torch.tensor(levels, dtype=torch.float64)
    means = [fmean(row.denoised_nats for row in table if row.logsnr == level) for level in levels]  # equal noise
    nats = torch.tensor(means, dtype=torch.float64).cummax(0).values
    progress = (1 - even) * _scale_to_unit(nats) + even * _scale_to_unit(-logsnr)
    return PiecewiseLogSnr(tuple(_interpolate(progress, logsnr, k / points) for k in range(points + 1)))


def _scale_to_unit(values: Tensor) -> Tensor:
    """Scale increasing values to run from 0 to 1; evenly spaced if all are equal."""
    span = values[-1] - values[0]
    return (values - values[0]) / span if float(span) else torch.linspace(0, 1, len(values), dtype=values.dtype)


def _interpolate(x: Tensor, y: Tensor, at: float) -> float:
    """Interpolate linearly between the points (x, y), with x never falling; return y where x is first `at`."""
    if at <= float(x[0]):
        return float(y[0])
    i = int(torch.searchsorted(x, at).clamp(1, len(x) - 1))
    return float(torch.lerp(y[i - 1], y[i], (at - x[i - 1]) / (x[i] - x[i - 1])))


def area_under_bleu(model: DiffusionLM, batches: Sequence[Batch], times: Sequence[float], *, seed: int = 0) -> float:
    """Return the area under BLEU(w, decode(x̂)) over the noise level s/√(a² + s²), divided by its range (PLANNER, §4).

    It is 1 if denoiser and codec reproduce every text at every noise level. BLEU is `core.text.bleu`.
    """
    if len(times) < 2:
        raise ValueError(f"got {len(times)} times; the area under a curve needs at least two")
    path, levels = _gaussian(model).path, sorted(times)
    scores = [_bleu_at(model, batches, t, seed) for t in levels]
    scales = [path.scales(torch.tensor([t], dtype=torch.float64)) for t in levels]
    noise = [float(s / (a.square() + s.square()).sqrt()) for a, s in scales]
    area = sum((n1 - n0) * (b0 + b1) / 2 for (n0, b0), (n1, b1) in pairwise(zip(noise, scores, strict=True)))
    return area / (noise[-1] - noise[0])


@torch.no_grad()
def _bleu_at(model: DiffusionLM, batches: Sequence[Batch], t: float, seed: int) -> float:
    texts, references = [], []
    for batch, rows in _with_indices(batches):
        x_hat = _noise_and_predict(model, batch, t, randomness.rng(seed, rows))[1]
        texts += _texts(model, _codec(model).decode(x_hat)[:, : batch.tokens.shape[1]])
        references += _texts(model, batch.tokens)
    return bleu(texts, references)


@torch.no_grad()
def decoding_robustness(
    model: DiffusionLM, batches: Sequence[Batch], sigmas: Sequence[float], *, seed: int = 0
) -> list[tuple[float, float]]:
    """Return (σ, fraction of tokens that decode(x + σ·ξ) gets right) for clean latents x and Gaussian noise ξ.

    A smooth latent space tolerates much noise.
    """
    codec, accuracies = _codec(model), []
    for sigma in sigmas:
        correct = tokens = 0
        for batch, rows in _with_indices(batches):
            x, scored = model.read(batch).x, scored_positions(model, batch)
            z = x + sigma * randomness.normal_like(x, randomness.rng(seed, rows))
            correct += int((_decode(codec, z, batch.tokens.shape[1]) == batch.tokens)[scored].sum())
            tokens += int(scored.sum())
        accuracies.append((sigma, correct / tokens))
    return accuracies


class InterpolationScore(NamedTuple):
    """Scores of texts decoded between two latents x and y."""

    weight: float  # interpolation weight a: 0 is the first text, 1 the second
    linear: float  # score of decode((1 − a)·x + a·y)
    spherical: float  # score of decode(slerp(x, y, a)), which follows the arc between them and keeps the norm


@torch.no_grad()
def interpolation_scores(
    model: DiffusionLM, batch: Batch, judge: Callable[[Sequence[str]], float], weights: Sequence[float]
) -> list[InterpolationScore]:
    """Score texts interpolated between rows i and i + 1; in a smooth latent space no worse than at the ends.

    Args:
        model: a model with a codec
        batch: the texts; the last row is interpolated with the first
        judge: a score of a list of texts, such as `lambda texts: grammar_score(texts, language).share`
        weights: interpolation weights, 0 for row i and 1 for row i + 1
    """
    codec, length = _codec(model), batch.tokens.shape[1]
    x = model.read(batch).x
    y = x.roll(-1, 0)

    def score(z: Tensor) -> float:
        return judge(_texts(model, codec.decode(z)[:, :length]))

    return [InterpolationScore(a, score(torch.lerp(x, y, a)), score(_slerp(x, y, a))) for a in weights]


def _slerp(x: Tensor, y: Tensor, a: float) -> Tensor:
    """(…, D) spherical interpolation (sin((1 − a)θ)·x + sin(aθ)·y)/sin θ, for the angle θ between (Shoemake 1985)."""
    angle = F.cosine_similarity(x, y, dim=-1).clamp(-1, 1).acos()[..., None]
    arc = (torch.sin((1 - a) * angle) * x + torch.sin(a * angle) * y) / angle.sin()
    return torch.where(angle.sin() < 1e-4, torch.lerp(x, y, a), arc)  # nearly parallel: avoid dividing by 0


@torch.no_grad()
def masked_accuracy(model: DiffusionLM, batches: Sequence[Batch], *, seed: int = 0) -> float:
    """Return the fraction of masked tokens that the codec's own encoder predicts, a test of how well it was trained."""
    encoder = next((part for part in _codec(model).modules() if isinstance(part, MaskedEncoder)), None)
    if encoder is None:
        raise ValueError(
            f"{type(model.codec).__name__} has no encoder that predicts masked tokens; use one with a MaskedLM encoder"
        )
    correct = tokens = 0
    for batch, rows in _with_indices(batches):
        chosen, seen = mask_tokens(
            batch.tokens, encoder.config.mask_fraction, encoder.vocab, rng=randomness.rng(seed, rows)
        )
        masked = chosen & (seen == encoder.vocab.masked) & scored_positions(model, batch)
        correct += int((encoder.predict(seen, masked, batch.pad).argmax(-1) == batch.tokens[masked]).sum())
        tokens += int(masked.sum())
    return correct / tokens


def _decode(codec: Codec, z: Tensor, length: int) -> Tensor:
    """(B, length) ids; −1 after the last token if the codec decodes fewer."""
    ids = codec.decode(z)[:, :length]
    return F.pad(ids, (0, length - ids.shape[1]), value=-1)


def _texts(model: DiffusionLM, ids: Tensor) -> list[str]:
    return model.text(Canvas(ids, torch.zeros_like(ids, dtype=torch.bool)))


def _with_indices(batches: Sequence[Batch]) -> list[tuple[Batch, Tensor]]:
    """Pair each batch with the indices of its rows among all rows."""
    sizes = [len(batch.tokens) for batch in batches]
    return list(zip(batches, torch.arange(sum(sizes)).split(sizes), strict=True))


def _codec(model: DiffusionLM) -> Codec:
    if model.codec is None:
        raise ValueError("this model has no codec; these diagnostics need a diffusion of vectors, such as Diffusion-LM")
    return model.codec


def _gaussian(model: DiffusionLM) -> Gaussian:
    return model.process.narrowed(Gaussian, "this diagnosis", "use a diffusion of vectors")
