"""How much work a decoding step is beside the network: tensor operations are counted, not seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from redraft.core import Canvas, rng
from redraft.decoding import AnyOrder, Confidence, ConfidenceThreshold, EntropyBound, Sampler, Unmask, final_canvas
from redraft.models import DiffusionLM, Full, TransformerConfig

Build = Callable[..., DiffusionLM]
MASK, LENGTH, STEPS = 6, 16, 8
MOST = 60  # operations per step; a view of a tensor for numpy is one of them


class Count(TorchDispatchMode):
    """Counts tensor operations, except those inside a module."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.found, self.calls, self._inside = 0, 0, False
        self._hooks = [
            network.register_forward_pre_hook(lambda *_: self._enter()),
            network.register_forward_hook(lambda *_: self._leave()),
        ]

    def _enter(self) -> None:
        self._inside, self.calls = True, self.calls + 1

    def _leave(self) -> None:
        self._inside = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found += not self._inside
        return func(*args, **(kwargs or {}))

    def __exit__(self, *error: Any) -> None:
        for hook in self._hooks:
            hook.remove()
        super().__exit__(*error)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize(
    "sampler",
    [
        Unmask(STEPS, AnyOrder()),
        Unmask(STEPS, Confidence(1.0)),
        Unmask(None, ConfidenceThreshold(1.1)),
        Unmask(None, EntropyBound(0.0, 1.0)),
    ],
    ids=lambda sampler: type(sampler.pick).__name__,
)
def test_a_step_is_few_operations(sampler: Sampler, rows: int, build: Build, tiny: TransformerConfig) -> None:
    """It was 160; each costs some microseconds, and the network of a tiny model about a millisecond."""
    model = build(Full(), replace(tiny, rotary=None, positions=LENGTH))
    canvas = Canvas(torch.zeros(rows, LENGTH, dtype=torch.int64), torch.zeros(rows, LENGTH, dtype=torch.bool))
    with Count(model.network) as count:
        done = final_canvas(sampler(model, model.process, canvas, rng=rng(0, rows)))
    assert count.calls >= STEPS
    assert count.found / count.calls < MOST
    assert not (done.z == MASK).any()
