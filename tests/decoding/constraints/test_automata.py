"""Automata against Python's own `re`, on texts that can be written down."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from redraft.core import ByteTokenizer, CharTokenizer, Tokenizer, WordTokenizer, train_bpe
from redraft.decoding import AutomatonTooLarge, Banned, Json, OneOf, Required
from redraft.decoding.constraints import dfa
from redraft.decoding.constraints.automaton import _token_automaton, _TokenAutomaton
from redraft.decoding.constraints.compiler import _compile_regex
from redraft.decoding.constraints.dfa import _Dfa
from redraft.decoding.constraints.rules import compile_rule
from redraft.decoding.constraints.token_bytes import _token_bytes

SHORT = ["".join(letters) for n in range(6) for letters in itertools.product("ab", repeat=n)]
PATTERNS = st.recursive(
    st.sampled_from(["a", "b", "ab", "ba", "[ab]", "."]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from("*+?")).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        st.tuples(inner, st.sampled_from(["*?", "{0,2}", "{2}", "{1,3}?"])).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    ),
    max_leaves=6,
)


def texts(automaton: _Dfa) -> set[str]:
    return {text for text in SHORT if automaton.accepts(text.encode())}


@settings(max_examples=40, deadline=None)
@given(PATTERNS)
def test_a_pattern_accepts_what_re_matches(pattern: str) -> None:
    assert texts(_compile_regex(pattern)) == {text for text in SHORT if re.fullmatch(pattern, text)}


@settings(max_examples=15, deadline=None)
@given(PATTERNS, PATTERNS)
def test_sets_of_texts_combine(one: str, other: str) -> None:
    a, b = _compile_regex(one), _compile_regex(other)
    assert texts(dfa._intersection(a, b)) == texts(a) & texts(b)
    assert texts(dfa._union(a, b)) == texts(a) | texts(b)
    assert texts(dfa._complement(a)) == set(SHORT) - texts(a)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab _-é", max_size=12))
def test_words_stand_alone(text: str) -> None:
    alone = [re.search(rf"(?<!\w){word}(?!\w)", text) is not None for word in ("ab", "b")]
    assert compile_rule(Required("ab", "b")).accepts(text.encode()) == all(alone)
    ascii_alone = re.search(r"(?<!\w)(ab|b)(?!\w)", text, re.ASCII) is not None
    assert compile_rule(Banned("ab", "b")).accepts(text.encode()) == (not ascii_alone)


def test_a_list_of_texts_is_exactly_that() -> None:
    automaton = compile_rule(OneOf("yes", "no", "né", ""))
    assert [automaton.accepts(text.encode()) for text in ("yes", "no", "né", "", "ye", "yesno", "n")] == [
        True, True, True, True, False, False, False,
    ]  # fmt: skip


def test_unicode_texts_are_matched_by_character() -> None:
    for pattern, yes, no in [
        ("é+", "éé", "e"),
        (".{2}", "日本", "日"),
        (r"\w+", "naïve", "a b"),
        ("[α-ω]*", "λόγος"[:1], "a"),
    ]:
        assert _compile_regex(pattern).accepts(yes.encode())
        assert not _compile_regex(pattern).accepts(no.encode())


def test_the_smallest_automaton_is_found() -> None:
    assert len(_compile_regex("(a|b)*abb")) == 4
    assert len(dfa._minimize(dfa._union(_compile_regex("a*"), _compile_regex("(aa)*")))) == 1


def test_schemas_become_json_texts() -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer"}, "ok": {"type": "boolean"}}}
    automaton = compile_rule(Json({**schema, "required": ["age", "ok"]}))
    assert automaton.accepts(b'{"age": 7, "ok": true}')
    assert not automaton.accepts(b'{"age": 07, "ok": true}')
    assert not automaton.accepts(b'{"age": 7}')


def test_a_bomb_is_killed() -> None:
    with pytest.raises(AutomatonTooLarge, match="takes more than 1 seconds to compile"):
        _compile_regex("((a{0,60}){0,60}){0,60}", seconds=1)


def test_two_equal_columns_are_one_class() -> None:
    kind, first = dfa._unique_columns(np.array([[1, 2, 1, -1], [3, 3, 3, -1]]))
    assert kind[0] == kind[2] != kind[1]
    assert sorted(first.tolist()) == [0, 1, 3]


def spelled(tokenizer: Tokenizer, automaton: _TokenAutomaton, ids: list[int]) -> bool:
    """Whether an automaton on tokens accepts a text, which may end there."""
    state = 0
    for token in ids:
        kind = automaton.class_of[token]
        state = automaton.after[state, kind] if kind >= 0 else automaton.states
        if state == automaton.states:
            return False
    return bool(automaton.final[state])


TOKENIZERS = {
    "characters": CharTokenizer("ab "),
    "bytes": ByteTokenizer(),
    "words": WordTokenizer(("a", "b", "ab", ".")),
    "bpe": train_bpe(["ab abab baab"] * 8, 280),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_tokens_are_read_as_the_text_they_spell(name: str) -> None:
    tokenizer, pattern = TOKENIZERS[name], r"(a|b|ab)(( a| b)*\.?|ab+)"
    vocab, table = tokenizer.vocab, _token_bytes(tokenizer)
    automaton = _token_automaton(_compile_regex(pattern), table, vocab, True)
    known = [token for token, piece in enumerate(table.inner) if piece and set(piece) <= set(b"ab .")]
    seen = 0
    for n in range(1, 4):
        for ids in itertools.product(known, repeat=n):
            matches = re.fullmatch(pattern, tokenizer.decode(ids)) is not None
            assert spelled(tokenizer, automaton, list(ids)) == matches
            seen += matches
    assert seen > 3


def test_the_end_token_ends_a_text_and_padding_follows() -> None:
    tokenizer = WordTokenizer(("a", "b"))
    vocab = tokenizer.vocab
    automaton = _token_automaton(_compile_regex("a b"), _token_bytes(tokenizer), vocab, True)
    assert vocab.eos is not None
    assert vocab.pad is not None
    state = 0
    for token in (0, 1, vocab.eos, vocab.pad, vocab.eos):
        state = int(automaton.after[state, automaton.class_of[token]])
    assert state == automaton.ended
    assert automaton.shortest() == 2
    assert automaton.after[0, automaton.class_of[vocab.eos]] == automaton.states  # "" does not match
    assert {automaton.class_of[vocab.mask], automaton.class_of[tokenizer.unknown]} == {-1}
