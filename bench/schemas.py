"""`python -m bench.schemas SAMPLE`: how many JSON schemas compile, and whether generated texts satisfy their schema.

SAMPLE is a file of JSON lines with `name, schema, valid, invalid`, such as 300 schemas of JSONSchemaBench (Geng et al.,
2025). The data has no license, so it is not part of the project. The oracle is the package `jsonschema` with the draft
of each schema and its format checker; its `multipleOf`, which divides floats, is replaced by an exact one.
Texts are sampled from the automaton: a random walk of up to 250 bytes, then a shortest path to an accepting state.
Rows: bench/results/schemas.jsonl.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
from jsonschema import validators

from bench import limit
from bench.race import Row, report, tell
from redraft.decoding.constraints.dfa import AutomatonTooLarge, _Dfa
from redraft.decoding.constraints.schema.compile import _CompiledSchema, compile_schema

RESULTS = Path(__file__).parent / "results" / "schemas.jsonl"
LENGTHS = (0, 30, 100, 250)  # bytes of a walk before it goes home
DRAWS = 24  # texts per schema
SCALARS: dict[Any, bytes] = {None: b"null", True: b"true", False: b"false"}
ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def oracle(schema: Any) -> jsonschema.protocols.Validator:
    """A validator of the schema's own draft, with formats, and exact multiples."""
    plain = validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return validators.extend(plain, {"multipleOf": _multiple_of})(schema, format_checker=plain.FORMAT_CHECKER)


