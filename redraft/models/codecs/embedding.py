"""A learned vector for each token (Diffusion-LM, DiffuSeq, GENIE)."""

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
    """E: V → ℝ^D, learnt with the denoiser, and p(w | z) = softmax(E·z + b) (Li et al. 2022, eq. 2).

    With `unit` all vectors have the norm √D: then only directions are learnt, and no vector can shrink towards the
    others, as the squared error alone would make them (Difformer, CDCD).

    With `kinds` vectors start in two parts. Three quarters of the numbers have this share of the squared norm and
    encode a word's neighbours in the corpus, so words of one kind lie close together; the rest distinguishes them.
    Noise then hides first which word it was, and only much later its kind: sampling writes the skeleton first.
    """

    width: int = 16
    unit: bool = True
    kinds: float = 0.0  # 0: all vectors start at random
    names = True

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "width")
        if not 0 <= self.kinds < 1 or (self.kinds and not (self.unit and self.width >= 4)):
            raise ValueError(
                f"kinds={self.kinds}, width={self.width}, unit={self.unit}; what tells kinds is a share of the squared "
                f"norm (0 to below 1) of unit vectors of 4 numbers or more"
            )

    def vectors(self, vocab: Vocab) -> int:
        return self.width

    def build(self, vocab: Vocab) -> EmbeddingCodec:
        return EmbeddingCodec(self, vocab)


class EmbeddingCodec(Codec):
    def __init__(self, config: Embedding, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.width = config, config.width
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(vocab.size, config.width)))
        self.bias = nn.Parameter(torch.zeros(vocab.size))

    @torch.no_grad()
    def survey(self, rows: Callable[[int], list[Batch]]) -> None:
        if not self.config.kinds:
            return
        share, apart = self.config.kinds, F.normalize(self.weight[:, : self.width // 4], dim=-1)
        kinds = cooccurrence_vectors(rows(_SURVEYED), len(self.weight), self.width - apart.shape[1]).to(apart)
        self.weight.copy_(torch.cat([share**0.5 * kinds, (1 - share) ** 0.5 * apart], 1))

    @property
    def table(self) -> Tensor:
        """(V, D)"""
        return self.width**0.5 * F.normalize(self.weight, dim=-1) if self.config.unit else self.weight

    def encode(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return F.embedding(tokens, self.table)

    def logits(self, z: Tensor) -> Tensor:
        """(…, D) → (…, V)"""
        return F.linear(z, self.table, self.bias)

    def nll(self, z: Tensor, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return token_nll(self.logits(z), tokens)

    def decode(self, z: Tensor) -> Tensor:
        return self.logits(z).argmax(-1)

    def project(self, x: Tensor) -> Tensor:
        return self.table[torch.cdist(x.flatten(0, -2), self.table).argmin(-1)].view_as(x)


_SURVEYED = 2000  # rows of the corpus
_CONTEXTS = 1000  # words, the most frequent ones, that count as neighbours


def cooccurrence_vectors(batches: Sequence[Batch], words: int, width: int) -> Tensor:
    """(V, width) unit vectors, close to each other for words that have the same neighbours left and right.

    The main directions of positive pointwise mutual information, by the root of their singular values (Levy & Goldberg
    2014). A word that does not occur gets a random direction.
    """
    pairs = torch.cat([_beside(batch) for batch in batches], 1)
    frequent = torch.bincount(pairs.flatten(), minlength=words).argsort(descending=True, stable=True)[:_CONTEXTS]
    column = torch.full((words,), -1).index_copy(0, frequent, torch.arange(len(frequent)))
    counts = torch.zeros(words, 2 * len(frequent), dtype=torch.float64)
    for first, (context, word) in zip((0, len(frequent)), (pairs, pairs.flip(0)), strict=True):
        at = column[context]
        place = (word[at >= 0], at[at >= 0] + first)
        counts.index_put_(place, counts.new_ones(len(place[0])), accumulate=True)
    by_chance = counts.sum(1, keepdim=True) * counts.sum(0, keepdim=True) / counts.sum()
    ppmi = (counts / by_chance).nan_to_num(0.0).clamp(min=1.0).log()
    square, way = (part.flip(-1)[..., :width] for part in torch.linalg.eigh(ppmi.T @ ppmi))
    way = way * way.gather(0, way.abs().argmax(0, keepdim=True)).sign()  # eigenvectors have no sign; machines differ
    main = F.pad(ppmi @ way / square.clamp(min=1e-12) ** 0.25, (0, max(0, width - way.shape[1])))
    return F.normalize(main + 1e-3 * randomness.normal_like(main, randomness.rng(0, words)), dim=-1).float()


def _beside(batch: Batch) -> Tensor:
    """(2, N) tokens and those that follow them"""
    where = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.pad is None else ~batch.pad
    both = where[:, :-1] & where[:, 1:]
    return torch.stack([batch.tokens[:, :-1][both], batch.tokens[:, 1:][both]])
