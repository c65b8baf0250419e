"""Canvases for a model: from a conversation, and from the rows of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from redraft.core.batch import Batch
from redraft.core.canvas import Canvas
from redraft.core.text.chat_template import prompt_ids
from redraft.core.text.tokenizers import HubTokenizer
from redraft.models.diffusion_lm import DiffusionLM


def chat_canvas(
    model: DiffusionLM, messages: Sequence[Mapping[str, str]], *, new: int, rows: int = 1, **options: object
) -> Canvas:
    """A canvas with a conversation in each row, followed by tokens for the answer.

    Args:
        model: a model whose tokenizer has a chat template
        messages: the conversation, each {"role": "user", "content": "…"}; the tokenizer's chat template is applied
        new: number of tokens to write
        rows: number of identical rows
        options: further variables of the template, such as enable_thinking=False
    """
    if not isinstance(model.tokenizer, HubTokenizer):
        raise ValueError("this model has no tokenizer with a chat template; give a prompt instead of messages")
    return model.compose([[tuple(prompt_ids(model.tokenizer, messages, **options)), new]] * rows)


@torch.no_grad()
def blank_canvas(model: DiffusionLM, batch: Batch) -> Canvas:
    """A canvas on which the learned tokens of a batch are to be written; prompts, sources and labels are given."""
    context = replace(model.read(batch).context, pad=batch.pad, clean=None)
    z = batch.tokens.masked_fill(batch.learn, model.config.vocab.mask or 0)
    return model.to_vectors(Canvas(z, ~batch.learn, context))
