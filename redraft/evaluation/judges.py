"""Other language models as judges: how likely they find a text."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch

from redraft.core import ops
from redraft.core.batch import Batch
from redraft.evaluation.text_metrics import unigram_entropy
from redraft.models.diffusion_lm import DiffusionLM
from redraft.training.data.framing import DocumentRows
from redraft.training.data.sources import DataStats
from redraft.training.heldout import likelihood


class Judge(Protocol):
    """A language model that scores how likely a text is."""

    def nats(self, text: str) -> tuple[float, int]:
        """−log p of the text, and how many of the judge's own tokens it covers."""
        ...


@dataclass(frozen=True)
class ModelJudge:
    """One of our causal models: exact, for the text in its own tokens and the end token, if it has one."""

    model: DiffusionLM

    def __post_init__(self) -> None:
        if self.model.block != 1 or self.model.tokenizer is None:
            raise ValueError("a judge must know exact likelihoods of text: take a causal model that has a tokenizer")

    def nats(self, text: str) -> tuple[float, int]:
        assert self.model.tokenizer is not None
        vocab, ids = self.model.config.vocab, self.model.tokenizer.encode(text)
        tokens = torch.tensor([DocumentRows(len(ids) + 2).frame(ids, vocab, DataStats())], dtype=torch.int64)
        learn = torch.arange(tokens.shape[1])[None] >= (vocab.bos is not None)
        found = likelihood(self.model, [Batch(tokens, learn)], texts=[text])
        return float(found.row_nats.sum()), int(found.row_tokens.sum())


@dataclass(frozen=True)
class TransformersJudge:
    """A causal LM of the transformers library, from a folder or by its name on the hub; needs `redraft[judge]`."""

    path: str
    window: int = 1024  # tokens read at once; each window begins with the last token of the one before

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        """Tokenizer and model: weights from safetensors, and no code that comes with them."""
        try:
            library = importlib.import_module("transformers")
        except ImportError:
            raise ValueError("this judge needs transformers: pip install 'redraft[judge]'") from None
        tokenizer = library.AutoTokenizer.from_pretrained(self.path, trust_remote_code=False)
        model = library.AutoModelForCausalLM.from_pretrained(self.path, trust_remote_code=False, use_safetensors=True)
        return tokenizer, model.eval()

    @torch.no_grad()
    def nats(self, text: str) -> tuple[float, int]:
        """−log p of all tokens if the tokenizer has a bos to start with, otherwise of all but the first."""
        tokenizer, model = self._loaded
        bos = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
        ids, total = torch.tensor([*bos, *tokenizer.encode(text, add_special_tokens=False)]), 0.0
        for lo in range(0, len(ids) - 1, self.window - 1):
            part = ids[lo : lo + self.window]
            total += float(ops.nll(model(part[None]).logits[0, :-1], part[1:]).double().sum())
        return total, max(len(ids) - 1, 0)


class JudgedPerplexity(NamedTuple):
    """A generative perplexity, always with the entropy: a text that repeats one likely word has a low one too."""

    perplexity: float
    unigram_entropy: float  # nats, mean over texts
    tokens: int  # of the judge


def generative_perplexity(texts: Sequence[str], judge: Judge) -> JudgedPerplexity:
    """exp(nats per token) of all texts under the judge."""
    scores = [judge.nats(text) for text in texts]
    nats, tokens = sum(nats for nats, _ in scores), sum(count for _, count in scores)
    return JudgedPerplexity(math.exp(nats / tokens) if tokens else math.nan, unigram_entropy(texts)[0], tokens)
