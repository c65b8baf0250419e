"""The embedded stories: exact probabilities, one derivation per text, and dependence across sentences."""

import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice, pairwise

import pytest

from redraft.core import join_words, split_words
from redraft.training import (
    SMALL_LANGUAGE,
    SPLITS,
    STORY_LANGUAGE,
    DrawRule,
    Language,
    RuleBook,
    Story,
    entry,
    split_seed,
)
from redraft.training.data.corpora import grammar_rules as rules, stories
from redraft.training.data.corpora.grammar import (
    _Alternatives,
    _Assign,
    _CaseOf,
    _Emit,
    _Entry,
    _Node,
    _Sequential,
    _Terminal,
)

TURN = 4  # the sentence in which the mood turns


@pytest.fixture(scope="module")
def many() -> list[Story]:
    return list(islice(STORY_LANGUAGE.stories(seed=1), 20_000))


def sentences(text: str) -> list[str]:
    return [sentence.strip() for sentence in re.findall(r"[^.]*\.", text)]


def corpus(rules: RuleBook) -> Language:
    return Language(rules.node("story"), rules.node("summary"), topics={}, lengths=(1, 2))


def derivations(node: _Node, words: tuple[str, ...], at: int, memory: Mapping[str, _Entry]) -> Iterator[tuple]:
    """All (end, memory, log-probability) of a node from a position on: a second parser, by exhaustive backtracking."""
    match node:
        case _Terminal(said):
            if words[at : at + len(said)] == said:
                yield at + len(said), memory, 0.0
        case _Emit((slot, form)):
            yield from derivations(_Terminal(memory[slot][form]), words, at, memory)
        case _Assign(slot, remembered):
            yield at, {**memory, slot: remembered}, 0.0
        case _CaseOf((slot, form), cases):
            yield from derivations(cases[memory[slot][form]], words, at, memory)
        case _Alternatives(options):
            total = sum(option.weight for option in options)
            for weight, option in options:
                for end, after, log_prob in derivations(option, words, at, memory):
                    yield end, after, log_prob + math.log(weight / total)
        case _Sequential(()):
            yield at, memory, 0.0
        case _Sequential((first, *rest)):
            for middle, between, p in derivations(first, words, at, memory):
                for end, after, q in derivations(_Sequential(tuple(rest)), words, middle, between):
                    yield end, after, p + q


def log_probs(language: Language, text: str) -> list[float]:
    """The log-probability of every derivation of a whole text, by the second parser."""
    words = split_words(text)
    return [log_prob for end, _, log_prob in derivations(language.tale, words, 0, {}) if end == len(words)]


def mutants(text: str, vocabulary: tuple[str, ...], rng: random.Random) -> list[str]:
    """A text with one word swapped, deleted or doubled, and with two neighbouring sentences exchanged."""
    words, parts = split_words(text), sentences(text)
    at = rng.randrange(len(words))
    turn = rng.randrange(len(parts) - 1)
    return [
        join_words((*words[:at], rng.choice(vocabulary), *words[at + 1 :])),
        join_words((*words[:at], *words[at + 1 :])),
        join_words((*words[:at], words[at], *words[at:])),
        " ".join((*parts[:turn], parts[turn + 1], parts[turn], *parts[turn + 2 :])),
    ]


# The small language, against the list of all its stories


def test_small_probabilities_sum_to_one_over_distinct_stories() -> None:
    listed = list(SMALL_LANGUAGE.enumerate())
    assert len({text for text, _ in listed}) == len(listed) == SMALL_LANGUAGE.support() == 216
    assert math.fsum(math.exp(log_prob) for _, log_prob in listed) == pytest.approx(1, abs=1e-12)


