"""Programs: what is drawn checks, the checker is exact, and the entropy is that of the draws."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from redraft.training import Programs, brackets_match, presets

PROGRAMS = Programs()


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("a = 7; b = a + 3; c = b < a; d = if c then b else 2; e = ( d * a ) - 1; e is 9", True),  # 0·7 − 1
        ("a = 7; b = a + 3; c = b < a; d = if c then b else 2; e = ( d * a ) - 1; e is 3", False),
        ("a = 7; b = a + 3; c = b < a; d = c + 1; e = 4; e is 4", False),  # a truth value is no number
        ("a = 7; b = a + 3; c = a < b; d = if b then b else 2; e = 4; e is 4", False),  # a number is no truth value
        ("a = 7; b = d + 3; c = 1; d = 2; e = 4; e is 4", False),  # not defined yet
        ("a = 7; b = 1; c = 1; d = 2; e = a < 4; e is False", False),  # the last is a number
        ("a = 7; c = 1; b = 1; d = 2; e = 4; e is 4", False),  # in the order of their names
        ("a = 7; b = 1; e is 4", False),
        ("a = ( 7; b = 1; c = 1; d = 2; e = 4; e is 4", False),
        ("", False),
    ],
)
def test_the_checker_knows_types_order_and_values(text: str, right: bool) -> None:
    assert PROGRAMS.is_valid(text) is right


def test_programs_are_drawn_as_they_say() -> None:
    texts = [PROGRAMS.document("train", index) for index in range(1500)]
    nats = [-PROGRAMS.log_prob(text) for text in texts]
    assert all(map(math.isfinite, nats))
    assert all(map(brackets_match, texts))
    assert not brackets_match("a = ) 1 (")
    mean, chars = sum(nats) / len(nats), sum(map(len, texts)) / len(texts)
    assert mean / chars == pytest.approx(PROGRAMS.entropy_per_char(), rel=0.01)
    assert texts[:2] != [PROGRAMS.document("valid", index) for index in range(2)]
    words = presets.mdlm_code_tiny().tokenizer
    assert all(words.decode(words.encode(text)) == text for text in texts[:50])
    assert max(len(words.encode(text)) for text in texts) < presets.mdlm_code_tiny().framing.length


def test_small_programs_add_up_to_one() -> None:
    """All programs of two statements, listed by their probability: digits and sums only, by the checker itself."""
    small = Programs(statements=2)
    seen = Counter(small.document("train", index) for index in range(4000))
    common, count = seen.most_common(1)[0]
    p = math.exp(small.log_prob(common))
    assert abs(count - 4000 * p) < 6 * math.sqrt(4000 * p) + 3
    with pytest.raises(ValueError, match="statements=1"):
        Programs(statements=1)
