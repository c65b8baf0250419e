"""Rules with blocks: several at once, every cache, rows that begin anywhere and obey rules of their own."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from redraft import (
    Blocks,
    Canvas,
    Confidence,
    Constrained,
    DiffusionLM,
    Masked,
    Pick,
    Regex,
    Rule,
    Unmask,
    constrain,
    rng,
)
from redraft.decoding import (
    AnyOrder,
    Banned,
    ConfidenceThreshold,
    DualCache,
    EntropyBound,
    GuidedSampler,
    Klass,
    MultiBlock,
    OneOf,
    PrefixCache,
    WideInNarrowOut,
    final_canvas,
)
from redraft.models import AttentionPattern, BlockCausal, Causal
from tests.decoding.constraints.test_outputs import WORDS, model_of
from tests.decoding.constraints.toys import LETTERS, VOCAB, Said, blank, chi_square, law, said

RULES: list[Rule | None] = [Regex("[a-z ]*cat[a-z ]*"), None, OneOf("big mat", "a cat sat on the mat"), Banned("dog")]
PROMPTS = ("the", "a big", "the cat sat on the", "")


def ruled(model: DiffusionLM, index: list[int]) -> Canvas:
    """Rows of prompts of different lengths, in which what follows obeys."""
    canvas = model.canvas([PROMPTS[i] for i in index], new=9)
    return constrain(canvas, [RULES[i] for i in index], WORDS, ~canvas.fixed)


def obeyed(texts: list[str], index: list[int]) -> None:
    patterns = (r"[a-z ]*cat[a-z ]*", r"(?s).*", r"big mat|a cat sat on the mat", r"(?!.*\bdog\b).*")
    for i, text in zip(index, texts, strict=True):
        assert text.startswith(PROMPTS[i])
        assert re.fullmatch(patterns[i], text[len(PROMPTS[i]) :].strip()), text


def written(model: DiffusionLM, sampler: Any, index: list[int]) -> Tensor:
    keys = rng(3, torch.tensor(index))
    return final_canvas(
        GuidedSampler(sampler, Constrained(model.process))(model, model.process, ruled(model, index), rng=keys)
    ).z


def same_as_alone(model: DiffusionLM, sampler: Any) -> Tensor:
    """All rows at once; they obey, and each is what it would be without the others."""
    every = list(range(len(PROMPTS)))
    together = written(model, sampler, every)
    obeyed(model.text(replace(ruled(model, every), z=together)), every)
    for i in every:
        alone = written(model, sampler, [i])
        assert torch.equal(together[i, : alone.shape[1]], alone[0])
    return together


@pytest.mark.parametrize("pattern", [BlockCausal(4), Causal(start=WORDS.vocab.size - 1)], ids=str)
def test_an_exact_cache_changes_nothing(pattern: AttentionPattern) -> None:
    model, pick = model_of(WORDS, pattern=pattern), Confidence(1.0)
    cached, plain = (Blocks(Unmask(2, pick), cache=cache, stop=True) for cache in (True, False))
    assert cached.cache_kind(model.block) == "exact"
    assert plain.cache_kind(model.block) == "none"
    assert torch.equal(same_as_alone(model, cached), same_as_alone(model, plain))


@pytest.mark.parametrize("kind", [PrefixCache, DualCache])
def test_approximate_caches_obey(kind: type[PrefixCache] | type[DualCache]) -> None:
    model = model_of(WORDS)
    sampler = Blocks(Unmask(2, Confidence(1.0)), decode_block=4, cache=kind(), stop=True)
    assert sampler.cache_kind(model.block) == "approximate"
    same_as_alone(model, sampler)
    if kind is PrefixCache:  # it reads all that follows; with refresh=1 nothing is ever stale
        fresh, plain = (replace(sampler, cache=cache) for cache in (kind(refresh=1), False))
        assert torch.equal(written(model, fresh, [0, 2]), written(model, plain, [0, 2]))


PICKS = [
    ConfidenceThreshold(0.3),
    ConfidenceThreshold(0.2, 1.0),
    EntropyBound(2.0),
    Klass(0.3, 1.0),
    WideInNarrowOut(0.2, 0.6),
]


@pytest.mark.parametrize("pick", [*PICKS, Confidence(), AnyOrder()], ids=repr)
def test_several_blocks_at_once_obey(pick: Pick) -> None:
    model = model_of(WORDS)
    same_as_alone(model, MultiBlock(pick, decode_block=3, add=0.3, full=0.6, stop=True))
    sequential = written(model, Blocks(Unmask(None, pick), decode_block=3), [0, 2, 3])
    assert torch.equal(written(model, MultiBlock(pick, 3, add=1, full=1), [0, 2, 3]), sequential)


def test_several_blocks_at_once_keep_the_law() -> None:
    """Both blocks are written at the same time, each given what the other got."""
    log_p, pattern, rows = said(4, seed=7), "a+b?|b(ab)*", 4000
    canvas, process = constrain(blank(4, rows), Regex(pattern), LETTERS), Masked(VOCAB)
    sampler = MultiBlock(AnyOrder(), decode_block=2, add=0, full=0)
    canvases = list(sampler(Constrained(process)(Said(log_p)), process, canvas, rng=rng(1, rows)))
    assert len(canvases) == 3  # two tokens at a time
    found = Counter(tuple(row) for row in canvases[-1].z.tolist())
    assert chi_square(found, law(log_p, pattern)) < 4
