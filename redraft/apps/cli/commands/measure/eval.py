"""`redraft eval`: likelihood of held-out text, quality of generated texts, and lm-eval tasks."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from redraft.apps.cli.arguments import DATA
from redraft.apps.cli.model_flags import ModelFlags, model_setting
from redraft.apps.cli.output import emit, print_note
from redraft.tasks.arguments.setting import MOST_SEED, REQUIRED, Checked, setting
from redraft.training.progress import Progress

if TYPE_CHECKING:
    from redraft.core.text.tokenizers import Tokenizer
    from redraft.evaluation.harness.report import Report
    from redraft.evaluation.judges import Judge
    from redraft.tasks.engine.model import TextModel
    from redraft.training.data.framing import Framing
    from redraft.training.data.sources import Corpus, InfiniteCorpus
    from redraft.training.heldout import HeldOut, Likelihood
    from redraft.training.runs.run import Run

_Figure = dict[str, float | str | None]
_NamedFigure = tuple[str, float, dict[str, Any]]  # name, value, further entries of the record


@dataclass(frozen=True)
class Eval(Checked):
    """Evaluate a model: likelihood of held-out text, quality and cost of generated texts; or lm-eval tasks."""

    model: Path = model_setting(REQUIRED)
    data: tuple[str, ...] = setting(
        (),
        "Text to evaluate on; all documents of the files are used. Named sets (ptb=a.txt wikitext2=b.txt) are "
        "evaluated separately; ptb, wikitext, lm1b, lambada and scientific_papers are detokenized by the "
        "rules of that benchmark.",
        otherwise="the run's",
        metavar=f"{DATA}|NAME=PATH...",
    )
    split: Literal["train", "valid", "test"] = setting("valid", "Split of the text to evaluate on.")
    rows: int = setting(256, "Maximum number of held-out rows.", least=1, most=1_000_000)
    draws: int | None = setting(
        None,
        "Noise levels per row, with two noise samples each. More give a smaller error; LLaDA's protocol for tasks "
        "uses 64.",
        least=1,
        most=4096,
        otherwise="4, with --tasks 16",
    )
    length: int = setting(
        512, "Row length for imported models; the text is cut into full rows.", least=2, most=1_000_000
    )
    samples: int = setting(
        64,
        "Number of texts to generate; 0 for none. Needs a model with a run, trained by Redraft.",
        least=0,
        most=100_000,
    )
    judge: str | None = setting(
        None,
        "A causal model to score the generated texts; reports generative perplexity and the entropy of the texts.",
        metavar="DIR|hf:NAME",
    )
    tasks: tuple[str, ...] = setting(
        (), "Names of lm-eval tasks, or your own YAML files; needs redraft[tasks].", metavar="NAME|FILE.yaml..."
    )
    include: Path | None = setting(
        None,
        "Directory of YAML files whose tasks can also be named; Python code that they refer to is run.",
        metavar="DIR",
    )
    limit: int | None = setting(None, "Maximum number of questions per task.", least=1, most=10**9, otherwise="all")
    shots: int | None = setting(
        None,
        "Number of solved examples before each question.",
        least=0,
        most=1000,
        otherwise="the task's",
    )
    chat: bool = setting(False, "Ask the questions as messages, with the model's chat template.")
    steps: int | None = setting(
        None,
        "T of the T-step bound (multinomial diffusion reports 1000 and 4000); with --tasks, sampling steps per answer.",
        least=1,
        most=100_000,
        otherwise="continuous time; with --tasks one per token",
    )
    seed: int = setting(0, "Seed of the noise and the texts.", least=0, most=MOST_SEED)
    json: bool = setting(False, "Print a JSON object per figure.", group="Output")
    model_flags: ModelFlags = ModelFlags()

    def _require_agreement(self) -> None:
        self._require_tasks()
        if self.judge is not None and not self.samples:
            raise ValueError("--judge scores generated texts, but --samples is 0; generate some: --samples 64")

    def _require_tasks(self) -> None:
        """Raise if a flag for tasks is given without --tasks, or --data together with it."""
        task_flags = {"include": self.include, "limit": self.limit, "shots": self.shots, "chat": self.chat or None}
        given = [name for name, value in task_flags.items() if value is not None]
        if given and not self.tasks:
            raise ValueError(f"--{given[0]} is for tasks; name some: --tasks hellaswag")
        if self.tasks and self.data:
            raise ValueError("--tasks have their own text; leave --data out, or evaluate on it in a separate call")
        if any(not task.strip() for task in self.tasks):
            raise ValueError("--tasks has an empty name; give names of tasks, or YAML files")

    def __call__(self) -> None:
        if self.tasks:
            self._run_tasks()
            return
        from redraft.apps.cli.models import open_judge, open_model
        from redraft.apps.cli.run_arguments import parse_source, warn_of_unknown
        from redraft.evaluation.text_metrics import figure_record

        sets = parse_named_sets(self.data)
        model = open_model(self.model, self.model_flags)
        run = model.run
        if self.judge is not None and run is None:
            raise ValueError(f"{self.model} has no run, so its sampler is unknown; leave --judge out")
        judge = None if self.judge is None else open_judge(self.judge, self.model_flags)
        tokenizer, framing = self._tokenizer_and_framing(model)
        data: Any = parse_source(self.data, undivided=True) if self.data and not sets else getattr(run, "data", None)
        print_note(
            f"{self.model}: run {model.name}, step {model.step}" if run else f"{self.model}: a model without a run"
        )
        if self.data and not sets:
            warn_of_unknown(tokenizer, data)
        likelihoods = (
            chain.from_iterable(self._named_set(model, tokenizer, framing, *item) for item in sets.items())
            if sets
            else self._likelihood(model, tokenizer, framing, data)
        )
        generation = () if run is None else self._generation(model, run, data, judge)
        for name, value, more in chain(likelihoods, generation):
            figure = figure_record(name, value, run=model.name, seed=self.seed, **more)
            emit(figure, self.json, _figure_line(figure))

    def _named_set(
        self, model: TextModel, tokenizer: Tokenizer, framing: Framing, name: str, paths: tuple[str, ...]
    ) -> Iterator[_NamedFigure]:
        """Yield the likelihood of one of several sets; prints first how its text is prepared."""
        from redraft.apps.cli.run_arguments import parse_source, warn_of_unknown
        from redraft.training.data.detokenize import DetokenizedCorpus, detokenizer_for
        from redraft.training.data.sources import InfiniteCorpus

        text, rules = parse_source(paths, undivided=True), detokenizer_for(name)
        if rules is not None and not isinstance(text, InfiniteCorpus):
            text = DetokenizedCorpus(text, rules)
        warn_of_unknown(tokenizer, text)
        preparation = "unchanged" if rules is None else f"detokenized by the rules of {rules}"
        tokens = f"{type(tokenizer).__name__} with {tokenizer.vocab.size:,} ids"
        if not self.json:
            emit({}, False, f"{name}: {' '.join(paths)}, {preparation}; per token of the model's own {tokens}")
        for figure, value, more in self._likelihood(model, tokenizer, framing, text, words=True):
            yield figure, value, {"set": name, "detokenized": rules, "tokens_of": tokens, **more}

    def _run_tasks(self) -> None:
        _run_tasks(
            self.model,
            self.model_flags,
            self.tasks,
            include=self.include,
            limit=self.limit,
            shots=self.shots,
            chat=self.chat,
            json=self.json,
            draws=self.draws or 16,
            seed=self.seed,
            steps=self.steps,
            length=self.length,
        )

    def _tokenizer_and_framing(self, model: TextModel) -> tuple[Tokenizer, Framing]:
        """Return how text becomes rows: as in training, or in full rows of --length for a model without a run."""
        from redraft.training.data.framing import PackedRows

        if model.run is not None:
            return model.run.tokenizer, model.run.framing
        lm = model.lm
        if lm.tokenizer is None or not self.data:
            reason = "no tokenizer; put tokenizer.json there" if lm.tokenizer is None else "no run; give --data PATH"
            raise ValueError(f"{self.model} cannot be evaluated on text, because it has {reason}")
        return lm.tokenizer, PackedRows(min(self.length, lm.config.network.positions or self.length))

    def _likelihood(
        self,
        model: TextModel,
        tokenizer: Tokenizer,
        framing: Framing,
        data: Corpus | InfiniteCorpus,
        *,
        words: bool = False,
    ) -> Iterator[_NamedFigure]:
        """Yield likelihood figures: bounds, or exact values for causal models; `words` adds the word perplexity.

        If the true probabilities are known, also yields the excess over the true entropy.
        """
        from redraft.training.data.annotations import as_annotated
        from redraft.training.heldout import NATS_PER_BIT, HeldOut, excess_bits, likelihood, target_texts
        from redraft.training.objectives.losses import Bound

        bound = None if self.steps is None else Bound(steps=self.steps)
        with Progress("rows measured", self.rows) as progress:
            held_out = HeldOut.of(data, self.split, tokenizer, framing, self.rows)
            progress.total = sum(len(batch.tokens) for batch in held_out.batches)
            batches = progress.count_items(held_out.batches, lambda batch: len(batch.tokens))
            result = likelihood(model.lm, batches, draws=self.draws or 4, seed=self.seed, bound=bound)
        count = len(result.row_nats)
        details = {"split": self.split, "rows": count} | ({} if self.steps is None else {"steps": self.steps})
        if (whole := as_annotated(data).text_unit) is not None:
            yield from _whole_texts(whole, result, held_out, details)
            return
        units: tuple[Literal["token", "char"], ...] = ("token", "char")
        for name, unit in ((f"bits_per_{unit}", unit) for unit in units):
            errors = {"rows_stderr": result.row_error(unit)} if count > 1 else {}
            yield name, getattr(result, name), {"stderr": getattr(result, f"{name}_stderr"), **errors, **details}
        yield "perplexity", result.perplexity, details
        if words:
            count = sum(len(text.split()) for batch in held_out.batches for text in target_texts(model.lm, batch))
            yield "word_perplexity", math.exp(min(700.0, float(result.row_nats.sum()) / max(1, count))), details
        if held_out.truth is not None:
            value, error = excess_bits(result, held_out.truth.log_probs)
            yield "excess_bits_per_char", value, {"stderr": error, **details}
            yield "entropy_bits_per_char", held_out.truth.entropy_per_char / NATS_PER_BIT, {}

    def _generation(
        self, model: TextModel, run: Run, data: Corpus | InfiniteCorpus, judge: Judge | None
    ) -> Iterator[_NamedFigure]:
        """Yield figures of texts written by the run's sampler, from noise or in answer to held-out sources."""
        from redraft.apps.cli.models import ProgressSampler
        from redraft.evaluation.text_metrics import fraction_possible
        from redraft.tasks.canvases import sample_canvases
        from redraft.training.data.annotations import mean_coverage
        from redraft.training.data.loader import first_batches, load_rows
        from redraft.training.data.pairs import first_sources
        from redraft.training.samples import blank_canvases

        if not self.samples:
            return
        (first,) = first_batches(load_rows(data, self.split, run.tokenizer, run.framing), self.samples, self.samples)
        canvas = blank_canvases(model.lm, run.framing, self.samples, first)
        with Progress(f"writing {self.samples:,} texts") as progress:
            results = sample_canvases(model.lm, ProgressSampler(run.sampler, progress), canvas, seed=self.seed)
        details = {"rows": len(results.texts), "sampler": str(run.sampler)}
        if (distribution := run.distribution) is not None and not run.framing.conditional:
            yield "grammatical", fraction_possible(results.texts, distribution), details
        if sources := first_sources(data, self.split, len(results.texts)):
            answers = [result.new.strip() for result in results] if run.framing.in_chat else results.texts
            if (coverage := mean_coverage(data, sources, answers)) is not None:
                yield "facts", coverage.share, details
                yield "exact", coverage.exact, details
        yield "nfe", results.nfe, details
        yield "tokens_per_second", results.tokens_per_second, details
        yield "seconds_per_text", results.seconds / len(results), details
        if judge is not None:
            yield from self._judge_texts(judge, results.texts)

    def _judge_texts(self, judge: Judge, texts: Sequence[str]) -> Iterator[_NamedFigure]:
        """Yield generative perplexity, and the entropy, which shows whether a low perplexity is due to repetition."""
        from redraft.evaluation.judges import generative_perplexity

        result = generative_perplexity(texts, judge)
        details = {"judge": self.judge, "rows": len(texts)}
        yield "generative_perplexity", result.perplexity, {**details, "judge_tokens": result.tokens}
        yield "entropy_within_texts", result.unigram_entropy, {**details, "unit": "nats"}


