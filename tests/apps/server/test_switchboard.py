"""Many writers on one network: the same texts, alone and in company."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from redraft.apps import BatchScheduler, Cancelled, DeadlineExceeded, NonFiniteOutput
from redraft.core import Canvas, Context, Rng, Vocab, batch_invariant_rows, rng
from redraft.decoding import (
    Ancestral,
    Blocks,
    Confidence,
    ConfidenceThreshold,
    DualCache,
    FirstHitting,
    PrefixCache,
    Sampler,
    Unmask,
    final_canvas,
)
from redraft.models import (
    BlockCausal,
    Causal,
    DiffusionLM,
    Full,
    TransformerConfig,
)
from redraft.models.networks.executors.packed import Packed, project_ragged
from redraft.tasks import count_calls
from tests.conftest import Build

SAMPLERS: dict[str, list[Sampler]] = {
    "full": [
        Ancestral(4),
        FirstHitting(),
        Unmask(5, Confidence()),
        Unmask(4, ConfidenceThreshold(0.4)),
        Blocks(Unmask(2, Confidence()), decode_block=3),
        Blocks(Unmask(2), decode_block=4, cache=DualCache()),
        Blocks(Ancestral(2), decode_block=2, cache=PrefixCache(1)),
    ],
    "blocks": [Blocks(Ancestral(3)), Blocks(Unmask(2, Confidence()), stop=True), Blocks(Ancestral(2), cache=False)],
    "causal": [Blocks(Ancestral(1)), Blocks(Ancestral(1), stop=True), Blocks(Ancestral(1), cache=False)],
}
PATTERNS = {"full": Full(), "blocks": BlockCausal(4), "causal": Causal()}


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    """As in the model process."""
    with torch.no_grad():
        yield


def rows(vocab: Vocab, count: int, length: int, seed: int) -> Canvas:
    """A prompt of two tokens, then a hole; the rows differ in padding."""
    g = torch.Generator().manual_seed(seed)
    z = torch.randint(0, vocab.masked, (count, length), generator=g)
    pad = torch.arange(length) >= torch.randint(length // 2, length + 1, (count, 1), generator=g)
    fixed = (torch.arange(length) < 2).expand(count, -1)
    return Canvas(z, fixed | pad, Context(pad=pad if bool(pad.any()) else None))


def requests(kind: str, vocab: Vocab) -> list[tuple[Sampler, Canvas, Rng]]:
    """Each sampler with canvases of several lengths and numbers of rows."""
    shapes = [(1, 9), (1, 9), (2, 12), (1, 17), (3, 5)]
    many = [(sampler, *shape) for sampler in SAMPLERS[kind] for shape in shapes]
    return [(sampler, rows(vocab, n, length, i), rng(i, n)) for i, (sampler, n, length) in enumerate(many)]


@pytest.mark.parametrize("time", [None, 8])
@pytest.mark.parametrize("kind", ["full", "blocks", "causal"])
def test_texts_are_the_same_alone_and_in_company(
    build: Build, tiny: TransformerConfig, vocab: Vocab, kind: str, time: int | None
) -> None:
    if kind == "causal" and time is not None:
        pytest.skip("a causal network sees no time")
    model = build(PATTERNS[kind], replace(tiny, time=time)).eval()
    asked = requests(kind, vocab)
    alone = [final_canvas(sampler(model, model.process, canvas, rng=keys)).z for sampler, canvas, keys in asked]
    together: dict[int, Tensor] = {}
    board = BatchScheduler(min_rows=16)
    shared = model.on(Packed(board))

    def work(i: int) -> Callable[[], None]:
        sampler, canvas, keys = asked[i]

        def run() -> None:
            together[i] = final_canvas(sampler(shared, shared.process, canvas, rng=keys)).z

        return run

    board.run([work(i) for i in range(len(asked))])
    board.close()
    for i, z in enumerate(alone):
        assert together[i].tolist() == z.tolist(), str(asked[i][0])
    assert board.merged > 3 * board.passes, "passes were merged"


def writing(
    model: DiffusionLM, canvas: Canvas, seed: int, found: dict[int, object], sampler: Sampler = Ancestral(6)
) -> Callable[[], None]:
    """Writes into `found` under its seed, or the error that ended it."""

    def run() -> None:
        try:
            found[seed] = final_canvas(sampler(model, model.process, canvas, rng=rng(seed, len(canvas.z)))).z.tolist()
        except Exception as error:
            found[seed] = type(error)

    return run


def test_cancelled_and_late_writers_end_alone(build: Build, vocab: Vocab) -> None:
    model, canvas, found = build().eval(), rows(vocab, 1, 12, 0), dict[int, object]()
    alone = final_canvas(Ancestral(6)(model, model.process, canvas, rng=rng(2, 1))).z.tolist()
    board = BatchScheduler()
    model = model.on(Packed(board))
    first = board.start(writing(model, canvas, 0, found))
    board.start(writing(model, canvas, 1, found), deadline=time.monotonic() + 1e-9)
    board.start(writing(model, canvas, 2, found))
    board.run_round()
    first.cancel()
    while board.requests:
        board.run_round()
    board.close()
    assert found == {0: Cancelled, 1: DeadlineExceeded, 2: alone}


def test_numbers_that_are_not_finite_end_one_writer(build: Build, vocab: Vocab) -> None:
    model, found = build().eval(), dict[int, object]()
    good, bad = rows(vocab, 2, 12, 0), rows(vocab, 1, 12, 1)
    bad = replace(bad, z=torch.full_like(bad.z, 3))
    good = replace(good, z=torch.where(good.z == 3, 2, good.z))
    model.network.embedding.weight[3] = torch.nan
    board = BatchScheduler()
    model = model.on(Packed(board))
    board.run([writing(model, good, 0, found), writing(model, bad, 1, found), writing(model, good, 2, found)])
    board.close()
    assert found[1] is NonFiniteOutput
    assert isinstance(found[0], list)
    assert isinstance(found[2], list)


def test_an_error_in_a_merged_pass_ends_one_writer(build: Build, tiny: TransformerConfig, vocab: Vocab) -> None:
    model, found = build(network=replace(tiny, positions=12)).eval(), dict[int, object]()
    canvases = [rows(vocab, 1, size, 0) for size in (12, 13, 9)]
    board = BatchScheduler()
    model = model.on(Packed(board))
    board.run([writing(model, canvas, i, found) for i, canvas in enumerate(canvases)])
    board.close()
    assert found[1] is ValueError, "this network has 12 positions"
    assert isinstance(found[0], list)
    assert isinstance(found[2], list)


def test_a_short_row_does_not_wait_for_a_long_one(build: Build, vocab: Vocab) -> None:
    """While the long row has one pass, the short one has as many as cost twice as much."""
    model, found = build().eval(), dict[int, object]()
    board = BatchScheduler(overhead=1)
    model = model.on(Packed(board))
    canvas = Canvas(torch.zeros(1, 20, dtype=torch.int64), torch.zeros(1, 20, dtype=torch.bool))
    long = board.start(writing(model, rows(vocab, 4, 60, 0), 0, found))
    short = board.start(writing(model, canvas, 1, found, Unmask(20)))
    while 1 not in found:
        board.run_round()
    assert short.passes > 4 * long.passes
    while board.requests:
        board.run_round()
    board.close()


def test_calls_are_counted_for_each_writer(build: Build, vocab: Vocab) -> None:
    model, counts = build().eval(), dict[int, int]()

    def run(model: DiffusionLM, i: int) -> None:
        with count_calls(model) as counted:
            final_canvas(Unmask(i)(model, model.process, rows(vocab, i, 9, 0), rng=rng(0, i)))
        counts[i] = counted.rows

    for i in (1, 2, 3):
        run(model, i)
    alone, board = dict(counts), BatchScheduler()
    shared = model.on(Packed(board))
    board.run([partial(run, shared, i) for i in (1, 2, 3)])
    board.close()
    assert counts == alone
    assert board.passes == 3


def test_products_are_steady_here() -> None:
    """With rows to spare, or by MKL's own order, a row of a product is the same in any company."""
    least = batch_invariant_rows([(32, 96), (96, 32), (32, 300)])
    assert least is not None
    x, w = torch.arange(64 * 32).float().sin().view(64, 32), torch.arange(96 * 32).float().cos().view(96, 32)
    assert torch.equal((x @ w.T)[:least], x[:least] @ w.T)


def test_nothing_asked_is_answered_by_nothing(build: Build) -> None:
    network = build().network
    none, some = project_ragged(network, [torch.zeros(0, 16), torch.zeros(2, 16)])
    assert (none.shape, some.shape) == ((0, 7), (2, 7))