def test_small_sums_equal_those_over_the_list() -> None:
    listed = [(text, math.exp(log_prob)) for text, log_prob in SMALL_LANGUAGE.enumerate()]
    assert SMALL_LANGUAGE.entropy() == pytest.approx(math.fsum(-p * math.log(p) for _, p in listed), abs=1e-12)
    assert SMALL_LANGUAGE.expected_chars() == pytest.approx(math.fsum(p * len(text) for text, p in listed), abs=1e-10)
    assert SMALL_LANGUAGE.collision() == pytest.approx(math.fsum(p * p for _, p in listed), abs=1e-14)
    assert SMALL_LANGUAGE.entropy_per_char() == pytest.approx(
        SMALL_LANGUAGE.entropy() / SMALL_LANGUAGE.expected_chars()
    )


def test_a_text_is_that_of_its_story_and_so_is_its_probability() -> None:
    for index in range(50):
        story = STORY_LANGUAGE.story(3, index)
        assert STORY_LANGUAGE.text(3, index) == story.text
        assert STORY_LANGUAGE.parse(story.text) == story


def test_a_slot_may_be_drawn_anew() -> None:
    names = [entry(name="Anna"), entry(name="Ben")]
    case = rules.CaseRule(("hero", "name"), {"Anna": "She and {hero.name} slept.", "Ben": "{sang}"})
    parts: dict[str, rules._Rule] = {"story": "{hero} met {hero}. {end}", "hero": DrawRule("hero", names), "end": case}
    twice = corpus(RuleBook({**parts, "sang": ("He sang.", "Rain."), "summary": "Rain."}))
    listed = [(text, math.exp(log_prob)) for text, log_prob in twice.enumerate()]
    assert len(listed) == twice.support() == 2 * (1 + 2)
    assert twice.entropy() == pytest.approx(math.fsum(-p * math.log(p) for _, p in listed))
    assert twice.expected_chars() == pytest.approx(math.fsum(p * len(text) for text, p in listed))


def test_small_language_is_exactly_its_list() -> None:
    listed, rng = dict(SMALL_LANGUAGE.enumerate()), random.Random(0)
    texts = [mutant for text in listed for _ in range(4) for mutant in mutants(text, SMALL_LANGUAGE.words(), rng)]
    inside = [text for text in texts if text in listed]
    assert len(texts) == 3456
    assert len(inside) > 20, "some mutants stay in the language, so both answers are tested"
    for text in (*listed, *texts):
        assert SMALL_LANGUAGE.log_prob(text) == pytest.approx(listed.get(text, -math.inf))


def test_small_prefixes_are_those_of_the_list() -> None:
    listed, rng = [text for text, _ in SMALL_LANGUAGE.enumerate()], random.Random(1)
    prefixes = {" ".join(sentences(text)[:n]) for text in listed for n in range(len(sentences(text)) + 1)}
    seen = Counter[int]()
    for mutant in (mutant for text in listed for mutant in mutants(text, SMALL_LANGUAGE.words(), rng)[2:]):
        parts = sentences(mutant)
        expected = max(n for n in range(len(parts) + 1) if " ".join(parts[:n]) in prefixes)
        assert SMALL_LANGUAGE.grammatical_prefix(mutant) == expected
        seen[expected] += 1
    assert set(seen) >= {0, 1, 2}


def test_small_samples_follow_their_probabilities() -> None:
    number = 10_000
    counts = Counter(story.text for story in islice(SMALL_LANGUAGE.stories(seed=3), number))
    expected = {text: number * math.exp(log_prob) for text, log_prob in SMALL_LANGUAGE.enumerate()}
    chi2 = sum((counts[text] - mean) ** 2 / mean for text, mean in expected.items())
    freedom = len(expected) - 1
    assert abs(chi2 - freedom) < 5 * math.sqrt(2 * freedom)


# The exact figures of the stories


def test_entropy_and_length_agree_with_monte_carlo(many: list[Story]) -> None:
    for exact, draws in (
        (STORY_LANGUAGE.entropy(), [-story.log_prob for story in many]),
        (STORY_LANGUAGE.expected_chars(), [float(len(story.text)) for story in many]),
    ):
        mean = math.fsum(draws) / len(draws)
        variance = math.fsum((draw - mean) ** 2 for draw in draws) / len(draws)
        assert abs(mean - exact) < 4 * math.sqrt(variance / len(draws))


