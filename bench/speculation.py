"""`python -m bench.speculation DIR [--draft lookup self DIR …]`: speculative decoding on this CPU.

First the cost of reading n tokens with a cache, c(n)/c(1), which limits the speedup. Then tokens per CPU second: of
plain decoding, in each weight format and by both decoding loops, and of speculative decoding with each drafter and
draft length. All run in turn on the same prompts, on one thread. The fastest plain decoding is the baseline. With
--name, the row goes to bench/results/speculation.jsonl.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

from bench.identical import prompts
from bench.limit import machine
from redraft.core import Canvas, Context, rng
from redraft.decoding import (
    Ancestral,
    Blocks,
    DiffusionDraft,
    DraftCosts,
    Drafter,
    DraftRequest,
    NoDraft,
    OwnDrafter,
    PromptLookup,
    Proposal,
    Sampler,
    SpeculativeSampler,
    TextLookup,
    Unmask,
    final_canvas,
)
from redraft.models import DiffusionLM, DraftNetwork, DraftState, Transformer, chat_canvas, with_weight_format
from redraft.tasks import open_model
from redraft.tasks.engine.speculation import _text_lookup
from redraft.training import load

RESULTS = Path(__file__).parent / "results" / "speculation.jsonl"
PROMPTS = (
    "The children walked to the garden because",
    "Repeat after me: the quick brown fox jumps over the lazy dog. The quick brown fox",
    "A list of colours: red, green, blue, red, green,",
)
SIZES = (1, 2, 3, 5, 9, 16, 32)


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of this thread: other work on the machine does not count."""
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def reading(model: DiffusionLM, held: int = 64, rounds: int = 5) -> dict[int, float]:
    """Seconds to read n tokens behind `held` others and to say what follows each, by n."""
    known = model.config.network.positions
    held = held if known is None else min(held, known - 2 - max(SIZES))
    states = model.config.vocab.size - 1
    ids = torch.arange(held + max(SIZES))[None] % states
    place = torch.arange(ids.shape[1])[None]

    def read(n: int) -> None:
        cache = model.absorb(ids[:, :held], Context(positions=place[:, :held])).cache
        times.setdefault(n, []).append(seconds(lambda: logits(n, cache)))

    def logits(n: int, cache: Any) -> object:
        window = slice(held, held + n)
        after = model.absorb(ids[:, window], Context(positions=place[:, window], cache=cache)).cache
        return model.network.logits(after.outputs.states)  # type: ignore[union-attr]

    times: dict[int, list[float]] = {}
    with torch.no_grad():
        for _ in range(rounds + 1):
            for n in SIZES:
                read(n)
    return {n: median(each[1:]) for n, each in times.items()}


def ordinary() -> Any:
    """Without the lean pass."""
    return patch.object(Transformer, "_leanly", lambda *_: False)


@dataclass
class Clock:
    """Seconds that a drafter took, and how many drafts it made."""

    seconds: float = 0.0
    drafts: int = 0


@dataclass(frozen=True)
class TimedDraft(Drafter):
    """A drafter, with a clock."""

    inner: Any
    clock: Clock = field(default_factory=Clock)

    @property
    def ordered(self) -> bool:
        return bool(self.inner.ordered)

    def costs(self) -> DraftCosts:
        return self.inner.costs()

    def __call__(self, request: DraftRequest) -> Proposal:
        proposals: list[Proposal] = []
        self.clock.seconds += seconds(lambda: proposals.append(self.inner(request)))
        self.clock.drafts += proposals[0].tokens.shape[1] > 0
        return proposals[0]


@dataclass(frozen=True)
class TimedStateDraft(TimedDraft):
    """The same for one that follows what the model reads."""

    def fresh(self) -> TimedStateDraft:
        return TimedStateDraft(self.inner.fresh(), self.clock)

    def observe(self, z: Any, context: Any) -> None:
        self.clock.seconds += seconds(lambda: self.inner.observe(z, context))


def timed(draft: Drafter) -> Drafter:
    """With a clock, if a network drafts: of the microseconds of a lookup the clock itself would take a part."""
    if isinstance(draft, PromptLookup | TextLookup):
        return draft
    return TimedStateDraft(draft) if isinstance(draft, OwnDrafter) else TimedDraft(draft)


