"""Strange requests for a server, generated from its OpenAPI and by hand, and a client that counts responses."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Plain = dict[str, Any]
STRANGE: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2,
        1.5,
        -0.0,
        10**9,
        10**30,
        1e308,
        1e-308,
        "",
        "x",
        "\x00",
        "é😀",
        "[[2]]",
        "[[?]]",
    ),
    *("[[*]]", "<|mask|>", "x" * 300, [], {}, [None], ["a", 1], {"a": 1}, [[]], [[["deep"]]], "own", "confidence"),
]
SMALL = {"max_tokens": 6, "n": 2, "steps": 3, "max_completion_tokens": 6, "draws": 2, "candidates": 2, "best_of": 1}


def from_schema(schema: Plain, chance: random.Random, name: str = "", depth: int = 0) -> Any:
    """A value that mostly fits a JSON schema, and sometimes does not."""
    if chance.random() < 0.06:
        return chance.choice(STRANGE)
    if name in SMALL and chance.random() < 0.9:
        return SMALL[name]
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return from_schema(chance.choice(choices), chance, name, depth)
    if "enum" in schema:
        return chance.choice(schema["enum"])
    if "const" in schema:
        return schema["const"]
    kind = schema.get("type")
    if kind == "object":
        return _object(schema, chance, depth)
    if kind == "array":
        return [from_schema(schema.get("items", {}), chance, name, depth + 1) for _ in range(chance.randrange(3))]
    plain = {"string": _text, "integer": _whole, "number": _number, "boolean": lambda c: c.random() < 0.5}
    return plain[kind](chance) if kind in plain else None if kind == "null" else chance.choice(STRANGE)


def _object(schema: Plain, chance: random.Random, depth: int) -> Plain:
    known, needed = schema.get("properties", {}), schema.get("required", [])
    few = [name for name in known if chance.random() < (0.25 if depth == 0 else 0.12)]
    values = {name: from_schema(known[name], chance, name, depth + 1) for name in {*needed, *few}}
    if chance.random() < 0.03:
        values[chance.choice(("foo", "", "stepz"))] = chance.choice(STRANGE)
    return values


def _text(chance: random.Random) -> str:
    return chance.choice(
        ("", "The cat", "a [[2]] b", "It is [[?]].", "One", "é😀 x", "bytes", "\n\t", "[0-9]+", "a" * 40)
    )


def _whole(chance: random.Random) -> int:
    return chance.choice((0, 1, 2, 3, 7, 63, 1000, -1, 2**31, 2**63))


def _number(chance: random.Random) -> float:
    return chance.choice((0, 0.3, 0.5, 1, 1.0, 1.7, 2, 3, -0.1, 1e9))


def bodies(openapi: Plain, count: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Paths and bodies, by turns for all routes that take one; some are not even JSON."""
    chance, routes = random.Random(seed), []
    for path, methods in openapi["paths"].items():
        if "post" in methods:
            schema = methods["post"]["requestBody"]["content"]["application/json"]["schema"]
            routes.append((path, schema))
    for number in range(count):
        path, schema = routes[number % len(routes)]
        raw = json.dumps(from_schema(schema, chance)).encode()
        yield path, raw[: chance.randrange(len(raw))] if chance.random() < 0.02 else raw


