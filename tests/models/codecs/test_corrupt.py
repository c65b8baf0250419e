"""What codecs are trained on: how much is changed, and that nothing else is."""

from __future__ import annotations

import math

import pytest
import torch

from redraft.core import Vocab, rng
from redraft.models.codecs.modules.corruption import (
    _add_noise,
    add_random_noise,
    drop_features,
    drop_positions,
    mask_tokens,
    substitute_tokens,
)

ROWS, L, D = 200, 50, 8
VOCAB = Vocab(100, mask=99)
KEYS = rng(0, ROWS)


def test_blur_keeps_the_variance() -> None:
    x = KEYS.normal(L, D).float()
    z = _add_noise(x, 0.6, rng=KEYS.fold(1))
    assert float(z.var()) == pytest.approx(1, abs=0.02)
    assert float((x * z).mean()) == pytest.approx(0.8, abs=0.02)
    assert _add_noise(x, 0.0, rng=KEYS).equal(x)


def test_each_row_has_a_blur_of_its_own() -> None:
    """φ is uniform up to asin 0.6: E[√(1 − σ²)] = E[cos φ] = m/asin(m) at m = 0.6."""
    x = KEYS.normal(L, D).float()
    kept = (x * add_random_noise(x, 0.6, rng=KEYS.fold(1))[0]).mean((1, 2)) / x.square().mean((1, 2))
    assert float(kept.mean()) == pytest.approx(0.6 / 0.6435, abs=0.01)
    assert float(kept.min()) < 0.85
    assert float(kept.max()) > 0.97


def test_a_blur_of_all_levels_often_leaves_almost_nothing() -> None:
    """P(cos φ < 0.2) = 2·asin(0.2)/π = 12.8 % for φ uniform up to π/2; of a uniform σ it would be 2 %."""
    x = torch.ones(20_000, 1, 64)
    noisy, signal = add_random_noise(x, 1.0, rng=rng(3, len(x)))
    kept = noisy.mean((1, 2))
    assert float((kept - signal[:, 0, 0]).abs().mean()) < 0.15
    assert float((kept < 0.2).float().mean()) == pytest.approx(2 / math.pi * math.asin(0.2), abs=0.03)


@pytest.mark.parametrize("most", [0.6, 1.0])
def test_a_spread_puts_more_rows_at_the_noisy_levels(most: float) -> None:
    """tan φ = 9·tan ψ with ψ uniform, up to where σ = sin φ is as asked; half of the rows lie below the middle ψ."""
    x = torch.ones(20_000, 1, 1)
    _, signal = add_random_noise(x, most, 9.0, rng=rng(3, len(x)))
    furthest = math.atan(math.tan(math.asin(most)) / 9)
    assert float(signal.min()) >= math.cos(math.asin(most)) - 1e-6
    assert float(signal.median()) == pytest.approx(math.cos(math.atan(9 * math.tan(furthest / 2))), abs=0.01)


def test_shares_are_as_asked() -> None:
    x = torch.ones(ROWS, L, D)
    places, features = drop_positions(x, 0.3, rng=KEYS), drop_features(x, 0.3, rng=KEYS)
    assert float(places.mean()) == pytest.approx(0.7, abs=0.02)
    assert float(features.mean()) == pytest.approx(0.7, abs=0.01)
    assert set(places.sum(-1).unique().tolist()) == {0.0, float(D)}  # all of a place or nothing
    assert len(features.sum(-1).unique()) > 3


def test_substitution_changes_a_share_of_the_tokens() -> None:
    tokens = torch.full((ROWS, L), 5)
    changed = substitute_tokens(tokens, 0.3, VOCAB, rng=KEYS)
    assert float((changed != tokens).float().mean()) == pytest.approx(0.3 * 0.99, abs=0.015)
    assert substitute_tokens(tokens, 0.0, VOCAB, rng=KEYS).equal(tokens)
    assert len(changed.unique()) == VOCAB.size


def test_masking_is_that_of_bert() -> None:
    """Of the chosen tokens eight tenths are masked, one tenth is random, one tenth stays; the others all stay."""
    tokens = torch.full((ROWS, L), 5)
    chosen, seen = mask_tokens(tokens, 0.2, VOCAB, rng=KEYS)
    assert float(chosen.float().mean()) == pytest.approx(0.2, abs=0.01)
    assert seen[~chosen].equal(tokens[~chosen])
    hidden = seen[chosen]
    assert float((hidden == VOCAB.mask).float().mean()) == pytest.approx(0.8, abs=0.02)
    assert float((hidden == 5).float().mean()) == pytest.approx(0.1, abs=0.02)
