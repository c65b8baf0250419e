"""Left to right in blocks: promises, an exact cache, stop tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from redraft.core import Canvas, Masked, Rng, Vocab, rng
from redraft.decoding import Ancestral, Blocks, Confidence, FirstHitting, Sampler, Unmask, final_canvas
from redraft.models import AttentionPattern, BlockCausal, Causal, DiffusionLM, Full, TransformerConfig

Build = Callable[..., DiffusionLM]
Ragged = Callable[[int, int, int], Canvas]
Promises = Callable[[Sampler, DiffusionLM, Canvas, Rng], Canvas]
RowsAlone = Callable[[Sampler, DiffusionLM], None]
MASK = 6
PATTERNS = [BlockCausal(1), BlockCausal(2), BlockCausal(3), BlockCausal(4), Causal(MASK)]
INNER = [Ancestral(1), Ancestral(3), FirstHitting(), Unmask(2), Unmask(3, Confidence(1.0))]
every_pattern = pytest.mark.parametrize("pattern", PATTERNS, ids=repr)


@pytest.fixture(scope="module")
def placed(build: Build, tiny: TransformerConfig) -> Build:
    """With learned positions no two masks look the same; with rotary ones all masks of an empty row do."""
    return lambda pattern: build(pattern, replace(tiny, rotary=None, positions=16))


def blank(rows: int, length: int) -> Canvas:
    return Canvas(torch.zeros(rows, length, dtype=torch.int64), torch.zeros(rows, length, dtype=torch.bool))


def write(blocks: Blocks, model: DiffusionLM, canvas: Canvas, seed: int = 0) -> Tensor:
    return final_canvas(blocks(model, model.process, canvas, rng=rng(seed, len(canvas.z)))).z


# --- promises ---


@given(seed=st.integers(0, 10**6), inner=st.sampled_from(INNER), pattern=st.sampled_from(PATTERNS), cache=st.booleans())
def test_promises(
    build: Build,
    ragged: Ragged,
    assert_promises: Promises,
    seed: int,
    inner: Sampler,
    pattern: AttentionPattern,
    cache: bool,
) -> None:
    assert_promises(Blocks(inner, cache=cache), build(pattern), ragged(4, 8, seed), rng(seed, 4))


@given(seed=st.integers(0, 10**6), inner=st.sampled_from(INNER), size=st.integers(1, 9))
def test_promises_with_full_attention(
    build: Build, ragged: Ragged, assert_promises: Promises, seed: int, inner: Sampler, size: int
) -> None:
    assert_promises(Blocks(inner, decode_block=size), build(), ragged(4, 8, seed), rng(seed, 4))


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("pattern", [BlockCausal(3), Causal(MASK)], ids=repr)
def test_a_row_is_written_as_if_alone(
    build: Build, assert_rows_alone: RowsAlone, pattern: AttentionPattern, cache: bool
) -> None:
    assert_rows_alone(Blocks(Ancestral(3), cache=cache), build(pattern))


@pytest.mark.parametrize("inner", [FirstHitting(), Unmask(2)], ids=repr)
def test_a_row_is_written_as_if_alone_with_full_attention(
    placed: Build, assert_rows_alone: RowsAlone, inner: Sampler
) -> None:
    assert_rows_alone(Blocks(inner, decode_block=3), placed(Full()))


def test_threads_do_not_change_the_text(build: Build, ragged: Ragged) -> None:
    model, canvas, before = build(BlockCausal(3)), ragged(20, 9, 0), torch.get_num_threads()
    written = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            written.append(write(Blocks(Ancestral(3)), model, canvas))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*written)


# --- the cache ---


@every_pattern
@pytest.mark.parametrize("inner", INNER, ids=repr)
def test_cached_text_is_the_text(placed: Build, ragged: Ragged, pattern: AttentionPattern, inner: Sampler) -> None:
    model, canvas = placed(pattern), ragged(12, 11, 3)
    assert torch.equal(write(Blocks(inner), model, canvas), write(Blocks(inner, cache=False), model, canvas))


@pytest.mark.parametrize("pattern", PATTERNS[:-1], ids=repr)
@pytest.mark.parametrize("inner", INNER[:3], ids=repr)
def test_cached_text_is_the_text_for_a_network_that_sees_time(
    build: Build, tiny: TransformerConfig, ragged: Ragged, pattern: AttentionPattern, inner: Sampler
) -> None:
    model, canvas = build(pattern, replace(tiny, time=8)), ragged(12, 11, 3)
    assert torch.equal(write(Blocks(inner), model, canvas), write(Blocks(inner, cache=False), model, canvas))


def test_a_cached_network_reads_each_token_once(build: Build) -> None:
    """Autoregressive sampling: after the prompt, one column per call."""
    model, canvas = build(Causal(MASK)), blank(2, 8)
    canvas = replace(canvas, fixed=torch.arange(8).expand(2, -1) < 3)
    columns: list[int] = []
    model.network.blocks[0].register_forward_pre_hook(lambda _, args: columns.append(args[0].shape[1]))
    write(Blocks(Ancestral(1)), model, canvas)
    assert columns == [4, 1, 1, 1, 1], "start token and prompt, then each token but the last"
    columns.clear()
    write(Blocks(Ancestral(1), cache=False), model, canvas)
    assert columns == [8] * 5


# --- the order of writing ---


@every_pattern
def test_blocks_are_finished_from_left_to_right(build: Build, pattern: AttentionPattern) -> None:
    model, size = build(pattern), pattern.block if isinstance(pattern, BlockCausal) else 1
    for canvas in Blocks(Ancestral(3))(model, model.process, blank(3, 9), rng=rng(0, 3)):
        hidden = canvas.z == MASK
        for row in range(3):
            begun = [not hidden[row, lo : lo + size].all() for lo in range(0, 9, size)]
            done = [not hidden[row, lo : lo + size].any() for lo in range(0, 9, size)]
            assert all(done[: max((i for i, b in enumerate(begun) if b), default=0)])


def test_decoding_blocks_begin_at_the_first_token_to_be_written_in_each_row(build: Build) -> None:
    model, begin, size = build(), torch.tensor([0, 2, 5]), 3
    canvas = replace(blank(3, 9), fixed=torch.arange(9) < begin[:, None])
    for written in Blocks(Ancestral(2), decode_block=size)(model, model.process, canvas, rng=rng(0, 3)):
        for row, first in enumerate(begin.tolist()):
            hidden = [bool((written.z[row, lo : lo + size] == MASK).any()) for lo in range(first, 9, size)]
            untouched = [bool((written.z[row, lo : lo + size] == MASK).all()) for lo in range(first, 9, size)]
            if True in hidden:
                assert all(untouched[hidden.index(True) + 1 :])


def test_one_block_of_all_is_the_sampler_itself(build: Build) -> None:
    model, canvas, keys = build(), blank(5, 6), rng(0, 5)
    for inner in (Ancestral(3), FirstHitting(), Unmask(3)):
        whole = final_canvas(inner(model, model.process, canvas, rng=keys.fold(0))).z
        assert torch.equal(final_canvas(Blocks(inner, decode_block=6)(model, model.process, canvas, rng=keys)).z, whole)


def test_masks_of_later_blocks_are_not_called_clean(build: Build, tiny: TransformerConfig) -> None:
    """Full attention sees them, and in training no masked token has time zero."""
    model, told = build(Full(), replace(tiny, time=8)), []
    model.network.register_forward_pre_hook(lambda _, args: told.append(args[1][args[0] == MASK]))
    write(Blocks(Ancestral(2), decode_block=3), model, blank(2, 9))
    assert all((level > 0).all() for level in told)


# --- end tokens ---


def ending_at(token: int) -> Masked:
    return Masked(Vocab(7, mask=MASK, eos=token))


@given(
    seed=st.integers(0, 10**6),
    stop=st.integers(0, 5),
    pattern=st.sampled_from([*PATTERNS, Full()]),
    cache=st.booleans(),
)
def test_a_stop_token_changes_nothing_before_it(
    build: Build, seed: int, stop: int, pattern: AttentionPattern, cache: bool
) -> None:
    model = build(pattern, process=ending_at(stop))
    blocks = Blocks(Ancestral(2), decode_block=2 if pattern == Full() else None, cache=cache)
    free = write(blocks, model, blank(4, 9), seed)
    stopped = write(replace(blocks, stop=True), model, blank(4, 9), seed)
    for a, b in zip(free.tolist(), stopped.tolist(), strict=True):
        end = a.index(stop) + 1 if stop in a else 9
        assert a[:end] == b[:end]


def test_a_stopped_batch_costs_nothing_more(build: Build) -> None:
    model, calls = build(BlockCausal(2)), []
    model.network.blocks[0].register_forward_pre_hook(lambda *_: calls.append(1))
    free = write(Blocks(Ancestral(1)), model, blank(1, 12))
    assert len(calls) == 6 + 5, "each block written, all but the last absorbed"
    stop, calls[:] = int(free[0, 3]), []
    first = free[0].tolist().index(stop)
    model.config = replace(model.config, process=ending_at(stop))
    write(Blocks(Ancestral(1), stop=True), model, blank(1, 12))
    assert len(calls) == 1 + 2 * (first // 2)


@pytest.mark.parametrize("cache", [True, False])
def test_all_after_a_stop_token_is_stop_tokens(build: Build, cache: bool) -> None:
    """In every row, also if it is the last one to stop; given tokens stay."""
    for pattern in (BlockCausal(2), BlockCausal(4)):
        given = torch.arange(12).expand(6, -1) == 10
        canvas = replace(blank(6, 12), fixed=given)
        for stop in range(6):
            model = build(pattern, process=ending_at(stop))
            z = write(Blocks(Ancestral(2), cache=cache, stop=True), model, canvas)
            for row in z.tolist():
                end = row.index(stop) if stop in row[:10] else 11
                assert all(row[i] == (0 if i == 10 else stop) for i in range(end, 12)) or end == 11
                assert MASK not in row


def test_given_stop_tokens_do_not_stop(build: Build) -> None:
    model, canvas = build(BlockCausal(2), process=ending_at(0)), blank(20, 8)
    canvas = replace(canvas, fixed=torch.arange(8).expand(20, -1) < 2)  # the prompt is 0, 0
    free = write(Blocks(Ancestral(2)), model, canvas)
    stopped = write(Blocks(Ancestral(2), stop=True), model, canvas)
    unstopped = (free[:, 2:] != 0).all(-1)
    assert 0 < unstopped.sum() < 20
    assert torch.equal(stopped[unstopped], free[unstopped])


# --- errors ---


def test_blocks_that_do_not_fit_are_refused(build: Build) -> None:
    canvas = blank(1, 6)
    with pytest.raises(ValueError, match=r"no blocks of its own; use Blocks\(…, decode_block=32\)"):
        write(Blocks(Ancestral(1)), build(), canvas)
    for pattern, size in ((BlockCausal(4), 3), (Causal(MASK), 2)):
        with pytest.raises(ValueError, match="leave decode_block out"):
            write(Blocks(Ancestral(1), decode_block=size), build(pattern), canvas)
    with pytest.raises(ValueError, match="decode_block=-1"):
        write(Blocks(Ancestral(1), decode_block=-1), build(), canvas)
    assert not (write(Blocks(Ancestral(1), decode_block=4), build(BlockCausal(4)), canvas) == MASK).any()
