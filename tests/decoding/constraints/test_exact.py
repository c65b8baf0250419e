"""Marginals, joint draws and best texts under a rule, against enumeration."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from redraft import (
    Ancestral,
    Canvas,
    Confidence,
    Constrained,
    Interpolating,
    Masked,
    Regex,
    Unmask,
    Vocab,
    constrain,
    rng,
)
from redraft.core import CharTokenizer, HybridNoise, TablePrediction
from redraft.decoding import AnyOrder, OneOf, final_canvas
from redraft.decoding.constraints import query as query_module
from redraft.decoding.constraints.constrained import ConstrainedPrediction
from tests.decoding.constraints.toys import LETTERS, VOCAB, Said, blank, chi_square, law, matching, said, text_of

PATTERNS = ("a+b?|b(ab)*", "(ab?)*", "[ab]{2,3}", ".*aba.*", "a{0,4}|b{4}")


def conditioned(
    log_p: Tensor, pattern: str, given: dict[int, int] | None = None, rows: int = 1
) -> ConstrainedPrediction:
    canvas = constrain(blank(len(log_p), rows, given), Regex(pattern), LETTERS)
    pred = Constrained(Masked(VOCAB))(Said(log_p)).predict(canvas.z, canvas.time(torch.ones(rows, 1)), canvas.context)
    assert isinstance(pred, ConstrainedPrediction)
    return pred


def marginals(joint: dict[tuple[int, ...], float], length: int) -> Tensor:
    table = torch.zeros(length, VOCAB.size, dtype=torch.float64)
    for ids, p in joint.items():
        table[torch.arange(length), torch.tensor(ids)] += p
    return table


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("given", [{}, {2: 0}, {0: 1, 3: 0}])
def test_marginals_and_the_normalizer_are_exact(pattern: str, given: dict[int, int]) -> None:
    log_p = said(5, seed=len(pattern))
    joint = law(log_p, pattern, given)
    if not joint:
        with pytest.raises(ValueError, match="obeys"):
            conditioned(log_p, pattern, given)
        return
    pred = conditioned(log_p, pattern, given)
    assert torch.allclose(pred.x[0].double().exp(), marginals(joint, 5), atol=1e-6)
    chance = sum(
        math.exp(sum(float(log_p[i, token]) for i, token in enumerate(ids) if i not in given)) for ids in joint
    )
    assert float(pred.log_match()) == pytest.approx(math.log(chance), abs=1e-5)


def rows(z: Tensor) -> Counter[tuple[int, ...]]:
    return Counter(tuple(row) for row in z.tolist())


N = 4000


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("pattern", PATTERNS[:3])
def test_a_joint_draw_has_the_law_of_enumeration(pattern: str, temperature: float) -> None:
    log_p = said(4, seed=3)
    pred = conditioned(log_p, pattern, rows=N)
    everywhere = torch.ones(N, 4, dtype=torch.bool)
    drawn = pred.draw(everywhere, rng=rng(0, N), temperature=temperature).tokens().view(N, 4)
    assert chi_square(rows(drawn), law(log_p / temperature, pattern)) < 4


def test_some_positions_of_a_joint_draw_may_be_dropped() -> None:
    """The tokens of a part are those of the whole: what is kept can always be completed."""
    pred = conditioned(said(4, seed=1), "(aa|bb)*", rows=64)
    everywhere, some = torch.ones(64, 4, dtype=torch.bool), torch.zeros(64, 4, dtype=torch.bool)
    some[:, [1, 2]] = True
    drawn = pred.draw(everywhere, rng=rng(5, 64))
    assert torch.equal(drawn.tokens(some.flatten()), drawn.tokens()[some.flatten()])
    alone = pred.draw(some, rng=rng(5, 64)).tokens()
    assert torch.equal(alone, drawn.tokens()[some.flatten()])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(PATTERNS), st.floats(0.1, 8))
def test_temperature_zero_is_the_likeliest_text_as_a_whole(seed: int, pattern: str, sharp: float) -> None:
    log_p = said(4, seed, sharp=sharp)
    best = conditioned(log_p, pattern).draw(torch.ones(1, 4, dtype=torch.bool), rng=rng(0), temperature=0.0).tokens()
    joint = law(log_p, pattern)
    assert joint[tuple(best.tolist())] == pytest.approx(max(joint.values()), rel=1e-5)


def test_logarithms_take_over_where_plain_numbers_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    log_p = said(5, seed=2)
    plain = conditioned(log_p, "(ab?)*")
    everywhere = torch.ones(1, 5, dtype=torch.bool)
    expected = plain.at(everywhere), plain.log_match(), plain.draw(everywhere, rng=rng(3)).tokens()
    monkeypatch.setattr(query_module, "_SAFE_LOG_PROB", 2.0)  # nothing is safe
    logs = conditioned(log_p, "(ab?)*")
    assert torch.allclose(logs.at(everywhere), expected[0], atol=1e-5)
    assert torch.allclose(logs.log_match(), expected[1], atol=1e-5)
    assert torch.equal(logs.draw(everywhere, rng=rng(3)).tokens(), expected[2])


def test_what_the_network_thinks_impossible_is_written_if_the_rule_leaves_no_choice() -> None:
    """Each half alone is likely, but together they would not match: 1e-400 is no zero."""
    log_p = torch.full((8, VOCAB.size), -torch.inf)
    log_p[:4, 0], log_p[:4, 1] = 0.0, -400.0
    log_p[4:, 1], log_p[4:, 0] = 0.0, -400.5
    log_p[:, 2] = -1000.0
    everywhere = torch.ones(1, 8, dtype=torch.bool)
    for temperature in (0.0, 1.0):
        drawn = conditioned(log_p, "a{8}|b{8}").draw(everywhere, rng=rng(1), temperature=temperature).tokens()
        assert text_of(drawn.tolist()) == "bbbbbbbb"
    log_p[:, 0] = -torch.inf  # excluded by something else, a filter for example
    for temperature in (0.0, 0.5, 1.0):
        drawn = conditioned(log_p, "a{8}").draw(everywhere, rng=rng(1), temperature=temperature).tokens()
        assert text_of(drawn.tolist()) == "aaaaaaaa"


@pytest.mark.parametrize("sampler", [Ancestral(1), Unmask(1, AnyOrder()), Unmask(4, AnyOrder())])
def test_samplers_of_mask_noise_keep_the_law(sampler: Ancestral | Unmask) -> None:
    """A network that does not look has the same law in one step and in four."""
    log_p, pattern = said(4, seed=7), "a+b?|b(ab)*"
    canvas = constrain(blank(4, N), Regex(pattern), LETTERS)
    process = Masked(VOCAB)
    found = final_canvas(sampler(Constrained(process)(Said(log_p)), process, canvas, rng=rng(1, N)))
    assert chi_square(rows(found.z), law(log_p, pattern)) < 4


UNIFORM = Vocab(3, eos=2)


@pytest.mark.parametrize("process", [Interpolating(UNIFORM), Interpolating(VOCAB, mixing=HybridNoise(0.3))])
def test_uniform_and_hybrid_noise_keep_the_law(process: Interpolating) -> None:
    """One position's x̂ does not look at that position, so independent positions have this x̂ exactly."""
    log_p, pattern = said(4, seed=7, vocab=process.vocab), "a+b?|b(ab)*"
    letters = LETTERS if process.vocab is VOCAB else CharTokenizer("ab", ("eos",))
    empty = Canvas(torch.zeros(N, 4, dtype=torch.int64), torch.zeros(N, 4, dtype=torch.bool))
    canvas = constrain(empty, Regex(pattern), letters)
    found = final_canvas(Ancestral(4)(Constrained(process)(Said(log_p)), process, canvas, rng=rng(2, N)))
    expected = law(torch.nn.functional.pad(log_p, (0, 4 - process.vocab.size), value=-torch.inf), pattern)
    assert chi_square(rows(found.z), expected) < 4


