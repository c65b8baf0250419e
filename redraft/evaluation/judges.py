"""Judges: other language models that measure how likely a text is."""

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
        """Return −log p of the text, and the number of the judge's tokens that it covers."""
        ...


@dataclass(frozen=True)
class ModelJudge:
    """A causal Redraft model as judge. Exact; the end token is scored too if the model has one."""

    model: DiffusionLM

    def __post_init__(self) -> None:
        if self.model.block != 1 or self.model.tokenizer is None:
            raise ValueError("a judge needs exact likelihoods of text; use a causal model that has a tokenizer")

    def nats(self, text: str) -> tuple[float, int]:
        assert self.model.tokenizer is not None
        vocab, ids = self.model.config.vocab, self.model.tokenizer.encode(text)
        tokens = torch.tensor([DocumentRows(len(ids) + 2).frame(ids, vocab, DataStats())], dtype=torch.int64)
        learn = torch.arange(tokens.shape[1])[None] >= (vocab.bos is not None)
        result = likelihood(self.model, [Batch(tokens, learn)], texts=[text])
        return float(result.row_nats.sum()), int(result.row_tokens.sum())


@dataclass(frozen=True)
class TransformersJudge:
    """A causal LM of the transformers library, by folder or name on the hub; needs `redraft[judge]`."""

    path: str
    window: int = 1024  # tokens per forward pass; each window begins with the last token of the previous one

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        """The tokenizer and the model. Weights must be safetensors, and code from the hub is not run."""
        try:
            library = importlib.import_module("transformers")
        except ImportError:
            raise ValueError("this judge needs transformers: pip install 'redraft[judge]'") from None
        tokenizer = library.AutoTokenizer.from_pretrained(self.path, trust_remote_code=False)
        model = library.AutoModelForCausalLM.from_pretrained(self.path, trust_remote_code=False, use_safetensors=True)
        return tokenizer, model.eval()

    @torch.no_grad()
    def nats(self, text: str) -> tuple[float, int]:
        """Return −log p and the count of all tokens if the tokenizer has a bos token, else of all but the first."""
        tokenizer, model = self._loaded
        bos = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
        ids, total = torch.tensor([*bos, *tokenizer.encode(text, add_special_tokens=False)]), 0.0
        for lo in range(0, len(ids) - 1, self.window - 1):
            window = ids[lo : lo + self.window]
            total += float(ops.nll(model(window[None]).logits[0, :-1], window[1:]).double().sum())
        return total, max(len(ids) - 1, 0)


class JudgedPerplexity(NamedTuple):
    """Generative perplexity, with the entropy beside it: repeating one likely word also gives a low perplexity."""

    perplexity: float
    unigram_entropy: float  # word entropy within a text in nats, mean over texts
    tokens: int  # number of the judge's tokens that were scored


def generative_perplexity(texts: Sequence[str], judge: Judge) -> JudgedPerplexity:
    """Return exp(nats per token of all texts under the judge), with the entropy of the texts."""
    scores = [judge.nats(text) for text in texts]
    nats, tokens = sum(nats for nats, _ in scores), sum(count for _, count in scores)
    return JudgedPerplexity(math.exp(nats / tokens) if tokens else math.nan, unigram_entropy(texts)[0], tokens)
