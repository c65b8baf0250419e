"""Diagnoses of models of vectors: what is left of a text at each noise level, and how smooth a latent space is.

Pure functions of a model and batches; row i draws from the key (seed, i), whatever its batch. Tokens are counted up to
the first end token, inclusive: what follows it is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
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
    """One noise level: how well the tokens can be read from z itself, and from the denoiser's x̂."""

    t: float
    logsnr: float
    noise: float  # s/√(a² + s²), from 0 to 1
    accuracy: float  # of decode(z)
    nats: float  # −log p(w | z) per token
    denoised_accuracy: float  # of decode(x̂)
    denoised_nats: float
    error: float  # mean squared error of x̂ per number


def accuracy_by_noise(
    model: DiffusionLM, batches: Sequence[Batch], times: Sequence[float], *, seed: int = 0
) -> list[NoiseLevel]:
    """Shows useless noise levels: near the clean end z alone reveals all, near the noisy end x̂ reveals nothing.

    The model must be in `eval` mode, as `load` returns it: then every row sees its hint.
    """
    return [_level(model, batches, t, seed) for t in times]


def _level(model: DiffusionLM, batches: Sequence[Batch], t: float, seed: int) -> NoiseLevel:
    path = _gaussian(model).path
    time = torch.tensor([[t]], dtype=torch.float64)
    a, s = (float(scale) for scale in path.scales(time))
    sums = torch.stack([_counts(model, b, t, randomness.rng(seed, rows)) for b, rows in _numbered(batches)]).sum(0)
    right, nats, denoised, denoised_nats, tokens, error, numbers = sums.tolist()
    return NoiseLevel(
        t,
        float(path.logsnr(time)),
        s / math.hypot(a, s),
        right / tokens,
        nats / tokens,
        denoised / tokens,
        denoised_nats / tokens,
        error / numbers,
    )


@torch.no_grad()
def _counts(model: DiffusionLM, batch: Batch, t: float, rng: Rng) -> Tensor:
    """(7,) correct tokens and nats of z, the same for x̂, number of tokens, squared error and number of coordinates"""
    codec, where = _codec(model), scored_positions(model, batch)
    z, x_hat, x = _noised(model, batch, t, rng)
    signal = _gaussian(model).path.scales(torch.tensor(t, dtype=torch.float64))[0].to(z)
    parts = [part for read in (codec.weighed(z, signal), x_hat) for part in _read(codec, read, batch, where)]
    return torch.stack([*parts, where.sum(), (x_hat - x).square().sum(), torch.tensor(x.numel())]).double()


def _read(codec: Codec, z: Tensor, batch: Batch, where: Tensor) -> tuple[Tensor, Tensor]:
    """The number of correct tokens, and the nats of all."""
    right = _decoded(codec, z, batch.tokens.shape[1]) == batch.tokens
    return right[where].sum(), codec.nll(z, batch.tokens, batch.pad)[where].sum()


def _noised(model: DiffusionLM, batch: Batch, t: float, rng: Rng) -> tuple[Tensor, Tensor, Tensor]:
    """z at time t, the model's x̂, and x itself; prompts are noised like everything else."""
    early, late = rng.split(2)
    encoded = model.encode(batch)
    times = torch.full((len(batch.tokens), 1), t, dtype=torch.float64, device=batch.tokens.device)
    noised = model.process.noise(encoded.x, times, pad=encoded.pad, rng=early)
    context = self_condition(model, noised, model.context(batch, encoded), rng=late)
    return noised.z, model(noised.z, noised.t, context).x, encoded.x


def fit_schedule(table: Sequence[NoiseLevel], points: int = 32, even: float = 0.1) -> PiecewiseLogSnr:
    """A schedule under which the cross-entropy of x̂ grows linearly with time: each step decides equally much.

    F(λ) is the measured cross-entropy, made monotone; a share `even` of the log-SNR itself is mixed in, so that no
    level is left out (time warping, Dieleman et al. 2022, "CDCD", §3.4). Times are those at which F is 0, 1/n, …, 1.
    """
    rows = sorted(table, key=lambda row: -row.logsnr)
    if len(rows) < 2 or rows[0].logsnr == rows[-1].logsnr:
        raise ValueError(f"{len(rows)} noise levels are too few for a schedule; measure at least two different ones")
    logsnr = torch.tensor([row.logsnr for row in rows], dtype=torch.float64)
    nats = torch.tensor([row.denoised_nats for row in rows], dtype=torch.float64).cummax(0).values
    share = (1 - even) * _from_zero_to_one(nats) + even * _from_zero_to_one(-logsnr)
    return PiecewiseLogSnr(tuple(_interpolated(share, logsnr, k / points) for k in range(points + 1)))


def _from_zero_to_one(values: Tensor) -> Tensor:
    span = values[-1] - values[0]
    return (values - values[0]) / span if float(span) else torch.linspace(0, 1, len(values), dtype=values.dtype)


def _interpolated(x: Tensor, y: Tensor, at: float) -> float:
    """y at `at`, by straight lines between the points (x, y); x rises."""
    i = int(torch.searchsorted(x, at).clamp(1, len(x) - 1))
    return float(torch.lerp(y[i - 1], y[i], (at - x[i - 1]) / (x[i] - x[i - 1])))


