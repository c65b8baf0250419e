"""`embed`: texts as vectors, the mean hidden states of a network that reads tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core.batch import Batch
from redraft.core.canvas import Context
from redraft.models.diffusion_lm import DiffusionLM, inference
from redraft.tasks.arguments.setting import ArgumentError
from redraft.tasks.arguments.settings import require_prompts
from redraft.tasks.engine.model import ModelOrPath, as_text_model
from redraft.tasks.engine.sampler_choice import batch_size
from redraft.training.data.framing import pad_rows


def embed(model: ModelOrPath, texts: str | Sequence[Any]) -> Tensor:
    """(B, D) one vector of unit length for each text: the mean of the last layer's states over the tokens of the text.

    The network reads the clean text, at time 0. The vectors were not trained for similarity: they rank texts better
    than chance, but worse than an embedding model does.

    Args:
        model: a model of tokens, or its directory
        texts: a text or a list of them; each a text or a list of token ids
    """
    text_model = as_text_model(model)
    rows = [text_model.prompt_ids(text) for text in require_prompts("texts", texts)]
    if not all(rows):
        raise ArgumentError("texts", "an empty text has no vector; give at least one token")
    size, lm = batch_size(text_model, None, max(map(len, rows))), text_model.lm
    vectors = []
    with inference(lm) as device:
        for part in (rows[i : i + size] for i in range(0, len(rows), size)):
            tokens, pad = pad_rows(part, max(map(len, part)), lm.config.vocab)
            batch = Batch(tokens, ~pad & (tokens != lm.config.vocab.bos), pad if bool(pad.any()) else None)
            vectors.append(F.normalize(mean_states(lm, batch.to(device)).float(), dim=-1))
    return torch.cat(vectors)


def mean_states(model: DiffusionLM, batch: Batch) -> Tensor:
    """(B, D) mean hidden state of each clean text, over the tokens that `batch.learn` marks."""
    if model.codec is not None:
        raise ValueError(
            f"this model has a codec, {type(model.config.codec).__name__}, and no states for tokens; use a model of "
            "tokens"
        )
    t = torch.zeros(len(batch.tokens), 1, device=batch.tokens.device)
    clean, learned = None if model.block is None else batch.tokens, batch.learn[..., None]
    states = model.network(batch.tokens, model.config.noise_level(t), Context(pad=batch.pad, clean=clean))
    return torch.where(learned, states, 0.0).sum(1) / learned.sum(1).clamp(min=1)
