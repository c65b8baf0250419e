"""The effect of guidance: fidelity and diversity by γ, for noise on vectors, mask noise and uniform noise.

    python recipes/guided.py                # three trainings of a minute on one core, then five scales each

*Points.* A Gaussian mixture with its exact denoiser, so nothing is learned: the fraction of points in the requested
class, and their width relative to that class.
*Stories.* The same tiny network learns stories with their place as the class; a tenth of the rows has no class.
Fidelity is the fraction of texts with the requested place. Diversity is the entropy of words among texts of one place,
in nats.
Rows go to recipes/results/guided.jsonl as they are finished, models to runs/guided.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rows import Rows, Trained, add_places, cpu_timer, measure_all, run_recipe, trained

from redraft.apps import exact_scene
from redraft.core import Canvas, Gaussian, randomness
from redraft.decoding import Heun, UniformLogSnrGrid, final_canvas
from redraft.evaluation import grammar_score, proportion, unigram_entropy
from redraft.evaluation.laws.gaussian import Mixture
from redraft.tasks import TextModel, generate
from redraft.training import STORY_LANGUAGE, GaussianMixtureCorpus, Run, StoryClasses, presets
from redraft.training.runs import variations

SCALES = (0.0, 0.5, 1.0, 2.0, 4.0)
TOPIC = StoryClasses("where")
POINTS, TOWARD = 2000, 1  # which blob is asked for
STEPS = 32


def runs() -> dict[str, Run]:
    """Networks that see time, to which the class is added."""
    masked = variations.with_network(presets.mdlm_tiny(), time=64)
    kinds = {"mask": masked, "uniform": presets.udlm_tiny(), "vectors": presets.diffusion_lm_tiny()}
    return {name: variations.with_classes(run, TOPIC) for name, run in kinds.items()}


# --- measures ---


def story_row(made: Trained, scale: float, each: int) -> dict[str, Any]:
    """So many texts of every class: those that are of it, those that are right, and how much they differ.

    Every class has noise of its own: without it, texts that ignore their class would be the same for all.
    """
    model, options = TextModel(made.model.eval(), made.run), {"n": each, "guidance": scale, "steps": STEPS}
    with cpu_timer() as clock:
        records = {name: generate(model, label=name, seed=seed, **options) for seed, name in enumerate(TOPIC.classes)}
    texts = {name: record.texts for name, record in records.items()}
    count = each * len(texts)
    kept = sum(TOPIC.check(name, text).share for name, some in texts.items() for text in some) / count
    right = proportion(grammar_score([text for some in texts.values() for text in some], STORY_LANGUAGE).share, count)
    cost = {"texts": count, "seconds_per_text": clock.seconds / count}
    nfe = sum(record.nfe for record in records.values()) / len(records)
    return {**made.cost(), "scale": scale, **fidelity(kept, count), **right, **spread(texts), "nfe": nfe, **cost}


def fidelity(share: float, count: int) -> dict[str, float]:
    estimate = proportion(share, count)
    return {"fidelity": estimate["share"], "fidelity_stderr": estimate["share_stderr"]}


def spread(texts: dict[str, list[str]]) -> dict[str, float]:
    """The entropy of words among texts of one class, the mean over classes and its error."""
    entropies = torch.tensor([unigram_entropy(some)[1] for some in texts.values()], dtype=torch.float64)
    return {"entropy": float(entropies.mean()), "entropy_stderr": float(entropies.std() / len(entropies) ** 0.5)}


def true_row(each: int) -> dict[str, Any]:
    """As many held-out stories of every class: how diverse the truth is."""
    texts: dict[str, list[str]] = {name: [] for name in TOPIC.classes}
    index = 0
    while any(len(some) < each for some in texts.values()):
        pair = TOPIC.pair("test", index)
        texts[pair.source] += [pair.target] * (len(texts[pair.source]) < each)
        index += 1
    return {**spread(texts), "texts": each * len(texts)}


def point_row(scale: float) -> dict[str, Any]:
    """Samples of the exact denoiser with the exact classifier: which are of the class, and how wide they lie."""
    process, blobs = presets.points_tiny().model.process, GaussianMixtureCorpus()
    assert isinstance(process, Gaussian)
    mixture = Mixture.of_blobs(blobs)
    denoise, context = exact_scene(mixture, process, TOWARD).guided(scale)
    canvas = Canvas(torch.zeros(POINTS, 1, 2, dtype=torch.float64), torch.zeros(POINTS, 1, dtype=torch.bool), context)
    with torch.no_grad():
        rng = randomness.rng(0, POINTS)
        drawn = final_canvas(Heun(40, UniformLogSnrGrid())(denoise, process, canvas, rng=rng)).z[:, 0]
    log_p = torch.stack([one_blob(blobs, number, drawn) for number in range(len(blobs.means))], -1)
    hit = float((log_p.argmax(-1) == TOWARD).double().mean())
    wide = float(drawn.std(0).mean()) / blobs.stds[TOWARD]
    made = {"points": POINTS, "sampler": "Heun, 40 steps"}
    return {"scale": scale, **fidelity(hit, POINTS), "width": wide, **made}


def one_blob(blobs: GaussianMixtureCorpus, number: int, x: torch.Tensor) -> torch.Tensor:
    """(n, 2) → (n,) log of weight times density, up to a constant that all blobs share."""
    std = blobs.stds[number]
    far = ((x - x.new_tensor(blobs.means[number])) / std).square().sum(-1) / 2
    return x.new_tensor(blobs.weights[number]).log() - far - 2 * x.new_tensor(std).log()


# --- the command ---


def jobs(out: Path, minutes: float, each: int) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    yield "truth", partial(true_row, each)
    for scale in SCALES:
        yield f"points {scale:g}", partial(point_row, scale)
    for name, run in runs().items():
        for scale in SCALES:
            yield f"{name} {scale:g}", lambda n=name, r=run, s=scale: story_row(trained(r, out / n, minutes), s, each)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0, help="CPU minutes per training")
    parser.add_argument("--texts", type=int, default=4, help="texts per class and scale")
    add_places(parser, "runs/guided")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows = Rows(args.results / "guided.jsonl")
    measure_all(rows, jobs(args.out, args.minutes, args.texts), args.only)


if __name__ == "__main__":
    run_recipe(main)