def cost_bombs() -> list[tuple[str, Plain | bytes]]:
    """Requests that would keep a machine busy for hours if they were accepted."""
    bombs: list[tuple[str, Plain | bytes]] = []
    for steps in (10**5, 10**9, 10**18, 10**40):
        bombs += [
            ("/v1/completions", {"prompt": "a", "diffusion": {name: steps}})
            for name in ("steps", "diffusion_max_steps")
        ]
    bombs += [("/v1/completions", {"prompt": "a", "max_tokens": n}) for n in (10**4, 10**9, 10**18)]
    bombs += [("/v1/completions", {"prompt": "a", "n": n}) for n in (129, 10**6, 10**18)]
    bombs += [("/v1/completions", {"prompt": ["a"] * n}) for n in (65, 10_000)]
    bombs += [("/v1/completions", {"prompt": "a" * n}) for n in (200_001, 900_000)]
    bombs += [("/v1/infill", {"template": f"a [[{n}]]"}) for n in (10**5, 10**8, 10**12)]
    bombs += [("/v1/infill", {"template": "[[9]] " * n}) for n in (2000, 20_000)]
    patterns = [
        "(a{1,999}){1,999}",
        "((a{99}){99}){99}",
        "(((a?){50}){50}){50}",
        "(x{1,9999}y){1,9999}",
        "a{999999999}",
    ]
    patterns += ["((a|b){1,300}c){1,300}d", "a" * 3000, "(.{1,999}|b){1,99}"]
    for pattern in patterns:
        bombs += [
            ("/v1/completions", {"prompt": "a", "diffusion": {name: pattern}}) for name in ("pattern", "guided_regex")
        ]
    bombs += [("/v1/completions", {"prompt": "a", "diffusion": {"pattern": "(" * n + ")" * n}}) for n in (500, 900)]
    for depth in (30, 50, 90):
        schema: Plain = {"type": "string"}
        for _ in range(depth):
            schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
        deep = {"type": "json_schema", "json_schema": {"name": "deep", "schema": schema}}
        bombs += [("/v1/completions", {"prompt": "a", "response_format": deep})]
        bombs += [("/v1/completions", {"prompt": "a", "diffusion": {"schema": json.dumps(schema)}})]
    bombs += [("/v1/completions", b"[" * n) for n in (1000, 10**5, 10**6)]
    bombs += [("/v1/completions", b'{"a":' * n) for n in (1000, 10**5)]
    bombs += [("/v1/completions", b" " * n) for n in (2 << 20, 4 << 20, 64 << 20)]
    bombs += [("/v1/choose", {"template": "[[?]]", "answers": [str(i) for i in range(n)]}) for n in (257, 20_000)]
    bombs += [("/v1/score", {"texts": ["a"] * 65}), ("/v1/score", {"texts": "a", "draws": 10**9})]
    bombs += [("/v1/correct", {"texts": ["a"] * 65}), ("/v1/correct", {"texts": "a b " * 60_000})]
    return bombs


@dataclass
class Answer:
    """What a server said, and when."""

    status: int
    body: bytes
    headers: dict[str, str]
    seconds: float
    first: float = 0.0  # seconds to the first byte of the body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """One connection at a time per request, nothing kept alive: as rude as clients can be."""

    host: str
    port: int
    headers: dict[str, str] = field(default_factory=dict)

    async def send(self, path: str, body: Plain | bytes | None, seconds: float = 60.0) -> Answer:
        """A request and its whole answer; status 0: the connection ended before one came."""
        begin = time.perf_counter()
        try:
            return await asyncio.wait_for(self._send(path, body, begin), seconds)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            return Answer(0, b"", {}, time.perf_counter() - begin)

    async def open(self, path: str, body: Plain | bytes | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=1 << 26)
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", f"Host: {self.host}:{self.port}"]
        lines += ["Content-Type: application/json", f"Content-Length: {len(raw)}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + raw)
        return reader, writer

    async def _send(self, path: str, body: Plain | bytes | None, begin: float) -> Answer:
        reader, writer = await self.open(path, body)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            begun = await reader.read(1)
            first = time.perf_counter() - begin
            rest = begun + await reader.read()
        finally:
            writer.close()
        if headers.get("transfer-encoding") == "chunked":
            rest = _unchunked(rest)
        return Answer(int(head[0].split()[1]), rest, headers, time.perf_counter() - begin, first)


def _unchunked(raw: bytes) -> bytes:
    content = b""
    while raw:
        size, _, raw = raw.partition(b"\r\n")
        if not (length := int(size, 16)):
            return content
        content, raw = content + raw[:length], raw[length + 2 :]
    raise ValueError("the stream ended early")
