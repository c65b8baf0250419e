"""Tokenizers: round trips, special ids that no text can spell, safe saving."""

from __future__ import annotations

import copy
import json
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import tokenizers
from conftest import table
from hypothesis import given, settings, strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers

from redraft.core import ByteTokenizer, CharTokenizer, HubTokenizer, Tokenizer, WordTokenizer, train_bpe
from redraft.core.text.tokenizers import MASK_GLYPH, TEXT8, UNKNOWN
from redraft.models.checkpoints import serialization
from redraft.training import STORY_LANGUAGE

PROSE = [
    "the cat sat on the mat, and the dog sat on the log.",
    "naïve café – übergroß! 你好, 世界 🙂",
    "def f(x):\n\treturn x",
]
BPE = train_bpe(PROSE * 20, 320, ("bos", "eos", "pad", "mask"))


def bert() -> tokenizers.Tokenizer:
    """Lower-casing WordPiece whose vocabulary holds its own special tokens, as BERT's does."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[", "]", "mask", "cat", "##s", "the", "pad", "a"]
    made = tokenizers.Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    made.enable_truncation(2)
    return made


def word_level() -> tokenizers.Tokenizer:
    """Split at spaces: the model itself knows the spelling of its mask, and no added token says that it is special."""
    words = {"the": 0, "cat": 1, "[MASK]": 2, "[UNK]": 3, "<s>": 4, "</s>": 5}
    made = tokenizers.Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def unigram() -> tokenizers.Tokenizer:
    """A piece of the model is spelled like the mask and is the likeliest one."""
    pieces = [("<unk>", 0.0), ("▁", -1.0), ("a", -2.0), ("<mask>", -1.0), ("<", -3.0), (">", -3.0), ("m", -3.0)]
    made = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.add_special_tokens(["<unk>", "<mask>"])
    return made


def gpt() -> tokenizers.Tokenizer:
    """Byte-level BPE with one special token, no mask, as GPT-2's."""
    made = tokenizers.Tokenizer.from_str(train_bpe(PROSE, 256, ()).definition)
    made.add_special_tokens(["<|endoftext|>"])
    return made


def saved(folder: Path, backend: tokenizers.Tokenizer) -> HubTokenizer:
    backend.save(str(folder / "tokenizer.json"))
    return HubTokenizer.load(folder)


@pytest.fixture(params=["characters", "bytes", "words", "bpe", "bert", "word level", "unigram", "gpt"])
def anyone(request: pytest.FixtureRequest, tmp_path: Path) -> Tokenizer:
    everything = "".join(map(chr, range(32, 127))) + "▒�▁Ġ\n"
    ours: dict[str, Tokenizer] = {
        "characters": CharTokenizer(everything, ("bos", "eos", "pad", "mask")),
        "bytes": ByteTokenizer(("bos", "eos", "pad", "mask")),
        "words": WordTokenizer(("the", "cat", "MASK", "mask", "[", "]"), ("bos", "eos", "pad", "mask")),
        "bpe": BPE,
    }
    if request.param in ours:
        return ours[request.param]
    if request.param == "word level":
        return replace(saved(tmp_path, word_level()), mask="[MASK]", bos="<s>", eos="</s>")
    return saved(tmp_path, {"bert": bert, "unigram": unigram, "gpt": gpt}[request.param]())


def special_ids(tokenizer: Tokenizer) -> set[int]:
    vocab = tokenizer.vocab
    return {i for i in (vocab.bos, vocab.eos, vocab.pad, vocab.mask) if i is not None}


# Layout


