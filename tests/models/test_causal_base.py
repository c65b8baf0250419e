"""The causal model inside an adapted one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from conftest import Build

from redraft.models import DiffusionLM, LoraConfig, Shift, TransformerConfig, lora_disabled, with_weight_format
from redraft.models.causal_base import causal_base, is_adapted


@pytest.fixture
def adapted(build: Build, tiny: TransformerConfig) -> DiffusionLM:
    return build(network=replace(tiny, lora=LoraConfig(4), tied=True), head=Shift()).eval()


@pytest.mark.parametrize("weights", [None, "packed"])
def test_it_has_the_logits_of_the_model_with_its_adapter_off(adapted: DiffusionLM, weights: str | None) -> None:
    z = torch.tensor([[1, 2, 3, 4], [5, 4, 1, 0]])
    with torch.no_grad(), lora_disabled(adapted):
        states = adapted.network.extend(z)[0]
        expected = adapted.network.logits(states)[..., :-1]
    model = adapted if weights is None else with_weight_format(adapted, weights)
    base = causal_base(model)
    with torch.no_grad():
        found = base.network.logits(base.network(z))[..., : expected.shape[-1]]
    torch.testing.assert_close(found, expected)
    assert base.config.is_plain_causal
    assert is_adapted(adapted)
    assert not is_adapted(base)
    assert causal_base(model) is base, "made once"


def test_it_shares_the_weights(adapted: DiffusionLM) -> None:
    base = causal_base(adapted)
    name = "blocks.0.attention.qkv.weight"
    assert base.network.get_parameter(name).data_ptr() == adapted.network.get_parameter(name).data_ptr()
    assert base.network.embedding.weight.data_ptr() == adapted.network.embedding.weight.data_ptr()


def test_fp16_is_a_copy(adapted: DiffusionLM) -> None:
    before = {name: p.clone() for name, p in adapted.named_parameters()}
    fast = causal_base(adapted, fp16=True)
    assert fast is not causal_base(adapted)
    assert all(torch.equal(before[name], p) for name, p in adapted.named_parameters())
    z = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        slow, quick = (m.network.logits(m.network(z))[..., :6] for m in (causal_base(adapted), fast))
    torch.testing.assert_close(slow, quick, atol=0.02, rtol=0.02)