def _aubleu(model: DiffusionLM, batches: Sequence[Batch], times: Sequence[float], *, seed: int = 0) -> float:
    """The area under BLEU(w, decode(x̂)) over the noise level s/√(a² + s²), divided by its range (PLANNER, §4).

    It is 1 if denoiser and codec reproduce every text whatever the noise. BLEU is `core.text.bleu`.
    """
    if len(times) < 2:
        raise ValueError(f"an area needs at least two times; got {len(times)}")
    path, levels = _gaussian(model).path, sorted(times)
    scores = [_bleu_at(model, batches, t, seed) for t in levels]
    scales = [path.scales(torch.tensor([t], dtype=torch.float64)) for t in levels]
    noise = [float(s / (a.square() + s.square()).sqrt()) for a, s in scales]
    area = sum((n1 - n0) * (b0 + b1) / 2 for (n0, b0), (n1, b1) in pairwise(zip(noise, scores, strict=True)))
    return area / (noise[-1] - noise[0])


@torch.no_grad()
def _bleu_at(model: DiffusionLM, batches: Sequence[Batch], t: float, seed: int) -> float:
    texts, references = [], []
    for batch, rows in _numbered(batches):
        x_hat = _noised(model, batch, t, randomness.rng(seed, rows))[1]
        texts += _texts(model, _codec(model).decode(x_hat)[:, : batch.tokens.shape[1]])
        references += _texts(model, batch.tokens)
    return bleu(texts, references)


@torch.no_grad()
def _robustness(
    model: DiffusionLM, batches: Sequence[Batch], sigmas: Sequence[float], *, seed: int = 0
) -> list[tuple[float, float]]:
    """(σ, share of tokens that decode(x + σ·ξ) gets right), x the clean latents: smooth spaces tolerate much noise."""
    codec, found = _codec(model), []
    for sigma in sigmas:
        right = tokens = 0
        for batch, rows in _numbered(batches):
            x, where = model.encode(batch).x, scored_positions(model, batch)
            z = x + sigma * randomness.normal_like(x, randomness.rng(seed, rows))
            right += int((_decoded(codec, z, batch.tokens.shape[1]) == batch.tokens)[where].sum())
            tokens += int(where.sum())
        found.append((sigma, right / tokens))
    return found


class InterpolationScore(NamedTuple):
    """Texts between two others."""

    share: float  # of the way
    linear: float  # the judge's score of decode((1 − a)·x + a·y)
    spherical: float  # the same along the arc between them, which keeps their norm


@torch.no_grad()
def _interpolation(
    model: DiffusionLM, batch: Batch, judge: Callable[[Sequence[str]], float], shares: Sequence[float]
) -> list[InterpolationScore]:
    """A judge's scores of texts between row i and row i + 1: in a smooth space no worse than at the ends.

    A judge is, for example, `lambda texts: grammar_score(texts, language).share`.
    """
    codec, length = _codec(model), batch.tokens.shape[1]
    x = model.encode(batch).x
    y = x.roll(-1, 0)

    def judged(z: Tensor) -> float:
        return judge(_texts(model, codec.decode(z)[:, :length]))

    return [InterpolationScore(a, judged(torch.lerp(x, y, a)), judged(_slerp(x, y, a))) for a in shares]


def _slerp(x: Tensor, y: Tensor, share: float) -> Tensor:
    """(…, D) along the arc: (sin((1 − a)θ)·x + sin(aθ)·y)/sin θ, θ the angle between them (Shoemake 1985)."""
    angle = F.cosine_similarity(x, y, dim=-1).clamp(-1, 1).acos()[..., None]
    arc = (torch.sin((1 - share) * angle) * x + torch.sin(share * angle) * y) / angle.sin()
    return torch.where(angle.sin() < 1e-4, torch.lerp(x, y, share), arc)  # parallel: the arc is the line


@torch.no_grad()
def _masked_accuracy(model: DiffusionLM, batches: Sequence[Batch], *, seed: int = 0) -> float:
    """The share of masked tokens that the codec's own encoder guesses: whether and how well it was trained."""
    encoder = next((part for part in _codec(model).modules() if isinstance(part, MaskedEncoder)), None)
    if encoder is None:
        raise ValueError(f"{type(model.codec).__name__} has no encoder that guesses tokens; only MaskedLM does")
    right = tokens = 0
    for batch, rows in _numbered(batches):
        chosen, seen = mask_tokens(batch.tokens, encoder.config.share, encoder.vocab, rng=randomness.rng(seed, rows))
        where = chosen & (seen == encoder.vocab.masked) & scored_positions(model, batch)
        right += int((encoder.guesses(seen, where, batch.pad).argmax(-1) == batch.tokens[where]).sum())
        tokens += int(where.sum())
    return right / tokens


def _decoded(codec: Codec, z: Tensor, length: int) -> Tensor:
    """(B, length) ids; −1 after the end if a codec writes fewer."""
    ids = codec.decode(z)[:, :length]
    return F.pad(ids, (0, length - ids.shape[1]), value=-1)


def _texts(model: DiffusionLM, ids: Tensor) -> list[str]:
    return model.text(Canvas(ids, torch.zeros_like(ids, dtype=torch.bool)))


def _numbered(batches: Sequence[Batch]) -> list[tuple[Batch, Tensor]]:
    """Batches with the numbers of their rows among all."""
    sizes = [len(batch.tokens) for batch in batches]
    return list(zip(batches, torch.arange(sum(sizes)).split(sizes), strict=True))


def _codec(model: DiffusionLM) -> Codec:
    if model.codec is None:
        raise ValueError("this model has no codec: its process works on tokens, so there is nothing to diagnose")
    return model.codec


def _gaussian(model: DiffusionLM) -> Gaussian:
    if not isinstance(model.process, Gaussian):
        raise ValueError(f"noise levels are those of Gaussian noise; this model has {type(model.process).__name__}")
    return model.process
