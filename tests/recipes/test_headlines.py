"""The recipes of the field's headline results, as runs of a few steps."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import pytest

from redraft.core import WordTokenizer
from redraft.training import DataStats, presets
from redraft.training.data.corpora.stories import STORY_LANGUAGE

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "recipes"))

import learning  # noqa: E402
import long_texts  # noqa: E402
import pos  # noqa: E402
import repair  # noqa: E402
import rows  # noqa: E402
import scarce  # noqa: E402
from claim_parts import diversity  # noqa: E402
from continuous_parts import drawbacks  # noqa: E402
from draft_parts import acceptance  # noqa: E402
from method_parts import scale  # noqa: E402


@pytest.fixture(autouse=True)
def quick_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes half a minute, so that a minute has two."""
    monkeypatch.setattr("redraft.evaluation.comparison.budget.seconds_per_step", lambda run, **_: 30.0)


def test_repairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of row; untrained models repair nothing, all are trained for the same steps, and only once."""
    monkeypatch.setattr(repair, "broken", lambda count, all_of=repair.broken: all_of(count)[:2])
    only = ["gidd 0.05, 1 wrong", "gstar, 1 wrong", "detect gidd, 2 wrong", "drift mdlm, wrong"]
    repair.main(["--minutes", "1", "--out", str(tmp_path), "--results", str(tmp_path), "--only", *only])
    measured = rows.Rows(tmp_path / "repair.jsonl").read()
    assert list(measured) == only
    assert all(row["stages"][0]["steps"] == 2 for row in measured.values())
    assert measured["gstar, 1 wrong"]["stages"][-1]["steps"] == 1, "a fifth of the model's steps, rounded up"
    assert all(0 <= row["spoilt"] <= 1 and row["calls"] > 0 for row in measured.values() if "spoilt" in row)


def test_broken_stories_are_wrong_in_as_many_words() -> None:
    for count in repair.COUNTS:
        for story in repair.broken(count)[:50]:
            assert len(story.places) == count
            assert repair.is_right(story.right)
            assert not repair.is_right(story.wrong)


def test_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samplers of one training, and G-Star with an error head of its own."""
    monkeypatch.setattr(learning, "WRITTEN", 2)
    monkeypatch.setattr(learning, "CALLS", 4)
    only = [f"{name}; time seed 0, 1 min" for name in ("gibbs, 1 token", "gstar")]
    arguments = ["--minutes", "1", "--out", str(tmp_path), "--results", str(tmp_path), "--only", *only]
    learning.main(["writing", *arguments])
    measured = rows.Rows(tmp_path / "writing.jsonl").read()
    assert [len(row["stages"]) for row in measured.values()] == [2, 2]
    assert measured[only[1]]["nfe"] <= 4


