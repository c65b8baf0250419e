"""The transformer: nothing leaks, rows and padding do not matter, the cache is exact."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from conftest import pairwise
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

from redraft.core import Context, Precision
from redraft.models import (
    AttentionPattern,
    BlockCausal,
    Causal,
    DiffusionLM,
    Full,
    NetworkIO,
    Transformer,
    TransformerConfig,
)
from redraft.models.networks import attention, layers
from redraft.models.networks.attention import _MaskTensor, attend
from redraft.models.networks.executors.dense import Dense
from redraft.models.networks.kv_cache import KeyValueCache, TokenPositions
from redraft.models.networks.layers import Norm

Build = Callable[..., DiffusionLM]
Net = Callable[..., Transformer]
MASK = 6
LAYOUTS: dict[str, Callable[[TransformerConfig], TransformerConfig]] = {
    "plain": lambda c: c,
    "grouped queries": lambda c: replace(c, heads=4, kv_heads=2),
    "normed queries": lambda c: replace(c, qk_norm=True),
    "learned positions": lambda c: replace(c, rotary=None, positions=16),
    "tied": lambda c: replace(c, tied=True),
    "layer norm and biases": lambda c: replace(
        c, norm="layer", norm_bias=True, gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, head_bias=True
    ),
    "wide heads": lambda c: replace(c, head_dim=6),
    "time": lambda c: replace(c, time=8),
}
BLOCKS = [BlockCausal(1), BlockCausal(2), BlockCausal(3), BlockCausal(4)]
every_layout = pytest.mark.parametrize("layout", list(LAYOUTS))
every_pattern = pytest.mark.parametrize("pattern", [Full(), BlockCausal(3), Causal(MASK)], ids=repr)
every_layout_or_block = pytest.mark.parametrize(
    ("layout", "pattern"),
    [(layout, BLOCKS[i % len(BLOCKS)]) for i, layout in enumerate(LAYOUTS)]
    + [("plain", block) for block in BLOCKS[1:]],
)
every_block = pytest.mark.parametrize("pattern", BLOCKS, ids=repr)


@pytest.fixture(scope="module")
def net(build: Build, tiny: TransformerConfig) -> Net:
    def network(pattern: AttentionPattern = Full(), layout: str = "plain") -> Transformer:
        return build(pattern, LAYOUTS[layout](tiny)).network

    return network


def tokens(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 7, (rows, length), generator=torch.Generator().manual_seed(seed))


def other(z: Tensor, where: Tensor) -> Tensor:
    """z with another token at each marked position."""
    return torch.where(where, (z + 1) % 7, z)


def levels(rows: int, length: int = 1) -> Tensor:
    return 1000 * torch.rand(rows, length, generator=torch.Generator().manual_seed(5))


def close(a: Tensor, b: Tensor, atol: float = 1e-5) -> bool:
    return torch.allclose(a, b, atol=atol, rtol=1e-4)


def differ(a: Tensor, b: Tensor) -> bool:
    return bool(((a - b).abs().amax(-1) > 1e-3).all())


# --- masks never leak ---


@every_layout
def test_padding_is_never_seen(net: Net, layout: str) -> None:
    network, z, t = net(Full(), layout), tokens(3, 8), levels(3)
    pad = torch.arange(8) >= torch.tensor([[8], [5], [2]])
    states, edited = (network(a, t, Context(pad=pad)) for a in (z, other(z, pad)))
    assert close(states[~pad], edited[~pad], 1e-6)
    first = torch.arange(8).expand(3, -1) == 0
    assert differ(states[:2, 1:5], network(other(z, first), t, Context(pad=pad))[:2, 1:5]), "real tokens are seen"


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("pattern", [Full(), BlockCausal(2), BlockCausal(3), Causal(MASK)], ids=repr)
def test_padding_is_never_seen_wherever_it_stands(net: Net, pattern: AttentionPattern, streams: int) -> None:
    network, z, x = net(pattern), tokens(1, 8), tokens(1, 8, seed=1)
    pad = torch.tensor([[True, False, False, True, False, False, False, True]])

    def read(hidden: Tensor) -> Tensor:
        clean = other(x, hidden) if streams == 2 else None
        return network(other(z, hidden), None, Context(pad=pad, clean=clean))

    reader = ~pad & ~pad.roll(1, 1) if isinstance(pattern, Causal) else ~pad  # a slot reads the token before its own
    states = read(torch.zeros_like(pad))
    assert close(states[reader], read(pad)[reader], 1e-6)
    before = torch.arange(8).expand(1, -1) == 2
    assert differ(states[:, 4:7], read(before)[:, 4:7]), "the token before the padding is seen"


@every_layout_or_block
def test_one_stream_never_sees_later_blocks(net: Net, pattern: BlockCausal, layout: str) -> None:
    network, z, t = net(pattern, layout), tokens(2, 8), levels(2, 8)
    block = torch.arange(8).expand(2, -1) // pattern.block
    states = network(z, t)
    for b in range(int(block.max())):
        edited = network(other(z, block > b), t)
        assert close(states[block <= b], edited[block <= b], 1e-6)
        assert differ(states[block > b], network(other(z, block == b), t)[block > b]), "earlier blocks are seen"


@every_layout_or_block
def test_two_streams_never_see_their_own_answer(net: Net, pattern: BlockCausal, layout: str) -> None:
    """States of noisy block b: blind to clean blocks b and later and to other noisy blocks."""
    network, z, x, t = net(pattern, layout), tokens(2, 8), tokens(2, 8, seed=1), levels(2, 8)
    block = torch.arange(8).expand(2, -1) // pattern.block
    states = network(z, t, Context(clean=x))
    for b in range(int(block.max()) + 1):
        mine = block == b
        edited = network(other(z, ~mine), t, Context(clean=other(x, block >= b)))
        assert close(states[mine], edited[mine], 1e-6)
        assert differ(states[mine], network(other(z, mine), t, Context(clean=x))[mine]), "its own block is seen"
        later = block > b
        if bool(later.any()):
            moved = network(z, t, Context(clean=other(x, mine)))
            assert differ(states[later], moved[later]), "clean earlier blocks are seen"


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "time"])
@pytest.mark.parametrize("clean", [False, True])
def test_causal_never_sees_the_token_it_predicts(net: Net, layout: str, clean: bool) -> None:
    network, x = net(Causal(MASK), layout), tokens(2, 6)

    def read(a: Tensor) -> Tensor:
        return network(tokens(2, 6, 9), None, Context(clean=a)) if clean else network(a)

    states = read(x)
    for i in range(6):
        place = torch.arange(6).expand(2, -1)
        assert close(states[:, : i + 1], read(other(x, place >= i))[:, : i + 1], 1e-6)
        if i:
            assert differ(states[:, i:], read(other(x, place == i - 1))[:, i:]), "earlier tokens are seen"


@every_block
def test_two_streams_equal_one_stream_read_block_by_block(net: Net, pattern: BlockCausal) -> None:
    """Training in one pass says of block b what sampling says: clean blocks before, the noisy block, nothing after."""
    z, x, t = tokens(2, 8), tokens(2, 8, seed=1), levels(2, 8)
    for layout in ("plain", "time"):
        network = net(pattern, layout)
        together = network(z, t, Context(clean=x))
        for lo in range(0, 8, pattern.block):
            hi = min(lo + pattern.block, 8)
            seen = torch.cat([x[:, :lo], z[:, lo:hi]], 1)
            level = torch.cat([torch.zeros(2, lo), t[:, lo:hi]], 1)
            assert close(together[:, lo:hi], network(seen, level)[:, lo:])


# --- rows and padding ---


@pytest.mark.parametrize(("layout", "pattern", "streams"), pairwise(list(LAYOUTS), [Full(), BlockCausal(3)], [1, 2]))
def test_a_row_does_not_depend_on_its_batch(net: Net, pattern: AttentionPattern, layout: str, streams: int) -> None:
    network, z, x, t = net(pattern, layout), tokens(5, 8), tokens(5, 8, seed=1), levels(5, 8)
    pad = torch.arange(8) >= torch.tensor([[8], [8], [5], [3], [1]])
    states = network(z, t, Context(pad=pad, clean=x if streams == 2 else None))
    for row, length in enumerate((8, 8, 5, 3, 1)):
        alone = slice(row, row + 1)
        context = Context(clean=x[alone, :length] if streams == 2 else None)
        single = network(z[alone, :length], t[alone, :length], context)
        assert close(states[alone, :length], single), f"row {row} of {length} tokens"


def test_a_causal_row_does_not_depend_on_its_batch(net: Net) -> None:
    network, x = net(Causal(MASK)), tokens(3, 8)
    pad = torch.arange(8) >= torch.tensor([[8], [5], [1]])
    for context in (Context(pad=pad), Context(pad=pad, clean=x)):
        states = network(x, None, context)
        for row, length in enumerate((8, 5, 1)):
            alone = slice(row, row + 1)
            assert close(states[alone, :length], network(x[alone, :length]))


# --- some positions only ---

ASKED = {
    "one row": [[2, 5], [], []],
    "all rows": [[0, 7], [3, 1], [6, 4]],
    "unequal rows": [[0, 2, 3, 7], [], [5]],
    "one twice": [[4, 4], [1], [0]],
    "nothing": [[], [], []],
    "everything": [list(range(8))] * 3,
}


@every_layout
def test_asked_positions_say_what_they_say_among_all(net: Net, layout: str) -> None:
    for columns in ASKED.values():
        _same_as_among_all(net, layout, columns)


def _same_as_among_all(net: Net, layout: str, columns: list[list[int]]) -> None:
    z, x, t, place = tokens(3, 8), tokens(3, 8, seed=1), levels(3, 8), [8 * r + c for r in range(3) for c in columns[r]]
    pad = torch.arange(8) >= torch.tensor([[8], [8], [7]])
    for pattern in (Full(), BlockCausal(3), *([] if layout == "time" else [Causal(MASK)])):
        network = net(pattern, layout)
        for context in (Context(), Context(pad=pad), Context(pad=pad, clean=x)):
            for level in (t, t[:, :1]):
                whole = network(z, level, context).flatten(0, 1)
                some = network(z, level, context, torch.tensor(place, dtype=torch.int64))
                assert some.shape == (len(place), 16)
                assert close(some, whole[place])


def test_the_last_block_computes_what_is_asked(net: Net) -> None:
    """Five states of 24: the first block works on all of them, the last one on five, but knows the keys of all."""
    network, sizes = net(), dict[str, int]()
    for name in ("blocks.0.mlp", "blocks.1.mlp", "blocks.1.attention.out", "blocks.1.norm1"):

        def note(_: nn.Module, inputs: tuple[Tensor, ...], name: str = name) -> None:
            sizes[name] = inputs[0].shape[:-1].numel()

        network.get_submodule(name).register_forward_pre_hook(note)
    network(tokens(3, 8), None, Context(), torch.tensor([0, 3, 4, 7, 21]))
    assert list(sizes.values()) == [24, 24, 5, 5]
    assert list(sizes) == ["blocks.0.mlp", "blocks.1.norm1", "blocks.1.attention.out", "blocks.1.mlp"]


class LowRank(nn.Module):
    """A layer that knows only how to be called, and adds a product of two narrow matrices (LoRA)."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.inner = inner
        self.down = nn.Linear(inner.in_features, 2, bias=False)
        self.up = nn.Linear(2, inner.out_features, bias=False)

    def forward(self, h: Tensor) -> Tensor:
        return self.inner(h) + self.up(self.down(h))


