"""What older versions saved keeps loading. The code of 0.1.0, before its files moved, wrote tests/golden/before:

run/, export/      mdlm_tiny, shrunk, after two steps
configs.json.gz    every preset as a config
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import GOLDEN

from redraft.models.checkpoints import serialization as config
from redraft.training import TINY, Run, fit, load

BEFORE = GOLDEN / "before"
CONFIGS: dict[str, Any] = json.loads(gzip.decompress((BEFORE / "configs.json.gz").read_bytes()))


def test_runs_and_exports_load() -> None:
    trained, exported = load(BEFORE / "run"), load(BEFORE / "export")
    assert all(torch.equal(a, b) for a, b in zip(trained.parameters(), exported.parameters(), strict=True))
    assert trained.tokenizer is not None


@pytest.mark.parametrize("name", CONFIGS)
def test_configs_load(name: str) -> None:
    found = config.from_json(CONFIGS[name])
    assert isinstance(found, Run)
    assert config.from_json(config.to_json(found)) == found


CHANGED = {  # on purpose
    "sedd_uniform_tiny",  # it has UDLM's schedule
    "flex_tiny",  # masks arrive before words
    *("cosmos_tiny", "cosmos_codec_tiny"),  # smoothed less, cosine schedule
    *("tencdm_tiny", "tencdm_codec_tiny"),  # cosine schedule
    *("planner_tiny", "planner_codec_tiny"),  # less KL, no wrong words
}


@pytest.mark.parametrize("name", [name for name in TINY if name in CONFIGS and name not in CHANGED])  # those there were
def test_presets_are_what_they_were(name: str) -> None:
    assert config.from_json(CONFIGS[name]) == TINY[name]()


def test_a_run_goes_on_where_the_older_version_stopped(tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(BEFORE / "run", out)
    run = config.from_json(json.loads((out / "run.json").read_text())["run"])
    model = fit(run, out, quiet=True)  # all its steps are made: nothing is trained, nothing is refused
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), load(out).parameters(), strict=True))