def test_long_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three models in windows; what a real stream has between its ends is right, and cut stories do not count."""
    for name, value in {"WORDS": 300, "TEXTS": 1}.items():
        monkeypatch.setattr(long_texts, name, value)
    monkeypatch.setattr(long_texts, "STEPS", {"mdlm": (2,), "ssd": (2,), "ar": (1,)})
    monkeypatch.setattr(long_texts, "MINUTES", {"mdlm": 0.5, "ssd": 0.5, "ar": 0.5})
    long_texts.main(["--out", str(tmp_path), "--results", str(tmp_path)])
    measured = rows.Rows(tmp_path / "long_texts.jsonl").read()
    assert {name: row["steps"] for name, row in measured.items()} == {"mdlm 2": 1, "ssd 2": 1, "ar 1": 1}
    assert measured["ar 1"]["nfe"] >= 299
    words = WordTokenizer(STORY_LANGUAGE.words())
    ids = [words.vocab.eos, *words.encode(STORY_LANGUAGE.text(0, 0)), words.vocab.eos, *words.encode("the")]
    (story,) = long_texts.whole_stories(ids, words)
    assert long_texts.judged([story])["share"] == 1
    assert long_texts.judged([])["share"] == 0


def test_scarce_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sizes are judged by the same held-out text, and the benchmarks' text is what people write."""
    monkeypatch.setattr(scarce, "VOCABULARY", 300)
    monkeypatch.setattr(scarce, "LENGTH", 16)
    monkeypatch.setattr(scarce, "HELD_OUT", 2)
    monkeypatch.setattr(scarce, "MINUTES", {"ar": (1.0, 1.0), "mdlm": (1.0, 1.0), "sedd": (1.0, 1.0)})
    stories, benchmark = tmp_path / "stories.txt", tmp_path / "ptb.txt"
    stories.write_text("".join(f"{STORY_LANGUAGE.text(0, i)}\n" for i in range(60)), "utf-8")
    benchmark.write_text("no it was n't black monday " * 20, "utf-8")
    arguments = ["--stories", str(stories), "--sets", f"ptb={benchmark}", "--out", str(tmp_path / "runs")]
    only = ["ar, scarce, seed 0", "sedd, all, seed 0"]
    scarce.main([*arguments, "--results", str(tmp_path), "--only", *only])
    scarce_row, all_row = rows.Rows(tmp_path / "scarce.jsonl").read().values()
    assert scarce_row["train_tokens"] < all_row["train_tokens"] / 4
    assert scarce_row["curve"][-1][0] > 4 * all_row["curve"][-1][0], "the same steps are more passes"
    assert scarce_row["rows"] == all_row["rows"] == 2
    assert [*scarce_row["zero_shot"]] == ["ptb"]
    (text,) = scarce.other_texts([f"ptb={benchmark}"])["ptb"].documents("test", DataStats())
    assert text.startswith("no it wasn't black monday")
    with pytest.raises(ValueError, match="there is no file 'missing'"):
        scarce.other_texts(["ptb=missing"])


