"""`redraft compare`: the command itself, killed and started again, on a page."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from redraft.apps import cli
from redraft.core import ClampedLogSnr, PiecewiseLogSnr, TanD
from redraft.evaluation import TrainingRecipe
from redraft.evaluation.comparison.measurement import _NOISIER, _best_end, _held_out_rows
from redraft.models import DiffusionLM
from redraft.training import presets, with_final_logsnr
from redraft.training.runs import variations

sys.path.insert(0, str(Path(__file__).parents[2] / "apps" / "reports"))
from test_page import Balance

TINY = ["--rows", "4", "--draws", "1", "--samples", "2", "--write-steps", "2", "4", "--quiet"]


@pytest.fixture(autouse=True)
def threads() -> None:
    torch.set_num_threads(1)


def compare(*words: str | Path) -> None:
    cli.main(["compare", *map(str, words), *TINY])


def test_two_presets_under_one_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two seeds of each; a row that is missing is measured again, the others are not, and the page shows all."""
    words = ("ar_tiny", "mdlm_tiny", "--steps", "2", "--seeds", "2", "--out", tmp_path, "--json")
    compare(*words)
    *found, path = map(json.loads, capsys.readouterr().out.splitlines())
    assert {each["method"]: (each["seeds"], each["steps"]) for each in found} == {
        "ar_tiny": ([0, 1], [2, 2]),
        "mdlm_tiny": ([0, 1], [2, 2]),
    }
    assert all(each["bits"]["between"] > 0 and each["bits"]["within"] > 0 for each in found)
    by_name = {each["method"]: each["written"] for each in found}
    assert (list(by_name["ar_tiny"]), list(by_name["mdlm_tiny"])) == (["own"], ["own", "2", "4"])
    assert [by_name["mdlm_tiny"][steps]["nfe"]["mean"] for steps in ("2", "4")] == [2.0, 4.0]
    text = Path(path["path"]).read_text("utf-8")
    Balance(text)  # sound HTML
    for heading in ("Held-out text", "Learning", "Generated texts", "Reproduce"):
        assert f"<h2>{heading}</h2>" in text
    assert f"compare ar_tiny mdlm_tiny --steps 2 --seeds 2 --out {tmp_path} --rows 4" in text
    assert f"train mdlm_tiny --steps 2 --seed 0 --out {tmp_path}/mdlm_tiny/seed-0-alone" in text
    assert "https://" not in text
    rows = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert [json.loads(row)["name"] for row in rows] == [
        f"{name} seed {seed}" for seed in (0, 1) for name in ("ar_tiny", "mdlm_tiny")
    ]
    weights = [file.stat().st_mtime_ns for file in sorted(tmp_path.glob("*/seed-*/step-*/model.safetensors"))]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows[:3]) + "\n" + rows[3][:40])  # as a kill leaves it
    compare(*words)
    assert (tmp_path / "rows.jsonl").read_text().splitlines()[:3] == rows[:3]
    again = json.loads((tmp_path / "rows.jsonl").read_text().splitlines()[3])
    assert again["bits_per_char"] == json.loads(rows[3])["bits_per_char"]
    assert weights == [file.stat().st_mtime_ns for file in sorted(tmp_path.glob("*/seed-*/step-*/model.safetensors"))]
    heading, right = "<h2>Quality against cost</h2>", (tmp_path / "rows.jsonl").read_text()
    assert heading not in text, "nothing is right: nothing to see"
    (tmp_path / "rows.jsonl").write_text(right.replace('"share": 0.0', '"share": 0.5'))
    compare(*words)
    assert heading in Path(path["path"]).read_text("utf-8")


RECIPES = """
from redraft import presets
from redraft.training.runs import variations
from dataclasses import replace

def other():
    return replace(variations._shrunken(presets.mdlm_tiny()), batch=2)
"""


