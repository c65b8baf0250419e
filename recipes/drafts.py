"""Drafters for a causal model: they learn from its own texts; the tables and picture of their speedup.

    redraft train ar_tiny && redraft train mdlm_tiny
    python recipes/drafts.py own runs/ar_tiny --out runs/own.jsonl
    redraft adapt runs/ar_tiny --draft beside --data runs/own.jsonl --out runs/beside --steps 400 --batch 32 --lr 3e-3 --temperature 0.2
    redraft adapt runs/ar_tiny --draft self --data runs/own.jsonl --out runs/itself --steps 400 --batch 32 --lr 3e-3 --temperature 0.2
    python -m bench.speculation runs/ar_tiny --stories --draft runs/beside --name "stories, greedy"

`own` takes any causal model. The model continues prefixes of its training rows, or of --data: three of four greedily, the fourth by
sampling. With --chat FILE it answers questions instead, greedily. Rows of measurements are in bench/results/speculation.jsonl.
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import torch
from rows import Rows, run_recipe
from tables import markdown
from torch import Tensor

from redraft.apps.cli.run_arguments import parse_source
from redraft.core import Canvas, HubTokenizer, question_encoder, rng
from redraft.decoding import Ancestral, Blocks, Unmask, final_canvas
from redraft.models import DiffusionLM
from redraft.tasks import TextModel, open_model
from redraft.training import PackedRows, first_batches, load_rows

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"


# --- texts of its own ---


def rows_of(it: TextModel, data: Sequence[str], length: int, count: int) -> Tensor:
    """(count, L) rows that the model was not trained on: of its own held-out data, or of other text."""
    if data or it.run is None:
        text, framing = parse_source(data), PackedRows(length)
    else:
        text, framing = it.run.data, it.run.framing  # type: ignore[assignment]
    batches = first_batches(load_rows(text, "valid", it.tokenizer, framing), count)
    return torch.cat([batch.tokens for batch in batches])[:count]


def continued(model: DiffusionLM, rows: Tensor, kept: int, greedy: bool, seed: int) -> list[str]:
    """The rows, cut off after `kept` tokens and continued."""
    fixed = torch.arange(rows.shape[1]).expand_as(rows) < kept
    canvas = Canvas(rows.masked_fill(~fixed, model.config.vocab.masked), fixed)
    sampler = Blocks(Unmask(1) if greedy else Ancestral(1), stop=True)
    return model.text(final_canvas(sampler(model, model.process, canvas, rng=rng(seed, len(rows)))))


def continued_rows(it: TextModel, rows: Tensor) -> Iterator[str]:
    for number, some in enumerate(rows.split(64)):
        kept = 1 + number * 7 % max(1, rows.shape[1] * 3 // 5)
        yield from continued(it.lm.eval(), some, kept, number % 4 != 3, number)


def answered(it: TextModel, questions: Sequence[str], length: int) -> Iterator[dict[str, str]]:
    """Each question with the model's own answer, greedy: questions whose prompts are equally long, side by side."""
    if not isinstance(it.tokenizer, HubTokenizer) or it.tokenizer.template is None:
        raise SystemExit("--chat needs a model with a chat template in its tokenizer")
    by_length: dict[int, list[tuple[str, list[int]]]] = {}
    prompt, masked = question_encoder(it.tokenizer), it.lm.config.vocab.masked
    for question in questions:
        ids = prompt(question)
        by_length.setdefault(len(ids), []).append((question, ids))
    for kept, some in sorted(by_length.items()):
        for first in range(0, len(some), 64) if kept < length else ():
            group = some[first : first + 64]
            z = torch.tensor([[*ids, *[masked] * (length - kept)] for _, ids in group])
            canvas = Canvas(z, (torch.arange(length) < kept).expand_as(z))
            done = final_canvas(
                Blocks(Unmask(1), stop=True)(it.lm.eval(), it.lm.process, canvas, rng=rng(0, len(group)))
            )
            answers = it.lm.text(Canvas(done.z[:, kept:], done.fixed[:, kept:]))
            yield from ({"source": q, "target": a} for (q, _), a in zip(group, answers, strict=True))


def own_texts(asked: argparse.Namespace) -> None:
    it = open_model(asked.model)
    if asked.chat is None:
        made = ({"text": text} for text in continued_rows(it, rows_of(it, asked.data, asked.length, asked.texts)))
    else:
        lines = asked.chat.read_text("utf-8").splitlines()[: asked.texts]
        questions = [said.get("source") or said["src"] for said in map(json.loads, lines)]
        made = answered(it, questions, asked.length)
    with asked.out.open("w", encoding="utf-8") as file:
        for done, text in enumerate(made, 1):
            file.write(json.dumps(text, ensure_ascii=False) + "\n")
            file.flush()
            print(f"\r{done} texts in {asked.out}", end="", flush=True)
    print()


# --- tables ---


