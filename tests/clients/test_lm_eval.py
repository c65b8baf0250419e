"""lm-eval over HTTP: log-likelihoods by echo and logprobs are those of the model, and texts stop where they should."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytest.importorskip("tenacity", reason="needs redraft[clients]")
openai_completions = pytest.importorskip("lm_eval.models.openai_completions", reason="needs redraft[clients]")


PAIRS = [("the cat", " sat"), ("the cat sat on", " the mat"), ("a", " dog ran home"), ("Is Rome in Italy?", " yes")]


def harness(url: str, **options: Any) -> Any:
    common = {"model": "smol", "base_url": f"{url}/v1/completions", "tokenizer_backend": "remote"}
    return openai_completions.LocalCompletionsAPI(**common, max_retries=1, **options)


def requests(kind: str, arguments: Any) -> list[Any]:
    from lm_eval.api.instance import Instance

    return [Instance(kind, {}, pair, index) for index, pair in enumerate(arguments)]


@pytest.mark.parametrize("batch_size", [1, 4])
def test_log_likelihoods(url: str, batch_size: int) -> None:
    found = harness(url, batch_size=batch_size).loglikelihood(requests("loglikelihood", PAIRS), disable_tqdm=True)
    alone = [harness(url).loglikelihood(requests("loglikelihood", [pair]), disable_tqdm=True)[0] for pair in PAIRS]
    assert [log_p for log_p, _ in found] == pytest.approx([log_p for log_p, _ in alone], abs=1e-3)
    assert all(math.isfinite(log_p) and log_p < 0 for log_p, _ in found)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_log_likelihood_is_the_sum_of_its_tokens(url: str, pair: tuple[str, str]) -> None:
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key="none")
    text = "".join(pair)
    echo = client.completions.create(model="smol", prompt=text, max_tokens=0, echo=True, logprobs=1).choices[0].logprobs
    assert echo is not None
    assert echo.text_offset is not None
    offsets = zip(echo.text_offset, echo.token_logprobs or [], strict=True)
    expected = sum(log_p or 0.0 for offset, log_p in offsets if offset >= len(pair[0]))
    ((found, _),) = harness(url).loglikelihood(requests("loglikelihood", [pair]), disable_tqdm=True)
    assert found == pytest.approx(expected, abs=1e-3)


def test_rolling(url: str) -> None:
    (found,) = harness(url).loglikelihood_rolling(
        requests("loglikelihood_rolling", [("the cat sat on the mat",)]), disable_tqdm=True
    )
    assert found < 0


@pytest.mark.parametrize("until", [["e"], ["\n\n"]])
def test_texts(url: str, until: list[str]) -> None:
    options = {"until": until, "max_gen_toks": 8, "temperature": 0}
    (found,) = harness(url).generate_until(requests("generate_until", [("the cat", options)]), disable_tqdm=True)
    assert until[0] not in found
