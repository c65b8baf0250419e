"""`redraft generate`, `infill`, `rewrite`, `control`, `choose` and `score`, a thin layer over `redraft.tasks`."""

from __future__ import annotations

import json as jsonlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from redraft.apps.cli.arguments import name_flags
from redraft.apps.cli.model_flags import ModelFlags, model_setting
from redraft.apps.cli.output import emit, print_note, require_svg
from redraft.apps.cli.streams import decode_text, stdin_lines
from redraft.models.shipped import STORY
from redraft.tasks.arguments.setting import Checked, setting
from redraft.tasks.arguments.settings import (
    ControlSettings,
    GenerationSettings,
    InfillSettings,
    RewriteSettings,
    ScoreSettings,
)
from redraft.tasks.arguments.templates import require_holes
from redraft.training.progress import Progress

if TYPE_CHECKING:
    from redraft.core.canvas import Canvas
    from redraft.tasks.engine.loop import DecodingLoop
    from redraft.tasks.engine.plan import DecodingPlan
    from redraft.tasks.engine.result import TextResult, TextResults

_RULE = "-" * 8  # between texts of several lines
_Settings = TypeVar("_Settings", ControlSettings, GenerationSettings, InfillSettings, RewriteSettings)


@dataclass(frozen=True)
class _DisplayFlags(Checked):
    """How to show the texts."""

    watch: bool = setting(False, "Show on stderr how the first text is written.", group="Output")
    strip: Path | None = setting(
        None,
        "Draw the first text at six of its steps, from noise to the final text.",
        metavar="FILE.svg",
        group="Output",
    )
    profile: bool = setting(
        False,
        "Print to stderr how the time was spent: network, output layer, rules, sampler.",
        group="Speed",
        rare=True,
    )
    json: bool = setting(
        False,
        "Print a JSON object per text: the text, its tokens with confidence and step, why it ended, and its cost.",
        group="Output",
    )
    model_flags: ModelFlags = ModelFlags()

    def _require_agreement(self) -> None:
        require_svg("--strip", self.strip)

    def write(self, plans: Sequence[DecodingPlan], only_new: bool = False) -> None:
        """Run the plans: print each text as soon as it is finished, and at the end the cost of all.

        only_new: print without the prompt
        """
        for note in dict.fromkeys(note for plan in plans for note in plan.notes):
            print_note(name_flags(note))
        show = _TextPrinter(self.json, only_new)
        for plan in plans:
            self._run(plan, show)

    def _run(self, plan: DecodingPlan, show: _TextPrinter) -> None:
        """Run one plan and print its texts and their cost."""
        from redraft.tasks.engine.profiler import profile_model

        tokens, calls, seconds, steps = 0, 0.0, 0.0, 0
        profiling = profile_model(plan.model.lm) if self.profile else nullcontext()
        with Progress("texts written", len(plan)) as progress, profiling as profile:
            for loop in plan.loops():
                results = self._run_loop(plan, loop, progress, show)
                tokens, seconds = tokens + results.new_tokens, seconds + results.seconds
                calls, steps = calls + results.nfe * len(results), steps + loop.canvas_count
        rate = tokens / seconds
        speed = "" if self.watch else f", {rate:,.{0 if rate >= 10 else 1}f} tokens/s"
        print_note(
            f"{_tokens(tokens)} by {plan.sampler.describe()}: {calls / len(plan):.1f} network calls per text{speed}"
        )
        if (stats := plan.draft_stats) is not None:
            accepted = f"{stats.acceptance:.0%} of {stats.drafted} drafted tokens accepted"
            print_note(f"{accepted}, {stats.tokens_per_round:.2f} tokens per pass of the model")
        if profile is not None:
            print_note("\n".join(profile.lines(seconds, steps)))

    def _run_loop(self, plan: DecodingPlan, loop: DecodingLoop, progress: Progress, show: _TextPrinter) -> TextResults:
        """Write one batch of rows and print their texts."""
        first = loop.first_row == plan.first_row
        history: list[Canvas] = []
        watch, canvases = self.watch and first, _record(loop, history) if self.strip and first else loop
        with progress.paused() if watch else nullcontext():
            _watch(canvases, loop) if watch else _exhaust(progress.count_steps(canvases))
        if self.strip and first:
            _draw(history, loop, self.strip)
        results = plan.loop_results(loop)
        progress.advance(len(results))
        with progress.paused():
            for result, record in zip(results, results.to_json() if self.json else results, strict=True):
                show(result, record if isinstance(record, dict) else {})
        return results


