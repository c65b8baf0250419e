"""Rules in one call: the arguments of generate and infill, from Python and from the shell."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import redraft
from redraft.write import ArgumentError, Generation
from tests.write.test_generate import MODEL, model_of


def test_generate_obeys_a_pattern_and_words() -> None:
    record = redraft.generate(
        MODEL, ["the cat", "a"], max_new_tokens=6, n=4, pattern="[a-z ]*", required="mat", banned=["on"], steps=3
    )
    for text in record:
        assert re.fullmatch("[a-z ]*", text.new)
        assert "mat" in text.new.split()
        assert "on" not in text.new.split()
    assert record.exactness == "steps"
    assert record.to_json()[0]["exactness"] == "steps"
    assert redraft.generate(MODEL, max_new_tokens=4, pattern=".*", sampler="confidence").exactness == "matches"
    assert redraft.generate(MODEL, max_new_tokens=4).exactness == "free"


def test_infill_obeys_in_every_hole() -> None:
    record = redraft.infill(MODEL, "the [[2]] sat on [[1]].", n=6, pattern="(big |)(cat|mat)", steps=2)
    assert all(re.fullmatch(r"the big (cat|mat) sat on (cat|mat)\.", text) for text in record.texts)


def test_a_rule_and_a_batch_do_not_mix_rows() -> None:
    both = redraft.generate(MODEL, ["the", "a"], max_new_tokens=5, pattern="(cat|mat| )*", seed=3).texts
    assert both == [
        redraft.generate(MODEL, p, max_new_tokens=5, pattern="(cat|mat| )*", seed=3).texts[0] for p in ("the", "a")
    ]


def test_prompts_have_rules_of_their_own() -> None:
    prompts, patterns = ["the", "a", "the", "big"], ["cat( on)*", "mat( a)*", None, "cat( on)*"]
    record = redraft.generate(MODEL, prompts, max_new_tokens=4, n=3, pattern=patterns, seed=5)
    for text in record:
        pattern = patterns[text.row // 3]
        assert pattern is None or re.fullmatch(pattern, text.new.strip())
    assert record.exactness == "steps"
    alone = redraft.generate(MODEL, "a", max_new_tokens=4, n=3, pattern=patterns[1], seed=5)
    assert record.texts[3:6] == alone.texts  # whatever the others obey
    free = redraft.generate(MODEL, "big", max_new_tokens=4, pattern=[None], seed=5)
    assert free.texts == redraft.generate(MODEL, "big", max_new_tokens=4, seed=5).texts


def test_holes_have_rules_of_their_own() -> None:
    template = "the [[2]][[1]] sat on [[1]]."
    record = redraft.infill(MODEL, template, n=5, pattern=["big (cat|mat)", "on|a", "mat"], steps=2)
    assert all(re.fullmatch(r"the big (cat|mat) (on|a) sat on mat\.", text) for text in record.texts)
    some = redraft.infill(MODEL, "the [[1]] sat on [[1]].", n=5, pattern=[None, "mat"], seed=2)
    assert all(text.endswith("on mat.") for text in some.texts)
    both = redraft.infill(
        MODEL, ["the [[1]] sat on [[1]].", "a [[1]]."], pattern=[["cat", "mat"], ["big"]], banned=["the"]
    )
    assert both.texts == ["the cat sat on mat.", "a big."]
    with pytest.raises(ArgumentError, match="pattern=…: 2 patterns for 1 holes; give one for each"):
        redraft.infill(MODEL, "the [[1]].", pattern=["cat", "mat"])
    with pytest.raises(ArgumentError, match="pattern=…: 3 patterns for 2 templates"):
        redraft.infill(MODEL, ["the [[1]].", "a [[1]]."], pattern=[["cat"], ["mat"], ["a"]])


def test_a_hole_of_unknown_length_has_one_that_can_obey() -> None:
    record = redraft.infill(
        MODEL, "the [[*]] sat on [[1-4]].", pattern=["(big )?cat", "(a |the )big mat"], room=9, draws=1
    )
    assert re.fullmatch(r"the (big )?cat sat on (a|the) big mat\.", record.texts[0])
    with pytest.raises(ArgumentError, match="no text of 4 to 6 tokens obeys"):
        redraft.infill(MODEL, "the [[4-6]] sat.", pattern="(big )?cat")


@pytest.mark.parametrize(
    ("options", "argument", "line"),
    [
        ({"pattern": 7}, "pattern", "pattern=7: it must be a text, or a list of texts"),
        ({"pattern": ["a", 7]}, "pattern", "pattern=['a', 7]: it must be a text, or a list of texts"),
        ({"pattern": ["a", "b"]}, "pattern", "2 patterns for 1 prompts; give one for each"),
        ({"pattern": [["a", "b"]]}, "pattern", "lists of patterns within a list are for the holes of templates"),
        ({"schema": [1]}, "schema", "schema=[1]: it must be a text"),
        ({"schema": "[1]"}, "schema", "give an object such as"),
        ({"schema": {"type": {1}}}, "schema", "it is not JSON"),
        ({"banned": [""]}, "banned", "give a list of words, none of them empty"),
        ({"required": 5}, "required", "give a list of words"),
        ({"required": [None]}, "required", "give a list of words"),
    ],
)
def test_wrong_arguments_are_named(options: dict[str, Any], argument: str, line: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(line)) as error:
        Generation(**options).rules(1)
    assert error.value.argument == argument


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"pattern": "("}, "cannot be read"),
        ({"pattern": "zebra"}, "the model has no tokens that spell"),
        ({"pattern": "(cat ){9}cat"}, "has at least 10 tokens, but there is room for 4"),
        ({"required": ["cat"], "banned": ["cat"]}, "no text obeys all of"),
    ],
)
def test_contradictions_cost_no_network_call(
    options: dict[str, Any], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of()

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(model.network, "forward", refuse)
    with pytest.raises(ValueError, match=re.escape(line)):
        redraft.generate(model, max_new_tokens=4, **options)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "redraft.cli", *words], capture_output=True, text=True, check=False)


def test_the_shell_obeys_too(tmp_path: Path) -> None:
    redraft.export(tmp_path / "model", model_of())
    (tmp_path / "schema.json").write_text('{"type": "null"}')
    found = run(
        "generate", str(tmp_path / "model"), "--new", "5", "--pattern", "(cat|mat| )+", "--banned", "cat", "--json"
    )
    assert found.returncode == 0, found.stderr
    assert set(json.loads(found.stdout)["text"].split()) == {"mat"}
    each = ("--pattern", "big (cat|mat)", "--pattern", "mat")
    filled = run("infill", str(tmp_path / "model"), "the [[2]] sat on [[1]].", *each)
    assert re.fullmatch(r"the big (cat|mat) sat on mat\.\n", filled.stdout), filled.stderr
    many = run("generate", str(tmp_path / "model"), "the", "--new", "5", *each)
    assert many.returncode == 2
    assert many.stderr == "redraft: --pattern: 2 patterns for 1 prompts; give one for each\n"
    wrong = run("generate", str(tmp_path / "model"), "--new", "5", "--schema", str(tmp_path / "schema.json"))
    assert wrong.returncode == 2
    assert "no tokens that spell a text which obeys Json" in wrong.stderr
    missing = run("infill", str(tmp_path / "model"), "the [[1]].", "--schema", "nowhere.json")
    assert missing.returncode == 2
    assert "neither a JSON object nor a file that can be read" in missing.stderr
    assert "Traceback" not in wrong.stderr + missing.stderr
