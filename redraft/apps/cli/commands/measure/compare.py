"""`redraft compare`: several methods under one budget, on one page."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import OmitArgPrefixes, Positional

from redraft.apps.cli.arguments import DATA, Flag
from redraft.apps.cli.checks import require_in_range
from redraft.apps.cli.model_flags import ModelFlags
from redraft.apps.cli.output import emit, generate_command, print_note, program_name
from redraft.apps.cli.progress import Progress
from redraft.models.shipped import STORY
from redraft.tasks.arguments.settings import optional_argument

if TYPE_CHECKING:
    from redraft.apps.reports.page import Command
    from redraft.evaluation.comparison.budget import Budget
    from redraft.evaluation.comparison.comparison import Comparison
    from redraft.evaluation.comparison.methods import Method, TrainingRecipe
    from redraft.evaluation.judges import Judge
    from redraft.training.runs.run import Run


@dataclass(frozen=True)
class Compare:
    """Train several methods under one budget, measure them alike, and leave a page that shows them side by side.

    Stopped and started again it goes on. In DIR: compare.html, compare.json, rows.jsonl, a directory per training.
    """

    methods: Annotated[Positional[tuple[str, ...]], optional_argument("PRESET|FILE.py:FN|RUN...")]
    """What to compare: presets and recipes of your own are trained, directories of runs are only measured."""
    minutes: Annotated[float | None, optional_argument("MINUTES")] = None
    """Budget of each training, in minutes of one core (CPU time); a codec or base that is trained first is part of
    it."""
    steps: Annotated[int | None, optional_argument("INT")] = None
    """The budget in steps instead."""
    seeds: int = 3
    """Trainings of each method: seeds 0, 1, 2 …"""
    out: Path = Path("runs/compare")
    """Where all of it goes."""
    data: Annotated[tuple[str, ...], optional_argument(DATA, "the presets'")] = ()
    """Text to learn from, for all presets; as for redraft train."""
    tokenizer: Annotated[str | None, optional_argument("chars|bytes|words:N|bpe:N|PATH", "the presets'")] = None
    """Learnt from the text, or a tokenizer.json."""
    length: Annotated[int | None, optional_argument("INT", "the presets'")] = None
    """Tokens per row."""
    rows: int = 256
    """Maximum number of test rows that each model reads."""
    draws: int = 4
    """Noise levels per row, each drawn twice. More give a smaller error."""
    samples: int = 64
    """Number of texts that each model writes at each number of steps."""
    write_steps: tuple[int, ...] = (8, 16, 32, 64)
    """Sampling steps of a whole text, beside the preset's own sampler."""
    judge: Annotated[str | None, optional_argument("DIR|story|hf:NAME")] = None
    """A causal model that judges the texts: generative perplexity. For text whose truth nobody knows."""
    quiet: Flag = False
    """Print no progress to stderr."""
    json: Flag = False
    """One JSON object per method, then one with the path of the page."""
    opening: OmitArgPrefixes[ModelFlags] = ModelFlags()

    def __post_init__(self) -> None:
        if not self.methods:
            raise ValueError("there is nothing to compare; name presets or runs, say ar_tiny mdlm_tiny")
        if (self.minutes is None) == (self.steps is None) and self.minutes is not None:
            raise ValueError("--minutes and --steps are two budgets; give one of them")
        require_in_range("--minutes", self.minutes, 0.001, 1_000_000)
        require_in_range("--steps", self.steps, 1, 10**9)
        require_in_range("--seeds", self.seeds, 1, 1000)
        require_in_range("--rows", self.rows, 2, 1_000_000)
        require_in_range("--draws", self.draws, 1, 4096)
        require_in_range("--samples", self.samples, 1, 100_000)
        for steps in self.write_steps:
            require_in_range("--write-steps", steps, 1, 100_000)

    def __call__(self) -> None:
        from redraft.evaluation.comparison.comparison import Comparison
        from redraft.evaluation.comparison.measurement import MeasurementSize
        from redraft.evaluation.comparison.methods import TrainingRecipe

        if self.out.exists() and not self.out.is_dir():
            raise ValueError(f"--out {self.out} is a file; give a directory")
        methods = tuple(map(self._method, self.methods))
        if self.minutes is None and self.steps is None and any(isinstance(m, TrainingRecipe) for m in methods):
            raise ValueError("a comparison needs a budget; give --minutes 5, or --steps 2000")
        effort = MeasurementSize(self.rows, self.draws, self.samples, self.write_steps)
        compared = Comparison(methods, self._budget, self.seeds, effort, self.out, self._judge(), self.judge)
        self._note_texts(methods)
        tell = (lambda line: None) if self.quiet else print_note
        compared.measure(tell, lambda: self._page(compared), quiet=self.quiet)
        self._report(compared, self._page(compared))

    @property
    def _budget(self) -> Budget:
        from redraft.evaluation.comparison.budget import Budget

        return Budget(steps=self.steps or 1) if self.minutes is None else Budget(minutes=self.minutes)

    def _judge(self) -> Judge | None:
        from redraft.apps.cli.models import open_judge

        return None if self.judge is None else open_judge(self.judge, self.opening)

    def _method(self, name: str) -> Method:
        from redraft.apps.cli.models import open_model
        from redraft.evaluation.comparison.methods import PretrainedMethod
        from redraft.training.presets.index import PRESETS

        if name in PRESETS or ":" in name or name.endswith(".py"):
            return self._recipe(name)
        if not Path(name).exists() and "/" not in name and name != STORY:
            self._run(name)  # says what there is
        with Progress(f"opening {name}"):
            it = open_model(name, self.opening)
        found = PretrainedMethod(name.rstrip("/"), it)
        found.run  # noqa: B018  (a model without a run is refused)
        return found

    def _recipe(self, name: str) -> TrainingRecipe:
        """The run, after the preset that its base is named after: a codec, a model."""
        from redraft.evaluation.comparison.methods import TrainingRecipe
        from redraft.training.presets.index import PRESETS

        run = self._run(name)
        if run.base is None or (name not in PRESETS and Path(run.base).is_dir()):
            return TrainingRecipe(name, (name,), (run,))
        base = Path(run.base).name
        if base not in PRESETS:
            raise ValueError(f"{name} is built on {run.base}, which is neither a preset nor trained; train it first")
        return TrainingRecipe(name, (base, name), (self._run(base), run))

    def _run(self, name: str) -> Run:
        from redraft.apps.cli.run_arguments import make_tokenizer, parse_run
        from redraft.training.runs import variations

        run, tokenizer = parse_run(name, self.data, self.tokenizer, self.length)
        return run if tokenizer is None else variations.with_tokenizer(run, make_tokenizer(tokenizer, run.data))

    def _note_texts(self, methods: Sequence[Method]) -> None:
        from redraft.evaluation.comparison.comparison import text_description

        if len(texts := {text_description(method): method.name for method in methods}) > 1:
            said = ", ".join(f"{name} on {text}" for text, name in texts.items())
            print_note(f"methods are measured on different texts ({said}): their bits cannot be compared")

    def _page(self, compared: Comparison) -> Path:
        """The page and compare.json, of the rows so far."""
        from redraft.apps.reports.comparison import ComparisonData, write_comparison
        from redraft.evaluation.comparison.comparison import summaries

        rows = compared.rows()
        found = summaries(rows)
        (self.out / "compare.json").write_text(jsonlib.dumps(found, indent=1) + "\n", "utf-8")
        budget = str(compared.budget) if self.minutes or self.steps else "no training"
        commands = tuple(self._commands(compared, rows))
        planned, by_minutes = len(list(compared.jobs)), self.minutes is not None
        return write_comparison(
            ComparisonData(rows, found, budget, planned, commands, by_minutes), self.out / "compare.html"
        )

    def _commands(self, compared: Comparison, rows: Sequence[Mapping[str, Any]]) -> Iterator[Command]:
        from redraft.apps.reports.page import Command

        yield Command("All of it; stopped, it goes on", f"{program_name()} compare {self._words()}")
        first = {row["method"]: row for row in reversed(rows)}
        for method in compared.methods:
            if method.name in first:
                row = first[method.name]
                own = self._words("data", "tokenizer", "length") if self.data or self.tokenizer or self.length else ""
                for line in method.commands(self.out, row["seed"], [stage["steps"] for stage in row["stages"]]):
                    yield Command(f"{row['name']}: train it alone", f"{program_name()} {line} {own}".rstrip())
                place = method.place(self.out, row["seed"])
                yield Command(
                    f"{row['name']}: measure it again", f"{program_name()} eval {quote(str(place))} --split test"
                )
                yield Command(f"{row['name']}: let it write", f"{program_name()} {generate_command(method.run, place)}")

    def _words(self, *flags: str) -> str:
        """Flags of this command that differ from what they are by default; if none are named, all, and the methods."""
        words = [] if flags else [quote(name) for name in self.methods]
        every = [field.name for field in fields(self) if field.name not in ("methods", "quiet", "json", "opening")]
        for name in flags or every:
            value = getattr(self, name)
            if value != getattr(type(self), name, None):
                each = map(str, value if isinstance(value, tuple) else (value,))
                words += [f"--{name.replace('_', '-')}", *map(quote, each)]
        return " ".join(words)

    def _report(self, compared: Comparison, page: Path) -> None:
        from redraft.evaluation.comparison.comparison import summaries

        for each in summaries(compared.rows()):
            emit(each, self.json, _line(each))
        emit({"path": str(page)}, self.json, str(page))


def _line(each: Mapping[str, Any]) -> str:
    bits, own = each["bits"], each["written"]["own"]
    errors = "".join(f" ± {bits[key]:.4f}" for key in ("between", "within") if bits[key] is not None)
    share = f", {own['share']['mean']:.0%} right" if "share" in own else ""
    calls = f", {own['nfe']['mean']:.1f} calls a text"
    return f"{each['method']:<24}{bits['mean']:.4f}{errors} {each['bits_of']}{share}{calls}"