def drafts_table(row: Mapping[str, Any]) -> str:
    """One line per drafter and length."""
    head = [
        "drafter",
        "tokens per draft",
        "accepted, %",
        "tokens per pass",
        "cost of a draft",
        "tokens/s",
        "speed",
        "same texts",
    ]
    lines = [
        [
            named(name),
            "adaptive" if length == "adaptive" else length,
            f"{100 * said['acceptance']:.0f}",
            f"{said['tokens_per_round']:.2f}",
            "–" if said["draft_cost"] is None else f"{said['draft_cost']:.2f}",
            f"{said['tokens_per_second']:,.0f}",
            f"{said['speedup']:.2f} ×",
            f"{said['same']} of {row['prompts']}",
        ]
        for name, by_length in row["draft"].items()
        for length, said in by_length.items()
        if name in ALL_LENGTHS or length in ("adaptive", max(by_length, key=_tokens))  # the picture has all
    ]
    return markdown(head, lines)


def _tokens(length: str) -> int:
    return 0 if length == "adaptive" else int(length)


def named(drafter: str) -> str:
    """How tables and picture call a drafter: mdlm_tiny@2 is the diffusion model in two steps."""
    name, _, steps = drafter.partition("@")
    return NAMES.get(name, name) + (f", {steps} steps" if steps and steps != "1" else "")


def plain_table(row: Mapping[str, Any]) -> str:
    return markdown(["plain decoding", "tokens per CPU second"], [[n, f"{v:,.1f}"] for n, v in row["plain"].items()])


def cost_table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """c(n)/c(1) of each model and form of weights."""
    sizes = ("2", "3", "5", "9", "16", "32")
    lines = [
        [
            f"{model}, {form}",
            *(f"{rows[name][f'c(n)/c(1) {form}'][n]:.2f}" for n in sizes),
            f"{rows[name][f'c(1) ms {form}']:.1f} ms",
        ]
        for model, name in (
            ("stories", "stories, greedy"),
            ("SmolLM2-135M", "smollm2, questions"),
        )
        for form in ("own", "int8", "packed")
        if name in rows and f"c(n)/c(1) {form}" in rows[name]
    ]
    return markdown(["cost of reading n tokens, relative to one", *sizes, "one token"], lines)


def training_table(row: Mapping[str, Any]) -> str:
    """The loss of a drafter's training, step by step."""
    steps, bits = zip(*row["losses"], strict=True)
    return markdown(["step", *map(str, steps)], [["bits per token", *(f"{each:.2f}" for each in bits)]])


def note_training(asked: argparse.Namespace) -> None:
    """A row of the losses in the metrics.jsonl of a training, in place of an older one."""
    lines = map(json.loads, (asked.run / "metrics.jsonl").read_text("utf-8").splitlines())
    losses = {line["step"]: line["train_loss_bits_per_token"] for line in lines if "train_loss_bits_per_token" in line}
    row = {"name": f"{asked.run.name}, training", "command": f"python recipes/drafts.py training {asked.run}"}
    row |= {"losses": [[step, round(bits, 3)] for step, bits in losses.items() if step % 20 == 0]}
    file = asked.results / "speculation.jsonl"
    others = [line for line in file.read_text("utf-8").splitlines() if json.loads(line).get("name") != row["name"]]
    file.write_text("\n".join([*others, json.dumps(row)]) + "\n", "utf-8")


def _measured(results: Path) -> dict[str, dict[str, Any]]:
    """The rows of bench.speculation; `results` is the folder of the recipes' rows."""
    return Rows(results.parents[1] / "bench" / "results" / "speculation.jsonl").read()


def tables(results: Path) -> dict[str, str]:
    rows = _measured(results)
    found = {"costs": cost_table(rows)}
    found |= {"training smollm2": training_table(rows[TRAINING])} if TRAINING in rows else {}
    found |= {f"plain {name}": plain_table(rows[key]) for name, key in PLAIN.items() if key in rows}
    return found | {f"drafts {name}": drafts_table(rows[key]) for name, key in DRAFTS.items() if key in rows}


NAMES = {
    "beside": "beside",
    "itself": "self",
    "lookup": "lookup",
    "smol_self": "self",
    "answers.jsonl": "its own texts",
    "mdlm_tiny": "masked diffusion",
}
PLAIN = {"stories": "stories, greedy", "smollm2": "smollm2, questions"}
ALL_LENGTHS = ("beside", "itself", "smol_self", "answers.jsonl")  # of others the longest alone
TRAINING = "smol_self, training"
DRAFTS = PLAIN | {"stories drawn": "stories, temperature 1", "smollm2 drawn": "smollm2, questions, temperature 1"}


# --- the picture ---

