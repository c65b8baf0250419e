"""torch.compile sees the network as one graph: nothing in it depends on the values of a tensor."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from redraft.core import Context
from redraft.models import DiffusionLM, Full, TransformerConfig

Build = Callable[..., DiffusionLM]
LENGTH = 8


@pytest.mark.parametrize("way", ["whole rows", "queried positions", "training"])
def test_the_network_is_one_graph(way: str, build: Build, tiny: TransformerConfig) -> None:
    model = build(Full(), tiny)
    network, context, at = model.network, Context(), torch.tensor([3, 5, 9]) if way == "queried positions" else None
    z = torch.zeros(2, LENGTH, dtype=torch.int64)

    def run(z: Tensor) -> Tensor:
        return network.logits(network(z, None, context, at))

    torch._dynamo.reset()
    with torch.set_grad_enabled(way == "training"):
        eager, graphs = run(z), torch._dynamo.explain(run)(z)
        compiled = torch.compile(run, backend="aot_eager", fullgraph=True)(z)
        assert graphs.graph_count == 1, graphs.break_reasons
        assert torch.allclose(compiled, eager, atol=1e-5)
        if way == "training":
            expected = torch.autograd.grad(eager.square().sum(), network.embedding.weight)[0]
            found = torch.autograd.grad(compiled.square().sum(), network.embedding.weight)[0]
            assert torch.allclose(found, expected, atol=1e-4)
    torch._dynamo.reset()
