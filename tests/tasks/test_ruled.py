"""Rules in one call: the arguments of generate and infill, from Python and from the shell."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from conftest import redraft_here
from hypothesis import given, settings, strategies as st

import redraft
from redraft.core import ByteTokenizer, Interpolating, train_bpe
from redraft.models import BlockCausal, Causal, Simplex
from redraft.tasks import ArgumentError, GenerationSettings
from redraft.tasks.engine import plan as writing
from tests.tasks.test_generate import MODEL, WORDS, model_of


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


def vectors() -> redraft.DiffusionLM:
    network = redraft.TransformerConfig(width=16, layers=1, heads=2, hidden=32, rotary=100.0, time=8)
    torch.manual_seed(0)
    config = redraft.DiffusionLMConfig(
        redraft.Gaussian(WORDS.vocab), network, redraft.models.PredictTokens(), codec=Simplex()
    )
    model = redraft.DiffusionLM(config, WORDS)
    for weight in model.parameters():  # far from the same everywhere, so that texts differ
        torch.nn.init.normal_(weight, 0, 0.5)
    return model


RULE = {"pattern": "[a-z ]*(cat|mat)[a-z ]*", "banned": ["on"]}
KINDS: dict[str, tuple[redraft.DiffusionLM, dict[str, Any]]] = {
    "full": (MODEL, {**RULE, "sampler": "confidence", "temperature": 1.0}),
    "each its own": (
        MODEL,
        {"pattern": ["(cat )*", None, "(a )*big", "mat.*"], "sampler": "threshold", "temperature": 1.0},
    ),
    "filtered": (MODEL, {**RULE, "top_p": 0.8, "repetition_penalty": 1.3, "sampler": "ancestral"}),
    "guided by the prompt": (MODEL, {"guidance": 2.0, "sampler": "any-order"}),
    "guided, away from another, and ruled": (MODEL, {**RULE, "guidance": 1.5, "negative_prompt": "a"}),
    "blocks": (model_of(BlockCausal(4)), RULE),
    "causal": (model_of(Causal(start=WORDS.vocab.size - 1)), RULE),
    "dual cache": (MODEL, {**RULE, "sampler": "any-order", "decode_block": 3, "cache": "dual"}),
    "uniform": (model_of(process=Interpolating(WORDS.vocab)), {**RULE, "sampler": "ancestral"}),
    "vectors": (vectors(), {**RULE, "sampler": redraft.decoding.Renoise(4)}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_ruled_or_guided_text_does_not_depend_on_its_company(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any batch, alone, streamed, on any number of threads."""
    model, more = KINDS[kind]
    prompts = ["a cat sat on", "the", "a big big cat", "the mat"]
    asked = {"max_new_tokens": 7, "n": 2, "seed": 3, **({"steps": 4} if kind != "causal" else {}), **more}
    together = redraft.generate(model, prompts, **asked)
    assert len(set(together.texts)) > 4
    streamed = [d.written for d in redraft.generate(model, prompts, stream=True, **asked) if d.written]
    assert tuple(streamed) == together.results
    own = more.get("pattern")
    for i, prompt in enumerate(prompts):
        alone = {**asked, "pattern": own[i]} if isinstance(own, list) else asked
        assert redraft.generate(model, prompt, **alone).texts == together.texts[2 * i : 2 * i + 2]
    threads = torch.get_num_threads()
    try:
        for size, count in ((1, 2), (3, 1)):
            torch.set_num_threads(count)
            monkeypatch.setattr(writing, "batch_size", lambda *_, size=size, **__: size)
            assert redraft.generate(model, prompts, **asked).texts == together.texts
    finally:
        torch.set_num_threads(threads)


