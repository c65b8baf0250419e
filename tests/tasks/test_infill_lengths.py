"""Holes of a range and of any length, and given text kept byte for byte, whatever the tokenizer makes of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import pytest
import tokenizers
import torch
from hypothesis import given, settings, strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers
from torch import Tensor

import redraft
from redraft.core import CharTokenizer, HubTokenizer, Insertion, Masked, Process, Tokenizer, WordTokenizer, train_bpe
from redraft.core.text.boundaries import GivenTokens
from redraft.core.text.tokenizers import UNKNOWN
from redraft.models import Causal, DiffusionLM, DiffusionLMConfig, Head, Subs, TransformerConfig
from redraft.tasks import ArgumentError, Hole, Template, TextModel, infill
from redraft.tasks.engine.given_text import GivenText
from redraft.tasks.infilling.hole_length import _LengthSearch
from redraft.training import presets

LETTERS = "abcdeéößABC .,!\t\n"
PIECES = [*"abcdeo", "ss", *(f"##{c}" for c in "abcdeo"), "##ss", "bad", "##ed", ".", ",", "!", "ß", "##ß"]


@cache
def wordpiece() -> HubTokenizer:
    """Like BERT's: capitals, accents and the kind of white space are forgotten."""
    table = {piece: i for i, piece in enumerate(["[UNK]", *PIECES])}
    backend = tokenizers.Tokenizer(models.WordPiece(table, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens(["[CLS]", "[SEP]", "[PAD]", "[MASK]"])
    return HubTokenizer(backend.to_str(), "[CLS]", "[SEP]", "[PAD]", "[MASK]")


@cache
def bpe() -> HubTokenizer:
    return train_bpe(["the red kite and the blue kite, a day by the lake. "] * 4, 300)


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "bpe": bpe,
    "wordpiece": wordpiece,
    "words": lambda: WordTokenizer((*"abcde", "bad", ".", ",", "!"), ("bos", "eos", "pad", "mask")),
    "characters": lambda: CharTokenizer(LETTERS, ("eos", "mask")),
}


@cache
def model_of(name: str, inserting: bool = False) -> DiffusionLM:
    tokenizer = TOKENIZERS[name]()
    network = TransformerConfig(width=8, layers=1, heads=1, hidden=8)
    process = Insertion(tokenizer.vocab) if inserting else Masked(tokenizer.vocab)
    if inserting:
        network = replace(network, time=4, gaps=6)
    torch.manual_seed(0)
    return DiffusionLM(DiffusionLMConfig(process, network), tokenizer)


def parts_of(alphabet: str | None) -> st.SearchStrategy[list[str]]:
    characters = st.characters(codec="utf-8") if alphabet is None else st.sampled_from(alphabet)
    part = st.text(characters, max_size=8).filter(lambda text: "[" not in text and "]" not in text)
    return st.lists(part, min_size=2, max_size=4)


def kept(name: str, parts: list[str], holes: list[str], inserting: bool = False, seed: int = 0) -> None:
    """Every part stands in the text, byte for byte, with the fills between them; pieces add up to the text."""
    template = "".join(part + hole for part, hole in zip(parts, [*holes, ""], strict=True))
    (found,) = infill(model_of(name, inserting), template, seed=seed, steps=2, room=3, draws=1)
    filled = "".join(part + fill for part, fill in zip(parts, [*found.fills, ""], strict=True))
    assert found.text.encode() == filled.encode()
    assert "".join(found.pieces) == found.text or not found.tokens
    assert found.prompt == template


@pytest.mark.parametrize(
    ("name", "alphabet"), [("bpe", None), ("wordpiece", "abcdeöÖéABC .,!\t\n"), ("words", "abc .,\n")]
)
def test_given_text_is_kept(name: str, alphabet: str | None) -> None:
    """Random Unicode around holes of one to three tokens; unknown words are refused, never changed."""
    seen = 0

    @given(parts_of(alphabet), st.data())
    @settings(max_examples=80, deadline=None, derandomize=True)
    def check(parts: list[str], data: st.DataObject) -> None:
        nonlocal seen
        holes = [f"[[{data.draw(st.integers(1, 3))}]]" for _ in parts[1:]]
        if UNKNOWN in map(model_of(name).tokenizer.piece, model_of(name).tokenizer.encode(" ".join(parts))):  # type: ignore[union-attr]
            with pytest.raises(ValueError, match="does not know"):
                kept(name, parts, holes)
        else:
            kept(name, parts, holes, seed=data.draw(st.integers(0, 99)))
            seen += 1

    check()
    assert seen >= 20


@pytest.mark.parametrize("hole", ["[[*]]", "[[0-2]]"])
@pytest.mark.parametrize("name", ["bpe", "words"])
@pytest.mark.parametrize("inserting", [False, True])
def test_so_it_is_around_holes_of_any_length(name: str, hole: str, inserting: bool) -> None:
    for seed in range(3):
        kept(name, ["a  bad,", " c. ", "\ta b"], [hole, "[[1]]"], inserting, seed)
        kept(name, [" a ", "b\n"], [hole], inserting, seed)


def test_a_space_before_a_hole_is_left_to_it() -> None:
    """Byte-level BPE writes a space with its word; elsewhere the space is a token like any other."""
    for text, tail in (("the red ", " "), ("the red", "")):
        alone = GivenTokens.alone(bpe(), text, hole_after=True)
        assert (bpe().decode(alone.ids), alone.tail) == ("the red", tail)
    letters = TOKENIZERS["characters"]()
    assert GivenTokens.alone(letters, "a ", hole_after=True) == GivenTokens("", tuple(letters.encode("a ")), "")
    red, kite = bpe().encode("the red"), bpe().encode(" kite")
    verbatim = GivenText(
        bpe(),
        ("the red ", "!"),
        (GivenTokens("", tuple(red), " "), GivenTokens("", tuple(bpe().encode("!")), "")),
        (len(kite),),
    )
    ids, known = [*red, *kite, *bpe().encode("!")], [*[True] * len(red), *[False] * len(kite), True]
    assert verbatim.text(ids, known) == "the red kite!"
    assert verbatim.hole_texts(ids, known) == ("kite",)


def test_words_beside_each_other_get_a_space() -> None:
    """A template without spaces still gives words, and what was given stays."""
    words = TOKENIZERS["words"]()
    a, b, bad = (words.encode(text) for text in ("a", "b", "bad"))
    verbatim = GivenText(words, ("a", "b"), (GivenTokens("", tuple(a), ""), GivenTokens("", tuple(b), "")), (1,))
    assert verbatim.text([*a, *bad, *b], [True, False, True]) == "a bad b"
    assert verbatim.token_texts([*a, *bad, *b], [True, False, True]) == ("a", " bad ", "b")


# --- lengths ---


@pytest.fixture(scope="module")
def story_model() -> TextModel:
    run = presets.mdlm_tiny()
    torch.manual_seed(0)
    model = DiffusionLM(run.model, run.tokenizer)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return TextModel(model, run)


def test_the_bound_of_one_word_is_what_the_network_says(story_model: TextModel) -> None:
    """With one given token behind the hole there is nothing to draw: −log x̂ of it, everything else being masked."""
    encode = story_model.tokenizer.encode
    before, after = tuple(encode("One spring day, Anna")), tuple(encode("garden"))
    found = _LengthSearch(story_model, (before, after), [range(1, 5)], 10).best()
    z = torch.full((4, 68), story_model.lm.config.vocab.masked)
    z[:, : len(before)] = torch.tensor(before)
    places = [len(before) + n for n in range(1, 5)]
    with torch.no_grad():
        x = story_model.lm.eval().predict(z, torch.ones(4, 1, dtype=torch.float64)).x
    expected = {n: -float(x[0, place, after[0]]) for n, place in zip(range(1, 5), places, strict=True)}
    assert {each.sizes[0]: each.nats for each in found} == pytest.approx(expected, abs=1e-4)
    assert [each.sizes[0] for each in found] == sorted(expected, key=lambda n: expected[n])


def test_several_holes_are_found_together(story_model: TextModel) -> None:
    """Left to right, each with the cost of what follows it: the sum of all is the cost of the whole."""
    encode = story_model.tokenizer.encode
    parts = tuple(tuple(encode(word)) for word in ("One", "Anna", "garden"))
    found = _LengthSearch(story_model, parts, [range(1, 3), range(1, 3)], 10).best()
    assert sorted(each.sizes for each in found) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    alone = _LengthSearch(story_model, parts[:2], [range(1, 3)], 10).best()
    first = {each.sizes[0]: each.nats for each in alone}
    assert all(each.before == pytest.approx(first[each.sizes[0]], abs=1e-5) for each in found)
    tight = _LengthSearch(story_model, parts, [range(1, 3), range(1, 3)], 3).best()
    assert sorted(each.sizes for each in tight) == [(1, 1), (1, 2), (2, 1)], "no more than fits"


def test_ranges_hold(story_model: TextModel) -> None:
    found = infill(story_model, ["One [[2-4]] day, Anna [[3-3]] to [[*]] lake."] * 2, n=2, steps=4, room=5)
    for text in found:
        sizes = [len(story_model.tokenizer.encode(fill)) for fill in text.fills]
        assert 2 <= sizes[0] <= 4
        assert sizes[1] == 3
        assert sizes[2] <= 5
    assert found.nfe > 8, "the search counts"


@dataclass(frozen=True)
class Impatient(Head):
    """Wants to end the text everywhere."""

    def estimate(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        ends = torch.isin(torch.arange(raw.shape[-1]), torch.tensor(process.vocab.ends))
        return Subs().estimate(raw + 50.0 * ends, z, t, process)


def test_a_range_at_the_end_is_not_left_too_early(story_model: TextModel) -> None:
    """Nothing follows, so the text ends by itself, but not before it may."""
    run = story_model.run
    assert run is not None
    model = DiffusionLM(replace(run.model, head=Impatient()), run.tokenizer)
    found = infill(TextModel(model, run), ["One spring day[[3-9]]", "One spring day[[*]]"], steps=4)
    assert [len(text.tokens) for text in found] == [6, 3]


def test_insertion_models_size_their_own_holes() -> None:
    model = model_of("words", inserting=True)
    for seed in range(4):
        (found,) = infill(model, "a [[2-3]] b [[*]] c", seed=seed, steps=4, room=4)
        assert found.given_text is not None
        sizes = found.given_text.hole_sizes(found.given)
        assert 2 <= sizes[0] <= 3
        assert sizes[1] <= 4


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("a [[3-1]] b", "has an empty range of lengths"),
        ("a [[0]] b", "has no length; write"),
        ("a [[-]] b", "has no length; write"),
        ("a [[1-0]] b", "has an empty range of lengths"),
        ("One [[*]][[*]] day", "need a word between them"),
        ("One [[60-62]] day, [[9]] lake", "do not fit into the 68 tokens"),
        ("One [[1-99999]] day", "too many possible lengths"),
        ("One [[9999999999]] day", "too long"),
    ],
)
def test_wrong_holes_are_refused(story_model: TextModel, template: str, reason: str) -> None:
    model = TextModel(story_model.lm) if "99999]]" in template else story_model
    if "99999]]" in template:
        model = TextModel(model_of("words"))
        template = template.replace("One", "a").replace("day", "b")
    with pytest.raises(ArgumentError, match=reason) as error:
        infill(model, template)
    assert error.value.argument == "templates"


