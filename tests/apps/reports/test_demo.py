"""The demo from end to end with a tiny network: what it leaves, that it resumes, and that its words are true."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from test_page import Balance

from redraft.apps.cli import VERBS
from redraft.apps.cli.arguments import (
    parse_verb,
)
from redraft.apps.reports import demo, findings, page as report
from redraft.apps.reports.demo import _next_commands
from redraft.apps.reports.findings import _cut_story, _CutStory, _DemoModel, _fill_story
from redraft.apps.reports.page import _judged_sample
from redraft.core import split_words
from redraft.decoding import Ancestral
from redraft.training import NATS_PER_BIT, STORY_LANGUAGE, Run, TrainingError, presets

KEYS = [
    "bits_per_char",
    "entropy_bits_per_char",
    "excess_bits_per_char",
    "ar_bits_per_char",
    "grammatical",
    "train_seconds",
    "tokens_per_second",
]
TIMES = {"train_seconds", "tokens_per_second", "ar_train_seconds"}
STEPS, BATCH = 8, 4


def small() -> Run:
    """The preset of the demo, with two layers of 32 and hardly any training."""
    base = _preset()
    network = replace(base.model.network, width=32, layers=2, heads=2)
    return replace(
        base,
        model=replace(base.model, network=network),
        sampler=Ancestral(8),
        steps=STEPS,
        batch=BATCH,
        log_every=3,
        save_every=4,
        eval_rows=8,
        samples=1,
    )


_preset = presets.mdlm_tiny


@contextmanager
def shrunk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presets, "mdlm_tiny", small)  # ar_tiny is made from it
        patch.setattr(findings, "_HELD_OUT", 6)
        patch.setattr(findings, "_WRITTEN", 8)
        yield


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a demo leaves."""
    path = tmp_path_factory.mktemp("demo") / "run"
    with shrunk():
        demo.demo(path, quiet=True)
    return path


def result(out: Path) -> dict[str, Any]:
    found = json.loads((out / "result.json").read_text())
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def trained(out: Path) -> _DemoModel:
    with shrunk():
        return _DemoModel.fit(demo._runs(0, 4.0)[0], out, quiet=True)


def test_the_result_has_its_keys_and_true_numbers(out: Path) -> None:
    found = result(out)
    assert list(found)[: len(KEYS)] == KEYS
    assert found["entropy_bits_per_char"] == pytest.approx(STORY_LANGUAGE.entropy_per_char() / NATS_PER_BIT)
    assert found["bits_per_char"] > found["entropy_bits_per_char"]
    assert found["ar_bits_per_char"] > found["entropy_bits_per_char"]
    stories = [findings.StoryCorpus().document("test", i) for i in range(6)]
    truth = -sum(map(STORY_LANGUAGE.log_prob, stories)) / sum(map(len, stories)) / NATS_PER_BIT
    assert found["excess_bits_per_char"] == pytest.approx(found["bits_per_char"] - truth, rel=1e-5)
    assert 0 <= found["grammatical"] <= 1
    tokens = STEPS * BATCH * small().framing.length
    assert found["train_seconds"] * found["tokens_per_second"] == pytest.approx(tokens)
    assert found["steps"] == STEPS


def test_the_time_is_what_the_log_says(out: Path) -> None:
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    speeds = [(line["step"], line["tokens_per_second"]) for line in lines if "tokens_per_second" in line]
    assert [step for step, _ in speeds] == [3, 6, 8]
    each = BATCH * small().framing.length
    expected = sum(each * steps / speed for steps, (_, speed) in zip((3, 3, 2), speeds, strict=True))
    assert result(out)["train_seconds"] == pytest.approx(expected)


def test_the_report_is_sound_and_has_the_numbers(out: Path) -> None:
    found, page = result(out), Balance((out / "report.html").read_text("utf-8"))
    keys = ("bits_per_char", "excess_bits_per_char", "excess_stderr", "ar_bits_per_char", "ar_excess_bits_per_char")
    assert all(f"{found[key]:.4f}" in page.text for key in keys)
    assert f"{found['bits_per_char'] - found['excess_bits_per_char']:.4f}" in page.text, "the truth of the same stories"
    assert f"{found['tokens_per_second']:,.0f} tokens per second" in page.text
    assert f"learned in {report._format_duration(found['train_seconds'])}" in page.text
    assert page.tags.count("article") == 6 + 2 + 3  # stories, filled gaps, moments of learning
    assert page.tags.count("polyline") == 4
    assert f"run {found['run']}" in page.text.lower()
    assert f"generate {out} --watch" in page.text


def test_the_picture_ends_with_a_text(out: Path) -> None:
    root = ElementTree.fromstring((out / "writing.svg").read_text("utf-8"))
    groups = root.findall("{http://www.w3.org/2000/svg}g")
    assert len(groups) == 6
    words = [text.text or "" for text in groups[-1].iter("{http://www.w3.org/2000/svg}text")][1:]
    assert words == list(split_words(root.attrib["aria-label"]))


