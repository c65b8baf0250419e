"""`python -m bench.reliability [ID …]`: tests a real server under load, with faults and with hostile requests.

l2 overload · l5 disconnects · l6 SIGTERM under load · l7 soak · f6 crash and hang of the model process · f7 non-finite
numbers · i1 strange requests · i2 cost bombs · i3 special tokens in user text · i4 given text, byte for byte · q3 the
same texts alone and beside other requests · threads: with one thread and two · trace, story: the first frame of a
trace, by the small model and by the shipped one. The ledger (n1) is checked after each. Rows fill
docs/results/reliability.md.

Without --model, a small byte model is trained first. Rows are stored by id in bench/results/reliability.jsonl.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.requests import Answer, Client, Plain, bodies, cost_bombs

RESULTS = Path(__file__).parent / "results" / "reliability.jsonl"
SHORT: Plain = {"prompt": "The cat", "max_tokens": 8, "diffusion": {"steps": 4}}
LONG: Plain = {"prompt": "The cat", "max_tokens": 80, "n": 16, "seed": 1}


@dataclass
class Serving:
    """A server process, and a client for it."""

    process: subprocess.Popen[str]
    client: Client

    async def book(self) -> Plain:
        status: Plain = (await self.client.send("/health/ready", None)).json
        return status.get("request_counts", {})

    async def settled(self, seconds: float = 30) -> tuple[Plain, float]:
        """The ledger once nothing is open any more, and how long that took."""
        begin = time.monotonic()
        while time.monotonic() - begin < seconds:
            if (book := await self.book()) and book["open"] == 0:
                return book, time.monotonic() - begin
            await asyncio.sleep(0.02)
        return await self.book(), seconds

    @property
    def worker(self) -> int:
        children = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False)
        return int((children.stdout.split() or ["0"])[0])


@contextmanager
def serving(*words: object, **environment: str) -> Iterator[Serving]:
    command = [sys.executable, "-m", "redraft.apps.cli", "serve", *map(str, words), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if address := re.search(r"listening on http://([\d.]+):(\d+)", line):
                break
        else:
            raise RuntimeError("the server did not start")
        yield Serving(process, Client(address[1], int(address[2])))
    finally:
        process.kill()
        process.wait()


async def at_once(client: Client, requests: Sequence[tuple[str, Any]], width: int) -> list[Answer]:
    gate = asyncio.Semaphore(width)

    async def one(path: str, body: Any) -> Answer:
        async with gate:
            return await client.send(path, body)

    return await asyncio.gather(*(one(path, body) for path, body in requests))


def balanced(book: Plain) -> bool:
    return bool(book) and book["accepted"] == book["completed"] + book["cancelled"] + book["failed"]


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))] if values else 0.0


async def l2(server: Serving, size: float) -> Plain:
    """Capacity with 8 clients, then 200 connections, each of which comes back when it was told to.

    They open within the first two seconds: all at the same instant, they would wait for this very client.
    """
    seconds = max(3.0, 60 * size)

    async def flood(width: int, seconds: float) -> list[Answer]:
        end, answers = time.monotonic() + seconds, list[Answer]()

        async def client(number: int) -> None:
            await asyncio.sleep(number / 100)
            while time.monotonic() < end:
                answers.append(answer := await server.client.send("/v1/completions", SHORT))
                if answer.status == 429:  # as OpenAI's clients, which read the milliseconds first
                    await asyncio.sleep(float(answer.headers["retry-after-ms"]) / 1000)

        await asyncio.gather(*map(client, range(width)))
        return answers

    capacity = sum(a.status == 200 for a in await flood(8, seconds / 3)) / (seconds / 3)
    answers = await flood(200, seconds)
    done, kinds = sum(a.status == 200 for a in answers), Counter(a.status for a in answers)
    rejects = quantile([a.seconds for a in answers if a.status == 429], 0.99)
    goodput = done / seconds / capacity
    ok = set(kinds) <= {200, 429} and goodput >= 0.9 and rejects <= 0.1
    measured = (
        f"{done / seconds:.0f}/s done, {goodput:.0%} of capacity; rejects p99 {rejects * 1000:.0f} ms; {dict(kinds)}"
    )
    return {"ok": ok, "measured": measured, "count": len(answers)}


async def l5(server: Serving, size: float) -> Plain:
    """Clients that hang up at random moments, streaming or not."""
    chance, count = random.Random(0), max(20, int(500 * size))
    slowest = 0.0
    for number in range(count):
        body = LONG | {"stream": number % 2 == 0, "n": 2}
        _, writer = await server.client.open("/v1/completions", body)
        await asyncio.sleep(chance.random() * 0.1)
        writer.close()
        if number % 20 == 19:
            _, seconds = await server.settled()
            slowest = max(slowest, seconds)
    book, _ = await server.settled()
    return {
        "ok": balanced(book) and slowest < 1,
        "measured": f"all freed; slowest {slowest:.2f} s; {book}",
        "count": count,
    }


async def f6(server: Serving, size: float) -> Plain:
    """The model process is killed or stopped while it writes; the next request must be served."""
    slowest, count, bad = 0.0, max(2, int(20 * size)), 0
    for number in range(count):
        lost = asyncio.create_task(server.client.send("/v1/completions", LONG))
        while (await server.book()).get("open", 0) == 0 and not lost.done():
            await asyncio.sleep(0.01)
        begin = time.monotonic()
        os.kill(server.worker, signal.SIGKILL if number % 2 else signal.SIGSTOP)
        answer = await lost
        slowest = max(slowest, time.monotonic() - begin)
        bad += answer.status != 503
        while (await server.client.send("/health/ready", None)).status != 200:
            await asyncio.sleep(0.1)
        bad += (await server.client.send("/v1/completions", SHORT)).status != 200
    book, _ = await server.settled()
    ok = bad == 0 and slowest <= 5 and balanced(book)
    return {"ok": ok, "measured": f"noticed within {slowest:.1f} s, {bad} others failed; {book}", "count": count}


async def i1(server: Serving, size: float) -> Plain:
    openapi = (await server.client.send("/openapi.json", None)).json
    count = max(200, int(20_000 * size))
    answers = await at_once(server.client, list(bodies(openapi, count, seed=3)), 6)
    kinds = Counter(answer.status for answer in answers)
    refused = [a for a in answers if 400 <= a.status < 500 and a.status != 429]
    named = sum(bool(a.json["error"]["param"]) for a in refused)
    ok = not any(kind == 0 or kind >= 500 for kind in kinds) and named == len(refused)
    return {
        "ok": ok,
        "measured": f"{dict(kinds)}; {named} of {len(refused)} refusals name the parameter",
        "count": count,
    }


async def i2(server: Serving, size: float) -> Plain:
    answers = await at_once(server.client, cost_bombs(), 1)
    slowest = max(answer.seconds for answer in answers if answer.status)
    kinds = Counter(answer.status for answer in answers)
    ok = set(kinds) <= {0, 400, 413} and slowest < 2
    return {
        "ok": ok,
        "measured": f"{dict(kinds)} (0: not read to the end); slowest {slowest:.2f} s",
        "count": len(answers),
    }


SPECIALS = ("<|mask|>", "[MASK]", "<|eos|>", "</s>", "<pad>", "<bos>", "<|endoftext|>", "[[3]]", "[[*]]", "▒", "\x00")


async def i3(server: Serving, size: float) -> Plain:
    """Spellings of special tokens inside of random text: every byte of it is one token of content."""
    chance, count = random.Random(0), max(50, int(500 * size))
    prompts = ["".join(chance.choice((*SPECIALS, "a", " ", "é")) for _ in range(4)) for _ in range(count)]
    more = {"max_tokens": 1, "echo": True, "diffusion": {"steps": 1}}
    answers = await at_once(server.client, [("/v1/completions", {"prompt": p} | more) for p in prompts], 6)
    right = sum(_kept(answer, prompt) for answer, prompt in zip(answers, prompts, strict=True))
    return {"ok": right == count, "measured": f"{right} of {count} prompts came back as they were", "count": count}


def _kept(answer: Answer, prompt: str) -> bool:
    if answer.status != 200:
        return False
    body = answer.json
    return body["choices"][0]["text"].startswith(prompt) and body["usage"]["prompt_tokens"] == len(prompt.encode())


async def i4(server: Serving, size: float) -> Plain:
    chance, count = random.Random(0), max(100, int(10_000 * size))
    ranges = (
        (32, 126),
        (160, 591),
        (0x400, 0x4FF),
        (0x3040, 0x30FF),
        (0x4E00, 0x4FFF),
        (0x1F300, 0x1F5FF),
        (0x200B, 0x200F),
    )

    def text() -> str:
        return "".join(chr(chance.randint(*chance.choice(ranges))) for _ in range(chance.randint(1, 6)))

    pairs = [(text(), text()) for _ in range(count)]
    requests = [("/v1/infill", {"pieces": [a, 2, b], "diffusion": {"steps": 1}}) for a, b in pairs]
    right = 0
    for answer, (a, b) in zip(await at_once(server.client, requests, 6), pairs, strict=True):
        choice = answer.json["choices"][0] if answer.status == 200 else {"text": "", "holes": [""]}
        right += choice["text"] == a + choice["holes"][0] + b and bool(choice["text"])
    return {"ok": right == count, "measured": f"{right} of {count} byte for byte", "count": count}


def mixed(count: int) -> list[tuple[str, Plain]]:
    samplers = ("own", "confidence", "entropy", "threshold", "first-hitting", "left-to-right", "margin")
    return [
        ("/v1/completions", {"prompt": "One", "max_tokens": 4 + 7 * (i % 9), "n": 1 + i % 2, "seed": i}
         | {"diffusion": {"sampler": samplers[i % 7]}})
        for i in range(count)
    ]  # fmt: skip


async def q3(server: Serving, size: float) -> Plain:
    requests = mixed(max(14, int(100 * size)))

    def texts(answers: list[Answer]) -> list[Any]:
        return [[choice["text"] for choice in a.json["choices"]] if a.status == 200 else None for a in answers]

    runs = [texts(await at_once(server.client, requests, width)) for width in (1, 3, 8)]
    same = sum(a == b == c and a is not None for a, b, c in zip(*runs, strict=True))
    measured = f"{same} of {len(requests)} the same with 1, 3 and 8 at once"
    return {"ok": same == len(requests), "measured": measured, "count": len(requests), "texts": runs[0]}


async def trace(server: Serving, size: float, body: Plain = SHORT) -> Plain:
    """Seconds to the first frame of a trace, of a server that has nothing else to do."""
    times = []
    for seed in range(12):
        begin = time.perf_counter()
        reader, writer = await server.client.open("/v1/diffusion/trace", body | {"seed": seed})
        while b'"frame"' not in await reader.readline():
            pass
        times.append(time.perf_counter() - begin)
        writer.close()
    worst = quantile(times[2:], 0.95)
    return {"ok": worst < 0.15, "measured": f"p95 {worst * 1000:.0f} ms", "count": 10}


async def l7(server: Serving, size: float) -> Plain:
    """Memory, descriptors and threads of both processes at a third of the time and at its end."""
    seconds, marks = max(6.0, 1800 * size), list[dict[str, int]]()
    begin = time.monotonic()
    while (gone := time.monotonic() - begin) < seconds:
        await at_once(server.client, mixed(16), 8)
        if len(marks) < 1 and gone > seconds / 3:
            marks.append(_held(server))
    marks.append(_held(server))
    growth = {name: marks[-1][name] - marks[0][name] for name in marks[0]}
    ok = growth["megabytes"] < 20 + 0.05 * marks[0]["megabytes"] and growth["descriptors"] < 8 and growth["threads"] < 3
    return {"ok": ok, "measured": f"{seconds:.0f} s: {marks[0]} → {marks[-1]}", "count": 1}


def _held(server: Serving) -> dict[str, int]:
    counts = Counter[str]()
    for pid in (server.process.pid, server.worker):
        status = Path(f"/proc/{pid}/status").read_text()
        counts["megabytes"] += int(re.search(r"VmRSS:\s+(\d+)", status)[1]) >> 10  # type: ignore[index]
        counts["threads"] += int(re.search(r"Threads:\s+(\d+)", status)[1])  # type: ignore[index]
        counts["descriptors"] += len(os.listdir(f"/proc/{pid}/fd"))
    return dict(counts)


async def l6(server: Serving, size: float) -> Plain:
    """SIGTERM while requests are being written; one server, ended once."""
    running = [asyncio.create_task(server.client.send("/v1/completions", LONG | {"n": 4})) for _ in range(6)]
    while (await server.book()).get("open", 0) < 6:
        await asyncio.sleep(0.01)
    server.process.send_signal(signal.SIGTERM)
    answers = await asyncio.gather(*running)
    code = await asyncio.to_thread(server.process.wait, 60)
    good = sum(answer.status == 200 or b'"error"' in answer.body for answer in answers)
    return {"ok": code == 0 and good == 6, "measured": f"exit {code}, {good} of 6 answered", "count": 1}


CHECKS: dict[str, tuple[str, Callable[[Serving, float], Awaitable[Plain]]]] = {
    "l2": ("overload: only 200 and 429, goodput ≥ 90 %, rejects p99 ≤ 100 ms", l2),
    "l5": ("disconnects at random moments: all freed", l5),
    "f6": ("crash or hang of the model process: noticed ≤ 5 s, only its requests fail", f6),
    "i1": ("strange requests: no 5xx, every 4xx names the parameter", i1),
    "i2": ("cost bombs: refused at once", i2),
    "i3": ("special tokens in user text stay text", i3),
    "i4": ("infill on random Unicode: given text byte for byte", i4),
    "q3": ("same seed, any company: identical text", q3),
    "trace": ("first frame of a trace < 150 ms", trace),
    "l7": ("soak: memory, descriptors, threads flat", l7),
}


def rows(names: Sequence[str], model: str, size: float) -> Iterator[Plain]:
    usual = [name for name in names if name in CHECKS]
    if usual:
        with serving(model, "--queue", 32) as server:
            for name in usual:
                goal, check = CHECKS[name]
                result = asyncio.run(check(server, size))
                book = asyncio.run(server.settled())[0]
                result.pop("texts", None)
                yield {"id": name, "goal": goal, **result, "n1": balanced(book)}
    if "l6" in names:
        count, all_well, measured = max(2, int(20 * size)), True, ""
        for _ in range(count):
            with serving(model) as server:
                result = asyncio.run(l6(server, size))
                all_well, measured = all_well and result["ok"], result["measured"]
        yield {
            "id": "l6",
            "goal": "SIGTERM under load: answered, exit 0",
            "ok": all_well,
            "measured": measured,
            "count": count,
        }
    if "threads" in names:
        texts = []
        for threads in (1, 2):
            with serving(model, "--threads", threads) as server:
                texts.append(asyncio.run(q3(server, size))["texts"])
        same = sum(a == b for a, b in zip(*texts, strict=True))
        measured = f"{same} of {len(texts[0])} the same with one thread and two"
        yield {
            "id": "threads",
            "goal": "identical text by 1 and 2 threads",
            "ok": same == len(texts[0]),
            "measured": measured,
        }
    if "f7" in names:
        yield f7(model, size)
    if "story" in names:
        with serving() as server:
            result = asyncio.run(trace(server, size, {"prompt": "One day", "diffusion": {"alternatives": 5}}))
        yield {"id": "story", "goal": "first frame of a trace < 150 ms, shipped model, with alternatives", **result}


def f7(model: str, size: float) -> Plain:
    """The vectors of one token and of one place overflow if they meet: requests in which they do fail alone."""
    import torch

    import redraft

    broken = redraft.training.load(model)
    with torch.no_grad():
        broken.network.embedding.weight[ord("Z")] = 3.4e38  # nan itself is refused when a model is loaded
        broken.network.position.weight[3] = 3.4e38
    with tempfile.TemporaryDirectory() as folder:
        place = redraft.export(Path(folder) / "broken", broken)
        with serving(place) as server:
            count = max(6, int(30 * size))
            requests = [
                ("/v1/completions", SHORT | {"prompt": "abcZ" if i % 2 else "abcd", "seed": i})
                for i in range(2 * count)
            ]
            answers = asyncio.run(at_once(server.client, requests, 8))
    bad = [answer.json["error"]["code"] for answer in answers[1::2] if answer.status == 500]
    good = sum(answer.status == 200 for answer in answers[::2])
    ok = bad == ["numerical_error"] * count and good == count
    measured = f"{len(bad)} of {count} ended with numerical_error, {good} of {count} beside them were written"
    return {
        "id": "f7",
        "goal": "numbers that are not finite: contained",
        "ok": ok,
        "measured": measured,
        "count": count,
    }


def trained(folder: str) -> str:
    """A small model of bytes."""
    place = str(Path(folder) / "bytes")
    size = ["--model.network.width", "64", "--model.network.layers", "2", "--model.network.heads", "2"]
    words = [
        "train",
        "mdlm_tiny",
        "--tokenizer",
        "bytes",
        "--length",
        "96",
        "--steps",
        "60",
        "--precision",
        "fp32",
        *size,
    ]
    subprocess.run([sys.executable, "-m", "redraft.apps.cli", *words, "--quiet", "--out", place], check=True)
    return place


def keep(rows: Sequence[Plain]) -> None:
    """Rows replace those of the same id."""
    old = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.is_file() else []
    new = {row["id"]: row for row in (*old, *rows)}
    RESULTS.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in new.values()), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", default=[])
    parser.add_argument("--model", default=None, help="directory of a byte model")
    parser.add_argument(
        "--size", type=float, default=0.02, help="fraction of the counts and seconds that the goal names"
    )
    parser.add_argument("--no-file", action="store_true")
    given = parser.parse_args()
    names = given.ids or [*CHECKS, "l6", "threads", "f7", "story"]
    with tempfile.TemporaryDirectory() as folder:
        results = []
        for row in rows(names, given.model or trained(folder), given.size):
            print(json.dumps(row, ensure_ascii=False), flush=True)
            results.append(row | {"size": given.size, "load": round(os.getloadavg()[0], 1)})
            if not given.no_file:
                keep(results)
    return int(any(row["ok"] is False for row in results))


if __name__ == "__main__":
    sys.exit(main())
