"""How does a model need fewer calls: a causal one with a drafter, a diffusion model by certainty distillation?

    redraft train ar_tiny && redraft train mdlm_tiny
    python recipes/drafts.py own runs/ar_tiny --out runs/own.jsonl
    python recipes/drafts.py certainty                      # ten minutes of one core, including the base model
    python recipes/drafts.py certainty --base runs/mdlm_tiny    # with your own base model
    python recipes/drafts.py acceptance                     # by place in a draft: five minutes

*own* takes any causal model, which continues prefixes of its training rows, or of --data: three of four greedily, the
fourth by sampling. With --chat FILE it answers questions instead, greedily. `redraft adapt --draft` trains drafters on
these texts, and `python -m bench.speculation` measures them: docs/results/speculation.md has the commands, and
bench/results/speculation.jsonl the rows.

*certainty* (dParallel): the base model writes texts, one or a few tokens per step, and the order of writing is
recorded. The student starts from the base model and sees the partly written canvases. Its loss is the cross-entropy of
the tokens that came later, plus `weight` times the entropy wherever its most likely token is already right (Chen et al.
2025, "dParallel: learnable parallel decoding"). It is then certain of more tokens at once, but less diverse: both are
measured, at several numbers of tokens per forward pass. No preset uses it. Rows go to recipes/results/certainty.jsonl,
models to runs/certainty; an interrupted recipe continues where it stopped.
Answer: docs/results/speculation.md and docs/results/certainty.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from draft_parts import acceptance
from results_pages.tables import markdown
from rows import Budget, Part, Rows, Trained, cpu_timer, given, run_part, run_recipe, train_under_budget
from torch import Tensor
from trajectories import TOGETHER, Certainty, Trajectories

from redraft.apps import Chart, Curve, Point, Svg, chart_picture
from redraft.apps.cli.run_arguments import parse_source
from redraft.core import Canvas, HubTokenizer, question_encoder, rng
from redraft.decoding import Ancestral, Blocks, EntropyBound, Sampler, Unmask, final_canvas
from redraft.evaluation import grammar_score, unigram_entropy
from redraft.models import DiffusionLM
from redraft.tasks import TextModel, open_model, sample_canvases
from redraft.training import (
    STORY_LANGUAGE,
    OptimizerConfig,
    PackedRows,
    Run,
    TrainingGoal,
    export,
    first_batches,
    load_rows,
    presets,
)

# --- drafts ---

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"


# --- texts of its own ---


def rows_of(model: TextModel, data: Sequence[str], length: int, count: int) -> Tensor:
    """(count, L) rows that the model was not trained on: of its own held-out data, or of other text."""
    if data or model.run is None:
        text, framing = parse_source(data), PackedRows(length)
    else:
        text, framing = model.run.data, model.run.framing  # type: ignore[assignment]
    batches = first_batches(load_rows(text, "valid", model.tokenizer, framing), count)
    return torch.cat([batch.tokens for batch in batches])[:count]


def continued(model: DiffusionLM, rows: Tensor, kept: int, greedy: bool, seed: int) -> list[str]:
    """The rows, cut off after `kept` tokens and continued."""
    fixed = torch.arange(rows.shape[1]).expand_as(rows) < kept
    canvas = Canvas(rows.masked_fill(~fixed, model.config.vocab.masked), fixed)
    sampler = Blocks(Unmask(1) if greedy else Ancestral(1), stop=True)
    return model.text(final_canvas(sampler(model, model.process, canvas, rng=rng(seed, len(rows)))))


def continued_rows(model: TextModel, rows: Tensor) -> Iterator[str]:
    for number, some in enumerate(rows.split(64)):
        kept = 1 + number * 7 % max(1, rows.shape[1] * 3 // 5)
        yield from continued(model.lm.eval(), some, kept, number % 4 != 3, number)


def answered(model: TextModel, questions: Sequence[str], length: int) -> Iterator[dict[str, str]]:
    """Each question with the model's own answer, greedy: questions whose prompts are equally long, side by side."""
    if not isinstance(model.tokenizer, HubTokenizer) or model.tokenizer.template is None:
        raise SystemExit("--chat needs a model with a chat template in its tokenizer")
    by_length: dict[int, list[tuple[str, list[int]]]] = {}
    prompt, masked = question_encoder(model.tokenizer), model.lm.config.vocab.masked
    for question in questions:
        ids = prompt(question)
        by_length.setdefault(len(ids), []).append((question, ids))
    for kept, some in sorted(by_length.items()):
        for first in range(0, len(some), 64) if kept < length else ():
            group = some[first : first + 64]
            z = torch.tensor([[*ids, *[masked] * (length - kept)] for _, ids in group])
            canvas = Canvas(z, (torch.arange(length) < kept).expand_as(z))
            done = final_canvas(
                Blocks(Unmask(1), stop=True)(model.lm.eval(), model.lm.process, canvas, rng=rng(0, len(group)))
            )
            answers = model.lm.text(Canvas(done.z[:, kept:], done.fixed[:, kept:]))
            yield from ({"source": q, "target": a} for (q, _), a in zip(group, answers, strict=True))