class _TextPrinter:
    """Prints texts to stdout, one per line; a text of several lines is set apart from its neighbors by a rule."""

    def __init__(self, json: bool, only_new: bool) -> None:
        self.json, self.only_new, self.previous = json, only_new, ""

    def __call__(self, result: TextResult, record: Mapping[str, Any]) -> None:
        text = result.new.strip() if self.only_new else result.text
        if self.previous and "\n" in self.previous + text and not self.json:
            emit({}, False, _RULE)
        emit(record, self.json, text)
        self.previous = text or " "


def _exhaust(canvases: Iterable[Canvas]) -> None:
    for _ in canvases:
        pass


def _record(canvases: Iterable[Canvas], history: list[Canvas]) -> Iterator[Canvas]:
    """Yield the canvases and append them to the history."""
    for canvas in canvases:
        history.append(canvas)
        yield canvas


def _draw(history: Sequence[Canvas], loop: DecodingLoop, file: Path) -> None:
    """Write a picture of the first text at some of its steps."""
    from redraft.apps.reports.pictures import picture
    from redraft.apps.reports.watch import frames

    file.write_text(picture(list(frames(history, loop.model))), "utf-8")
    print_note(f"{file}: the first text at some of its {len(history) - 1} steps")


def _watch(canvases: Iterable[Canvas], loop: DecodingLoop) -> None:
    """Show the canvases in the terminal as they are written."""
    from rich.console import Console

    from redraft.apps.reports.watch import display

    display(canvases, loop.model, console=Console(stderr=True))


@dataclass(frozen=True)
class Generate(Checked):
    """Generate texts, from scratch or from prompts."""

    model: str | None = model_setting()
    prompt: str | None = setting(
        None,
        "The beginning of the text; with - or a pipe, one prompt per line of stdin.",
        metavar="[PROMPT]",
        positional=True,
    )
    settings: GenerationSettings = GenerationSettings()
    display: _DisplayFlags = _DisplayFlags()

    def _require_agreement(self) -> None:
        for flag, text in (("--source", self.settings.source), ("--label", self.settings.label)):
            decode_text(text or "", flag)

    def __call__(self) -> None:
        name, prompt = _model_and_text(self.model, self.prompt)
        prompts, settings = _prompts(prompt) or [""], _with_schema(self.settings)
        from redraft.apps.cli.models import open_for  # imports torch, so only after the flags have been checked
        from redraft.tasks.generation import plan_generation

        model = open_for(name, prompts, self.display.model_flags)
        self.display.write([plan_generation(model, prompts, settings)], only_new=settings.chat)


@dataclass(frozen=True)
class Infill(Checked):
    """Fill the holes of a text: "She opened the [[6]] and [[2-5]], then [[*]]."

    [[?]] gets a word, [[6]] six tokens, [[2-5]] two to five, [[*]] any number up to --room; the model chooses the
    number. Given text is kept byte for byte. A model trained on full rows also writes a continuation, since it attends
    to what follows the text; the continuation is only printed if the template ends with a hole.
    """

    model: str | None = model_setting()
    template: str | None = setting(
        None, "Text with holes; with - or a pipe, one template per line of stdin.", metavar="TEMPLATE", positional=True
    )
    candidates: int | None = setting(
        None,
        "Print this many words for the hole of a text such as 'The [[?]] sat.', with their probabilities.",
        least=1,
        most=16,
        group="Output",
    )
    settings: InfillSettings = InfillSettings()
    display: _DisplayFlags = _DisplayFlags()

    def __call__(self) -> None:
        name, template = _model_and_text(self.model, self.template)
        if not (templates := _prompts(template)):
            raise ValueError('give a text with holes: redraft infill "She opened the [[6]] and [[3]]."')
        for template in templates:
            require_holes(template)
        from redraft.apps.cli.models import open_for  # imports torch, so only after the flags have been checked
        from redraft.tasks.infilling.infilling import fill_words, plan_infilling

        if self.candidates is not None:
            model = open_for(name, templates, self.display.model_flags)
            for template in templates:
                words = fill_words(model, template, self.candidates)
                text = "  ".join(f"{word} {probability:.3f}" for word, probability in words)
                emit({"input": template, "candidates": dict(words)}, self.display.json, text)
            return
        model, settings = open_for(name, templates, self.display.model_flags), _with_schema(self.settings)
        self.display.write(plan_infilling(model, templates, settings))


