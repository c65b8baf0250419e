"""The edit channel against plain recursion, and what it learns; known words and their neighbors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from redraft.tasks import EditChannel, Lexicon
from redraft.tasks.correction.edit_channel import EDITS
from redraft.tasks.correction.lexicon import encode_word

LEARNED = EditChannel.standard()


def by_recursion(channel: EditChannel, word: str, spelling: str, noise: float) -> float:
    """P(spelling | word): all ways to make it, one by one."""
    edit = dict(zip(EDITS, (noise * rate for rate in channel.edits), strict=True))
    a, b = encode_word(word)[: len(word)], encode_word(spelling)[: len(spelling)]

    def ways(i: int, j: int) -> float:
        if i == j == 0:
            return 1.0
        total = 0.0
        here, last, behind = (a[k] if 0 <= k < len(a) else -2 for k in (i - 1, i - 2, i))
        if i and j:
            copied = here == b[j - 1]
            total += ways(i - 1, j - 1) * (1 - noise if copied else edit["replace"] * channel.replaced[here][b[j - 1]])
        if i:
            total += ways(i - 1, j) * (edit["undouble"] / 2 if here in (last, behind) else edit["drop"])
        if j:
            total += ways(i, j - 1) * (edit["insert"] * channel.inserted[b[j - 1]])
            total += ways(i, j - 1) * edit["double"] if i and here == b[j - 1] else 0.0
        if i > 1 and j > 1 and (a[i - 2], here) == (b[j - 1], b[j - 2]) and b[j - 1] != b[j - 2]:
            total += ways(i - 2, j - 2) * edit["swap"]
        return total

    return ways(len(a), len(b))


@pytest.mark.parametrize(
    ("word", "spelling"),
    [
        ("the", "teh"),
        ("letter", "leter"),
        ("red", "redd"),
        ("cat", "cut"),
        ("a", "an"),
        ("sea", "see"),
        ("Anna", "ana"),
    ],
)
def test_probabilities_are_sums_over_all_ways(word: str, spelling: str) -> None:
    for channel in (LEARNED, EditChannel.uniform()):
        expected = by_recursion(channel, word, spelling, 0.05)
        assert channel.log_prob(spelling, word, 0.05) == pytest.approx(math.log(expected))


def test_a_batch_of_words_is_as_if_alone() -> None:
    words = ["walked", "talked", "waked", "a", "walkers"]
    together = LEARNED.log_probs("wlaked", np.array([encode_word(word) for word in words]), 0.02)
    assert together.tolist() == pytest.approx([LEARNED.log_prob("wlaked", word, 0.02) for word in words])
    assert words[together.argmax()] == "walked"


def test_more_noise_makes_errors_likelier_and_copies_rarer() -> None:
    few, many = ([LEARNED.log_prob(s, "spring", noise) for s in ("spring", "sprnig")] for noise in (0.01, 0.1))
    assert many[0] < few[0] < 0
    assert many[1] > few[1]


def test_it_learns_what_it_is_shown() -> None:
    pairs = [("cake", "kake"), ("cat", "kat"), ("ice", "ike"), ("letter", "leter"), ("form", "from"), ("to", "tto")]
    channel = EditChannel.fit(pairs)
    assert channel.replaced[2][10] > 0.3, "c became k"
    assert channel.log_prob("kup", "cup", 0.05) > channel.log_prob("xup", "cup", 0.05) + 2
    kinds = [edit for word, wrong in pairs for edit, *_ in channel.edits_of(word, wrong)]
    assert kinds == ["replace", "replace", "replace", "undouble", "swap", "double"]


def test_it_survives_its_file() -> None:
    assert LEARNED.to_json() == LEARNED.to_json()
    assert len(LEARNED.replaced) == len(LEARNED.inserted) == 27
    assert all(sum(row) == pytest.approx(1, abs=1e-3) for row in (*LEARNED.replaced, LEARNED.inserted))


def test_neighbors_miss_no_word_within_two_edits() -> None:
    lexicon = Lexicon.of(["walked talked walk waked wandered sea a the tale"])
    near = {lexicon.words[i] for i in lexicon.near("wlaked")}
    assert {"walked", "waked", "talked"} <= near
    assert "wandered" not in near
    assert {lexicon.words[i] for i in lexicon.near("th")} >= {"the", "a"}


def test_shares_are_probabilities() -> None:
    lexicon = Lexicon.of(["the cat sat on the mat and the dog sat too"])
    seen = sum(math.exp(lexicon.log_prob(word)) for word in lexicon.words)
    assert seen < 1
    assert seen + lexicon.new_words / (lexicon.total + lexicon.new_words) == pytest.approx(1)
    assert lexicon.log_prob("the") > lexicon.log_prob("cat") > lexicon.log_prob("zat") > lexicon.log_prob("xqzzk")