def test_codecs_are_part_of_the_budget_and_runs_are_only_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    codec, latents = presets.cosmos_codec_tiny(), presets.cosmos_tiny()
    assert TrainingRecipe("cosmos_tiny", ("cosmos_codec_tiny", "cosmos_tiny"), (codec, latents)).budget_fractions == (
        1 / 3,
        2 / 3,
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(RECIPES)
    cli.main(["train", "mine.py:other", "--steps", "1", "--out", "runs/ready", "--quiet"])
    capsys.readouterr()
    compare("mine.py:other", "runs/ready", "gstar_tiny", "--steps", "6", "--seeds", "1", "--out", "c", "--json")
    *found, _ = map(json.loads, capsys.readouterr().out.splitlines())
    steps = {each["method"]: each["steps"] for each in found}
    assert steps == {"mine.py:other": [6], "runs/ready": [1], "gstar_tiny": [1]}
    row = next(row for row in map(json.loads, Path("c/rows.jsonl").read_text().splitlines()) if "gstar" in row["name"])
    assert [stage["steps"] for stage in row["stages"]] == [5, 1], "the model that it is put on, and the layer"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "there is nothing to compare; name presets or runs"),
        (["mdlm_tiny"], "a comparison needs a budget"),
        (["mdlm_tiny", "--steps", "2", "--minutes", "1"], "two budgets"),
        (["mdlm_tiny", "--minutes", "0"], "--minutes 0.0: it must be from 0.001"),
        (["mdlm_tiny", "mdlm_tiny", "--steps", "1"], "mdlm_tiny is named twice"),
        (["mdlm_tinny", "--steps", "1"], "there is no preset 'mdlm_tinny'; did you mean mdlm_tiny"),
        (["no/where", "--steps", "1"], "no/where is not a directory"),
        (["mdlm_tiny", "--steps", "1", "--seeds", "0"], "--seeds 0: it must be from 1"),
        (["mdlm_tiny", "--steps", "1", "--write-steps", "0"], "--write-steps 0: it must be from 1"),
        (["mdlm_tiny", "--steps", "1", "--out", __file__], "is a file; give a directory"),
        (["mdlm_tiny", "--steps", "1", "--judge", "story"], "--judge story: a judge needs exact likelihoods"),
        (["mdlm_tiny", "--steps", "1", "--data", "nowhere.txt"], "--data nowhere.txt is neither"),
        (["diffuseq_tiny", "--steps", "1", "--data", __file__], "has no pairs"),
    ],
)
def test_wrong_input(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["compare", *words])
    assert end.value.code == 2
    told = capsys.readouterr()
    assert said in told.err
    assert (told.out, len(told.err.splitlines())) == ("", 1)


def test_another_comparison_needs_another_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "settings.json").write_text('{"budget": "5 CPU minutes", "rows": 4, "draws": 1, "samples": 2}')
    with pytest.raises(SystemExit):
        compare("mdlm_tiny", "--steps", "1", "--out", tmp_path)
    assert (
        "holds another comparison (budget 5 CPU minutes, not 1 steps; write_steps None, not [2, 4])"
        in capsys.readouterr().err
    )


def test_a_diffusion_that_knows_nothing_ends_as_noisy_as_it_may() -> None:
    """Each level that an untrained denoiser passes costs bits and tells nothing; the search goes below its grid."""
    run = variations._with_schedule(variations._shrunken(presets.tencdm_tiny()), ClampedLogSnr(TanD(7.0), -12.0, 4.0))
    model = DiffusionLM(run.model, run.tokenizer).eval()
    rows = _held_out_rows(run, "valid", 2).batches
    assert _best_end(model, rows, 1, seed=0) in _NOISIER[1:]


def test_a_diffusion_ends_above_where_it_begins() -> None:
    """No level is tried that the noise never reaches, whatever the grid has."""
    run = variations._with_schedule(variations._shrunken(presets.diffusion_lm_tiny()), PiecewiseLogSnr((1.0, -1.5)))
    model = DiffusionLM(run.model, run.tokenizer).eval()
    assert _best_end(model, _held_out_rows(run, "valid", 2).batches, 1, seed=0) > -1.5
    with pytest.raises(ValueError, match=r"cannot end at a log-SNR of -2: it starts at -1\.5"):
        with_final_logsnr(model, -2.0)