@dataclass(frozen=True)
class Rewrite(Checked):
    """Rewrite a text: edit it in place or, with a model trained on pairs, write its target.

    Editing adds noise up to --strength and denoises from there; the words of --pin are kept. A model trained on pairs
    reads the text as its source. With --candidates the result most similar to the others is kept (minimum Bayes risk).
    """

    model: str = model_setting(STORY)
    text: str | None = setting(
        None, "The text; with - or a pipe, one text per line of stdin.", metavar="TEXT", positional=True
    )
    settings: RewriteSettings = RewriteSettings()
    json: bool = setting(
        False,
        "Print a JSON object per text: the text, its tokens with confidence and step, why it ended, and its cost.",
        group="Output",
    )
    model_flags: ModelFlags = ModelFlags()

    def _require_agreement(self) -> None:
        for word in self.settings.pinned:
            decode_text(word, "--pin")

    def __call__(self) -> None:
        model, text = _model_and_text(self.model, self.text)
        model = model or STORY
        if not (texts := _prompts(text)):
            raise ValueError('give a text: redraft rewrite DIR "One spring day, Anna walked to the garden."')
        from redraft.apps.cli.models import open_model  # imports torch, so only after the flags have been checked
        from redraft.tasks.rewriting import rewrite

        settings = _with_schema(self.settings)
        with Progress(f"rewriting {len(texts):,} texts"):
            results = rewrite(open_model(model, self.model_flags), texts, **vars(settings))
        for result, record in zip(results, results.to_json(), strict=True):
            emit(record, self.json, result.text)
        for note in results.notes:
            print_note(name_flags(note))
        print_note(f"{_tokens(results.new_tokens)} by {results.sampler}: {results.nfe:.1f} network calls per text")


@dataclass(frozen=True)
class Control(Checked):
    """Generate texts with given parts of speech, length, attributes or words.

    These are hard constraints, so every text obeys them. With --scale, parts of speech and attributes only guide.
    --json reports how far each of them is met.
    """

    model: str = model_setting(STORY)
    settings: ControlSettings = ControlSettings()
    json: bool = setting(
        False,
        "Print a JSON object per text: the text, `met` (1 for each constraint that is met), and its cost.",
        group="Output",
    )
    model_flags: ModelFlags = ModelFlags()

    def __call__(self) -> None:
        from redraft.apps.cli.models import open_model  # imports torch, so only after the flags have been checked
        from redraft.tasks.controlled.controlled import ControlRequest, plan_control

        model, settings = open_model(self.model, self.model_flags), _with_schema(self.settings)
        plan, request = plan_control(model, settings), ControlRequest(model, settings)
        with Progress(f"writing {len(plan):,} texts"):
            results = plan.results()
        fulfillment = [request.fulfillment(result.text) for result in results]
        for result, record, met in zip(results, results.to_json(), fulfillment, strict=True):
            emit(record | {"met": met}, self.json, result.text)
        means = (f"{name} {sum(met[name] for met in fulfillment) / len(results):.1%}" for name in fulfillment[0])
        print_note(f"{', '.join(means)}; {results.nfe:.1f} network calls per text by {results.sampler:.80}")


