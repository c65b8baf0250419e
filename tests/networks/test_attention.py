"""Who sees whom, one rule at a time; attention in both of its forms; the cache as a value."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from redraft.networks.attention import (
    BlockCausal,
    Causal,
    Full,
    KeyValue,
    KeyValues,
    Rotary,
    attend,
    join_pads,
    visible,
)

sizes = st.integers(1, 5)
lengths = st.integers(1, 9)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --- patterns ---


@given(block=sizes, length=lengths)
def test_block_causal_sees_its_block_and_earlier_ones(block: int, length: int) -> None:
    pos = torch.arange(length)
    allowed = BlockCausal(block).allowed(pos, pos)
    assert allowed is not None
    for q in range(length):
        for k in range(length):
            assert bool(allowed[q, k]) == (k // block <= q // block)


@given(block=sizes, length=lengths)
def test_two_streams_follow_the_three_rules(block: int, length: int) -> None:
    """(a) own half and block; (b) noisy sees clean earlier; (c) clean sees clean, not later; nothing else."""
    mask = BlockCausal(block).streams(torch.arange(length))
    assert mask.shape == (2 * length, 2 * length)
    for q in range(2 * length):
        for k in range(2 * length):
            noisy_q, noisy_k = q < length, k < length
            bq, bk = q % length // block, k % length // block
            rule = (bq == bk) if noisy_q == noisy_k else (noisy_q and bk < bq)
            assert bool(mask[q, k]) == (rule or (not noisy_q and not noisy_k and bk < bq))


def test_causal_sees_what_came_before() -> None:
    pos = torch.arange(5)
    allowed = Causal(0).allowed(pos, pos)
    assert allowed is not None
    assert torch.equal(allowed, torch.ones(5, 5).tril().bool())
    assert Causal(0).allowed(pos[4:], pos) is None
    assert Full().allowed(pos, pos) is None


def test_a_block_has_a_token() -> None:
    with pytest.raises(ValueError, match="a block has at least one token"):
        BlockCausal(0)


@given(queries=st.integers(1, 4), before=st.integers(0, 3), seed=st.integers(0, 999), patterned=st.booleans())
def test_padding_is_seen_by_itself_alone(queries: int, before: int, seed: int, patterned: bool) -> None:
    keys = before + queries
    pad = noise(2, keys, seed=seed) > 0
    pos = torch.arange(keys)
    allowed = BlockCausal(2).allowed(pos[before:], pos) if patterned else None
    mask = visible(allowed, pad, queries)
    assert mask is not None
    mask = mask.expand(2, 1, queries, keys)
    for b in range(2):
        for q in range(queries):
            for k in range(keys):
                seen = not pad[b, k] and (allowed is None or bool(allowed[q, k]))
                assert bool(mask[b, 0, q, k]) == (seen or k == before + q)
    assert mask.any(-1).all(), "a softmax over nothing is not a number"


def test_without_padding_the_pattern_is_the_mask() -> None:
    assert visible(None, None, 3) is None
    allowed = torch.ones(3, 3, dtype=torch.bool)
    assert visible(allowed, None, 3) is allowed


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
    here, there = (Rotary.of(p, 8, 100.0) for p in (pos, pos + shift))
    scores, moved = (r(q) @ r(k).transpose(-1, -2) for r in (here, there))
    assert torch.allclose(scores, moved, atol=2e-3)
    assert torch.allclose(here(q).norm(dim=-1), q.norm(dim=-1), rtol=1e-5), "a rotation keeps lengths"


def test_position_zero_is_not_rotated() -> None:
    q = noise(1, 1, 1, 8)
    assert torch.equal(Rotary.of(torch.tensor([0]), 8, 10_000.0)(q), q)
    assert Rotary.of(torch.tensor([3]), 8, 10_000.0)(q.bfloat16()).dtype == torch.bfloat16


# --- the cache ---


def some(count: int, seed: int) -> list[KeyValue]:
    """Keys and values of `count` tokens in two layers."""
    k1, v1, k2, v2 = noise(4, 3, 2, count, 4, seed=seed)
    return [(k1, v1), (k2, v2)]


def held(cache: KeyValues) -> list[Tensor]:
    return [a.clone() for i in range(2) for a in cache.layer(i) or ()]


def expected(*parts: list[KeyValue]) -> list[Tensor]:
    return [torch.cat([part[i][j] for part in parts], 2) for i in range(2) for j in range(2)]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_a_cache_holds_what_was_appended(counts: list[int]) -> None:
    """Also across the growth of its buffers."""
    cache, parts = KeyValues.empty(2), [some(n, seed) for seed, n in enumerate(counts)]
    for i, part in enumerate(parts):
        cache = cache.append(part, None, None)
        assert cache.length == sum(counts[: i + 1])
        assert same(held(cache), expected(*parts[: i + 1]))


def test_an_empty_cache_holds_nothing() -> None:
    cache = KeyValues.empty(2)
    assert (cache.length, cache.layer(0), cache.pad) == (0, None, None)
    assert cache.rows(torch.tensor([0])).length == 0


def test_branches_do_not_disturb_each_other() -> None:
    stem_part, left_part, right_part, end = some(3, 0), some(2, 1), some(2, 2), some(1, 3)
    stem = KeyValues.empty(2).append(stem_part, None, None)
    left = stem.append(left_part, None, None)
    right = stem.append(right_part, None, None)
    longer_left, longer_right = left.append(end, None, None), right.append(end, None, None)
    again = stem.append(end, None, None)
    assert same(held(stem), expected(stem_part))
    assert same(held(left), expected(stem_part, left_part))
    assert same(held(right), expected(stem_part, right_part))
    assert same(held(longer_left), expected(stem_part, left_part, end))
    assert same(held(longer_right), expected(stem_part, right_part, end))
    assert same(held(again), expected(stem_part, end))


def test_rows_of_a_cache_are_a_cache_of_their_own() -> None:
    first, second = some(3, 0), some(2, 1)
    pad, ahead = noise(3, 3) > 0, noise(3, 1, 5)
    cache = KeyValues.empty(2).append(first, pad, ahead)
    index = torch.tensor([2, 0])
    picked = cache.rows(index)
    assert picked.pad is not None
    assert picked.ahead is not None
    assert torch.equal(picked.pad, pad[index])
    assert torch.equal(picked.ahead, ahead[index])
    longer = picked.append([(k[index], v[index]) for k, v in second], None, None)
    assert same(held(longer), [a[index] for a in expected(first, second)])
    assert same(held(cache), expected(first))


def test_paddings_join() -> None:
    like, pad = torch.zeros(2, 1), torch.tensor([[True], [False]])
    assert join_pads(None, 2, None, 1, like) is None
    joined = [join_pads(None, 2, pad, 1, like), join_pads(pad, 1, None, 2, like)]
    assert [j.tolist() for j in joined if j is not None] == [
        [[False, False, True], [False, False, False]],
        [[True, False, False], [False, False, False]],
    ]
