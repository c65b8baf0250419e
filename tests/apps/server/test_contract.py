"""The HTTP contract, with OpenAI's own client against a real server process."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import openai
import pytest
from conftest import table
from openai import OpenAI

from tests.apps.server.served import Server

Extra = dict[str, Any]
QUICK: Extra = {"diffusion": {"steps": 4}}


def post(server: Server, path: str, body: Any, **headers: str) -> tuple[int, Any, dict[str, str]]:
    """Any body, as no client would send it."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read()), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read()), dict(error.headers)


def lines(server: Server, path: str, body: Any) -> list[Any]:
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return [json.loads(line) for line in answer if line.strip()]


# --- models ---


def test_models_are_listed(client: OpenAI) -> None:
    found = client.models.list().data
    assert [each.id for each in found] == ["bytes", "blocks"]
    assert {each.object for each in found} == {"model"}
    assert all(each.created > 0 and each.owned_by == "redraft" for each in found)


def test_one_model_tells_what_it_is(client: OpenAI) -> None:
    found = client.models.retrieve("blocks").model_dump()
    assert found["id"] == "blocks"
    assert found["diffusion"]["block"] == 8
    assert found["diffusion"]["process"] == "Masked"


def test_an_unknown_model_is_not_found(client: OpenAI) -> None:
    for call in (lambda: client.models.retrieve("gpt"), lambda: client.completions.create(model="gpt", prompt="a")):
        with pytest.raises(openai.NotFoundError) as caught:
            call()
        assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


# --- completions ---


def test_a_completion_has_all_its_fields(client: OpenAI) -> None:
    found = client.completions.create(model="bytes", prompt="The cat", max_tokens=12, seed=1, extra_body=QUICK)
    assert found.object == "text_completion"
    assert found.id.startswith("cmpl-")
    assert found.model == "bytes"
    assert found.usage is not None
    assert (found.usage.prompt_tokens, found.usage.total_tokens) == (7, 7 + found.usage.completion_tokens)
    (choice,) = found.choices
    assert (choice.index, choice.logprobs) == (0, None)
    assert choice.finish_reason == ("length" if found.usage.completion_tokens == 12 else "stop")
    about = found.model_dump()["diffusion"]
    assert about["nfe"] == 4
    assert about["seed"] == 1
    assert about["exactness"] == "free"


def test_the_same_seed_gives_the_same_text_and_none_another(client: OpenAI) -> None:
    def text(**more: Any) -> str:
        return (
            client.completions.create(model="bytes", prompt="A", max_tokens=24, extra_body=QUICK, **more)
            .choices[0]
            .text
        )

    assert text(seed=5) == text(seed=5)
    assert len({text() for _ in range(4)}) > 1


def test_max_tokens_is_exact_though_blocks_round_up(client: OpenAI) -> None:
    for size in (1, 3, 6, 9):
        found = client.completions.create(model="blocks", prompt="One", max_tokens=size, seed=3)
        assert found.usage is not None
        assert found.usage.completion_tokens <= size
        if found.choices[0].finish_reason == "length":
            assert found.usage.completion_tokens == size


def test_many_texts_and_many_prompts(client: OpenAI) -> None:
    found = client.completions.create(
        model="bytes", prompt=["A", "The cat"], n=3, max_tokens=6, seed=2, extra_body=QUICK
    )
    assert [choice.index for choice in found.choices] == list(range(6))
    assert found.usage is not None
    assert found.usage.prompt_tokens == 1 + 7
    one = client.completions.create(model="bytes", prompt="The cat", n=3, max_tokens=6, seed=2, extra_body=QUICK)
    assert [c.text for c in one.choices] == [c.text for c in found.choices[3:]], (
        "a text does not depend on other prompts"
    )


def test_a_suffix_is_an_infilling(client: OpenAI) -> None:
    found = client.completions.create(
        model="bytes", prompt="The ", suffix=" sat.", max_tokens=5, seed=1, extra_body=QUICK
    )
    assert found.usage is not None
    assert found.usage.completion_tokens == 5
    assert found.usage.prompt_tokens == 9