def drafter(name: str, model: DiffusionLM) -> Drafter:
    """lookup, self, a file of texts, or a directory: of a drafter, or of a diffusion model, DIR@2 for two steps."""
    name, _, number = name.partition("@")
    steps = int(number or 1)
    if name == "lookup":
        return PromptLookup()
    if Path(name).suffix == ".jsonl":
        assert model.tokenizer is not None
        return _text_lookup(Path(name), model.tokenizer)
    if name == "self":
        return OwnDrafter(model.part(DraftNetwork).state(model))
    other = open_model(name)
    if "drafter" in other.lm.parts:
        return OwnDrafter(other.lm.part(DraftNetwork).state(other.lm.eval()))
    return DiffusionDraft(other.lm.eval(), other.lm.process, steps, row_length=other.full_row_length)  # type: ignore[arg-type]


Side = tuple[DiffusionLM, Sampler]


def as_text(model: DiffusionLM, prompt: str, new: int) -> Canvas:
    return model.canvas(prompt, new=new)


def as_question(model: DiffusionLM, prompt: str, new: int) -> Canvas:
    """In the model's chat template."""
    return chat_canvas(model, [{"role": "user", "content": prompt}], new=new)


def questions(path: Path, count: int) -> list[str]:
    """The first questions of a file of JSON lines, in their field source or src."""
    with path.open(encoding="utf-8") as file:
        lines = (json.loads(line) for line in file)
        return [each.get("source") or each["src"] for each in islice(lines, count)]


def raced(
    sides: dict[str, Side], texts: Iterable[str], new: int, compose: Callable[[DiffusionLM, str, int], Canvas] = as_text
) -> dict[str, tuple[float, list[Any]]]:
    """CPU seconds of each side, and the ids it wrote."""
    spent = dict.fromkeys(sides, 0.0)
    wrote: dict[str, list[Any]] = {name: [] for name in sides}
    for number, prompt in enumerate(texts):
        for name, (model, sampler) in sides.items():
            canvas = compose(model, prompt, new)

            def write(model: DiffusionLM = model, sampler: Sampler = sampler, canvas: Any = canvas) -> None:
                wrote[name].append(final_canvas(sampler(model, model.process, canvas, rng=rng(number))).z[0].tolist())  # noqa: B023

            with ordinary() if name.endswith("ordinary") else patch.dict({}):
                spent[name] += seconds(write)
    return {name: (spent[name], wrote[name]) for name in sides}


def plain_sides(models: dict[str, DiffusionLM], temperature: float, slow: bool) -> dict[str, Side]:
    """Plain decoding by both loops, in each form of the weights."""
    block = Blocks(Unmask(1)) if temperature == 0 else Blocks(Ancestral(1))
    sides: dict[str, Side] = {"plain, ordinary": (models["own"], block)} if slow and "own" in models else {}
    for form, model in models.items():
        sides[f"plain, {form}"] = (model, block)
        sides[f"plain, {form}, short loop"] = (
            model,
            SpeculativeSampler(NoDraft(), costs=None, temperature=temperature),
        )
    return sides


def draft_figures(sampler: SpeculativeSampler, spent: float, tokens: int, one: float, alone: float) -> dict[str, Any]:
    """What a side with a drafter did; one: seconds of a pass over one token, alone: tokens per second without."""
    clock, speed = getattr(sampler.draft, "clock", None), tokens / spent
    return {
        "tokens_per_second": round(speed, 1),
        "speedup": round(speed / alone, 3),
        "acceptance": round(sampler.tally.acceptance, 3),
        "tokens_per_round": round(sampler.tally.tokens_per_round, 2),
        "draft_cost": None if clock is None else round(clock.seconds / max(1, clock.drafts) / one, 2),
    }


