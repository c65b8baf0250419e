"""Weights & Biases and trackio get every number of metrics.jsonl; the packages are optional."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redraft.training import Run, fit, presets
from redraft.training.runs.metrics import read_metrics

TRACKERS = ("wandb", "trackio")


def small(**changes: Any) -> Run:
    fast = {"steps": 3, "batch": 2, "log_every": 1, "eval_every": 2, "eval_rows": 2, "samples": 0, "precision": "fp32"}
    return replace(presets.mdlm_tiny(), **{**fast, **changes})


def numbers(out: Path) -> list[tuple[int, dict[str, float]]]:
    return [(r["step"], {k: v for k, v in r.items() if isinstance(v, float)}) for r in read_metrics(out)]


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_gets_every_number(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[dict[str, Any]] = []
    logged: list[tuple[int | None, dict[str, float]]] = []

    class Tracked:
        def log(self, values: Mapping[str, float], step: int | None = None) -> None:
            logged.append((step, dict(values)))

        def finish(self) -> None:
            logged.append((None, {}))

    module = types.ModuleType(name)
    module.init = lambda **options: began.append(options) or Tracked()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)
    run, out = small(**{name: True}), tmp_path / "mine"
    fit(run, out, quiet=True)
    assert logged == [*numbers(out), (None, {})]
    assert len(logged) > 4
    (options,) = began
    assert (options["project"], options["name"], options["group"]) == ("redraft", "mine", run.digest)
    assert options["config"]["optimizer"]["lr"] == run.optimizer.lr
    assert run.digest == small().digest, "sinks change no result"


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_must_be_installed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=rf"{name}=True needs {name}: pip install 'redraft\[{name}\]'"):
        fit(small(**{name: True}), tmp_path / "out", quiet=True)
    assert not (tmp_path / "out").exists()


def test_weights_and_biases_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real package, where it is installed: without an account, everything is in the run's directory."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    fit(small(wandb=True), tmp_path / "out", quiet=True)
    wandb.teardown()  # its process has written everything when it ends
    (record,) = (tmp_path / "out").glob("wandb/offline-run-*/run-*.wandb")
    data = record.read_bytes()
    assert all(name.encode() in data for name in ("train_loss_bits_per_token", "valid_bits_per_char"))


def test_trackio_writes_to_its_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real package, where it is installed."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "board"))
    trackio = pytest.importorskip("trackio")
    fit(small(trackio=True), tmp_path / "out", quiet=True)
    (found,) = trackio.Api().runs("redraft")
    assert found.name == "out"
    assert any((tmp_path / "board").iterdir())
