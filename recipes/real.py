"""How do systems do on real text: sentences, prose, and the 27 letters of text8?

    python recipes/real.py systems --e2e PATH       # the E2E challenge: MDLM, DiffuSeq, GENIE, LD4TG
    python recipes/real.py systems --prose PATH         # files of English: TEncDM with MiniLM (needs redraft[latent])
    python recipes/real.py letters --prose PATH --wiki PATH     # books and WikiText-2, in the 27 characters of text8
    python recipes/real.py letters --text8 PATH                 # text8 itself
    python recipes/real.py letters --prose PATH --wiki PATH --sets ptb=FILE tinystories=FILE     # other test sets

*Systems* train for 30 CPU minutes of one core each, *letters* for 20.
*Letters.* The protocol of multinomial diffusion: rows have 256 characters and start anywhere; bits per character of the
test text, exact for the autoregressive model, else in continuous time and for chains of 1000 and 4000 steps. With
`--sets`, the models are measured on other kinds of text (zero-shot perplexity). That text is detokenized, if there are
rules for its name, and reduced to the same characters.
Rows go to real.jsonl, letters.jsonl and letters_sets.jsonl as they are finished, models to runs; an interrupted recipe
continues where it stopped. Answer: docs/results/methods.md.
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
from rows import Part, Rows, Trained, add_places, measure_all, run_part, run_recipe, trained
from spelling_parts.spellers import in_letters, paragraphs, write_letters
from torch import Tensor

from redraft.apps.cli.commands.measure.eval import parse_named_sets
from redraft.apps.cli.run_arguments import parse_source
from redraft.core import CharTokenizer, HubTokenizer, WordTokenizer, bleu, minimum_bayes_risk
from redraft.core.text.tokenizers import TEXT8
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
from redraft.models import Causal
from redraft.models.codecs.modules import minilm
from redraft.training import (
    Bound,
    Corpus,
    DataStats,
    HeldOut,
    PackedRows,
    Pair,
    PairCorpus,
    Run,
    SourceCoverage,
    Split,
    Text8,
    TextFiles,
    detokenize_text,
    detokenizer_for,
    e2e_corpus,
    excess_bits,
    first_batches,
    likelihood,
    load_rows,
    presets,
    slot_coverage,
    target_texts,
    with_final_logsnr,
)
from redraft.training.runs import variations

# --- real ---

Row = Mapping[str, Any]
Judged = Callable[[Trained, list[str], Row], dict[str, Any]]  # a model, what it wrote, its other figures
ASKED = 630  # maximum number of sentences per model: the number of meanings in the test split of E2E
PARAGRAPHS = 64  # the same for prose, which has no judge
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


def systems_main(argv: Sequence[str] | None = None) -> None:
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


# --- letters ---

LENGTH, BATCH = 256, 16
CHAINS = (1000, 4000)
NAMES = ("ar_tiny", "mdlm_tiny", "udlm_tiny", "multinomial_tiny")


def local(prose: Path, wiki: Path, out: Path) -> TextFiles:
    """Books and WikiText-2 to learn from, its valid and test parts to measure on."""
    file = out / "letters.txt"
    write_letters(prose, wiki, file)
    test = file.with_suffix(".test")
    if not test.exists():
        test.write_text(in_letters(paragraphs(wiki / "test.txt")))
    parts = ((str(file),), (str(file.with_suffix(".valid")),), (str(test),))
    return TextFiles(*parts, split_by="file", max_line=10**9)


def runs(data: Corpus) -> dict[str, Run]:
    """One network of four layers, rotary positions; the methods differ in noise, attention and loss alone."""
    sizes: dict[str, Any] = {"layers": 4, "positions": None, "rotary": 10_000.0}
    letters = CharTokenizer(TEXT8)
    made = {name: presets.PRESETS[name]().with_tokenizer(letters) for name in NAMES}
    return {
        name: replace(variations.with_network(run, **sizes), data=data, framing=PackedRows(LENGTH), batch=BATCH)
        for name, run in made.items()
    }


def letters_row(run: Run, out: Path, minutes: float, count: int) -> dict[str, Any]:
    """Each bound in bits per letter, with the error of another choice of rows and noise."""
    made = trained(run, out, minutes)
    test = HeldOut.of(run.data, "test", run.tokenizer, run.framing, count).batches
    bits: dict[str, Any] = {"rows": sum(len(batch.tokens) for batch in test)}
    for name, bound in bounds(run):
        likely = likelihood(made.model, test, draws=4, bound=bound)
        bits |= {name: likely.bits_per_char, f"{name}_stderr": likely.row_error("char")}
    return {**made.cost(), **bits}


def bounds(run: Run) -> Iterator[tuple[str, Bound | None]]:
    """A causal network knows the likelihood; a chain without a limit has no bound in continuous time."""
    if isinstance(run.model.network.pattern, Causal):
        yield "exact", None
        return
    if run.model.process.continuous:
        yield "continuous", None
    for steps in CHAINS:
        yield f"chain_{steps}", Bound(steps=steps)


def others(specs: Sequence[str], out: Path) -> Iterator[tuple[str, TextFiles]]:
    """The sets of "ptb=FILE …" in 27 letters, whole."""
    for name, paths in parse_named_sets(specs).items():
        file, rules = out / f"{name}.set", detokenizer_for(name)
        texts = [text for path in paths for text in paragraphs(Path(path))]
        file.write_text(in_letters(texts if rules is None else [detokenize_text(text, rules) for text in texts]))
        yield name, TextFiles((), (), (str(file),), split_by="file", max_line=10**9)


def sets_row(run: Run, sets: Mapping[str, Corpus], out: Path, minutes: float, count: int) -> dict[str, Any]:
    """Bits per letter and perplexity per word of each set, by the exact likelihood or the first of the bounds."""
    made, (_, bound) = trained(run, out, minutes), next(bounds(run))
    by_set = {}
    for name, data in sets.items():
        test = HeldOut.of(data, "test", run.tokenizer, run.framing, count).batches
        likely = likelihood(made.model, test, draws=4, bound=bound)
        words = sum(len(text.split()) for batch in test for text in target_texts(made.model, batch))
        by_set[name] = {
            "bits_per_char": likely.bits_per_char,
            "bits_per_char_stderr": likely.row_error("char"),
            "word_perplexity": math.exp(float(likely.row_nats.sum()) / words),
            "rows": len(likely.row_nats),
        }
    return {**made.cost(), "sets": by_set}


def jobs(data: Corpus, out: Path, minutes: float, count: int) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    for name, run in runs(data).items():
        yield name, partial(letters_row, run, out / name, minutes, count)


def letters_main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prose", type=Path, help="a directory of books, as for recipes/spelling.py")
    parser.add_argument("--wiki", type=Path, help="a directory with train.txt, valid.txt and test.txt of WikiText-2")
    parser.add_argument("--text8", help="the file text8, in place of --prose and --wiki")
    parser.add_argument("--sets", nargs="+", metavar="NAME=FILE", help="other texts to measure on")
    parser.add_argument("--minutes", type=float, default=20.0, help="CPU minutes per training")
    parser.add_argument("--rows", type=int, default=512, help="test rows of 256 characters")
    add_places(parser, "runs/letters")
    args = parser.parse_args(argv)
    if args.text8 is None and (args.prose is None or args.wiki is None):
        parser.error("give --prose and --wiki, or --text8")
    torch.set_num_threads(1)
    data = Text8(args.text8) if args.text8 else local(args.prose, args.wiki, args.out)
    if args.sets:
        sets = {"own": data, **dict(others(args.sets, args.out))}
        each = {n: partial(sets_row, run, sets, args.out / n, args.minutes, args.rows) for n, run in runs(data).items()}
        measure_all(Rows(args.results / "letters_sets.jsonl"), each.items(), args.only)
    else:
        rows = Rows(args.results / "letters.jsonl")
        measure_all(rows, jobs(data, args.out, args.minutes, args.rows), args.only)


# --- the parts ---


PARTS: Mapping[str, Part] = {
    "systems": systems_main,
    "letters": letters_main,
}


def main(argv: Sequence[str] | None = None) -> None:
    run_part(PARTS, argv, __doc__)


if __name__ == "__main__":
    run_recipe(main)
