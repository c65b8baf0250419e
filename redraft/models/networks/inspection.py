"""What training reads of networks: the output of each layer, and the matrices between hidden states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from redraft.models.networks.transformer import Transformer


@contextmanager
def record_layer_states(network: Transformer) -> Iterator[list[Tensor]]:
    """Record the output of each layer, (B, L, D) or (N, D) at query positions, in the list that the context yields.

    The output of the last layer is normed.
    """
    states: list[Tensor] = []
    last = len(network.blocks) - 1
    hooks = [
        block.register_forward_hook(
            lambda _, __, out, i=i: states.append(network.norm(out[0]) if i == last else out[0])
        )
        for i, block in enumerate(network.blocks)
    ]
    try:
        yield states
    finally:
        for hook in hooks:
            hook.remove()


@runtime_checkable
class _HasHiddenMatrices(Protocol):
    """A module that knows which of its matrices map hidden states to hidden states."""

    def hidden_matrices(self) -> list[nn.Parameter]: ...


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """The matrices between hidden states, in all networks of a model; Muon trains these."""
    return [p for module in model.modules() if isinstance(module, _HasHiddenMatrices) for p in module.hidden_matrices()]