def test_echo_repeats_the_prompt(client: OpenAI) -> None:
    asked: dict[str, Any] = {"model": "bytes", "prompt": "Oh ", "max_tokens": 4, "seed": 1, "extra_body": QUICK}
    plain, echoed = (client.completions.create(echo=echo, **asked).choices[0].text for echo in (False, True))
    assert echoed == "Oh " + plain


def test_text_ends_before_a_stop_string(client: OpenAI) -> None:
    asked: dict[str, Any] = {"model": "bytes", "prompt": "A", "max_tokens": 24, "seed": 1, "extra_body": QUICK}
    whole = client.completions.create(**asked).choices[0].text
    stop = whole[10:12]
    for given in (stop, [stop, "\x00\x01"]):
        choice = client.completions.create(stop=given, **asked).choices[0]
        assert choice.text == whole[: whole.index(stop)]
        assert choice.finish_reason == "stop"


def test_logprobs_are_those_of_the_commit(client: OpenAI) -> None:
    found = client.completions.create(
        model="bytes", prompt="A", max_tokens=6, seed=1, logprobs=1, extra_body={"diffusion": {"sampler": "confidence"}}
    )
    log: Any = found.choices[0].logprobs
    assert log.logprob_kind == "commit"
    assert "".join(log.tokens) == found.choices[0].text
    assert all(value <= 0 for value in log.token_logprobs)
    assert log.text_offset == [sum(map(len, log.tokens[:i])) for i in range(len(log.tokens))]


def test_others_that_were_likely_have_logprobs_too(client: OpenAI) -> None:
    asked: dict[str, Any] = {"model": "bytes", "prompt": "A", "max_tokens": 6, "seed": 1, "logprobs": 3}
    asked["extra_body"] = {"diffusion": {"sampler": "confidence"}}
    choice = client.completions.create(**asked).choices[0]
    log: Any = choice.logprobs
    for token, value, likely in zip(log.tokens, log.token_logprobs, log.top_logprobs, strict=True):
        assert likely[token] == value
        assert 3 <= len(likely) <= 4
    *_, last = client.completions.create(stream=True, **asked)
    assert last.choices[0].logprobs == log
    chat = client.chat.completions.create(
        model="bytes", messages=[{"role": "user", "content": "A"}], max_tokens=4, logprobs=True, top_logprobs=2
    )
    assert chat.choices[0].logprobs is not None
    assert all(2 <= len(token.top_logprobs) <= 3 for token in chat.choices[0].logprobs.content or [])


def test_temperature_zero_needs_no_seed(client: OpenAI) -> None:
    asked: dict[str, Any] = {"model": "bytes", "prompt": "A", "max_tokens": 12, "temperature": 0, "extra_body": QUICK}
    assert len({client.completions.create(**asked).choices[0].text for _ in range(3)}) == 1


@pytest.mark.parametrize("more", [{"top_p": 0.5}, {"temperature": 0.7}, {"user": "somebody"}, {"best_of": 1}])
def test_what_openai_takes_is_taken(client: OpenAI, more: Extra) -> None:
    assert client.completions.create(model="bytes", prompt="A", max_tokens=4, extra_body=QUICK, **more).choices


@pytest.mark.parametrize(
    "extras",
    [
        {"steps": 3, "sampler": "entropy"},
        {"sampler": "threshold", "threshold": 0.5},
        {"decode_block": 4, "cache": "dual", "steps": 2},
        {"top_k": 5, "min_p": 0.01, "repetition_penalty": 1.2},
        {"block_length": 4, "remasking": "low_confidence", "steps": 2},
        {"diffusion_max_steps": 3},
        {"guidance": 1.5},
    ],
    ids=str,
)
def test_our_extras_are_taken(client: OpenAI, extras: Extra) -> None:
    found = client.completions.create(
        model="bytes", prompt="A b", max_tokens=8, seed=1, extra_body={"diffusion": extras}
    )
    assert found.choices[0].finish_reason in ("stop", "length")


