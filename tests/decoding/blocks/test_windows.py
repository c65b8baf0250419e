"""Windows and caches: each cache keeps its word, exact or approximate; rows leave the batch when they are done."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from redraft.core import Canvas, CharTokenizer, Condition, Context, Masked, Rng, Vocab, rng
from redraft.decoding import (
    Ancestral,
    ApproximateCache,
    Blocks,
    ClassifierFree,
    Confidence,
    Constrained,
    DualCache,
    FirstHitting,
    GuidedSampler,
    PrefixCache,
    Regex,
    Sampler,
    Unmask,
    constrain,
    final_canvas,
)
from redraft.models import AttentionPattern, BlockCausal, Causal, DiffusionLM, Full, Shift, TransformerConfig

Build = Callable[..., DiffusionLM]
Ragged = Callable[[int, int, int], Canvas]
Promises = Callable[[Sampler, DiffusionLM, Canvas, Rng], Canvas]
RowsAlone = Callable[[Sampler, DiffusionLM], None]
MASK = 6
INNER = [Ancestral(3), FirstHitting(), Unmask(2), Unmask(3, Confidence(1.0))]
CACHES = [PrefixCache(), DualCache(), PrefixCache(2), DualCache(2)]


@pytest.fixture(scope="module")
def placed(build: Build, tiny: TransformerConfig) -> Build:
    """With learned positions no two masks look the same; with rotary ones all masks of an empty row do."""
    config = replace(tiny, rotary=None, positions=16)
    return lambda pattern, time=None, **more: build(pattern, replace(config, time=time), **more)


def prompts(*sizes: int, length: int) -> Canvas:
    """Rows with prompts of these lengths."""
    z = torch.randint(0, MASK, (len(sizes), length), generator=torch.Generator().manual_seed(1))
    return Canvas(z, torch.arange(length) < torch.tensor(sizes)[:, None])


def write(sampler: Sampler, model: DiffusionLM, canvas: Canvas, seed: int = 0) -> Tensor:
    return final_canvas(sampler(model, model.process, canvas, rng=rng(seed, len(canvas.z)))).z


def shapes(model: DiffusionLM) -> list[tuple[int, int]]:
    """Filled with the (rows, columns) of each pass of the network."""
    found: list[tuple[int, int]] = []
    model.network.blocks[0].register_forward_pre_hook(lambda _, args: found.append(tuple(args[0].shape[:2])))
    return found


# --- approximate caches ---


@pytest.mark.parametrize("cache", [PrefixCache(1), DualCache(1)], ids=repr)
@pytest.mark.parametrize("inner", INNER, ids=repr)
@pytest.mark.parametrize("time", [None, 8])
def test_a_cache_refreshed_at_every_step_is_exact(
    placed: Build, ragged: Ragged, cache: ApproximateCache, inner: Sampler, time: int | None
) -> None:
    model, canvas = placed(Full(), time=time), ragged(12, 11, 3)
    for size in (1, 3, 11):
        plain = write(Blocks(inner, decode_block=size), model, canvas)
        assert torch.equal(write(Blocks(inner, decode_block=size, cache=cache), model, canvas), plain)


def test_a_cache_that_is_not_refreshed_is_approximate(placed: Build) -> None:
    """The word says no more than that: some texts differ, and those written in a single step do not."""
    model, canvas = placed(Full()), prompts(*[3] * 40, length=15)
    plain = write(Blocks(Unmask(6), decode_block=6), model, canvas)
    one_step = write(Blocks(Unmask(1), decode_block=6), model, canvas)
    for cache in (PrefixCache(), DualCache()):
        assert not torch.equal(write(Blocks(Unmask(6), decode_block=6, cache=cache), model, canvas), plain)
        assert torch.equal(write(Blocks(Unmask(1), decode_block=6, cache=cache), model, canvas), one_step)


@given(seed=st.integers(0, 10**6), inner=st.sampled_from(INNER), cache=st.sampled_from(CACHES), size=st.integers(1, 9))
def test_promises(
    build: Build,
    ragged: Ragged,
    assert_promises: Promises,
    seed: int,
    inner: Sampler,
    cache: ApproximateCache,
    size: int,
) -> None:
    assert_promises(Blocks(inner, decode_block=size, cache=cache), build(), ragged(4, 8, seed), rng(seed, 4))


@pytest.mark.parametrize("cache", [PrefixCache(), DualCache(2)], ids=repr)
def test_a_row_is_written_as_if_alone(placed: Build, assert_rows_alone: RowsAlone, cache: ApproximateCache) -> None:
    """Though rows of a batch begin their blocks at different places."""
    assert_rows_alone(Blocks(Unmask(2), decode_block=3, cache=cache), placed(Full()))


def test_only_the_window_is_read(placed: Build) -> None:
    """A block begins with one pass over the whole row, whose states serve the first step; then only the window."""
    canvas = prompts(2, 2, length=10)
    for cache, columns in ((DualCache(), 4), (PrefixCache(), 8), (DualCache(2), 4)):
        model = placed(Full())
        passes = shapes(model)
        write(Blocks(Unmask(4), decode_block=4, cache=cache), model, canvas)
        first, second = ([10, columns, columns, columns], [10, 4, 4, 4])
        if cache.refresh:
            first[2] = second[2] = 10
        assert passes == [(2, n) for n in first + second]


def test_rows_without_anything_to_write_cost_nothing(placed: Build) -> None:
    canvas, model = prompts(10, 2, 6, length=10), placed(Full())
    passes = shapes(model)
    write(Blocks(Unmask(4), decode_block=4, cache=DualCache()), model, canvas)
    assert passes == [(2, 10)] + [(2, 4)] * 3 + [(1, 10)] + [(1, 4)] * 3
    assert write(Blocks(Unmask(4), decode_block=4, cache=DualCache()), model, prompts(10, length=10)).shape == (1, 10)
    assert len(passes) == 8


def test_guidance_goes_around_the_blocks(build: Build, tiny: TransformerConfig) -> None:
    """Each branch then has a cache of its own."""
    model = build(Full(), replace(tiny, time=8, classes=2))
    canvas = prompts(2, 4, 3, length=9)
    canvas = replace(canvas, context=Context(condition=Condition(label=torch.tensor([0, 1, 1]))))
    plain, cached = (Blocks(Unmask(3), decode_block=3, cache=cache) for cache in (False, DualCache(1)))
    free = ClassifierFree(2.0)
    assert torch.equal(
        write(GuidedSampler(plain, free), model, canvas), write(GuidedSampler(cached, free), model, canvas)
    )
    with pytest.raises(ValueError, match=r"use GuidedSampler\(Blocks\(…\), …\)"):
        write(replace(cached, sampler=GuidedSampler(Unmask(3), free)), model, canvas)


def test_the_word_of_a_cache(build: Build) -> None:
    full, blocks = build(), build(BlockCausal(3))
    assert Blocks(decode_block=4, cache=DualCache()).cache_kind(full.block) == "approximate"
    assert Blocks(decode_block=4).cache_kind(full.block) == Blocks(cache=False).cache_kind(blocks.block) == "none"
    assert Blocks().cache_kind(blocks.block) == "exact"


def test_what_does_not_fit_is_refused(build: Build) -> None:
    with pytest.raises(ValueError, match=r"refresh=0; it must be at least 1 step, or None"):
        DualCache(0)
    with pytest.raises(ValueError, match=r"cache=DualCache\(\); a network that writes in blocks has an exact cache"):
        write(Blocks(cache=DualCache()), build(BlockCausal(3)), prompts(0, length=6))
    inner = Blocks(Ancestral(1), decode_block=1, cache=DualCache())
    with pytest.raises(ValueError, match="do not nest Blocks inside Blocks"):
        write(Blocks(inner, decode_block=3, cache=DualCache()), build(), prompts(0, length=6))


@pytest.mark.parametrize(("pattern", "size"), [(Full(), 3), (BlockCausal(3), None)])
def test_rules_hold_in_windows_of_rows_with_different_prompts(
    build: Build, tiny: TransformerConfig, pattern: AttentionPattern, size: int | None
) -> None:
    letters = CharTokenizer("ab", ("eos", "mask"))
    model = build(pattern, replace(tiny, rotary=None, positions=16), process=Masked(letters.vocab), tokenizer=letters)
    canvas = model.compose([["ab", 8], ["abba", 6], ["", 10], ["ab", 8]])
    canvas = constrain(canvas, Regex("(abba|ab)*"), letters)
    sampler = Blocks(Unmask(2), decode_block=size, cache=DualCache() if size else True)
    end = final_canvas(sampler(Constrained(model.process)(model), model.process, canvas, rng=rng(0, 4)))
    texts = model.text(end)
    assert all(re.fullmatch("(abba|ab)*", text) for text in texts), texts


@pytest.mark.parametrize("cache", [PrefixCache(1), DualCache(1), DualCache()], ids=repr)
def test_a_shifted_head_reads_the_state_before_the_window(placed: Build, cache: ApproximateCache) -> None:
    model, canvas = placed(Full(), head=Shift()), prompts(1, 4, 3, 7, length=11)
    plain = write(Blocks(Unmask(3), decode_block=3), model, canvas)
    same = torch.equal(write(Blocks(Unmask(3), decode_block=3, cache=cache), model, canvas), plain)
    assert same == (cache.refresh == 1)


# --- exact caches ---


@pytest.mark.parametrize("pattern", [BlockCausal(2), BlockCausal(3), Causal(MASK)], ids=repr)
@pytest.mark.parametrize("inner", [Ancestral(2), Unmask(2)], ids=repr)
def test_prompts_of_different_lengths_are_written_side_by_side(
    placed: Build, pattern: AttentionPattern, inner: Sampler
) -> None:
    """Every row is at a block of its own: the texts are those without a cache, in fewer passes."""
    canvas, model = prompts(0, 7, 3, 12, 6, length=12), placed(pattern)
    plain = write(Blocks(inner, cache=False), model, canvas)
    passes = shapes(model)
    assert torch.equal(write(Blocks(inner), model, canvas), plain)
    assert max(rows for rows, _ in passes) == 4, "the row that is given is never read"
    together = len(passes)
    passes.clear()
    write(Blocks(inner), model, canvas.rows(torch.tensor([0])))
    if inner == Unmask(2):
        assert together == len(passes) + isinstance(pattern, BlockCausal), "one pass for the prompts, no other"


def test_rows_that_have_ended_leave_the_batch(placed: Build) -> None:
    end = 3
    model = placed(BlockCausal(2), process=Masked(Vocab(7, mask=MASK, eos=end)))
    canvas, sampler = prompts(*[2] * 20, length=12), Blocks(Unmask(2, Confidence(1.0)), stop=True)
    passes = shapes(model)
    z = write(sampler, model, canvas)
    ends = torch.where((z[:, 2:] == end).any(1), (z[:, 2:] == end).int().argmax(1), 9)
    assert ends.unique().numel() > 3, "rows end at different places"
    assert passes[-1][0] == int((ends >= 8).sum()) < 20
    assert write(sampler, model, canvas.rows(torch.tensor([0]))).tolist() == z[:1].tolist()
