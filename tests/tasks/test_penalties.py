"""Penalties and biases are OpenAI's: log x̂ + bias − frequency·c − presence·[c > 0], c counts what was written."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from redraft import generate
from redraft.core import Context
from redraft.decoding import LogitFilter
from redraft.models import DiffusionLM, reference_outputs
from redraft.tasks import ArgumentError
from redraft.training import load
from tests.apps.server.tiny_llama import write_tiny_llama

PROMPT = (40, 41, 42, 40)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> DiffusionLM:
    return load(write_tiny_llama(tmp_path_factory.mktemp("llama") / "tiny"))


@torch.no_grad()
def greedy(model: DiffusionLM, count: int, frequency: float, presence: float, bias: dict[int, float]) -> list[int]:
    """OpenAI's definition, one token at a time."""
    row, written = list(PROMPT), list[int]()
    for _ in range(count):
        logits = reference_outputs(model, torch.tensor([row]))[0, -1]
        for token in set(written):
            logits[token] -= frequency * written.count(token) + presence
        for token, value in bias.items():
            logits[token] += value
        written.append(int(logits.argmax()))
        if written[-1] == model.config.vocab.eos:
            break
        row.append(written[-1])
    return written


@pytest.mark.parametrize(
    ("frequency", "presence", "bias"),
    [(0.0, 0.0, {}), (0.7, 0.0, {}), (0.0, 1.5, {}), (2.0, 2.0, {}), (-0.5, 0.3, {}), (0.4, 0.4, {65: 3.0, 66: -100})],
)
def test_causal_text_is_openais(model: DiffusionLM, frequency: float, presence: float, bias: dict[int, float]) -> None:
    options: dict[str, Any] = {"frequency_penalty": frequency, "presence_penalty": presence, "logit_bias": bias}
    found = generate(model, [list(PROMPT)], max_new_tokens=24, sampler="confidence", temperature=0, **options)[0]
    expected = greedy(model, 24, frequency, presence, bias)
    assert list(found.tokens[len(PROMPT) :]) == [t for t in expected if t != model.config.vocab.eos]


def test_penalties_change_the_text_and_spare_the_prompt(model: DiffusionLM) -> None:
    plain, penalized = greedy(model, 24, 0, 0, {}), greedy(model, 24, 2, 2, {})
    assert len(set(penalized)) > len(set(plain)), "the greedy text repeats itself, the penalized one less"
    forced = generate(model, [list(PROMPT)], max_new_tokens=3, logit_bias={41: 100}, presence_penalty=2)[0]
    assert forced.tokens[len(PROMPT) :] == (41, 41, 41)


def test_rows_of_a_batch_are_penalized_alone(model: DiffusionLM) -> None:
    options: dict[str, Any] = {"max_new_tokens": 12, "frequency_penalty": 1.0, "presence_penalty": 0.5, "seed": 3}
    prompts = [list(PROMPT), [50, 51, 52, 53, 54, 55, 56], "the cat"]
    together = [text.tokens for text in generate(model, prompts, **options)]
    alone = [generate(model, [prompt], **options)[0].tokens for prompt in prompts]
    assert together == alone


def test_the_filter_is_the_formula() -> None:
    log_p = torch.randn(3, 7).log_softmax(-1)
    written = torch.tensor([[0, 1, 2, 0, 0, 3, 0]]).expand(3, -1)
    found = LogitFilter(frequency=0.5, presence=0.25, bias=((2, 1.0), (6, -2.0))).apply(log_p, None, written)
    bias = torch.tensor([0, 0, 1.0, 0, 0, 0, -2.0])
    torch.testing.assert_close(found, (log_p + bias - 0.5 * written - 0.25 * (written > 0)).log_softmax(-1))
    assert Context().condition.given is None


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"frequency_penalty": 3}, "frequency_penalty=3: it must be from -2 to 2"),
        ({"logit_bias": {"a": 1}}, "give ids of tokens with numbers from -100 to 100"),
        ({"logit_bias": {"1": 101}}, "give ids of tokens with numbers from -100 to 100"),
        ({"logit_bias": {"100000": 1}}, "there is no token 100000; ids are from 0 to"),
        ({"prompts": [[1, 10**6]]}, "1000000 is not the id of a token of this model"),
        ({"draft": "lookup", "presence_penalty": 1}, "presence_penalty=… cannot be combined with draft"),
        ({"window": 8, "presence_penalty": 1}, "penalties count the whole text"),
    ],
    ids=str,
)
def test_what_has_no_meaning_is_refused(model: DiffusionLM, options: dict[str, Any], line: str) -> None:
    with pytest.raises(ArgumentError, match=line):
        generate(model, **({"prompts": "the cat", "max_new_tokens": 4} | options))