@pytest.mark.parametrize("names", [("start_text", "pinned"), ("diffusion_seed_canvas", "diffusion_pinned")], ids=str)
def test_a_text_is_edited_in_place(client: OpenAI, names: tuple[str, str]) -> None:
    extras = {names[0]: "The cat sat here.", names[1]: ["cat"], "strength": 0.6, "diffusion_constrained": False}
    found = client.completions.create(model="bytes", prompt="", seed=2, extra_body={"diffusion": extras})
    assert found.choices[0].text[4:7] == "cat"
    assert len(found.choices[0].text.encode("utf-8", "replace")) >= 17


def test_a_text_is_as_wished(client: OpenAI) -> None:
    extras = {"length": 9, "required": ["cat"], "steps": 4}
    found = client.completions.create(model="bytes", prompt="", seed=2, extra_body={"diffusion": extras})
    assert found.usage is not None
    assert found.usage.completion_tokens == 9
    assert "cat" in found.choices[0].text


def test_a_pattern_is_matched(client: OpenAI) -> None:
    extras = {"diffusion": {"pattern": "[0-9]{4}-[0-9]{2}", "steps": 4}}
    found = client.completions.create(model="bytes", prompt="It was ", max_tokens=7, seed=1, extra_body=extras)
    assert re.fullmatch("[0-9]{4}-[0-9]{2}", found.choices[0].text)
    assert found.model_dump()["diffusion"]["exactness"] in ("matches", "steps")


def test_choices_leave_one_of_them(client: OpenAI) -> None:
    extras = {"diffusion": {"choices": ["yes", "no (not now)", "a.b"], "steps": 4}}
    for seed in range(3):
        found = client.completions.create(model="bytes", prompt="So: ", max_tokens=12, seed=seed, extra_body=extras)
        assert found.choices[0].text in ("yes", "no (not now)", "a.b")


def test_response_format_is_a_schema(client: OpenAI) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    asked: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    found = client.chat.completions.create(
        model="bytes",
        messages=[{"role": "user", "content": "is it?"}],
        max_tokens=16,
        seed=1,
        response_format=asked,
        extra_body=QUICK,
    )
    content = found.choices[0].message.content
    assert content is not None
    assert isinstance(json.loads(content)["ok"], bool)


STRUCTURES: tuple[tuple[dict[str, Any], Any], ...] = (
    ({"response_format": {"type": "json_object"}}, dict),
    ({"structured_outputs": {"json": {"type": "integer", "minimum": 10, "maximum": 99}}}, int),
    ({"guided_json": '{"enum": [7, 8]}'}, int),
    ({"structured_outputs": {"choice": ["true", "false"]}}, bool),
    ({"guided_regex": "[1-9]{3}"}, int),
    ({"guided_choice": ["[1]", "[2]"]}, list),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "null"}, "strict": True}}},
        type(None),
    ),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"schema": {"minimum": 7, "type": "integer"}, "strict": False},
            }
        },
        int,
    ),
)


def test_every_name_of_a_structure_is_obeyed(client: OpenAI) -> None:
    for asked, kind in STRUCTURES:
        found = client.completions.create(model="bytes", prompt="x", max_tokens=12, seed=1, extra_body=QUICK | asked)
        assert type(json.loads(found.choices[0].text)) is kind, asked


def test_a_structure_that_cannot_be_obeyed_is_a_400(client: OpenAI) -> None:
    needs = {"type": "object", "properties": {"name": {"enum": ["Ada"]}}, "required": ["name"]}
    for asked, line in (
        ({"guided_json": needs}, "has at least 14 tokens, but there is room for 5"),
        ({"guided_json": {"$dynamicRef": "#a"}}, r"'\$dynamicRef' at #"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "cannot be combined"),
    ):
        with pytest.raises(openai.BadRequestError, match=line):
            client.completions.create(model="bytes", prompt="x", max_tokens=5, extra_body=QUICK | asked)


