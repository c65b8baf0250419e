"""Requests that nobody planned: none ends in a 5xx, every refusal names a parameter, and user text stays text."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from urllib.parse import urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from bench.requests import Answer, Client, bodies, cost_bombs
from redraft.apps import (
    RequestLimits,
    Supervisor,
    build_app,
)
from redraft.apps.server.bodies.fields import parse_body
from redraft.apps.server.errors import (
    _ApiError,
)
from redraft.apps.server.jobs import _expanded_length
from redraft.apps.server.routes import ROUTES
from tests.apps.server.served import Server


def test_what_the_description_allows(server: Server) -> None:
    """Requests that schemathesis makes from /openapi.json."""
    described = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    for operation in (found.ok() for found in described.get_all_operations()):
        if operation.method.upper() == "POST":
            _try(operation, server)


def _try(operation: Any, server: Server) -> None:
    @given(case=operation.as_strategy())
    @settings(max_examples=8, suppress_health_check=list(HealthCheck))
    def check(case: Any) -> None:
        assert case.call(base_url=server.url, timeout=60).status_code < 500

    check()


def test_strange_bodies_are_understood_or_refused() -> None:
    """A tenth of what `python -m bench.reliability i1` sends, up to where the model process would begin."""
    openapi = build_app(Supervisor({})).openapi()
    models = [{"id": "bytes", "steps": 64, "length": 96, "block": None, "embedding_width": 16}]
    errors: list[_ApiError] = []
    for path, raw in bodies(openapi, 2000, seed=7):
        try:
            parse_body(ROUTES[path], raw).job(models, RequestLimits())
        except _ApiError as error:
            errors.append(error)
    assert {error.status for error in errors} == {400, 404}
    assert all(error.param for error in errors)
    assert 200 < len(errors) < 1800


def client_of(server: Server) -> Client:
    address = urlsplit(server.url)
    assert address.hostname is not None
    assert address.port is not None
    return Client(address.hostname, address.port)


async def all_answers(server: Server, asked: list[tuple[str, Any]], at_once: int = 4) -> list[Answer]:
    client, gate = client_of(server), asyncio.Semaphore(at_once)

    async def one(path: str, body: Any) -> Answer:
        async with gate:
            return await client.send(path, body)

    return await asyncio.gather(*(one(path, body) for path, body in asked))


def test_strange_requests_are_answered(server: Server) -> None:
    async def run() -> list[Answer]:
        openapi = (await client_of(server).send("/openapi.json", None)).json
        return await all_answers(server, list(bodies(openapi, 400)))

    found = asyncio.run(run())
    assert {answer.status for answer in found} <= {200, 400, 404, 413, 429}
    refused = [answer.json["error"] for answer in found if 400 <= answer.status < 500 and answer.status != 429]
    assert all(error["param"] for error in refused)
    assert sum(answer.status == 200 for answer in found) > 20, "some of them are right"


def test_cost_bombs_are_refused_at_once(server: Server) -> None:
    begin = time.monotonic()
    found = asyncio.run(all_answers(server, cost_bombs()))
    for answer, (path, body) in zip(found, cost_bombs(), strict=True):
        assert answer.status in (0, 400, 413), (path, str(body)[:80], answer.body)
        if answer.status == 0:
            assert isinstance(body, bytes)
            assert len(body) > 16 << 20, "only of these the server does not read the end"
    assert time.monotonic() - begin < 120


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("abc", 3),
        ("a{3}", 3),
        ("(ab){2,5}c", 11),
        ("[a-z]{4}", 4),
        (r"\d{2}", 2),
        ("((a{9}){9}){9}", 729),
        ("a{2}{3}", 6),
    ],
)
def test_patterns_are_measured_before_they_are_compiled(pattern: str, size: int) -> None:
    assert _expanded_length(pattern) == size


SPECIALS = ["<|mask|>", "[MASK]", "<|eos|>", "</s>", "<pad>", "<|endoftext|>", "[[3]]", "[[*]]", "▒", "<bos>", "\x00"]


def test_user_text_never_becomes_special(server: Server) -> None:
    """Each character of a prompt of bytes is a token of its own, whatever it spells, and comes back as it was."""
    prompts = [f"a{special}b" for special in SPECIALS]
    asked = [
        ("/v1/completions", {"prompt": p, "max_tokens": 2, "echo": True, "diffusion": {"steps": 1}}) for p in prompts
    ]
    asked += [("/v1/infill", {"pieces": [p, 2, p], "diffusion": {"steps": 1}}) for p in prompts]
    found = asyncio.run(all_answers(server, asked))
    for answer, (path, _), prompt in zip(found, asked, prompts * 2, strict=True):
        text, used = answer.json["choices"][0]["text"], answer.json["usage"]["prompt_tokens"]
        assert text.startswith(prompt)
        assert used == len(prompt.encode()) * (2 if path == "/v1/infill" else 1)


def test_given_text_comes_back_byte_for_byte(server: Server) -> None:
    given = [
        "é",
        "日本",
        "😀",
        " two  spaces ",
        "tab\t",
        "line\nbreak",
        "\u200b",
        "e\u0301",
        "\ufeff",
        "'\"\\",
        "…",
        "\u202e",
    ]
    pairs = [(a, b) for a in given for b in given[:4]]
    asked = [
        ("/v1/infill", {"pieces": [a, 3, b], "seed": i, "diffusion": {"steps": 1}}) for i, (a, b) in enumerate(pairs)
    ]
    for answer, (a, b) in zip(asyncio.run(all_answers(server, asked)), pairs, strict=True):
        text = answer.json["choices"][0]["text"]
        assert text.startswith(a)
        assert text.endswith(b)
        assert text == a + answer.json["choices"][0]["holes"][0] + b


def test_texts_do_not_depend_on_company(server: Server) -> None:
    """Mixed samplers and lengths: one request at a time, then many at once, then streamed."""
    samplers = ["own", "confidence", "entropy", "threshold", "first-hitting", "left-to-right"]
    asked: list[tuple[str, Any]] = [
        (
            "/v1/completions",
            {
                "model": ("bytes", "blocks")[i % 2],
                "prompt": "One",
                "max_tokens": 4 + 5 * (i % 7),
                "n": 1 + i % 2,
                "seed": i,
                "diffusion": {"sampler": samplers[i % 6]},
            },
        )
        for i in range(24)
    ]

    def texts(found: list[Answer]) -> list[list[str]]:
        return [[choice["text"] for choice in answer.json["choices"]] for answer in found]

    alone = texts(asyncio.run(all_answers(server, asked, at_once=1)))
    assert texts(asyncio.run(all_answers(server, asked, at_once=8))) == alone
    streamed = asyncio.run(all_answers(server, [(path, body | {"stream": True}) for path, body in asked], at_once=8))
    for answer, expected in zip(streamed, alone, strict=True):
        found = [""] * len(expected)
        for line in answer.body.decode().splitlines():
            if line.startswith("data: {"):
                choice = json.loads(line[6:])["choices"][0]
                found[choice["index"]] += choice["text"]
        assert found == expected