@pytest.mark.parametrize("layout", ["plain", "grouped queries", "layer norm and biases"])
def test_a_wrapped_projection_is_asked_as_a_whole(net: Net, layout: str) -> None:
    network, z, place = copy.deepcopy(net(Full(), layout)), tokens(3, 8), [0, 3, 4, 7, 21]
    before = network(z).flatten(0, 1)[place]
    for i in range(network.config.layers):
        attention = network.get_submodule(f"blocks.{i}.attention")
        attention.qkv = LowRank(network.get_submodule(f"blocks.{i}.attention.qkv"))  # type: ignore[arg-type]
    some = network(z, None, Context(), torch.tensor(place))
    assert close(some, network(z).flatten(0, 1)[place])
    assert not close(some, before)


def test_hooks_of_a_projection_see_every_call(net: Net) -> None:
    network, sizes = copy.deepcopy(net()), list[tuple[int, int]]()
    network.get_submodule("blocks.1.attention.qkv").register_forward_hook(
        lambda _, inputs, out: sizes.append((inputs[0].shape[:-1].numel(), out.shape[-1]))
    )
    network(tokens(3, 8), None, Context(), torch.tensor([0, 3, 4, 7, 21]))
    assert sorted(sizes) == [(5, 16), (24, 32)], "queries of five tokens, keys and values of all"


