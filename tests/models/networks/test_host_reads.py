"""How often a step reads the values of tensors on the host: on a GPU each read waits for the device.

A ceiling may only fall. `torch` counts reads by torch on any device; `host` counts arrays and lists that the library
makes of tensors, which cost nothing on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from redraft.core import Batch, Canvas, Context, Masked, Vocab, ops, rng
from redraft.decoding import Ancestral, AnyOrder, Confidence, EntropyBound, Sampler, Unmask, final_canvas
from redraft.models import BlockCausal, Causal, DiffusionLM, DiffusionLMConfig, TransformerConfig
from redraft.training import Objective, TrainStep

MASK, LENGTH, ROWS, STEPS = 6, 16, 3, 8
NETWORKS: dict[str, dict[str, Any]] = {
    "positions": {"positions": LENGTH},
    "rotary": {"rotary": 10_000.0},
    "time": {"positions": LENGTH, "time": 8},
    "blocks": {"positions": LENGTH, "pattern": BlockCausal(4)},
    "causal": {"positions": LENGTH, "pattern": Causal()},
}
SAMPLERS: dict[str, tuple[Sampler, float]] = {  # `host` per network call
    "any-order": (Unmask(STEPS, AnyOrder()), 10),
    "confidence": (Unmask(STEPS, Confidence(1.0)), 14),
    "entropy-bound": (Unmask(None, EntropyBound(0.0, 1.0)), 15.1),
    "ancestral": (Ancestral(STEPS), 6.8),
}
_ATEN = torch.ops.aten
_READS = {_ATEN._local_scalar_dense, _ATEN.nonzero, _ATEN.equal, _ATEN.bincount, _ATEN._unique2, _ATEN.unique_dim}


class Reads(TorchDispatchMode):
    """Counts the reads inside the context."""

    def __init__(self) -> None:
        super().__init__()
        self.torch, self.host, self._patches = 0, 0, ExitStack()

    def __enter__(self) -> Reads:
        for owner, name in ((ops, "to_numpy"), (ops, "flat_positions"), (ops, "known_zero"), (Tensor, "tolist")):
            self._patches.enter_context(patch.object(owner, name, self._counted(getattr(owner, name))))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patches.close()

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            self.host += 1
            return function(*args)

        return run

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        masked = func.overloadpacket in (_ATEN.index, _ATEN.index_put) and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        self.torch += masked or func.overloadpacket in _READS
        return func(*args, **(kwargs or {}))


def network(name: str) -> DiffusionLM:
    torch.manual_seed(0)
    config = TransformerConfig(width=16, layers=2, heads=2, **NETWORKS[name])
    return DiffusionLM(DiffusionLMConfig(Masked(Vocab(MASK + 1, mask=MASK)), config))


def test_the_mode_counts() -> None:
    a = torch.tensor([1, 0])
    with Reads() as reads:
        bool(a.any()), a.nonzero(), a[a > 0], a.tolist(), ops.flat_positions(a > 0)
    assert (reads.torch, reads.host) == (3, 2)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_trunk_reads_nothing(name: str) -> None:
    model, level = network(name), torch.rand(ROWS, 1)
    z = torch.zeros(ROWS, LENGTH, dtype=torch.int64)
    with Reads() as reads, torch.no_grad():
        model.network(z, level)
        model.network(z[:1], level[:1], Context(), torch.tensor([3, 5]))
        model.network(z, level, Context(), torch.tensor([3, 5, 18, 35]))
    assert (reads.torch, reads.host) == (0, 0)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_training_step_reads_only_where_the_queries_are(name: str) -> None:
    model = network(name)
    step, batch = TrainStep(model, Objective()), Batch.of(torch.zeros(ROWS, LENGTH, dtype=torch.int64))
    step(batch, rng(0, ROWS))  # facts that are computed once
    with Reads() as reads:
        step(batch, rng(0, ROWS)).mean.backward()
    assert reads.torch == 0
    assert reads.host <= 6


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("rows", [1, ROWS])
def test_reads_of_a_sampling_step(name: str, rows: int) -> None:
    (sampler, most), model = SAMPLERS[name], network("positions").eval()
    z = torch.zeros(rows, LENGTH, dtype=torch.int64)
    calls: list[int] = []
    canvas = Canvas(z, torch.zeros_like(z, dtype=torch.bool))
    with torch.no_grad(), Reads() as reads, model.network.count_rows(calls.append):
        final_canvas(sampler(model, model.process, canvas, rng=rng(0, rows)))
    assert reads.torch <= 2, "of facts that are computed once, before the first step"
    assert reads.host / len(calls) <= most