def own_texts(args: argparse.Namespace) -> None:
    model = open_model(args.model)
    if args.chat is None:
        made = ({"text": text} for text in continued_rows(model, rows_of(model, args.data, args.length, args.texts)))
    else:
        lines = args.chat.read_text("utf-8").splitlines()[: args.texts]
        questions = [line.get("source") or line["src"] for line in map(json.loads, lines)]
        made = answered(model, questions, args.length)
    with args.out.open("w", encoding="utf-8") as file:
        for done, text in enumerate(made, 1):
            file.write(json.dumps(text, ensure_ascii=False) + "\n")
            file.flush()
            print(f"\r{done} texts in {args.out}", end="", flush=True)
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
            f"{100 * measured['acceptance']:.0f}",
            f"{measured['tokens_per_round']:.2f}",
            "–" if measured["draft_cost"] is None else f"{measured['draft_cost']:.2f}",
            f"{measured['tokens_per_second']:,.0f}",
            f"{measured['speedup']:.2f} ×",
            f"{measured['same']} of {row['prompts']}",
        ]
        for name, by_length in row["draft"].items()
        for length, measured in by_length.items()
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


def note_training(args: argparse.Namespace) -> None:
    """A row of the losses in the metrics.jsonl of a training, in place of an older one."""
    lines = map(json.loads, (args.run / "metrics.jsonl").read_text("utf-8").splitlines())
    losses = {line["step"]: line["train_loss_bits_per_token"] for line in lines if "train_loss_bits_per_token" in line}
    row = {"name": f"{args.run.name}, training", "command": f"python recipes/drafts.py training {args.run}"}
    row |= {"losses": [[step, round(bits, 3)] for step, bits in losses.items() if step % 20 == 0]}
    file = args.results / "speculation.jsonl"
    others = [line for line in file.read_text("utf-8").splitlines() if json.loads(line).get("name") != row["name"]]
    file.write_text("\n".join([*others, json.dumps(row)]) + "\n", "utf-8")


def _measured(results: Path) -> dict[str, dict[str, Any]]:
    """The rows of bench.speculation; `results` is the folder of the recipes' rows."""
    return Rows(results.parents[1] / "bench" / "results" / "speculation.jsonl").read()


def tables(results: Path) -> dict[str, str]:
    rows = _measured(results)
    drawn_tables = {"costs": cost_table(rows)} | acceptance.tables(results)
    drawn_tables |= {"training smollm2": training_table(rows[TRAINING])} if TRAINING in rows else {}
    drawn_tables |= {f"plain {name}": plain_table(rows[key]) for name, key in PLAIN.items() if key in rows}
    return drawn_tables | {f"drafts {name}": drafts_table(rows[key]) for name, key in DRAFTS.items() if key in rows}


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

Figures = Mapping[str, Any]


def drawn(row: Figures) -> Svg:
    """Against the length of drafts, and for a diffusion model against its steps."""
    fixed = {
        name: {int(n): figures for n, figures in by.items() if n != "adaptive"} for name, by in row["draft"].items()
    }
    lengths = {name: by for name, by in fixed.items() if "@" not in name}
    steps: dict[str, dict[int, Figures]] = {}
    for name in fixed.keys() - lengths.keys():
        drafter, _, count = name.partition("@")
        steps.setdefault(drafter, {})[int(count)] = fixed[name][max(fixed[name])]
    y = "line: times as fast as alone; dashed: tokens per pass"
    charts = [Chart("By length of the draft", "tokens per draft", y, _speeds(lengths))]
    if steps:
        charts.append(Chart("By steps of the drafter", "steps per draft", y, _speeds(steps)))
    return chart_picture(charts)


def _speeds(series: Mapping[str, Mapping[int, Figures]]) -> tuple[Curve, ...]:
    """Speed and tokens per pass against a whole number, for each drafter."""
    return tuple(
        Curve(named(name), tuple(Point(n, figures[key]) for n, figures in sorted(by.items())), dashed)
        for name, by in series.items()
        for key, dashed in (("speedup", False), ("tokens_per_round", True))
    )


def pictures(results: Path) -> dict[str, Svg]:
    return {"speculation": drawn(_measured(results)["stories, greedy"])} | acceptance.pictures(results)


