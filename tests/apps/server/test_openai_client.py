"""What clients send and need, with OpenAI's own client and a random Llama with a byte-pair tokenizer."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
import torch
from conftest import table
from openai import OpenAI
from pydantic import BaseModel

from redraft.apps.cli import main
from redraft.apps.server.errors import _ApiError
from redraft.apps.server.jobs import RequestLimits
from redraft.apps.server.routes.embeddings import EmbeddingBody
from redraft.apps.server.worker import _model_info
from redraft.models import DiffusionLM, reference_outputs
from redraft.tasks import open_model
from redraft.training import load
from tests.apps.server.served import SMALL, run_blocks, serving
from tests.apps.server.tiny_llama import SPECIALS, TEMPLATE, write_tiny_llama

IDS = [40, 41, 42, 43, 44]
ASK: Any = [{"role": "user", "content": "What is the weather?"}]
CITY = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}
CITY["additionalProperties"] = False
SUM = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"]}
SUM["additionalProperties"] = False


def tool(name: str, schema: Any = None) -> Any:
    function = {"name": name, "description": f"the {name}"} | ({"parameters": schema} if schema else {})
    return {"type": "function", "function": function}


TOOLS: Any = [tool("weather", CITY), tool("add", SUM), tool("now")]
NAMES = ["weather", "add", "now"]


class Weather(BaseModel):
    city: Literal["Rome", "Oslo"]
    sunny: bool


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("clients") / "tiny")


@pytest.fixture(scope="module")
def lm(folder: Path) -> DiffusionLM:
    return load(folder)


@pytest.fixture(scope="module")
def llama(folder: Path) -> Iterator[OpenAI]:
    """The client of a server with the Llama, `tiny`, and a masked model of bytes with room for long prompts."""
    words = ["train", "mdlm_tiny", "--tokenizer", "bytes", "--length", "512", *SMALL, "--steps", "1", "--batch", "1"]
    main([*words, "--out", str(folder.with_name("bytes"))])
    with serving(folder, folder.with_name("bytes")) as found:
        yield found.client


def log_probs(lm: DiffusionLM, ids: list[int]) -> list[float]:
    with torch.no_grad():
        log_p = reference_outputs(lm, torch.tensor([ids]))[0].log_softmax(-1)
    return [float(log_p[i, token]) for i, token in enumerate(ids[1:])]


def refused(call: Any, param: str, code: int = 400) -> openai.APIStatusError:
    with pytest.raises(openai.APIStatusError) as caught:
        call()
    assert (caught.value.status_code, caught.value.param) == (code, param), caught.value
    return caught.value


# --- prompts as ids, echo, log-probabilities ---


@pytest.mark.parametrize(
    ("prompt", "texts"), [(IDS, 1), ([IDS], 1), ([IDS, IDS[:2]], 2), ("the cat", 1), (["the cat", "a"], 2), ([0, 5], 1)]
)
def test_prompts_are_texts_or_ids(llama: OpenAI, prompt: Any, texts: int) -> None:
    found = llama.completions.create(model="tiny", prompt=prompt, max_tokens=3, n=2, seed=1)
    assert [choice.index for choice in found.choices] == list(range(2 * texts))
    assert found.usage is not None
    assert found.usage.completion_tokens <= 3 * 2 * texts


def test_ids_say_what_their_text_says(llama: OpenAI, lm: DiffusionLM) -> None:
    assert lm.tokenizer is not None
    ids = lm.tokenizer.encode("the cat sat")
    by_ids, by_text = (
        llama.completions.create(model="tiny", prompt=prompt, max_tokens=8, seed=1, echo=True)
        for prompt in (ids, "the cat sat")
    )
    assert by_ids.choices[0].text == by_text.choices[0].text
    assert by_ids.usage == by_text.usage


@pytest.mark.parametrize("max_tokens", [0, 1, 4])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_echo_scores_the_prompt(llama: OpenAI, lm: DiffusionLM, max_tokens: int, count: int) -> None:
    found = llama.completions.create(
        model="tiny", prompt=IDS, max_tokens=max_tokens, echo=True, logprobs=count, temperature=0
    )
    log: Any = found.choices[0].logprobs
    assert log.token_logprobs[0] is None
    assert log.token_logprobs[1 : len(IDS)] == pytest.approx(log_probs(lm, IDS), abs=1e-4)
    assert len(log.tokens) == len(log.token_logprobs) == len(log.text_offset) == len(IDS) + max_tokens
    assert "".join(log.tokens) == found.choices[0].text
    assert log.text_offset == [sum(map(len, log.tokens[:i])) for i in range(len(log.tokens))]
    if count:
        for token, value, likely in zip(log.tokens[1:], log.token_logprobs[1:], log.top_logprobs[1:], strict=True):
            assert likely[token] >= value
    else:
        assert log.top_logprobs is None


def test_echo_scores_every_prompt_of_a_list(llama: OpenAI, lm: DiffusionLM) -> None:
    prompts = [IDS, [50, 51], [60, 61, 62]]
    found = llama.completions.create(model="tiny", prompt=prompts, max_tokens=0, n=2, echo=True, logprobs=1)
    for choice in found.choices:
        expected = log_probs(lm, prompts[choice.index // 2])
        assert choice.logprobs is not None
        assert choice.logprobs.token_logprobs is not None
        assert choice.logprobs.token_logprobs[1:] == pytest.approx(expected, abs=1e-4)


def test_a_text_that_ends_at_once_counts_its_end(llama: OpenAI) -> None:
    """lm-eval drops the last token, which it did not ask for: there must be one, even if that is the end."""
    found = llama.completions.create(
        model="tiny", prompt=IDS, max_tokens=1, echo=True, logprobs=1, logit_bias={"0": 100}, temperature=0
    )
    assert found.choices[0].finish_reason == "stop"
    assert found.choices[0].logprobs is not None
    assert len(found.choices[0].logprobs.tokens or []) == len(IDS) + 1


def test_echo_streams_too(llama: OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "prompt": [IDS, b"the"[:2] and [7, 8]], "max_tokens": 4, "seed": 2}
    whole = llama.completions.create(echo=True, **asked)
    texts = ["", ""]
    for part in llama.completions.create(echo=True, stream=True, **asked):
        texts[part.choices[0].index] += part.choices[0].text
    assert texts == [choice.text for choice in whole.choices]


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"prompt": [10**6]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [400]}, "prompt"),  # the mask
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "logit_bias": {"100000": 1}}, "logit_bias"),
        ({"prompt": "a", "frequency_penalty": 2.5}, "frequency_penalty"),
        ({"prompt": "a", "logprobs": 1, "echo": True, "model": "bytes"}, "logprobs"),
        ({"prompt": "a", "functions": []}, "functions"),
    ],
    ids=str,
)
def test_wrong_completions_name_the_parameter(llama: OpenAI, asked: dict[str, Any], param: str) -> None:
    body = {"model": "tiny", "max_tokens": 2} | asked
    refused(lambda: llama.post("/completions", body=body, cast_to=object), param)


# --- parameters ---


@pytest.mark.parametrize(
    "more",
    [
        {"user": "u"},
        {"metadata": {"run": "1"}},
        {"store": True},
        {"service_tier": "auto"},
        {"reasoning_effort": "low"},
        {"parallel_tool_calls": False},
        {"verbosity": "low"},
        {"seed": -5},
        {"frequency_penalty": 0.5},
        {"presence_penalty": -0.5},
        {"logit_bias": {"40": 5}},
        {"response_format": {"type": "text"}},
        {"tools": []},
        {"tool_choice": "none"},
    ],
    ids=str,
)
def test_what_openai_takes_is_taken(llama: OpenAI, more: dict[str, Any]) -> None:
    extra = {"parallel_tool_calls": more.pop("parallel_tool_calls")} if "parallel_tool_calls" in more else {}
    found = llama.chat.completions.create(model="tiny", messages=ASK, max_tokens=4, extra_body=extra, **more)
    assert found.choices[0].finish_reason in ("stop", "length")


def test_parameters_that_change_nothing_change_nothing(llama: OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": ASK, "max_tokens": 12, "seed": 1}
    plain = llama.chat.completions.create(**asked).choices[0].message.content
    more: Any = {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "flex", "reasoning_effort": "high"}
    assert llama.chat.completions.create(**asked, **more).choices[0].message.content == plain


def test_penalties_and_biases_change_the_text(llama: OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "prompt": IDS, "max_tokens": 24, "temperature": 0}
    plain = llama.completions.create(**asked).choices[0].text
    assert llama.completions.create(frequency_penalty=2, **asked).choices[0].text != plain
    assert llama.completions.create(presence_penalty=2, **asked).choices[0].text != plain
    assert llama.completions.create(logit_bias={"40": 100}, **asked).choices[0].text == "F" * 24


def test_seeds_may_be_negative(llama: OpenAI) -> None:
    texts = [
        llama.completions.create(model="tiny", prompt="a", max_tokens=12, seed=seed).choices[0].text
        for seed in (-1, -1, -2, 1)
    ]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


# --- tools ---


def call_of(found: Any) -> tuple[str, Any]:
    (call,) = found.choices[0].message.tool_calls
    assert call.type == "function"
    assert call.id.startswith("call_")
    assert found.choices[0].finish_reason == "tool_calls"
    assert found.choices[0].message.content is None
    return call.function.name, json.loads(call.function.arguments)


def is_valid(name: str, arguments: Any) -> bool:
    if name == "weather":
        return arguments in ({"city": "Rome"}, {"city": "Oslo"})
    return arguments == {} if name == "now" else set(arguments) == {"a"} and 0 <= arguments["a"] <= 99


@pytest.mark.parametrize("name", NAMES)
def test_a_named_tool_is_called(llama: OpenAI, name: str) -> None:
    for seed in range(2):
        choice: Any = {"type": "function", "function": {"name": name}}
        found = llama.chat.completions.create(
            model="tiny", messages=ASK, tools=TOOLS, tool_choice=choice, max_tokens=40, seed=seed
        )
        called, arguments = call_of(found)
        assert called == name
        assert is_valid(name, arguments)


def test_a_required_tool_is_called(llama: OpenAI) -> None:
    found = llama.chat.completions.create(
        model="tiny", messages=ASK, tools=TOOLS, tool_choice="required", max_tokens=40, parallel_tool_calls=True
    )
    assert is_valid(*call_of(found))


def test_auto_chooses_between_tools_and_words(llama: OpenAI) -> None:
    """The choice is that of `/v1/choose`; a bias cannot change it, but which tools there are can."""
    ends = set()
    for names in (["zz9qx"], ["now"], ["the"], ["w"], ["a"]):
        found = llama.chat.completions.create(
            model="tiny", messages=ASK, tools=[tool(name) for name in names], max_tokens=8, seed=1
        )
        ends.add(found.choices[0].finish_reason)
        if found.choices[0].finish_reason == "tool_calls":
            assert call_of(found) == (names[0], {})
        else:
            assert found.choices[0].message.content
    assert ends - {"tool_calls"}, "at least one name is less likely than null"


def test_no_tool_is_called_if_none_may_be(llama: OpenAI) -> None:
    found = llama.chat.completions.create(
        model="tiny", messages=ASK, tools=TOOLS, tool_choice="none", max_tokens=8, seed=1
    )
    plain = llama.chat.completions.create(model="tiny", messages=ASK, max_tokens=8, seed=1)
    assert found.choices[0].message == plain.choices[0].message


@pytest.mark.parametrize("name", NAMES)
def test_tool_calls_stream(llama: OpenAI, name: str) -> None:
    choice: Any = {"type": "function", "function": {"name": name}}
    asked: dict[str, Any] = {"model": "tiny", "messages": ASK, "tools": TOOLS, "tool_choice": choice}
    asked |= {"max_tokens": 40, "seed": 3}
    whole = call_of(llama.chat.completions.create(**asked))
    parts = [part.choices[0] for part in llama.chat.completions.create(stream=True, **asked)]
    calls = [call for part in parts for call in part.delta.tool_calls or []]
    assert parts[0].delta.role == "assistant"
    assert all(part.delta.content is None for part in parts)
    assert calls[0].id
    assert calls[0].function is not None
    assert (calls[0].index, calls[0].type, calls[0].function.name) == (0, "function", name)
    assert not any(call.id for call in calls[1:])
    arguments = "".join(call.function.arguments or "" for call in calls if call.function)
    assert (name, json.loads(arguments)) == whole
    assert [part.finish_reason for part in parts] == [None] * (len(parts) - 1) + ["tool_calls"]


def test_the_clients_own_stream_collects_a_call(llama: OpenAI) -> None:
    with llama.chat.completions.stream(
        model="tiny", messages=ASK, tools=TOOLS, tool_choice="required", max_tokens=40
    ) as stream:
        for _ in stream:
            pass
        assert is_valid(*call_of(stream.get_final_completion()))


def test_several_texts_call_several_times(llama: OpenAI) -> None:
    choice: Any = {"type": "function", "function": {"name": "add"}}
    found = llama.chat.completions.create(
        model="tiny", messages=ASK, tools=TOOLS, tool_choice=choice, n=3, max_tokens=40, seed=1
    )
    calls = [each.message.tool_calls[0] for each in found.choices if each.message.tool_calls]
    assert len({call.id for call in calls}) == 3
    assert all(0 <= json.loads(call.function.arguments)["a"] <= 99 for call in calls if call.type == "function")


def test_a_conversation_with_results_of_tools_goes_on(llama: OpenAI) -> None:
    called = llama.chat.completions.create(
        model="tiny", messages=ASK, tools=TOOLS, tool_choice="required", max_tokens=40
    ).choices[0]
    assert called.message.tool_calls
    result: Any = {"role": "tool", "tool_call_id": called.message.tool_calls[0].id, "content": "sunny"}
    found = llama.chat.completions.create(
        model="tiny", messages=[*ASK, called.message, result, {**result, "content": "20 degrees"}], max_tokens=4
    )
    assert found.choices[0].message.content is not None


def test_a_stop_string_does_not_cut_arguments(llama: OpenAI) -> None:
    choice: Any = {"type": "function", "function": {"name": "weather"}}
    found = llama.chat.completions.create(
        model="tiny", messages=ASK, tools=TOOLS, tool_choice=choice, stop=["o", "city"], max_tokens=40
    )
    assert is_valid(*call_of(found))


def test_a_diffusion_model_calls_tools_too(llama: OpenAI) -> None:
    found = llama.chat.completions.create(
        model="bytes",
        messages=[{"role": "user", "content": "?"}],
        tools=[tool("w", {"type": "object", "properties": {}, "maxProperties": 0})],
        tool_choice="required",
        max_tokens=16,
        extra_body={"diffusion": {"steps": 4}},
    )
    assert call_of(found) == ("w", {})


@table(
    ("asked", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "no"}}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools"),
        ({"tools": [{"type": "custom", "custom": {"name": "a"}}]}, "tools"),
        ({"tools": [tool("a", {"$dynamicRef": "#a"})], "tool_choice": "required"}, "tools"),
        ({"tools": [tool("weather", CITY)], "tool_choice": "required", "max_tokens": 3}, "max_tokens"),
        ({"functions": []}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"audio": {}}, "audio"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"prediction": {}}, "prediction"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages"),
    ],
)
def test_wrong_chats_name_the_parameter(llama: OpenAI, asked: dict[str, Any], param: str) -> None:
    body = {"model": "tiny", "messages": ASK, "max_tokens": 40} | asked
    refused(lambda: llama.post("/chat/completions", body=body, cast_to=object), param)


# --- JSON ---


def test_a_json_object_is_one(llama: OpenAI) -> None:
    for seed in range(2):
        found = llama.chat.completions.create(
            model="tiny", messages=ASK, response_format={"type": "json_object"}, max_tokens=16, seed=seed
        )
        assert isinstance(json.loads(found.choices[0].message.content or ""), dict)


def test_pydantic_models_are_parsed(llama: OpenAI) -> None:
    found = llama.chat.completions.parse(model="tiny", messages=ASK, response_format=Weather, max_tokens=60, seed=1)
    assert isinstance(found.choices[0].message.parsed, Weather)
    with_tool = llama.chat.completions.parse(
        model="tiny",
        messages=ASK,
        tools=[openai.pydantic_function_tool(Weather)],
        tool_choice="required",
        max_tokens=60,
    )
    assert with_tool.choices[0].message.tool_calls is not None
    assert isinstance(with_tool.choices[0].message.tool_calls[0].function.parsed_arguments, Weather)


# --- responses ---

RESPONSE_TOOL: Any = {"type": "function", "name": "weather", "parameters": CITY, "strict": True}


def test_a_response_has_all_its_fields(llama: OpenAI) -> None:
    found = llama.responses.create(
        model="tiny", input="Hello", instructions="Be short.", max_output_tokens=6, temperature=0.5, metadata={"a": "b"}
    )
    assert (found.object, found.model, found.instructions, found.metadata) == (
        *("response", "tiny", "Be short."),
        {"a": "b"},
    )
    assert found.id.startswith("resp")
    assert found.status in ("completed", "incomplete")
    assert found.usage is not None
    assert found.usage.total_tokens == found.usage.input_tokens + found.usage.output_tokens
    assert found.output_text
    assert found.output[0].type == "message"
    if found.status == "incomplete":
        assert found.incomplete_details is not None
        assert found.incomplete_details.reason == "max_output_tokens"


def test_a_response_is_the_reply_of_a_chat(llama: OpenAI) -> None:
    more: Any = {"extra_body": {"seed": 7}}
    items: Any = [*ASK, {"role": "assistant", "content": "Sunny."}, {"role": "user", "content": "Sure?"}]
    response = llama.responses.create(model="tiny", input=items, max_output_tokens=8, **more)
    reply = llama.chat.completions.create(model="tiny", messages=items, max_tokens=8, seed=7)
    assert response.output_text == reply.choices[0].message.content


def test_parts_of_an_item_are_joined(llama: OpenAI) -> None:
    parts: Any = [{"type": "input_text", "text": "Hel"}, {"type": "input_text", "text": "lo"}]
    asked: Any = {"model": "tiny", "max_output_tokens": 8, "extra_body": {"seed": 7}}
    joined, whole = (
        llama.responses.create(input=given, **asked).output_text
        for given in ([{"role": "user", "content": parts}], "Hello")
    )
    assert joined == whole


def test_a_response_streams(llama: OpenAI) -> None:
    asked: Any = {"model": "tiny", "input": "Hello", "max_output_tokens": 8, "extra_body": {"seed": 7}}
    whole = llama.responses.create(**asked)
    events = list(llama.responses.create(stream=True, **asked))
    kinds = [event.type for event in events]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert kinds[:4] == [
        *("response.created", "response.in_progress"),
        *("response.output_item.added", "response.content_part.added"),
    ]
    assert kinds[-4:-1] == [
        *("response.output_text.done", "response.content_part.done", "response.output_item.done"),
    ]
    assert kinds[-1] == f"response.{whole.status}"
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    with llama.responses.stream(**asked) as stream:
        for _ in stream:
            pass
        if whole.status == "completed":
            assert stream.get_final_response().output_text == whole.output_text


def test_a_response_calls_functions(llama: OpenAI) -> None:
    asked: Any = {"model": "tiny", "tools": [RESPONSE_TOOL], "max_output_tokens": 40}
    found = llama.responses.create(input=ASK, tool_choice="required", **asked)
    (call,) = found.output
    assert call.type == "function_call"
    assert is_valid(call.name, json.loads(call.arguments))
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    choice: Any = {"type": "function", "name": "weather"}
    again = llama.responses.create(input=[*ASK, *found.output, result], tool_choice=choice, **asked)
    assert again.output[0].type == "function_call"
    with llama.responses.stream(input=ASK, tool_choice="required", **asked) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response().output[0]
    assert "response.function_call_arguments.delta" in kinds
    assert final.type == "function_call"
    assert is_valid(final.name, json.loads(final.arguments))


def test_a_response_is_parsed(llama: OpenAI) -> None:
    found = llama.responses.parse(model="tiny", input="Hello", text_format=Weather, max_output_tokens=60)
    assert isinstance(found.output_parsed, Weather)
    free = llama.responses.create(
        model="tiny", input="Hello", text={"format": {"type": "json_object"}}, max_output_tokens=12
    )
    assert isinstance(json.loads(free.output_text), dict)


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"conversation": "c"}, "conversation"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 10**9}, "max_output_tokens"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"input": []}, "input"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input"),
        ({"text": {"format": {"type": "json_schema", "schema": {"$dynamicRef": "#a"}}}}, "text"),
        ({"temperature": 3}, "temperature"),
        ({"truncation": "auto"}, "truncation"),
    ],
    ids=str,
)
def test_wrong_responses_name_the_parameter(llama: OpenAI, asked: dict[str, Any], param: str) -> None:
    body = {"model": "tiny", "input": "a", "max_output_tokens": 20} | asked
    refused(lambda: llama.post("/responses", body=body, cast_to=object), param)


# --- embeddings ---


@pytest.mark.parametrize("model", ["tiny", "bytes"])
def test_embeddings_are_unit_vectors(llama: OpenAI, model: str) -> None:
    found = llama.embeddings.create(model=model, input=["the cat", "the dog", "the cat"])
    vectors = [each.embedding for each in found.data]
    assert [each.index for each in found.data] == [0, 1, 2]
    assert {len(vector) for vector in vectors} == {32}
    assert all(math.hypot(*vector) == pytest.approx(1, abs=1e-4) for vector in vectors)
    assert vectors[0] == pytest.approx(vectors[2], abs=1e-5)
    assert vectors[0] != pytest.approx(vectors[1], abs=1e-3)
    assert found.usage.prompt_tokens == found.usage.total_tokens > 0


def test_embeddings_of_ids_and_as_numbers(llama: OpenAI, lm: DiffusionLM) -> None:
    assert lm.tokenizer is not None
    ids = [lm.tokenizer.encode(text) for text in ("the cat", "a")]
    by_ids, by_text = (
        llama.embeddings.create(model="tiny", input=given, encoding_format="float") for given in (ids, ["the cat", "a"])
    )
    for one, other in pairwise((by_ids, by_text)):
        assert one.data[1].embedding == pytest.approx(other.data[1].embedding, abs=1e-6)


@pytest.mark.parametrize(
    ("asked", "param"),
    [({"dimensions": 7}, "dimensions"), ({"input": []}, "input"), ({"input": [10**7]}, "input"), ({"x": 1}, "x")],
    ids=str,
)
def test_wrong_embeddings_name_the_parameter(llama: OpenAI, asked: dict[str, Any], param: str) -> None:
    body = {"model": "tiny", "input": "a"} | asked
    refused(lambda: llama.post("/embeddings", body=body, cast_to=object), param)


def test_a_model_of_vectors_has_no_embeddings(tmp_path: Path, say: Any) -> None:
    say("train", "diffusion_lm_tiny", *SMALL, "--steps", "1", "--out", tmp_path / "vectors")
    info = _model_info("vectors", open_model(tmp_path / "vectors"))
    with pytest.raises(_ApiError) as caught:
        EmbeddingBody(input="a").job([info], RequestLimits())
    assert (caught.value.status, caught.value.code, caught.value.param) == (404, "embeddings_not_found", "model")


# --- tokens, as vLLM gives them ---


def test_texts_become_tokens_and_back(llama: OpenAI, lm: DiffusionLM) -> None:
    assert lm.tokenizer is not None
    base = str(llama.base_url).removesuffix("v1/")
    info: Any = llama.get(f"{base}tokenizer_info", cast_to=object)
    assert (info["eos_token"], info["bos_token"]) == (SPECIALS[0], None)
    assert info["chat_template"] == TEMPLATE
    asked = {"prompt": f"the cat {SPECIALS[1]}", "add_special_tokens": False}
    found: Any = llama.post(f"{base}tokenize", body=asked, cast_to=object)
    assert found["tokens"] == lm.tokenizer.encode(asked["prompt"])
    assert found["count"] == len(found["tokens"])
    assert not set(found["tokens"]) & {0, 1, 2}, "a special token within a text stays text"
    back: Any = llama.post(f"{base}detokenize", body={"tokens": found["tokens"]}, cast_to=object)
    assert back["prompt"] == asked["prompt"]
    alone: Any = llama.post(f"{base}tokenize", body={"prompt": SPECIALS[0]}, cast_to=object)
    assert alone["tokens"] == [0]
    refused(lambda: llama.post(f"{base}detokenize", body={"tokens": [10**6]}, cast_to=object), "tokens")


def test_the_examples_of_the_page_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The blocks of docs/guides/clients.md for this client, one after the other, with another address."""
    with serving(f"smol={folder}") as server:
        run_blocks("py", server.url)
    said = capsys.readouterr().out
    assert '"city"' in said
    assert "[None, -" in said
