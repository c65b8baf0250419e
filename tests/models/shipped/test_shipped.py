"""The model that comes with the package: it answers without a directory, and its card tells the truth."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from conftest import redraft_here

import redraft
from redraft.core import split_words
from redraft.evaluation import grammar_score
from redraft.models import shipped
from redraft.training import STORY_LANGUAGE, describe_run

ROW = json.loads((Path(__file__).parents[3] / "recipes" / "results" / "shipped.jsonl").read_text())
FOLDER = Path(shipped.__file__).with_name(shipped.STORY)


def redraft_says(*words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return redraft_here(*words, given=given)


def test_the_card_names_the_run_and_its_figures() -> None:
    run, _ = describe_run(shipped.STORY)
    assert run is not None
    card = (FOLDER / "README.md").read_text()
    assert run.digest == ROW["run"]
    assert f"the run is {run.digest}" in card
    assert f"{ROW['excess']:.4f} ± {ROW['excess_stderr']:.4f}" in card
    assert f"{100 * ROW['grammatical']:.0f} %" in card
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 4e6


def test_its_stories_are_as_good_as_the_card_says() -> None:
    written = redraft.generate(shipped.STORY, n=64, seed=1)
    assert abs(grammar_score(written.texts, STORY_LANGUAGE).share - ROW["grammatical"]) < 0.2
    assert redraft.training.load(shipped.STORY).config == describe_run(shipped.STORY)[0].model  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (("generate",), None),
        (("generate", "One winter day,"), None),
        (("generate", "story", "One winter day,"), None),
        (("generate",), "One winter day,\n"),
        (("infill", "One winter day, [[1]] walked to the [[1]]."), None),
    ],
)
def test_no_directory_is_needed(words: tuple[str, ...], given: str | None) -> None:
    said = redraft_says(*words, given=given)
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("One ")
    assert set(split_words(said.stdout.strip())) <= set(STORY_LANGUAGE.words())


def test_choices_and_scores_need_none_either() -> None:
    chosen = redraft_says("choose", "One spring day, Anna felt [[?]] and walked", "--answers", "sad", "tired")
    assert chosen.stdout.count(" 0.") == 2, chosen.stderr
    assert "bits" in redraft_says("score", "One winter day, Anna walked to the garden.").stdout


def test_a_directory_of_yours_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shipped.shipped_folder(shipped.STORY) == FOLDER
    (tmp_path / shipped.STORY).mkdir()
    assert shipped.shipped_folder(shipped.STORY) is None


def test_a_mistyped_directory_is_no_prompt() -> None:
    said = redraft_says("generate", "runs/nowhere")
    assert (said.returncode, said.stdout) == (2, "")
    assert "is not a directory" in said.stderr
