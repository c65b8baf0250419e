"""SpellingErrors: the same ones from the same seed, as many as asked for, each of the kind that it says."""

from __future__ import annotations

import pytest

from redraft.tasks import ERROR_KINDS, ErrorGenerator, ErrorKind
from redraft.tasks.correction.human_errors import split_half
from redraft.training import STORY_LANGUAGE

TEXTS = [STORY_LANGUAGE.text(5, index) for index in range(100)]


@pytest.mark.parametrize("rate", [0.02, 0.05])
def test_the_rate_is_right(rate: float) -> None:
    """As many letters have an error as asked for, within four standard errors."""
    made = [ErrorGenerator(rate)(text, i) for i, text in enumerate(TEXTS)]
    hits, chances = sum(each.error_count for each in made), sum(each.letter_count for each in made)
    letters = sum(letter.isalpha() for text in TEXTS for letter in text)
    assert 0.95 * letters < chances <= letters, "a swap takes two"
    assert abs(hits - rate * chances) < 4 * (rate * (1 - rate) * chances) ** 0.5


def test_all_kinds_are_about_as_frequent_where_they_can_be() -> None:
    made = [ErrorGenerator(0.2)(text, i) for i, text in enumerate(TEXTS)]
    found = [kind for each in made for word in each.kinds for kind in word]
    counts = {kind: found.count(kind) for kind in ERROR_KINDS}
    assert min(counts.values()) > 0.04 * len(found)
    assert max(counts.values()) < 0.25 * len(found)


def test_a_seed_and_a_number_decide() -> None:
    errors = ErrorGenerator(0.1, seed=3)
    assert errors(TEXTS[0], 7) == errors(TEXTS[0], 7)
    assert len({errors(TEXTS[0], index).text for index in range(20)}) == 20
    assert ErrorGenerator(0.1, seed=4)(TEXTS[0], 7).text != errors(TEXTS[0], 7).text
    assert errors("Anna felt sad.", 5).text == "Anna tektsad."
    assert ErrorGenerator(0.0)(TEXTS[0]).text == TEXTS[0]


@pytest.mark.parametrize(
    ("kind", "given", "made"),
    [
        ("keyboard", "Go", {"Fi", "Hi", "Vk"}),
        ("phonetic", "phone", {"funa", "funi"}),
        ("swap", "Hat", {"Aht"}),
        ("drop", "I am", {"I "}),
        ("drop", "I", {"I"}),
        ("double", "ab", {"aabb"}),
        ("space", "to me", {"t om e"}),
        ("ocr", "corn", {"eam", "earn"}),
    ],
)
def test_what_an_error_of_each_kind_is(kind: ErrorKind, given: str, made: set[str]) -> None:
    """At a rate of one: every letter."""
    found = {ErrorGenerator(1.0, (kind,), seed)(given).text for seed in range(40)}
    assert made & found
    assert all(len(ErrorGenerator(1.0, (kind,), seed)(given).kinds) == len(given.split()) for seed in range(3))


def test_digits_and_punctuation_stay() -> None:
    text = "In 1898, at 4:30 (or so) -- 'yes'!"
    for seed in range(20):
        made = ErrorGenerator(0.5, tuple(kind for kind in ERROR_KINDS if kind != "space"), seed)(text).text
        assert [c for c in made if not c.isalpha()] == [c for c in text if not c.isalpha()]


def test_words_know_their_errors() -> None:
    for seed in range(50):
        made = ErrorGenerator(0.05, seed=seed)(TEXTS[seed])
        assert len(made.kinds) == len(TEXTS[seed].split())
        if "space" not in {kind for word in made.kinds for kind in word}:
            for was, now, kinds in zip(TEXTS[seed].split(), made.text.split(), made.kinds, strict=True):
                assert (was != now) == bool(kinds) or "swap" in kinds


def test_a_lost_space_belongs_to_both_words() -> None:
    made = ErrorGenerator(1.0, ("space",))("a b")
    assert made.text == "ab"
    assert made.kinds == (("space",), ("space",))


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        ErrorGenerator(1.5)
    with pytest.raises(ValueError, match="choose from keyboard"):
        ErrorGenerator(0.1, ("typo",))  # type: ignore[arg-type]


def test_a_word_is_in_one_half() -> None:
    halves = [split_half(f"word{number}") for number in range(2000)]
    assert 900 < halves.count("train") < 1100
    assert split_half("receive") == split_half("receive")
