"""Training and loading with what a careless or a hostile user gives them: one clear line, and nothing is lost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from inspect import signature
from typing import Any

import pytest

from redraft.networks.attention import Causal
from redraft.networks.transformer import TransformerConfig
from redraft.presets import PRESETS
from redraft.run import Optimiser, Run
from redraft.text import Bytes, Tokenizer
from redraft.types import Vocab

ELSEWHERE = {"stop", "start", "seed", "temperature"}  # ids are no sizes; temperatures are tested with the samplers


def preset(name: str) -> Run:
    takes = signature(PRESETS[name]).parameters
    return PRESETS[name](**({"tokenizer": Bytes()} if "tokenizer" in takes else {}))


def numbers(value: Any) -> Iterator[tuple[Any, str, int | float]]:
    """Every number at any depth of a run that a flag could set: its holder, its name, its value."""
    if not is_dataclass(value) or isinstance(value, Tokenizer | Vocab):
        return
    for field in fields(value):
        held = getattr(value, field.name)
        if type(held) in (int, float):
            yield value, field.name, held
        yield from numbers(held)


# Settings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_no_number_of_a_preset_may_be_nonsense(name: str) -> None:
    """Not a number, and counts below zero, are refused by whatever holds them, before anything is built."""
    tried = 0
    for holder, field, value in numbers(preset(name)):
        if field in ELSEWHERE:
            continue
        with pytest.raises(ValueError):
            replace(holder, **{field: math.nan if isinstance(value, float) else -1})
        tried += 1
    assert tried > 20


@pytest.mark.parametrize(
    "wrong",
    [
        *({name: number} for name in ("lr", "muon", "eps", "weight_decay") for number in (math.nan, math.inf, -1e-3)),
        *({"ema": number} for number in (math.nan, 2.0, -0.1)),
        *({"floor": number} for number in (math.nan, -1.0, 1.5)),
        *({"clip": number} for number in (math.nan, -1.0, 0.0)),
        *({"betas": pair} for pair in ((0.9, 1.0), (math.nan, 0.9), (-0.1, 0.9))),
        {"warmup": -5},
    ],
    ids=str,
)
def test_an_optimiser_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"^{next(iter(wrong))}=.*must be"):
        Optimiser(**wrong)


def test_an_optimiser_may_stand_still_and_need_not_clip() -> None:
    assert Optimiser(lr=0.0, clip=math.inf, ema=1.0, floor=0.0, muon=0.0).warmup == 0


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_would_wrap_around(seed: int) -> None:
    with pytest.raises(ValueError, match=r"seed=.*at least 0 and at most"):
        replace(PRESETS["mdlm_tiny"](), seed=seed)


@pytest.mark.parametrize("name", ["width", "layers", "heads", "kv_heads", "head_dim", "hidden", "positions", "time"])
@pytest.mark.parametrize("size", [0, -1, 10**12])
def test_a_network_has_sizes_that_can_be(name: str, size: int) -> None:
    with pytest.raises(ValueError, match=f"^{name}={size}; it must be"):
        TransformerConfig(8, **{name: size})


def test_a_causal_network_begins_with_an_id_it_has() -> None:
    with pytest.raises(ValueError, match="one of its 8 ids; got time=None, start=8"):
        TransformerConfig(8, pattern=Causal(8))
