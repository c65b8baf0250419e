"""`redraft eval`: how likely a model finds held-out text, and how well it writes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg

from redraft.apps.cli.arguments import DATA, Flag
from redraft.apps.cli.checks import require_in_range, require_seed_flag
from redraft.apps.cli.model_flags import ModelFlags
from redraft.apps.cli.output import emit, print_note
from redraft.apps.cli.progress import Progress
from redraft.tasks.arguments.settings import optional_argument

if TYPE_CHECKING:
    from redraft.core.text.tokenizers import Tokenizer
    from redraft.evaluation.harness.report import Report
    from redraft.evaluation.judges import Judge
    from redraft.tasks.engine.model import TextModel
    from redraft.training.data.framing import Framing
    from redraft.training.data.sources import Corpus, InfiniteCorpus
    from redraft.training.runs.run import Run

_Figure = dict[str, float | str | None]
NamedFigure = tuple[str, float, dict[str, Any]]  # name, value, what else is worth knowing


@dataclass(frozen=True)
class Eval:
    """Measure a model: likelihood of held-out text, quality and cost of its own texts; or tasks of lm-eval."""

    model: Annotated[Positional[Path], arg(metavar="DIR")]
    """Directory of a run, a checkpoint or an exported model."""
    data: Annotated[tuple[str, ...], optional_argument(f"{DATA}|NAME=PATH...", "the run's")] = ()
    """The text to measure on; files are used whole. Several sets have names, say ptb=a.txt wikitext2=b.txt: each is
    measured by itself, put back into the form people write by the rules for its name (ptb, wikitext, lm1b, lambada,
    scientific_papers)."""
    split: Literal["train", "valid", "test"] = "valid"
    """Which split of the text."""
    rows: int = 256
    """Maximum number of held-out rows."""
    draws: Annotated[int | None, optional_argument("INT", "4, with --tasks 16")] = None
    """Noise levels per row, each drawn twice. More give a smaller error; 64 is LLaDA's protocol for tasks."""
    length: int = 512
    """Tokens per row, for a model that no run of ours made; text is cut into full rows."""
    samples: int = 64
    """Number of texts to write; 0 for none. Only the runs of ours say how to."""
    judge: Annotated[str | None, optional_argument("DIR|hf:NAME")] = None
    """A causal model that judges what this one writes: generative perplexity, with the entropy of the texts."""
    tasks: Annotated[tuple[str, ...], optional_argument("NAME|FILE.yaml...")] = ()
    """Tasks of lm-eval by name, or YAML files of your own; needs redraft[tasks]."""
    include: Annotated[Path | None, optional_argument("DIR")] = None
    """Directory of YAML files whose tasks can be named as well; Python code that they name is run."""
    limit: Annotated[int | None, optional_argument("INT", "all")] = None
    """Maximum number of questions of each task."""
    shots: Annotated[int | None, optional_argument("INT", "the task's")] = None
    """Number of solved examples before each question."""
    chat: Flag = False
    """Ask questions as messages, by the model's chat template."""
    steps: Annotated[int | None, optional_argument("INT", "continuous time; a task: one per token")] = None
    """T of the T-step bound (multinomial diffusion publishes 1000 and 4000); with --tasks, steps to write an answer."""
    seed: int = 0
    """Seed of the noise and the texts."""
    json: Flag = False
    """One JSON object per figure."""
    opening: OmitArgPrefixes[ModelFlags] = ModelFlags()

    def __post_init__(self) -> None:
        require_in_range("--rows", self.rows, 1, 1_000_000)
        require_in_range("--draws", self.draws, 1, 4096)
        require_in_range("--length", self.length, 2, 1_000_000)
        require_in_range("--limit", self.limit, 1, 10**9)
        require_in_range("--shots", self.shots, 0, 1000)
        require_in_range("--steps", self.steps, 1, 100_000)
        self._require_tasks()
        if self.judge is not None and not self.samples:
            raise ValueError("--judge judges what is written; ask for some texts: --samples 64")
        require_in_range("--samples", self.samples, 0, 100_000)
        require_seed_flag(self.seed)

    def _require_tasks(self) -> None:
        """Flags of tasks need tasks, and tasks bring their own text."""
        given = {"include": self.include, "limit": self.limit, "shots": self.shots}
        alone = [name for name, value in {**given, "chat": self.chat or None}.items() if value is not None]
        if alone and not self.tasks:
            raise ValueError(f"--{alone[0]} is for tasks; name some: --tasks hellaswag")
        if self.tasks and self.data:
            raise ValueError("--tasks bring their own text; leave --data out, or measure it by itself")
        if any(not task.strip() for task in self.tasks):
            raise ValueError("--tasks has an empty name; give names of tasks, or YAML files")

    def __call__(self) -> None:
        if self.tasks:
            self._tasks()
            return
        from redraft.apps.cli.models import open_judge, open_model
        from redraft.apps.cli.run_arguments import parse_source, training_texts, warn_of_unknown
        from redraft.evaluation.text_metrics import figure_record

        sets = parse_named_sets(self.data)
        it = open_model(self.model, self.opening)
        if self.judge is not None and it.run is None:
            raise ValueError(f"{self.model} is a model without its run, which says how it writes; leave --judge out")
        judge = None if self.judge is None else open_judge(self.judge, self.opening)
        tokenizer, framing = self._rows_of(it)
        data: Any = parse_source(self.data, undivided=True) if self.data and not sets else getattr(it.run, "data", None)
        print_note(f"{self.model}: run {it.name}, step {it.step}" if it.run else f"{self.model}: a model without a run")
        if self.data and not sets:
            warn_of_unknown(tokenizer, training_texts(data))
        found = (
            chain.from_iterable(self._set(it, tokenizer, framing, *each) for each in sets.items())
            if sets
            else self._likelihood(it, tokenizer, framing, data)
        )
        written = () if it.run is None else self._generation(it, it.run, data, judge)
        for name, value, more in chain(found, written):
            figure = figure_record(name, value, run=it.name, seed=self.seed, **more)
            emit(figure, self.json, _line(figure))

    def _set(
        self, it: TextModel, tokenizer: Tokenizer, framing: Framing, name: str, paths: tuple[str, ...]
    ) -> Iterator[NamedFigure]:
        """One of several sets, and how its text and figures are to be read."""
        from redraft.apps.cli.run_arguments import parse_source, training_texts, warn_of_unknown
        from redraft.training.data.detokenize import DetokenizedCorpus, detokenizer_for
        from redraft.training.data.sources import InfiniteCorpus

        text, rules = parse_source(paths, undivided=True), detokenizer_for(name)
        if rules is not None and not isinstance(text, InfiniteCorpus):
            text = DetokenizedCorpus(text, rules)
        warn_of_unknown(tokenizer, training_texts(text))
        said = "as it is" if rules is None else f"detokenised by the rules of {rules}"
        states = f"{type(tokenizer).__name__} of {tokenizer.vocab.size:,} states"
        if not self.json:
            emit({}, False, f"{name}: {' '.join(paths)}, {said}; per token of the model's own {states}")
        for figure, value, more in self._likelihood(it, tokenizer, framing, text, words=True):
            yield figure, value, {"set": name, "detokenised": rules, "tokens_of": states, **more}

    def _tasks(self) -> None:
        run_tasks(
            self.model,
            self.opening,
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

    def _rows_of(self, it: TextModel) -> tuple[Tokenizer, Framing]:
        """How text becomes rows: as in training, or, for a model without a run, full rows of some length."""
        from redraft.training.data.framing import PackedRows

        if it.run is not None:
            return it.run.tokenizer, it.run.framing
        if it.lm.tokenizer is None or not self.data:
            lacks = "no tokenizer" if it.lm.tokenizer is None else "no run, so no text of its own: say --data PATH"
            raise ValueError(f"{self.model} cannot be measured on text: it has {lacks}")
        return it.lm.tokenizer, PackedRows(min(self.length, it.lm.config.network.positions or self.length))

    def _likelihood(
        self,
        it: TextModel,
        tokenizer: Tokenizer,
        framing: Framing,
        data: Corpus | InfiniteCorpus,
        *,
        words: bool = False,
    ) -> Iterator[NamedFigure]:
        """The bound, or the exact value of a causal model; and how far it is above the truth, if that is known."""
        from redraft.training.heldout import NATS_PER_BIT, HeldOut, excess_bits, likelihood, target_texts
        from redraft.training.objectives.losses import Bound

        bound = None if self.steps is None else Bound(steps=self.steps)
        with Progress("rows measured", self.rows) as progress:
            held = HeldOut.of(data, self.split, tokenizer, framing, self.rows)
            progress.total = sum(len(batch.tokens) for batch in held.batches)
            batches = progress.over(held.batches, lambda batch: len(batch.tokens))
            found = likelihood(it.lm, batches, draws=self.draws or 4, seed=self.seed, bound=bound)
        count = len(found.row_nats)
        of = {"split": self.split, "rows": count} | ({} if self.steps is None else {"steps": self.steps})
        units: tuple[Literal["token", "char"], ...] = ("token", "char")
        for name, unit in ((f"bits_per_{unit}", unit) for unit in units):
            errors = {"rows_stderr": found.row_error(unit)} if count > 1 else {}
            yield name, getattr(found, name), {"stderr": getattr(found, f"{name}_stderr"), **errors, **of}
        yield "perplexity", found.perplexity, of
        if words:
            count = sum(len(text.split()) for batch in held.batches for text in target_texts(it.lm, batch))
            yield "word_perplexity", math.exp(min(700.0, float(found.row_nats.sum()) / max(1, count))), of
        if held.truth is not None:
            value, error = excess_bits(found, held.truth.log_probs)
            yield "excess_bits_per_char", value, {"stderr": error, **of}
            yield "entropy_bits_per_char", held.truth.entropy_per_char / NATS_PER_BIT, {}

    def _generation(
        self, it: TextModel, run: Run, data: Corpus | InfiniteCorpus, judge: Judge | None
    ) -> Iterator[NamedFigure]:
        """What the run's own sampler writes: from nothing, or in answer to held-out sources."""
        from redraft.apps.cli.models import ProgressSampler
        from redraft.evaluation.text_metrics import fraction_possible
        from redraft.tasks.canvases import sample_canvases
        from redraft.training.data.annotations import mean_coverage
        from redraft.training.data.loader import first_batches, load_rows
        from redraft.training.data.pair_framing import ChatRows
        from redraft.training.data.pairs import InfinitePairs
        from redraft.training.data.sources import KnownDistribution
        from redraft.training.samples import blank_canvases

        if not self.samples:
            return
        (first,) = first_batches(load_rows(data, self.split, run.tokenizer, run.framing), self.samples, self.samples)
        canvas = blank_canvases(it.lm, run.framing, self.samples, first)
        with Progress(f"writing {self.samples:,} texts") as progress:
            written = sample_canvases(it.lm, ProgressSampler(run.sampler, progress), canvas, seed=self.seed)
        of = {"rows": len(written.texts), "sampler": str(run.sampler)}
        if isinstance(run.data, KnownDistribution) and not run.framing.conditional:
            yield "grammatical", fraction_possible(written.texts, run.data), of
        if isinstance(data, InfinitePairs):
            sources = [data.pair(self.split, index).source for index in range(len(written.texts))]
            asked = isinstance(run.framing, ChatRows)  # the question is a part of the text there
            found = mean_coverage(data, sources, [each.new.strip() for each in written] if asked else written.texts)
            if found is not None:
                yield "facts", found.share, of
                yield "exact", found.exact, of
        yield "nfe", written.nfe, of
        yield "tokens_per_second", written.tokens_per_second, of
        yield "seconds_per_text", written.seconds / len(written), of
        if judge is not None:
            yield from self._judged(judge, written.texts)

    def _judged(self, judge: Judge, texts: Sequence[str]) -> Iterator[NamedFigure]:
        """Generative perplexity, and the entropy that tells whether it was bought with repetition."""
        from redraft.evaluation.judges import generative_perplexity

        found = generative_perplexity(texts, judge)
        of = {"judge": self.judge, "rows": len(texts)}
        yield "generative_perplexity", found.perplexity, {**of, "judge_tokens": found.tokens}
        yield "entropy_within_texts", found.unigram_entropy, {**of, "unit": "nats"}


def parse_named_sets(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The sets of "ptb=a.txt,wikitext2=b.txt", or of several such words; none if no word names any."""
    parts = [part for word in words for part in word.split(",")]
    if not any("=" in part and not Path(part).exists() for part in parts):
        return {}
    sets: dict[str, tuple[str, ...]] = {}
    for name, equals, path in (part.partition("=") for part in parts):
        if not (name and equals and path):
            raise ValueError(f"--data {name}{equals}{path}: several sets have a name each, say ptb=path/to/test.txt")
        sets[name] = (*sets.get(name, ()), path)
    return sets


def _line(figure: _Figure) -> str:
    error = f" ± {figure['stderr']:.2g}" if figure.get("stderr") else ""
    value = "–" if figure["value"] is None else f"{figure['value']:.4g}"
    return f"{str(figure['name']).replace('_', ' '):<24}{value:>10}{error}"


_SILENT = {"TQDM_DISABLE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True)
class _Told:
    """Says by one bar how far the harness is."""

    progress: Progress

    def begin(self, what: str, total: int) -> None:
        self.progress.turn_to(what, total or None)

    def advance(self, count: int) -> None:
        self.progress.advance(count)


def run_tasks(
    path: Path,
    opening: ModelFlags,
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
    """Runs the tasks and prints a figure for each of their metrics; the settings are those of the harness's model."""
    for variable, silent in _SILENT.items():  # read when its packages are imported, some of them with torch
        os.environ.setdefault(variable, silent)
    from redraft.apps.cli.models import open_model
    from redraft.evaluation.harness.tasks import as_lm, evaluate_tasks, require_package
    from redraft.evaluation.text_metrics import figure_record

    require_package()
    it = open_model(path, opening)
    print_note(f"{path}: {'no run' if it.run is None else f'run {it.name}, step {it.step}'}")
    with Progress("importing lm-eval") as progress:
        watch = _Told(progress)
        lm = as_lm(it, watch=watch, length=_longest(it, length), **settings)
        found = evaluate_tasks(lm, tasks, include=include, limit=limit, shots=shots, chat=chat, watch=watch)
    _warn(lm.report)
    for name, value, more in found:
        figure = figure_record(name, value, run=it.name, seed=lm.seed, **more)
        emit(figure, json, _task_line(figure))


def _longest(it: TextModel, length: int) -> int | None:
    """Rows of a run stay as they were in training; others have the length that is asked for, if they can."""
    return None if it.run is not None else min(length, it.lm.config.network.positions or length)


def _warn(report: Report) -> None:
    if report.unknown > 0.05 * report.tokens:
        share = report.unknown / report.tokens
        print_note(
            f"{share:.0%} of the words of these tasks are unknown to the tokenizer, which cannot tell them apart"
        )
    if report.ignored:
        print_note(f"settings of tasks that mean nothing here and were ignored: {', '.join(sorted(report.ignored))}")


def _task_line(figure: dict[str, float | str | None]) -> str:
    """A metric, its error over questions, and what the Monte Carlo adds to the log-likelihoods."""
    value = "–" if figure["value"] is None else f"{figure['value']:.4g}"
    error = f" ± {figure['stderr']:.2g}" if figure.get("stderr") else ""
    line = f"{figure['name']!s:<40}{value:>10}{error}   {figure['rows']:,} questions"
    if figure.get("likelihood") == "exact":
        return f"{line}, exact likelihoods"
    if figure.get("likelihood") == "bound":
        line += f", bounds of {figure['calls']} calls ± {figure['nats_stderr']:.2g} nats"
        if figure["undecided"]:
            line += f", {figure['undecided']:.0%} undecided (more --draws)"
    return line