def _multiple_of(validator: Any, divisor: Any, value: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
    if validator.is_type(value, "number") and Fraction(str(value)) % Fraction(str(divisor)):
        yield jsonschema.ValidationError(f"{value} is not a multiple of {divisor}")


@dataclass(frozen=True)
class Walk:
    """Draws texts of an automaton."""

    dfa: _Dfa

    @cached_property
    def home(self) -> np.ndarray:
        """For each state, how many bytes the shortest way to a final one has."""
        count = len(self.dfa)
        source, byte = (self.dfa.table >= 0).nonzero()
        pairs = np.unique(self.dfa.table[source, byte].astype(np.int64) * count + source)
        target, source = pairs // count, pairs % count
        begin = np.searchsorted(target, np.arange(count + 1)).tolist()
        queue = np.flatnonzero(self.dfa.final).tolist()
        distance = dict.fromkeys(queue, 0)
        for state in queue:  # grows while it is read
            for before in source[begin[state] : begin[state + 1]].tolist():
                if before not in distance:
                    distance[before] = distance[state] + 1
                    queue.append(before)
        return np.array([distance.get(state, 10**9) for state in range(count)])

    def text(self, draw: random.Random, length: int) -> bytes:
        state, text = 0, bytearray()
        while True:
            row = self.dfa.table[state]
            ways = np.flatnonzero(row >= 0)
            late = len(text) >= length
            if bool(self.dfa.final[state]) and (late or not len(ways) or draw.random() < 0.2):
                return bytes(text)
            home = self.home[row[ways]]
            targets = set(row[ways[home == home.min()]].tolist()) if late else set(row[ways].tolist())
            state = draw.choice(sorted(targets))
            text.append(draw.choice(np.flatnonzero(row == state).tolist()))


@dataclass
class Reader:
    """Whether an automaton accepts a value, in any order of its keys."""

    dfa: _Dfa
    steps: int = 0

    def accepts(self, value: Any) -> bool:
        self.steps = 20_000  # of the search for an order
        state = self.value(0, value)
        return state >= 0 and bool(self.dfa.final[state])

    def read(self, state: int, text: bytes) -> int:
        for byte in text:
            if state < 0:
                return -1
            state = int(self.dfa.table[state, byte])
        return state

    def value(self, state: int, value: Any) -> int:
        if isinstance(value, dict):
            return self.object(self.read(state, b"{"), value, frozenset(value), {})
        if not isinstance(value, list):
            return self.read(state, scalar(value))
        state = self.read(state, b"[")
        for i, item in enumerate(value):
            state = self.value(self.read(state, b"," if i else b""), item)
        return self.read(state, b"]")

    def object(self, state: int, value: dict, left: frozenset[str], known: dict[Any, int]) -> int:
        if not left or state < 0:
            return self.read(state, b"}")
        if (state, left) not in known and self.steps > 0:
            self.steps -= 1
            comma = b"," if len(left) < len(value) else b""
            begun = ((key, self.read(state, comma + scalar(key) + b":")) for key in value if key in left)
            ends = (self.object(self.value(at, value[key]), value, left - {key}, known) for key, at in begun if at >= 0)
            known[state, left] = next((end for end in ends if end >= 0), -1)
        return known.get((state, left), -1)


def scalar(value: Any) -> bytes:
    """A string, number or constant in the canonical form."""
    if isinstance(value, str):
        return f'"{"".join(ESCAPES.get(letter, letter) for letter in value)}"'.encode("utf-8", "surrogatepass")
    if value is None or isinstance(value, bool):
        return SCALARS[value]
    number = Decimal(str(value))
    text = f"{number:f}"
    return b"0" if not number else (text.rstrip("0").rstrip(".") if "." in text else text).encode()


@dataclass
class Findings:
    """What came of a part of the schemas."""

    counts: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    states: list[int] = field(default_factory=list)

    def add(self, case: dict[str, Any], draw: random.Random) -> None:
        compiled = self.compiled(case)
        self.counts["schemas"] += 1
        self.counts["valid"] += len(case["valid"])
        if compiled is None:
            return
        self.states.append(len(compiled.dfa))
        reader, truth, walk = Reader(compiled.dfa), oracle(case["schema"]), Walk(compiled.dfa)
        accepted = sum(map(reader.accepts, case["valid"]))
        self.counts["accepted"] += accepted
        if not compiled.left_out:
            self.counts["valid, in full"] += len(case["valid"])
            self.counts["accepted, in full"] += accepted
        self.counts["invalid"] += len(case["invalid"])
        self.counts["wrongly accepted"] += sum(map(reader.accepts, case["invalid"]))
        for i in range(DRAWS):
            self.judge(walk.text(draw, LENGTHS[i % len(LENGTHS)]), truth)

    def judge(self, text: bytes, truth: jsonschema.protocols.Validator) -> None:
        repeated: list[str] = []
        value = json.loads(text, object_pairs_hook=lambda pairs: _unrepeated(pairs, repeated))
        self.counts["texts"] += 1
        self.counts["texts with a repeated key"] += bool(repeated)
        try:
            self.counts["invalid texts"] += not truth.is_valid(value)
        except Exception:
            self.counts["texts that the oracle cannot judge"] += 1

    def compiled(self, case: dict[str, Any]) -> _CompiledSchema | None:
        begin = time.process_time()
        try:
            schema = compile_schema(json.dumps(case["schema"]))
            self.counts["in part" if schema.left_out else "in full"] += 1
        except ValueError as error:
            schema = None
            self.counts["too large" if isinstance(error, AutomatonTooLarge) else "refused"] += 1
        self.seconds.append(time.process_time() - begin)
        return schema


def _unrepeated(pairs: list[tuple[str, Any]], repeated: list[str]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        repeated.append("")
    return members


def rows(sample: Path) -> Iterator[Row]:
    yield limit.machine("python -m bench.schemas SAMPLE")
    draw = random.Random(0)
    whole, parts = Findings(), {}
    for line in sample.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        part = parts.setdefault(case["name"].partition("---")[0], Findings())
        part.add(case, draw)
    for name, part in parts.items():
        whole.counts += part.counts
        whole.seconds += part.seconds
        whole.states += part.states
        yield {"bench": f"schemas of {name}", **part.counts}
    yield from goals(whole)


def goals(findings: Findings) -> Iterator[Row]:
    counts, total = findings.counts, findings.counts["schemas"]
    share = lambda name, of: counts[name] / max(1, counts[of])  # noqa: E731
    compiled = (counts["in full"] + counts["in part"]) / total
    yield report("schemas compiled, in full or in part", 0.97, ratio=compiled, at_most=False, of=total)
    yield report("schemas compiled in full", 0.9, ratio=share("in full", "schemas"), at_most=False)
    yield report("valid instances accepted", 0.9, ratio=share("accepted", "valid"), at_most=False, of=counts["valid"])
    yield report("the same, of schemas in full", None, ratio=share("accepted, in full", "valid, in full"))
    yield report("invalid texts", 0, ratio=counts["invalid texts"], of=counts["texts"])
    yield report("invalid instances accepted", 0, ratio=counts["wrongly accepted"], of=counts["invalid"])
    yield report("CPU seconds to compile, median", 0.3, ratio=statistics.median(findings.seconds))
    yield report("CPU seconds to compile, ninth decile", 2.0, ratio=float(np.quantile(findings.seconds, 0.9)))
    yield report("CPU seconds to compile, most", 10.0, ratio=max(findings.seconds))
    sizes = np.quantile(findings.states, [0.5, 0.9, 1]).astype(int).tolist()
    yield report("states of bytes, median", None, ratio=sizes[0], ninth_decile=sizes[1], most=sizes[2])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("python -m bench.schemas SAMPLE, a file of JSON lines; see the top of bench/schemas.py")
    sys.exit(tell(rows(Path(sys.argv[1])), RESULTS))
