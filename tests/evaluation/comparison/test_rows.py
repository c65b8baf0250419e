"""Rows that say how they came to be, budgets that are kept, and the measures that all recipes share."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from redraft.decoding import Ancestral, Blocks, FirstHitting, SelfCorrection
from redraft.evaluation import Budget, RowFile, seconds_per_step, unseen_bits
from redraft.evaluation.comparison.budget import _with_budget_steps
from redraft.evaluation.comparison.comparison import _mean_over_seeds
from redraft.evaluation.comparison.measurement import _samplers_to_measure, _text_quality
from redraft.evaluation.comparison.row_file import _code_version
from redraft.models import DiffusionLM
from redraft.training import Run, presets
from redraft.training.runs import variations


@pytest.fixture
def run() -> Run:
    return replace(variations._shrunken(presets.mdlm_tiny()), batch=2)


def test_another_budget_needs_another_place(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redraft.evaluation.comparison.budget.seconds_per_step", lambda run, **_: 30.0)
    assert _with_budget_steps(run, tmp_path, Budget(minutes=1.0)).steps == 2
    with pytest.raises(ValueError, match=r"trained for 1\.0 minutes, not 5\.0; choose another --out"):
        _with_budget_steps(run, tmp_path, Budget(minutes=5.0))


def test_a_budget_is_in_minutes_or_in_steps() -> None:
    assert [Budget(steps=100).part(1 / 3).steps, Budget(steps=1).part(1 / 3).steps] == [33, 1]
    assert Budget(minutes=3.0).part(1 / 3) == Budget(minutes=1.0)
    for wrong in ({}, {"minutes": 1.0, "steps": 5}):
        with pytest.raises(ValueError, match="one of the two"):
            Budget(**wrong)  # type: ignore[arg-type]


def test_a_step_is_timed_without_what_is_done_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def fit(run: Run, out: str, *, device: str, quiet: bool) -> None:
        clock[0] += 10 + 0.5 * run.steps

    monkeypatch.setattr("redraft.evaluation.comparison.budget.fit", fit)
    monkeypatch.setattr("time.process_time", lambda: clock[0])
    assert seconds_per_step(run) == 0.5


@pytest.mark.parametrize("row", [{"share": 0.5, "stderr": 0.1}, {"64": {"bits_per_char": 1.0, "share_stderr": 0.1}}])
def test_an_error_names_its_figure(row: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="belongs to no figure in this row; name an error after its figure"):
        RowFile(tmp_path / "a.jsonl").add("x", lambda: row)
    assert not (tmp_path / "a.jsonl").exists()


def test_a_line_that_was_cut_off_is_written_again(tmp_path: Path) -> None:
    """A kill in the middle of a line costs that row alone; a line that is no row is named."""
    held = RowFile(tmp_path / "a.jsonl")
    held.file.write_text('{"name": "x", "share": 1.0}\n{"name": "y", "sha')
    assert list(held.read()) == ["x"]
    assert held.add("y", lambda: {"share": 0.5})
    assert not held.add("y", lambda: {"share": 0.25})
    assert [json.loads(line)["share"] for line in held.file.read_text().splitlines()] == [1.0, 0.5]
    held.file.write_text('{"name": "x"}\n{}\n')
    with pytest.raises(ValueError, match=r"a\.jsonl:2 is not a row"):
        held.read()


def test_rows_do_not_mark_the_commit_of_the_code_that_makes_them(tmp_path: Path) -> None:
    def git(*told: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        return subprocess.run(
            ["git", "-C", str(tmp_path), *who, *told], capture_output=True, text=True, check=True
        ).stdout

    home = tmp_path / "code"
    home.mkdir()
    (home / "made.py").write_text("made = 1")
    (tmp_path / "rows.jsonl").write_text("")
    git("init")
    assert _code_version(home).startswith("redraft ")  # lies in a repository that does not hold it
    git("add", ".")
    git("commit", "-m", "all")
    head = git("rev-parse", "HEAD")[:12]
    (tmp_path / "rows.jsonl").write_text("{}")
    assert _code_version(home) == head
    (home / "made.py").write_text("made = 2")
    assert _code_version(home) == f"{head}-dirty"


def test_errors_between_and_within_seeds() -> None:
    rows = [{"bits": 1.0, "bits_stderr": 0.5}, {"bits": 3.0, "bits_stderr": 0.25}]
    assert _mean_over_seeds(rows, "bits") == {"mean": 2.0, "between": pytest.approx(1.0), "within": 0.375}
    assert _mean_over_seeds(rows[:1], "bits")["between"] is None


def test_the_error_over_rows_is_that_of_a_mean(run: Run) -> None:
    """Of one story to a row the error is nearly that of a mean; against the truth the rows' own differences cancel."""
    found = unseen_bits(DiffusionLM(run.model, run.tokenizer).eval(), run, 16, 1)
    assert found["excess_stderr"] > 0
    assert found["bits_per_char_stderr"] > found["monte_carlo"] * 0.5
    assert found["bits_per_char"] - found["excess"] == pytest.approx(0.175, abs=0.03), "the truth"


def test_a_summary_is_right_if_it_is_the_true_one() -> None:
    """A story is right if the grammar can tell it; its summary follows from it."""
    run = presets.genie_summary_tiny()
    data: Any = run.data
    texts = [data.pair("test", index).target for index in range(4)]
    made: Any = SimpleNamespace(texts=["So " + texts[0], *texts[1:]])
    found = _text_quality(run, made)
    assert (found["share"], found["all_attributes"]) == (0.75, 0.75)
    assert 0.75 <= found["attributes"] < 1  # all words of the first are at other places


def test_steps_are_those_of_a_whole_text() -> None:
    """Blocks share them, corrections count, and what has no steps is written once."""
    models = {name: presets.PRESETS[name]() for name in ("ar_tiny", "bd3_tiny", "gidd_tiny", "mdlm_tiny")}
    length = presets.STORY_LENGTH
    bare: Any = SimpleNamespace(block=None)
    assert models["bd3_tiny"].sampler.with_total_steps(64, length, 8) == Blocks(Ancestral(8), stop=True)
    corrected = models["gidd_tiny"].sampler.with_total_steps(64, length, length)
    assert isinstance(corrected, SelfCorrection)
    assert (corrected.sampler, corrected.steps) == (Ancestral(43), 21)
    assert FirstHitting().with_total_steps(64, length, length) is None
    assert list(_samplers_to_measure(bare, models["mdlm_tiny"], (8, 16, 64))) == ["own", "8", "16"], "64 is its own"
    assert list(_samplers_to_measure(SimpleNamespace(block=1), models["ar_tiny"], (8, 16, 64))) == ["own"]  # type: ignore[arg-type]
