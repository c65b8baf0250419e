"""`redraft compare`: a comparison of several methods under one budget, with an HTML report."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from redraft.apps.cli.arguments import DATA
from redraft.apps.cli.model_flags import ModelFlags
from redraft.apps.cli.output import emit, generate_command, print_note, program_name
from redraft.models.shipped import STORY
from redraft.tasks.arguments.setting import REQUIRED, Checked, setting
from redraft.training.progress import Progress

if TYPE_CHECKING:
    from redraft.apps.reports.page import Command
    from redraft.evaluation.comparison.budget import Budget
    from redraft.evaluation.comparison.comparison import Comparison
    from redraft.evaluation.comparison.methods import Method, TrainingRecipe
    from redraft.evaluation.judges import Judge
    from redraft.training.runs.run import Run


@dataclass(frozen=True)
class Compare(Checked):
    """Train several methods under one budget, measure them in the same way, and write a report that compares them.

    The same command continues an interrupted comparison. The directory --out gets compare.html, compare.json,
    rows.jsonl and a directory per training.
    """

    methods: tuple[str, ...] = setting(
        REQUIRED,
        "What to compare. Presets and functions in your own file are trained; directories of runs are only measured.",
        metavar="PRESET|FILE.py:FN|RUN...",
        positional=True,
    )
    minutes: float | None = setting(
        None,
        "Budget per training in CPU minutes on one core; it includes the training of a codec or base model.",
        least=0.001,
        most=1_000_000,
        metavar="MINUTES",
    )
    steps: int | None = setting(None, "Budget per training in steps, instead of minutes.", least=1, most=10**8)
    seeds: int = setting(3, "Number of training runs per method, with seeds 0, 1, 2 …", least=1, most=1000)
    out: Path = setting(Path("runs/compare"), "Directory for all results.", group="Output")
    data: tuple[str, ...] = setting(
        (), "Text to train all presets on, as for redraft train.", otherwise="the presets'", metavar=DATA
    )
    tokenizer: str | None = setting(
        None,
        "Kind of tokenizer to train on the text, or a tokenizer.json.",
        otherwise="the presets'",
        metavar="chars|bytes|words:N|bpe:N|PATH",
    )
    length: int | None = setting(None, "Tokens per row.", otherwise="the presets'")
    rows: int = setting(256, "Maximum number of test rows per model.", least=2, most=1_000_000)
    draws: int = setting(
        4, "Noise levels per row, with two noise samples each. More give a smaller error.", least=1, most=4096
    )
    samples: int = setting(64, "Number of texts to generate per model and number of steps.", least=1, most=100_000)
    write_steps: tuple[int, ...] = setting(
        (8, 16, 32, 64),
        "Numbers of sampling steps per text to compare, besides that of the preset's own sampler.",
        least=1,
        most=100_000,
    )
    judge: str | None = setting(
        None,
        "A causal model to score the texts (generative perplexity), for corpora without known probabilities.",
        metavar="DIR|story|hf:NAME",
    )
    quiet: bool = setting(False, "Print no progress to stderr.", group="Output")
    json: bool = setting(False, "Print a JSON object per method, then one with the path of the report.", group="Output")
    model_flags: ModelFlags = ModelFlags()

    def _require_agreement(self) -> None:
        if not self.methods:
            raise ValueError("there is nothing to compare; name presets or runs, such as ar_tiny mdlm_tiny")
        if self.minutes is not None and self.steps is not None:
            raise ValueError("--minutes and --steps are two budgets; give one of them")

    def __call__(self) -> None:
        from redraft.evaluation.comparison.comparison import Comparison
        from redraft.evaluation.comparison.measurement import MeasurementSize
        from redraft.evaluation.comparison.methods import TrainingRecipe

        if self.out.exists() and not self.out.is_dir():
            raise ValueError(f"--out {self.out} is a file; give a directory")
        methods = tuple(map(self._method, self.methods))
        if self.minutes is None and self.steps is None and any(isinstance(m, TrainingRecipe) for m in methods):
            raise ValueError("a comparison needs a budget; give --minutes 5, or --steps 2000")
        size = MeasurementSize(self.rows, self.draws, self.samples, self.write_steps)
        comparison = Comparison(methods, self._budget, self.seeds, size, self.out, self._judge(), self.judge)
        self._note_different_texts(methods)
        tell = (lambda line: None) if self.quiet else print_note
        comparison.measure(tell, lambda: self._write_page(comparison), quiet=self.quiet)
        self._print(comparison, self._write_page(comparison))

    @property
    def _budget(self) -> Budget:
        from redraft.evaluation.comparison.budget import Budget

        steps = (self.steps or 1) if self.minutes is None else None
        return Budget(self.minutes, steps, self.model_flags.device)

    def _judge(self) -> Judge | None:
        from redraft.apps.cli.models import open_judge

        return None if self.judge is None else open_judge(self.judge, self.model_flags)

    def _method(self, name: str) -> Method:
        from redraft.apps.cli.models import open_model
        from redraft.evaluation.comparison.methods import PretrainedMethod
        from redraft.training.presets.index import PRESETS

        if name in PRESETS or ":" in name or name.endswith(".py"):
            return self._recipe(name)
        if not Path(name).exists() and "/" not in name and name != STORY:
            self._run(name)  # raises with a list of similar presets
        with Progress(f"loading {name}"):
            model = open_model(name, self.model_flags)
        method = PretrainedMethod(name.rstrip("/"), model)
        method.run  # noqa: B018  (raises if the model has no run)
        return method

    def _recipe(self, name: str) -> TrainingRecipe:
        """Return the recipe of a preset or a user's function; a base that is named after a preset is trained first."""
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
        from redraft.apps.cli.run_arguments import parse_run

        return parse_run(name, self.data, self.tokenizer, self.length)

    def _note_different_texts(self, methods: Sequence[Method]) -> None:
        from redraft.evaluation.comparison.comparison import text_description

        if len(texts := {text_description(method): method.name for method in methods}) > 1:
            which = ", ".join(f"{name} on {text}" for text, name in texts.items())
            print_note(f"the methods are measured on different texts ({which}), so their bits cannot be compared")

    def _write_page(self, comparison: Comparison) -> Path:
        """Write the report and compare.json for the rows measured so far."""
        from redraft.apps.reports.comparison import ComparisonData, write_comparison
        from redraft.evaluation.comparison.comparison import summaries

        rows = comparison.rows()
        by_method = summaries(rows)
        (self.out / "compare.json").write_text(jsonlib.dumps(by_method, indent=1) + "\n", "utf-8")
        budget = str(comparison.budget) if self.minutes or self.steps else "no training"
        commands = tuple(self._commands(comparison, rows))
        planned, by_minutes = len(list(comparison.jobs)), self.minutes is not None
        data = ComparisonData(rows, by_method, budget, planned, commands, by_minutes)
        return write_comparison(data, self.out / "compare.html")

    def _commands(self, comparison: Comparison, rows: Sequence[Mapping[str, Any]]) -> Iterator[Command]:
        """Yield the commands that reproduce the comparison and its parts, for the report."""
        from redraft.apps.reports.page import Command

        yield Command("The whole comparison; continues if interrupted", f"{program_name()} compare {self._arguments()}")
        first = {row["method"]: row for row in reversed(rows)}
        for method in comparison.methods:
            if method.name in first:
                row, has_data = first[method.name], self.data or self.tokenizer or self.length
                arguments = self._arguments("data", "tokenizer", "length") if has_data else ""
                for line in method.commands(self.out, row["seed"], [stage["steps"] for stage in row["stages"]]):
                    yield Command(f"{row['name']}: train it alone", f"{program_name()} {line} {arguments}".rstrip())
                directory = method.directory(self.out, row["seed"])
                evaluate, generate = f"eval {quote(str(directory))}", generate_command(method.run, directory)
                yield Command(f"{row['name']}: measure it again", f"{program_name()} {evaluate} --split test")
                yield Command(f"{row['name']}: generate text", f"{program_name()} {generate}")

    def _arguments(self, *names: str) -> str:
        """Return those of the named flags that are not at their defaults; without names, all flags and the methods."""
        words = [] if names else [quote(name) for name in self.methods]
        all_names = [f.name for f in fields(self) if f.name not in ("methods", "quiet", "json", "model_flags")]
        for name in names or all_names:
            value = getattr(self, name)
            if value != getattr(type(self), name, None):
                values = map(str, value if isinstance(value, tuple) else (value,))
                words += [f"--{name.replace('_', '-')}", *map(quote, values)]
        return " ".join(words)

    def _print(self, comparison: Comparison, page: Path) -> None:
        """Print the summary of each method, and the path of the report."""
        from redraft.evaluation.comparison.comparison import summaries

        for summary in summaries(comparison.rows()):
            emit(summary, self.json, _summary_line(summary))
        emit({"path": str(page)}, self.json, str(page))


def _summary_line(summary: Mapping[str, Any]) -> str:
    bits, own = summary["bits"], summary["written"]["own"]
    errors = "".join(f" ± {bits[key]:.4f}" for key in ("between", "within") if bits[key] is not None)
    correct = f", {own['share']['mean']:.0%} correct" if "share" in own else ""
    calls = f", {own['nfe']['mean']:.1f} network calls per text"
    return f"{summary['method']:<24}{bits['mean']:.4f}{errors} {summary['bits_of']}{correct}{calls}"