SENSES: list[tuple[str, Any, str, str]] = [  # model, sampler, exactness, cache
    ("full", "ancestral", "steps", "none"),
    ("full", "first-hitting", "steps", "none"),
    ("full", "any-order", "steps", "none"),
    ("full", redraft.Unmask(3, redraft.decoding.LeftToRight(1.0)), "steps", "none"),
    ("full", redraft.Unmask(3, redraft.decoding.LeftToRight()), "matches", "none"),
    ("full", redraft.Unmask(3, redraft.decoding.AnyOrder(0.5)), "matches", "none"),
    *(("full", name, "matches", "none") for name in ("confidence", "required-first", "threshold", "klass", "revoke")),
    ("full", redraft.decoding.MultiBlock(redraft.decoding.AnyOrder(), 3), "steps", "none"),
    ("full", redraft.decoding.MultiBlock(decode_block=3), "matches", "none"),
    ("full", redraft.decoding.ParticleSampler(3, 2), "model", "none"),
    (
        "full",
        redraft.Blocks(redraft.Ancestral(3), decode_block=3, cache=redraft.decoding.DualCache()),
        "steps",
        "approximate",
    ),
    (
        "full",
        redraft.Blocks(redraft.Unmask(3), decode_block=3, cache=redraft.decoding.PrefixCache()),
        "matches",
        "approximate",
    ),
    ("blocks", "own", "steps", "exact"),
    ("causal", "own", "steps", "exact"),
    ("causal", "confidence", "matches", "exact"),
    ("uniform", "ancestral", "steps", "none"),
    ("vectors", redraft.decoding.Renoise(3), "matches", "none"),
]


@pytest.mark.parametrize(("kind", "sampler", "exactness", "cache"), SENSES, ids=lambda value: str(value)[:40])
def test_the_record_says_in_which_sense_it_obeys(kind: str, sampler: Any, exactness: str, cache: str) -> None:
    model = KINDS[kind][0]
    record = redraft.generate(model, "the", max_new_tokens=4, sampler=sampler, **RULE)
    assert (record.exactness, record.cache) == (exactness, cache)
    assert re.fullmatch("[a-z ]*(cat|mat)[a-z ]*", record[0].new.strip())
    if kind == "full" and sampler == "any-order":
        assert redraft.generate(model, "the", max_new_tokens=4, top_k=2, **RULE).exactness == "matches"
    free = redraft.generate(model, "the", max_new_tokens=4, sampler=sampler) if exactness != "model" else None
    assert free is None or (free.exactness, free.cache) == ("free", cache)


@settings(max_examples=10, deadline=None)
@given(
    words=st.lists(st.sampled_from(["a", "cat", "big", "the", "mat"]), min_size=1, max_size=4),
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    adjacent=st.booleans(),
    seed=st.integers(0, 100),
)
def test_any_holes_obey(words: list[str], sizes: list[int], adjacent: bool, seed: int) -> None:
    """Templates of any shape: given words stay, each hole matches its own pattern."""
    patterns = ["|".join([" ".join(words[:1] * size), " ".join(["sat"] * size)]) for size in sizes]
    between = " " if adjacent else f" {words[-1]} "
    template = "the " + between.join(f"[[{size}]]" for size in sizes) + " on."
    (text,) = redraft.infill(MODEL, template, pattern=patterns, steps=2, seed=seed)
    holes = between.join(f"({pattern})" for pattern in patterns)
    assert re.fullmatch(rf"the {holes} on\.", text.text), text.text


BYTES = model_of(tokenizer=ByteTokenizer(("bos", "eos", "pad", "mask")))
LETTERS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=4)


@settings(max_examples=10, deadline=None)
@given(options=st.lists(LETTERS, min_size=1, max_size=3), seed=st.integers(0, 100), count=st.integers(1, 3))
def test_any_characters_obey(options: list[str], seed: int, count: int) -> None:
    """Unicode of all kinds, escaped into a pattern, in alternatives and repeated."""
    pattern = f"({'|'.join(re.escape(option) for option in options)}){{1,{count}}}"
    most = max(len(option.encode()) for option in options) * count
    (text,) = redraft.generate(BYTES, "x", max_new_tokens=most, pattern=pattern, seed=seed, steps=3)
    assert re.fullmatch(pattern, text.text[1:]), (pattern, text.text)


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


