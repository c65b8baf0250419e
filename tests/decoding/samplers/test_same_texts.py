"""A seed gives the same text in every version: what each sampler writes with fixed weights, recorded once.

The weights come from `ops.rng`, so they are the same on every machine. If a change is meant to alter what a sampler
draws, say so in the changelog and record anew: `python tests/decoding/samplers/test_same_texts.py` prints the table.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from redraft.core import Canvas, HybridNoise, Interpolating, Masked, Process, Remask, RescaledRate, Vocab, rng
from redraft.decoding import (
    Ancestral,
    AnyOrder,
    Blocks,
    Confidence,
    Entropy,
    Euler,
    FirstHitting,
    Margin,
    Sampler,
    SelfCorrection,
    SlidingWindow,
    Unmask,
    final_canvas,
)
from redraft.models import (
    AttentionPattern,
    BlockCausal,
    Causal,
    DiffusionLM,
    DiffusionLMConfig,
    Full,
    Softmax,
    Subs,
    TransformerConfig,
)

VOCAB = Vocab(9, mask=8)
MASK, HYBRID = Masked(VOCAB), Interpolating(VOCAB, mixing=HybridNoise(0.2))
CASES: dict[str, tuple[Sampler, Process, AttentionPattern]] = {
    "ancestral": (Ancestral(5), MASK, Full()),
    "first hitting": (FirstHitting(), MASK, Full()),
    "any order": (Unmask(4, AnyOrder()), MASK, Full()),
    "confidence": (Unmask(4, Confidence(0.7)), MASK, Full()),
    "margin": (Unmask(4, Margin(0.7)), MASK, Full()),
    "entropy": (Unmask(4, Entropy(0.7)), MASK, Full()),
    "blocks": (Blocks(Ancestral(3)), MASK, BlockCausal(3)),
    "autoregressive": (Blocks(Ancestral(1)), MASK, Causal(8)),
    "semi-autoregressive": (Blocks(Unmask(2), decode_block=4), MASK, Full()),
    "strides": (SlidingWindow(Ancestral(4), window=8, stride=4), MASK, Full()),
    "remasking": (Ancestral(6), Remask(MASK, RescaledRate(0.3)), Full()),
    "hybrid": (Ancestral(6), HYBRID, Full()),
    "correction": (SelfCorrection(Ancestral(4), steps=3), HYBRID, Full()),
    "Euler": (Euler(6), MASK, Full()),
}
RECORDED = {
    "ancestral": "734036031126 217341406406",
    "first hitting": "007160456407 240747543414",
    "any order": "001065054455 046441454754",
    "confidence": "402411124114 204041441004",
    "margin": "602751105044 204064572404",
    "entropy": "702751504016 000354442400",
    "blocks": "011241534443 456202404347",
    "autoregressive": "121402221242 101153230133",
    "semi-autoregressive": "111141444343 111141444343",
    "strides": "161551300304 300213114145",
    "remasking": "704426131116 217341416406",
    "hybrid": "704305734544 201430203164",
    "correction": "327717324170 422644431603",
    "Euler": "011551221104 211515477460",
}


@torch.no_grad()
def text(name: str) -> str:
    """Two rows of twelve tokens, as digits."""
    sampler, process, pattern = CASES[name]
    head = Subs() if process != HYBRID else Softmax()
    network = TransformerConfig(width=16, layers=2, heads=2, hidden=32, positions=16)
    model = DiffusionLM(DiffusionLMConfig(process, replace(network, pattern=pattern), head))
    for number, p in enumerate(model.parameters()):
        p.copy_(rng(number).normal(*p.shape)[0] * (0.1 if p.dim() == 1 else p.shape[1] ** -0.5) + float(p.dim() == 1))
    blank = Canvas(torch.zeros(2, 12, dtype=torch.int64), torch.zeros(2, 12, dtype=torch.bool))
    rows = final_canvas(sampler(model, process, blank, rng=rng(7, 2))).z.tolist()
    return " ".join("".join(map(str, row)) for row in rows)


@pytest.mark.parametrize("name", CASES)
def test_a_seed_gives_the_same_text(name: str) -> None:
    assert text(name) == RECORDED[name]


if __name__ == "__main__":
    print("\n".join(f'    "{name}": "{text(name)}",' for name in CASES))