def test_our_kinds_put_content_first_and_the_mask_last() -> None:
    assert CharTokenizer(TEXT8).vocab.size == 28
    assert CharTokenizer(TEXT8).vocab.mask == 27
    vocab = ByteTokenizer(("bos", "eos", "pad", "mask")).vocab
    assert (vocab.size, vocab.bos, vocab.eos, vocab.pad, vocab.mask) == (260, 256, 257, 258, 259)
    vocab = WordTokenizer(("a", "b")).vocab
    assert (vocab.size, vocab.bos, vocab.eos, vocab.pad, vocab.mask) == (6, None, 3, 4, 5)
    vocab = BPE.vocab
    assert (vocab.size, vocab.bos, vocab.mask) == (320, 316, 319)
    assert ByteTokenizer(()).vocab.mask is None


@pytest.mark.parametrize("specials", [("mask", "eos"), ("mask", "mask"), ("cls",)])
def test_specials_out_of_order_are_refused(specials: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="in this order"):
        ByteTokenizer(specials).vocab  # type: ignore[arg-type]  # noqa: B018


# Round trips


@given(st.text())
def test_bytes_round_trip(text: str) -> None:
    assert ByteTokenizer().decode(ByteTokenizer().encode(text)) == text


@given(st.binary())
def test_bytes_carry_any_bytes(data: bytes) -> None:
    assert bytes(ByteTokenizer().encode(data.decode("utf-8", "surrogateescape"))) == data


@given(st.text())
@settings(max_examples=300)
def test_bpe_round_trip(text: str) -> None:
    assert BPE.decode(BPE.encode(text)) == text


@given(st.text(alphabet=TEXT8))
def test_character_round_trip(text: str) -> None:
    assert CharTokenizer(TEXT8).decode(CharTokenizer(TEXT8).encode(text)) == text


def test_stories_round_trip_as_words() -> None:
    words = WordTokenizer(STORY_LANGUAGE.words())
    for index in range(500):
        text = STORY_LANGUAGE.story(7, index).text
        ids = words.encode(text)
        assert words.unknown not in ids
        assert words.decode(ids) == text


@given(st.text())
def test_words_are_cut_as_promised(text: str) -> None:
    words = WordTokenizer(("a", "b", "ab", "0", "_", "."))
    expected = [words.words.index(w) if w in words.words else words.unknown for w in re.findall(r"\w+|[^\w\s]", text)]
    assert words.encode(text) == expected


def test_a_gpt_like_tokenizer_from_a_file_round_trips(tmp_path: Path) -> None:
    hub = saved(tmp_path, gpt())
    for text in [*PROSE, "<|endoftext|> and <|mask|>"]:
        assert hub.decode(hub.encode(text)) == text


# Decoding


def test_decode_drops_frame_and_shows_masks(anyone: Tokenizer) -> None:
    vocab = anyone.vocab
    content = anyone.encode("the cat")
    frame = [i for i in (vocab.bos, vocab.eos, vocab.pad) if i is not None]
    assert anyone.decode(frame + content + frame) == anyone.decode(content)
    assert vocab.mask is not None
    assert MASK_GLYPH in anyone.decode([*content, vocab.mask])
    assert "___" in anyone.decode([*content, vocab.mask, *content], mask="___")


def test_masks_keep_their_place_in_the_text() -> None:
    words = WordTokenizer(("The", "cat", "sat", "."))
    assert words.decode([0, words.vocab.masked, 2, 3]) == "The ▒ sat."
    assert CharTokenizer("ab").decode([0, 2, 1]) == "a▒b"
    half = "é".encode()[0]
    assert ByteTokenizer().decode([97, half, ByteTokenizer().vocab.masked, 98]) == "a�▒b"
    ids = BPE.encode("the cat")
    assert BPE.decode([*ids, BPE.vocab.masked]) == "the cat▒"


def test_ids_outside_the_vocabulary_are_refused(anyone: Tokenizer) -> None:
    for bad in (-1, anyone.vocab.size):
        with pytest.raises(ValueError, match=f"id {bad} is not one of the {anyone.vocab.size} ids"):
            anyone.decode([bad])


