"""A codec with a learned vector for each token (Diffusion-LM, DiffuSeq, GENIE)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core import randomness
from redraft.core.batch import Batch
from redraft.core.ops import token_nll
from redraft.core.vocab import MAX_WIDTH, Vocab, require_range
from redraft.models.codecs.base import Codec, CodecConfig


@dataclass(frozen=True)
class Embedding(CodecConfig):
    """Embedding E: V → ℝ^D, learned with the denoiser, and p(w | z) = softmax(E·z + b) (Li et al. 2022, eq. 2).

    With `unit`, all vectors have the norm √D. Only their directions are learned, and the vectors cannot shrink toward
    each other, as the squared error alone would make them (Difformer, CDCD).

    With `neighbor_fraction`, vectors are initialized in two parts. Three quarters of their features have this fraction
    of the squared norm and encode the words that occur next to a word, so that words of one kind lie close together;
    the other features distinguish them. Noise then hides a word long before its kind, so sampling decides on the
    kinds first.
    """

    width: int = 16  # D, the width of the vectors
    unit: bool = True  # all vectors have the norm √D
    neighbor_fraction: float = 0.0  # fraction of the squared norm that encodes neighboring words; 0 for random vectors
    names = True

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "width")
        if not 0 <= self.neighbor_fraction < 1 or (self.neighbor_fraction and not (self.unit and self.width >= 4)):
            raise ValueError(
                f"neighbor_fraction={self.neighbor_fraction}, width={self.width}, unit={self.unit}; "
                "neighbor_fraction must be at least 0 and below 1; above 0 it needs unit=True and width >= 4"
            )

    def vectors(self, vocab: Vocab) -> int:
        return self.width

    def build(self, vocab: Vocab) -> EmbeddingCodec:
        return EmbeddingCodec(self, vocab)


class EmbeddingCodec(Codec):
    """The codec that `Embedding` configures; see its documentation."""

    def __init__(self, config: Embedding, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.width = config, config.width
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(vocab.size, config.width)))
        self.bias = nn.Parameter(torch.zeros(vocab.size))

    @torch.no_grad()
    def fit_statistics(self, rows: Callable[[int], list[Batch]]) -> None:
        if not self.config.neighbor_fraction:
            return
        fraction, random = self.config.neighbor_fraction, F.normalize(self.weight[:, : self.width // 4], dim=-1)
        kinds = cooccurrence_vectors(rows(_SURVEYED), len(self.weight), self.width - random.shape[1]).to(random)
        self.weight.copy_(torch.cat([fraction**0.5 * kinds, (1 - fraction) ** 0.5 * random], 1))

    @property
    def table(self) -> Tensor:
        """(V, D) the vector of each token."""
        return self.width**0.5 * F.normalize(self.weight, dim=-1) if self.config.unit else self.weight

    def encode(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return F.embedding(tokens, self.table)

    def logits(self, z: Tensor) -> Tensor:
        """(…, D) vectors → (…, V) logits"""
        return F.linear(z, self.table, self.bias)

    def nll(self, z: Tensor, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return token_nll(self.logits(z), tokens)

    def decode(self, z: Tensor) -> Tensor:
        return self.logits(z).argmax(-1)

    def project(self, x: Tensor) -> Tensor:
        return self.table[torch.cdist(x.flatten(0, -2), self.table).argmin(-1)].view_as(x)


_SURVEYED = 2000  # number of rows of the corpus that are read
_CONTEXTS = 1000  # number of words, the most frequent ones, that count as context


def cooccurrence_vectors(batches: Sequence[Batch], words: int, width: int) -> Tensor:
    """(V, width) unit vectors, which are close to each other for words with the same left and right neighbors.

    They are principal directions of the positive pointwise mutual information, weighted by the square roots of the
    singular values (Levy & Goldberg 2014). Words that do not occur get random directions.
    """
    pairs = torch.cat([_bigrams(batch) for batch in batches], 1)
    frequent = torch.bincount(pairs.flatten(), minlength=words).argsort(descending=True, stable=True)[:_CONTEXTS]
    column = torch.full((words,), -1).index_copy(0, frequent, torch.arange(len(frequent)))
    counts = torch.zeros(words, 2 * len(frequent), dtype=torch.float64)
    for first, (context, word) in zip((0, len(frequent)), (pairs, pairs.flip(0)), strict=True):
        context_column = column[context]
        counted = context_column >= 0
        index = (word[counted], context_column[counted] + first)
        counts.index_put_(index, counts.new_ones(len(index[0])), accumulate=True)
    expected = counts.sum(1, keepdim=True) * counts.sum(0, keepdim=True) / counts.sum()
    ppmi = (counts / expected).nan_to_num(0.0).clamp(min=1.0).log()
    eigenvalues, directions = (part.flip(-1)[..., :width] for part in torch.linalg.eigh(ppmi.T @ ppmi))
    signs = directions.gather(0, directions.abs().argmax(0, keepdim=True)).sign()
    directions = directions * signs  # the sign of an eigenvector is arbitrary and differs between machines
    vectors = F.pad(ppmi @ directions / eigenvalues.clamp(min=1e-12) ** 0.25, (0, max(0, width - directions.shape[1])))
    return F.normalize(vectors + 1e-3 * randomness.normal_like(vectors, randomness.rng(0, words)), dim=-1).float()


def _bigrams(batch: Batch) -> Tensor:
    """(2, N) the pairs of adjacent tokens, without padding."""
    not_pad = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.pad is None else ~batch.pad
    both = not_pad[:, :-1] & not_pad[:, 1:]
    return torch.stack([batch.tokens[:, :-1][both], batch.tokens[:, 1:][both]])
