"""`redraft generate`, `infill`, `rewrite`, `control`, `choose` and `score`: a thin layer over `redraft.tasks`."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from tyro.conf import OmitArgPrefixes, Positional, arg

from redraft.apps.cli.arguments import Flag, name_flags
from redraft.apps.cli.checks import require_svg
from redraft.apps.cli.model_flags import ModelFlags
from redraft.apps.cli.output import emit, print_note
from redraft.apps.cli.progress import Progress
from redraft.apps.cli.streams import decode_text, stdin_lines
from redraft.models.shipped import STORY
from redraft.tasks.arguments.settings import (
    ControlSettings,
    GenerationSettings,
    InfillSettings,
    RewriteSettings,
    ScoreSettings,
    optional_argument,
)
from redraft.tasks.arguments.templates import require_holes

if TYPE_CHECKING:
    from redraft.core.canvas import Canvas
    from redraft.tasks.engine.loop import DecodingLoop
    from redraft.tasks.engine.plan import DecodingPlan
    from redraft.tasks.engine.result import TextResults


_Settings = TypeVar("_Settings", ControlSettings, GenerationSettings, InfillSettings, RewriteSettings)


@dataclass(frozen=True)
class DisplayFlags:
    """How to show what is written."""

    watch: Flag = False
    """Show the first text being written, on stderr."""
    strip: Annotated[Path | None, optional_argument("FILE.svg")] = None
    """Draw the first text at six of its steps, from noise to the end."""
    profile: Flag = False
    """Print where the time went, on stderr: network, output layer, rules, sampler."""
    json: Flag = False
    """One JSON object per text: the text, its tokens with confidence and step, why it ends, and what it cost."""
    opening: OmitArgPrefixes[ModelFlags] = ModelFlags()

    def __post_init__(self) -> None:
        require_svg("--strip", self.strip)

    def write(self, plans: Sequence[DecodingPlan]) -> None:
        """Prints each text when it is there, and in the end what all of them cost."""
        for said in dict.fromkeys(said for plan in plans for said in plan.notes):
            print_note(name_flags(said))
        for plan in plans:
            self._one(plan)

    def _one(self, plan: DecodingPlan) -> None:
        from redraft.tasks.engine.profiler import profile_model

        tokens, calls, seconds, steps = 0, 0.0, 0.0, 0
        profile = profile_model(plan.model.lm) if self.profile else nullcontext()
        with Progress("texts written", len(plan)) as progress, profile as spent:
            for writing in plan.loops():
                found = self._some(plan, writing, progress)
                tokens, seconds = tokens + found.new_tokens, seconds + found.seconds
                calls, steps = calls + found.nfe * len(found), steps + writing.canvas_count
        speed = "" if self.watch else f", {tokens / seconds:,.0f} tokens/s"
        print_note(f"{tokens} tokens by {plan.sampler}: {calls / len(plan):.1f} network calls per text{speed}")
        if (tally := plan.draft_stats) is not None:
            share = f"{tally.acceptance:.0%} of {tally.drafted} drafted tokens accepted"
            print_note(f"{share}, {tally.tokens_per_round:.2f} tokens per pass of the model")
        if spent is not None:
            print_note("\n".join(spent.lines(seconds, steps)))

    def _some(self, plan: DecodingPlan, writing: DecodingLoop, progress: Progress) -> TextResults:
        """Writes some rows and prints them."""
        first = writing.first_row == plan.first_row
        seen: list[Canvas] = []
        watched, canvases = self.watch and first, _kept(writing, seen) if self.strip and first else writing
        with progress.silent() if watched else nullcontext():
            _watch(canvases, writing) if watched else _count(canvases, progress)
        if self.strip and first:
            _draw(seen, writing, self.strip)
        found = plan.loop_results(writing)
        progress.advance(len(found))
        with progress.silent():
            for written, record in zip(found, found.to_json() if self.json else found, strict=True):
                emit(record if isinstance(record, dict) else {}, self.json, written.text)
        return found


def _count(canvases: Iterable[Canvas], progress: Progress) -> None:
    for _ in progress.counting(canvases):
        pass


def _kept(canvases: Iterable[Canvas], seen: list[Canvas]) -> Iterator[Canvas]:
    for canvas in canvases:
        seen.append(canvas)
        yield canvas


def _draw(seen: Sequence[Canvas], writing: DecodingLoop, file: Path) -> None:
    from redraft.apps.reports.pictures import picture
    from redraft.apps.reports.watch import frames

    file.write_text(picture(list(frames(seen, writing.model))), "utf-8")
    print_note(f"{file}: the first text at some of its {len(seen) - 1} steps")


def _watch(canvases: Iterable[Canvas], writing: DecodingLoop) -> None:
    from rich.console import Console

    from redraft.apps.reports.watch import display

    display(canvases, writing.model, console=Console(stderr=True))


@dataclass(frozen=True)
class Generate:
    """Write texts, from scratch or from given beginnings."""

    model: Annotated[Positional[str], optional_argument("[DIR]", "the model that comes with the package")] = STORY
    """Directory of a run, a checkpoint or an exported model."""
    prompt: Annotated[Positional[str | None], optional_argument("[PROMPT]")] = None
    """The beginning of the text; with - or a pipe, one beginning per line of stdin."""
    settings: OmitArgPrefixes[GenerationSettings] = GenerationSettings()
    showing: OmitArgPrefixes[DisplayFlags] = DisplayFlags()

    def __post_init__(self) -> None:
        for flag, given in (("--source", self.settings.source), ("--label", self.settings.label)):
            decode_text(given or "", flag)

    def __call__(self) -> None:
        model, prompt = _asked(self.model, self.prompt)
        prompts = _prompts(prompt) or [""]
        from redraft.apps.cli.models import open_model  # torch is loaded when the words are right
        from redraft.tasks.generation import plan_generation

        settings = _with_schema(self.settings)
        self.showing.write([plan_generation(open_model(model, self.showing.opening), prompts, settings)])


@dataclass(frozen=True)
class Infill:
    """Fill the holes of a text: "She opened the [[6]] and [[2-5]], then [[*]]."

    [[6]] has six tokens, [[2-5]] two to five, [[*]] any number up to --room; the model finds out how many. Given text
    is kept byte for byte. A model trained on whole rows also writes a continuation, because it looks at the text that
    follows; it is only shown if the template ends with a hole for it.
    """

    model: Annotated[Positional[str], optional_argument("[DIR]", "the model that comes with the package")] = STORY
    """Directory of a run, a checkpoint or an exported model."""
    template: Annotated[Positional[str | None], optional_argument("TEMPLATE")] = None
    """Text with holes; with - or a pipe, one template per line of stdin."""
    settings: OmitArgPrefixes[InfillSettings] = InfillSettings()
    showing: OmitArgPrefixes[DisplayFlags] = DisplayFlags()

    def __call__(self) -> None:
        model, template = _asked(self.model, self.template)
        if not (templates := _prompts(template)):
            raise ValueError('give a text with holes: redraft infill DIR "She opened the [[6]] and [[3]]."')
        for template in templates:
            require_holes(template)
        from redraft.apps.cli.models import open_model  # torch is loaded when the words are right
        from redraft.tasks.infilling.infilling import plan_infilling

        settings = _with_schema(self.settings)
        self.showing.write(plan_infilling(open_model(model, self.showing.opening), templates, settings))


@dataclass(frozen=True)
class Rewrite:
    """Write a text again: edit it in place, or answer it, with a model trained on pairs.

    In place the text is noised to --strength and written again from there; words of --pin stay. A model trained on
    pairs reads the text as its source. With --candidates the text most like all of them is chosen.
    """

    model: Annotated[Positional[str], optional_argument("[DIR]", "the model that comes with the package")] = STORY
    """Directory of a run, a checkpoint or an exported model."""
    text: Annotated[Positional[str | None], optional_argument("TEXT")] = None
    """The text; with - or a pipe, one text per line of stdin."""
    settings: OmitArgPrefixes[RewriteSettings] = RewriteSettings()
    json: Flag = False
    """One JSON object per text: the text, its tokens with confidence and step, why it ends, and what it cost."""
    opening: OmitArgPrefixes[ModelFlags] = ModelFlags()

    def __post_init__(self) -> None:
        for word in self.settings.pinned:
            decode_text(word, "--pin")

    def __call__(self) -> None:
        model, given = _asked(self.model, self.text)
        if not (texts := _prompts(given)):
            raise ValueError('give a text: redraft rewrite DIR "One spring day, Anna walked to the garden."')
        from redraft.apps.cli.models import open_model  # torch is loaded when the words are right
        from redraft.tasks.rewriting import rewrite

        settings = _with_schema(self.settings)
        with Progress(f"rewriting {len(texts):,} texts"):
            found = rewrite(open_model(model, self.opening), texts, **vars(settings))
        for written, record in zip(found, found.to_json(), strict=True):
            emit(record, self.json, written.text)
        for said in found.notes:
            print_note(name_flags(said))
        print_note(f"{found.new_tokens} tokens by {found.sampler}: {found.nfe:.1f} network calls per text")


@dataclass(frozen=True)
class Control:
    """Write texts of given parts of speech, length, attributes and words; --json says how far each wish is met.

    Wishes are demanded: no text breaks them. With --scale parts of speech and an attribute only guide.
    """

    model: Annotated[Positional[str], optional_argument("[DIR]", "the model that comes with the package")] = STORY
    """Directory of a run, a checkpoint or an exported model."""
    settings: OmitArgPrefixes[ControlSettings] = ControlSettings()
    json: Flag = False
    """One JSON object per text: the text, `met` (1 for every wish that is fulfilled), and what it cost."""
    opening: OmitArgPrefixes[ModelFlags] = ModelFlags()

    def __call__(self) -> None:
        from redraft.apps.cli.models import open_model  # torch is loaded when the words are right
        from redraft.tasks.controlled.controlled import ControlRequest, plan_control

        it, settings = open_model(self.model, self.opening), _with_schema(self.settings)
        plan, wishes = plan_control(it, settings), ControlRequest(it, settings)
        with Progress(f"writing {len(plan):,} texts"):
            found = plan.results()
        met = [wishes.fulfillment(written.text) for written in found]
        for written, record, each in zip(found, found.to_json(), met, strict=True):
            emit(record | {"met": each}, self.json, written.text)
        means = (f"{name} {sum(each[name] for each in met) / len(met):.1%}" for name in met[0])
        print_note(f"{', '.join(means)}; {found.nfe:.1f} network calls per text by {found.sampler:.80}")


@dataclass(frozen=True)
class Choose:
    """How likely each answer is in the holes [[?]] of a text.

    Holes are filled with masks, as many as an answer has tokens; an answer's score is the product of what the network
    says of its tokens, and probabilities are the scores of one hole, normalised. Networks that write from left to right
    read each answer where it would stand: causal ones exactly, with the text after it.
    """

    model: Annotated[Positional[str], optional_argument("[DIR]", "the model that comes with the package")] = STORY
    """Directory of a run, a checkpoint or an exported model."""
    template: Annotated[Positional[str | None], optional_argument("TEMPLATE")] = None
    """Text with holes [[?]]; with - or a pipe, one template per line of stdin."""
    answers: Annotated[tuple[str, ...], arg(metavar="TEXT")] = ()
    """The answers, two or more."""
    json: Flag = False
    """One JSON object per hole: the best answer, all answers with their probabilities."""
    opening: OmitArgPrefixes[ModelFlags] = ModelFlags()

    def __post_init__(self) -> None:
        for answer in self.answers:
            decode_text(answer, "--answers")

    def __call__(self) -> None:
        model, template = _asked(self.model, self.template)
        templates = _prompts(template)
        if not templates or len(self.answers) < 2:
            raise ValueError('give a hole and answers: redraft choose DIR "The sky is [[?]]." --answers blue green')
        from redraft.apps.cli.models import open_model  # torch is loaded when the words are right
        from redraft.tasks.choice.choice import choose

        found = choose(open_model(model, self.opening), templates, self.answers)
        for chosen, record in zip(found, found.to_json(), strict=True):
            order = sorted(zip(chosen.probabilities, chosen.answers, strict=True), key=lambda pair: -pair[0])
            emit(record, self.json, "  ".join(f"{answer} {p:.3f}" for p, answer in order))
        if found.kind == "blocks":
            print_note("this network writes in blocks: what stands in later ones than the hole was not read")
        if not found.comparable:
            print_note("answers of different numbers of tokens: each was read in a hole of its own length")


@dataclass(frozen=True)
class ScoreTexts:
    """How likely a model finds texts: bits, exactly for models that write token by token, else an upper bound."""

    model: Annotated[Positional[str], optional_argument("[DIR]", "the model that comes with the package")] = STORY
    """Directory of a run, a checkpoint or an exported model."""
    text: Annotated[Positional[str | None], optional_argument("TEXT")] = None
    """A whole text; with - or a pipe, one text per line of stdin."""
    settings: OmitArgPrefixes[ScoreSettings] = ScoreSettings()
    json: Flag = False
    """One JSON object per text."""
    opening: OmitArgPrefixes[ModelFlags] = ModelFlags()

    def __call__(self) -> None:
        model, given = _asked(self.model, self.text)
        if not (texts := _prompts(given)):
            raise ValueError('give a text: redraft score DIR "One spring day, Anna walked to the garden."')
        from redraft.apps.cli.models import open_model  # torch is loaded when the words are right
        from redraft.tasks.scoring import score

        with Progress(f"scoring {len(texts):,} texts"):
            found = score(open_model(model, self.opening), texts, **vars(self.settings))
        for each, record in zip(found, found.to_json(), strict=True):
            error = f" ± {each.stderr:.2g}" if each.stderr else ""
            per = f"{each.bits_per_token:.3f} per token, {each.bits_per_char:.3f} per character"
            emit(record, self.json, f"{each.bits:8.2f}{error} bits, {per}: {each.text}")
        kind, cost = "exactly" if found.exact else "at most", f"{found.nfe:.1f} network calls per text"
        print_note(f"{len(found):,} texts: {kind} {found.bits_per_token:.3f} bits per token; {cost}")


def _asked(model: str, given: str | None) -> tuple[str, str | None]:
    """The model and the text; a text alone is for the model that comes with the package.

    A single word names a model, for a mistyped directory must not become a prompt.
    """
    alone = given is None and (" " in model or "[[" in model) and not Path(model).is_dir()
    return (STORY, model) if alone else (model, given)


def _with_schema(settings: _Settings) -> _Settings:
    """A schema that is no JSON object is the name of a file that holds one."""
    if settings.schema is None or settings.schema.lstrip().startswith("{"):
        return settings
    try:
        return replace(settings, schema=Path(settings.schema).read_text("utf-8"))
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(
            f"--schema {settings.schema:.60}: neither a JSON object nor a file that can be read ({said})"
        ) from None


def _prompts(given: str | None) -> list[str]:
    """What is given, or the lines of stdin that are not blank."""
    if given is None and not _piped():
        return []
    if given is not None and given != "-":
        return [decode_text(given, "the text given")]
    filled = stdin_lines()
    if given == "-" and not filled:
        raise ValueError("stdin has no text; write one line per text, or give the text as an argument")
    return filled


def _piped() -> bool:
    """Whether stdin is a pipe or a file; not if it is a terminal, nothing, or closed."""
    try:
        kind = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISREG(kind)