def test_left_to_right_cannot_tell() -> None:
    words = TOKENIZERS["words"]()
    network = TransformerConfig(width=8, layers=1, heads=1, hidden=8, pattern=Causal(words.vocab.bos or 0))
    model = DiffusionLM(DiffusionLMConfig(Masked(words.vocab), network), words)
    with pytest.raises(ArgumentError, match="cannot choose the length of a hole"):
        infill(model, "a [[1-3]] b")
    (found,) = infill(model, "a [[2-3]]")
    assert len(found.tokens) == 4 or found.stop == "end"


def test_templates() -> None:
    template = Template.parse("a [[2]] b [[3 – 5]][[*]]")
    assert template.parts == ("a ", " b ", "", "")
    assert template.holes == (Hole(2, 2), Hole(3, 5), Hole(0, None))
    assert math.prod(hole.sized for hole in template.holes) == 0


def test_drafts_keep_given_text_too(story_model: TextModel) -> None:
    """What is committed is the beginning of the final text, spaces as they were given."""
    drafts = list(redraft.infill(story_model, "One  spring day,Anna [[2-3]] to the lake.", stream=True, steps=4))
    final = drafts[-1].written
    assert final is not None
    assert final.text.startswith("One  spring day,Anna ")
    assert all(final.text.startswith(draft.committed) for draft in drafts)


def test_a_hole_that_may_be_empty_obeys_its_rule() -> None:
    """The rule has no column to hold if the shorter length is chosen."""
    texts = {infill(model_of("characters"), "a[[0-1]]b", pattern="c?", seed=seed)[0].text for seed in range(4)}
    assert texts <= {"ab", "acb"}
