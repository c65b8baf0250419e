"""The interface of an executor, and what it may read of a network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from torch import Tensor, nn

from redraft.core.canvas import Context
from redraft.models.networks.config import NetworkIO, TransformerConfig
from redraft.models.networks.forward_pass import ForwardPass, PassOutput, _EncodedSource, _TimeEmbeddings


class Network(Protocol):
    """The weights of a transformer, and how it embeds and projects."""

    config: TransformerConfig
    io: NetworkIO
    blocks: nn.ModuleList

    @property
    def norm(self) -> nn.Module:
        """The last norm."""

    @property
    def batch_invariant(self) -> bool:
        """Whether the output for a token is bit-identical, whatever else is in the batch."""

    def embed(self, tokens: Tensor, position: Tensor) -> Tensor:
        """Tokens at learnable positions of the same shape, or one that broadcasts → their embeddings (…, D)."""

    def embed_times(self, level: Tensor | None, label: Tensor | None) -> _TimeEmbeddings | None:
        """Noise levels and labels → their embeddings; None if the network does not see the time."""

    def encoded_source(self, context: Context, like: Tensor) -> _EncodedSource | None:
        """The encoder states that cross attention reads, for rows like these; None without cross attention."""

    def project(self, h: Tensor) -> Tensor:
        """(…, D) states → (…, V) logits."""

    def count_rows(self, count: Callable[[int], None]) -> AbstractContextManager[None]:
        """Call `count` with the number of rows of each pass while the context is open."""


class Executor(ABC):
    """Runs the passes of a network. A model is bound to one by `model.on(executor)`."""

    @abstractmethod
    def trunk(self, network: Network, forward_pass: ForwardPass) -> PassOutput:
        """Run all layers but the last norm."""

    def logits(self, network: Network, h: Tensor) -> Tensor:
        """(…, D) → (…, V): the output layer."""
        return network.project(h)

    def unpacked(self, each_run: Callable[[], None]) -> Executor | None:
        """The executor for passes of several requests, if they cannot be packed into one; None if they can.

        each_run: called after each run, for example to show that the process is alive.
        """
        return None

    def counting(self, network: Network, count: Callable[[int], None]) -> AbstractContextManager[None]:
        """Call `count` with the number of rows of each pass of the caller, while the context is open."""
        return network.count_rows(count)


def _embedded(network: Network, forward_pass: ForwardPass) -> Tensor:
    """(B, L, D) the embedded tokens."""
    positions = forward_pass.positions.embeddable(forward_pass.context.pad, network.config.positions)
    return network.embed(forward_pass.tokens, positions)
