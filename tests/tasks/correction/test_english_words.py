"""Correction of English with a causal model: words and code, candidates, one reading, and texts of other languages."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

import redraft
from redraft.models import Causal
from redraft.tasks import ArgumentError, EditChannel, Lexicon
from redraft.tasks.correction.english.candidates import _WordCandidates
from redraft.tasks.correction.english.correction import _CausalCorrection, _times, _windows
from redraft.tasks.correction.english.language import require_language
from redraft.tasks.correction.english.reader import _CausalReader
from redraft.tasks.correction.english.typed_words import _typed_words, _TypedWord
from redraft.tasks.correction.english.words import confused_words, english_lexicon
from tests.tasks.test_generate import WORDS, model_of

SENTENCES = Path(__file__).parent / "languages.txt"
MISSED = {
    "De man leest de krant in de trein.",
    "Hij was in de winter in Parijs.",
}  # "de", "in" and "was" are English too
needs_list = pytest.mark.skipif(importlib.util.find_spec("symspellpy") is None, reason="needs redraft[smol]")


def words(text: str) -> list[str]:
    return [word.text for word in _typed_words(text)]


def test_words_are_no_code() -> None:
    assert words("It's well-known: the “cat” (a tabby) don’t care—really!") == [
        *("It's", "well", "known", "the", "cat", "a", "tabby", "don’t", "care", "really"),
    ]
    assert words("Call `git chekout` or parse_args(), see https://exmple.org/doccs, x2, a/b, --flg, NATO, iPhone.") == [
        "Call", "or", "see",
    ]  # fmt: skip
    assert words("```\nteh\n``` teh") == ["teh"]
    names = {word.text: word.is_name for word in _typed_words("Anna met Oona. I've seen Leeds! “Bob left.”")}
    assert names == {"Anna": False, "met": False, "Oona": True, "I've": False, "seen": False, "Leeds": True} | {
        "Bob": False, "left": False,
    }  # fmt: skip


@needs_list
def test_candidates_of_english_words() -> None:
    assert len(english_lexicon().counts) > 82_000
    assert {"favorite", "favourite", "unfavorable", "don't"} <= english_lexicon().counts.keys()
    assert confused_words()["their"] == {"there", "they're"}
    speller = _WordCandidates(english_lexicon(), EditChannel.standard(), 0.02)

    def meant(typed: str, name: bool = False) -> list[str]:
        return [candidate.text for candidate in speller.of(_TypedWord(0, typed, name))]

    assert meant("teh")[0] == "the"
    assert meant("Teh")[0] == "The"
    assert meant("dont")[0] == "don't"
    assert meant("dosen’t")[0] == "doesn’t"
    assert meant("goverment's")[0] == "government's"
    assert "a lot" in meant("alot")
    assert "I" in meant("i")
    assert {"there", "they're"} <= set(meant("their"))
    assert meant("Wendesday", name=True) == ["Wednesday"]
    assert meant("Okonkwo", name=True) == meant("Their", name=True) == []
    assert all(speller.knows(word) for word in ("cat's", "dogs'", "we’ll", "Paris"))
    kept = _WordCandidates(english_lexicon(), EditChannel.standard(), 0.02, keep=frozenset({"teh"}))
    assert kept.of(_TypedWord(0, "Teh", False)) == []


@needs_list
def test_texts_of_other_languages_are_refused() -> None:
    lines = [line.split(" | ", 1) for line in SENTENCES.read_text("utf-8").splitlines() if not line.startswith("#")]
    refused = {text for language, text in lines if _refuses(text)}
    assert [text for language, text in lines if language == "en" and text in refused] == []
    assert {text for language, text in lines if language != "en"} - refused == MISSED
    assert (len(lines), len(refused), _refuses("")) == (125, 77, False)
    with pytest.raises(
        ArgumentError, match=r"smol does not know the language of 'Elle lit.*seems to be French \(elle, un"
    ):
        require_language(english_lexicon(), ["This is fine.", "Elle lit un livre dans le jardin."], "smol")
    with pytest.raises(ArgumentError, match=r"at least not its words \(читает, книгу, парке"):
        require_language(english_lexicon(), ["Она читает книгу в парке каждый день утром."], "smol")
    dutch = Lexicon(dict.fromkeys("De man leest krant in trein het is een ik heb niet".lower().split(), 1.0))
    require_language(dutch, ["Ik heb het niet."], "smol")  # the words that are given are Dutch


def _refuses(text: str) -> bool:
    try:
        require_language(english_lexicon(), [text], "smol")
    except ArgumentError:
        return True
    return False


def test_a_model_of_few_words_refuses_english() -> None:
    with pytest.raises(ArgumentError, match="story does not know the language of 'I would like"):
        redraft.correct("story", "I would like to know whether the library is open on public holidays this year.")
    (text,) = redraft.correct("story", "One spirng day, Anna wlaked to the garden.").texts
    assert text == "One spring day, Anna walked to the garden."


MODEL = model_of(pattern=Causal())
READER = _CausalReader(MODEL, WORDS, WORDS.vocab.bos or 0)


def exact(text: str) -> float:
    """log p of a whole text by the causal network, which predicts a token from the state before it."""
    tokens = torch.tensor([[READER.start, *WORDS.encode(text)]])
    states, _ = MODEL.network.extend(tokens[:, :-1])
    logits = MODEL.network.logits(states[0]).index_fill(-1, torch.tensor([WORDS.vocab.masked]), -torch.inf)
    return float(logits.log_softmax(-1).gather(-1, tokens[0, 1:, None]).double().sum())


def test_a_closer_look_is_the_difference_of_whole_texts() -> None:
    with torch.no_grad():
        reading = READER.read("the cat sat on the mat.")
        variants = READER.variants(reading, 4, 7, ["mat", "big cat", "the the the"])
        own, others = READER.own_log_prob(reading, variants), READER.log_probs(reading, variants, range(1, 4))
        texts = [f"the {word} sat on the mat." for word in ("cat", "mat", "big cat", "the the the")]
        whole = [exact(text) for text in texts]
    assert [other - own for other in others] == pytest.approx([log_p - whole[0] for log_p in whole[1:]], abs=1e-3)


def test_each_word_is_changed_for_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    lexicon = Lexicon({"the": 50.0, "cat": 10.0, "sat": 10.0, "on": 20.0, "mat": 5.0, "form": 1.0})
    correction = _CausalCorrection(READER, _WordCandidates(lexicon, EditChannel.standard(), 0.02), 0.5)
    monkeypatch.setattr(_CausalReader, "log_probs", lambda self, reading, variants, rows: [-40.0] * len(rows))
    with torch.no_grad():
        (changes,) = correction(["the cat sat on teh mat."])
    (change,) = changes
    assert (change.start, change.was, change.now) == (15, "teh", "the")
    assert change.probability > 0.5
    assert change.reason.startswith("“teh” is not in the word list, and “the” fits the sentence ")


def test_ratios_are_short() -> None:
    assert [_times(nats) for nats in (0.5, 5.0, 12.0, 1e9)] == [
        *("1.6 times", "100 times", "200,000 times", "a million times"),
    ]


@pytest.mark.parametrize("text", ["", "One. " * 300, "x" * 1000, "word " * 300, "a\n" * 500])
def test_windows_cover_a_text(text: str) -> None:
    windows = list(_windows(text))
    assert "".join(text[start:end] for start, end in windows) == text
    assert all(0 < end - start <= 400 for start, end in windows)
