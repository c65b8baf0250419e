"""Who sees whom, one rule at a time; attention in both of its forms; the cache as a value."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from redraft.models import (
    AttentionPattern,
    BlockCausal,
    Causal,
    Full,
    KeyValueCache,
    RopeScaling,
)
from redraft.models.networks import attention
from redraft.models.networks.attention import AttentionMask, RotaryEmbedding, _use_flex_attention, attend
from redraft.models.networks.kv_cache import KeyValue, TokenPositions

sizes = st.integers(1, 5)
lengths = st.integers(1, 9)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --- patterns ---


def pairs(pattern: AttentionPattern, length: int) -> Tensor:
    """(L, L) who sees whom."""
    return AttentionMask(pattern, torch.arange(length), length).dense()


@given(block=sizes, length=lengths)
def test_block_causal_sees_its_block_and_earlier_ones(block: int, length: int) -> None:
    mask = pairs(BlockCausal(block), length)
    for q in range(length):
        for k in range(length):
            assert bool(mask[q, k]) == (k // block <= q // block)


@given(block=sizes, length=lengths)
def test_two_streams_follow_the_three_rules(block: int, length: int) -> None:
    """(a) own half and block; (b) noisy sees clean earlier; (c) clean sees clean, not later; nothing else."""
    mask = pairs(BlockCausal(block).streams(torch.arange(length)), 2 * length)
    assert mask.shape == (2 * length, 2 * length)
    for q in range(2 * length):
        for k in range(2 * length):
            noisy_q, noisy_k = q < length, k < length
            bq, bk = q % length // block, k % length // block
            rule = (bq == bk) if noisy_q == noisy_k else (noisy_q and bk < bq)
            assert bool(mask[q, k]) == (rule or (not noisy_q and not noisy_k and bk < bq))


def test_causal_sees_what_came_before() -> None:
    assert torch.equal(pairs(Causal(0), 5), torch.ones(5, 5).tril().bool())
    assert pairs(Full(), 5).all()


@given(block=sizes, length=lengths, data=st.data())
def test_a_mask_is_left_out_exactly_where_all_see_all(block: int, length: int, data: st.DataObject) -> None:
    first, places = data.draw(st.integers(0, length - 1)), torch.arange(length)
    for pattern in (Full(), BlockCausal(block), Causal(0)):
        sight = AttentionMask.of(pattern, places[first:], first, length, None)
        assert (sight is None) == bool(pairs(pattern, length)[first:].all())
        assert (
            AttentionMask.of(pattern, places[first:], first, length, torch.zeros(1, length, dtype=torch.bool))
            is not None
        )
    assert (
        AttentionMask.of(BlockCausal(block).streams(places), torch.arange(2 * length), 0, 2 * length, None) is not None
    )


def test_a_block_has_a_token() -> None:
    with pytest.raises(ValueError, match="a block must have at least one token"):
        BlockCausal(0)


# --- masks ---


@given(queries=st.integers(1, 4), before=st.integers(0, 3), seed=st.integers(0, 999))
@pytest.mark.parametrize("pattern", [Full(), BlockCausal(2), Causal(0)], ids=repr)
def test_padding_is_seen_by_itself_alone(pattern: AttentionPattern, queries: int, before: int, seed: int) -> None:
    keys = before + queries
    pad, allowed = noise(2, keys, seed=seed) > 0, pairs(pattern, keys)
    mask = AttentionMask(pattern, torch.arange(before, keys), keys, pad).dense()
    assert mask.shape == (2, 1, queries, keys)
    for b in range(2):
        for q in range(before, keys):
            for k in range(keys):
                assert bool(mask[b, 0, q - before, k]) == ((not pad[b, k] and bool(allowed[q, k])) or k == q)
    assert mask.any(-1).all(), "a softmax over nothing is not a number"


PATTERNS: list[AttentionPattern] = [Full(), BlockCausal(16), Causal(0), BlockCausal(4).streams(torch.arange(75))]
every_pattern = pytest.mark.parametrize("pattern", PATTERNS, ids=["full", "blocks", "causal", "streams"])


@every_pattern
@pytest.mark.parametrize("padded", [False, True])
def test_some_of_the_queries_see_what_they_saw_among_all(pattern: AttentionPattern, padded: bool) -> None:
    sight = AttentionMask(pattern, torch.arange(150), 150, noise(3, 150) > 0.5 if padded else None)
    index = torch.stack([noise(150, seed=row).argsort()[:20] for row in range(3)])
    whole = sight.dense().expand(3, 1, 150, 150)
    assert torch.equal(sight.at(index).dense(), whole.take_along_dim(index[:, None, :, None], 2))
    again = torch.tensor([[3, 1], [0, 19], [7, 7]])
    assert torch.equal(sight.at(index).at(again).dense(), sight.at(index.gather(1, again)).dense())


@every_pattern
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("first", [0, 20])
@pytest.mark.usefixtures("interpreted")
def test_tiles_attend_as_the_dense_mask_does(pattern: AttentionPattern, padded: bool, first: int) -> None:
    """150 keys are no whole number of tiles; queries from 20 on stand behind a cache; four heads share two of keys."""
    pad = noise(3, 150) > 0.5 if padded else None
    sight = AttentionMask(pattern, torch.arange(first, 150), 150, pad)
    q, k, v = noise(3, 4, 150 - first, 16, seed=1), noise(3, 2, 150, 16, seed=2), noise(3, 2, 150, 16, seed=3)
    dense, tiles = (attend(q, k, v, mask) for mask in (sight.dense(), sight.tiles()))
    assert torch.allclose(tiles, dense, atol=1e-5)
    assert not torch.allclose(dense, attend(q, k, v, None), atol=1e-2) or (pattern == Full() and not padded)


def test_tiles_that_nobody_sees_are_left_out() -> None:
    """Of 8 × 8 tiles of two streams, 512 tokens each: 4 of noisy tokens, 6 of clean earlier ones, 10 of clean ones."""
    streams = AttentionMask(BlockCausal(128).streams(torch.arange(512)), torch.arange(1024), 1024).tiles()
    causal = AttentionMask(Causal(0), torch.arange(1024), 1024).tiles()
    assert (streams.sparsity(), causal.sparsity()) == pytest.approx((100 * (1 - 20 / 64), 100 * (1 - 36 / 64)))


def test_tiles_are_for_training_on_gpus() -> None:
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert _use_flex_attention(gpu, grad=True, queries=256, head_width=64)
    assert not _use_flex_attention(cpu, grad=True, queries=256, head_width=64), "no backward pass"
    assert not _use_flex_attention(gpu, grad=False, queries=256, head_width=64), "a compilation for every shape"
    assert not _use_flex_attention(gpu, grad=True, queries=128, head_width=64), "one row of tiles"
    assert not _use_flex_attention(gpu, grad=True, queries=256, head_width=8), "no such kernel"
    assert isinstance(AttentionMask(Causal(0), torch.arange(256), 256).mask(64), Tensor)


def test_the_chosen_form_is_the_one_that_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(attention, "_use_flex_attention", lambda *case: asked.append(case) or True)
    assert isinstance(AttentionMask(Causal(0), torch.arange(4), 4).mask(16), BlockMask)
    with torch.no_grad():
        AttentionMask(Causal(0), torch.arange(2, 4), 4).mask(8)
    assert asked == [(torch.device("cpu"), True, 4, 16), (torch.device("cpu"), False, 2, 8)]


# --- attention ---


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_attention_in_bfloat16_agrees_with_the_fused_kernel(groups: int, masked: bool) -> None:
    q, k, v = noise(2, 4, 6, 8, seed=1), noise(2, groups, 9, 8, seed=2), noise(2, groups, 9, 8, seed=3)
    mask = (noise(2, 1, 6, 9, seed=4) > 0) | (torch.arange(9) == 0) if masked else None
    exact = attend(q, k, v, mask)
    again = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    assert torch.allclose(exact, again, atol=1e-6)
    coarse = attend(q.bfloat16(), k.bfloat16(), v.bfloat16(), mask)
    assert coarse.dtype == torch.bfloat16
    assert torch.allclose(coarse.float(), exact, atol=0.03)


def test_attention_in_bfloat16_never_sees_what_is_hidden() -> None:
    q, k, v = (noise(1, 2, 5, 8, seed=s).bfloat16() for s in (1, 2, 3))
    mask = torch.ones(5, 5).tril().bool()
    later = torch.tensor([0, 0, 0, 100, 100])[:, None]
    edited = attend(q, k + later, v + later, mask)
    assert torch.equal(attend(q, k, v, mask)[:, :, :3], edited[:, :, :3])


# --- rotary positions ---


@given(shift=st.integers(0, 500), seed=st.integers(0, 99))
def test_rotary_scores_depend_on_distance_alone(shift: int, seed: int) -> None:
    q, k, pos = noise(1, 1, 6, 8, seed=seed), noise(1, 1, 6, 8, seed=seed + 1), torch.arange(6)
    here, there = (RotaryEmbedding.of(p, 8, 100.0) for p in (pos, pos + shift))
    scores, moved = (r(q) @ r(k).transpose(-1, -2) for r in (here, there))
    assert torch.allclose(scores, moved, atol=2e-3)
    assert torch.allclose(here(q).norm(dim=-1), q.norm(dim=-1), rtol=1e-5), "a rotation keeps lengths"


def test_position_zero_is_not_rotated() -> None:
    q = noise(1, 1, 1, 8)
    assert torch.equal(RotaryEmbedding.of(torch.tensor([0]), 8, 10_000.0)(q), q)
    assert RotaryEmbedding.of(torch.tensor([3]), 8, 10_000.0)(q.bfloat16()).dtype == torch.bfloat16


# --- the cache ---


def some(count: int, seed: int) -> list[KeyValue]:
    """Keys and values of `count` tokens in two layers."""
    k1, v1, k2, v2 = noise(4, 3, 2, count, 4, seed=seed)
    return [(k1, v1), (k2, v2)]


def held(cache: KeyValueCache) -> list[Tensor]:
    return [a.clone() for i in range(2) for a in cache.layer(i) or ()]


def expected(*parts: list[KeyValue]) -> list[Tensor]:
    return [torch.cat([part[i][j] for part in parts], 2) for i in range(2) for j in range(2)]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_an_empty_cache_holds_nothing() -> None:
    cache = KeyValueCache()
    assert (cache.columns, cache.covers.numel(), cache.layer(0), cache.missing) == (0, 0, None, None)
    assert cache.rows(torch.tensor([0])).columns == 0


def test_rows_of_a_cache_are_a_cache_of_their_own() -> None:
    first = some(3, 0)
    missing, ahead = noise(3, 3) > 0, noise(3, 1, 5)
    cache = KeyValueCache(tuple(first), missing, ahead, start_columns=1, exact=False)
    index = torch.tensor([2, 0])
    picked = cache.rows(index)
    assert picked.last_state is not None
    assert torch.equal(picked.covers, ~missing[index, 1:])
    assert torch.equal(picked.last_state, ahead[index])
    assert not picked.exact
    assert same(held(picked), [a[index] for a in expected(first)])
    assert same(held(cache), expected(first))


@given(count=st.integers(0, 4), lo=st.integers(0, 5), size=st.integers(1, 3), seed=st.integers(0, 99))
def test_keys_are_joined_by_place(count: int, lo: int, size: int, seed: int) -> None:
    """A window behind the cache, inside it, across its end or beyond; slices do what places one by one do."""
    old, new = KeyValueCache(tuple(some(count, seed)) if count else ()), some(size, seed + 1)
    pad, alike = noise(3, size, seed=seed) > 0.5, torch.arange(lo, lo + size)[None]
    by_slices, by_place = (TokenPositions.of(place, new[0][0][:, 0], old) for place in (alike, alike.expand(3, -1)))
    assert (by_slices.first is None) == (lo > count), "a gap behind the cache"
    assert by_place.first is None
    for padding in (None, pad):
        found, wanted = (stand.missing(old, padding) for stand in (by_slices, by_place))
        assert wanted is not None
        assert torch.equal(wanted, torch.zeros_like(wanted) if found is None else found)
        for j in range(max(count, lo + size)):
            here = lo <= j < lo + size
            assert wanted[:, j].tolist() == (
                (pad[:, j - lo] if padding is not None else torch.zeros(3) > 0).tolist() if here else [j >= count] * 3
            )
    (k, v), (k2, v2) = (stand.join(old.layer(1), new[1]) for stand in (by_slices, by_place))
    assert torch.equal(k, k2)
    assert torch.equal(v, v2)
    assert torch.equal(v[:, :, lo : lo + size], new[1][1])
    assert same([k[:, :, j] for j in range(min(lo, count))], [old.layers[1][0][:, :, j] for j in range(min(lo, count))])


@pytest.mark.parametrize("shape", [(7, 8), (2, 1, 7, 8)])
def test_rotary_positions_turn_pairs_and_gradients_turn_back(shape: tuple[int, ...]) -> None:
    """Number i and number i + d/2 are a point of the plane, turned by an angle."""
    angle = torch.randn(*shape[:-1], 4, dtype=torch.float64)
    cos, sin = angle.cos(), angle.sin()
    turn = attention.RotaryEmbedding(torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1))
    a = torch.randn(2, 3, 7, 8, dtype=torch.float64, requires_grad=True)
    x, y = a.chunk(2, -1)
    expected = torch.cat([x * cos - y * sin, y * cos + x * sin], -1)
    assert torch.allclose(attention._RotateHalf.apply(a, turn.cos, turn.sin), expected)
    assert torch.allclose(turn(a.float()), expected.float(), atol=1e-5)
    assert torch.autograd.gradcheck(attention._RotateHalf.apply, (a, turn.cos, turn.sin))


@pytest.mark.parametrize("turns", [0.2, 1.0, 1.7, 4.0, 30.0])
def test_slow_positions_turn_as_those_of_llama_3(turns: float) -> None:
    """Its rule, in wavelengths: long ones are stretched, short ones stay, between them both are mixed."""
    factor, low, high, known = 8.0, 1.0, 4.0, 8192
    frequency = torch.tensor([2 * math.pi * turns / known], dtype=torch.float64)
    wavelength = 2 * math.pi / frequency
    if wavelength < known / high:
        expected = frequency
    elif wavelength > known / low:
        expected = frequency / factor
    else:
        smooth = (known / wavelength - low) / (high - low)
        expected = (1 - smooth) * frequency / factor + smooth * frequency
    torch.testing.assert_close(RopeScaling(factor, known, low, high)(frequency), expected)
    torch.testing.assert_close(RopeScaling(factor)(frequency), frequency / factor)