def _whole_texts(unit: str, result: Likelihood, held_out: HeldOut, details: dict[str, Any]) -> Iterator[_NamedFigure]:
    """Yield figures per whole text, such as a point, whose tokens and characters mean nothing by themselves."""
    from redraft.training.heldout import NATS_PER_BIT, excess_bits

    bits = result.row_nats / NATS_PER_BIT
    error = float(bits.std()) / math.sqrt(len(bits)) if len(bits) > 1 else None
    yield f"bits_per_{unit}", float(bits.mean()), {"stderr": error, **details}
    if held_out.truth is not None:
        value, error = excess_bits(result, held_out.truth.log_probs)
        chars = float(result.row_chars.double().mean())
        yield f"excess_bits_per_{unit}", chars * value, {"stderr": chars * error, **details}


def parse_named_sets(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Parse "ptb=a.txt,wikitext2=b.txt", or several such words, into the files of each set; empty without names."""
    parts = [part for word in words for part in word.split(",")]
    if not any("=" in part and not Path(part).exists() for part in parts):
        return {}
    sets: dict[str, tuple[str, ...]] = {}
    for name, equals, path in (part.partition("=") for part in parts):
        if not (name and equals and path):
            raise ValueError(
                f"--data {name}{equals}{path}: each of several sets needs a name, as in ptb=path/to/test.txt"
            )
        sets[name] = (*sets.get(name, ()), path)
    return sets


def _figure_line(figure: _Figure) -> str:
    error = f" ± {figure['stderr']:.2g}" if figure.get("stderr") else ""
    value = "–" if figure["value"] is None else f"{figure['value']:.4g}"
    return f"{str(figure['name']).replace('_', ' '):<24}{value:>10}{error}"


_SILENT = {"TQDM_DISABLE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True)
class _TaskProgress:
    """Reports the progress of tasks on one `Progress`."""

    progress: Progress

    def begin(self, what: str, total: int) -> None:
        self.progress.begin(what, total or None)

    def advance(self, count: int) -> None:
        self.progress.advance(count)


def _run_tasks(
    path: Path,
    model_flags: ModelFlags,
    tasks: Sequence[str],
    *,
    include: Path | None,
    limit: int | None,
    shots: int | None,
    chat: bool,
    json: bool,
    length: int,
    **settings: Any,
) -> None:
    """Run lm-eval tasks and print a figure for each metric; `settings` are passed to `as_lm`."""
    for variable, silent in _SILENT.items():  # read when lm-eval's packages are imported, some of them with torch
        os.environ.setdefault(variable, silent)
    from redraft.apps.cli.models import open_model
    from redraft.evaluation.harness.tasks import as_lm, evaluate_tasks, require_package
    from redraft.evaluation.text_metrics import figure_record

    require_package()
    model = open_model(path, model_flags)
    print_note(f"{path}: {'no run' if model.run is None else f'run {model.name}, step {model.step}'}")
    with Progress("importing lm-eval") as progress:
        callback = _TaskProgress(progress)
        lm = as_lm(model, progress=callback, length=_row_length(model, length), **settings)
        figures = evaluate_tasks(lm, tasks, include=include, limit=limit, shots=shots, chat=chat, progress=callback)
    _print_warnings(lm.report)
    for name, value, more in figures:
        figure = figure_record(name, value, run=model.name, seed=lm.seed, **more)
        emit(figure, json, _task_line(figure))


def _row_length(model: TextModel, length: int) -> int | None:
    """Return None for a model with a run, which keeps its row length, else --length, limited by the network."""
    return None if model.run is not None else min(length, model.lm.config.network.positions or length)


def _print_warnings(report: Report) -> None:
    if report.unknown > 0.05 * report.tokens:
        fraction = report.unknown / report.tokens
        print_note(
            f"{fraction:.0%} of the words of these tasks are unknown to the tokenizer, which cannot tell them apart"
        )
    if report.ignored:
        print_note(f"ignored settings of tasks, which have no meaning here: {', '.join(sorted(report.ignored))}")


def _task_line(figure: dict[str, float | str | None]) -> str:
    """Format a metric with its standard error over questions and, for bounds, the Monte-Carlo error."""
    value = "–" if figure["value"] is None else f"{figure['value']:.4g}"
    error = f" ± {figure['stderr']:.2g}" if figure.get("stderr") else ""
    line = f"{figure['name']!s:<40}{value:>10}{error}   {figure['rows']:,} questions"
    if figure.get("likelihood") == "exact":
        return f"{line}, exact likelihoods"
    if figure.get("likelihood") == "bound":
        line += f", bounds with {figure['calls']} calls ± {figure['nats_stderr']:.2g} nats"
        if figure["undecided"]:
            line += f", {figure['undecided']:.0%} undecided (more --draws)"
    return line
