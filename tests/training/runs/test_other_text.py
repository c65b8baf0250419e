"""`run.on`: data, tokenizer, framing and positions change together, in Python as in the shell; what cannot be learned
is refused before anything is timed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from redraft import presets
from redraft.core import ByteTokenizer, CharTokenizer, HubTokenizer, WordTokenizer
from redraft.training import DocumentRows, PackedRows, StoryCorpus, TextFiles, fit, load
from tests.conftest import Say, redraft_here

TINY = ("--steps", 1, "--batch", 2, "--eval-rows", 1, "--samples", 0, "--quiet", "--precision", "fp32")


@pytest.fixture
def cats(tmp_path: Path) -> Path:
    file = tmp_path / "cats.txt"
    file.write_text("\n\n".join(f"The cat number {i} sat on a mat and ate {i % 7} fish." for i in range(200)))
    return file


def test_everything_that_depends_on_the_text_changes_together(cats: Path) -> None:
    base = presets.mdlm_tiny()
    run = base.on(cats)
    assert run.data == TextFiles((str(cats),))
    assert isinstance(run.tokenizer, HubTokenizer)
    assert run.model.vocab == run.tokenizer.vocab
    assert run.framing == PackedRows(base.framing.length)
    assert run.model.network.rotary is not None, "positions in packed rows say little"
    assert isinstance(base.on([cats], "chars", 32).tokenizer, CharTokenizer)
    assert base.on(TextFiles((str(cats),)), ByteTokenizer(), 32).framing.length == 32
    assert isinstance(base.on(cats, "words:50").tokenizer, WordTokenizer)
    back = run.on("stories")
    assert back.data == StoryCorpus()
    assert isinstance(back.framing, DocumentRows)
    assert back.tokenizer == run.tokenizer, "byte pairs spell every text"


def test_a_tokenizer_that_spells_the_text_is_kept(tmp_path: Path, cats: Path) -> None:
    base, stories = presets.mdlm_tiny(), tmp_path / "stories.txt"
    stories.write_text("\n\n".join(StoryCorpus().document("train", i) for i in range(40)))
    assert base.on("stories") == base
    assert base.on(stories).tokenizer == base.tokenizer
    assert set("The cat.") < set(base.with_tokenizer(CharTokenizer("ab ")).on(cats).tokenizer.letters)


def test_shell_and_python_make_the_same_run(say: Say, tmp_path: Path, cats: Path) -> None:
    say("train", "mdlm_tiny", "--data", cats, "--length", 16, *TINY, "--out", tmp_path / "shell")
    run = presets.mdlm_tiny().on(cats, length=16)
    settings = {"steps": 1, "batch": 2, "eval_rows": 1, "samples": 0, "precision": "fp32"}
    fit(replace(run, **settings), tmp_path / "python", quiet=True)  # type: ignore[arg-type]
    shell, python = (json.loads((tmp_path / name / "run.json").read_text()) for name in ("shell", "python"))
    assert shell["hash"] == python["hash"]


def test_a_name_is_no_corpus(cats: Path) -> None:
    with pytest.raises(ValueError, match=r"is a name, not a corpus; use run\.on\("):
        replace(presets.mdlm_tiny(), data=str(cats))  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [presets.mdlm_tiny, "mdlm_tiny"])
def test_a_preset_is_called(wrong: object, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"not a Run; give the run itself, such as presets\.mdlm_tiny\(\)"):
        fit(wrong, tmp_path / "run")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_texts_of_several_lines_are_set_apart(say: Say, tmp_path: Path, cats: Path) -> None:
    out = tmp_path / "lines"
    say("train", "mdlm_tiny", "--data", cats, "--tokenizer", "bytes", "--length", 16, *TINY, "--out", out)
    rule = "-" * 8
    apart = re.compile(rf"One\n..?\n{rule}\nOne\n..?\n", re.DOTALL)
    assert apart.fullmatch(say("infill", out, "One\n[[1]]x", "--n", 2, "--pattern", "[a-z]")[0])
    assert rule not in say("infill", out, "One [[1]]x", "--n", 2, "--pattern", "[a-z]")[0]


def test_unknown_words_are_not_learned(tmp_path: Path, cats: Path) -> None:
    """The words of the stories, on another text: nearly all would be the unknown one."""
    run = replace(presets.mdlm_tiny(), data=TextFiles((str(cats),)), framing=PackedRows(8))
    with pytest.raises(ValueError, match=r"\d\d% of the words of the text are not among the \d+ words"):
        fit(run, tmp_path / "run", quiet=True)


def test_too_little_text_is_said_before_anything_is_timed(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timed(*_: object, **__: object) -> None:
        raise AssertionError("the precision was timed first")

    monkeypatch.setattr("redraft.training.loop._choose_run_precision", timed)
    (tmp_path / "short.txt").write_text("One cat.")
    _, err = say("train", "mdlm_tiny", "--data", tmp_path / "short.txt", "--out", tmp_path / "run", code=2)
    assert "the training text has 3 tokens in 1 documents, which fill no row of 68; give more text" in err
    assert not (tmp_path / "run").exists()


# --- the best checkpoint ---


@pytest.fixture(scope="module")
def overfitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A causal model of letters on a text of a few lines, trained much too long; and what the command said."""
    folder = tmp_path_factory.mktemp("over")
    (folder / "a.txt").write_text("\n\n".join(f"{i * 7919 % 1000:03} {i * 104729 % 1000:03}" for i in range(60)))
    words = ("--data", folder / "a.txt", "--tokenizer", "chars", "--length", 16, "--steps", 120, "--batch", 16)
    small = ("--eval-every", 20, "--eval-rows", 4, "--samples", 0, "--precision", "fp32", "--save-every", 1000)
    fast = ("--optimizer.lr", 0.01, "--optimizer.ema", 0.5, "--model.network.layers", 1)
    said = redraft_here("train", "ar_tiny", *words, *small, *fast, "--out", folder / "run")
    assert said.returncode == 0, said.stderr
    return folder / "run", said.stderr


