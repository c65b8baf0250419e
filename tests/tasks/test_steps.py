"""Rows being written: when each token came."""

from __future__ import annotations

from itertools import pairwise

import torch

from redraft.core import Canvas
from redraft.tasks.engine.trace import _TokenSteps


def test_steps_are_counted_per_row_over_its_own_changes() -> None:
    """As if canvas were compared with canvas, one by one; also when there are many."""
    torch.manual_seed(0)
    fixed = torch.zeros(3, 5, dtype=torch.bool)
    canvases = [torch.randint(0, 9, (3, 5))]
    for step in range(100):
        z = canvases[-1].clone()
        z[step % 2, torch.randint(0, 5, (2,))] = step % 9  # row 2 never changes
        canvases.append(z)
    for many in (1, 2, 33, 34, 101):
        steps, count, when = _TokenSteps(), torch.zeros(3, dtype=torch.int64), torch.zeros(3, 5, dtype=torch.int64)
        for z in canvases[:many]:
            steps.observe(Canvas(z, fixed), None)
        for before, after in pairwise(canvases[:many]):
            changed = before != after
            count += changed.any(-1)
            when = torch.where(changed, count[:, None], when)
        assert steps.steps is not None
        assert torch.equal(steps.steps, when)


def test_vectors_commit_no_single_token() -> None:
    steps = _TokenSteps()
    steps.observe(Canvas(torch.zeros(1, 2, 3), torch.zeros(1, 2, dtype=torch.bool)), None)
    assert steps.steps is None
