"""Parts of speech on the data of Diffusion-LM (Li et al. 2022): which method writes a sentence with given ones?

    pip install textblob          # includes Brill's lexicon: 94,000 words of Brown and the Penn Treebank (MIT)
    redraft import smollm2 --out models/smollm2
    python recipes/pos.py --e2e PATH                    # 50 CPU minutes of training, 10 of writing
    python recipes/pos.py --e2e PATH --only "fudge, published"

All models learn the E2E sentences of at most 24 words, without their attributes, as 600 words. The two targets that the
paper prints come first, then those of 40 held-out sentences. Diffusion-LM descends the gradient of a tagger of its
noisy vectors; the size and the number of its steps are tuned on other sentences. `fudge` weights the 16 likeliest words
of the causal model by how probable the tags are after each of them, by a discriminator of prefixes; `look-ahead` does
the same after words of other tags are ruled out. MDLM tries its 16 likeliest words with a tagger of noisy rows. `free`
rows have no control.

Each row has the share of tags that are right, of whole sequences, the perplexity under SmolLM2, which took no part in
any training, and texts. Minutes are CPU minutes of one core. Rows go to recipes/results/pos.jsonl as they are finished,
models to runs/pos; an interrupted recipe continues where it stopped.
Answer: docs/results/claims.md.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import torch
from control import brill, lexicon
from rows import Measure, Rows, Trained, add_places, cpu_timer, measure_all, run_recipe, trained
from torch import Tensor

from redraft.core import Context, WordTokenizer, split_words
from redraft.decoding import (
    Ddim,
    Entropy,
    GradientControl,
    GuidedSampler,
    LookAhead,
    SignDescent,
    TokenClassifier,
    Unmask,
)
from redraft.evaluation import ModelJudge, generative_perplexity
from redraft.evaluation.comparison.measurement import proportion
from redraft.models import FutureTagger, Tagger
from redraft.tasks import ControlRequest, ControlSettings, TextModel, control, open_model
from redraft.training import Corpus, DataStats, DocumentRows, Run, Split, TextFiles, e2e_corpus, presets, tag_words
from redraft.training.runs import variations

PUBLISHED = (
    "PROPN AUX DET ADJ NOUN NOUN VERB ADP DET NOUN ADP DET NOUN PUNCT",
    "PROPN AUX DET NOUN VERB NOUN ADJ NOUN PUNCT PRON NOUN NOUN AUX ADJ",
)
WORDS, LONGEST = 600, 24
MINUTES = {"ar": 4.0, "mdlm": 8.0, "diffusion_lm": 35.0, "tagger": 1.0}
HELD_OUT, TUNING = 40, 4  # targets
STEPS = 200  # of Diffusion-LM
RATES, INNER = (0.05, 0.1, 0.2), (1, 3)  # of each descent: its size, and how often
CANDIDATES = 16
SLACK = math.log(0.01)  # of a word with another tag than the one in the lexicon
AUXILIARIES = ["am", "is", "are", "was", "were", "be", "been", "being", "do", "does", "did"]
Way = Callable[[TextModel, str], dict[str, Any]]  # model, tags → options of `control`


def short_sentences(folder: str, out: Path) -> TextFiles:
    """Write the short sentences of each part of E2E to a file, a line each."""
    out.mkdir(parents=True, exist_ok=True)
    files = {split: out / f"{split}.txt" for split in ("train", "valid", "test")}
    for split, file in files.items():
        texts = (" ".join(text.split()) for text in e2e_corpus(folder).documents(cast(Split, split), DataStats()))
        file.write_text("".join(f"{text}\n" for text in texts if len(split_words(text)) <= LONGEST), "utf-8")
    train, valid, test = ((str(file),) for file in files.values())
    return TextFiles(train, valid, test, split_by="line")


def runs(text: TextFiles) -> dict[str, Run]:
    """Return the three methods on the sentences."""
    words = WordTokenizer.collect(text.documents("train", DataStats()), WORDS)
    framing = DocumentRows(LONGEST + 1, cut=False, fill_with_eos=True)

    def on_text(run: Run) -> Run:
        return variations.with_network(variations.with_text(run, words, text, framing), positions=LONGEST + 2)

    bases = {"ar": on_text(presets.ar_tiny()), "mdlm": on_text(presets.mdlm_tiny())}
    return bases | {"diffusion_lm": variations.with_embedding(bases["mdlm"])}


def tags_of_words(run: Run) -> dict[str, str]:
    """Return the part of speech of each word that the models know, by the names of Universal Dependencies."""
    words = cast(WordTokenizer, run.tokenizer).words
    return lexicon(words, brill()) | {word: "AUX" for word in AUXILIARIES if word in words}


def held_out(run: Run, split: Split, count: int) -> list[str]:
    """Return unseen sentences of 10 to 16 known words; neighbors in the file are about the same restaurant."""
    known = {*cast(WordTokenizer, run.tokenizer).words}
    texts = dict.fromkeys(cast(Corpus, run.data).documents(split, DataStats()))
    fitting = [text for text in texts if 10 <= len(words := split_words(text)) <= 16 and known.issuperset(words)]
    return fitting[:: max(1, len(fitting) // count)][:count]


# --- ways to control ---


def free(model: TextModel, tags: str) -> dict[str, Any]:
    return {"sampler": Ddim(STEPS, eta=1.0), "scale": 0.0} if model.lm.process.vectors else {"scale": 0.0}


def fudge(model: TextModel, tags: str) -> dict[str, Any]:
    """p(all tags | the words so far and the next one): the next word's own tag, and the discriminator's future."""
    wanted, tagger = wanted_tags(model, tags), model.lm.part(FutureTagger)
    kinds = torch.tensor(tagger.tags.of)

    def future(prefix: Tensor, candidates: Tensor) -> Tensor:
        place = prefix.shape[1]
        now = torch.where(kinds[candidates] == wanted[place], 0.0, SLACK)
        return now + tagger.future_log_prob(prefix, candidates, wanted[place + 1 :])

    assert model.run is not None
    return {"sampler": GuidedSampler(model.run.sampler, LookAhead(future, top=CANDIDATES, least=0.0)), "scale": 0.0}


def look_ahead(model: TextModel, tags: str) -> dict[str, Any]:
    """The lexicon first, then the discriminator."""
    return {"scale": 1.0}


def trying(model: TextModel, tags: str) -> dict[str, Any]:
    """Put each of the likeliest words into the row, and let the tagger read it; the surest position comes first."""
    classifier = TokenClassifier(tagging(model, tags), top=CANDIDATES)
    return {"sampler": GuidedSampler(Unmask(len(tags.split()), Entropy()), classifier), "scale": 0.0}


def descending(rate: float, inner: int, model: TextModel, tags: str) -> dict[str, Any]:
    log_prob, descent = tagging(model, tags), SignDescent(rate)

    def energy(z: Tensor, t: Tensor, context: Context) -> Tensor:
        return -log_prob(z, t, context)

    solver = Ddim(STEPS, eta=1.0)
    return {"sampler": GradientControl(energy, solver, inner=inner, coef=1e-4, descent=descent), "scale": 0.0}


def tagging(model: TextModel, tags: str) -> Callable[[Tensor, Tensor, Context], Tensor]:
    return model.lm.part(Tagger).log_prob(model.lm, wanted_tags(model, tags))


def wanted_tags(model: TextModel, tags: str) -> Tensor:
    wanted = ControlRequest(model, ControlSettings(pos=tags)).tag_ids()
    assert wanted is not None
    return wanted


# --- rows ---


def written(model: TextModel, way: Way, targets: Sequence[str], table: Mapping[str, str]) -> dict[str, Any]:
    """Write one text for each target, and count the tags that are right."""
    with cpu_timer() as clock:
        records = [control(model, pos=tags, seed=seed, **way(model, tags)) for seed, tags in enumerate(targets)]
    texts = [record[0].text for record in records]
    right = [hits(text, tags.split(), table) for text, tags in zip(texts, targets, strict=True)]
    success = fmean(right)
    return {
        "targets": len(targets),
        "success": success,
        "success_stderr": math.sqrt(sum((share - success) ** 2 for share in right)) / len(right),
        **proportion(fmean(share == 1 for share in right), len(right)),  # of whole sequences
        "nfe": fmean(record.nfe for record in records),
        "seconds_per_text": clock.seconds / len(targets),
        "texts": texts,
    }


def hits(text: str, tags: Sequence[str], table: Mapping[str, str]) -> float:
    """Return the share of tags that are right; a text of another length has wrong ones."""
    kinds = tag_words(text, table)
    return sum(a == b for a, b in zip(kinds, tags, strict=False)) / max(len(kinds), len(tags))


@dataclass(frozen=True)
class Experiment:
    """The models, trained when a row needs them, and what they are asked for."""

    folder: str
    out: Path
    judge: Path
    factor: float

    @cached_property
    def runs(self) -> dict[str, Run]:
        return runs(short_sentences(self.folder, self.out / "text"))

    @cached_property
    def table(self) -> dict[str, str]:
        return tags_of_words(self.runs["mdlm"])

    @cached_property
    def third(self) -> ModelJudge:
        return ModelJudge(open_model(self.judge).lm)

    def targets(self, split: Split, count: int) -> list[str]:
        return [" ".join(tag_words(text, self.table)) for text in held_out(self.runs["mdlm"], split, count)]

    def made(self, name: str) -> Trained:
        """Return a method with its tagger."""
        run, base = self.runs[name], self.out / name
        first = trained(run, base, self.factor * MINUTES[name])
        tagger = variations.with_tagger(run, str(base), self.table)
        return trained(tagger, self.out / f"{name}-tagger", self.factor * MINUTES["tagger"], (first,))

    def row(self, name: str, way: Way, targets: Sequence[str]) -> dict[str, Any]:
        made = self.made(name)
        row = written(open_model(self.out / f"{name}-tagger"), way, targets, self.table)
        return {**made.cost(), **row, "perplexity": self.perplexity(row["texts"])}

    def perplexity(self, texts: Sequence[str]) -> float:
        return generative_perplexity(texts, self.third).perplexity

    def people(self) -> dict[str, Any]:
        texts = held_out(self.runs["mdlm"], "test", HELD_OUT)
        return {"targets": len(texts), "perplexity": self.perplexity(texts), "texts": texts}


def tuning(experiment: Experiment) -> dict[str, Any]:
    """Descend for sentences that are not measured otherwise, by each size and number of steps."""
    model, targets = experiment.made("diffusion_lm"), experiment.targets("valid", TUNING)
    opened = open_model(experiment.out / "diffusion_lm-tagger")
    rows = {
        (rate, inner): written(opened, partial(descending, rate, inner), targets, experiment.table)
        for rate, inner in product(RATES, INNER)
    }
    tried = [[rate, inner, row["success"]] for (rate, inner), row in rows.items()]
    return {**model.cost(), "targets": len(targets), "tried": tried, "best": max(tried, key=lambda one: one[2])[:2]}


def jobs(experiment: Experiment, rows: Rows) -> Iterator[tuple[str, Measure]]:
    def tuned(model: TextModel, tags: str) -> dict[str, Any]:
        rows.add("tuning", partial(tuning, experiment))
        return descending(*rows.read()["tuning"]["best"], model, tags)

    ways: dict[str, tuple[str, Way]] = {
        "fudge": ("ar", fudge),
        "look-ahead": ("ar", look_ahead),
        "ar free": ("ar", free),
        "mdlm": ("mdlm", trying),
        "mdlm free": ("mdlm", free),
        "diffusion_lm": ("diffusion_lm", tuned),
        "diffusion_lm free": ("diffusion_lm", free),
    }
    yield "people", experiment.people
    for name, (model, way) in ways.items():
        yield f"{name}, published", partial(experiment.row, model, way, PUBLISHED)
        yield (
            f"{name}, held out",
            lambda model=model, way=way: experiment.row(model, way, experiment.targets("test", HELD_OUT)),
        )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--e2e", required=True, help="directory with trainset.csv, devset.csv and testset_w_refs.csv")
    parser.add_argument("--judge", type=Path, default=Path("models/smollm2"), help="a causal model")
    parser.add_argument("--minutes", type=float, default=1.0, help="factor of all CPU minutes of training")
    add_places(parser, "runs/pos")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows = Rows(options.results / "pos.jsonl")
    experiment = Experiment(options.e2e, options.out, options.judge, options.minutes)
    measure_all(rows, jobs(experiment, rows), options.only)


if __name__ == "__main__":
    run_recipe(main)
