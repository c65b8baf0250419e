"""Many writers on one network: the same texts, alone and in company."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from redraft.networks import BlockCausal, Causal, Full, TransformerConfig
from redraft.ops import Rng, rng
from redraft.samplers import (
    Ancestral,
    Blocks,
    Confidence,
    ConfidenceThreshold,
    Dual,
    FirstHitting,
    Prefix,
    Sampler,
    Unmask,
    last,
)
from redraft.serve.switchboard import Switchboard
from redraft.types import Canvas, Context, Vocab
from tests.conftest import Build

SAMPLERS: dict[str, list[Sampler]] = {
    "full": [
        Ancestral(4),
        FirstHitting(),
        Unmask(5, Confidence()),
        Unmask(4, ConfidenceThreshold(0.4)),
        Blocks(Unmask(2, Confidence()), decode_block=3),
        Blocks(Unmask(2), decode_block=4, cache=Dual()),
        Blocks(Ancestral(2), decode_block=2, cache=Prefix(1)),
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
    alone = [last(sampler(model, model.process, canvas, rng=keys)).z for sampler, canvas, keys in asked]
    together: dict[int, Tensor] = {}

    def work(i: int) -> Callable[[], None]:
        sampler, canvas, keys = asked[i]

        def run() -> None:
            together[i] = last(sampler(model, model.process, canvas, rng=keys)).z

        return run

    board = Switchboard([model.network], least=16)
    board.run([work(i) for i in range(len(asked))])
    board.close([model.network])
    assert model.network.merger is None
    for i, z in enumerate(alone):
        assert together[i].tolist() == z.tolist(), str(asked[i][0])
    assert board.merged > 3 * board.passes, "passes were merged"
