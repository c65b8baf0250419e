"""Systems on real text, half an hour of one core each.

    python recipes/real.py --e2e PATH           # the directory of the E2E challenge: MDLM, DiffuSeq, GENIE, LD4TG
    python recipes/real.py --prose PATH         # files of English: TEncDM with MiniLM (pip install 'redraft[latent]')

Rows go to recipes/results/real.jsonl as they are finished, models to runs/real; an interrupted recipe continues where
it stopped.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from continuous import HELD_OUT, System, figures, latent, staged
from rows import Rows, Trained, measure_all, run_recipe
from torch import Tensor

from redraft.apps.cli.run_arguments import parse_source
from redraft.core import HubTokenizer, WordTokenizer, bleu, minimum_bayes_risk
from redraft.decoding import (
    Ancestral,
    AnyOrder,
    Blocks,
    ClassifierFree,
    Confidence,
    GuidedSampler,
    NucleusProjection,
    Renoise,
    Sampler,
    Unmask,
)
from redraft.evaluation import unigram_entropy, write_and_judge
from redraft.models.codecs.modules import minilm
from redraft.training import (
    DataStats,
    Pair,
    PairCorpus,
    Run,
    SourceCoverage,
    Split,
    TextFiles,
    e2e_corpus,
    excess_bits,
    first_batches,
    likelihood,
    load_rows,
    presets,
    slot_coverage,
    with_final_logsnr,
)
from redraft.training.runs import variations

Row = Mapping[str, Any]
Judged = Callable[[Trained, list[str], Row], dict[str, Any]]  # a model, what it wrote, its other figures
ASKED = 630  # sentences that a model writes at most: as many meanings as E2E's test has
PARAGRAPHS = 64  # the same of prose, which nobody judges
WRITERS: dict[str, Sampler] = {  # chosen on the valid part
    "mdlm": Blocks(Unmask(4, Confidence(0.0)), 4, stop=True),
    "genie": Renoise(32, project=NucleusProjection(0.5)),
    "ld4tg": GuidedSampler(Ancestral(64), ClassifierFree(2.0)),
}
CANDIDATES = {"genie": 8, "ld4tg": 8}  # written to each meaning; the one that is most like the others is taken
WORDS = 1000  # of E2E, with 99.8 % of its text


def restaurants(folder: str) -> dict[str, System]:
    """Attributes → a sentence. An encoder reads them for GENIE and LD4TG; for the others they stand before it."""
    texts = itertools.chain.from_iterable(e2e_corpus(folder).pairs("train", DataStats()))
    words = WordTokenizer.collect(texts, WORDS, ("bos", "eos", "pad", "mask"))
    run = replace(presets.diffuseq_e2e(words, folder), sampler=Renoise(64))  # see the table of samplers
    masks = variations.with_network(variations.with_text(presets.mdlm_tiny(), words, run.data, run.framing), layers=4)
    return {
        "mdlm": System.of(replace(masks, sampler=Unmask(64, AnyOrder(0.5)))),
        "diffuseq": System.of(run),
        "genie": System.of(replace(presets.genie_e2e(words, folder), sampler=run.sampler)),
        "ld4tg": latent(presets.ld4tg_e2e(words, folder), presets.ld4tg_codec_e2e(words, folder)),
    }


def prose(names: Sequence[str]) -> dict[str, System]:
    """TEncDM on the states of MiniLM: paragraphs, cut to a row."""
    for name in names:
        if not Path(name).exists():
            raise ValueError(f"--prose {name} does not exist; give .txt files, or a directory of them")
    text = parse_source(names)
    if not isinstance(text, TextFiles):
        raise ValueError(f"--prose {' '.join(names)} is not plain text; give .txt files, or a directory of them")
    args = HubTokenizer.load(minilm._minilm_folder()), text.paths
    return {"tencdm": latent(presets.tencdm_prose(*args), presets.tencdm_codec_prose(*args))}


@dataclass(frozen=True)
class Once:
    """Pairs with each source once: people wrote several sentences to the same attributes, a model writes one.

    With several candidates, each source is repeated that many times in a row.
    """

    corpus: PairCorpus
    candidates: int = 1

    def pairs(self, split: Split, tally: DataStats) -> Iterator[Pair]:
        first: dict[str, Pair] = {}
        for pair in self.corpus.pairs(split, tally):
            first.setdefault(pair.source, pair)
        return (pair for pair in first.values() for _ in range(self.candidates))


def row(
    system: System,
    sampler: Sampler | None,
    judge: Judged,
    out: Path,
    minutes: float,
    candidates: int = 1,
) -> dict[str, Any]:
    """A third of the time is for the codec, if there is one to train; no sampler: that of the run.

    If the model writes several candidates, the one with the lowest risk is judged, as in the papers of DiffuSeq and
    GENIE.
    """
    codec = 0.0 if system.codec is None else minutes / 3
    made = staged(system, out / "codec", out / "model", (codec, minutes - codec))
    data: Any = made.run.data
    pairs = isinstance(data, PairCorpus)
    run, count = (replace(made.run, data=Once(data, candidates)), ASKED) if pairs else (made.run, PARAGRAPHS)
    measured, record = write_and_judge(made.model, run, sampler or made.run.sampler, count * candidates)
    texts = [minimum_bayes_risk(several) for several in zip(*[iter(record.texts)] * candidates, strict=True)]
    cost = {"seconds_per_sample": candidates * measured["seconds_per_sample"], "sampler": measured["sampler"]}
    known = figures(made)
    return {**known, **judge(made, texts, known), **cost, "candidates": candidates, "samples": texts[:3]}


def slots(made: Trained, texts: list[str], known: Row) -> dict[str, Any]:
    """Which share of the attributes the sentences tell, beside those that people wrote to the same.

    BLEU is that of the challenge, against all sentences that people wrote to these attributes; of people's own, each
    against the others.
    """
    data: Any = made.run.data
    known: defaultdict[str, list[str]] = defaultdict(list)
    for pair in data.pairs("test", DataStats()):
        known[pair.source].append(pair.target)
    sources = list(known)[: len(texts)]
    others = [
        (text, written[:number] + written[number + 1 :])
        for written in (known[source] for source in sources)
        for number, text in enumerate(written)
        if len(written) > 1
    ]
    return {
        "asked": len(sources),
        "slots": mean([slot_coverage(source, text) for source, text in zip(sources, texts, strict=True)]),
        "slots_people": mean([slot_coverage(source, text) for source in sources for text in known[source]]),
        "bleu": bleu(texts, [known[source] for source in sources]),
        "bleu_people": bleu([text for text, _ in others], [rest for _, rest in others]),
    }


def mean(coverages: Sequence[SourceCoverage]) -> float:
    return sum(each.share for each in coverages) / len(coverages)


def entropy(made: Trained, texts: list[str], known: Row) -> dict[str, Any]:
    """Of the words of single texts: a low one tells of repetition. And how the bound compares with a blind guess."""
    return {"unigram_entropy": unigram_entropy(texts)[0], **against_guess(made, known["end"])}


def against_guess(made: Trained, end: float) -> dict[str, float]:
    """What a blind guess has for the unseen rows, and how far above it the bound is (below: negative), row by row."""
    test = first_batches(load_rows(made.run.data, "test", made.run.tokenizer, made.run.framing), HELD_OUT)
    bits = guessed(made.run)
    rows = torch.cat([(bits[batch.tokens] * batch.learn).sum(-1) for batch in test])
    likely = likelihood(with_final_logsnr(made.model, end), test, draws=4)
    above, error = excess_bits(likely, (-math.log(2) * rows).tolist())
    return {
        "guessed_bits_per_token": float(rows.sum() / sum(batch.learn.sum() for batch in test)),
        "above_guess_bits_per_char": above,
        "above_guess_bits_per_char_stderr": error,
    }


def guessed(run: Run) -> Tensor:
    """(V,) bits of each token, guessed by how often it stands in the training text."""
    train = load_rows(run.data, "train", run.tokenizer, run.framing)
    assert train.size is not None
    seen = torch.cat([batch.tokens[batch.learn] for batch in first_batches(train, train.size, 1024)])
    count = torch.bincount(seen, minlength=run.model.vocab.size) + 1.0  # none is impossible
    return -(count / count.sum()).log2()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--e2e", help="the directory with trainset.csv, devset.csv and testset_w_refs.csv")
    parser.add_argument("--prose", nargs="+", default=[], help="files or directories of English")
    parser.add_argument("--only", nargs="+", help="systems to measure; default: all")
    parser.add_argument("--minutes", type=float, default=30.0, help="of one core, for each system")
    parser.add_argument("--out", type=Path, default=Path("runs/real"), help="directory for the models")
    parser.add_argument("--results", type=Path, default=Path("recipes/results"), help="directory for the rows")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows = Rows(args.results / "real.jsonl")
    if not (args.e2e or args.prose):
        parser.error("give --e2e PATH, --prose PATH, or both")
    wanted = [(name, system, slots) for name, system in (restaurants(args.e2e) if args.e2e else {}).items()]
    wanted += [(name, system, entropy) for name, system in (prose(args.prose) if args.prose else {}).items()]
    jobs = (
        (name, partial(row, of, WRITERS.get(name), judge, args.out / name, args.minutes, CANDIDATES.get(name, 1)))
        for name, of, judge in wanted
    )
    measure_all(rows, jobs, args.only)


if __name__ == "__main__":
    run_recipe(main)