def test_without_a_rule_worth_the_name_nothing_changes() -> None:
    log_p = said(4, seed=9)
    log_p[:, VOCAB.eos] = -40.0
    pred = conditioned(log_p.log_softmax(-1), "[ab]*")
    inner = TablePrediction(log_p.log_softmax(-1)[None])
    everywhere = torch.ones(1, 4, dtype=torch.bool)
    assert torch.allclose(pred.at(everywhere)[:, :2], inner.at(everywhere)[:, :2], atol=1e-5)


def test_a_row_does_not_depend_on_its_batch() -> None:
    log_p, process = said(4, seed=4), Masked(VOCAB)
    canvas = constrain(blank(4, 7), OneOf("ab", "ba", "aabb"), LETTERS)
    denoise, sampler = Constrained(process)(Said(log_p)), Unmask(4, Confidence(1.0))
    together = final_canvas(sampler(denoise, process, canvas, rng=rng(0, 7))).z
    for row in range(7):
        index = torch.tensor([row])
        alone = final_canvas(sampler(denoise, process, canvas.rows(index), rng=rng(0, index))).z
        assert torch.equal(alone[0], together[row])


def test_windows_know_what_was_written_and_what_must_follow() -> None:
    canvas = constrain(blank(6, given={5: 1}), Regex("a{3}b{3}|b{6}"), LETTERS)
    z = canvas.z.clone()
    z[0, :2] = 0
    marks = Canvas(z, canvas.fixed, canvas.context).window(2, 4, canvas.context).context.constraints.rules
    assert marks is not None
    log_p, process = said(2, seed=0), Masked(VOCAB)
    window = Canvas(z, canvas.fixed, canvas.context).window(2, 4, canvas.context)
    pred = Constrained(process)(Said(log_p)).predict(window.z, window.time(torch.ones(1, 1)), window.context)
    assert np.allclose(pred.x[0].exp().numpy(), [[1, 0, 0, 0], [0, 1, 0, 0]], atol=1e-6)


def test_the_enumeration_itself_knows_endings() -> None:
    assert set(matching("a?", 2)) == {(2, 2), (0, 2)}
