"""Codecs: tokens ↔ the vectors that Gaussian noise works on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor, nn

from redraft.core.batch import Batch
from redraft.core.randomness import Rng
from redraft.core.vocab import Vocab


class Codec(nn.Module, ABC):
    """x = encode(w), (B, L) ids → (B, N, D) vectors, and p(w | z) for vectors with little noise; subclasses are final.

    If each token has a vector of its own, N = L, and prompts and holes work as usual. A codec that compresses to
    `latents` vectors writes only whole texts: each latent depends on all tokens.
    """

    width: int  # D
    latents: int | None = None  # N; None: as many as tokens
    parallel = True  # False: tokens are decoded one after another, so `logits` cannot tell of them
    frozen = False  # True: trained before by its own loss, and left alone while the diffusion is trained

    @property
    def table(self) -> Tensor | None:
        """(V, D) if every token has one vector, whatever its neighbours; None otherwise, and for the simplex."""
        return None

    @abstractmethod
    def encode(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        """(B, L) ids → (B, N, D)"""

    @abstractmethod
    def nll(self, z: Tensor, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        """(B, L) nats −log p(w | z)"""

    @abstractmethod
    def decode(self, z: Tensor) -> Tensor:
        """(B, N, D) → (B, L) the likeliest ids; a codec that compresses gives as many as its longest texts have"""

    def logits(self, z: Tensor) -> Tensor:
        """(B, N, D) → (B, L, V) log-weights of tokens up to a constant, for codecs that decode in parallel."""
        raise ValueError(f"{type(self).__name__} decodes one token after another; there is no law of each by itself")

    def survey(self, rows: Callable[[int], list[Batch]]) -> None:
        """Looks at some rows of the corpus before training begins; most codecs do not need to."""

    def places(self, learn: Tensor) -> Tensor:
        """Which tokens are learnt, (B, L) bool → which places, (B, N): all of them if the text is compressed."""
        return learn if self.latents is None else learn.new_ones(len(learn), self.latents)

    def weighed(self, z: Tensor, signal: Tensor) -> Tensor:
        """The form of noisy z that the decoder reads: z itself by default. signal: the scale a of x in it"""
        return z

    def show(self, z: Tensor) -> Tensor:
        """The form of z that the network reads: z itself by default."""
        return z

    def project(self, x: Tensor) -> Tensor:
        """The nearest vectors that tokens have: Diffusion-LM's clamping."""
        raise ValueError(f"{type(self).__name__} has no table of vectors to clamp to; clamping needs Embedding")

    def losses(self, tokens: Tensor, pad: Tensor | None, *, rng: Rng) -> dict[str, Tensor]:
        """(B, L) nats and other costs by name, for a codec with its own training."""
        raise ValueError(f"{type(self).__name__} is trained together with the diffusion; use Objective(…)")


class CodecConfig(ABC):
    """A codec without its weights; every subclass is a final frozen dataclass."""

    names = False  # whether a token's vector is the same everywhere, so that a network may name tokens

    @abstractmethod
    def vectors(self, vocab: Vocab) -> int:
        """D: the width of its vectors."""

    @abstractmethod
    def build(self, vocab: Vocab) -> Codec: ...
