"""How many holes does a causal model fill right once an adapter lets it see both sides?

    python recipes/adapt.py --data PATH --out DIR                  # 90 CPU minutes for the adapter that ships

Trains an adapter on real text by `redraft adapt` (full attention, shift kept, small mask rates, at first with hidden
states aligned with the causal model's). Then fills holes in held-out text, whole words of one token and spans of 2 to
5, in five ways: the unadapted model with both sides; the causal model with the left side only; 16 continuations of the
causal model rescored with the right side; the adapter alone; and 16 candidates of both models scored by the causal
model, as in `redraft infill`. The causal model scores 8 tokens of the right side; the adapter sees all of it.

Results that do not depend on the adapter are measured once, in DIR/words.jsonl and DIR/spans.jsonl. An interrupted
recipe continues: training from its checkpoints, bit for bit, and holes after the last row. With --curve, the adapters
of earlier checkpoints fill some words too. The rows go to recipes/results/adapt.jsonl.
Answer: docs/results/adapt.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rows import Rows, run_recipe
from torch import Tensor

from redraft.apps.cli.commands.adapt import (
    AdaptModel,
)
from redraft.core import Canvas, Context, Prediction, Tokenizer, rng
from redraft.decoding import final_canvas
from redraft.models import DiffusionLM, KeyValueCache, lora_disabled
from redraft.tasks import ProposeAndJudge, TextModel, open_model
from redraft.tasks.infilling.causal_judge import _CausalJudge
from redraft.training import Run, describe_run, first_batches, load_rows

RESULTS = Path(__file__).parent / "results"
WAYS = ("unadapted", "left only", "causal, rescored", "adapter", "both")
TRIES, AFTER = 16, 8


def train(args: argparse.Namespace) -> None:
    """The adapter, first with its states held to the causal model's, then without; the same command continues."""
    common = {"length": args.length, "batch": args.batch, "even": True, "keep": 17}
    AdaptModel(
        args.model,
        args.out / "aligned",
        (args.data,),
        steps=args.steps,
        lr=1e-3,
        lora=args.lora,
        align=10.0,
        rates=(0.05, 0.6),
        save_every=max(1, args.steps // 16),
        **common,
    )()
    after = max(1, 3 * args.steps // 8)
    AdaptModel(
        args.out / "aligned",
        args.out / "run",
        (args.data,),
        steps=after,
        lr=7e-4,
        rates=(0.05, 0.4),
        save_every=max(1, after // 6),
        **common,
    )()


def tokens_seen(run: Run, step: int) -> int:
    """By the adapter, in this run and the one it goes on with."""
    before, steps = describe_run(run.base) if run.base is not None and Path(run.base).is_dir() else (None, None)
    own = step * run.batch * run.framing.length
    return own if before is None else own + tokens_seen(before, steps or 0)


# --- holes ---


@dataclass(frozen=True)
class Hole:
    row: Tensor  # (L,)
    begin: int
    size: int

    @property
    def truth(self) -> list[int]:
        return self.row[self.begin : self.begin + self.size].tolist()

    def filled(self, ways: Tensor) -> Tensor:
        """(K, size) → (K, L)"""
        rows = self.row.repeat(len(ways), 1)
        rows[:, self.begin : self.begin + self.size] = ways
        return rows

    def canvas(self, mask: int) -> Canvas:
        fixed = torch.ones(1, len(self.row), dtype=torch.bool)
        fixed[0, self.begin : self.begin + self.size] = False
        return Canvas(self.row[None].masked_fill(~fixed, mask), fixed)


def words(run: Run, count: int) -> list[Hole]:
    """Whole words of one token, near the middle of held-out rows."""
    places = ((row, word_near(run.tokenizer, row, len(row) // 2)) for row in held_out(run, 2 * count))
    return [Hole(row, at, 1) for row, at in places if at is not None][:count]


def spans(run: Run, count: int) -> list[Hole]:
    """Spans of 2, 3, 4 and 5 tokens in turn, each in the middle of 40 tokens: 16 ways to fill them are read again."""
    rows = [row[max(0, len(row) // 2 - 20) :][:40] for row in held_out(run, count)]
    sizes = [2 + number % 4 for number in range(len(rows))]
    return [Hole(row, len(row) // 2 - size // 2, size) for row, size in zip(rows, sizes, strict=True)]


KINDS = {"words": words, "spans": spans}


def held_out(run: Run, count: int) -> list[Tensor]:
    batches = first_batches(load_rows(run.data, "test", run.tokenizer, run.framing), count)
    return [row for batch in batches for row in batch.tokens][:count]


def word_near(tokenizer: Tokenizer, row: Tensor, middle: int) -> int | None:
    """The place of the token nearest to the middle that is a whole word; None: there is none."""
    texts = [tokenizer.decode([token]) for token in row.tolist()]
    spaced = any(text.startswith(" ") for text in texts)  # a vocabulary of whole words has no spaces

    def whole(i: int) -> bool:
        word, following = texts[i], texts[i + 1] if i + 1 < len(texts) else " "
        begins = word.startswith(" ") if spaced else True
        return begins and word.strip().isalpha() and not (spaced and following[:1].isalpha())

    places = [i for i in range(2, len(row)) if whole(i)]
    return min(places, key=lambda i: abs(i - middle), default=None)


# --- what the causal model says ---


def with_causal(model: DiffusionLM, hole: Hole) -> dict[str, Any]:
    """The ways that need no adapter: their answers, the causal model's candidates, and log p of each."""
    with torch.no_grad(), lora_disabled(model):
        states, cache = model.network.extend(hole.row[None, : hole.begin])
        ways = continuations(model, states, cache, hole.size)
        scores = judged(model, states, cache, hole, ways)
        plain = final_canvas(ProposeAndJudge(equal, 1)(model, model.process, hole.canvas(masked(model)), rng=rng(0))).z[
            0
        ]
    return {
        "unadapted": plain[hole.begin : hole.begin + hole.size].tolist() == hole.truth,
        "left only": ways[0].tolist() == hole.truth,
        "causal, rescored": ways[int(scores.argmax())].tolist() == hole.truth,
        "ways": ways.tolist(),
        "log_p": [round(p, 5) for p in scores.tolist()],
    }


def masked(model: DiffusionLM) -> int:
    return model.config.vocab.masked


def equal(z: Tensor, pad: Tensor | None) -> Tensor:
    return torch.zeros(len(z))


def continuations(model: DiffusionLM, states: Tensor, cache: KeyValueCache, size: int) -> Tensor:
    """(16, size) the likeliest continuations of the left side, by beam search."""
    ways, score = torch.zeros(1, 0, dtype=torch.int64), torch.zeros(1, dtype=torch.float64)
    for _ in range(size):
        logits = model.network.logits(states[:, -1]).double()
        log_p = logits.index_fill(-1, torch.tensor([masked(model)]), -torch.inf).log_softmax(-1)
        total = (score[:, None] + log_p).flatten()
        score, at = total.topk(min(TRIES, int(total.isfinite().sum())))
        row, token = at // log_p.shape[-1], at % log_p.shape[-1]
        ways = torch.cat([ways[row], token[:, None]], 1)
        if ways.shape[1] < size:
            states, cache = model.network.extend(token[:, None], cache.rows(row))
    return ways


def judged(model: DiffusionLM, states: Tensor, cache: KeyValueCache, hole: Hole, ways: Tensor) -> Tensor:
    """(K,) log p of the ways to fill a hole and of the 8 tokens behind it, given the left side; adapter off."""
    end = min(len(hole.row), hole.begin + hole.size + AFTER)
    return _CausalJudge(model).continuation_log_probs(states, cache, hole.filled(ways)[:, hole.begin : end])


# --- what the adapter adds ---


class Overheard:
    """A denoiser that keeps what it says first."""

    block = None

    def __init__(self, model: DiffusionLM) -> None:
        self.model, self.first = model, torch.zeros(0)

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        pred = self.model.predict(z, t, context)
        if not len(self.first):
            self.first = pred.at(z == masked(self.model))[:1]
            if int((z == masked(self.model)).sum()) == 1:
                return Spoken(self.first)
        return pred

    def absorb(self, z: Tensor, context: Context = Context()) -> Context:
        return self.model.absorb(z, context)


class Spoken(Prediction):
    """A prediction that was computed before."""

    normalized = True

    def __init__(self, log_p: Tensor) -> None:
        self.log_p = log_p

    @property
    def x(self) -> Tensor:
        return self.log_p[None]

    def at(self, where: Tensor) -> Tensor:
        return self.log_p

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        return torch.where(where, -self.log_p[0][target], 0.0)


def with_adapter(model: DiffusionLM, hole: Hole, causal: dict[str, Any]) -> dict[str, Any]:
    """The answers of the adapter alone, token by token, and of both models; known log p is not computed again."""
    known = {tuple(way): p for way, p in zip(causal["ways"], causal["log_p"], strict=True)}

    def judge(z: Tensor, pad: Tensor | None) -> Tensor:
        ways = list(map(tuple, z[:, hole.begin : hole.begin + hole.size].tolist()))
        if new := [way for way in ways if way not in known]:
            with torch.no_grad(), lora_disabled(model):
                given = model.network.extend(hole.row[None, : hole.begin])
                known.update(zip(new, judged(model, *given, hole, torch.tensor(new)).tolist(), strict=True))
        return torch.tensor([known[way] for way in ways]).double()

    canvas, place, hears = hole.canvas(masked(model)), slice(hole.begin, hole.begin + hole.size), Overheard(model)
    by_both = ProposeAndJudge(judge, TRIES, next_token=_CausalJudge(model).next_token_log_probs)
    done = final_canvas(by_both(hears, model.process, canvas, rng=rng(0))).z[0, place].tolist()
    if hole.size == 1:
        alone = [int(hears.first[0].argmax())]
    else:
        alone = final_canvas(ProposeAndJudge(equal, 1)(model, model.process, canvas, rng=rng(0))).z[0, place].tolist()
    return {"adapter": alone == hole.truth, "both": done == hole.truth}


# --- rows ---


def counted(file: Path, items: list[Any], measure: Callable[[Any], dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for each item; those that are in the file already are not measured again."""
    held = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for item in items[len(held) :]:
        held.append(measure(item))
        with file.open("a") as out:
            out.write(json.dumps(held[-1]) + "\n")
    return held[: len(items)]


def shares(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {way: round(sum(row[way] for row in rows) / max(1, len(rows)), 4) for way in WAYS}


def measured(args: argparse.Namespace, adapter: TextModel, kind: str, count: int) -> dict[str, Any]:
    """Shares of exact answers, for the adapter of one checkpoint."""
    assert adapter.run is not None
    model, some = adapter.lm.eval(), KINDS[kind](adapter.run, count)
    causal = counted(args.out / f"{kind}.jsonl", some, lambda hole: with_causal(model, hole))
    pairs = list(zip(some, causal, strict=True))
    seen = tokens_seen(adapter.run, adapter.step or 0)
    adapted = counted(args.out / f"{kind}-{seen}.jsonl", pairs, lambda pair: with_adapter(model, *pair))
    answers = [{**one, **two} for one, two in zip(causal, adapted, strict=True)]
    gained = [row["both"] - row["causal, rescored"] for row in answers]
    return {
        "model": args.model.name,
        "run": adapter.run.digest,
        "step": adapter.step,
        "tokens": seen,
        "kind": kind,
        "holes": len(some),
        "shares": shares(answers),
        "gain": round(sum(gained) / max(1, len(gained)), 4),  # of both over causal, rescored
        "gain_stderr": round(float(torch.tensor(gained).double().std()) / max(1, len(gained)) ** 0.5, 4),
        "tries": TRIES,
        "after": AFTER,
        "command": " ".join(["python recipes/adapt.py", *sys.argv[1:]]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", type=Path, default=Path("models/smollm2"), help="a causal model; see redraft import smollm2"
    )
    parser.add_argument("--data", help="text files or a directory; not needed if the run exists")
    parser.add_argument("--out", type=Path, help="directory for the run and the rows of holes")
    parser.add_argument("--lora", type=int, default=16)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=64, help="tokens per row, in training and around a hole")
    parser.add_argument("--words", type=int, default=1000, help="holes of one word, for the last checkpoint")
    parser.add_argument("--spans", type=int, default=200, help="holes of 2 to 5 tokens, for the last checkpoint")
    parser.add_argument("--curve", type=int, default=0, help="holes of one word, for every other checkpoint")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.data:
        train(args)
    rows = Rows(args.results / "adapt.jsonl")
    earlier = [
        folder for part in ("aligned", "run") for folder in sorted((args.out / part).glob("step-" + "[0-9]" * 8))
    ]
    todo = [(earlier[-1], "words", args.words), (earlier[-1], "spans", args.spans)]
    for folder, kind, count in [*todo, *((folder, "words", args.curve) for folder in earlier[:-1])]:
        if count:
            model = open_model(folder)
            assert model.run is not None
            name = f"{tokens_seen(model.run, model.step or 0)} tokens, {count} {kind}"
            rows.add(name, partial(measured, args, model, kind, count))


if __name__ == "__main__":
    run_recipe(main)
