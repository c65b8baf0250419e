"""The forward process as a strip: one text, noisier and noisier."""

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
    kept: float  # share of its tokens that are as they were
    frame: Frame


def noise_text(model: DiffusionLM, text: str, times: Sequence[float], seed: int = 0) -> list[NoisyText]:
    """A text noised to each of some times, 0 (clean) to 1 (noise), always with the same random numbers.

    So a token that mask noise hides stays hidden at all later times. Vectors are decoded as the model decodes what it
    writes; missing tokens (insertion) leave their place empty.
    """
    if model.tokenizer is None:
        raise ValueError("this model has no tokenizer; give DiffusionLM one to see its text")
    ids = model.tokenizer.encode(text)
    if not ids:
        raise ValueError("there is no text to noise; give a few words")
    if any(not 0 <= t <= 1 for t in times):
        raise ValueError(f"times={list(times)}; 0 is the clean text, 1 is noise")
    with inference(model) as device:
        x = torch.tensor([ids], device=device)
        return [_at(model, x, t, step, seed) for step, t in enumerate(times)]


def _at(model: DiffusionLM, x: Tensor, t: float, step: int, seed: int) -> NoisyText:
    encoded = model.encode(Batch.of(x))
    time = torch.full((1, 1), t, dtype=torch.float64, device=x.device)
    found = model.process.noise(encoded.x, time, pad=encoded.pad, rng=rng(seed))
    z = model.to_tokens(Canvas(found.z, torch.zeros_like(encoded.learn))).z
    clean, places = x[0].tolist(), _places(x, found)[: z.shape[1]]  # latents may decode to a text of another length
    ids = z[0, : len(places)].tolist()
    same = [clean[place] == token for place, token in zip(places, ids, strict=True)]
    states: list[_TokenState] = ["settled" if right else "noise" for right in same]
    assert model.tokenizer is not None
    tokens = map(Token, token_texts(model.tokenizer, ids), states, places)
    return NoisyText(t, sum(same) / len(clean), Frame(step, tuple(token for token in tokens if token.text)))


def _places(x: Tensor, found: NoisySample) -> list[int]:
    """Where each token of z stood in x: the same place, unless some are missing and the rest moved together."""
    if found.gaps is None:
        return list(range(x.shape[1]))
    there = x.shape[1] if found.pad is None else int((~found.pad[0]).sum())
    before = found.gaps[0, :there].cumsum(0).tolist()  # tokens missing before each one
    return [i + missing for i, missing in enumerate(before)]