def test_a_space_that_belongs_to_a_hole_is_not_part_of_the_rule() -> None:
    """Byte-level BPE writes it with the next word; the pattern is about the fill, whoever wrote the space."""
    text = "the cat sat on a mat. a big cat and a mat are at a cat a mat the mat the cat"
    model = model_of(tokenizer=train_bpe([text] * 30, 330))
    for hole in ("[[1]]", "[[2]]", "[[1-3]]"):
        for pattern in ("cat|mat", " ?(cat|mat)", "(big )?cat"):
            (found,) = redraft.infill(model, f"the {hole} sat", pattern=pattern, seed=len(pattern), draws=1, steps=2)
            assert re.fullmatch(pattern, found.fills[0])
            assert found.text == f"the {found.fills[0]} sat"
    (one,) = redraft.infill(model, "the [[1]] sat", pattern="cat|mat", steps=1)
    assert model.tokenizer is not None
    assert model.tokenizer.piece(one.tokens[1]).endswith(one.fills[0])


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
        GenerationSettings(**options).rules(1)
    assert error.value.argument == argument


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"pattern": "("}, "cannot be read"),
        ({"pattern": "zebra"}, "the vocabulary cannot spell"),
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

    for asked in (model, vectors()):
        monkeypatch.setattr(asked.network, "forward", refuse)
        with pytest.raises(ValueError, match=re.escape(line)):
            redraft.generate(asked, max_new_tokens=4, **options)
        with pytest.raises(ValueError, match=re.escape(line)):
            redraft.infill(asked, "the [[4]] mat.", **options)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return redraft_here(*words)


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
    assert "cannot spell any text that obeys Json" in wrong.stderr
    missing = run("infill", str(tmp_path / "model"), "the [[1]].", "--schema", "nowhere.json")
    assert missing.returncode == 2
    assert "neither a JSON object nor a readable file" in missing.stderr
    assert "Traceback" not in wrong.stderr + missing.stderr


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Tag:
    color: Color
    size: Literal[1, 2, 3]


def spelling_model() -> redraft.DiffusionLM:
    """Untrained, and knows every byte."""
    torch.manual_seed(0)
    config = redraft.DiffusionLMConfig(
        redraft.Masked(ByteTokenizer().vocab), redraft.TransformerConfig(width=8, layers=1, heads=1)
    )
    return redraft.DiffusionLM(config, ByteTokenizer())


def test_the_record_has_the_value_that_was_written() -> None:
    """Typed if a class was given; with holes one value for each; without a schema there is none."""
    model, schema = spelling_model(), {"enum": [{"a": [1, 2]}, 7, None]}
    for constraint in (Tag, redraft.Json(Tag), redraft.Json(Tag) & redraft.decoding.Length(20, 40)):
        for text in redraft.generate(model, "Tag: ", max_new_tokens=40, n=3, constraint=constraint, steps=4):
            assert isinstance(text.value, Tag)
            assert json.loads(text.new) == {"color": text.value.color.value, "size": text.value.size}
    for text in redraft.generate(model, max_new_tokens=12, n=8, schema=schema, steps=4):
        assert text.value in schema["enum"]
        assert json.loads(text.text) == text.value
    (filled,) = redraft.infill(model, "a=[[8]] b=[[1]]", schema={"enum": ["abcdef", 7]}, steps=2)
    assert filled.value == ("abcdef", 7)
    (mixed,) = redraft.infill(model, "a=[[8]] b=[[1]]", constraint=redraft.Json({"enum": ["abcdef", 7]}), steps=2)
    assert mixed.value == ("abcdef", 7)
    assert redraft.generate(model, max_new_tokens=2, pattern="[0-9]*", steps=1)[0].value is None
    with pytest.raises(ArgumentError, match="constraint=…: 3 is not a rule; give one, such as Regex"):
        redraft.generate(model, max_new_tokens=2, constraint=3)


def test_rules_of_all_kinds_combine() -> None:
    """Also schemas and lengths; if nothing obeys all of them, one line says so and names them."""
    model = spelling_model()
    record = redraft.generate(
        model, max_new_tokens=8, n=6, schema={"type": "string"}, banned="a", constraint=redraft.decoding.Length(4, 6)
    )
    assert all(4 <= len(text.tokens) <= 6 and text.value == json.loads(text.text) for text in record)
    with pytest.raises(ValueError, match=r"^no text obeys all of Regex\(pattern='cat'\), Banned.*; leave one out$"):
        redraft.generate(model, max_new_tokens=8, pattern="cat", banned="cat")
    with pytest.raises(ValueError, match=r"^no text obeys all of Json"):
        redraft.generate(model, max_new_tokens=8, schema={"const": "cat"}, banned="cat")


def test_a_note_names_the_properties_that_are_left_out(tmp_path: Path) -> None:
    """A schema that is too large in full is compiled in part, and the user is told."""
    inner: dict[str, Any] = {"type": "string", "maxLength": 60}
    for level in range(4):
        names = {f"{name}{level}": inner for name in "abcdef"}
        inner = {"type": "object", "properties": names}
    schema = json.dumps(inner)
    assert redraft.Json(schema).left_out
    record = redraft.generate(spelling_model(), max_new_tokens=6, schema=schema, steps=1)
    (note,) = record.notes
    assert note.startswith("schema=…: it is too large to write every property; some objects lack these: ")
    assert redraft.Json(schema).left_out[0] in note
