"""What else was likely: taken from the prediction a token was drawn from, without a change of the text or its cost."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import redraft
from redraft.core import Interpolating, Masked, TokenProcess, WordTokenizer
from redraft.models import (
    AttentionPattern,
    BlockCausal,
    Causal,
    DiffusionLM,
    DiffusionLMConfig,
    Full,
    TransformerConfig,
)

WORDS = WordTokenizer(("a", "cat", "sat", "on", "the", "mat", ".", "big"), ("bos", "eos", "pad", "mask"))
STATES = WORDS.vocab.size


def model_of(pattern: AttentionPattern = Full(), process: TokenProcess | None = None) -> DiffusionLM:
    network = TransformerConfig(width=16, layers=1, heads=2, hidden=32, pattern=pattern, rotary=100.0)
    head = redraft.models.Softmax() if process else redraft.models.Subs()
    torch.manual_seed(0)
    model = DiffusionLM(DiffusionLMConfig(process or Masked(WORDS.vocab), network, head), WORDS)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, 0, 0.5)
    return model


HOW: dict[str, tuple[AttentionPattern, dict[str, Any]]] = {
    "ancestral": (Full(), {"sampler": "ancestral", "steps": 4}),
    "confidence": (Full(), {"sampler": "confidence", "steps": 4}),
    "filtered": (Full(), {"sampler": "entropy", "steps": 4, "top_p": 0.7, "repetition_penalty": 1.3}),
    "first-hitting": (Full(), {"sampler": "first-hitting"}),
    "with a dual cache": (Full(), {"sampler": "confidence", "steps": 2, "decode_block": 3, "cache": "dual"}),
    "blocks": (BlockCausal(3), {"sampler": "any-order", "steps": 3}),
    "causal": (Causal(), {}),
    "under a rule": (Full(), {"sampler": "any-order", "steps": 4, "pattern": "a( cat| mat)*"}),
    "guided": (Full(), {"sampler": "any-order", "steps": 4, "guidance": 1.5}),
}


@pytest.mark.parametrize("name", HOW)
def test_the_written_token_is_among_them_as_it_was(name: str) -> None:
    pattern, options = HOW[name]
    model, options = model_of(pattern), {"max_new_tokens": 9, "n": 3, "seed": 1} | options
    plain, kept = (redraft.generate(model, "a cat", **options, **more) for more in ({}, {"alternatives": STATES}))
    assert (kept.texts, kept.nfe, kept.sampler) == (plain.texts, plain.nfe, plain.sampler)
    assert all(not each.alternatives for each in plain)
    for each in kept:
        rows = zip(each.tokens, each.given, each.confidence, each.alternatives, strict=True)
        for token, given, confidence, top in rows:
            assert (top is None) == given
            if top is not None and confidence is not None:
                assert any(text == WORDS.decode([token]) and abs(p - confidence) < 1e-5 for text, p in top)


def test_tokens_that_change_have_those_of_their_last_change() -> None:
    model = model_of(process=Interpolating(WORDS.vocab))
    kept = redraft.infill(model, "a [[4]] the mat", alternatives=2, seed=2)[0]
    assert [top and len(top) for top in kept.alternatives] == [None if given else 2 for given in kept.given]
    assert kept.to_json()["alternatives"] == list(kept.alternatives)


def test_a_text_that_is_cut_has_none_beyond() -> None:
    model = model_of()
    whole = redraft.generate(model, "a", max_new_tokens=9, seed=3, sampler="left-to-right", end_token="never")[0]
    stop = whole.pieces[4].strip()
    cut = redraft.generate(model, "a", max_new_tokens=9, seed=3, sampler="left-to-right", stop=stop, alternatives=3)[0]
    assert len(cut.alternatives) == len(cut.tokens)
