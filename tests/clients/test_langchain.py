"""LangChain: `ChatOpenAI`, its three ways to structured output, tools, streams and embeddings."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel

langchain_openai = pytest.importorskip("langchain_openai", reason="needs redraft[clients]")

from tests.apps.server.served import run_blocks  # noqa: E402
from tests.clients.questions import ASK, MODELS, SYSTEM, TURNS, Sum, Weather, close_soon  # noqa: E402


def chat(url: str, **options: Any) -> Any:
    return langchain_openai.ChatOpenAI(
        model="smol", base_url=f"{url}/v1", api_key="none", max_retries=0, **{"max_tokens": 120, "seed": 1} | options
    )


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output_obeys_the_schema(url: str, method: str, model: type[BaseModel]) -> None:
    assert isinstance(chat(url).with_structured_output(model, method=method).invoke(ASK), model)


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output_by_a_json_schema(url: str, method: str) -> None:
    schema = {**Weather.model_json_schema(), "additionalProperties": False}
    found = chat(url).with_structured_output(schema, method=method, include_raw=True).invoke(ASK)
    assert found["parsing_error"] is None
    Weather.model_validate(found["parsed"])


def test_json_mode_is_an_object(url: str) -> None:
    llm = chat(url, logit_bias=close_soon(url)).with_structured_output(None, method="json_mode")
    assert isinstance(llm.invoke(ASK), dict)


@pytest.mark.parametrize("messages", [ASK, SYSTEM, TURNS, "Is Rome in Italy?"])
def test_messages(url: str, messages: Any) -> None:
    found = chat(url, max_tokens=8).invoke(messages)
    assert isinstance(found.content, str)
    assert 0 < found.usage_metadata["output_tokens"] <= 8


def test_a_stream_is_the_text(url: str) -> None:
    llm = chat(url, max_tokens=8, temperature=0)
    assert "".join(chunk.content for chunk in llm.stream(ASK)) == llm.invoke(ASK).content


def test_batches_and_async(url: str) -> None:
    llm = chat(url, max_tokens=4)
    assert len(llm.batch([ASK, SYSTEM])) == 2
    assert asyncio.run(llm.ainvoke(ASK)).content == llm.invoke(ASK).content


@pytest.mark.parametrize("choice", ["any", "Weather", "Sum"])
def test_tools(url: str, choice: str) -> None:
    (call,) = chat(url).bind_tools([Weather, Sum], tool_choice=choice).invoke(ASK).tool_calls
    assert choice in ("any", call["name"])
    {"Weather": Weather, "Sum": Sum}[call["name"]].model_validate(call["args"])


def test_a_tool_message_is_read(url: str) -> None:
    from langchain_core.messages import ToolMessage

    llm = chat(url)
    answer = llm.bind_tools([Weather], tool_choice="any").invoke(ASK)
    messages = [*ASK, answer, ToolMessage("sunny", tool_call_id=answer.tool_calls[0]["id"])]
    assert isinstance(llm.invoke(messages).content, str)


@pytest.mark.parametrize(
    "options",
    [{"stop": ["e"]}, {"top_p": 0.5}, {"frequency_penalty": 0.5}, {"presence_penalty": 0.5}, {"logit_bias": {"40": 5}}],
    ids=str,
)
def test_options(url: str, options: dict[str, Any]) -> None:
    assert isinstance(chat(url, max_tokens=6, **options).invoke(ASK).content, str)


def test_log_probabilities(url: str) -> None:
    found = chat(url, max_tokens=4, logprobs=True, top_logprobs=2).invoke(ASK)
    assert all(token["logprob"] <= 0 for token in found.response_metadata["logprobs"]["content"])


def test_embeddings(url: str) -> None:
    embed = langchain_openai.OpenAIEmbeddings(
        model="smol", base_url=f"{url}/v1", api_key="none", check_embedding_ctx_length=False
    )
    a, b = embed.embed_documents(["a cat", "a dog"])
    assert len(a) == len(b) > 1
    assert embed.embed_query("a cat") == pytest.approx(a, abs=1e-4)


def test_the_responses_api(url: str) -> None:
    found = chat(url, max_tokens=8, use_responses_api=True, seed=None).invoke(ASK)
    assert found.usage_metadata["output_tokens"] <= 8


def test_the_page(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_blocks("langchain", url)
    assert isinstance(json.loads(capsys.readouterr().out.replace("'", '"').lower())["ok"], bool)
