"""Do common claims hold where the truth is known: about autoregressive models, guidance, losses in popular code?

    python recipes/claims.py stories --model runs/mdlm_tiny --model runs/ar_tiny
    python recipes/claims.py lengths                                               # cost of a text by its length
    python recipes/claims.py guidance                                              # three trainings of a CPU minute
    python recipes/claims.py diversity                                             # nine CPU minutes
    python recipes/claims.py audits                                                # minutes

*Errors by position.* Stories are written from scratch; the grammar finds the first wrong word of each. If errors
accumulate, the fraction of stories that are correct so far falls faster and faster.
*Planning.* The last sentence of a story is given: it fixes the hero, the mood at the beginning, the season or the
place, and everything before it must fit. Diffusion fills the hole before it. The autoregressive model writes
`CANDIDATES` beginnings without seeing the end; the one with the likeliest whole story is kept.
*Lengths.* The same network of 4 layers of width 256 with random weights for all: nothing is trained, and this says
nothing about quality. One text at a time, no end token, one thread. Autoregressive and block samplers have an exact
cache; masked diffusion reads the whole text at every step.
*Guidance.* Points: a Gaussian mixture with its exact denoiser, the fraction of points in the requested class and their
width relative to that class. Stories: the same tiny network learns stories with their place as the class; a tenth of
the rows has no class. Fidelity is the fraction of texts with the requested place, diversity the entropy of words among
texts of one place, in nats.
*Audits.* The verdict of `redraft audit` on every file of examples/audit.
Rows go to claims.jsonl, lengths.jsonl, guided.jsonl and audits.jsonl; existing rows are not measured again.
Answer: docs/results/claims.md and docs/results/audit.md.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from claim_parts import diversity
from results_pages.tables import markdown
from rows import RESULTS, Part, Rows, Trained, add_places, cpu_timer, measure_all, run_part, run_recipe, trained

from redraft.apps import exact_scene
from redraft.core import Canvas, Gaussian, join_words, randomness, split_words
from redraft.core.text.tokenizers import UNKNOWN
from redraft.decoding import Ancestral, AnyOrder, Blocks, Heun, Sampler, UniformLogSnrGrid, Unmask, final_canvas
from redraft.evaluation import grammar_score, proportion, unigram_entropy
from redraft.evaluation.laws.gaussian import Mixture
from redraft.models import AttentionPattern, BlockCausal, Causal, DiffusionLM, Full
from redraft.tasks import TextModel, generate, infill, open_model, sample_canvases, score
from redraft.training import (
    STORY_LANGUAGE,
    GaussianMixtureCorpus,
    Run,
    StoryClasses,
    presets,
    split_seed,
)
from redraft.training.data.corpora.grammar import (
    _ParseTraversal,
    _PartialStory,
)
from redraft.training.runs import variations

# --- stories ---

PLACES = (10, 20, 30, 40, 50)  # words
CANDIDATES = 8


def right_words(text: str) -> int:
    """How many words come before the first wrong one."""
    follow = _ParseTraversal(split_words(text))
    STORY_LANGUAGE.tale.expand(_PartialStory(), follow)
    return follow.matched


def errors(model: TextModel, count: int) -> dict[str, Any]:
    """The share of stories without a wrong word so far, at some places, and of those right to the end."""
    with cpu_timer() as clock:
        written = generate(model, n=count, seed=1)
    upto = [
        (right_words(text), len(split_words(text)), math.isfinite(STORY_LANGUAGE.log_prob(text)))
        for text in written.texts
    ]
    row: dict[str, Any] = {f"right_at_{at}": _share([n >= min(at, size) for n, size, _ in upto]) for at in PLACES}
    row["right"] = _share([whole for *_, whole in upto])
    return row | {"texts": count, "nfe": written.nfe, "seconds_per_text": clock.seconds / count}


def planning(model: TextModel, count: int) -> dict[str, Any]:
    """The share of right stories whose last sentence is given."""
    stories = [STORY_LANGUAGE.text(split_seed(0, "test"), index) for index in range(count)]
    torn = [_without_beginning(story) for story in stories]
    with cpu_timer() as clock:
        texts, nfe = _filled(model, torn) if model.lm.block is None else _guessed(model, torn)
    right = _share([math.isfinite(STORY_LANGUAGE.log_prob(text)) for text in texts])
    return {"right": right, "texts": count, "nfe": nfe, "seconds_per_text": clock.seconds / count}


def _without_beginning(story: str) -> tuple[int, str]:
    """How many words are lost, and what is left: the last sentence."""
    words = list(split_words(story))
    begin = max(i for i, word in enumerate(words[:-1]) if word == ".") + 1
    return begin, join_words(words[begin:])


def _filled(model: TextModel, torn: Sequence[tuple[int, str]]) -> tuple[list[str], float]:
    filled = infill(model, [f"[[{size}]] {end}" for size, end in torn], sampler="any-order", steps=64)
    return filled.texts, filled.nfe


def _guessed(model: TextModel, torn: Sequence[tuple[int, str]]) -> tuple[list[str], float]:
    guesses = generate(model, n=CANDIDATES * len(torn), seed=2)
    texts: list[str] = []
    for number, (size, end) in enumerate(torn):
        some = guesses.texts[CANDIDATES * number : CANDIDATES * (number + 1)]
        whole = [f"{join_words(split_words(text)[:size])} {end}" for text in some if UNKNOWN not in text]
        bits = [each.bits for each in score(model, whole)]
        texts.append(whole[bits.index(min(bits))])
    return texts, (guesses.nfe + 1) * CANDIDATES


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values)


CLAIMS = {"errors": errors, "planning": planning}


def measured(model: TextModel, claim: str, count: int) -> dict[str, Any]:
    row = CLAIMS[claim](model, count)
    error = math.sqrt(row["right"] * (1 - row["right"]) / count)
    return {"run": model.name, "step": model.step} | row | {"right_stderr": error}


def stories_main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", type=Path, action="append", default=[], help="a model trained on stories; repeatable"
    )
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory for the rows")
    args = parser.parse_args(argv)
    rows = Rows(args.results / "claims.jsonl")
    for path in args.model:
        model = open_model(path)
        for claim in CLAIMS:
            rows.add(f"{path.name}, {claim}", partial(measured, model, claim, args.texts))


# --- lengths ---

LENGTHS = (64, 128, 256, 512)
BLOCK = 16
TIMES, LONG = 2, 4.0  # repeats; a text that takes more than LONG seconds is not repeated


class Way(NamedTuple):
    """How a text is written: the attention pattern, and the sampler for a number of tokens."""

    name: str
    pattern: AttentionPattern
    sampler: Callable[[int], Sampler]


WAYS = {
    "left": Way("autoregressive, cache", Causal(), lambda size: Blocks(Ancestral(1))),
    "blocks": Way("blocks of 16, cache, one token per step", BlockCausal(BLOCK), lambda size: _blocks(BLOCK)),
    "blocks 4": Way("blocks of 16, cache, 4 steps each", BlockCausal(BLOCK), lambda size: _blocks(4)),
    "mask": Way("masked diffusion, one token per step", Full(), lambda size: Unmask(size, AnyOrder())),
    "mask 64": Way("masked diffusion, 64 steps", Full(), lambda size: Unmask(64, AnyOrder())),
}


def _blocks(steps: int) -> Sampler:
    return Blocks(Unmask(steps, AnyOrder()))


def fresh(pattern: AttentionPattern) -> DiffusionLM:
    run = presets.mdlm_tiny()
    sizes: dict[str, Any] = {"width": 256, "layers": 4, "heads": 8, "positions": None, "rotary": 10_000.0}
    run = variations.with_network(run, **sizes, pattern=pattern)
    torch.manual_seed(0)
    return DiffusionLM(run.model, run.tokenizer).eval()


def lengths_row(way: Way, size: int) -> dict[str, Any]:
    """Measures a text of `size` tokens, after a short one that warms up caches."""
    model, sampler = fresh(way.pattern), way.sampler(size)
    sample_canvases(model, way.sampler(BLOCK), model.canvas(new=BLOCK))
    spent = []
    for _ in range(TIMES):
        with cpu_timer() as clock:
            record = sample_canvases(model, sampler, model.canvas(new=size))
        spent.append(clock.seconds)
        if clock.seconds > LONG:
            break
    made = {"network": "4 × 256, fresh weights", "sampler": str(sampler)}
    return {"length": size, "nfe": record.nfe, "seconds": min(spent), "times": len(spent), **made}


def lengths_main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument(
        "--results", type=Path, default=Path(__file__).parent / "results", help="directory for the rows"
    )
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows = Rows(args.results / "lengths.jsonl")
    for name, way in WAYS.items():
        for size in args.lengths:
            rows.add(f"{name}, {size}", partial(lengths_row, way, size))


# --- guided ---

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
    """Writes `each` texts of every class: how many show their class, how many are right, and how much they differ.

    Every class has its own noise; otherwise texts that ignore their class would be the same for all classes.
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


