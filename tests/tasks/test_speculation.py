"""A drafter for a causal model: the text stays as it is, the record tells what was accepted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import table

import redraft
from redraft.core import Masked, WordTokenizer
from redraft.models import (
    AttentionPattern,
    Causal,
    DiffusionLM,
    DiffusionLMConfig,
    DraftConfig,
    Full,
    LoraConfig,
    SelfDrafter,
    Shift,
    SideDrafter,
    TransformerConfig,
)
from redraft.tasks import ArgumentError

WORDS = WordTokenizer(("a", "cat", "sat", "on", "the", "mat", ".", "big"), ("bos", "eos", "pad", "mask"))


def model_of(pattern: AttentionPattern, tokenizer: WordTokenizer = WORDS, **head: Any) -> DiffusionLM:
    network = TransformerConfig(width=16, layers=1, heads=2, hidden=32, pattern=pattern, rotary=100.0)
    torch.manual_seed(0)
    model = DiffusionLM(DiffusionLMConfig(Masked(tokenizer.vocab), network, **head), tokenizer)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, 0, 0.3)
    return model


@torch.no_grad()
def drafting(base: DiffusionLM, drafter: DraftConfig) -> DiffusionLM:
    """The same model with a drafter that has learned nothing."""
    own = LoraConfig(2, 4.0) if isinstance(drafter, SelfDrafter) else None
    config = replace(base.config, network=replace(base.config.network, lora=own)).with_part(drafter)
    model, old = DiffusionLM(config, base.tokenizer), dict(base.named_parameters())
    for name, p in model.named_parameters():
        p.copy_(old[name] if name in old else torch.full_like(p, 0.1))
    return model


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("models")
    redraft.export(folder / "causal", model_of(Causal()))
    redraft.export(folder / "shift", model_of(Causal(), head=Shift()))
    redraft.export(folder / "masked", model_of(Full()))
    redraft.export(folder / "beside", drafting(model_of(Causal()), SideDrafter(4)))
    redraft.export(folder / "itself", drafting(model_of(Causal(), head=Shift()), SelfDrafter(4)))
    redraft.export(folder / "other", model_of(Full(), WordTokenizer(("one", "two"), ("bos", "eos", "pad", "mask"))))
    return lambda name: folder / name


@pytest.mark.parametrize("target", ["causal", "shift"])
def test_the_text_does_not_change(saved: Callable[[str], Path], target: str) -> None:
    plain = redraft.generate(saved(target), ["the cat", "a"], max_new_tokens=12, n=2)
    for draft in ("lookup", str(saved("masked"))):
        record = redraft.generate(saved(target), ["the cat", "a"], max_new_tokens=12, n=2, draft=draft)
        assert record.texts == plain.texts
        assert record.cache == "exact"
        assert record.acceptance is not None
        assert record.tokens_per_round is not None
        assert record.to_json()[0]["tokens_per_pass"] == record.tokens_per_round >= 1
    assert plain.acceptance is None
    assert plain.nfe > 1
    assert record.nfe <= plain.nfe
    assert "draft_acceptance" not in plain.to_json()[0]


@pytest.mark.parametrize(("target", "drafter"), [("causal", "beside"), ("shift", "itself")])
def test_the_models_own_drafter(saved: Callable[[str], Path], target: str, drafter: str) -> None:
    """Named by its directory, or `self` for the model it belongs to; which writes the same without it."""
    options: dict[str, Any] = {"max_new_tokens": 12, "n": 2}
    plain = redraft.generate(saved(target), ["the cat", "a"], **options)
    beside = redraft.generate(saved(target), ["the cat", "a"], draft=str(saved(drafter)), **options)
    own = redraft.generate(saved(drafter), ["the cat", "a"], draft="self", **options)
    alone = redraft.generate(saved(drafter), ["the cat", "a"], **options)
    assert plain.texts == beside.texts == own.texts == alone.texts
    assert own.acceptance == beside.acceptance
    assert own.nfe <= plain.nfe
    assert own.acceptance, "it drafts, and some of it is right"


def test_the_own_drafter_in_int8(saved: Callable[[str], Path], say: Callable[..., tuple[str, str]]) -> None:
    words = ("--new", 10, "--weights", "int8", "--temperature", 0)
    alone, _ = say("generate", saved("causal"), "the cat", *words, "--sampler", "confidence")
    out, err = say("generate", saved("causal"), "the cat", *words, "--draft", saved("beside"))
    assert out == alone
    assert "drafted tokens accepted" in err


def test_texts_to_look_words_up_in(
    saved: Callable[[str], Path], say: Callable[..., tuple[str, str]], tmp_path: Path
) -> None:
    """What the model wrote before is drafted and accepted; other texts change nothing."""
    words = ("generate", saved("causal"), "the cat", "--new", 12, "--temperature", 0)
    plain, _ = say(*words, "--sampler", "confidence")
    own, other = tmp_path / "own.jsonl", tmp_path / "other.txt"
    own.write_text(json.dumps({"source": "the cat", "target": plain.strip()}) + "\n")
    other.write_text("a dog sat.\n\nthe dog ran.\n")
    found = json.loads(say(*words, "--draft", own, "--json")[0])
    assert found["text"] in plain
    assert found["draft_acceptance"] > 0.5
    assert say(*words, "--draft", other)[0] == plain


def test_streams_and_temperature(saved: Callable[[str], Path]) -> None:
    options: dict[str, Any] = {"max_new_tokens": 10, "draft": str(saved("masked")), "draft_steps": 2}
    greedy = redraft.generate(saved("causal"), "the", temperature=0, accept="block", **options)
    assert (
        greedy.texts
        == redraft.generate(saved("causal"), "the", temperature=0, sampler="confidence", max_new_tokens=10).texts
    )
    drafts = list(redraft.generate(saved("causal"), "the", stream=True, **options))
    assert drafts[-1].written is not None
    assert all(drafts[-1].committed.startswith(draft.committed) for draft in drafts)
    top = redraft.generate(saved("causal"), "the", top_k=2, **options)
    assert top.texts == redraft.generate(saved("causal"), "the", top_k=2, max_new_tokens=10).texts


def test_the_command(saved: Callable[[str], Path], say: Callable[..., tuple[str, str]]) -> None:
    words = ("generate", saved("causal"), "the cat", "--new", 12)
    plain, _ = say(*words)
    out, err = say(*words, "--draft", "lookup")
    assert out == plain
    assert "drafted tokens accepted" in err
    found = json.loads(say(*words, "--draft", saved("masked"), "--accept", "gumbel", "--json")[0])
    assert 0 <= found["draft_acceptance"] <= 1


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("masked", {"draft": "lookup"}, "is not a causal model"),
        ("causal", {"draft": "other"}, "its tokenizer differs"),
        ("causal", {"draft": "lookup", "accept": "token"}, "lookup drafts have none"),
        ("causal", {"draft": "self"}, "no drafter of its own; train one: redraft adapt"),
        ("shift", {"draft": "beside"}, "the model it was trained for"),
        ("masked", {"draft": "beside"}, "is not a causal model"),
        ("causal", {"draft": "lookup", "accept": "none"}, "choose from 'matched'"),
        ("causal", {"draft": "lookup", "sampler": "confidence"}, "cannot be combined with draft"),
        ("causal", {"draft": "lookup", "pattern": "[a-z]*"}, "rules about the text"),
        ("causal", {"draft": "lookup", "repetition_penalty": 1.2}, "cannot be combined with draft"),
        ("causal", {"draft": "lookup", "draft_length": 0}, "from 1 to 1,024"),
    ],
)
def test_what_cannot_be_is_refused(
    saved: Callable[[str], Path], target: str, options: dict[str, Any], message: str
) -> None:
    if options["draft"] not in ("lookup", "self"):
        options = options | {"draft": str(saved(options["draft"]))}
    with pytest.raises(ArgumentError, match=message):
        redraft.generate(saved(target), "the", max_new_tokens=4, **options)


def test_a_drafter_that_is_not_there(saved: Callable[[str], Path], say: Callable[..., tuple[str, str]]) -> None:
    _, err = say("generate", saved("causal"), "the", "--new", 4, "--draft", "nowhere", code=2)
    assert "nowhere" in err
    assert err.count("\n") <= 2


WRONG = {
    "generate causal the --new 4 --draft @beside --accept none": "matched",
    "generate causal the --new 4 --draft other": "its tokenizer differs",
    "generate shift the --new 4 --draft @beside": "the model it was trained for",
    "generate causal the --new 4 --draft self": "no drafter of its own",
    "generate causal the --new 4 --draft lookup --accept block": "lookup drafts have none",
    "generate causal the --new 4 --draft empty.jsonl": "holds no text",
    "generate causal the --new 4 --draft nowhere.jsonl": "no such file",
    "generate causal the --new 4 --draft wrong.jsonl": "wrong.jsonl:1 is not",
    "generate causal the --new 4 --draft table.csv": "must end in .txt or .jsonl",
    "generate causal the --new 4 --draft some.txt --accept token": "lookup drafts have none",
    "adapt causal --draft self --draft-words 9 --data stories --out runs": "use it with --draft beside",
    "adapt causal --draft-words 9 --data stories --out runs": "give --draft",
    "adapt masked --draft beside --data stories --out runs": "needs no drafter",
    "adapt @beside --draft self --data stories --out runs": "already has an adapter or a drafter",
    "adapt causal --draft beside --lora 4 --data stories --out runs": "--lora adapts the model itself",
    "adapt causal --draft self --align 10 --lora 4 --data stories --out runs": "--align is for adapting to diffusion",
    "adapt causal --draft self --draft-length 0 --data stories --out runs": "must be at least 1",
    "adapt causal --temperature 0.2 --data stories --out runs": "give --draft",
    "adapt causal --draft self --temperature 0 --data stories --out runs": "temperature",
}


@table("command", WRONG)
def test_wrong_commands_end_in_one_line(
    saved: Callable[[str], Path], say: Callable[..., tuple[str, str]], command: str, tmp_path: Path
) -> None:
    known = {name: str(saved(name.strip("@"))) for name in ("causal", "shift", "masked", "@beside", "other")}
    files = {"empty.jsonl": "\n", "wrong.jsonl": '{"words": 1}\n', "table.csv": "a,b\n", "some.txt": "the cat\n"}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    words = [known.get(word, str(tmp_path / word) if word in (*files, "runs") else word) for word in command.split()]
    _, err = say(*words, code=2)
    assert WRONG[command] in err
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()
