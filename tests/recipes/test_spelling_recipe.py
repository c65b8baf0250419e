"""The recipe behind docs/guides/correct.md: what counts as restored or spoilt; the page shows the rows."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from redraft.tasks import CorruptedText, ErrorGenerator

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "recipes"))
import spelling  # noqa: E402
from spelling_parts import judged, spellers  # noqa: E402


def test_words_are_counted() -> None:
    """One word restored, one not, one real-word error restored, one right word spoilt."""
    given, wrong = "the cat sat on the mat by me", "teh cat sat no thee mat by me"
    kinds = (("swap",), (), (), ("swap",), ("double",), (), (), ())
    made = CorruptedText(wrong, given, kinds, 3, 20)  # type: ignore[arg-type]
    found = judged.judged([made], ["the cat sat on thee mat be me"], {"no", "the", "cat"})
    assert (found["restored"], found["misspelled"]) == (0.5, 2)
    assert (found["real_words"], found["real"]) == (1.0, 1)
    assert (found["spoilt"], found["words"]) == (pytest.approx(0.2), 5)
    assert found["kinds"] == {"double": 0.0, "swap": 1.0}


def test_nobody_is_better_than_the_truth() -> None:
    setting = spelling.stories(0.05)
    found = setting.measure(lambda _: [each.given for each in setting.made])
    assert (found["restored"], found["real_words"], found["spoilt"]) == (1.0, 1.0, 0.0)
    lazy = setting.measure(lambda texts: texts)
    assert (lazy["restored"], lazy["spoilt"]) == (0.0, 0.0)
    assert setting.made[0] == ErrorGenerator(0.05)(setting.made[0].given, 0)


def test_letters_become_other_letters() -> None:
    text = "mexico hosted the football world cup " * 20
    made = spelling.replaced(text, 3)
    assert made == spelling.replaced(text, 3)
    assert made.error_count == sum(a != b for a, b in zip(made.text, text, strict=True))
    assert abs(made.error_count / made.letter_count - spelling.LETTER_RATE) < 0.03
    assert [i for i, letter in enumerate(made.text) if letter == " "] == [i for i, c in enumerate(text) if c == " "]
    assert sum(map(bool, made.kinds)) == sum(a != b for a, b in zip(text.split(), made.text.split(), strict=True))


def test_human_misspellings_stand_where_the_word_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spelling, "_table", lambda: {"their": ("thier",)})
    made = [spelling.human('He saw "their house", and their dog.', index) for index in range(20)]
    assert {each.text for each in made} > {'He saw "thier house", and their dog.'}
    assert all(len(each.kinds) == 7 and each.error_count == each.text.count("thier") for each in made)


def test_text_in_27_letters() -> None:
    assert (
        spellers.to_letters("In 1970, <unk> Estadio Azteca's fans!") == "in one nine seven zero estadio azteca s fans"
    )


def test_the_page_names_the_commands_of_the_recipe() -> None:
    page = (ROOT / "docs" / "results" / "correct.md").read_text("utf-8")
    commands = [line for line in page.splitlines() if line.startswith("python recipes/")]
    assert [shlex.split(line, comments=True)[1] for line in commands] == ["recipes/spelling.py"] * 2
