"""Training in bf16, wherever it works at all, however slowly; its tolerances are its own."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import train_child as child
from conftest import TESTS
from torch import Tensor

from redraft.apps.cli.user_code import load_module
from redraft.core import Precision
from redraft.models import NetworkIO, Transformer, TransformerConfig
from redraft.training import (
    fit,
)
from redraft.training.optimizers import (
    _orthogonalize,
)

pytestmark = pytest.mark.usefixtures("bf16")
presets = load_module(TESTS / "training" / "presets" / "test_presets.py")
FAMILIES = "mdlm_tiny bd3_tiny ar_tiny sedd_tiny gidd_tiny flex_tiny flex_owt diffusion_lm_tiny ld4tg_tiny"


@pytest.mark.parametrize("name", FAMILIES.split())
def test_every_family_takes_a_step(name: str, tmp_path: Path) -> None:
    run = replace(presets.shrunken(presets.build(name, 24), tmp_path), precision="bf16")
    fit(run, tmp_path / "out", quiet=True)
    first, *_ = (json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines())
    assert first["precision"] == "bf16"
    assert first["gradient_norm"] > 0
    assert math.isfinite(first["gradient_norm"])


@pytest.mark.parametrize("counts", [False, True], ids=["expected", "counted"])
def test_gaps_are_near_those_of_float32(bf16: Precision, counts: bool) -> None:
    """The layer for gaps computes in fp32, on states and times that bf16 made."""
    torch.manual_seed(0)
    config = TransformerConfig(width=16, layers=2, heads=2, hidden=32, time=8, gaps=3, gap_counts=counts)
    network, z, t = Transformer(config, NetworkIO(7, 7)), torch.randint(0, 7, (3, 5)), torch.rand(3, 1)
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.1 * torch.randn(p.shape))
    exact = network.with_gaps(z, t)[1]
    with bf16.autocast(z.device):
        coarse = network.with_gaps(z, t)[1]
    assert coarse.dtype == torch.float32
    assert 0 < distance(coarse, exact) < 0.03
    coarse.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize("shape", [(16, 16), (48, 16), (3, 24, 8)])
def test_muon_in_bf16(shape: tuple[int, ...]) -> None:
    """Directions are kept to a few per cent, and their sizes are levelled as in fp32."""
    m = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 37
    coarse = _orthogonalize(m, torch.bfloat16)
    assert coarse.dtype == torch.bfloat16
    assert 0 < distance(coarse.float(), _orthogonalize(m)) < 0.1
    assert torch.linalg.svdvals(coarse.double()).max() < 1.35


def test_an_interrupted_training_ends_in_the_same_bits(tmp_path: Path) -> None:
    """Muon, dropout, parts of a batch and times too."""
    rich = {"micro_batches": 2, "muon": 0.02, "dropout": 0.1, "time": 8, "steps": 6, "precision": "bf16"}
    for name, more in (("whole", {}), ("halves", {"term": 3})):
        child.live({"out": str(tmp_path / name), "run": rich, **more})
    assert child.live({"out": str(tmp_path / "halves"), "run": rich}) == 0
    assert child.end(tmp_path / "whole") == child.end(tmp_path / "halves")


def distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).detach().norm() / b.detach().norm())
