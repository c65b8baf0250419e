"""Can a model put a wrong word right? Diffusion can correct any word; a causal model cannot go back.

    python recipes/repair.py                            # about 12 CPU minutes in all
    python recipes/repair.py --only "gidd 0.05, 1 wrong"

In 200 held-out stories one, two or four words are replaced by others of the same kind (a hero, friend, place, mood or
thing), so that the story is wrong. GIDD and UDLM correct at three noise levels; G-Star masks what its error head finds
wrong; MDLM masks the words that it would not have written, given all others; the causal model writes 16 texts from the
first wrong word on, whose place it is told, and keeps the likeliest. `detect` rows say how often the most suspect words
are the wrong ones. `drift` rows continue from half a story that contains a wrong word; the words after it are right if
they continue a right story, once the wrong word is put right.

All models take the number of steps that fit into the minutes of the first one, so that the load of the machine does not
decide. Each row has the shares of right stories, of exact restorations and of right words spoilt, and the calls per
story. Minutes are CPU minutes of one core. Rows go to recipes/results/repair.jsonl as they are finished, models to
runs/repair; an interrupted recipe continues where it stopped. Answer: docs/results/claims.md.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from rows import Budget, Measure, Rows, Trained, add_places, measure_all, run_recipe, train_under_budget
from torch import Tensor

from redraft import tasks
from redraft.core import Canvas, Context, join_words, rng, split_words
from redraft.core.processes.base import TokenProcess
from redraft.decoding import SelfCorrection, final_canvas
from redraft.evaluation.comparison.measurement import proportion
from redraft.models import DiffusionLM, ErrorHead
from redraft.tasks.engine.trace import count_calls
from redraft.training import StoryCorpus, presets
from redraft.training.data.corpora.stories import STORY_LANGUAGE
from redraft.training.runs import variations

STORIES = 200
COUNTS = (1, 2, 4)  # wrong words per story
LEVELS = (0.01, 0.05, 0.1)  # noise levels of the correction
CANDIDATES = 16
ROUNDS = 8  # of finding and redrawing a word, at most
KINDS = {
    "hero": "Anna Clara Emma Ida Julia Lena Mara Nora Rosa Sara Vera Zoe Adam Ben David Felix Hugo Jonas Leo Max Noah "
    "Oscar Paul Simon",
    "friend": "Agnes Bella Dora Greta Martha Olga Ruth Tilda Albert Bruno Carl Edgar Frank Martin Otto Walter",
    "place": "harbour lake river beach park orchard garden farm market square station theatre forest hill meadow "
    "valley",
    "mood": "lonely sad bored worried tired cheerful",
    "thing": "kite lantern scarf hat basket box blanket bag drum flute doll puppet ball cup boat cushion",
}
ALIKE = {word: words.split() for words in KINDS.values() for word in words.split()}


@dataclass(frozen=True)
class Broken:
    """A story, and the same story with some words replaced."""

    right: list[str]
    wrong: list[str]

    @property
    def places(self) -> list[int]:
        return [i for i, (a, b) in enumerate(zip(self.right, self.wrong, strict=True)) if a != b]


def is_right(words: Sequence[str]) -> bool:
    return STORY_LANGUAGE.log_prob(join_words(words)) > -math.inf


@cache
def broken(count: int) -> tuple[Broken, ...]:
    """Return the test stories with `count` wrong words each, at random places; each alone makes the story wrong."""
    chance, stories = random.Random(count), [split_words(StoryCorpus().document("test", i)) for i in range(2 * STORIES)]
    changed = (break_words(words, count, chance) for words in stories)
    return tuple(story for story in changed if story is not None)[:STORIES]


def break_words(words: list[str], count: int, chance: random.Random) -> Broken | None:
    wrong = list(words)
    places = [i for i, word in enumerate(words) if word in ALIKE]
    for place in chance.sample(places, len(places)):
        other = chance.choice([word for word in ALIKE[words[place]] if word != words[place]])
        if not is_right([*words[:place], other, *words[place + 1 :]]):
            wrong[place] = other
        if sum(a != b for a, b in zip(words, wrong, strict=True)) == count:
            return None if is_right(wrong) else Broken(words, wrong)
    return None


# --- repairs: (rows, L) ids → ids ---


def rows_of(model: DiffusionLM, stories: Sequence[Broken]) -> Tensor:
    tokenizer = model.tokenizer
    assert tokenizer is not None
    end = model.config.vocab.eos
    ids = [tokenizer.encode(join_words(story.wrong)) for story in stories]
    return torch.tensor([row + [end] * (presets.STORY_LENGTH - len(row)) for row in ids])


def corrected(level: float, model: DiffusionLM, z: Tensor) -> Tensor:
    canvas = Canvas(z, torch.zeros_like(z, dtype=torch.bool))
    steps = SelfCorrection(steps=32, noise_level=level)
    return final_canvas(steps.correct(model, model.process, canvas, rng=rng(0, len(z)))).z


def redrawn(doubt: Callable[[DiffusionLM, Tensor], Tensor], model: DiffusionLM, z: Tensor) -> Tensor:
    """Mask the word with the highest doubt, write the likeliest one, and go on until the word is the same as before."""
    active = torch.ones(len(z), dtype=torch.bool)
    for _ in range(ROUNDS):
        at = doubt(model, z[active]).argmax(-1)
        masked = z[active].clone()
        masked[torch.arange(len(at)), at] = model.config.vocab.masked
        where = masked == model.config.vocab.masked
        t = torch.full((len(at), 1), 1 / z.shape[1], dtype=torch.float64)
        new = masked.masked_scatter(
            where, model.predict(masked, t.expand_as(masked) * where, Context()).at(where).argmax(-1)
        )
        changed = (new != z[active]).any(-1)
        z = z.clone()
        z[active] = new
        active[active.clone()] = changed
        if not active.any():
            break
    return z


# --- doubts: (rows, L) scores, the highest for the word that is most likely wrong ---


def own_doubt(model: DiffusionLM, z: Tensor) -> Tensor:
    """−log p of each word given all others, by masking one word at a time; end tokens are not doubted."""
    doubt = torch.full(z.shape, -torch.inf)
    for l in range(z.shape[1]):
        where = torch.zeros_like(z, dtype=torch.bool)
        where[:, l] = z[:, l] != model.config.vocab.eos
        masked = z.masked_fill(where, model.config.vocab.masked)
        t = torch.full(z.shape, 1 / z.shape[1], dtype=torch.float64) * where
        if where.any():
            doubt[where] = model.predict(masked, t, Context()).nll(where, z)[where]
    return doubt


def head_doubt(model: DiffusionLM, z: Tensor) -> Tensor:
    return model.part(ErrorHead).logits(model, z).masked_fill(z == model.config.vocab.eos, -torch.inf)


def reading_doubt(model: DiffusionLM, z: Tensor) -> Tensor:
    """−log p of each present word given the whole row, at the middle noise level."""
    t = torch.full(z.shape, LEVELS[1], dtype=torch.float64)
    everywhere = torch.ones_like(z, dtype=torch.bool)
    assert isinstance(model.process, TokenProcess)
    log_p = model.predict(z, t, Context()).at(everywhere).double()
    log_p = (log_p + model.process.channel(z.flatten(), t.flatten())).log_softmax(-1)
    doubt = -log_p.gather(-1, z.flatten()[:, None]).view(z.shape)
    return doubt.masked_fill(z == model.config.vocab.eos, -torch.inf)


def prefix_doubt(model: DiffusionLM, z: Tensor) -> Tensor:
    """−log p of each word given the words before it."""
    t, where = torch.ones(z.shape, dtype=torch.float64), torch.ones_like(z, dtype=torch.bool)
    masked = torch.full_like(z, model.config.vocab.masked)  # a visible token would predict itself
    doubt = model.predict(masked, t, Context(clean=z)).nll(where, z).float()
    return doubt.masked_fill(z == model.config.vocab.eos, -torch.inf)


# --- rows ---


def judged(stories: Sequence[Broken], texts: Sequence[str]) -> dict[str, Any]:
    after = [split_words(text) for text in texts]
    exact = [words == story.right for story, words in zip(stories, after, strict=True)]
    spoilt = [spoilt_share(story, words) for story, words in zip(stories, after, strict=True)]
    right = [is_right(words) for words in after]
    return {
        **proportion(sum(right) / len(right), len(right)),
        "exact": sum(exact) / len(exact),
        "spoilt": sum(spoilt) / len(spoilt),
        "stories": len(texts),
    }


def spoilt_share(story: Broken, words: Sequence[str]) -> float:
    """Return the share of the words that were right and are no longer there."""
    untouched = [i for i, (a, b) in enumerate(zip(story.right, story.wrong, strict=True)) if a == b]
    return sum(i >= len(words) or words[i] != story.right[i] for i in untouched) / len(untouched)


def repair_row(
    made: Callable[[], Trained], repair: Callable[[DiffusionLM, Tensor], Tensor], count: int
) -> dict[str, Any]:
    model, stories = made().model.eval(), broken(count)
    with torch.no_grad(), count_calls(model) as calls:
        z = torch.cat([repair(model, part) for part in rows_of(model, stories).split(100)])
    assert model.tokenizer is not None
    texts = [model.tokenizer.decode([i for i in row if i != model.config.vocab.eos]) for row in z.tolist()]
    return {**made().cost(), **judged(stories, texts), "calls": calls.rows / len(stories)}


def causal_row(made: Callable[[], Trained], count: int) -> dict[str, Any]:
    """The causal model is told where the first wrong word is, and writes from there on."""
    model, stories = made().model.eval(), broken(count)
    prompts = [join_words(story.wrong[: story.places[0]]) for story in stories]
    with torch.no_grad(), count_calls(model) as calls:
        best = [likeliest(model, prompt, seed) for seed, prompt in enumerate(prompts)]
    return {**made().cost(), **judged(stories, best), "calls": calls.rows / len(stories), "candidates": CANDIDATES}


def likeliest(model: DiffusionLM, prompt: str, seed: int) -> str:
    longest = presets.STORY_LENGTH - len(split_words(prompt))
    sampler = presets.ar_tiny().sampler
    texts = tasks.generate(model, prompt, n=CANDIDATES, sampler=sampler, max_new_tokens=longest, seed=seed).texts
    known = [text for text in texts if "\N{REPLACEMENT CHARACTER}" not in text]  # a mask was written
    return min(tasks.score(model, known), key=lambda score: score.bits).text if known else texts[0]


def detect_row(
    made: Callable[[], Trained], doubt: Callable[[DiffusionLM, Tensor], Tensor], count: int
) -> dict[str, Any]:
    """Return the share of the wrong words among the `count` most suspect words."""
    model, stories = made().model.eval(), broken(count)
    with torch.no_grad():
        top = [doubt(model, z).topk(count, -1).indices.tolist() for z in rows_of(model, stories).split(100)]
    suspect = [places for part in top for places in part]
    hits = sum(len({*story.places} & {*places}) for story, places in zip(stories, suspect, strict=True))
    return {**made().cost(), "found": hits / (count * len(stories)), "stories": len(stories)}


def drift_row(made: Callable[[], Trained], wrong: bool) -> dict[str, Any]:
    """Continue half a story, with or without a wrong word in it, and judge the words after it."""
    trained = made()
    halves = [(story, len(story.right) // 2) for story in broken(1) if story.places[0] < len(story.right) // 2]
    prompts = [join_words((story.wrong if wrong else story.right)[:half]) for story, half in halves]
    new = [presets.STORY_LENGTH - half for _, half in halves]
    sampler, model = trained.run.sampler, trained.model.eval()
    texts = [
        tasks.generate(model, prompt, sampler=sampler, max_new_tokens=count, seed=i).texts[0]
        for i, (prompt, count) in enumerate(zip(prompts, new, strict=True))
    ]
    after = [split_words(text)[half:] for (_, half), text in zip(halves, texts, strict=True)]
    right = [is_right([*story.right[:half], *words]) for (story, half), words in zip(halves, after, strict=True)]
    return {**trained.cost(), **proportion(sum(right) / len(right), len(right)), "stories": len(right)}


def jobs(out: Path, minutes: float) -> Iterator[tuple[str, Measure]]:
    """Yield all rows; trainings are shared."""

    @cache
    def made(name: str) -> Trained:
        run = presets.TINY[f"{name}_tiny"]()
        return train_under_budget(run, out / name, Budget(minutes=minutes), steps_file=out / "budget.json")

    @cache
    def with_head() -> Trained:
        mdlm = made("mdlm")
        run = variations.with_errors(presets.mdlm_tiny(), str(out / "mdlm"))
        return train_under_budget(run, out / "gstar", Budget(steps=-(-mdlm.run.steps // 5)), (mdlm,))

    models = {name: partial(made, name) for name in ("gidd", "udlm", "mdlm", "ar")} | {"gstar": with_head}
    for count in COUNTS:
        for name in ("gidd", "udlm"):
            for level in LEVELS:
                yield (
                    f"{name} {level}, {count} wrong",
                    partial(repair_row, models[name], partial(corrected, level), count),
                )
        yield f"gstar, {count} wrong", partial(repair_row, with_head, partial(redrawn, head_doubt), count)
        yield f"mdlm, {count} wrong", partial(repair_row, models["mdlm"], partial(redrawn, own_doubt), count)
        yield f"ar, {count} wrong", partial(causal_row, models["ar"], count)
    doubts = {"gidd": reading_doubt, "udlm": reading_doubt, "gstar": head_doubt, "mdlm": own_doubt, "ar": prefix_doubt}
    for count in COUNTS:
        for name, doubt in doubts.items():
            yield f"detect {name}, {count} wrong", partial(detect_row, models[name], doubt, count)
    for name in ("ar", "mdlm", "gidd", "udlm"):
        for wrong in (False, True):
            yield f"drift {name}, {'wrong' if wrong else 'right'}", partial(drift_row, models[name], wrong)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.5, help="CPU minutes per training")
    add_places(parser, "runs/repair")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    measure_all(Rows(options.results / "repair.jsonl"), jobs(options.out, options.minutes), options.only)


if __name__ == "__main__":
    run_recipe(main)
