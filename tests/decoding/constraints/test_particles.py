"""Particles draw from p(x | rule) of the model itself; a sampler under `Constrained` alone does not."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from redraft import Constrained, Context, Masked, Prediction, Regex, Unmask, constrain, rng
from redraft.core import TablePrediction
from redraft.decoding import AnyOrder, Entropy, ParticleSampler, RequiredFirst, Sampler, final_canvas
from tests.decoding.constraints.toys import LETTERS, VOCAB, blank, chi_square, matching

L, N = 3, 2000
STATES = torch.tensor(list(itertools.product(range(3), repeat=L)))


@dataclass(frozen=True)
class Truth:
    """The exact denoiser of a law of whole texts."""

    p: Tensor  # (3^L,)
    block: int | None = None

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        fits = ((z[:, None] == STATES) | (z[:, None] == VOCAB.mask)).all(-1)
        weight = (fits * self.p)[..., None, None] * torch.nn.functional.one_hot(STATES, VOCAB.size)
        return TablePrediction((weight.sum(1) / weight.sum((1, 3), keepdim=False)[..., None]).log().float())

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return context


def entangled() -> Tensor:
    """Neighbors repeat each other, so marginals tell little about whole texts."""
    same = (STATES[:, 1:] == STATES[:, :-1]).sum(-1).double()
    noise = torch.randn(len(STATES), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return (1.5 * same + 0.5 * noise).softmax(0)


def excess(sampler: Sampler, pattern: str) -> float:
    """How far Pearson's statistic against the model's own law given the pattern is above its mean, in deviations."""
    p, process = entangled(), Masked(VOCAB)
    canvas = constrain(blank(L, N), Regex(pattern), LETTERS)
    found = final_canvas(sampler(Constrained(process)(Truth(p)), process, canvas, rng=rng(1, N))).z
    own = {tuple(ids): float(each) for ids, each in zip(STATES.tolist(), p, strict=True)}
    wanted = {ids: own[ids] for ids in matching(pattern, L)}
    return chi_square(Counter(map(tuple, found.tolist())), {ids: w / sum(wanted.values()) for ids, w in wanted.items()})


@pytest.mark.parametrize("pattern", ["a(a|b)*|bab?", "(ab|aa|bbb|b|a)?"])
def test_many_particles_have_the_law_of_the_model_given_the_rule(pattern: str) -> None:
    assert excess(Unmask(L, AnyOrder()), pattern) > 8  # looking ahead by marginals is wrong, visibly
    assert excess(ParticleSampler(L, 1), pattern) > 8  # and one particle is no correction
    assert excess(ParticleSampler(L, 24), pattern) < 4


def test_what_is_demanded_comes_first() -> None:
    """All letters of a text are alike, and a b is demanded: in any order an a may come first, and spoils the text."""
    same = (STATES[:, 1:] == STATES[:, :-1]).all(-1) * torch.tensor([0.8, 0.2, 0.0])[STATES[:, 0]].double() + 1e-4
    process, canvas = Masked(VOCAB), constrain(blank(L, N), Regex(".*b.*"), LETTERS)
    right = {}
    for pick in (AnyOrder(), RequiredFirst(), RequiredFirst(Entropy(1.0))):
        denoise = Constrained(process)(Truth(same / same.sum()))
        found = final_canvas(Unmask(L, pick)(denoise, process, canvas, rng=rng(2, N))).z
        right[str(pick)] = float((found == 1).all(-1).double().mean())
    loose, first, surest = right.values()
    assert loose < 0.8
    assert min(first, surest) > 0.99


def test_without_a_rule_the_inner_pick_decides() -> None:
    process, denoise = Masked(VOCAB), Truth(entangled())
    for pick in (AnyOrder(), Entropy(1.0)):
        inner, outer = (
            final_canvas(Unmask(L, each)(denoise, process, blank(L, 9), rng=rng(3, 9))).z
            for each in (pick, RequiredFirst(pick))
        )
        assert torch.equal(inner, outer)
    with pytest.raises(ValueError, match=r"least=0\.5; it must be at least 1"):
        RequiredFirst(least=0.5)


def test_a_row_with_a_demand_does_not_depend_on_the_others() -> None:
    """Some rows still owe a b, others go on in any order."""
    process, denoise = Masked(VOCAB), Constrained(Masked(VOCAB))(Truth(entangled()))
    sampler, canvas = Unmask(L, RequiredFirst()), constrain(blank(L, 8), Regex(".*b.*"), LETTERS)
    together = final_canvas(sampler(denoise, process, canvas, rng=rng(0, 8))).z
    for row in range(8):
        index = torch.tensor([row])
        assert torch.equal(
            final_canvas(sampler(denoise, process, canvas.rows(index), rng=rng(0, index))).z[0], together[row]
        )


def test_a_row_of_particles_does_not_depend_on_the_others() -> None:
    process, denoise = Masked(VOCAB), Constrained(Masked(VOCAB))(Truth(entangled()))
    canvas = constrain(blank(L, 5), Regex("(ab|ba|aa)*"), LETTERS)
    together = final_canvas(ParticleSampler(3, 4)(denoise, process, canvas, rng=rng(0, 5))).z
    for row in range(5):
        index = torch.tensor([row])
        alone = final_canvas(ParticleSampler(3, 4)(denoise, process, canvas.rows(index), rng=rng(0, index))).z
        assert torch.equal(alone[0], together[row])


def test_particles_need_a_rule() -> None:
    with pytest.raises(ValueError, match="wrap the model in Constrained"):
        final_canvas(ParticleSampler(2)(Truth(entangled()), Masked(VOCAB), blank(L), rng=rng(0)))
    with pytest.raises(ValueError, match="at least one particle"):
        ParticleSampler(2, 0)
