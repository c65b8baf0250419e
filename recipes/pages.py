"""Draws a picture of each method at work, for the pages of docs/methods.

    python recipes/pages.py                                 # pictures that need no weights
    python recipes/pages.py --runs runs                     # also pictures of trained models, if runs/NAME exists
    python recipes/pages.py --only d3pm

Pictures of noise on tokens need no weights. Others show a trained model as it writes, or a text whose latents are
noised; the command under a picture draws the same with your own model. recipes/picture.py draws the pictures of mask,
uniform and hybrid noise and of insertion.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from rows import run_recipe

from redraft.apps import frames, noise_text, picture, strip
from redraft.core import CappedRate, Markov, mutual_information_schedule, nearest_words, randomness
from redraft.decoding import Ancestral, AnyOrder, Sampler, SlidingWindow, Unmask, WithRemasking
from redraft.models import DiffusionLM, inference
from redraft.models.codecs.embedding import cooccurrence_vectors
from redraft.training import first_batches, load, load_rows, load_with_run, presets
from redraft.training.runs import variations

STORY = (
    "One spring day, Clara felt bored and walked to the lake. She made a red cushion by the bridge. It was for "
    "Bruno the potter."
)
TIMES = tuple(i / 5 for i in range(6))
Drawing = Callable[[Path], str]  # a directory of runs → an SVG


@dataclass(frozen=True)
class Page:
    """What is drawn for a page, and the run it needs, if any."""

    draw: Drawing
    run: str | None = None


def of_noise(preset: str) -> Page:
    """A text under the noise of a preset whose weights do not matter: tokens, or vectors that are not learned."""
    return Page(lambda _: strip(noise_text(_fresh(preset), STORY, TIMES)))


def _fresh(preset: str) -> DiffusionLM:
    run = presets.PRESETS[preset]()
    torch.manual_seed(run.seed)
    return DiffusionLM(run.model, run.tokenizer)


def of_latents(preset: str) -> Page:
    """What a trained codec makes of a text whose vectors are noised."""

    def draw(runs: Path) -> str:
        model = load(runs / preset)
        return strip(noise_text(model, STORY, TIMES))

    return Page(draw, preset)


def of_writing(run: str, sampler: Sampler | None = None, new: int = 67, seed: int = 0, shown: int = 6) -> Page:
    """A text at some steps of its writing."""
    return Page(partial(_written, run, sampler, new, seed, shown), run)


def _written(run: str, sampler: Sampler | None, new: int, seed: int, shown: int, runs: Path) -> str:
    loaded = load_with_run(runs / run)
    assert loaded.run is not None
    model, loop = loaded.model, sampler or loaded.run.sampler
    with inference(model):
        canvas = model.canvas(new=new)
        canvases = loop(model, model.process, canvas, rng=randomness.rng(seed, torch.tensor([0])))
        return picture(list(frames(canvases, model)), shown)


def near_words(runs: Path) -> str:
    """D3PM: words become words that stand beside the same words, by the corpus itself."""
    run = presets.d3pm_tiny()
    batches = first_batches(load_rows(run.data, "train", run.tokenizer, run.framing), 1000)
    vocab = run.tokenizer.vocab
    jumps = nearest_words(cooccurrence_vectors(batches, vocab.size, 32), vocab, 12)
    count = torch.bincount(torch.cat([batch.tokens[batch.learn] for batch in batches]), minlength=vocab.size)
    run = variations.with_model(
        run, process=Markov(vocab, jumps, mutual_information_schedule(jumps, vocab, count, points=8))
    )
    return strip(noise_text(DiffusionLM(run.model, run.tokenizer), STORY, TIMES))


PAGES: dict[str, Page] = {
    "autoregressive": of_writing("ar_tiny"),
    "block-diffusion": of_writing("bd3_tiny"),
    "cosmos": of_latents("cosmos_codec_tiny"),
    "d3pm": Page(near_words),
    "diffuseq": of_noise("diffuseq_tiny"),
    "diffusion-lm": of_latents("diffusion_lm_tiny"),
    "genie": of_noise("genie_tiny"),
    "ld4tg": of_latents("ld4tg_codec_tiny"),
    "multinomial": of_noise("multinomial_tiny"),
    "planner": of_latents("planner_codec_tiny"),
    "sedd": of_noise("sedd_uniform_tiny"),
    "semi-autoregressive": of_writing(
        "mdlm_tiny", SlidingWindow(Unmask(16, AnyOrder()), window=68, stride=34), new=101
    ),
    "ssd-lm": of_noise("ssd_tiny"),
    "star": of_writing("mdlm_tiny", WithRemasking(Ancestral(64), CappedRate(0.1))),
    "tencdm": of_latents("tencdm_codec_tiny"),
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PAGES, help="draw the picture of this page only")
    parser.add_argument(
        "--runs", type=Path, help="the directory of trained models; without it only pictures of noise are drawn"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "docs" / "pictures")
    options = parser.parse_args(argv)
    for name, page in PAGES.items():
        if options.only not in (None, name):
            continue
        if page.run is not None and (options.runs is None or not (options.runs / page.run).is_dir()):
            print(f"{name}: unchanged; it needs {options.runs or '--runs RUNS'}/{page.run}: redraft train {page.run}")
            continue
        (options.out / f"{name}.svg").write_text(page.draw(options.runs), "utf-8")
        print(f"{name}: drawn")


if __name__ == "__main__":
    run_recipe(main)
