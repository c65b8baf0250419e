"""Structured output: every text under a schema is valid, with any tokenizer that can spell JSON, and is never cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from conftest import redraft_here

import redraft
from redraft.core import ByteTokenizer, CharTokenizer, Tokenizer, train_bpe

EXAMPLES = {
    file.stem: json.loads(file.read_text("utf-8"))
    for file in sorted((Path(__file__).parents[2] / "examples" / "structured").glob("*.json"))
}
PRINTABLE = "".join(map(chr, range(32, 127)))
TOKENIZERS: dict[str, Tokenizer] = {
    "bytes": ByteTokenizer(),
    "characters": CharTokenizer(PRINTABLE, ("eos", "mask")),
    "byte pairs": train_bpe(
        [PRINTABLE, '{"name": "get_weather", "arguments": {"city": "a"}} true 2024-01-01 ' * 9], 400
    ),
}


def model_of(tokenizer: Tokenizer) -> redraft.DiffusionLM:
    """Untrained, so that only the rule makes texts valid."""
    torch.manual_seed(0)
    network = redraft.TransformerConfig(width=8, layers=1, heads=1)
    return redraft.DiffusionLM(redraft.DiffusionLMConfig(redraft.Masked(tokenizer.vocab), network), tokenizer)


def is_valid(value: Any, schema: Any) -> bool:
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return bool(kind(schema, format_checker=kind.FORMAT_CHECKER).is_valid(value))


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_examples_are_obeyed_with_every_tokenizer(name: str) -> None:
    model = model_of(TOKENIZERS[name])
    for schema in EXAMPLES.values():
        for text in redraft.generate(model, schema=schema, max_new_tokens=220, n=2, steps=4):
            assert is_valid(text.value, schema), text.text


def test_a_text_is_never_cut() -> None:
    """With room for the shortest text that obeys, or a little more; with less, the error says how many are needed."""
    model, schema = model_of(TOKENIZERS["bytes"]), {"type": "array", "items": {"enum": ["ab", 1234]}, "minItems": 2}
    shortest = len('["ab","ab"]')
    for room in (shortest, shortest + 1, shortest + 9):
        for sampler in ("confidence", "ancestral"):
            record = redraft.generate(model, schema=schema, max_new_tokens=room, n=4, steps=3, sampler=sampler)
            assert all(is_valid(json.loads(text.text), schema) for text in record)
    with pytest.raises(ValueError, match=f"has at least {shortest} tokens, but there is room for {shortest - 1}"):
        redraft.generate(model, schema=schema, max_new_tokens=shortest - 1)


def test_the_command_of_the_guide(tmp_path: Path) -> None:
    redraft.export(tmp_path / "model", model_of(TOKENIZERS["bytes"]))
    file = Path(__file__).parents[2] / "examples" / "structured" / "tool_call.json"
    ways = ("--new", "120", "--n", "5", "--steps", "4", "--json")
    done = redraft_here("generate", str(tmp_path / "model"), "--schema", str(file), *ways)
    assert done.returncode == 0, done.stderr
    texts = [json.loads(line)["text"] for line in done.stdout.splitlines()]
    assert len(texts) == 5
    assert all(is_valid(json.loads(text), EXAMPLES["tool_call"]) for text in texts)