@dataclass(frozen=True)
class Choose(Checked):
    """Print how likely each answer is in the holes [[?]] of a text.

    A hole is filled with as many masks as an answer has tokens. The score of an answer is the product of the
    probabilities of its tokens, and the scores of a hole are normalized. Models that decode left to right score the
    text with each answer in the hole: causal ones exactly, including the text after it.
    """

    model: str | None = model_setting()
    template: str | None = setting(
        None,
        "Text with holes [[?]]; with - or a pipe, one template per line of stdin.",
        metavar="TEMPLATE",
        positional=True,
    )
    answers: tuple[str, ...] = setting((), "The answers, two or more.", metavar="TEXT", group="Text")
    json: bool = setting(
        False,
        "Print a JSON object per hole: the best answer, and all answers with their probabilities.",
        group="Output",
    )
    model_flags: ModelFlags = ModelFlags()

    def _require_agreement(self) -> None:
        for answer in self.answers:
            decode_text(answer, "--answers")

    def __call__(self) -> None:
        name, template = _model_and_text(self.model, self.template)
        templates = _prompts(template)
        if not templates or len(self.answers) < 2:
            raise ValueError(
                'give a hole and two or more answers: redraft choose "The sky is [[?]]." --answers blue green'
            )
        from redraft.apps.cli.models import open_for  # imports torch, so only after the flags have been checked
        from redraft.tasks.choice.choice import choose

        results = choose(open_for(name, [*templates, *self.answers], self.model_flags), templates, self.answers)
        for result, record in zip(results, results.to_json(), strict=True):
            ranked = sorted(zip(result.probabilities, result.answers, strict=True), key=lambda pair: -pair[0])
            emit(record, self.json, "  ".join(f"{answer} {p:.3f}" for p, answer in ranked))
        if results.kind == "blocks":
            print_note("this model decodes in blocks; text in blocks after the hole was not taken into account")
        if not results.comparable:
            print_note("the answers differ in their numbers of tokens; each was scored in a hole of its own length")


@dataclass(frozen=True)
class ScoreTexts(Checked):
    """Print how likely a model finds texts, in bits: exact for causal models, an upper bound for others."""

    model: str | None = model_setting()
    text: str | None = setting(
        None, "A whole text; with - or a pipe, one text per line of stdin.", metavar="TEXT", positional=True
    )
    settings: ScoreSettings = ScoreSettings()
    json: bool = setting(False, "Print a JSON object per text.", group="Output")
    model_flags: ModelFlags = ModelFlags()

    def __call__(self) -> None:
        name, text = _model_and_text(self.model, self.text)
        if not (texts := _prompts(text)):
            raise ValueError('give a text: redraft score "One spring day, Anna walked to the garden."')
        from redraft.apps.cli.models import open_for  # imports torch, so only after the flags have been checked
        from redraft.tasks.scoring import score

        model = open_for(name, texts, self.model_flags)
        with Progress(f"scoring {len(texts):,} texts"):
            results = score(model, texts, **vars(self.settings))
        for result, record in zip(results, results.to_json(), strict=True):
            error = f" ± {result.stderr:.2g}" if result.stderr else ""
            rates = f"{result.bits_per_token:.3f} per token, {result.bits_per_char:.3f} per character"
            emit(record, self.json, f"{result.bits:8.2f}{error} bits, {rates}: {result.text}")
        kind, cost = "exactly" if results.exact else "at most", f"{results.nfe:.1f} network calls per text"
        print_note(f"{len(results):,} texts: {kind} {results.bits_per_token:.3f} bits per token; {cost}")


def _model_and_text(model: str | None, text: str | None) -> tuple[str | None, str | None]:
    """Sort the positional arguments: a text without a model is for the default model, None.

    A single word is always a model, so that a mistyped directory does not become a prompt.
    """
    alone = text is None and model is not None and (" " in model or "[[" in model) and not Path(model).is_dir()
    return (None, model) if alone else (model, text)


def _with_schema(settings: _Settings) -> _Settings:
    """Read the file of --schema, unless its value is a JSON object itself; it must be JSON."""
    if settings.schema is None:
        return settings
    text = settings.schema if settings.schema.lstrip().startswith("{") else _read_schema(settings.schema)
    try:
        jsonlib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f'--schema is not JSON ({error}); give an object such as {{"type": "object"}}') from None
    return replace(settings, schema=text)


def _read_schema(name: str) -> str:
    try:
        return Path(name).read_text("utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(
            f"--schema {name:.60}: neither a JSON object nor a readable file ({reason}); give one of the two"
        ) from None


def _prompts(text: str | None) -> list[str]:
    """Return the text of the command line, or the non-blank lines of stdin if it is "-" or missing."""
    if text is None and not _stdin_has_data():
        return []
    if text is not None and text != "-":
        return [decode_text(text, "the text given")]
    lines = stdin_lines()
    if text == "-" and not lines:
        raise ValueError("stdin has no text; write one line per text, or give the text as an argument")
    return lines


def _stdin_has_data() -> bool:
    """Whether stdin is a pipe or a file, rather than a terminal, /dev/null or closed."""
    try:
        kind = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISREG(kind)


def _tokens(count: int) -> str:
    return f"{count} token{'s' * (count != 1)}"