def test_weights_learn_from_some_positions_as_from_all(net: Net) -> None:
    network, place = net(), torch.tensor([0, 3, 4, 7, 21])

    def learned(states: Tensor) -> list[Tensor]:
        network.zero_grad()
        states.square().sum().backward()
        return [p.grad.clone() for p in network.parameters() if p.grad is not None]

    z = tokens(3, 8)
    whole, some = learned(network(z).flatten(0, 1)[place]), learned(network(z, None, Context(), place))
    assert len(some) == len(list(network.parameters())) - 1, "all but the output layer"
    assert all(close(a, b) for a, b in zip(whole, some, strict=True))
    nothing = learned(network(z, None, Context(), place[:0]))
    assert [bool((g == 0).all()) for g in nothing] == [True] * len(some), "the graph reaches every weight all the same"


# --- the cache ---


def span(lo: int, hi: int) -> Tensor:
    """(1, hi − lo) places"""
    return torch.arange(lo, hi)[None]


def absorb(network: Transformer, z: Tensor, pad: Tensor | None, cuts: list[int]) -> Context:
    """Finished tokens, absorbed in pieces that end at the cuts."""
    context = Context()
    for lo, hi in zip([0, *cuts[:-1]], cuts, strict=True):
        part = None if pad is None else pad[:, lo:hi]
        context = Context(cache=network.absorb(z[:, lo:hi], replace(context, pad=part, positions=span(lo, hi))))
    return context


