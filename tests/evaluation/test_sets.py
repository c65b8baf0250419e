"""Several sets at once, as benchmarks have them, and texts judged by another model: by the command itself."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from redraft import fit
from redraft.apps import cli
from redraft.core import CharTokenizer
from redraft.training import DetokenizedCorpus, PackedRows, TextFiles, detokenize_text, detokenizer_for, presets
from redraft.training.runs import variations

PTB = " no it was n't black monday \n the N stock firms \\/ the buyer 's <unk> fell $ N billion \n"
WIKI = ' = = Plot = = \n He had a guest @-@ starring role , in " The Bill " ( 2 @,@ 000 ) ; it was Tom \'s . \n'


@pytest.mark.parametrize(
    ("rules", "text", "written"),
    [
        ("ptb", PTB.strip(), "no it wasn't black monday\nthe 1 stock firms / the buyer's ? fell $1 billion"),
        ("wikitext", WIKI.strip(), '== Plot ==\nHe had a guest-starring role, in "The Bill" (2,000); it was Tom\'s .'),
        ("lm1b", "He said : ' yes ' , she paid $ 5 . Why ?", "He said: 'yes', she paid $5. Why?"),
        ("lambada", " “ so ” he said \n", '" so " he said'),
    ],
)
def test_text_becomes_what_people_write(rules: str, text: str, written: str) -> None:
    assert detokenize_text(text, rules) == written


def test_rules_are_found_by_the_name_of_the_set() -> None:
    names = ("ptb", "wikitext2", "WikiText103", "lm1b", "mine")
    assert [detokenizer_for(name) for name in names] == ["ptb", "wikitext", "wikitext", "lm1b", None]
    with pytest.raises(ValueError, match="rules='x' is not known; use one of ptb,"):
        DetokenizedCorpus(TextFiles(("a.txt",)), "x")


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A model of letters and a causal judge, hardly trained."""
    (tmp_path / "ptb.txt").write_text(PTB * 20)
    (tmp_path / "wiki.txt").write_text(WIKI * 20)
    letters = CharTokenizer.collect([PTB, WIKI, "1-?"], ("eos", "pad", "mask"))
    files = str(tmp_path / "ptb.txt"), str(tmp_path / "wiki.txt")
    for name in ("mdlm_tiny", "ar_tiny"):
        run = variations._shrunken(presets.PRESETS[name]()).with_tokenizer(letters)
        run = replace(run, data=TextFiles(files, files, files), framing=PackedRows(32))
        fit(replace(run, steps=1, batch=2, eval_rows=1, samples=0), tmp_path / name, quiet=True)
    return tmp_path


def test_several_sets_and_a_judge(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each set by itself, with its rules; words are those of the detokenized text."""
    sets = f"ptb={models}/ptb.txt,wikitext2={models}/wiki.txt"
    words = ["--rows", "4", "--draws", "1", "--samples", "2", "--judge", str(models / "ar_tiny")]
    cli.main(["eval", str(models / "ar_tiny"), "--data", sets, f"mine={models}/ptb.txt", *words, "--json"])
    found = list(map(json.loads, capsys.readouterr().out.splitlines()))
    by_set = {(line.get("set"), line["name"]): line for line in found}
    assert [by_set[name, "perplexity"]["detokenized"] for name in ("ptb", "wikitext2", "mine")] == [
        "ptb",
        "wikitext",
        None,
    ]
    assert by_set["ptb", "bits_per_token"]["tokens_of"].startswith("CharTokenizer with ")
    letters, word = by_set["ptb", "perplexity"]["value"], by_set["ptb", "word_perplexity"]["value"]
    assert 4 < math.log(word) / math.log(letters) < 8, "letters of a word, the blank included"
    judged = {line["name"]: line for line in found if "judge" in line}
    assert judged["generative_perplexity"]["value"] > 1
    assert judged["generative_perplexity"]["judge_tokens"] >= 32
    assert judged["entropy_within_texts"]["unit"] == "nats"
    assert next(line for line in found if line["name"] == "seconds_per_text")["value"] > 0
    cli.main(["eval", str(models / "mdlm_tiny"), "--data", sets, "--rows", "2", "--draws", "1", "--samples", "0"])
    told = capsys.readouterr().out
    assert f"ptb: {models}/ptb.txt, detokenized by the rules of ptb; per token of the model's own CharTokenizer" in told
    assert told.count("word perplexity") == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data", "ptb="], "--data ptb=: each of several sets needs a name, as in ptb=path/to/test.txt"),
        (["--data", "ptb=a.txt", "b.txt"], "--data b.txt: each of several sets needs a name"),
        (["--data", "ptb=nowhere.txt", "--samples", "0"], "--data nowhere.txt is neither"),
        (["--judge", "{}/mdlm_tiny", "--rows", "1", "--samples", "1"], "a judge needs exact likelihoods"),
        (["--judge", "nowhere", "--samples", "0"], "--judge scores generated texts, but --samples is 0"),
    ],
)
def test_wrong_sets_and_judges(words: list[str], said: str, models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["eval", str(models / "mdlm_tiny"), *(word.format(models) for word in words)])
    assert end.value.code == 2
    assert said in capsys.readouterr().err