def measured(args: argparse.Namespace) -> dict[str, Any]:
    models = {form: load(args.model).eval() for form in args.forms}
    for form, model in models.items():
        if form != "own":
            with_weight_format(model, form)
    row: dict[str, Any] = {"name": args.name, "model": args.model.name, "temperature": args.temperature}
    row |= {"new": args.new, "prompts": args.rounds, **machine(args.command)}
    first = {}
    for form, model in models.items():
        cost = reading(model)
        first[form] = cost[1]
        row[f"c(n)/c(1) {form}"] = {n: round(cost[n] / cost[1], 2) for n in SIZES}
        row[f"c(1) ms {form}"] = round(1e3 * cost[1], 2)
        print(form, f"c(1) = {1e3 * cost[1]:.2f} ms,", "c(n)/c(1):", row[f"c(n)/c(1) {form}"], flush=True)
    target = models[args.weights]
    sides = plain_sides(models, args.temperature, args.ordinary)
    drafted: dict[str, tuple[str, str]] = {}
    for name in args.draft:
        at = row[f"c(n)/c(1) {args.weights}"]
        for length in args.lengths:
            side = f"draft {Path(name).name}, {length}"
            fixed = SpeculativeSampler(timed(_as(args.weights, drafter(name, target))), length=length, costs=None)
            sides[side] = (target, _at(fixed, args.temperature))
            drafted[side] = (Path(name).name, str(length))
        side, draft = f"draft {Path(name).name}, adaptive", _as(args.weights, drafter(name, target))
        costs = _costs(draft, max(0.0, (at[5] - 1) / 4), args.cost)
        free = SpeculativeSampler(timed(draft), length=max(args.lengths), costs=costs)
        sides[side] = (target, _at(free, args.temperature))
        drafted[side] = (Path(name).name, "adaptive")
    if args.chat is not None:
        results = raced(sides, questions(args.chat, args.rounds), args.new, as_question)
    else:
        texts = prompts(args.rounds) if args.stories else [PROMPTS[i % len(PROMPTS)] for i in range(args.rounds)]
        results = raced(sides, texts, args.new)
    tokens = args.rounds * args.new
    row["plain"] = {name: round(tokens / results[name][0], 1) for name in sides if name not in drafted}
    best = max(row["plain"], key=row["plain"].__getitem__)
    row["fastest"], row["fastest plain"] = best, row["plain"][best]
    alone = results[f"plain, {args.weights}"][1]
    for side, (name, length) in drafted.items():
        sampler = sides[side][1]
        assert isinstance(sampler, SpeculativeSampler)
        figures = draft_figures(sampler, results[side][0], tokens, first[args.weights], tokens / results[best][0])
        figures["same"] = sum(a == b for a, b in zip(alone, results[side][1], strict=True))
        row.setdefault("draft", {}).setdefault(name, {})[length] = figures
    return row


def _as(form: str, draft: Drafter) -> Drafter:
    """A drafter with a network of its own in the form of the target's weights."""
    if isinstance(draft, OwnDrafter) and isinstance(draft.state, DraftState) and form != "own":
        network = draft.state.model.network
        if not network.batch_invariant:
            with_weight_format(draft.state.model, form)
    return draft


def _costs(draft: Drafter, read: float, network: float) -> DraftCosts:
    """Costs of drafted tokens, and of the drafter's network if it has one."""
    if isinstance(draft, PromptLookup | TextLookup):
        return DraftCosts(read, 0.0)
    own = draft.state.target_tokens if isinstance(draft, OwnDrafter) else 0
    return DraftCosts(read, network, own)


def _at(sampler: SpeculativeSampler, temperature: float) -> SpeculativeSampler:
    from dataclasses import replace

    return replace(sampler, temperature=temperature)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--draft", nargs="*", default=["lookup"], help="lookup, self, files, directories")
    parser.add_argument(
        "--forms", nargs="*", default=["own", "int8", "packed"], help="weight formats for plain decoding"
    )
    parser.add_argument("--weights", default="int8", help="weight format for speculative decoding")
    parser.add_argument(
        "--lengths", nargs="*", type=int, default=[8], help="draft lengths; an adaptive length is always measured too"
    )
    parser.add_argument("--cost", type=float, default=0.0, help="cost of a drafting network, in passes over one token")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--stories", action="store_true", help="use beginnings of embedded stories as prompts")
    parser.add_argument("--chat", type=Path, help="use questions as prompts: JSON lines with the field source or src")
    parser.add_argument(
        "--ordinary", action="store_true", help="also measure plain decoding without the incremental pass"
    )
    parser.add_argument("--new", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3, help="number of prompts")
    parser.add_argument("--name", help="name of the row; without it no row is written")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    args.command = " ".join(["python -m bench.speculation", *words])
    torch.set_num_threads(1)
    row = measured(args)
    print(json.dumps(row, indent=1))
    if args.name:
        with args.out.open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