WIDTH, HEIGHT, TOP, BOTTOM = 760, 400, 56, 300  # pixels
STYLE = (
    "text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#62666d}.name{fill:#23262b}"
    ".end{text-anchor:end}.middle{text-anchor:middle}.card{fill:#fffdf8;stroke:#e4dfd3}.grid{stroke:#e5e1d7}"
    "path{fill:none;stroke-width:1.6}.dashed{stroke-dasharray:5 4}.c0{stroke:#3b5bdb;color:#3b5bdb}"
    ".c1{stroke:#c2570c;color:#c2570c}.c2{stroke:#2b8a3e;color:#2b8a3e}.c3{stroke:#ae3ec9;color:#ae3ec9}"
    "circle{fill:currentColor}@media(prefers-color-scheme:dark){text{fill:#9a9fa8}.name{fill:#e6e4df}"
    ".card{fill:#1e2128;stroke:#31353e}.grid{stroke:#31353e}.c0{stroke:#91a7ff;color:#91a7ff}"
    ".c1{stroke:#ff9f5a;color:#ff9f5a}.c2{stroke:#69db7c;color:#69db7c}.c3{stroke:#e599f7;color:#e599f7}}"
)
Said = Mapping[str, Any]
Series = Mapping[str, Mapping[int, Said]]


@dataclass(frozen=True)
class Panel:
    """Speed and tokens per pass against a whole number, a line of each per drafter."""

    left: int
    right: int
    title: str
    series: Series
    most: float
    first: int = 0  # color of the first line

    def parts(self) -> Iterator[str]:
        yield f'<text class="name" x="{self.left}" y="36">{escape(self.title)}</text>'
        for value in range(int(self.most) + 1):
            y = self._y(value)
            yield f'<line class="grid" x1="{self.left}" x2="{self.right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text class="end" x="{self.left - 8}" y="{y + 4:.1f}">{value}</text>'
        for n in self._numbers:
            yield f'<text class="middle" x="{self._x(n):.1f}" y="{BOTTOM + 20}">{n}</text>'
        for i, (name, by) in enumerate(self.series.items()):
            number = self.first + i
            yield from self._curve(number, by, "speedup", "")
            yield from self._curve(number, by, "tokens_per_round", " dashed")
            y = BOTTOM + 46 + 18 * i
            yield f'<circle class="c{number % 4}" cx="{self.left}" cy="{y - 4}" r="3.5"/>'
            yield f'<text x="{self.left + 10}" y="{y}">{escape(named(name))}</text>'

    @property
    def _numbers(self) -> list[int]:
        return sorted({n for by in self.series.values() for n in by})

    def _x(self, n: int) -> float:
        return self.left + (self.right - self.left) * n / self._numbers[-1]

    def _y(self, value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * value / self.most

    def _curve(self, number: int, by: Mapping[int, Said], key: str, kind: str) -> Iterator[str]:
        places = [(self._x(n), self._y(said[key])) for n, said in sorted(by.items())]
        yield f'<path class="c{number % 4}{kind}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in places)}"/>'
        yield from (f'<circle class="c{number % 4}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places)


def drawn(row: Said) -> str:
    """Against the length of drafts, and for a diffusion model against its steps."""
    fixed = {name: {int(n): said for n, said in by.items() if n != "adaptive"} for name, by in row["draft"].items()}
    lengths = {name: by for name, by in fixed.items() if "@" not in name}
    stepped = [name for name in fixed if "@" in name]
    steps = (
        {stepped[0].partition("@")[0]: {int(n.partition("@")[2]): _longest(fixed[n]) for n in stepped}}
        if stepped
        else {}
    )
    most = max(said["tokens_per_round"] for by in fixed.values() for said in by.values())
    panels = [Panel(48, 430, "speed (line), tokens per pass (dashed), by tokens per draft", lengths, most)]
    panels += [Panel(500, 736, "by steps per draft", steps, most, 3)] if steps else []
    said = "; ".join(
        f"{named(name)}, {n} tokens: {s['tokens_per_round']} per pass, {s['speedup']} times as fast"
        for name, by in fixed.items()
        for n, s in by.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(said)}"><style>{STYLE}</style>'
        f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="10"/>\n'
        + "\n".join(part for panel in panels for part in panel.parts())
        + "\n</svg>\n"
    )


def _longest(by: Mapping[int, Said]) -> Said:
    return by[max(by)]


def pictures(results: Path) -> dict[str, str]:
    return {"speculation": drawn(_measured(results)["stories, greedy"])}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    own = parts.add_parser("own", help="write texts with the model")
    own.add_argument("model", type=Path)
    own.add_argument("--out", type=Path, required=True, help="a file of JSON lines")
    own.add_argument(
        "--data", nargs="*", default=[], help="texts to continue; the default is the data of the model's run"
    )
    own.add_argument("--chat", type=Path, help="answer questions instead: JSON lines with the field source or src")
    own.add_argument("--texts", type=int, default=1536)
    own.add_argument("--length", type=int, default=96, help="tokens per text, if the rows have no fixed length")
    own.set_defaults(do=own_texts)
    training = parts.add_parser("training", help="add the training losses of a drafter as a row")
    training.add_argument("run", type=Path)
    training.add_argument("--results", type=Path, default=RESULTS)
    training.set_defaults(do=note_training)
    asked = parser.parse_args(argv)
    asked.do(asked)


if __name__ == "__main__":
    run_recipe(main)