def cuts_of(done: int, size: int) -> list[list[int]]:
    """All at once, an early and a late part, block by block."""
    each = list(range(size, done + 1, size))
    return [[done], sorted({size, done}), each]


@pytest.mark.parametrize(
    ("pattern", "layout", "ragged"),
    pairwise(BLOCKS, ["plain", "grouped queries", "learned positions", "normed queries", "time"], [False, True]),
)
def test_a_cached_block_equals_an_uncached_one(net: Net, pattern: BlockCausal, layout: str, ragged: bool) -> None:
    network, z, size = net(pattern, layout), tokens(3, 12), pattern.block
    pad = torch.arange(12) >= torch.tensor([[12], [9], [5]]) if ragged else None
    for done in {size, 8 // size * size}:
        t = torch.where(torch.arange(12) < done, 0.0, levels(3, 12))  # finished blocks are clean
        window = slice(done, done + size)
        seen = Context(pad=None if pad is None else pad[:, : window.stop])
        whole = network(z[:, : window.stop], t[:, : window.stop], seen)
        for cuts in cuts_of(done, size):
            context = absorb(network, z, pad, cuts)
            assert context.cache is not None
            assert torch.equal(context.cache.covers, torch.ones(3, done).bool() if pad is None else ~pad[:, :done])
            context = replace(context, pad=None if pad is None else pad[:, window], positions=span(done, done + size))
            assert close(network(z[:, window], t[:, window], context), whole[:, window])


@pytest.mark.parametrize("layout", ["plain", "grouped queries", "learned positions"])
@pytest.mark.parametrize("ragged", [False, True])
def test_a_cached_causal_network_equals_an_uncached_one(net: Net, layout: str, ragged: bool) -> None:
    network, z = net(Causal(MASK), layout), tokens(3, 9)
    pad = torch.arange(9) >= torch.tensor([[9], [7], [4]]) if ragged else None
    real = torch.ones(3, 9, dtype=torch.bool) if pad is None else ~pad
    whole = network(z, None, Context(pad=pad))
    for done in range(9):
        for cuts in cuts_of(done, 1) if done else [[0]]:
            context = absorb(network, z, pad, cuts)
            for end in (done + 1, 9):  # one token, and all that are left
                window = slice(done, end)
                part = None if pad is None else pad[:, window]
                states = network(z[:, window], None, replace(context, pad=part, positions=span(done, end)))
                seen = real[:, window]
                assert close(states[seen], whole[:, window][seen])


@pytest.mark.parametrize("pattern", [BlockCausal(2), Causal(MASK)], ids=repr)
def test_branches_of_a_cache_do_not_disturb_each_other(net: Net, pattern: AttentionPattern) -> None:
    network, stem, left, right, end = net(pattern), *(tokens(2, n, seed) for seed, n in enumerate((4, 2, 2, 2)))
    root = Context(cache=network.absorb(stem), positions=span(4, 6))
    before = network(end, None, root)
    twigs = [Context(cache=network.absorb(part, root), positions=span(6, 8)) for part in (left, right)]
    grown = [network(end, None, twig) for twig in twigs]
    for part, states in zip((left, right), grown, strict=True):
        fresh = Context(cache=network.absorb(torch.cat([stem, part], 1)), positions=span(6, 8))
        assert close(states, network(end, None, fresh))
    assert torch.equal(network(end, None, root), before)
    assert differ(grown[0], grown[1])


@pytest.mark.parametrize("pattern", [BlockCausal(2), Causal(MASK)], ids=repr)
def test_a_cache_of_some_rows(net: Net, pattern: AttentionPattern) -> None:
    network, z, index = net(pattern), tokens(4, 6), torch.tensor([3, 1])
    context = Context(cache=network.absorb(z[:, :4]), positions=span(4, 6))
    assert close(network(z[:, 4:], None, context)[index], network(z[index, 4:], None, context.rows(index)))


def test_nothing_absorbed_is_nothing_seen(net: Net) -> None:
    network, z = net(BlockCausal(2)), tokens(2, 4)
    cache = network.absorb(z[:, :0])
    assert cache.covers.numel() == 0
    assert torch.equal(network(z, None, Context(cache=cache)), network(z))


def test_padding_needs_no_learned_position() -> None:
    """Padding may stand beyond the learned positions; it gets the first one. Tokens may not."""
    places, pad = torch.tensor([[0, 1, 2], [0, 1, 9]]), torch.tensor([[False] * 3, [False, False, True]])
    positions = TokenPositions.of(places, tokens(2, 3), KeyValueCache())
    assert positions.embeddable(pad, 3).tolist() == [[0, 1, 2], [0, 1, 0]]
    assert torch.equal(positions.embeddable(pad, None), places)
    with pytest.raises(ValueError, match="3 tokens are too many: this network has 2 positions"):
        positions.embeddable(pad, 2)
    with pytest.raises(ValueError, match="10 tokens are too many: this network has 9 positions"):
        positions.embeddable(None, 9)


def test_a_cache_cropped_to_its_own_length_is_itself(net: Net) -> None:
    cache = net(Causal(MASK)).absorb(tokens(2, 4))
    assert cache.crop(4) is cache
    assert cache.crop(3).columns == cache.columns - 1


def test_caches_branch(net: Net) -> None:
    """What is absorbed on one branch changes neither its stem nor the other branch."""
    network, z = net(BlockCausal(2)), tokens(2, 8)
    stem = network.absorb(z[:, :4])
    kept = [a.clone() for pair in stem.layers for a in pair]
    left = network.absorb(z[:, 4:6], Context(cache=stem, positions=span(4, 6)))
    right = network.absorb(z[:, 6:], Context(cache=stem, positions=span(4, 6)))
    assert all(torch.equal(a, b) for a, b in zip(kept, (a for pair in stem.layers for a in pair), strict=True))
    for branch, part in ((left, z[:, 4:6]), (right, z[:, 6:])):
        whole = network.absorb(torch.cat([z[:, :4], part], 1))
        assert branch.columns == whole.columns == 6
        for ours, theirs in zip(branch.layers, whole.layers, strict=True):
            assert all(close(a, b) for a, b in zip(ours, theirs, strict=True))


def test_absorbing_keeps_no_graph(net: Net) -> None:
    cache = net(BlockCausal(2)).absorb(tokens(2, 4))
    assert not any(a.requires_grad for pair in cache.layers for a in pair)


def test_where_tokens_stand_behind_a_cache_must_be_said(net: Net) -> None:
    network, z = net(BlockCausal(2)), tokens(2, 4)
    with pytest.raises(ValueError, match=r"give the positions of the new ones as Context\(positions=…\)"):
        network(z, None, Context(cache=network.absorb(z)))
    with pytest.raises(ValueError, match=r"must be \(2, 4\), or \(1, 4\)"):
        network(z, None, Context(positions=span(0, 5)))
    with pytest.raises(ValueError, match="whole rows from position 0"):
        network(z, None, Context(clean=z, positions=span(0, 4)))
    with pytest.raises(ValueError, match="whole rows from position 0"):
        net(Causal(MASK))(z, None, Context(positions=span(0, 4)))


# --- places ---


PLACED = ["plain", "grouped queries", "normed queries", "learned positions", "time"]


@pytest.mark.parametrize("pattern", [Full(), BlockCausal(3)], ids=repr)
@pytest.mark.parametrize("layout", PLACED)
def test_columns_may_stand_in_any_order(net: Net, pattern: AttentionPattern, layout: str) -> None:
    """A row is its tokens and their places, whatever the order of the columns; each row may have its own."""
    network, z, t = net(pattern, layout), tokens(3, 8), levels(3, 8)
    pad = torch.arange(8) >= torch.tensor([[8], [6], [3]])
    for seen in (None, pad):
        whole = network(z, t, Context(pad=seen))
        order = torch.stack([torch.randperm(8, generator=torch.Generator().manual_seed(row)) for row in range(3)])
        for place in (order, order[:1]):
            moved = [None if a is None else a.take_along_dim(place, 1) for a in (z, t, seen)]
            states = network(moved[0], moved[1], Context(pad=moved[2], positions=place))
            real = torch.ones(3, 8, dtype=torch.bool) if moved[2] is None else ~moved[2]
            assert close(states[real], whole.take_along_dim(place[..., None], 1)[real])
            asked = torch.tensor([1, 6, 8, 15, 16])
            picked = network(moved[0], moved[1], Context(pad=moved[2], positions=place), asked)
            assert close(picked[real.flatten()[asked]], states.flatten(0, 1)[asked][real.flatten()[asked]])


@pytest.mark.parametrize("pattern", [BlockCausal(2), Causal(MASK)], ids=repr)
@pytest.mark.parametrize("layout", ["plain", "grouped queries", "learned positions"])
def test_rows_at_different_places_are_as_if_alone(net: Net, pattern: AttentionPattern, layout: str) -> None:
    """Prompts of 2, 6 and 4 tokens are absorbed side by side; then each row reads the tokens behind its own."""
    network, z, size = net(pattern, layout), tokens(3, 10), torch.tensor([[2], [6], [4]])
    cache = network.absorb(z[:, :6], Context(pad=torch.arange(6) >= size))
    assert cache.covers.sum(1).tolist() == [2, 6, 4]
    for steps in (1, 2):  # a window of two, then of two more
        place = size + 2 * (steps - 1) + torch.arange(2)
        window, context = z.take_along_dim(place, 1), Context(cache=cache, positions=place)
        together = network(window, None, context)
        for i in range(3):
            stop = int(place[i, -1]) + 1
            alone = network(z[i : i + 1, :stop])[:, -2:]
            assert close(together[i : i + 1], alone), f"row {i}"
        cache = network.absorb(window, context)


def test_a_row_that_absorbs_only_padding_stays_as_it_was(net: Net) -> None:
    network, z = net(Causal(MASK)), tokens(2, 6)
    first = network.absorb(z[:, :3])
    pad = torch.tensor([[False, False], [True, True]])
    second = network.absorb(z[:, 3:5], Context(cache=first, positions=span(3, 5), pad=pad))
    assert first.last_state is not None
    assert second.last_state is not None
    assert torch.equal(second.last_state[1], first.last_state[1])
    place = torch.tensor([[5], [3]])
    states = network(z[:, 5:], None, Context(cache=second, positions=place))
    assert close(states[0], network(z[:1])[0, 5:])
    assert close(states[1], network(z[1:])[0, 3:4])


@pytest.mark.parametrize("rows", ["alike", "apart"])
@pytest.mark.parametrize("layout", PLACED)
def test_a_window_replaces_what_the_cache_holds_there(net: Net, layout: str, rows: str) -> None:
    """With the cache of its own row a window gives what the whole row gives, with another it does not."""
    network, z, t = net(Full(), layout), tokens(3, 9), levels(3, 1)
    place = torch.tensor([[2, 3, 4]]) if rows == "alike" else torch.tensor([[2, 3, 4], [0, 8, 4], [6, 7, 5]])
    where = torch.zeros(3, 9, dtype=torch.bool).scatter(1, place.expand(3, -1), True)
    cache = network.absorb(z, level=t)
    assert not cache.exact
    whole, window = network(z, t), z.take_along_dim(place, 1)
    seen = Context(cache=cache, positions=place)
    assert close(network(window, t, seen), whole.take_along_dim(place[..., None], 1))
    stale = Context(cache=network.absorb(other(z, where), level=t), positions=place)
    assert differ(network(window, t, stale), whole.take_along_dim(place[..., None], 1)), "the others saw other tokens"
    one_layer = network.absorb(window, replace(stale, positions=place), level=t)
    assert one_layer.columns == 9


# --- the other form of the mask ---


@every_pattern
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("layout", ["plain", "grouped queries"])
@pytest.mark.usefixtures("interpreted")
@torch.no_grad()
def test_tiles_give_what_a_dense_mask_gives(
    net: Net, monkeypatch: pytest.MonkeyPatch, pattern: AttentionPattern, layout: str, ragged: bool
) -> None:
    """In all passes there are: one stream, two streams, some positions only, behind a cache."""
    network, z, x = net(pattern, layout), tokens(2, 12), tokens(2, 12, seed=1)
    pad = torch.arange(12) >= torch.tensor([[12], [7]]) if ragged else None
    at, masks = torch.tensor([3, 5, 0, 13, 18]), Counter[type]()

    def passes() -> list[Tensor]:
        found = [network(z, None, Context(pad=pad, clean=clean), a) for clean in (None, x) for a in (None, at)]
        if not isinstance(pattern, Full):
            seen = Context(cache=network.absorb(z[:, :4], Context(pad=None if pad is None else pad[:, :4])))
            seen = replace(seen, positions=span(4, 12))
            found.append(network(z[:, 4:], None, replace(seen, pad=None if pad is None else pad[:, 4:])))
        return found

    def counted(q: Tensor, k: Tensor, v: Tensor, mask: _MaskTensor) -> Tensor:
        masks[type(mask)] += 1
        return attend(q, k, v, mask)

    dense = passes()
    monkeypatch.setattr(attention, "_use_flex_attention", lambda *case: True)
    monkeypatch.setattr(layers, "attend", counted)
    assert all(close(a, b) for a, b in zip(dense, passes(), strict=True))
    assert (masks[BlockMask] > 0) == (ragged or not isinstance(pattern, Full))


# --- layouts ---


def test_grouped_queries_are_shared_keys_and_values(net: Net, tiny: TransformerConfig) -> None:
    """Two groups for four heads: the same as four groups, of which neighbors are equal."""
    grouped = net(Full(), "grouped queries")
    full = Transformer(replace(grouped.config, kv_heads=None), grouped.io)
    weights, d = dict(grouped.state_dict()), grouped.config.head_width
    for name in [n for n in weights if n.endswith("qkv.weight")]:
        q, k, v = weights[name].split([4 * d, 2 * d, 2 * d])
        k, v = (a.view(2, d, -1).repeat_interleave(2, 0).flatten(0, 1) for a in (k, v))
        weights[name] = torch.cat([q, k, v])
    full.load_state_dict(weights)
    z = tokens(2, 6)
    assert close(grouped(z), full(z))


def test_normed_queries_forget_their_scale(net: Net) -> None:
    for layout, forgets in (("normed queries", True), ("plain", False)):
        network, z = net(Full(), layout), tokens(2, 6)
        before = network(z)
        with torch.no_grad():
            for name, weight in network.named_parameters():
                if name.endswith("qkv.weight"):
                    weight[: 2 * network.config.width] *= 3.0  # queries and keys, not values
        assert close(network(z), before, 1e-3) == forgets


@pytest.mark.parametrize("layout", ["plain", "learned positions"])
def test_positions_are_all_that_orders_tokens(net: Net, layout: str) -> None:
    network, z, order = net(Full(), layout), tokens(2, 6), torch.tensor([3, 1, 0, 5, 4, 2])
    assert not close(network(z[:, order]), network(z)[:, order])
    if network.position is not None:
        torch.nn.init.zeros_(network.position.weight)
        assert close(network(z[:, order]), network(z)[:, order])


def test_a_tied_output_is_the_embedding(net: Net) -> None:
    network = net(Full(), "tied")
    h = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    assert close(network.logits(h), h @ network.embedding.weight.T)
    assert network.output is None
    assert not any(name.startswith("output") for name in network.state_dict())


def test_norms(tiny: TransformerConfig) -> None:
    h = 5 + 3 * torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    layer = Norm(replace(tiny, norm="layer"), 16)(h)
    assert torch.allclose(layer.mean(-1), torch.zeros(4), atol=1e-5)
    assert torch.allclose(layer.var(-1, unbiased=False), torch.ones(4), atol=1e-3)
    rms = Norm(tiny, 16)(h.bfloat16())
    assert rms.dtype == torch.float32
    assert torch.allclose(rms.square().mean(-1), torch.ones(4), atol=1e-3)
    assert torch.allclose(rms / h, (rms / h)[:, :1].expand_as(h), rtol=0.02), "RMS only scales"
    assert torch.allclose(Norm(tiny, 16)(h, torch.tensor(2.0), torch.tensor(1.0)), Norm(tiny, 16)(h) * 2 + 2)


@pytest.mark.parametrize("shape", [(16,), (5, 16), (2, 3, 4, 16)])
def test_the_rms_norm_of_cpus_is_that_of_torch(tiny: TransformerConfig, shape: tuple[int, ...]) -> None:
    norm, generator = Norm(tiny, 16), torch.Generator().manual_seed(0)
    h, grad, weight = (torch.randn(s, generator=generator) for s in (shape, shape, (16,)))
    norm.weight.data.copy_(weight)
    found, expected = [h.clone().requires_grad_()], [h.clone().requires_grad_(), weight.requires_grad_()]
    found.append(norm.weight)
    ours, theirs = norm(found[0]), F.rms_norm(expected[0], (16,), expected[1], tiny.norm_eps)
    assert torch.allclose(ours, theirs, rtol=1e-6, atol=1e-7)
    for a, b in zip(torch.autograd.grad(ours, found, grad), torch.autograd.grad(theirs, expected, grad), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_the_gated_layer_of_cpus_is_its_formula() -> None:
    both = torch.randn(3, 5, 8, dtype=torch.float64, requires_grad=True)
    gate, up = both.chunk(2, -1)
    assert torch.allclose(layers._SwiGLU.apply(both), F.silu(gate) * up)
    assert torch.autograd.gradcheck(layers._SwiGLU.apply, both)


# --- time ---


@pytest.mark.parametrize("pattern", [Full(), BlockCausal(3)], ids=repr)
def test_a_time_per_row_and_per_token_agree(net: Net, pattern: AttentionPattern) -> None:
    network, z, x, t = net(pattern, "time"), tokens(3, 6), tokens(3, 6, 1), levels(3)
    for context in (Context(), Context(clean=x)):
        row, token = network(z, t, context), network(z, t.expand(3, 6).contiguous(), context)
        assert close(row, token, 1e-6)
        assert differ(row, network(z, t + 100, context)), "time is seen"


def test_a_token_s_time_is_its_own(net: Net) -> None:
    """Another time of one token reaches the others only through attention: not at all where they cannot see it."""
    network, z, t = net(BlockCausal(2), "time"), tokens(2, 6), levels(2, 6)
    later = t.clone()
    later[:, 4:] += 300
    states, moved = network(z, t), network(z, later)
    assert close(states[:, :4], moved[:, :4], 1e-6)
    assert differ(states[:, 4:], moved[:, 4:])


def test_a_network_without_time_ignores_it_and_one_with_time_asks_for_it(net: Net) -> None:
    z = tokens(2, 4)
    assert torch.equal(net()(z, levels(2)), net()(z))
    with pytest.raises(ValueError, match="this network sees the time"):
        net(Full(), "time")(z)


# --- training ---


def gradients(network: Transformer, pattern: AttentionPattern) -> list[Tensor]:
    network.zero_grad()
    context = Context() if isinstance(pattern, Full) else Context(clean=tokens(2, 6, 1))
    t = levels(2, 6) if network.time is not None else None
    network.logits(network(tokens(2, 6), t, context)).square().sum().backward()
    return [p.grad.clone() for p in network.parameters() if p.grad is not None]


@pytest.mark.parametrize("layout", ["plain", "time", "tied"])
@pytest.mark.parametrize("pattern", [Full(), BlockCausal(2)], ids=repr)
def test_recomputed_gradients_are_equal(net: Net, pattern: AttentionPattern, layout: str) -> None:
    network = net(pattern, layout)
    runs: list[int] = []
    network.get_submodule("blocks.0.attention").register_forward_pre_hook(lambda *_: runs.append(1))
    plain = gradients(network, pattern)
    assert (len(plain), len(runs)) == (len(list(network.parameters())), 1), "every weight learns"
    again = gradients(network.on(Dense(recompute=True)), pattern)
    assert len(runs) == 3, "forward, and forward again on the way back"
    assert all(close(a, b) for a, b in zip(plain, again, strict=True))


@pytest.mark.parametrize("pattern", [Full(), BlockCausal(2), Causal(MASK)], ids=repr)
def test_bfloat16_is_near_float32(bf16: Precision, net: Net, pattern: AttentionPattern) -> None:
    network, z = net(pattern), tokens(3, 8)
    context = Context(pad=torch.arange(8) >= torch.tensor([[8], [5], [3]]))
    exact = network(z, None, context)
    with bf16.autocast(z.device):
        coarse = network(z, None, context)
    assert coarse.dtype == torch.float32, "states are normed in float32"
    assert not torch.equal(coarse, exact)
    assert float((coarse - exact).detach().norm() / exact.detach().norm()) < 0.03


def test_a_new_network_says_nothing(tiny: TransformerConfig) -> None:
    """Zero output and zero modulation: all tokens equally likely, whatever the time; nothing else is degenerate."""
    torch.manual_seed(0)
    network, z = Transformer(replace(tiny, time=8), NetworkIO(7, 7)), tokens(2, 4)
    states = network(z, levels(2))
    assert torch.equal(network.logits(states), torch.zeros(2, 4, 7))
    assert torch.equal(states, network(z, levels(2) + 50))
    assert states.isfinite().all()
    for name, p in network.named_parameters():
        zero = name.endswith("bias") or "modulation" in name or name.startswith("output")
        assert bool((p == 0).all()) == zero, name


@pytest.mark.parametrize("io", [NetworkIO(7, 7, cross=6), NetworkIO(5, 7, vectors=True, cross=6)], ids=repr)
def test_first_weights_are_drawn_in_the_order_of_their_names(tiny: TransformerConfig, io: NetworkIO) -> None:
    """So that a seed gives the same network for ever; what begins at zero or one takes no draw."""
    network = Transformer(replace(tiny, rotary=None, positions=9, time=8, classes=3, gaps=4), io)
    torch.manual_seed(3)
    network.initialize()
    torch.manual_seed(3)
    drawn = {n: p.detach() for n, p in network.named_parameters() if len(p.flatten().unique()) > 1}
    for name, p in drawn.items():
        noise = torch.empty_like(p).normal_()[: -1 if name == "time.label.weight" else None]
        assert float((p[: len(noise)] * noise).sum()) > 0.999 * float(p.norm() * noise.norm()), name
    assert len(drawn) == 1 + 2 + 3 + 2 * 7 + 1  # no source, inputs, time and label, blocks, gaps


def test_dropout_acts_in_training_only(tiny: TransformerConfig, build: Build) -> None:
    network, z = build(Full(), replace(tiny, dropout=0.5)).network, tokens(2, 4)
    assert not torch.equal(network.train()(z), network(z))
    assert torch.equal(network.eval()(z), network(z))


# --- settings ---


def test_settings_that_do_not_fit_are_refused(tiny: TransformerConfig) -> None:
    with pytest.raises(ValueError, match="width=16 does not split into 3 heads"):
        replace(tiny, heads=3)
    with pytest.raises(ValueError, match="heads=2 must be a multiple of kv_heads=4"):
        replace(tiny, kv_heads=4)
    with pytest.raises(ValueError, match=r"set rotary \(the base\) or positions"):
        replace(tiny, positions=None, rotary=None)
