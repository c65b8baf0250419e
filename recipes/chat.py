"""A small example of LLaDA's fine-tuning: the question is formatted by the chat template, and the answer is a story.

    python recipes/chat.py --minutes 3

Minutes are CPU minutes of one core. The row goes to recipes/results/chat.jsonl, the model to runs/chat; an interrupted
recipe continues where it stopped.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rows import Rows, Trained, cpu_timer, run_recipe, trained

from redraft.core import HubTokenizer, prompt_ids
from redraft.evaluation import grammar_score
from redraft.tasks import sample_canvases
from redraft.training import (
    STORY_LANGUAGE,
    StoryAttributes,
    blank_canvases,
    first_batches,
    likelihood,
    load_rows,
    presets,
)

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


def main(argv: Sequence[str] | None = None) -> None:
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


if __name__ == "__main__":
    run_recipe(main)