# --- chat ---


def test_a_chat_completion_has_all_its_fields(client: OpenAI) -> None:
    found = client.chat.completions.create(
        model="bytes",
        messages=[
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": [{"type": "text", "text": "He"}, {"type": "text", "text": "llo"}]},
        ],
        max_completion_tokens=8,
        logprobs=True,
        seed=1,
        extra_body={"diffusion": {"sampler": "confidence"}},
    )
    assert found.object == "chat.completion"
    (choice,) = found.choices
    assert choice.message.role == "assistant"
    assert found.usage is not None
    assert found.usage.prompt_tokens == len("Be short.\nHello")
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert "".join(token.token for token in choice.logprobs.content) == choice.message.content


def test_a_chat_streams(client: OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": "blocks",
        "messages": [{"role": "user", "content": "One"}],
        "max_tokens": 12,
        "seed": 4,
    }
    whole = client.chat.completions.create(**asked).choices[0].message.content
    parts = list(client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **asked))
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == whole
    assert [part.choices[0].finish_reason for part in parts if part.choices][-1] in ("stop", "length")
    assert parts[-1].usage is not None


# --- streams ---


@pytest.mark.parametrize("sampler", ["own", "left-to-right", "confidence", "threshold"])
@pytest.mark.parametrize("model", ["bytes", "blocks"])
def test_a_stream_is_the_text(client: OpenAI, model: str, sampler: str) -> None:
    asked: dict[str, Any] = {"model": model, "prompt": "One", "max_tokens": 16, "n": 2, "seed": 3}
    asked["extra_body"] = {"diffusion": {"sampler": sampler}}
    whole = [choice.text for choice in client.completions.create(**asked).choices]
    texts, ends = ["", ""], ["", ""]
    for part in client.completions.create(stream=True, **asked):
        (choice,) = part.choices
        texts[choice.index] += choice.text
        ends[choice.index] = choice.finish_reason or ends[choice.index]
    assert texts == whole
    assert set(ends) <= {"stop", "length"}


def test_left_to_right_streams_while_it_writes(client: OpenAI) -> None:
    extras = {"diffusion": {"sampler": "left-to-right"}}
    parts = list(
        client.completions.create(model="bytes", prompt="A", max_tokens=16, seed=1, stream=True, extra_body=extras)
    )
    assert len([part for part in parts if part.choices[0].text]) > 8


def test_a_stream_stops_at_a_stop_string(client: OpenAI) -> None:
    asked: dict[str, Any] = {"model": "bytes", "prompt": "A", "max_tokens": 24, "seed": 1}
    asked["extra_body"] = {"diffusion": {"sampler": "left-to-right"}}
    whole = client.completions.create(**asked).choices[0].text
    stop = whole[9:13]
    parts = list(client.completions.create(stream=True, stop=stop, **asked))
    assert "".join(part.choices[0].text for part in parts) == whole[: whole.index(stop)]
    assert parts[-1].choices[0].finish_reason == "stop"


# --- our own routes ---


def test_infill_keeps_what_was_given(server: Server) -> None:
    code, found, _ = post(server, "/v1/infill", {"template": "The [[4]] sat on [[3]].", "seed": 1, "n": 2})
    assert code == 200
    for choice in found["choices"]:
        assert choice["text"].startswith("The ")
        assert choice["text"].endswith(".")
        assert choice["text"] == f"The {choice['holes'][0]} sat on {choice['holes'][1]}."
    typed = post(server, "/v1/infill", {"pieces": ["The ", 4, " sat on ", 3, "."], "seed": 1, "n": 2})[1]
    assert typed["choices"] == found["choices"]


def test_pieces_have_no_holes(server: Server) -> None:
    code, found, _ = post(server, "/v1/infill", {"pieces": ["a [[3]] b", 2], "seed": 1})
    assert code == 200
    assert found["choices"][0]["text"].startswith("a [[3]] b")
    body = {"prompt": "a [[3]] ", "suffix": "[[1]]", "max_tokens": 3, "echo": True, "seed": 1}
    assert post(server, "/v1/completions", body)[1]["usage"]["completion_tokens"] == 3


