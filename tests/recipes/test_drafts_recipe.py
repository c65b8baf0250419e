"""The commands of docs/results/speculation.md that train and measure drafters, in small."""

from __future__ import annotations

import json
import re
import shlex
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import identical, speculation
from redraft import export
from redraft.apps import cli
from redraft.core import Masked
from redraft.models import Causal, DiffusionLM, DiffusionLMConfig, TransformerConfig
from redraft.training import fit, presets
from redraft.training.runs import variations

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "recipes"))

import drafts  # noqa: E402
import rows  # noqa: E402

PAGE = (ROOT / "docs" / "results" / "speculation.md").read_text("utf-8")
WHO, WHERE = ("Mara", "Ben", "Tilda", "Carl"), ("park", "beach", "pier", "box", "ball", "cake")
FEW = {"recipes/drafts.py": ["--texts", "40"], "adapt": ["--steps", "2", "--batch", "2", "--quiet"]}
FEWER = ["--rounds", "1", "--new", "6", "--lengths", "1", "2", "--out", "rows.jsonl"]


def commands() -> list[list[str]]:
    """Those of the section about stories."""
    block = re.search(r"^```\n(redraft train ar_tiny.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert block is not None
    return [shlex.split(line) for line in block[1].replace("\\\n", "").splitlines()]


def test_answers_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy answers to questions; a drafter learns from them, and without a network they are looked up."""
    monkeypatch.chdir(tmp_path)
    hub = presets.story_chat_tokenizer()
    process = Masked(hub.vocab)
    network = TransformerConfig(width=32, layers=1, heads=2, pattern=Causal())
    export(tmp_path / "chat", DiffusionLM(DiffusionLMConfig(process, network), hub))
    asked = [
        {"src" if i % 2 else "source": f"{name} the {place}"} for i, (name, place) in enumerate(product(WHO, WHERE))
    ]
    Path("questions.jsonl").write_text("\n".join(map(json.dumps, asked)) + "\n")
    drafts.main(["own", "chat", "--chat", "questions.jsonl", "--out", "own.jsonl", "--length", "32"])
    found = [json.loads(line) for line in Path("own.jsonl").read_text("utf-8").splitlines()]
    assert sorted(said["source"] for said in found) == sorted(next(iter(each.values())) for each in asked)
    adapt = "adapt chat --draft beside --draft-words 99 --chat --data own.jsonl --length 32 --out drafter"
    cli.main([*adapt.split(), "--steps", "2", "--batch", "2", "--quiet"])
    bench = "speculation chat --chat questions.jsonl --draft own.jsonl drafter --lengths 2 --rounds 2 --new 6"
    monkeypatch.setattr(sys, "argv", [*bench.split(), "--name", "chat", "--out", "rows.jsonl"])
    speculation.main()
    row = rows.Rows(Path("rows.jsonl")).read()["chat"]
    assert all(said["same"] == 2 for by_length in row["draft"].values() for said in by_length.values())
    assert row["draft"]["own.jsonl"]["2"]["acceptance"] > 0.5, "it wrote these very answers before"


def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train, own, beside, itself, bench = commands()
    assert train == ["redraft", "train", "ar_tiny", "&&", "redraft", "train", "mdlm_tiny"]
    for name in ("ar_tiny", "mdlm_tiny"):
        fit(replace(variations._shrunken(presets.PRESETS[name]()), steps=1, samples=0), Path("runs") / name, quiet=True)
    drafts.main([*own[2:], *FEW[own[1]]])
    texts = [json.loads(line)["text"] for line in Path("runs/own.jsonl").read_text("utf-8").splitlines()]
    assert len(texts) == 40
    for words in (beside, itself):
        cli.main([*words[1:], *FEW[words[1]]])
    assert bench[:3] == ["python", "-m", "bench.speculation"]
    monkeypatch.setattr(sys, "argv", [*bench[2:], *FEWER])
    speculation.main()
    row = rows.Rows(Path("rows.jsonl")).read()["stories, greedy"]
    assert set(row["draft"]) == {"beside", "itself", "lookup", "mdlm_tiny@1", "mdlm_tiny@2", "mdlm_tiny@4"}
    for by_length in row["draft"].values():
        assert set(by_length) == {"1", "2", "adaptive"}
        assert all(said["same"] == 1 for said in by_length.values()), "a draft changes no text"
    assert row["fastest plain"] == max(row["plain"].values())
    assert row["draft"]["itself"]["1"]["acceptance"] == 1, "the first token is the model's own"
    assert drafts.drafts_table(row).count("\n") == 1 + 2 * 3 + 4 * 2, "own drafters: all lengths; others: two"
    ElementTree.fromstring(drafts.drawn(row))


def test_the_sum_of_prompts_replaces_an_older_one(tmp_path: Path) -> None:
    file = tmp_path / "identical.jsonl"
    file.write_text('{"prompt": 0, "same": true}\n{"name": "a", "texts": 1}\n')
    identical.sum_up(file, {"name": "a", "texts": 2})
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        {"prompt": 0, "same": True},
        {"name": "a", "texts": 2},
    ]
