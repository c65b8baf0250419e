"""`redraft eval`: how likely a model finds held-out text, and how well it writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg

from redraft.cli.arguments import Flag
from redraft.cli.limits import require_in_range, require_seed_flag
from redraft.cli.opening import Opening
from redraft.cli.output import emit, note
from redraft.cli.progress import Progress
from redraft.write import optional

if TYPE_CHECKING:
    from redraft.data import Corpus, Endless, Framing
    from redraft.runs import Run
    from redraft.text import Tokenizer
    from redraft.write import Opened

_Figure = dict[str, float | str | None]
Found = tuple[str, float, dict[str, Any]]  # name, value, what else is worth knowing


@dataclass(frozen=True)
class Eval:
    """Measure a model: likelihood of held-out text, quality and cost of its own texts; or tasks of lm-eval."""

    model: Annotated[Positional[Path], arg(metavar="DIR")]
    """Directory of a run, a checkpoint or an exported model."""
    data: Annotated[tuple[str, ...], optional("stories|sotu|PATH...", "the run's")] = ()
    """The text to measure on; files are used whole."""
    split: Literal["train", "valid", "test"] = "valid"
    """Which split of the text."""
    rows: int = 256
    """Maximum number of held-out rows."""
    draws: Annotated[int | None, optional("INT", "4, with --tasks 16")] = None
    """Noise levels per row, each drawn twice. More give a smaller error; 64 is LLaDA's protocol for tasks."""
    length: int = 512
    """Tokens per row, for a model that no run of ours made; text is cut into full rows."""
    samples: int = 64
    """Number of texts to write; 0 for none. Only the runs of ours say how to."""
    tasks: Annotated[tuple[str, ...], optional("NAME|FILE.yaml...")] = ()
    """Tasks of lm-eval by name, or YAML files of your own; needs redraft[tasks]."""
    include: Annotated[Path | None, optional("DIR")] = None
    """Directory of YAML files whose tasks can be named as well; Python code that they name is run."""
    limit: Annotated[int | None, optional("INT", "all")] = None
    """Maximum number of questions of each task."""
    shots: Annotated[int | None, optional("INT", "the task's")] = None
    """Number of solved examples before each question."""
    chat: Flag = False
    """Ask questions as messages, by the model's chat template."""
    steps: Annotated[int | None, optional("INT", "continuous time; a task: one per token")] = None
    """T of the T-step bound (multinomial diffusion publishes 1000 and 4000); with --tasks, steps to write an answer."""
    seed: int = 0
    """Seed of the noise and the texts."""
    json: Flag = False
    """One JSON object per figure."""
    opening: OmitArgPrefixes[Opening] = Opening()

    def __post_init__(self) -> None:
        require_in_range("--rows", self.rows, 1, 1_000_000)
        require_in_range("--draws", self.draws, 1, 4096)
        require_in_range("--length", self.length, 2, 1_000_000)
        require_in_range("--limit", self.limit, 1, 10**9)
        require_in_range("--shots", self.shots, 0, 1000)
        require_in_range("--steps", self.steps, 1, 100_000)
        self._require_tasks()
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
        from redraft.cli.models import open_model
        from redraft.cli.recipes import source, training_texts, warn_of_unknown
        from redraft.evaluate import record

        it = open_model(self.model, self.opening)
        tokenizer, framing = self._rows_of(it)
        data = source(self.data, undivided=True) if self.data or it.run is None else it.run.data
        note(f"{self.model}: run {it.name}, step {it.step}" if it.run else f"{self.model}: a model without a run")
        if self.data:
            warn_of_unknown(tokenizer, training_texts(data))
        written = () if it.run is None else self._generation(it, it.run, data)
        for name, value, more in chain(self._likelihood(it, tokenizer, framing, data), written):
            figure = record(name, value, run=it.name, seed=self.seed, **more)
            emit(figure, self.json, _line(figure))

    def _tasks(self) -> None:
        from redraft.cli.tasks import run_tasks

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

    def _rows_of(self, it: Opened) -> tuple[Tokenizer, Framing]:
        """How text becomes rows: as in training, or, for a model without a run, full rows of some length."""
        from redraft.data import Packed

        if it.run is not None:
            return it.run.tokenizer, it.run.framing
        if it.model.tokenizer is None or not self.data:
            lacks = "no tokenizer" if it.model.tokenizer is None else "no run, so no text of its own: say --data PATH"
            raise ValueError(f"{self.model} cannot be measured on text: it has {lacks}")
        return it.model.tokenizer, Packed(min(self.length, it.model.config.network.positions or self.length))

    def _likelihood(
        self, it: Opened, tokenizer: Tokenizer, framing: Framing, data: Corpus | Endless
    ) -> Iterator[Found]:
        """The bound, or the exact value of a causal model; on the stories also how far it is above the truth."""
        from redraft.evaluate import BIT, HeldOut, excess, likelihood
        from redraft.objectives import Bound

        bound = None if self.steps is None else Bound(steps=self.steps)
        with Progress("rows measured", self.rows) as progress:
            held = HeldOut.of(data, self.split, tokenizer, framing, self.rows)
            progress.total = sum(len(batch.tokens) for batch in held.batches)
            batches = progress.over(held.batches, lambda batch: len(batch.tokens))
            found = likelihood(it.model, batches, draws=self.draws or 4, seed=self.seed, bound=bound)
        count = len(found.row_nats)
        of = {"split": self.split, "rows": count} | ({} if self.steps is None else {"steps": self.steps})
        yield "bits_per_token", found.bits_per_token, {"stderr": found.bits_per_token_stderr, **of}
        yield "bits_per_char", found.bits_per_char, {"stderr": found.bits_per_char_stderr, **of}
        yield "perplexity", found.perplexity, of
        if held.truth is not None:
            value, error = excess(found, held.truth.log_probs)
            yield "excess_bits_per_char", value, {"stderr": error, **of}
            yield "entropy_bits_per_char", held.truth.entropy_per_char / BIT, {}

    def _generation(self, it: Opened, run: Run, data: Corpus | Endless) -> Iterator[Found]:
        """What the run's own sampler writes: from nothing, or in answer to held-out sources."""
        from redraft.cli.models import WithProgress
        from redraft.corpora import Task, faithful
        from redraft.data import Answers, KnownSource, evaluation, tokenise
        from redraft.evaluate import possible
        from redraft.write import fill, to_write

        if not self.samples:
            return
        (first,) = evaluation(tokenise(data, self.split, run.tokenizer, run.framing), self.samples, self.samples)
        canvas = to_write(it.model, run.framing, self.samples, first)
        with Progress(f"writing {self.samples:,} texts") as progress:
            written = fill(it.model, WithProgress(run.sampler, progress), canvas, seed=self.seed)
        of = {"rows": len(written.texts), "sampler": str(run.sampler)}
        if isinstance(run.data, KnownSource) and not run.framing.asked:
            yield "grammatical", possible(written.texts, run.data), of
        if isinstance(data, Task):
            sources = [data.pair(self.split, index).source for index in range(len(written.texts))]
            asked = isinstance(run.framing, Answers)  # the question is a part of the text there
            found = faithful(data, sources, [each.new.strip() for each in written] if asked else written.texts)
            yield "facts", found.share, of
            yield "exact", found.exact, of
        yield "nfe", written.nfe, of
        yield "tokens_per_second", written.tokens_per_second, of


def _line(figure: _Figure) -> str:
    error = f" ± {figure['stderr']:.2g}" if figure.get("stderr") else ""
    value = "–" if figure["value"] is None else f"{figure['value']:.4g}"
    return f"{str(figure['name']).replace('_', ' '):<24}{value:>10}{error}"