def test_parts_of_speech(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each method with its tagger; descent is tuned once, on other sentences, and asked of it afterwards."""
    known = {"Browns": "PROPN", "a": "DET", "the": "DET", "near": "ADP", "it": "PRON", "serving": "VERB"}
    known |= dict.fromkeys(("cheap", "new", "old", "quiet", "busy"), "ADJ") | dict.fromkeys(("pub", "inn"), "NOUN")
    monkeypatch.setattr(pos, "brill", lambda: known)
    for name, value in {"STEPS": 2, "RATES": (0.1, 0.2), "INNER": (1,), "HELD_OUT": 2, "TUNING": 1}.items():
        monkeypatch.setattr(pos, name, value)
    kinds = product(("cheap", "new", "old", "quiet", "busy"), ("pub", "inn"), ("cheap", "old"))
    sentences = [f"Browns is a {one} {what} near the {other} inn serving it ." for one, what, other in kinds] * 3
    for name in ("trainset", "devset", "testset_w_refs"):
        (tmp_path / f"{name}.csv").write_text("mr,ref\n" + "".join(f"name[Browns],{one}\n" for one in sentences))
    rows.trained(presets.ar_tiny(), tmp_path / "judge", 0.5)
    only = ["diffusion_lm, published", "fudge, published", "look-ahead, held out", "mdlm, held out", "people"]
    arguments = [
        "--e2e",
        str(tmp_path),
        "--judge",
        str(tmp_path / "judge"),
        "--out",
        str(tmp_path / "runs"),
        "--minutes",
        "0.1",
    ]
    pos.main([*arguments, "--results", str(tmp_path), "--only", *only])
    measured = rows.Rows(tmp_path / "pos.jsonl").read()
    assert {*measured} == {*only, "tuning"}
    assert len(measured["tuning"]["tried"]) == 2
    assert measured["tuning"]["best"] in [one[:2] for one in measured["tuning"]["tried"]]
    assert [measured[name]["targets"] for name in only] == [2, 2, 2, 2, 2]
    assert [len(row["stages"]) for name, row in measured.items() if name != "people"] == [2] * 5
    assert all(0 <= measured[name]["success"] <= 1 < measured[name]["perplexity"] for name in only[:4])
    table = {"the": "DET", "pub": "NOUN"}
    assert pos.hits("the pub the", ["DET", "NOUN"], table) == 2 / 3
    assert pos.hits("the the", ["DET", "NOUN"], table) == 1 / 2


def test_acceptance_by_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft is right up to a place at most as often as up to the one before."""
    monkeypatch.setattr(acceptance, "PROMPTS", 1)
    only = ["sure, 1 step, T = 0", "unsure, 2 steps, T = 1"]
    acceptance.main(["--minutes", "1", "--out", str(tmp_path), "--results", str(tmp_path), "--only", *only])
    measured = rows.Rows(tmp_path / "acceptance.jsonl").read()
    for row in measured.values():
        assert row["by_place"] == sorted(row["by_place"], reverse=True)
        assert 1 <= row["tokens_per_pass"] <= acceptance.LENGTH + 1
        assert len(row["stages"]) == 2
    assert acceptance.tables(tmp_path)["places"].count("–") == 14
    assert "1 step" in acceptance.pictures(tmp_path)["acceptance"]
    counts = acceptance.CountByPlace()
    counts.add(8, 3, 4)
    counts.add(5, 5, 6)  # the end of a row: a shorter draft says nothing about later places
    assert (counts.full, counts.right) == (1, [1, 1, 1, 0, 0, 0, 0, 0])


def test_drawbacks_of_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rounding term vectors come closer; levels and steps are of one training."""
    for name, value in {"WRITTEN": 2, "LEVELS": 3, "ROWS": 2, "COLLAPSING": 12, "PARTS": 2, "STEPS": (8,)}.items():
        monkeypatch.setattr(drawbacks, name, value)
    drawbacks.main(["--minutes", "1", "--out", str(tmp_path), "--results", str(tmp_path)])
    measured = rows.Rows(tmp_path / "drawbacks.jsonl").read()
    assert len(measured["levels"]["levels"]) == 3
    assert measured["8 steps"]["run"] == measured["levels"]["run"]
    apart = {name: row["of_the_start"] for name, row in measured.items() if name.startswith("collapse")}
    assert apart["collapse without rounding"] < apart["collapse with rounding"]
    assert len(measured["collapse with rounding"]["distances"]) == 3
    assert "| 8 | 0 ± 0 |" in drawbacks.tables(tmp_path)["drawbacks"]
    assert "read from x̂" in drawbacks.pictures(tmp_path)["levels"]


def test_diversity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held-out stories are diverse; the same text again and again is not."""
    monkeypatch.setattr(diversity, "EACH", 2)
    monkeypatch.setattr(diversity, "STEPS", 2)
    diversity.main(["--minutes", "1", "--out", str(tmp_path), "--results", str(tmp_path), "--only", "truth", "γ = 4"])
    measured = rows.Rows(tmp_path / "diversity.jsonl").read()
    assert measured["truth"]["heroes"] > 0.9
    assert measured["truth"]["texts"] == measured["γ = 4"]["texts"]
    same = {name: [STORY_LANGUAGE.text(0, index)] * 4 for index, name in enumerate(("lake", "park"))}
    assert diversity.diversity(same)["heroes"] == 1 / 4
    assert diversity.diversity(same)["self_bleu"] == pytest.approx(1.0)
    assert diversity.tables(tmp_path)["diversity"].count("–") == 15
    assert "different heroes" in diversity.pictures(tmp_path)["diversity"]


def test_scale(tmp_path: Path) -> None:
    """Sizes take equal steps; a power law has its exponent."""
    only = ["--only", "ar 32", "ar 64"]
    scale.main(["--steps", "2", "--out", str(tmp_path), "--results", str(tmp_path), *only])
    small, large = rows.Rows(tmp_path / "scale.jsonl").read().values()
    assert small["parameters"] < large["parameters"]
    assert [len(row["curve"]) for row in (small, large)] == [2, 2]
    assert scale.slope([(1, 8.0), (2, 4.0), (4, 2.0)]) == pytest.approx(-1)
    assert scale.tables(tmp_path)["scale"].splitlines()[2].count("–") == 3
    assert "causal" in scale.pictures(tmp_path)["scale"]