def test_choose_gives_probabilities(server: Server) -> None:
    code, found, _ = post(server, "/v1/choose", {"template": "It is [[?]].", "answers": ["warm", "cold", "dark"]})
    assert code == 200
    (choice,) = found["choices"]
    assert abs(sum(choice["probabilities"]) - 1) < 1e-6
    assert choice["best"] in ("warm", "cold", "dark")


def test_score_gives_bits(server: Server) -> None:
    code, found, _ = post(server, "/v1/score", {"texts": ["The cat sat.", "zzqxj"], "draws": 2, "seed": 1})
    assert code == 200
    assert [each["text"] for each in found["scores"]] == ["The cat sat.", "zzqxj"]
    assert all(each["bits"] > 0 for each in found["scores"])


def test_correct_tells_every_change(server: Server) -> None:
    body = {"model": "bytes", "texts": ["The cta sat."], "words": ["the", "cat", "sat"]}
    code, found, _ = post(server, "/v1/correct", body)
    assert code == 200, found
    assert len(found["corrections"]) == 1


def test_fim_is_a_completion_with_a_suffix(server: Server) -> None:
    body = {"prompt": "The ", "suffix": " sat.", "max_tokens": 5, "seed": 1, "diffusion": {"steps": 4}}
    one, two = (post(server, path, body)[1]["choices"] for path in ("/v1/fim/completions", "/v1/completions"))
    assert one == two


def test_a_trace_tells_every_canvas(server: Server) -> None:
    body = {"prompt": "The cat", "max_tokens": 8, "seed": 1, "diffusion": {"sampler": "confidence", "steps": 4}}
    start, *frames, done = lines(server, "/v1/diffusion/trace", body)
    assert start["type"] == "start"
    assert done["type"] == "done"
    assert len(frames) == 5
    for frame in frames:
        assert (frame["committed"] + frame["tentative"]).startswith("The cat")
        assert len(frame["pieces"]) == len(frame["given"]) == 15
    assert frames[0]["pieces"][7:] == [None] * 8
    committed = [frame["committed"] for frame in frames]
    assert all(later.startswith(earlier) for earlier, later in pairwise(committed))
    plain = post(server, "/v1/completions", body)[1]["choices"][0]["text"]
    assert done["texts"][0]["new"] == plain


def test_a_trace_tells_what_else_was_likely(server: Server) -> None:
    body = {"prompt": "The cat", "max_tokens": 8, "seed": 1, "diffusion": {"sampler": "confidence", "steps": 4}}
    plain = lines(server, "/v1/diffusion/trace", body)
    body["diffusion"] = {"sampler": "confidence", "steps": 4, "alternatives": 5}
    _, *frames, done = lines(server, "/v1/diffusion/trace", body)
    assert done["texts"][0]["text"] == plain[-1]["texts"][0]["text"]
    assert "alternatives" not in plain[1]
    written = [(each["at"], each["top"]) for frame in frames for each in frame["alternatives"]]
    assert all(each["entropy"] >= 0 for frame in frames for each in frame["alternatives"])
    assert [frame["nfe"] for frame in frames] == sorted(frame["nfe"] for frame in frames)
    assert sorted(at for at, _ in written) == list(range(7, 15))  # each token once, when it was written
    for at, top in written:
        assert len(top) == 5
        assert [p for _, p in top] == sorted((p for _, p in top), reverse=True)
        assert frames[-1]["pieces"][at] == top[0][0] or frames[-1]["confidence"][at] <= top[0][1]
    assert done["texts"][0]["alternatives"] == [top for _, top in sorted(written)]


def test_a_trace_of_an_infilling(server: Server) -> None:
    *_, done = lines(server, "/v1/diffusion/trace", {"template": "The [[4]] sat.", "seed": 1})
    assert done["texts"][0]["text"].endswith(" sat.")


