"""The forward process on one text: the text at increasing noise levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.apps.reports.watch import Frame, Token, _TokenState
from redraft.core.batch import Batch, NoisySample
from redraft.core.canvas import Canvas
from redraft.core.randomness import rng
from redraft.core.text.tokenizers import token_texts
from redraft.models.diffusion_lm import DiffusionLM, inference


@dataclass(frozen=True)
class NoisyText:
    """A text at one time of the forward process."""

    t: float
    kept: float  # fraction of its tokens that are unchanged
    frame: Frame


def noise_text(model: DiffusionLM, text: str, times: Sequence[float], seed: int = 0) -> list[NoisyText]:
    """Noises a text to each of these times, from 0 (clean) to 1 (noise), always with the same random numbers.

    Once mask noise hides a token, it therefore stays hidden at all later times. Noisy vectors are decoded to tokens by
    the model; positions of tokens that are missing (insertion) stay empty.
    """
    if model.tokenizer is None:
        raise ValueError("this model has no tokenizer; give DiffusionLM one to see its text")
    ids = model.tokenizer.encode(text)
    if not ids:
        raise ValueError("the text is empty; give a few words")
    if any(not 0 <= t <= 1 for t in times):
        raise ValueError(f"times={list(times)}; every time must be from 0 (clean text) to 1 (noise)")
    with inference(model) as device:
        x = torch.tensor([ids], device=device)
        return [_at(model, x, t, step, seed) for step, t in enumerate(times)]


def _at(model: DiffusionLM, x: Tensor, t: float, step: int, seed: int) -> NoisyText:
    clean = model.read(Batch.of(x))
    time = torch.full((1, 1), t, dtype=torch.float64, device=x.device)
    noisy = model.process.noise(clean.x, time, pad=clean.pad, rng=rng(seed))
    z = model.to_tokens(Canvas(noisy.z, torch.zeros_like(clean.learn))).z
    given, positions = (
        x[0].tolist(),
        _original_positions(x, noisy)[: z.shape[1]],
    )  # latents may decode to a text of another length
    ids = z[0, : len(positions)].tolist()
    same = [given[position] == token for position, token in zip(positions, ids, strict=True)]
    states: list[_TokenState] = ["settled" if right else "noise" for right in same]
    assert model.tokenizer is not None
    tokens = map(Token, token_texts(model.tokenizer, ids), states, positions)
    return NoisyText(t, sum(same) / len(given), Frame(step, tuple(token for token in tokens if token.text)))


def _original_positions(x: Tensor, noisy: NoisySample) -> list[int]:
    """Returns the position in x of each token of z: its own, unless tokens are missing and the rest closed up."""
    if noisy.gaps is None:
        return list(range(x.shape[1]))
    present = x.shape[1] if noisy.pad is None else int((~noisy.pad[0]).sum())
    before = noisy.gaps[0, :present].cumsum(0).tolist()  # tokens missing before each one
    return [i + missing for i, missing in enumerate(before)]
