"""What can go wrong: keys, full queues, clients that hang up, a model process that crashes or hangs, the end."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
from openai import OpenAI

from tests.apps.server.served import Server, serving
from tests.conftest import Say

KEY = "a secret"
LONG: dict[str, Any] = {"model": "bytes", "prompt": "A", "max_tokens": 90, "n": 48, "seed": 1}
SHORT: dict[str, Any] = {"model": "bytes", "prompt": "A", "max_tokens": 4, "seed": 1}


@pytest.fixture(scope="module")
def fragile(trained: Path) -> Iterator[Server]:
    """A small queue, a key, little patience."""
    flags = (
        "--api-key",
        KEY,
        "--max-running",
        1,
        "--queue",
        2,
        "--worker-timeout",
        3,
        "--shutdown-timeout",
        20,
        "--read-timeout",
        2,
    )
    with serving(trained, *flags) as found:
        yield found


@pytest.fixture
def client(fragile: Server) -> OpenAI:
    return fragile.client.with_options(api_key=KEY)


def book(server: Server) -> dict[str, int]:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc)
    connection.request("GET", "/health/ready")
    found: dict[str, Any] = json.loads(connection.getresponse().read())
    return found.get("request_counts", {})


def until(true: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def model_process(server: Server) -> int:
    """The process id of the model process."""
    said = subprocess.run(["pgrep", "-P", str(server.process.pid)], capture_output=True, text=True, check=True)
    return int(said.stdout.split()[0])


def in_background(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except openai.APIError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


def test_without_the_key_nobody_comes_in(fragile: Server, client: OpenAI) -> None:
    with pytest.raises(openai.AuthenticationError) as caught:
        fragile.client.completions.create(**SHORT)
    assert caught.value.code == "invalid_api_key"
    assert client.completions.create(**SHORT).choices


def test_a_full_queue_says_when_to_come_back(fragile: Server, client: OpenAI) -> None:
    threads = [in_background(lambda: client.completions.create(**LONG)) for _ in range(3)]
    until(lambda: book(fragile)["open"] == 3)
    with pytest.raises(openai.RateLimitError) as caught:
        client.completions.create(**SHORT)
    assert caught.value.code == "queue_full"
    assert int(caught.value.response.headers["retry-after"]) >= 1
    for thread, found in threads:
        thread.join()
        assert len(found[0].choices) == 48


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_frees_its_place(fragile: Server, stream: bool) -> None:
    before = book(fragile)
    connection = http.client.HTTPConnection(urlsplit(fragile.url).netloc)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    connection.request("POST", "/v1/completions", json.dumps(LONG | {"stream": stream}), headers)
    until(lambda: book(fragile)["open"] == 1)
    connection.sock.close()
    connection.close()
    until(lambda: book(fragile)["open"] == 0)
    after = book(fragile)
    assert after["cancelled"] == before["cancelled"] + 1
    assert after["completed"] == before["completed"]


HEAD = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
HALF = {
    "nothing": b"",
    "half a head": HEAD.encode(),
    "half a body": f'{HEAD}Content-Length: 100\r\n\r\n{{"model": '.encode(),
    "half a second head": b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n" + HEAD.encode(),
}


def test_half_sent_requests_are_ended(fragile: Server, client: OpenAI) -> None:
    """100 connections, which send 25 times each kind of a beginning and then nothing more: none stays open."""
    address = urlsplit(fragile.url)
    assert address.hostname
    assert address.port
    connections = [
        (kind, socket.create_connection((address.hostname, address.port))) for _ in range(25) for kind in HALF
    ]
    for kind, connection in connections:
        connection.sendall(HALF[kind])
    assert client.completions.create(**SHORT).choices, "others are served meanwhile"
    found: dict[str, set[bytes]] = {kind: set() for kind in HALF}
    for kind, connection in connections:
        connection.settimeout(20)
        said = b"".join(iter(lambda c=connection: c.recv(65536), b""))  # until the server closes it
        found[kind].add(said.partition(b"\r\n")[0])
        assert b"the body did not arrive within 2 seconds" in said or kind != "half a body"
        connection.close()
    assert found == {
        "nothing": {b""},
        "half a head": {b""},
        "half a body": {b"HTTP/1.1 408 Request Timeout"},
        "half a second head": {b"HTTP/1.1 200 OK"},
    }


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["crash", "hang"])
def test_a_broken_model_process_is_replaced(fragile: Server, client: OpenAI, how: signal.Signals) -> None:
    """Its request fails with a reason; the one that waited is served by the next process."""
    running, lost = in_background(lambda: client.completions.create(**LONG))
    until(lambda: book(fragile).get("open") == 1)
    waiting, kept = in_background(lambda: client.completions.create(**SHORT))
    until(lambda: book(fragile).get("open") == 2)
    broken = model_process(fragile)
    os.kill(broken, how)
    running.join()
    waiting.join()
    assert isinstance(lost[0], openai.InternalServerError)
    assert lost[0].code == "model_restarted"
    assert kept[0].choices
    assert model_process(fragile) != broken
    found = book(fragile)
    assert found["accepted"] == found["completed"] + found["cancelled"] + found["failed"]


def test_sigterm_finishes_what_is_here(fragile: Server, client: OpenAI) -> None:
    """The last test of this server."""
    running, found = in_background(lambda: client.completions.create(**LONG))
    until(lambda: book(fragile)["open"] == 1)
    assert fragile.end() == 0
    running.join()
    assert len(found[0].choices) == 48
    assert not any("cat sat" in line or "Traceback" in line for line in fragile.log)


# --- before it begins ---


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere",), "nowhere is not a directory"),
        ((".", "--host", "0.0.0.0"), "give an API key"),
        ((".", "--port", "70000"), "--port 70000"),
        ((".", "--deadline", "-1"), "--deadline -1"),
        ((".", "."), "two models are named"),
        ((".", "--attention", "sideways"), "--attention sideways"),
    ],
)
def test_what_cannot_be_served_is_told_in_one_line(
    say: Say, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.delenv("REDRAFT_API_KEY", raising=False)
    out, err = say("serve", *words, code=2)
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1