def drafts_main(argv: Sequence[str] | None = None) -> None:
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
    args = parser.parse_args(argv)
    args.do(args)


# --- certainty ---

TEXTS, STEPS, WRITTEN = 512, 400, 256
LEVELS: dict[str, Sampler] = {
    f"bound={bound:g}": Unmask(None, EntropyBound(bound, 1.0)) for bound in (0.02, 0.1, 0.3, 1.0, 2.0)
}


def distilled(run: Run, base: Path, goal: TrainingGoal) -> Run:
    """A student that begins as the base. Rows of the run's own data are counted, not read."""
    optimizer = OptimizerConfig(lr=5e-4, warmup=20, floor=0.0, ema=0.98)
    few = replace(run, eval_rows=16, samples=0, log_every=50, keep_checkpoints=1)
    return replace(few, base=str(base), objective=goal, optimizer=optimizer)


def measured(made: Trained, sampler: Sampler, texts: int) -> dict[str, Any]:
    """How good, how diverse, and how fast."""
    canvas = made.model.canvas(new=made.run.framing.length, rows=texts)
    with cpu_timer() as clock:
        record = sample_canvases(made.model, sampler, canvas, seed=2, batch=TOGETHER)
    inner, diverse = unigram_entropy(record.texts)
    return {
        **made.cost(),
        "tokens_per_forward": record.new_tokens / texts / record.nfe,
        "nfe": record.nfe,
        "grammatical": grammar_score(record.texts, STORY_LANGUAGE).share,
        "entropy": inner,
        "diversity": diverse,
        "different": len(set(record.texts)) / texts,
        "texts": texts,
        "seconds_per_text": clock.seconds / texts,
    }


def measure_all(options: argparse.Namespace) -> None:
    """Base and student at every level, row by row."""
    base = options.base or options.out / "base"
    untrained = presets.mdlm_tiny()
    first = given(base) if options.base else train_under_budget(untrained, base, Budget(steps=untrained.steps))
    file = options.out / "trajectories.safetensors"
    if not file.exists():
        sampler, length = Unmask(None, EntropyBound(0.1, 1.0)), first.run.framing.length
        Trajectories.of(first.model, sampler, options.texts, length).save(file)
    rows = Rows(options.results / "certainty.jsonl")
    for weight in options.weights:
        student = distilled(first.run, base, Certainty(str(file), weight))
        made = train_under_budget(student, options.out / f"{weight:g}", Budget(steps=options.steps), [first])
        shared = options.out / f"student-{weight:g}"
        if not shared.exists():
            export(shared, made.model)
        for who, of in {"before": first, f"after, weight {weight:g}": made}.items():
            for level, sampler in LEVELS.items():
                named = {"model": who, "level": level}
                rows.add(f"{who} {level}", lambda n=named, m=of, s=sampler: n | measured(m, s, options.written))


def table(held: Mapping[str, Mapping[str, Any]]) -> str:
    """Models and levels, as measured."""
    head = ("model", "level", "tokens per forward", "calls", "stories right, %", "entropy of all words, nats")
    return markdown(
        (*head, "different texts, %"),
        (
            (
                row["model"],
                row["level"],
                f"{row['tokens_per_forward']:.2f}",
                f"{row['nfe']:.1f}",
                f"{100 * row['grammatical']:.0f}",
                f"{row['diversity']:.2f}",
                f"{100 * row['different']:.0f}",
            )
            for row in held.values()
        ),
    )


def certainty_tables(results: Path) -> dict[str, str]:
    return {"certainty": table(Rows(results / "certainty.jsonl").read())}


def certainty_main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, help="directory of a trained masked model; default: train mdlm_tiny")
    parser.add_argument(
        "--weights", type=float, nargs="+", default=[1.0], help="weights of the entropy; one student for each"
    )
    parser.add_argument("--texts", type=int, default=TEXTS, help="number of trajectories")
    parser.add_argument("--steps", type=int, default=STEPS, help="training steps")
    parser.add_argument("--written", type=int, default=WRITTEN, help="texts per measurement")
    parser.add_argument("--out", type=Path, default=Path("runs/certainty"))
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    measure_all(options)


# --- the parts ---


PARTS: Mapping[str, Part] = {
    "own": lambda more: drafts_main(["own", *more]),
    "training": lambda more: drafts_main(["training", *more]),
    "certainty": certainty_main,
    "acceptance": acceptance.main,
}


def main(argv: Sequence[str] | None = None) -> None:
    run_part(PARTS, argv, __doc__)


if __name__ == "__main__":
    run_recipe(main)
