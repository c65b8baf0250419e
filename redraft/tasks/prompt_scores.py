"""Log-probabilities of the tokens of a prompt, each given the tokens before it; for causal models."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.batch import Batch
from redraft.core.text.tokenizers import token_texts
from redraft.models.causal_base import is_adapted
from redraft.models.diffusion_lm import inference
from redraft.models.networks.linear import lora_disabled
from redraft.tasks.arguments.settings import Prompt
from redraft.tasks.engine.model import TextModel
from redraft.tasks.engine.sampler_choice import batch_size


@dataclass(frozen=True)
class PromptScores:
    """The tokens of a prompt and how likely a causal model finds each of them."""

    pieces: tuple[str, ...]
    """The text of each token; joined, they are the prompt."""
    log_probs: tuple[float | None, ...]
    """Log-probability of each token given those before it; None for the first one of a row."""
    top: tuple[tuple[tuple[str, float], ...], ...]
    """The most likely tokens at each position with their log-probabilities, most likely first."""


def scores_prompts(model: TextModel) -> bool:
    """Whether the model can score prompts: it reads them left to right, if need be with its adapter off."""
    return (model.lm.block == 1 and model.lm.process.fills_masks) or is_adapted(model.lm)


def score_prompt(model: TextModel, prompt: Prompt, top: int = 0) -> PromptScores:
    """Score the tokens of a prompt, with the `top` most likely tokens at each position. Costs one pass."""
    if not scores_prompts(model):
        raise ValueError("only causal models have log-probabilities of the tokens of a prompt; use score")
    row, bos = model.prompt_ids(prompt), model.lm.config.vocab.bos
    batch_size(model, None, len(row))
    log_p = _next_log_probs(model, row)
    own = log_p.gather(1, torch.tensor(row[1:], dtype=torch.int64, device=log_p.device)[:, None]).squeeze(-1).tolist()
    best, decode = log_p.topk(min(top, log_p.shape[1])), model.tokenizer.decode
    likely = [
        tuple((decode([token]), value) for token, value in zip(tokens, values, strict=True))
        for tokens, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    first = int(isinstance(prompt, str) and bos is not None)  # the model's own start token is not part of the prompt
    pieces, log_probs, tops = (
        token_texts(model.tokenizer, list(row)),
        (None, *own)[: len(row)],
        ((), *likely)[: len(row)],
    )
    return PromptScores(tuple(pieces[first:]), log_probs[first:], tops[first:])


def _next_log_probs(model: TextModel, row: tuple[int, ...]) -> Tensor:
    """(L − 1, V) log-probabilities of each token after the first, given those before it."""
    lm = model.lm
    with inference(lm) as device:
        tokens = torch.tensor([row], device=device)
        if len(row) < 2:
            return torch.zeros(0, lm.config.vocab.size, device=device)
        if lm.block is None:
            with lora_disabled(lm):
                states, _ = lm.network.extend(tokens[:, :-1])
                logits = lm.network.logits(states[0])
            return ops.exclude(logits.float(), lm.config.vocab.masked).log_softmax(-1)
        scored = torch.ones_like(tokens, dtype=torch.bool)
        scored[:, 0] = False
        z = tokens.masked_fill(scored, lm.process.vocab.masked)
        return lm.predict(z, scored.double(), lm.read(Batch(tokens, scored)).context).at(scored)
