"""Every text obeys: a thousand texts over forty patterns, every sampler and pick, blocks with caches, holes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import redraft
from redraft import (
    Ancestral,
    Blocks,
    Confidence,
    Constrained,
    DiffusionLM,
    DiffusionLMConfig,
    Interpolating,
    Json,
    Masked,
    Regex,
    Remask,
    Rule,
    Sampler,
    TransformerConfig,
    Unmask,
    constrain,
    rng,
)
from redraft.core import ByteTokenizer, CappedRate, HybridNoise, Tokenizer, TokenProcess, WordTokenizer, train_bpe
from redraft.decoding import (
    AnyOrder,
    Banned,
    ConfidenceThreshold,
    ConstantScore,
    Entropy,
    EntropyBound,
    FirstHitting,
    FrechetProfile,
    GuidedSampler,
    GuidedStar,
    Klass,
    LeftToRight,
    Length,
    LogitFilter,
    Margin,
    OneOf,
    ParticleSampler,
    Required,
    WideInNarrowOut,
    final_canvas,
    hole_mask,
)
from redraft.models import AttentionPattern, BlockCausal, Causal, Full

BYTES = ByteTokenizer()
WORDS = WordTokenizer(("a", "cat", "dog", "sat", "on", "the", "mat", ".", ",", "big"), ("bos", "eos", "pad", "mask"))
BPE = train_bpe(['{"name": "Ada", "age": 36, "ok": true} 2024-05-17 the cat sat on the mat. naïve café'] * 9, 400)
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "ok": {"type": "boolean"}},
    "required": ["name", "age", "ok"],
}


def model_of(
    tokenizer: Tokenizer, process: TokenProcess | None = None, pattern: AttentionPattern = Full()
) -> DiffusionLM:
    process = process or Masked(tokenizer.vocab)
    network = TransformerConfig(width=16, layers=1, heads=2, hidden=32, pattern=pattern)
    head = redraft.models.Softmax() if isinstance(process, Interpolating) else redraft.models.Subs()
    torch.manual_seed(0)
    model = DiffusionLM(DiffusionLMConfig(process, replace(network, rotary=100.0), head), tokenizer).eval()
    for weight in model.parameters():  # far from uniform, so that texts differ
        torch.nn.init.normal_(weight, 0, 0.4)
    return model


def written(
    model: DiffusionLM, rule: Rule, rows: int, new: int, sampler: Any = Unmask(8, Confidence(1.0))
) -> list[str]:
    assert model.tokenizer is not None
    canvas = constrain(model.canvas(new=new, rows=rows), rule, model.tokenizer)
    guided = GuidedSampler(sampler, Constrained(model.process))
    return model.text(final_canvas(guided(model, model.process, canvas, rng=rng(len(str(rule)), rows))))


PATTERNS = (
    r"(19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",  # dates and times
    r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?",
    r"(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day",
    r"[0-9]{1,2} (May|June|July) [0-9]{4}",
    r"(?-u:\d){4}/(?-u:\d\d)",
    r"[A-Z][a-z]+( [a-z]+){1,4}[.!?]",  # sentences
    r"[a-z]+(, [a-z]+)* and [a-z]+",
    r".*dragon.*",  # contains
    r".*(cat|dog).*(cat|dog).*",
    r"(?s).*\n.*",
    r"[^aeiou]{5,20}",
    r"(yes|no|perhaps)",  # alternations
    r"(a|ab|abc)+",
    r"(a|b)*abb",
    r"a|ab|abc|abcd|abcde",
    r"(red|green|blue) (cat|dog)s?",
    r"(x+x+)+y",
    r"",
    r"a?",
    r".{7}",  # lengths
    r".{3,5}",
    r"[ab]{24}",
    r"(ab){0,6}",
    r"[a-f0-9]{8}",  # codes
    r"#[0-9A-F]{6}",
    r"[A-Z]{2}[0-9]{2}( [0-9]{4}){2}",
    r"\+?[0-9]{1,3}-[0-9]{3}-[0-9]{4}",
    r"[a-z0-9]+@[a-z]+\.(com|org)",
    r"(25[0-5]|1?[0-9]{1,2})(\.(25[0-5]|1?[0-9]{1,2})){3}",
    r"-?(0|[1-9][0-9]*)(\.[0-9]+)?",
    r"<b>[^<>]*</b>",
    r"\[[0-9]+(,[0-9]+)*\]",
    r'"([^"\\]|\\["\\])*"',
    r"(?i)redraft",
    r"é+",  # Unicode
    r"[α-ω]{3,6}",
    r"日本(語|人)?",
    r"[A-ZÄÖÜ][a-zäöüß]+",
    r"(?-u:\w)+ (?-u:\w)+",
    r"[😀-😎]{2}",
    r"naïve|café|Zoë",
    r"[^\x00-\x7F]{2,4}",
)


def python_s(pattern: str) -> str:
    """The same pattern for Python, which writes "ASCII only" otherwise (and knows fewer digits and letters)."""
    return pattern.replace("(?-u:", "(?a:")


@pytest.mark.parametrize("first", range(0, len(PATTERNS), 6))
def test_a_thousand_texts_match_their_patterns(first: int) -> None:
    """25 texts of bytes from each of 42 patterns, from a network that knows nothing."""
    model = model_of(BYTES)
    for pattern in PATTERNS[first : first + 6]:
        texts = written(model, Regex(pattern), rows=25, new=24, sampler=Unmask(4, Confidence(1.0)))
        assert len(texts) == 25
        assert [text for text in texts if not re.fullmatch(python_s(pattern), text)] == []


def test_there_are_enough_of_them() -> None:
    assert len(set(PATTERNS)) >= 40
    assert 25 * len(PATTERNS) >= 1000


@pytest.mark.parametrize("sampler", [Unmask(8), Ancestral(16)])
def test_json_of_three_fields_parses(sampler: Sampler) -> None:
    for text in written(model_of(BPE), Json(PERSON), rows=12, new=40, sampler=sampler):
        found = json.loads(text)
        assert [type(found[name]) for name in ("name", "age", "ok")] == [str, int, bool]


@pytest.mark.parametrize(
    ("rule", "obeyed"),
    [
        (Required("cat", "mat") & Banned("dog"), lambda w: {"cat", "mat"} <= set(w) and "dog" not in w),
        (Length(3, 5) & Banned(".", ","), lambda w: 3 <= len(w) <= 5),
        (Length(10, 10) & Banned(".", ","), lambda w: len(w) == 10),
        (Regex("the cat .*") | OneOf("a dog", "big dog"), lambda w: w[:2] == ["the", "cat"] or w[1:] == ["dog"]),
        (Regex("[a-z ]*") & Required("sat") & Length(most=4), lambda w: "sat" in w and len(w) <= 4),
    ],
)
def test_rules_combine(rule: Rule, obeyed: Callable[[list[str]], bool]) -> None:
    for text in written(model_of(WORDS), rule, rows=20, new=12):
        assert obeyed(text.replace(",", " ").replace(".", " ").split()), text


RULE, FULL = Regex("[a-z ]*cat[a-z ]*") & Banned("dog"), re.compile("[a-z ]*cat[a-z ]*")
MASKED = Masked(WORDS.vocab)


@pytest.mark.parametrize(
    ("process", "sampler"),
    [
        *((MASKED, Unmask(3, pick)) for pick in (AnyOrder(), Confidence(), Confidence(0.7), Margin(), Entropy(1.0))),
        *(
            (MASKED, Unmask(10, pick))
            for pick in (ConfidenceThreshold(0.3), FrechetProfile(), EntropyBound(2.0), Klass(0.3, 1.0))
        ),
        *((MASKED, Unmask(10, pick)) for pick in (WideInNarrowOut(0.2, 0.6), LeftToRight(1.0))),
        (MASKED, Unmask(10, stop=True)),
        (MASKED, ParticleSampler(4, 3)),
        (MASKED, FirstHitting()),
        (MASKED, Blocks(Unmask(2), decode_block=4, stop=True)),
        (MASKED, GuidedStar(6, guide=ConstantScore())),
        (Remask(MASKED, CappedRate(0.3)), Ancestral(8)),
        (Interpolating(WORDS.vocab), Ancestral(8)),
        (Interpolating(WORDS.vocab, mixing=HybridNoise(0.3)), Ancestral(8)),
        (Remask(Interpolating(WORDS.vocab, mixing=HybridNoise(0.3)), CappedRate(0.3)), Ancestral(8)),
    ],
    ids=str,
)
def test_every_sampler_obeys(process: TokenProcess, sampler: Sampler) -> None:
    for text in written(model_of(WORDS, process), RULE, rows=10, new=10, sampler=sampler):
        assert FULL.fullmatch(text)
        assert "dog" not in text.split()


@pytest.mark.parametrize("pattern", [BlockCausal(4), Causal(start=WORDS.vocab.size - 1)])
def test_blocks_with_a_cache_obey(pattern: AttentionPattern) -> None:
    model = model_of(WORDS, pattern=pattern)
    sampler = Blocks(Unmask(2, Confidence(1.0)), stop=True)
    cached = written(model, RULE, rows=8, new=10, sampler=sampler)
    assert all(FULL.fullmatch(text) for text in cached)
    assert len(set(cached)) > 1


def test_holes_have_rules_of_their_own() -> None:
    model = model_of(WORDS)
    canvas = model.compose(["the [[2]] sat on [[3]]."] * 10)
    first, second = hole_mask(canvas, 0), hole_mask(canvas, 1)
    canvas = constrain(canvas, OneOf("big cat", "big dog"), WORDS, first)
    canvas = constrain(canvas, Regex("the .*") & Banned("."), WORDS, second)
    done = final_canvas(
        Unmask(3, Confidence(1.0))(Constrained(model.process)(model), model.process, canvas, rng=rng(0, 10))
    )
    for text in model.text(done):
        assert re.fullmatch(r"the big (cat|dog) sat on the [^.]*\.", text)


def test_the_whole_text_counts_the_given_part() -> None:
    model = model_of(WORDS)
    canvas = constrain(model.canvas("the cat", new=6, rows=5), Regex("the cat( on| sat){2,3}"), WORDS)
    texts = model.text(final_canvas(Unmask(3)(Constrained(model.process)(model), model.process, canvas, rng=rng(0, 5))))
    assert all(re.fullmatch("the cat( on| sat){2,3}", text) for text in texts)


def test_filters_go_inside_and_what_they_drop_is_written_if_need_be() -> None:
    model, picky = model_of(WORDS), LogitFilter(top_k=1)
    canvas = constrain(model.canvas(new=8, rows=6), Regex("(the big cat|a dog)"), WORDS)
    denoise = Constrained(model.process)(picky(model))
    texts = model.text(final_canvas(Unmask(4, Confidence(1.0))(denoise, model.process, canvas, rng=rng(0, 6))))
    assert set(texts) <= {"the big cat", "a dog"}
    wrong = picky(Constrained(model.process)(model))
    with pytest.raises(ValueError, match="put Constrained outside the filter"):
        final_canvas(Unmask(4)(wrong, model.process, canvas, rng=rng(0, 6)))