def test_a_second_call_trains_nothing_and_says_the_same(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = tmp_path / "again"
    shutil.copytree(out, again)
    with shrunk():
        demo.demo(again, json=True, quiet=True)
    assert (again / "metrics.jsonl").read_bytes() == (out / "metrics.jsonl").read_bytes()
    assert (again / "result.json").read_bytes() == (out / "result.json").read_bytes(), "also the time that it took"
    captured = capsys.readouterr()
    assert captured.err == ""
    (line,) = captured.out.splitlines()
    assert json.loads(line) == result(out)


def test_an_interrupted_demo_goes_on(out: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(out, again)
    shutil.rmtree(again / f"step-{STEPS:08}")
    shutil.rmtree(again / "ar")
    for name in ("report.html", "result.json", "writing.svg"):
        (again / name).unlink()
    with shrunk():
        demo.demo(again, quiet=True)
    once, twice = ({k: v for k, v in result(path).items() if k not in TIMES} for path in (out, again))
    assert once == twice
    assert (again / "writing.svg").read_bytes() == (out / "writing.svg").read_bytes()


def test_minutes_scale_the_steps(out: Path) -> None:
    with shrunk():
        for minutes, steps in ((4.0, 8), (2.0, 4), (8.0, 16), (0.01, 1)):
            ours, baseline = demo._runs(3, minutes)
            assert (ours.steps, baseline.steps) == (steps, max(1, steps // 4))
            assert (ours.seed, baseline.seed) == (3, 3)
        with pytest.raises(ValueError, match=r"minutes=0; .*--minutes 4"):
            demo._runs(0, 0)
        with pytest.raises(TrainingError, match="another directory"):
            demo.demo(out, minutes=8, quiet=True)


def test_the_story_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the beginning: a training that is finished has no progress to tell."""
    out = tmp_path / "demo"
    with shrunk():
        demo.demo(out)
    captured = capsys.readouterr()
    told, found = captured.out, result(out)
    assert [told.index(part) for part in ("1/4", "2/4", "3/4", "4/4", "Done")] == sorted(
        told.index(part) for part in ("1/4", "2/4", "3/4", "4/4", "Done")
    )
    assert f"{found['bits_per_char']:.4f} bits per character" in told
    assert told.count("✗") + told.count("✓") == 6
    assert str(out / "report.html") in told.replace("\n", "")
    assert "training steps" in captured.err, "progress goes to stderr"


def test_gaps_are_filled_and_all_else_stays(trained: _DemoModel) -> None:
    for index in (0, 1, 2):
        gap, story = _cut_story(trained, index), trained.story(index)
        assert len(gap.hidden) == 2
        assert [int(n) for n in re.findall(r"\[\[(\d+)\]\]", gap.template)] == [len(split_words(h)) for h in gap.hidden]
        infill = _fill_story(trained, gap, seed=1)
        holes = iter(gap.hidden)
        runs = groupby(infill.tokens, lambda token: token.state == "given")
        restored = ["".join(t.text for t in run) if given else next(holes) for given, run in runs]
        assert split_words(" ".join(restored)) == split_words(story)
        assert "".join(t.text for t in infill.tokens) == infill.sample.text


def test_a_filled_text_ends_as_in_training(trained: _DemoModel) -> None:
    canvas = trained.completed(trained.model.compose(["One [[2]]."]))
    end = trained.run.model.vocab.eos
    assert canvas.z.shape == canvas.fixed.shape == (1, trained.run.framing.length)
    assert canvas.z[0, 4:].tolist() == [end] * (trained.run.framing.length - 4)
    assert canvas.fixed[0].tolist() == [True, False, False] + [True] * (trained.run.framing.length - 3)
    with pytest.raises(ValueError, match="do not fit the rows"):
        trained.completed(trained.model.compose(["One [[100]]."]))


def test_the_story_shown_is_one_of_those_written(out: Path, trained: _DemoModel) -> None:
    with shrunk():
        texts = findings.sample_canvases(trained.model, trained.run.sampler, trained.blank(8)).texts
    root = ElementTree.fromstring((out / "writing.svg").read_text("utf-8"))
    assert root.attrib["aria-label"] in texts


def test_the_truth_about_a_text() -> None:
    story = STORY_LANGUAGE.story(0, 0)
    assert _judged_sample(story.text, STORY_LANGUAGE) == report._Sample(
        story.text, story.log_prob / NATS_PER_BIT, len(story.text)
    )
    words = story.text.split(" ")
    wrong = _judged_sample(" ".join([*words[:7], "the", *words[7:]]), STORY_LANGUAGE)
    assert wrong.bits == -math.inf
    assert wrong.right == len(" ".join(words[:7]))
    unfinished = _judged_sample(" ".join(words[:7]), STORY_LANGUAGE)
    assert (unfinished.whole, unfinished.right) == (False, len(unfinished.text))
    assert _judged_sample("", STORY_LANGUAGE) == report._Sample("", -math.inf, 0)


def test_the_commands_to_go_on_are_ones_that_the_command_line_knows(out: Path, trained: _DemoModel) -> None:
    gap: _CutStory = _cut_story(trained, 6)
    verbs = []
    for command in _next_commands(out, gap.template):
        program, *words = shlex.split(command.line)
        assert Path(program).name == "redraft"
        parse_verb(VERBS, words)
        verbs.append(words[0])
    assert verbs == ["play", "generate", "infill", "eval", "demo", "train"]
