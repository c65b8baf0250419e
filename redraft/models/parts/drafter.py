"""Drafters for speculative decoding: they draft a block of tokens in one pass from a causal network's hidden states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core.canvas import Context
from redraft.models.networks.kv_cache import KeyValueCache
from redraft.models.networks.linear import init_weights
from redraft.models.networks.transformer import Transformer
from redraft.models.parts.base import Part, WholeModel
from redraft.models.parts.config import PartConfig, WholeConfig


class DraftConfig(PartConfig):
    """The configuration of a drafter for a causal network."""

    name = "drafter"
    block: int  # maximum number of tokens in a draft
    bigram: int  # rank of the bigram logits, which depend on the previous drafted token; 0 for none

    def require(self, config: WholeConfig) -> None:
        if not config.network.pattern.causal:
            raise ValueError(
                "drafters are for causal networks, since others write several tokens per pass anyway; leave the "
                "drafter out"
            )


class DraftNetwork(Part, ABC):
    """A network that predicts the tokens after an anchor, the last given token.

    It has a hidden state for each drafted token, and bigram logits, which depend on the token before.
    """

    name = DraftConfig.name
    missing = "this model has no drafter; train one: redraft adapt DIR --draft beside --out …"
    target_tokens: ClassVar[int]  # tokens after the anchor that the causal network itself predicts in the same pass

    def __init__(self, config: DraftConfig, width: int, words: int, mask: int | None, vocab_size: int) -> None:
        super().__init__()
        self.block, self.words, self.mask = config.block, words, mask
        self.masks = nn.Parameter(torch.zeros(config.block, width))
        self.before = nn.Embedding(vocab_size, config.bigram) if config.bigram else None
        self.after = nn.Linear(config.bigram, words, bias=False) if config.bigram else None

    @torch.no_grad()
    def initialize(self) -> None:
        """Initialize the weights; the bigram logits start at zero."""
        self.masks.normal_(0, 0.02)
        if self.before is not None and self.after is not None:
            init_weights(self.before, 0.1)
            init_weights(self.after, 0)

    @abstractmethod
    def state(self, model: WholeModel) -> DraftState:
        """An empty state, for decoding one row."""

    @abstractmethod
    def block_states(self, network: Transformer, read: KeyValueCache, tokens: Tensor, anchors: Tensor) -> Tensor:
        """(B, A, block, D) the states after each anchor (A,), for training.

        State k of anchor a predicts the token at position a + 1 + `target_tokens` + k.

        read: the network's cache of the clean rows `tokens` (B, L).
        """

    def bigram_logits(self, previous: Tensor) -> Tensor | None:
        """(…,) ids → (…, words) to be added to the logits of the next tokens; None without bigram logits."""
        if self.before is None or self.after is None:
            return None
        return F.linear(self.before.weight[previous], self.after.weight)

    def logits(self, network: Transformer, states: Tensor) -> Tensor:
        """(…, D) states → (…, words) logits, by the output layer of the causal network; the mask is never drafted."""
        raw = self._project(network, states)
        if self.mask is None or self.mask >= self.words:
            return raw
        return raw.index_fill(-1, torch.tensor([self.mask], device=raw.device), -1e9)  # with −∞ the loss would be nan

    def _project(self, network: Transformer, states: Tensor) -> Tensor:
        return network.logits(states)[..., : self.words]


@dataclass(eq=False)
class DraftState(ABC):
    """What a model's drafter knows about one row; call `observe` after each pass of the causal model."""

    model: WholeModel = field(repr=False)

    @property
    def drafter(self) -> DraftNetwork:
        return self.model.part(DraftNetwork)

    def fresh(self) -> Self:
        """An empty state, for another row."""
        return type(self)(self.model)

    @property
    def target_tokens(self) -> int:
        """Number of tokens at the beginning of a draft that the causal model itself predicts."""
        return self.drafter.target_tokens

    @property
    def max_tokens(self) -> int:
        """Maximum number of tokens in a draft."""
        return self.drafter.block + self.drafter.target_tokens

    def observe(self, z: Tensor, context: Context) -> None:  # noqa: B027 - some drafters read only the cache
        """Take what the drafter needs of new tokens from the cache.

        z: (1, n) the text so far; the causal network has read all of it but the last token.
        """

    @abstractmethod
    def logits(self, z: Tensor, context: Context, count: int) -> Tensor | None:
        """(1, ≤ count, words) logits of the next tokens, each independent of the other drafted tokens.

        None if the causal network has not read the text up to the last token of z.
        """

    def bigram_logits(self, previous: Tensor) -> Tensor | None:
        """(1,) a drafted token → (1, words) to be added to the logits of the next; None without bigram logits."""
        with torch.no_grad():
            return self.drafter.bigram_logits(previous)


def predictor_states(read: KeyValueCache, length: int) -> Tensor:
    """(B, L, D) the state that predicts each token, from the cache of whole rows; 0 if no state predicts it."""
    assert read.outputs is not None
    states = read.outputs.states
    return states[:, :length] if read.start_columns else F.pad(states, (0, 0, 1, 0))[:, :length]


def _block_mask(anchors: Tensor, columns: Tensor, block: int, *, causal: bool) -> Tensor:
    """(M, columns + M) bool attention mask for the masks of all anchors' blocks.

    A mask attends to the text up to its anchor and to masks of its own block, only to earlier ones if causal.
    """
    index = torch.arange(len(anchors) * block, device=anchors.device)
    to_text = anchors[index // block][:, None] >= columns
    to_masks = index[:, None] // block == index // block
    return torch.cat([to_text, to_masks & (index[:, None] >= index) if causal else to_masks], 1)
