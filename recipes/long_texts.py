"""Texts of 2048 words that go on: a masked model in a sliding window against SSD-LM at its own settings.

    python recipes/long_texts.py                        # 32 CPU minutes of training, 25 of writing
    python recipes/long_texts.py --only "mdlm 64"

Rows of 136 words are cut from a stream of stories, so that a text goes on after the end of a story, and the grammar
judges every whole story in it. MDLM writes windows of 136 words, each half of them new, at 16 to 1000 steps a window;
SSD-LM writes blocks of 17 words at 8 to 1000 steps a block, the last being its published number; the causal model
writes word by word. All three have networks of the same size and see at most 136 words.

Each row has the share of right stories, what a word of them costs under the grammar (nats; a text that repeats easy
stories is below the language's own), and CPU seconds per text. Minutes are CPU minutes of one core. Rows go to
recipes/results/long_texts.jsonl as they are finished, models to runs/long_texts.
Answer: docs/results/claims.md.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from rows import Measure, Rows, Trained, add_places, cpu_timer, measure_all, run_recipe, trained

from redraft.core import Tokenizer, rng, split_words
from redraft.decoding import AnyOrder, Blocks, Sampler, SlidingWindow, Unmask, final_canvas
from redraft.evaluation.comparison.measurement import proportion
from redraft.tasks.engine.trace import count_calls
from redraft.training import Run, presets
from redraft.training.data.corpora.stories import STORY_LANGUAGE
from redraft.training.runs import variations

WORDS = 2048
TEXTS = 4
WINDOW, STRIDE = 136, 68
MINUTES = {"ar": 4.0, "mdlm": 8.0, "ssd": 20.0}
STEPS = {"mdlm": (16, 64, 256, 1000), "ssd": (8, 32, 128, 1000), "ar": (1,)}  # per window, block and word


def runs() -> dict[str, Run]:
    """Return the presets on rows of a stream of stories."""
    methods = {"mdlm": presets.mdlm_tiny(), "ssd": presets.ssd_tiny(), "ar": presets.ar_tiny()}
    return {name: variations.with_packed_rows(replace(run, batch=16), WINDOW) for name, run in methods.items()}


def sampler(run: Run, steps: int) -> Sampler:
    """Return the run's sampler with this many steps, in windows as long as its rows."""
    if not isinstance(run.sampler, Blocks):
        return SlidingWindow(Unmask(steps, AnyOrder()), WINDOW, STRIDE)
    return SlidingWindow(replace(run.sampler, stop=False).with_setting("steps", steps), WINDOW, STRIDE)


def whole_stories(ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    """Return the texts between end tokens."""
    ends = [i for i, token in enumerate(ids) if token == tokenizer.vocab.eos]
    return [tokenizer.decode(ids[a + 1 : b]) for a, b in pairwise(ends) if b > a + 1]


def judged(stories: Sequence[str]) -> dict[str, Any]:
    log_probs = {story: STORY_LANGUAGE.log_prob(story) for story in stories}
    right = [story for story in stories if log_probs[story] > -math.inf]
    words = sum(len(split_words(story)) for story in right)
    nats = -sum(log_probs[story] for story in right) / words if words else None
    share = proportion(len(right) / len(stories), len(stories)) if stories else {"share": 0.0, "share_stderr": 0.0}
    return {**share, "stories": len(stories), "different": len(log_probs), "nats_per_word": nats}


def row(made: Trained, steps: int) -> dict[str, Any]:
    """Write texts that begin with an end token, so that the first story is whole."""
    model, how = made.model.eval(), sampler(made.run, steps)
    assert model.tokenizer is not None
    canvas = model.compose([[(model.config.vocab.eos,), WORDS - 1]] * TEXTS)
    with torch.no_grad(), count_calls(model) as calls, cpu_timer() as clock:
        written = model.to_tokens(final_canvas(how(model, model.process, canvas, rng=rng(0, TEXTS))))
    stories = [story for ids in written.z.tolist() for story in whole_stories(ids, model.tokenizer)]
    cost = {"nfe": calls.rows / TEXTS, "seconds_per_text": clock.seconds / TEXTS, "texts": TEXTS}
    return {**made.cost(), **judged(stories), **cost, "sampler": str(how), "text": " / ".join(stories)[:400]}


def jobs(out: Path, minutes: float) -> Iterator[tuple[str, Measure]]:
    """Yield all rows; `minutes` scales the minutes of each training."""

    @cache
    def made(name: str) -> Trained:
        return trained(runs()[name], out / name, minutes * MINUTES[name])

    for name in MINUTES:
        for steps in STEPS[name]:
            yield f"{name} {steps}", lambda name=name, steps=steps: row(made(name), steps)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0, help="factor of all CPU minutes of training")
    add_places(parser, "runs/long_texts")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    measure_all(Rows(options.results / "long_texts.jsonl"), jobs(options.out, options.minutes), options.only)


if __name__ == "__main__":
    run_recipe(main)