# --- errors ---

WRONG: list[tuple[str, Any, int, str]] = [
    ("/v1/completions", {"prompt": 1}, 400, "prompt"),
    ("/v1/completions", {"prompt": "a", "max_tokens": 0}, 400, "max_tokens"),
    ("/v1/completions", {"prompt": "a", "max_tokens": 10**9}, 400, "max_tokens"),
    ("/v1/completions", {"prompt": "a", "max_tokens": 200}, 400, "max_tokens"),
    ("/v1/completions", {"prompt": "a", "n": 1000}, 400, "n"),
    ("/v1/completions", {"prompt": "a", "temperature": -1}, 400, "temperature"),
    ("/v1/completions", {"prompt": "a", "top_p": 0}, 400, "top_p"),
    ("/v1/completions", {"prompt": "a", "seed": -(2**64)}, 400, "seed"),
    ("/v1/completions", {"prompt": "a", "logit_bias": {"five": 1}}, 400, "logit_bias"),
    ("/v1/completions", {"prompt": "a", "presence_penalty": 3}, 400, "presence_penalty"),
    ("/v1/completions", {"prompt": "a", "best_of": 5}, 400, "best_of"),
    ("/v1/completions", {"prompt": "a", "logprobs": 6}, 400, "logprobs"),
    ("/v1/completions", {"prompt": "a", "diffusion": {"alternatives": 21}}, 400, "diffusion.alternatives"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2}, 400, "top_logprobs"),
    ("/v1/completions", {"prompt": "a", "tools": []}, 400, "tools"),
    ("/v1/completions", {"prompt": "a", "stop": ""}, 400, "stop"),
    ("/v1/completions", {"prompt": ["a", "b"], "suffix": "c"}, 400, "prompt"),
    ("/v1/completions", {"prompt": "a", "diffusion": {"stepz": 4}}, 400, "diffusion.stepz"),
    ("/v1/completions", {"prompt": "a", "diffusion": {"steps": 0}}, 400, "diffusion.steps"),
    ("/v1/completions", {"prompt": "a", "diffusion": {"steps": 10**9}}, 400, "diffusion.steps"),
    ("/v1/completions", {"prompt": "a", "diffusion": {"sampler": "best"}}, 400, "diffusion.sampler"),
    ("/v1/completions", {"prompt": "a", "diffusion": {"cache": "exact"}}, 400, "diffusion.cache"),
    ("/v1/completions", {"prompt": "a", "diffusion": {"pattern": "("}}, 400, "diffusion.pattern"),
    ("/v1/completions", {"prompt": "a", "diffusion": {"label": "x"}}, 400, "diffusion.label"),
    ("/v1/completions", {"prompt": "a", "diffusion": {"choices": []}}, 400, "diffusion.choices"),
    ("/v1/completions", {"prompt": "a", "diffusion": {"strength": 0.5}}, 400, "diffusion.strength"),
    ("/v1/completions", {"prompt": "a", "diffusion": {"start_text": "b"}}, 400, "prompt"),
    ("/v1/completions", {"diffusion": {"start_text": "b", "strength": 7}}, 400, "diffusion.strength"),
    ("/v1/completions", {"prompt": "a", "diffusion": {"length": 3}}, 400, "prompt"),
    ("/v1/completions", {"diffusion": {"attributes": ["mood=blue"]}}, 400, "diffusion.attributes"),
    ("/v1/completions", {"diffusion": {"length": 3, "lexicon": "/etc/passwd"}}, 400, "diffusion.lexicon"),
    ("/v1/completions", {"diffusion": {"diffusion_read_only": True}}, 400, "diffusion.diffusion_read_only"),
    ("/v1/completions", {"prompt": "\ud800"}, 400, "body"),
    ("/v1/completions", b"{", 400, "body"),
    ("/v1/completions", b"[1]", 400, "body"),
    ("/v1/completions", b"[" * 100_000, 400, "body"),
    ("/v1/completions", b'{"prompt": "' + b"a" * (2 << 20) + b'"}', 413, "body"),
    ("/v1/completions", {"model": "gpt-4", "prompt": "a"}, 404, "model"),
    ("/v1/completions", {"model": "blocks", "prompt": "xyzzy"}, 400, "prompt"),
    ("/v1/chat/completions", {}, 400, "messages"),
    ("/v1/chat/completions", {"messages": []}, 400, "messages"),
    ("/v1/chat/completions", {"messages": [{"role": "cat", "content": "a"}]}, 400, "messages"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "tools": [{}]}, 400, "tools"),
    ("/v1/infill", {"template": "no hole"}, 400, "template"),
    ("/v1/infill", {"template": "a [[0]]"}, 400, "template"),
    ("/v1/infill", {"pieces": ["a"]}, 400, "pieces"),
    ("/v1/infill", {"pieces": ["a", -1]}, 400, "pieces"),
    ("/v1/infill", {}, 400, "template"),
    ("/v1/choose", {"template": "a", "answers": ["x", "y"]}, 400, "template"),
    ("/v1/choose", {"template": "[[?]]", "answers": ["x"]}, 400, "answers"),
    ("/v1/score", {"texts": [""], "draws": 0}, 400, "draws"),
    ("/v1/correct", {"texts": "a", "noise": 3}, 400, "noise"),
    ("/v1/completions", {"prompt": "a", "diffusion": {"draft": "/etc"}}, 400, "diffusion.draft"),
    ("/v1/diffusion/trace", {"template": "a [[2]]", "max_tokens": 3}, 400, "max_tokens"),
]


