"""Holes filled by a proposer and a judge: the best of all texts by both, and draws with the right weights."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from redraft.core import Canvas, Context, rng
from redraft.decoding import final_canvas
from redraft.models import Causal, DiffusionLM
from redraft.tasks import ProposeAndJudge

Build = Callable[..., DiffusionLM]
PValue = Callable[[Tensor, Tensor], float]
WORDS, MASK = 6, 6
ROW, HOLES = torch.tensor([[1, 0, 3, 0, 2]]), (1, 3)


class ByCausal:
    def __init__(self, model: DiffusionLM) -> None:
        self.model = model

    def __call__(self, z: Tensor, pad: Tensor | None) -> Tensor:
        with torch.no_grad():
            said = self.model.predict(torch.full_like(z, MASK), torch.ones(len(z), 1), Context(clean=z))
            return -said.nll(torch.ones_like(z, dtype=torch.bool), z).sum(-1)


@pytest.fixture(scope="module")
def both(build: Build) -> tuple[DiffusionLM, ByCausal]:
    return build(seed=5), ByCausal(build(Causal(), seed=1))


def enumerated(proposer: DiffusionLM, judge: ByCausal) -> tuple[Tensor, Tensor]:
    """(36, 2) all fillings, and log q + log p of each, by the definition."""
    pairs, found = torch.tensor(list(product(range(WORDS), repeat=2))), []
    with torch.no_grad():
        for first, second in pairs.tolist():
            z, total = ROW.clone(), 0.0
            z[0, list(HOLES)] = MASK
            for column, token in zip(HOLES, (first, second), strict=True):
                where = torch.zeros_like(z, dtype=torch.bool)
                where[0, column] = True
                t = torch.where(z == MASK, (z == MASK).double().mean(), 0.0)
                total += float(proposer.predict(z, t, Context()).at(where)[0, token])
                z[0, column] = token
            found.append(total + float(judge(z, None)))
    return pairs, torch.tensor(found).double()


def canvas(rows: int = 1) -> Canvas:
    fixed = torch.ones(rows, 5, dtype=torch.bool)
    fixed[:, list(HOLES)] = False
    return Canvas(ROW.repeat(rows, 1), fixed)


def test_the_best_of_all_texts(both: tuple[DiffusionLM, ByCausal]) -> None:
    proposer, judge = both
    pairs, total = enumerated(proposer, judge)
    done = final_canvas(ProposeAndJudge(judge, tries=36)(proposer, proposer.process, canvas(), rng=rng(0)))
    assert done.z[0, list(HOLES)].tolist() == pairs[total.argmax()].tolist()
    assert torch.equal(done.z[done.fixed], ROW[canvas().fixed])
    assert done.confidence is not None
    assert (done.confidence > 0).tolist() == (~done.fixed).tolist()
    alone = final_canvas(
        ProposeAndJudge(lambda z, pad: torch.zeros(len(z)), tries=36)(proposer, proposer.process, canvas(), rng=rng(0))
    )
    assert not torch.equal(alone.z, done.z)  # the judge has a say


def test_the_causal_model_has_a_say_in_what_is_kept(both: tuple[DiffusionLM, ByCausal]) -> None:
    """With one try: at each hole the token with the most log q + log p by the left side, not the most log q."""
    proposer, judge = both
    law = torch.randn(WORDS + 1, generator=torch.Generator().manual_seed(0)).mul(5).log_softmax(-1)

    def left(z: Tensor, column: int) -> Tensor:
        return law.expand(len(z), -1)

    done = final_canvas(ProposeAndJudge(judge, 1, next_token=left)(proposer, proposer.process, canvas(), rng=rng(0))).z
    z = ROW.clone()
    z[0, list(HOLES)] = MASK
    with torch.no_grad():
        for column in HOLES:
            where = torch.zeros_like(z, dtype=torch.bool)
            where[0, column] = True
            t = torch.where(z == MASK, (z == MASK).double().mean(), 0.0)
            z[0, column] = (proposer.predict(z, t, Context()).at(where)[0] + law).argmax()
    assert torch.equal(done, z)
    alone = final_canvas(ProposeAndJudge(judge, 1)(proposer, proposer.process, canvas(), rng=rng(0))).z
    assert not torch.equal(done, alone)


def test_draws_have_the_weights_of_both(both: tuple[DiffusionLM, ByCausal], p_value: PValue) -> None:
    proposer, judge = both
    _, total = enumerated(proposer, judge)
    rows = 300
    sampler = ProposeAndJudge(judge, tries=36, temperature=2.0)
    done = final_canvas(sampler(proposer, proposer.process, canvas(rows), rng=rng(0, rows))).z[:, list(HOLES)]
    law = (total / 2).softmax(-1).view(WORDS, WORDS) * rows
    first, second = (done[:, i].bincount(minlength=WORDS) for i in (0, 1))
    assert p_value(first, law.sum(1)) > 1e-3
    assert p_value(second, law.sum(0)) > 1e-3
    assert p_value(second, law.sum(1)) < 1e-3  # it can fail


def test_causal_models_are_refused(both: tuple[DiffusionLM, ByCausal]) -> None:
    with pytest.raises(ValueError, match="with full attention"):
        final_canvas(ProposeAndJudge(both[1])(both[1].model, both[1].model.process, canvas(), rng=rng(0)))
