"""Base classes of codecs, which map tokens to the vectors that Gaussian noise is added to, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor, nn

from redraft.core.batch import Batch
from redraft.core.randomness import Rng
from redraft.core.vocab import Vocab


class Codec(nn.Module, ABC):
    """An encoder x = encode(w) from (B, L) ids to (B, N, D) vectors, and a decoder p(w | z) for slightly noisy vectors.

    With a vector per token, N = L, and prompts and holes work as usual. A codec that compresses a text to `latents`
    vectors writes only whole texts, because each latent depends on all tokens. Subclasses are final.
    """

    width: int  # D, the width of the vectors
    latents: int | None = None  # N, the number of vectors per text; None for one vector per token
    parallel = True  # all tokens are decoded at once by `logits`; False if one after another
    frozen = False  # the codec was trained before by its own loss, and is frozen while the denoiser is trained

    @property
    def table(self) -> Tensor | None:
        """(V, D) vector of each token, if it does not depend on other tokens; None otherwise, and for the simplex."""
        return None

    @abstractmethod
    def encode(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        """(B, L) ids → (B, N, D) vectors"""

    @abstractmethod
    def nll(self, z: Tensor, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        """(B, L) nats −log p(w | z)"""

    @abstractmethod
    def decode(self, z: Tensor) -> Tensor:
        """(B, N, D) vectors → (B, L) most likely ids; for a compressing codec, L is the maximum length of its texts."""

    def logits(self, z: Tensor) -> Tensor:
        """(B, N, D) → (B, L, V) log-weights of tokens up to a constant, for codecs that decode in parallel."""
        raise ValueError(
            f"{type(self).__name__} decodes one token after another and has no logits for each position; use decode"
        )

    def fit_statistics(self, rows: Callable[[int], list[Batch]]) -> None:
        """Compute statistics of the corpus before training; most codecs need none.

        rows: returns the batches of this many rows of the corpus.
        """

    def position_mask(self, learn: Tensor) -> Tensor:
        """(B, L) bool of learned tokens → (B, N) bool of learned vectors; all of them if the text is compressed."""
        return learn if self.latents is None else learn.new_ones(len(learn), self.latents)

    def decoder_input(self, z: Tensor, signal: Tensor) -> Tensor:
        """The form of noisy z that the decoder reads, by default z itself; `signal` is the scale a of x in z."""
        return z

    def network_input(self, z: Tensor) -> Tensor:
        """The form of z that the network reads, by default z itself."""
        return z

    def project(self, x: Tensor) -> Tensor:
        """The nearest vectors of tokens (Diffusion-LM's clamping)."""
        raise ValueError(f"{type(self).__name__} has no table of vectors to clamp to; clamping needs Embedding")

    def losses(self, tokens: Tensor, pad: Tensor | None, *, rng: Rng) -> dict[str, Tensor]:
        """(B, L) loss terms by name, for a codec that is trained on its own."""
        raise ValueError(f"{type(self).__name__} is trained together with the denoiser; use Objective(…)")


class CodecConfig(ABC):
    """The configuration of a codec; every subclass is a final frozen dataclass."""

    names = False  # each token has a fixed vector, so a network may predict tokens (`PredictTokens`)

    @abstractmethod
    def vectors(self, vocab: Vocab) -> int:
        """D, the width of the vectors."""

    @abstractmethod
    def build(self, vocab: Vocab) -> Codec:
        """Build the codec for a vocabulary."""
