"""LiteLLM: completions, streams, tools, schemas, embeddings, and errors that keep their kind."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the internet for prices
litellm = pytest.importorskip("litellm", reason="needs redraft[clients]")

from tests.apps.server.served import run_blocks  # noqa: E402
from tests.clients.questions import ASK, SYSTEM, TURNS, Sum, Weather, close_soon  # noqa: E402

TOOLS = [
    {"type": "function", "function": {"name": model.__name__, "parameters": model.model_json_schema()}}
    for model in (Weather, Sum)
]


def complete(url: str, **options: Any) -> Any:
    common = {"model": "openai/smol", "api_base": f"{url}/v1", "api_key": "none", "max_tokens": 8, "seed": 1}
    return litellm.completion(**common | {"messages": ASK, "num_retries": 0} | options)


@pytest.mark.parametrize("messages", [ASK, SYSTEM, TURNS])
def test_messages(url: str, messages: Any) -> None:
    found = complete(url, messages=messages)
    assert isinstance(found.choices[0].message.content, str)
    assert found.usage.completion_tokens <= 8


@pytest.mark.parametrize(
    "options",
    [
        *({"temperature": 0}, {"top_p": 0.5}, {"stop": ["e"]}, {"n": 2}, {"presence_penalty": 0.5}),
        *({"frequency_penalty": 0.5}, {"logit_bias": {"40": 5}}, {"user": "me"}, {"logprobs": True, "top_logprobs": 2}),
    ],
    ids=str,
)
def test_options(url: str, options: dict[str, Any]) -> None:
    assert len(complete(url, **options).choices) == options.get("n", 1)


def test_a_stream_is_the_text(url: str) -> None:
    chunks = [chunk.choices[0].delta.content or "" for chunk in complete(url, stream=True, temperature=0)]
    assert "".join(chunks) == complete(url, temperature=0).choices[0].message.content


def test_async(url: str) -> None:
    common = {"model": "openai/smol", "api_base": f"{url}/v1", "api_key": "none", "max_tokens": 4, "messages": ASK}
    assert asyncio.run(litellm.acompletion(**common)).choices[0].message.content is not None


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "Sum"}}], ids=str)
def test_tools(url: str, choice: Any) -> None:
    (call,) = complete(url, tools=TOOLS, tool_choice=choice, max_tokens=60).choices[0].message.tool_calls
    {"Weather": Weather, "Sum": Sum}[call.function.name].model_validate_json(call.function.arguments)


@pytest.mark.parametrize("model", [Weather, Sum])
def test_schemas(url: str, model: Any) -> None:
    found = complete(url, response_format=model, max_tokens=60)
    model.model_validate_json(found.choices[0].message.content)


def test_json_objects(url: str) -> None:
    choice = complete(url, response_format={"type": "json_object"}, max_tokens=60, logit_bias=close_soon(url)).choices[
        0
    ]
    assert isinstance(json.loads(choice.message.content), dict)


def test_texts(url: str) -> None:
    found = litellm.text_completion(
        model="text-completion-openai/smol", prompt="the cat", api_base=f"{url}/v1", api_key="none", max_tokens=4
    )
    assert isinstance(found.choices[0].text, str)


def test_embeddings(url: str) -> None:
    found = litellm.embedding(model="openai/smol", input=["a cat", "a dog"], api_base=f"{url}/v1", api_key="none")
    assert len(found.data) == 2


def test_errors_keep_their_kind(url: str) -> None:
    with pytest.raises(litellm.BadRequestError, match="temperature"):
        complete(url, temperature=-1)
    with pytest.raises(litellm.NotFoundError):
        complete(url, model="openai/nobody")


def test_the_page(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_blocks("litellm", url)
    assert capsys.readouterr().out.strip()