def test_words_join_without_space_before_punctuation() -> None:
    words = WordTokenizer.collect(["Well , yes ! no ? a ; b : c . ( d )"], 50)
    assert words.decode(words.encode("Well , yes ! no ? a ; b : c . ( d )")) == "Well, yes! no? a; b: c. ( d )"


# Unknown text


def test_an_unknown_character_is_named() -> None:
    with pytest.raises(ValueError, match=r"character 'é' \(U\+00E9\) is not in the alphabet of 27"):
        CharTokenizer(TEXT8).encode("café")


def test_an_unknown_word_has_its_own_id() -> None:
    words = WordTokenizer(("a",))
    assert words.encode("a zebra") == [0, words.unknown]
    assert words.decode([0, words.unknown]) == f"a {UNKNOWN}"
    assert words.encode(UNKNOWN) == [words.unknown]


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), BPE])
def test_half_a_surrogate_pair_is_a_value_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="surrogates not allowed"):
        tokenizer.encode("\ud800")


# Injection: 10 names × 5 brackets × 2 cases × 5 places = 500 strings

NAMES = ("mask", "pad", "s", "bos", "eos", "cls", "sep", "unk", "endoftext", "begin_of_text")
BRACKETS = ("[{}]", "<{}>", "</{}>", "<|{}|>", "<<{}>>")
PLACES = ("{}", "{}{}", "a{}b", "the {} cat {} the", "\n{} ")
INJECTIONS = {
    place.replace("{}", case(bracket.replace("{}", name)))
    for name, bracket, case, place in product(NAMES, BRACKETS, (str.lower, str.upper), PLACES)
}


def test_no_special_id_comes_from_text(anyone: Tokenizer) -> None:
    assert len(INJECTIONS) == 500
    specials = special_ids(anyone)
    assert anyone.vocab.mask in specials
    guilty = [text for text in INJECTIONS if specials & set(anyone.encode(text))]
    assert guilty == []


def test_injections_survive_byte_level_tokenizers_unchanged() -> None:
    for tokenizer in (ByteTokenizer(), BPE):
        assert [text for text in INJECTIONS if tokenizer.decode(tokenizer.encode(text)) != text] == []


def test_the_guard_is_needed_and_gives_unknown(tmp_path: Path) -> None:
    plain = word_level()
    plain.encode_special_tokens = True
    assert plain.encode("the [MASK]").ids == [0, 2]  # the library's own switch does not help here
    assert replace(saved(tmp_path, word_level()), mask="[MASK]").encode("the [MASK]") == [0, 3]


def test_eos_does_not_serve_as_unknown(tmp_path: Path) -> None:
    backend = tokenizers.Tokenizer(models.BPE({"a": 0, "</s>": 1}, [], unk_token="</s>"))
    assert backend.encode("ab").ids == [0, 1]
    hub = replace(saved(tmp_path, backend), eos="</s>")
    assert hub.encode("a") == [0]
    with pytest.raises(ValueError, match="no unknown token: 'ab'"):
        hub.encode("ab")


def test_a_spelling_without_an_unknown_token_is_refused(tmp_path: Path) -> None:
    backend = tokenizers.Tokenizer(models.BPE({"a": 0, "#": 1}, []))
    with pytest.raises(ValueError, match="no unknown token: 'a#'"):
        replace(saved(tmp_path, backend), mask="#").encode("a#")


# Foreign files


def test_customary_names_and_added_mask(tmp_path: Path) -> None:
    hub = saved(tmp_path, gpt())
    assert (hub.eos, hub.mask, hub.pad) == ("<|endoftext|>", "<|mask|>", None)
    assert (hub.vocab.size, hub.vocab.eos, hub.vocab.mask) == (258, 256, 257)
    hub = saved(tmp_path, bert())
    assert (hub.bos, hub.eos, hub.pad, hub.mask) == ("[CLS]", "[SEP]", "[PAD]", "[MASK]")
    assert (hub.vocab.size, hub.vocab.mask) == (13, 4)