# --- the command of guidance ---


def jobs(out: Path, minutes: float, each: int) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    yield "truth", partial(true_row, each)
    for scale in SCALES:
        yield f"points {scale:g}", partial(point_row, scale)
    for name, run in runs().items():
        for scale in SCALES:
            yield f"{name} {scale:g}", lambda n=name, r=run, s=scale: story_row(trained(r, out / n, minutes), s, each)


def guidance_main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0, help="CPU minutes per training")
    parser.add_argument("--texts", type=int, default=4, help="texts per class and scale")
    add_places(parser, "runs/guided")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows = Rows(args.results / "guided.jsonl")
    measure_all(rows, jobs(args.out, args.minutes, args.texts), args.only)


# --- audits ---

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "audit"


def audited(example: Path) -> dict[str, Any]:
    """The main verdict of a file, and the information beside it."""
    command = [sys.executable, "-m", "redraft.apps.cli", "audit", str(example.relative_to(ROOT)), "--json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode == 2:
        raise ValueError(f"{example} cannot be audited")
    return summarize([json.loads(line) for line in done.stdout.splitlines()]) | {
        "exit_code": done.returncode,
        "command": f"redraft audit {example.relative_to(ROOT)}",
    }


def summarize(verdicts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    wrong = [verdict for verdict in verdicts if verdict["passed"] is False]
    right = [verdict for verdict in verdicts if verdict["passed"]]
    main = (wrong or right)[-1]
    answer = main["answer"] if wrong or len(right) == 1 else "consistent"
    beside = [v["answer"] for v in verdicts if v["passed"] is None and re.match("unbiased|loose", v["answer"])]
    numbers = {key: main[key] for key in ("value", "error", "p_value")}
    return {
        "answer": "; ".join([answer, *beside]),
        "passed": not wrong,
        "evidence": main["evidence"],
        **numbers,
    }


def audit_tables(results: Path) -> dict[str, str]:
    """The table of verdicts."""
    rows = Rows(results / "audits.jsonl").read()
    cells = (
        [f"`{name}`", f"{'✓' if row['passed'] else '✗'} {row['answer']}", row["evidence"]] for name, row in rows.items()
    )
    return {"verdicts": markdown(["example", "verdict", "evidence"], sorted(cells))}


def audits_main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory for the rows")
    parser.add_argument("--only", nargs="+", help="examples to judge")
    args = parser.parse_args(argv)
    jobs = ((example.stem, partial(audited, example)) for example in sorted(EXAMPLES.glob("*.py")))
    measure_all(Rows(args.results / "audits.jsonl"), jobs, args.only)


# --- the parts ---


PARTS: Mapping[str, Part] = {
    "stories": stories_main,
    "lengths": lengths_main,
    "guidance": guidance_main,
    "audits": audits_main,
    "diversity": diversity.main,
}


def main(argv: Sequence[str] | None = None) -> None:
    run_part(PARTS, argv, __doc__)


if __name__ == "__main__":
    run_recipe(main)