def test_the_language_is_large_and_its_stories_short() -> None:
    assert STORY_LANGUAGE.support() >= 10**9
    assert 40 <= STORY_LANGUAGE.entropy() / math.log(2) <= math.log2(STORY_LANGUAGE.support())
    assert 150 <= STORY_LANGUAGE.expected_chars() <= 320


def test_a_story_has_55_61_or_67_words_and_marks(many: list[Story]) -> None:
    assert {len(split_words(story.text)) for story in many} == {55, 61, 67}


def test_stories_do_not_repeat_within_or_across_splits(many: list[Story]) -> None:
    assert len({story.text for story in many}) == len(many)
    streams = [islice(STORY_LANGUAGE.stories(split_seed(0, split)), 500) for split in SPLITS]
    assert len({story.text for stream in streams for story in stream}) == 3 * 500
    assert STORY_LANGUAGE.collision() * 10**6 * 10**4 < 1e-3, "a million training stories, ten thousand test stories"


# One text, one derivation


def test_a_few_words_decide_every_choice() -> None:
    assert SMALL_LANGUAGE.lookahead() <= 2
    assert STORY_LANGUAGE.lookahead() <= 6


def test_a_second_parser_finds_one_derivation_of_equal_probability(many: list[Story]) -> None:
    for story in many[:400]:
        assert log_probs(STORY_LANGUAGE, story.text) == [pytest.approx(story.log_prob)]


def test_parsing_gives_back_the_story(many: list[Story]) -> None:
    for story in many[:1000]:
        assert STORY_LANGUAGE.parse(story.text) == story
        assert STORY_LANGUAGE.log_prob(story.text) == story.log_prob


def ambiguous(*templates: str) -> Language:
    return corpus(RuleBook({"story": templates, "summary": "Rain."}))


@pytest.mark.parametrize("templates", [("Rain.", "Rain."), ("Rain", "Rain fell."), ("{a=b} Rain.", "{a=c} Rain.")])
def test_ambiguity_is_refused(templates: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="begins two alternatives"):
        ambiguous(*templates).lookahead()


def test_a_text_with_two_derivations_has_no_story() -> None:
    with pytest.raises(ValueError, match="in 2 ways"):
        ambiguous("Rain fell.", "Rain {slot=x} fell.").parse("Rain fell.")


# What is outside the language


def test_the_name_at_the_end_must_be_the_name_at_the_start(many: list[Story]) -> None:
    for story, other in pairwise(many[:250]):
        mine, theirs = story.attributes["who"], other.attributes["who"]
        if mine != theirs:
            start, end = story.text.rsplit(mine, 1)
            assert STORY_LANGUAGE.log_prob(start + theirs + end) == -math.inf
            assert STORY_LANGUAGE.grammatical_prefix(start + theirs + end) == TURN


def test_a_pronoun_must_agree_with_the_name(many: list[Story]) -> None:
    swap = {"He": "She", "She": "He"}
    for story in many[:250]:
        wrong = join_words(swap.get(word, word) for word in split_words(story.text))
        assert wrong != story.text
        assert STORY_LANGUAGE.log_prob(wrong) == -math.inf


def test_the_friend_of_the_plot_is_the_friend_who_is_visited(many: list[Story]) -> None:
    for story, other in pairwise(many[:250]):
        mine, theirs = story.attributes["friend"], other.attributes["friend"]
        if mine != theirs:
            start, end = story.text.rsplit(mine, 1)
            assert mine in start
            assert STORY_LANGUAGE.log_prob(start + theirs + end) == -math.inf


