"""What does training on pairs give: answers in a chat template, and the best of several candidates?

    python recipes/pairs.py chat                            # 3 CPU minutes: LLaDA's fine-tuning in small
    redraft train genie_summary_tiny --steps 300 --save-every 100 --keep-checkpoints 3 --out runs/genie_summary
    python recipes/pairs.py candidates --model runs/genie_summary_early --sources 24    # a copy with only step 100

*Chat.* The question is formatted by the chat template, and the answer is a story.
*Candidates.* Minimum Bayes risk, as in DiffuSeq: a model trained on pairs answers unseen sources of its own task. Of 1,
5 or 10 candidates, the one most similar to all of them is kept.
Rows go to chat.jsonl and candidates.jsonl as they are finished, models to runs/chat; existing rows are not measured
again. Answer: docs/guides/chat.md and docs/results/candidates.md.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from results_pages.tables import markdown
from rows import Part, Rows, Trained, cpu_timer, run_part, run_recipe, trained

from redraft.core import HubTokenizer, bleu, minimum_bayes_risk, prompt_ids
from redraft.evaluation import grammar_score
from redraft.tasks import TextModel, open_model, rewrite, sample_canvases
from redraft.training import (
    STORY_LANGUAGE,
    StoryAttributes,
    StorySummaries,
    blank_canvases,
    first_batches,
    likelihood,
    load_rows,
    presets,
)

# --- chat ---

ASKED = 128  # questions of the test stream


def answered(made: Trained, count: int) -> dict[str, Any]:
    """How many of the attributes the stories have, and what one costs."""
    run, task = made.run, made.run.data
    assert isinstance(task, StoryAttributes)
    assert isinstance(run.tokenizer, HubTokenizer)
    (batch,) = first_batches(load_rows(task, "test", run.tokenizer, run.framing), count, count)
    with cpu_timer() as clock:
        record = sample_canvases(made.model, run.sampler, blank_canvases(made.model, run.framing, count, batch), seed=0)
    pairs = [task.pair("test", index) for index in range(count)]
    texts = [written.new.strip() for written in record]
    checked = [task.check(pair.source, text) for pair, text in zip(pairs, texts, strict=True)]
    share = sum(each.share for each in checked) / count
    spread = sum((each.share - share) ** 2 for each in checked) / count
    return {
        "attributes": share,
        "attributes_stderr": math.sqrt(spread / count),
        "exact": sum(each.exact for each in checked) / count,
        "grammatical": grammar_score(texts, STORY_LANGUAGE).share,
        "ended": sum(written.stop == "end" for written in record) / count,
        "questions": count,
        "nfe": record.nfe,
        "seconds_per_answer": clock.seconds / count,
        "bits_per_token": likelihood(made.model, [batch]).bits_per_token,
        "example": [pairs[0].source, texts[0]],
        "prompt_tokens": len(prompt_ids(run.tokenizer, [{"role": "user", "content": pairs[0].source}])),
    }


def chat_main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3.0, help="CPU minutes of training")
    parser.add_argument("--questions", type=int, default=ASKED)
    parser.add_argument("--out", type=Path, default=Path("runs/chat"))
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args(argv)

    def measure() -> dict[str, Any]:
        made = trained(presets.llada_chat_tiny(), options.out / "llada_chat_tiny", options.minutes)
        return {**made.cost(), **answered(made, options.questions)}

    Rows(options.results / "chat.jsonl").add("llada_chat_tiny", measure)


# --- candidates ---

COUNTS = (1, 5, 10)


def candidate_texts(model: TextModel, sources: int) -> tuple[list[list[str]], float]:
    """All candidates for each source, in the order in which `candidates=…` would draw them; CPU seconds for each."""
    task = task_of(model)
    with cpu_timer() as clock:
        records = [rewrite(model, task.pair("test", i).source, n=max(COUNTS)) for i in range(sources)]
    return [[each.text for each in record] for record in records], clock.seconds / sources / max(COUNTS)


def row(model: TextModel, texts: Sequence[Sequence[str]], seconds: float, count: int) -> dict[str, Any]:
    task = task_of(model)
    pairs = [task.pair("test", i) for i in range(len(texts))]
    kept = [minimum_bayes_risk(list(group[:count])) for group in texts]
    judged = [task.check(pair.source, text) for pair, text in zip(pairs, kept, strict=True)]
    facts, exact = ([getattr(each, name) for each in judged] for name in ("share", "exact"))
    return {
        "run": model.name,
        "step": model.step,
        "sources": len(texts),
        "bleu": bleu(kept, [pair.target for pair in pairs]),
        **_mean("facts", facts),
        **_mean("exact", exact),
        "seconds_per_text": seconds * count,
        "example": kept[0],
    }


def task_of(model: TextModel) -> StoryAttributes | StorySummaries:
    """The task that the model was trained on."""
    if model.run is None or not isinstance(model.run.data, StoryAttributes | StorySummaries):
        raise SystemExit(
            f"{model.display_name} was trained on no task of the stories; use genie_summary_tiny or diffuseq_tiny"
        )
    return model.run.data


def _mean(name: str, values: Sequence[float]) -> dict[str, float]:
    mean = sum(values) / len(values)
    return {name: mean, f"{name}_stderr": math.sqrt(sum((value - mean) ** 2 for value in values)) / len(values)}


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    heads = ("model", "candidates", "BLEU", "facts right", "all right", "CPU s")
    lines = []
    for name, held in rows.items():
        shares = [f"{100 * held[key]:.1f} ± {100 * held[f'{key}_stderr']:.1f} %" for key in ("facts", "exact")]
        model, count = name.split(", ")
        label = f"`{model}`, {held['step']:,} steps"
        lines.append([label, count, f"{100 * held['bleu']:.1f}", *shares, f"{held['seconds_per_text']:.1f}"])
    return markdown(heads, lines)


def tables(results: Path) -> dict[str, str]:
    return {"candidates": table(Rows(results / "candidates.jsonl").read())}


def candidates_main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a model trained on pairs")
    parser.add_argument("--sources", type=int, default=64)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args(argv)
    rows = Rows(args.results / "candidates.jsonl")
    if args.model is not None and any(f"{args.model.name}, {count}" not in rows.read() for count in COUNTS):
        model = open_model(args.model)
        texts, seconds = candidate_texts(model, args.sources)
        for count in COUNTS:
            rows.add(f"{args.model.name}, {count}", partial(row, model, texts, seconds, count))


# --- the parts ---


PARTS: Mapping[str, Part] = {
    "chat": chat_main,
    "candidates": candidates_main,
}


def main(argv: Sequence[str] | None = None) -> None:
    run_part(PARTS, argv, __doc__)


if __name__ == "__main__":
    run_recipe(main)