def refused(server: Server, path: str, body: Any) -> tuple[int, Any, Mapping[str, str]]:
    """What OpenAI's client raises; bodies that it cannot send are sent by hand."""
    if isinstance(body, bytes) or "\\ud800" in json.dumps(body):
        return post(server, path, body)
    with pytest.raises(openai.APIStatusError) as caught:
        server.client.post(path.removeprefix("/v1"), body=body, cast_to=object)
    error = caught.value
    assert error.param == error.response.json()["error"]["param"]
    return error.status_code, error.response.json(), error.response.headers


@table(("path", "body", "code", "param"), WRONG)
def test_what_is_wrong_is_named(server: Server, path: str, body: Any, code: int, param: str) -> None:
    status, found, headers = refused(server, path, body)
    assert status == code, found
    assert set(found["error"]) == {"message", "type", "param", "code"}
    assert found["error"]["param"] == param, found
    assert "Traceback" not in found["error"]["message"]
    assert headers["content-security-policy"] == "default-src 'self'; frame-ancestors 'none'"


def test_the_client_raises_what_openai_would_raise(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="bytes", prompt="a", extra_body={"diffusion": {"foo": 1}})
    assert caught.value.param == "diffusion.foo"
    assert caught.value.code == "unknown_parameter"


def test_other_paths_and_methods(server: Server) -> None:
    assert post(server, "/v1/nothing", {})[0] == 404
    assert post(server, "/v1/models", {})[0] == 405
    assert post(server, "/v1/completions", {"prompt": "a"}, **{"Content-Type": "text/plain"})[0] == 400
    assert post(server, "/v1/completions", {"prompt": "a"}, Host="evil.example")[0] == 403


def test_health_and_metrics(server: Server) -> None:
    def get(path: str) -> str:
        with urllib.request.urlopen(server.url + path) as answer:
            return str(answer.read().decode())

    assert json.loads(get("/health/live")) == {"status": "live"}
    ready = json.loads(get("/health/ready"))
    assert ready["status"] == "ready"
    assert ready["batch_invariant"] is True
    book = ready["request_counts"]
    assert book["accepted"] == book["completed"] + book["cancelled"] + book["failed"] + book["open"]
    assert "redraft_requests_accepted_total" in get("/metrics")
    assert "paths" in json.loads(get("/openapi.json"))
