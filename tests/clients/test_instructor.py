"""instructor: the modes TOOLS, JSON_SCHEMA and JSON."""

from __future__ import annotations

from typing import Any

import pytest
from openai import OpenAI
from pydantic import BaseModel

instructor = pytest.importorskip("instructor", reason="needs redraft[clients]")

from tests.apps.server.served import run_blocks  # noqa: E402
from tests.clients.questions import ASK, MODELS, SYSTEM, Sum, Weather, close_soon  # noqa: E402


class Anything(BaseModel):
    """An object of any kind: a random model does not read the schema in its prompt."""


def client(url: str, mode: str) -> Any:
    return instructor.from_openai(
        OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0), mode=instructor.Mode[mode]
    )


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_modes_that_obey(url: str, mode: str, model: type[BaseModel]) -> None:
    found = client(url, mode).chat.completions.create(
        model="smol", response_model=model, messages=ASK, max_tokens=90, max_retries=0, seed=1
    )
    assert isinstance(found, model)


@pytest.mark.parametrize("messages", [ASK, SYSTEM])
def test_json_is_an_object(url: str, messages: Any) -> None:
    options = {"logit_bias": close_soon(url), "seed": 1}
    found = client(url, "JSON").chat.completions.create(
        model="smol", response_model=Anything, messages=messages, max_tokens=60, max_retries=0, **options
    )
    assert isinstance(found, Anything)


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_the_completion_comes_too(url: str, mode: str) -> None:
    found, completion = client(url, mode).chat.completions.create_with_completion(
        model="smol", response_model=Weather, messages=ASK, max_tokens=60, max_retries=0
    )
    assert isinstance(found, Weather)
    assert completion.usage.total_tokens > 0


def test_partial_objects(url: str) -> None:
    stream = client(url, "TOOLS").chat.completions.create_partial(
        model="smol", response_model=Sum, messages=ASK, max_tokens=60, max_retries=0
    )
    last = list(stream)[-1]
    assert 0 <= last.a <= 99
    assert 0 <= last.b <= 99


def test_the_page(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_blocks("instructor", url)
    assert capsys.readouterr().out.startswith("ok=")