def test_a_model_that_overfits_is_told_and_its_best_checkpoint_is_used(overfitted: tuple[Path, str], say: Say) -> None:
    run, err = overfitted
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    bits = {r["step"]: r["valid_bits_per_char"] for r in records if "valid_bits_per_char" in r}
    best = min(bits, key=lambda step: bits[step])
    assert bits[120] > 1.01 * bits[best]
    said = f"held-out bits per character rose from {bits[best]:.3f} at step {best}"
    assert err.count(said) == 2, "while it trains, and at the end"
    kept = run / "best" / f"step-{best:08d}"
    assert f"{run} now stands for its best checkpoint, {kept}" in err
    assert {path.name for path in (run / "best").iterdir()} == {kept.name}
    assert f"using the best checkpoint, {kept}" in say("generate", run, "--max-new-tokens", 4)[1]
    assert f"step {best} of 120" in say("show", run)[0]
    (figure, *_) = map(json.loads, say("eval", run, "--samples", 0, "--json")[0].splitlines())
    whole, last = (load(path).state_dict() for path in (kept, run / "step-00000120"))
    assert figure
    loaded = load(run).state_dict()
    assert all(bool((loaded[name] == whole[name]).all()) for name in whole)
    assert any(bool((loaded[name] != last[name]).any()) for name in last)


def test_without_the_flag_only_the_last_is_there(overfitted: tuple[Path, str], say: Say, tmp_path: Path) -> None:
    data = overfitted[0].parent / "a.txt"
    words = ("--data", data, "--tokenizer", "chars", "--length", 16, *TINY[2:], "--steps", 4, "--eval-every", 1)
    say("train", "ar_tiny", *words, "--no-keep-best", "--out", tmp_path / "run")
    assert not (tmp_path / "run" / "best").exists()
