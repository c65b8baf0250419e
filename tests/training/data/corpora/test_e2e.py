from __future__ import annotations

from pathlib import Path

import pytest

from redraft.training import (
    DataStats,
    Pair,
    e2e_corpus,
    slot_coverage,
)
from redraft.training.data.corpora.e2e_nlg import (
    _parse_slots,
)

EAGLE = "name[The Eagle], eatType[coffee shop], food[French], priceRange[cheap], area[riverside], familyFriendly[no]"


def test_the_files_of_e2e(tmp_path: Path) -> None:
    (tmp_path / "trainset.csv").write_text('\ufeffmr,ref\n"name[A], area[b]","A, in ""b""."\n', "utf-8")
    (tmp_path / "devset.csv").write_text("mr,ref\nname[B],B is it.\n")
    (tmp_path / "testset_w_refs.csv").write_text('"mr","ref"\r\n"name[C]","C."\r\n')
    data = e2e_corpus(tmp_path)
    assert list(data.pairs("train", DataStats())) == [Pair("name[A], area[b]", 'A, in "b".')]
    assert list(data.pairs("valid", DataStats())) == [Pair("name[B]", "B is it.")]
    assert list(data.pairs("test", DataStats())) == [Pair("name[C]", "C.")]


def test_a_source_has_slots() -> None:
    assert _parse_slots("name[The Eagle], customer rating[5 out of 5]") == {
        "name": "The Eagle",
        "customer rating": "5 out of 5",
    }
    with pytest.raises(ValueError, match="'a pub' has no attributes"):
        _parse_slots("a pub")


def test_what_is_said_counts() -> None:
    whole = "The Eagle is a cheap French café by the river. It is not family-friendly."
    assert slot_coverage(EAGLE, whole) == (1.0, 1.0)
    assert slot_coverage(EAGLE, "the eagle serves French food.") == (2 / 6, 0.0)
    assert slot_coverage(EAGLE, "") == (0.0, 0.0)


@pytest.mark.parametrize(
    ("source", "text", "right"),
    [
        ("familyFriendly[yes]", "Children are welcome.", True),
        ("familyFriendly[yes]", "It is not family friendly.", False),
        ("familyFriendly[no]", "It is family friendly.", False),
        ("familyFriendly[no]", "It isn't a place for families.", True),
        ("familyFriendly[no]", "There is no music. Families love it.", False),
        ("priceRange[less than £20]", "Meals cost less than £20.", True),
        ("priceRange[more than £30]", "Prices start at £30.", True),
        ("priceRange[more than £30]", "Meals cost less than £20.", False),
        ("customer rating[1 out of 5]", "It has one star.", True),
        ("customer rating[5 out of 5]", "It has one star.", False),
        ("near[Café Rouge]", "It is near Café Rouge.", True),
        ("near[Café Rouge]", "It is near Café Brazil.", False),
    ],
)
def test_the_same_in_other_words(source: str, text: str, right: bool) -> None:
    assert bool(slot_coverage(source, text).exact) == right