def test_the_thing_that_was_found_comes_back(many: list[Story]) -> None:
    for story in [story for story in many if story.attributes["plot"] == "find"][:250]:
        thing = split_words(story.summary)[7]
        start, end = story.text.rsplit(f" {thing}", 1)
        assert f" {thing}" in start
        assert STORY_LANGUAGE.log_prob(start + (" drum" if thing == "kite" else " kite") + end) == -math.inf


def test_endings_belong_to_their_moods(many: list[Story]) -> None:
    endings: dict[str, set[str]] = {}
    for story in many:
        endings.setdefault(story.attributes["mood"], set()).add(" ".join(sentences(story.text)[TURN].split()[-2:]))
    assert [len(endings[mood]) for mood in sorted(endings)] == [3] * 6
    shared = Counter(ending for mood in endings for ending in endings[mood] if ending != "no more.")
    assert set(shared.values()) == {1}


def test_weather_belongs_to_its_season(many: list[Story]) -> None:
    seasons: dict[str, set[str]] = {}
    for story in many:
        if story.attributes["length"] == "long":
            seasons.setdefault(sentences(story.text)[-1], set()).add(story.attributes["season"])
    assert len(seasons) == 4 * 5
    assert {len(found) for found in seasons.values()} == {1}


def test_a_thousand_mutants_are_judged_as_by_the_second_parser(many: list[Story]) -> None:
    rng = random.Random(4)
    vocabulary = STORY_LANGUAGE.words()
    pairs = [(story.text, mutant) for story in many[:255] for mutant in mutants(story.text, vocabulary, rng)]
    changed = [mutant for text, mutant in pairs if mutant != text]
    assert len(changed) >= 1000
    inside = [text for text in changed if STORY_LANGUAGE.log_prob(text) > -math.inf]
    assert len(inside) < 10, "now and then a word may fit where another stood"
    assert inside == [text for text in changed if log_probs(STORY_LANGUAGE, text)]


@pytest.mark.parametrize("break_", [str.upper, lambda text: text + " ", lambda text: text.replace(". ", ".  ")])
def test_spelling_and_spaces_count(break_: object, many: list[Story]) -> None:
    assert callable(break_)
    assert STORY_LANGUAGE.parse(break_(many[0].text)) is None


def test_texts_that_are_no_story() -> None:
    for text in ("", ".", "Once upon a time.", "One spring day, Anna went to the lake."):
        assert STORY_LANGUAGE.log_prob(text) == -math.inf


# Sentences from the start


def test_prefixes_of_a_story_are_grammatical(many: list[Story]) -> None:
    for story in many[:100]:
        parts = sentences(story.text)
        for n in range(len(parts) + 1):
            assert STORY_LANGUAGE.grammatical_prefix(" ".join(parts[:n])) == n
        assert STORY_LANGUAGE.grammatical_prefix(story.text + " The end.") == len(parts)
        assert STORY_LANGUAGE.grammatical_prefix(" ".join(parts[1:])) == 0


# Access


def test_a_story_is_a_function_of_seed_and_index() -> None:
    first = list(islice(STORY_LANGUAGE.stories(seed=5), 20))
    assert [STORY_LANGUAGE.story(5, index) for index in reversed(range(20))] == first[::-1]
    assert list(islice(STORY_LANGUAGE.stories(seed=5, start=12), 8)) == first[12:]
    assert not {story.text for story in first} & {story.text for story in islice(STORY_LANGUAGE.stories(seed=6), 20)}


def test_the_corpus_has_not_changed() -> None:
    assert SMALL_LANGUAGE.story(0, 0).text == "Rosa went to the lake. Near the boat, she found a drum. Then she swam."
    told = STORY_LANGUAGE.story(0, 0).summary
    assert told == "In summer, Rosa helps a tired kitten in the forest and brings it to Martha the carpenter."


def test_split_seeds_differ_and_unknown_splits_are_refused() -> None:
    assert len({split_seed(seed, split) for seed in range(10) for split in SPLITS}) == 30
    with pytest.raises(ValueError, match="use one of train, valid, test"):
        split_seed(0, "dev")