def test_truncation_in_the_file_is_switched_off(tmp_path: Path) -> None:
    hub = saved(tmp_path, bert())
    assert hub.decode(hub.encode("the cats the cats")) == "the cats the cats"


def test_tokenizer_config_has_the_say(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": {"content": "[PAD]"}, "pad_token": "[PAD]", "mask_token": None})
    )
    hub = saved(tmp_path, bert())
    assert (hub.eos, hub.pad, hub.mask) == ("[PAD]", "[PAD]", "[MASK]")
    assert hub.vocab.eos == hub.vocab.pad == 0


def test_a_missing_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="eos='<end>' is not a token"):
        replace(saved(tmp_path, gpt()), eos="<end>").encode("a")


def test_an_unknown_token_of_a_file_looks_unknown(tmp_path: Path) -> None:
    hub = saved(tmp_path, bert())
    assert hub.decode(hub.encode("the zebra")) == f"the {UNKNOWN}"


def test_no_file_and_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no tokenizer at"):
        HubTokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"not a tokenizer\.json"):
        HubTokenizer.load(tmp_path)


@pytest.mark.parametrize("made", [gpt, bert])
def test_other_special_tokens_are_not_shown(tmp_path: Path, made: Callable[[], tokenizers.Tokenizer]) -> None:
    backend = made()
    backend.add_special_tokens(["<|im_start|>"])
    hub = saved(tmp_path, backend)
    start = backend.get_vocab()["<|im_start|>"]
    assert hub.decode([start, *hub.encode("the cat"), start]) == "the cat"


# BPE


def test_training_is_deterministic_and_merges() -> None:
    again = train_bpe(PROSE * 20, 320, ("bos", "eos", "pad", "mask"))
    assert again == BPE
    assert len(BPE.encode("the cat")) < len("the cat")


def test_too_small_a_size_is_refused() -> None:
    with pytest.raises(ValueError, match="size=257 has no room for 256 bytes and 3"):
        train_bpe(PROSE, 257)


# Saving


def test_json_round_trip(anyone: Tokenizer) -> None:
    again = serialization.from_json(json.loads(json.dumps(serialization.to_json(anyone))))
    assert isinstance(again, Tokenizer)
    assert again == anyone
    assert again.vocab == anyone.vocab
    assert again.encode("the cat") == anyone.encode("the cat")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_keep_the_promise(anyone: Tokenizer, copied: Callable[[Tokenizer], Tokenizer]) -> None:
    anyone.encode("the cat")  # whatever is cached must not travel in a weaker form
    again = copied(anyone)
    assert again == anyone
    assert [text for text in INJECTIONS if special_ids(again) & set(again.encode(text))] == []


@table(
    "fields",
    [
        {"class": "redraft.core.text.tokenizers.Pickle"},
        {"class": "redraft.core.text.tokenizers.Tokenizer"},
        {"class": ["redraft.core.text.tokenizers.Bytes"]},
        {"class": "redraft.core.text.tokenizers.Bytes", "size": 3},
        {"class": "redraft.core.text.tokenizers.Bytes", "specials": "mask"},
        {"class": "redraft.core.text.tokenizers.Bytes", "specials": [1]},
        {"class": "redraft.core.text.tokenizers.Characters"},
        {"class": "redraft.core.text.tokenizers.Characters", "alphabet": 5},
        {"class": "redraft.core.text.tokenizers.Characters", "alphabet": "aa"},
        {"class": "redraft.core.text.tokenizers.Words", "words": ["a", 1]},
        {"class": "redraft.core.text.tokenizers.Words", "words": ["two words"]},
        {"class": "redraft.core.text.tokenizers.Words", "words": ["a", "a"]},
        {"class": "redraft.core.text.tokenizers.Hub", "definition": "cos\nsystem\n(S'true'\ntR."},
        {"class": "redraft.core.text.tokenizers.Hub", "definition": 7},
    ],
)
def test_other_configs_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        _ = serialization.from_json(fields).vocab