# Words


def test_words_and_text_determine_each_other(many: list[Story]) -> None:
    for story in many[:2000]:
        assert join_words(split_words(story.text)) == story.text
        assert join_words(split_words(story.summary)) == story.summary


def test_the_vocabulary_is_closed_and_every_word_is_used(many: list[Story]) -> None:
    used = {word for story in many for text in (story.text, story.summary) for word in split_words(text)}
    used |= {word for story in many for pair in story.attributes.items() for word in pair}
    assert tuple(sorted(used)) == STORY_LANGUAGE.words()
    assert 200 <= len(STORY_LANGUAGE.words()) <= 600
    assert all(word.isalpha() or word in ".," for word in STORY_LANGUAGE.words())


def test_phrases_that_stand_for_each_other_have_equal_lengths() -> None:
    for table in (stories._SEASONS, stories._PLACES, stories._MOODS, stories._TRADES, stories._NEEDS):
        lengths: dict[str, set[int]] = {}
        for row in table:
            for form, words in row.items():
                lengths.setdefault(form.rstrip("0123456789"), set()).add(len(words))
        assert {len(found) for found in lengths.values()} == {1}, lengths


# Attributes and summaries


def test_attributes_are_true_of_the_text(many: list[Story]) -> None:
    for story in many[:2000]:
        facts, parts = story.attributes, sentences(story.text)
        assert {facts["who"], facts["where"], facts["season"], facts["mood"]} <= set(split_words(parts[0]))
        assert facts["who"] in split_words(parts[TURN])
        assert f"{facts['friend']} the " in story.text
        assert facts["length"] == {5: "short", 6: "medium"}.get(len(parts), "long")
        assert all(value in STORY_LANGUAGE.labels(name) for name, value in facts.items())


def test_summaries_are_one_sentence_of_the_same_story(many: list[Story]) -> None:
    verbs = {"find": "finds", "help": "helps", "make": "makes"}
    for story in many[:2000]:
        facts, words = story.attributes, split_words(story.summary)
        assert len(sentences(story.summary)) == 1
        assert words[:5] == ("In", facts["season"], ",", facts["who"], verbs[facts["plot"]])
        assert {facts["where"], facts["friend"]} <= set(words)
        trade = words[-2]
        assert f"{facts['friend']} the {trade}" in story.text


def test_every_label_occurs_and_no_length_is_rare(many: list[Story]) -> None:
    for name in (*STORY_LANGUAGE.topics, "length"):
        counts = Counter(story.attributes[name] for story in many)
        assert sorted(counts) == sorted(STORY_LANGUAGE.labels(name))
        assert min(counts.values()) > len(many) / (3 * len(counts))


# Mistakes in a grammar


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"story": "{hero} slept."}, "'hero' is not a rule"),
        ({"story": "{story} slept."}, "contains itself"),
        ({"story": "{hero.} slept."}, "is not a reference"),
        ({"story": "{hero.name} slept."}, "no entry has"),
        ({"story": "{end}", "end": rules.CaseRule(("a", "name"), {"x": "Rain."})}, "no entry has"),
        ({"story": "{a=y} {end}", "end": rules.CaseRule(("a", "name"), {"x": "Rain."})}, r"lack \['y'\]"),
        ({"story": "Rain.", "summary": ("Rain.", "Snow.")}, "summary has a choice"),
    ],
)
def test_mistakes_are_explained(parts: dict[str, rules._Rule], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        corpus(RuleBook({"summary": "Rain.", **parts}))


def test_a_slot_must_be_drawn_before_it_is_recalled() -> None:
    rules = RuleBook(
        {"story": "{hero.name} met {hero}.", "hero": DrawRule("hero", [entry(name="Anna")]), "summary": "Rain."}
    )
    with pytest.raises(ValueError, match="draw it earlier"):
        corpus(rules).story(0, 0)
