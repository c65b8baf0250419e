"""The demo: a diffusion model learns to write small stories, is held against the truth, writes, and leaves a report.

    runs/demo/   the run itself (checkpoints, metrics.jsonl), ar/ (the baseline),
                 report.html  result.json  writing.svg

The stories come from a grammar with known probabilities, so "how good" has an exact answer. Called again it goes on
where it was interrupted, and training that is finished is not done again.
"""

from __future__ import annotations

import json as jsonlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.text import Text

from redraft import ops, presets
from redraft.corpora import STORIES, Follow, StoriesData, Telling
from redraft.data import evaluation, tokenise
from redraft.evaluate import BIT, Grammar, Likelihood, excess, grammatical, likelihood
from redraft.model import DiffusionLM
from redraft.runs import Run, metrics
from redraft.show import charts, picture
from redraft.show import page as report
from redraft.show.page import Sample, Section
from redraft.show.watch import Frame, frames, styled, watch
from redraft.text import spell, split_words
from redraft.train import fit
from redraft.types import Batch, Canvas
from redraft.write import Generated, generate

HELD_OUT = 256  # stories of the test stream that both models are measured on
WRITTEN = 128  # stories that each model writes
SHOWN = 6  # of these, the first ones


def demo(
    out: Path = Path("runs/demo"), *, seed: int = 0, minutes: float = 4.0, json: bool = False, quiet: bool = False
) -> None:
    """Train, measure, write and report: the whole story in a few minutes.

    Args:
        out: where the run, report.html, result.json and writing.svg go
        seed: of the weights, the noise and the texts
        minutes: of training on two cores, about; it scales the number of steps, so that a seed gives the same model
            on a slower machine
        json: print result.json as one line on stdout
        quiet: no progress and no story-telling
    """
    console = Console(stderr=json, quiet=quiet)
    ours, baseline = runs(seed, minutes)
    _heading(console, "1/4  Learning", f"masked diffusion, {ours.steps} steps of {ours.batch} stories")
    model = Trained.fit(ours, out, quiet)
    _heading(console, "2/4  A baseline", f"the same network, left to right, {baseline.steps} steps")
    causal = Trained.fit(baseline, out / "ar", quiet)
    _heading(console, "3/4  Against the truth", f"{HELD_OUT} unseen stories, {WRITTEN} stories written by each")
    clock = time.perf_counter()
    found = Findings(Scores.of(model, seed), Scores.of(causal, seed), seed)
    _tell_figures(console, found)
    _heading(console, "4/4  Writing", "the first stories, gaps filled, and one story from noise to text")
    pieces = Pieces.of(found)
    _tell_pieces(console, pieces, model.model)
    seconds = time.perf_counter() - clock
    commands = next_commands(out, pieces.gaps[0].template)
    _leave(out, found, sections(found, pieces, seconds, commands), pieces.frames)
    _farewell(console, out, commands)
    if json:
        print(jsonlib.dumps(found.result()), flush=True)


def runs(seed: int, minutes: float) -> tuple[Run, Run]:
    """The diffusion model, and the autoregressive baseline for a quarter of its steps; both measured as they learn."""
    if not minutes > 0:
        raise ValueError(f"minutes={minutes:g}; training takes some time, say --minutes 4")
    ours, baseline = presets.mdlm_tiny(), presets.ar_tiny()
    steps = max(1, round(ours.steps * minutes / 4))
    return _adjusted(ours, steps, seed), _adjusted(baseline, max(1, steps // 4), seed)


def _adjusted(run: Run, steps: int, seed: int) -> Run:
    """Measured eight times, for the curve."""
    return replace(run, steps=steps, seed=seed, eval_every=max(1, steps // 8))


# What was found -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """A trained model and how it came to be."""

    run: Run
    model: DiffusionLM
    log: tuple[dict[str, Any], ...]  # the lines of metrics.jsonl

    @classmethod
    def fit(cls, run: Run, out: Path, quiet: bool) -> Trained:
        model = fit(run, out, quiet=quiet)
        return cls(run, model, tuple(metrics.read(out)))

    def curve(self, key: str) -> tuple[tuple[int, float], ...]:
        """What the log says of a quantity, by step."""
        return tuple((line["step"], line[key]) for line in self.log if key in line)

    @cached_property
    def unseen(self) -> list[Batch]:
        """Stories of the test stream."""
        return evaluation(tokenise(self.run.data, "test", self.run.tokenizer, self.run.framing), HELD_OUT)

    def story(self, index: int) -> str:
        """The text of a story of the test stream."""
        assert isinstance(self.run.data, StoriesData)
        return self.run.data.document("test", index)

    @property
    def tokens(self) -> float:
        """Learnt from in training: as many in each row as in the rows of the test stream."""
        learnt = sum(int(b.learn.sum()) for b in self.unseen) / sum(len(b.tokens) for b in self.unseen)
        return self.run.steps * self.run.batch * learnt

    @property
    def seconds(self) -> float:
        """Of training alone, evaluation and checkpoints left out, by the log: also true of a run that was resumed."""
        speeds = self.curve("tokens_per_second")
        steps = [step for step, _ in speeds]
        each = self.tokens / self.run.steps
        return sum(each * (to - since) / v for since, (to, v) in zip([0, *steps], speeds, strict=False))

    def blank(self, rows: int) -> Canvas:
        """Room for whole stories."""
        given = self.run.model.vocab.bos is not None  # a canvas begins with it
        return self.model.canvas(new=self.run.framing.length - given, rows=rows)

    def ended(self, canvas: Canvas) -> Canvas:
        """A text that is complete: the rest of the row is end signs, as in training."""
        end, rest = self.run.model.vocab.eos, self.run.framing.length - canvas.z.shape[1]
        if end is None or rest < 0:
            raise ValueError(f"a text of {canvas.z.shape[1]} tokens and its end do not fit the rows of this run")
        inside = canvas.context.inside
        context = replace(canvas.context, inside=None if inside is None else F.pad(inside, (0, rest), value=False))
        z, fixed = F.pad(canvas.z, (0, rest), value=end), F.pad(canvas.fixed, (0, rest), value=True)
        return replace(canvas, z=z, fixed=fixed, context=context)

    def writing(self, canvas: Canvas, row: int, seed: int) -> tuple[Canvas, ...]:
        """How a canvas of one row is written, with the random numbers of row number `row`."""
        keys = ops.rng(seed, torch.tensor([row], device=canvas.z.device))
        return tuple(self.run.sampler(self.model, self.model.process, canvas, rng=keys))

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())


@dataclass(frozen=True)
class Scores:
    """A model against the truth."""

    trained: Trained
    likelihood: Likelihood
    excess: tuple[float, float]  # bits per character above the truth, and the standard error
    generated: Generated
    grammar: Grammar

    @property
    def first_sentence(self) -> float:
        """The share of the written stories that begin with a right sentence, of those that have one."""
        return self.grammar.by_sentence[0] if self.grammar.by_sentence else 0.0

    @classmethod
    def of(cls, model: Trained, seed: int) -> Scores:
        found = likelihood(model.model, model.unseen, seed=seed)
        truth = [STORIES.log_prob(model.story(i)) for i in range(HELD_OUT)]
        generated = generate(model.model, model.run.sampler, model.blank(WRITTEN), seed=seed)
        return cls(model, found, excess(found, truth), generated, grammatical(generated.texts))


@dataclass(frozen=True)
class Findings:
    """Both models' scores, and the figures that sum them up."""

    ours: Scores
    baseline: Scores
    seed: int

    @property
    def limit(self) -> float:
        """The entropy of the stories in bits per character: no model can do better."""
        return STORIES.entropy_per_char() / BIT

    @property
    def truth(self) -> float:
        """Bits per character of the measured stories under their true probabilities; some are likelier than others."""
        return self.ours.likelihood.bits_per_char - self.ours.excess[0]

    def result(self) -> dict[str, float | int | str]:
        """What result.json holds."""
        ours, baseline, model = self.ours, self.baseline, self.ours.trained
        return {
            "bits_per_char": ours.likelihood.bits_per_char,
            "entropy_bits_per_char": self.limit,
            "excess_bits_per_char": ours.excess[0],
            "ar_bits_per_char": baseline.likelihood.bits_per_char,
            "grammatical": ours.grammar.share,
            "train_seconds": model.seconds,
            "tokens_per_second": model.tokens / model.seconds,
            "excess_stderr": ours.excess[1],
            "first_sentence": ours.first_sentence,
            "nfe": ours.generated.nfe,
            "ar_excess_bits_per_char": baseline.excess[0],
            "ar_grammatical": baseline.grammar.share,
            "ar_train_seconds": baseline.trained.seconds,
            "steps": model.run.steps,
            "seed": self.seed,
            "run": model.run.digest,
        }


@dataclass(frozen=True)
class Pieces:
    """What the model wrote."""

    stories: tuple[Sample, ...]
    gaps: tuple[Gap, ...]
    infills: tuple[report.Infill, ...]
    canvases: tuple[Canvas, ...]  # one story being written
    frames: tuple[Frame, ...]  # the same to look at

    @classmethod
    def of(cls, found: Findings) -> Pieces:
        model, stories = found.ours.trained, tuple(map(judged, found.ours.generated.texts))
        best = max(range(len(stories)), key=lambda i: (stories[i].whole, stories[i].right))  # stays right longest
        gaps = tuple(cut(model, HELD_OUT + i) for i in range(2))
        # a row draws from a key of its own: alone it is written as it was among the others
        canvases = model.writing(model.blank(1), row=best, seed=found.seed)
        infills = tuple(filled(model, gap, found.seed) for gap in gaps)
        return cls(stories[:SHOWN], gaps, infills, canvases, tuple(frames(canvases, model.model)))


def judged(text: str) -> Sample:
    """A text with its true log-probability, and how far any story agrees with it."""
    follow = Follow(split_words(text))
    STORIES.tale.tell(Telling(), follow)
    agreed = spell(follow.heard[: follow.reach])
    right = next(n for n in range(len(agreed), -1, -1) if text.startswith(agreed[:n]))
    return Sample(text, STORIES.log_prob(text) / BIT, right)


@dataclass(frozen=True)
class Gap:
    """A story with holes, as one types it, and the words that stood there."""

    template: str
    hidden: tuple[str, ...]


def cut(model: Trained, index: int) -> Gap:
    """Holes in a story that the model has not seen: five words after its first quarter, six after its half."""
    words = split_words(model.story(index))
    first, second = len(words) // 4, len(words) // 2
    a, b, c, d, e = (
        spell(words[lo:hi])
        for lo, hi in ((0, first), (first, first + 5), (first + 5, second), (second, second + 6), (second + 6, None))
    )
    holes = [f"[[{len(model.run.tokenizer.encode(hidden))}]]" for hidden in (b, d)]
    return Gap(f"{a} {holes[0]} {c} {holes[1]} {e}", (b, d))


def filled(model: Trained, gap: Gap, seed: int) -> report.Infill:
    """The story again, its holes filled by the model; all else is as it was."""
    canvas = model.ended(model.model.infill(gap.template))
    *_, end = frames(model.writing(canvas, row=0, seed=seed), model.model)
    return report.Infill(end.tokens, judged(end.text), gap.hidden)


# Telling it in the terminal -----------------------------------------------------------------------------------------


def _heading(console: Console, title: str, note: str) -> None:
    console.print(Text.assemble("\n", (title, "bold"), ("  " + note, "dim")))


def _tell_figures(console: Console, found: Findings) -> None:
    for name, scores, exact in (("masked diffusion", found.ours, "at most "), ("left to right", found.baseline, "")):
        console.print(
            f"{name:>18}: {exact}{scores.likelihood.bits_per_char:.4f} bits per character, "
            f"{metrics.excess(*scores.excess)}; {scores.grammar.share:.0%} of its stories are right",
            highlight=False,
        )
    console.print(f"{'the truth':>18}: {found.truth:.4f} bits per character of the same stories", highlight=False)


def _tell_pieces(console: Console, pieces: Pieces, model: DiffusionLM) -> None:
    console.print("Stories; dim from the first word on that cannot stand there:\n", style="italic")
    for story in pieces.stories:
        console.print(_styled(story), end="\n\n")
    console.print("Gaps filled in stories that it has not seen:\n", style="italic")
    for infill in pieces.infills:
        console.print(styled(Frame(0, infill.tokens)), end="\n\n")
    console.print("One story from noise to text:\n", style="italic")
    if not console.quiet:
        # where nothing can be redrawn, some of the steps as lines
        thin = 1 if console.is_terminal else max(1, len(pieces.canvases) // SHOWN)
        watch(pieces.canvases[::-thin][::-1], model, console=console)
    if console.is_terminal:
        console.print(pieces.frames[-1].text, highlight=False, markup=False)


def _styled(story: Sample) -> Text:
    """✓ with the true log-probability, or ✗; the text; where it goes wrong it turns dim."""
    if story.whole:
        return Text.assemble(("✓ ", "bold green"), (report.minus(f"{story.bits:.1f} bits  "), "dim"), story.text)
    return Text.assemble(("✗ ", "bold red"), story.text[: story.right], (story.text[story.right :], "dim"))


def _farewell(console: Console, out: Path, commands: Iterable[report.Command]) -> None:
    _heading(console, "Done", f"open {out / 'report.html'} in a browser, and go on:")
    for command in commands:
        line = Text.assemble(("# " + command.purpose + "\n", "dim"), command.line)
        console.print(line, soft_wrap=True)


def next_commands(out: Path, template: str) -> tuple[report.Command, ...]:
    """Lines that work as they stand, from where the demo was called."""
    path = os.path.relpath(Path(sys.executable).with_name("redraft"))
    redraft, run, longer = "redraft" if shutil.which("redraft") else path, quote(str(out)), quote(f"{out}-long")
    return (
        report.Command("Watch it write", f"{redraft} generate {run} --watch"),
        report.Command("Fill gaps", f"{redraft} infill {run} {quote(template)}"),
        report.Command("Measure it again", f"{redraft} eval {run} --split test"),
        report.Command("Learn four times as long", f"{redraft} demo --minutes 16 --out {longer}"),
        report.Command("Learn from text of your own", f"{redraft} train mdlm_tiny --data my.txt --out runs/mine"),
    )


# Leaving it in files ------------------------------------------------------------------------------------------------


def _leave(out: Path, found: Findings, parts: list[Section], written: tuple[Frame, ...]) -> None:
    (out / "result.json").write_text(jsonlib.dumps(found.result(), indent=1) + "\n")
    (out / "writing.svg").write_text(picture.picture(written), "utf-8")
    model = found.ours.trained
    summary = (
        f"A masked diffusion model of {model.parameters / 1e6:.1f} million weights has learnt to write small stories. "
        "They come from a grammar with known probabilities, so everything here can be held against the truth."
    )
    footer = f"Run {model.run.digest}, seed {found.seed}, by redraft demo. The figures are in result.json."
    title = f"From noise to stories, learnt in {report.clock(model.seconds)}"
    report.write(out / "report.html", title, summary, parts, footer)


def sections(found: Findings, pieces: Pieces, seconds: float, commands: tuple[report.Command, ...]) -> list[Section]:
    """The page, from the headline to the commands to go on."""
    return [
        Section("", (_headline(found),)),
        Section(
            "From noise to text",
            (report.Writing(pieces.frames),),
            "Each column is a place in the text, each row a step of the sampler, from noise at the top to the story at "
            "the bottom. Words appear in any order, each chosen with all others in view. Of the stories that the model "
            "wrote, this one stays right longest.",
        ),
        Section(
            "Against the truth",
            (_bars(found), _comparison(found)),
            "A bar is what is still to be learnt: bits per character above the truth, with one standard error to both "
            f"sides. Both models read the same {HELD_OUT} unseen stories. The figure of the baseline is exact, that of "
            "diffusion an upper bound. In return diffusion writes in any order and fills gaps.",
        ),
        Section(
            "Learning",
            (_curves(found),),
            "How far unseen stories are above the truth falls towards zero. The training losses of the two models are "
            "different quantities: masked cross-entropy over all noise levels, and the likelihood of the next token.",
        ),
        Section(
            "The first six stories it wrote",
            (report.Samples(pieces.stories),),
            "Not chosen. A story that the grammar can tell has a true log-probability; in any other, the first word "
            "that cannot stand there is marked.",
        ),
        Section(
            "Gaps filled",
            (report.Infills(pieces.infills),),
            "Stories that it has not seen, with two holes each; what it wrote is marked, all else was given.",
        ),
        Section(
            "While it learnt", (_progress(found),), "One story, written with the same random numbers at three moments."
        ),
        Section(
            "Time",
            (_times(found),),
            f"Training without the measuring between steps. All measuring and writing took {report.clock(seconds)}.",
        ),
        Section("Go on", (report.Commands(commands),)),
    ]


def _headline(found: Findings) -> report.Figures:
    r, model = found.result(), found.ours.trained
    over, error = found.ours.excess
    return report.Figures(
        (
            report.Figure("above the truth", f"{over:.4f}", f"± {error:.4f} bits per character"),
            report.Figure("bits per character", f"{r['bits_per_char']:.4f}", f"at most, on {HELD_OUT} unseen stories"),
            report.Figure("the truth", f"{found.truth:.4f}", "bits per character of the same stories"),
            report.Figure("left to right", f"{r['ar_bits_per_char']:.4f}", "baseline, a quarter of the steps"),
            report.Figure("stories right", f"{r['grammatical']:.0%}", f"of {WRITTEN}, every word of them"),
            report.Figure("training", report.clock(model.seconds), f"{r['tokens_per_second']:,.0f} tokens a second"),
        )
    )


def _bars(found: Findings) -> charts.Bars:
    def bar(name: str, scores: Scores) -> charts.Bar:
        value, error = scores.excess
        return charts.Bar(name, value, f"{scores.likelihood.bits_per_char:.4f} in all", error)

    return charts.Bars(
        (bar("masked diffusion", found.ours), bar("left to right", found.baseline)), "bits per character"
    )


def _comparison(found: Findings) -> report.Table:
    return _side_by_side(
        found,
        ("steps of training", lambda s: f"{s.trained.run.steps:,}"),
        ("first sentence right", lambda s: f"{s.first_sentence:.0%}"),
        ("whole story right", lambda s: f"{s.grammar.share:.0%}"),
        ("network calls a story", lambda s: f"{s.generated.nfe:.1f}"),
    )


def _times(found: Findings) -> report.Table:
    return _side_by_side(
        found,
        ("training", lambda s: report.clock(s.trained.seconds)),
        ("training, tokens a second", lambda s: f"{s.trained.tokens / s.trained.seconds:,.0f}"),
        (f"writing {WRITTEN} stories", lambda s: report.clock(s.generated.seconds)),
        ("writing, tokens a second", lambda s: f"{s.generated.tokens_per_second:,.0f}"),
    )


def _side_by_side(found: Findings, *rows: tuple[str, Callable[[Scores], str]]) -> report.Table:
    cells = tuple((name, tell(found.ours), tell(found.baseline)) for name, tell in rows)
    return report.Table(("", "masked diffusion", "left to right"), cells)


def _curves(found: Findings) -> charts.Charts:
    def curves(key: str) -> tuple[charts.Curve, ...]:
        named = (("masked diffusion", found.ours), ("left to right", found.baseline))
        return tuple(charts.Curve(name, scores.trained.curve(key)) for name, scores in named)

    above = "bits per character above the truth"
    unseen = charts.Chart("Unseen stories", "step", above, curves("valid_excess_bits_per_char"))
    training = charts.Chart("Training", "step", "loss in bits per token", curves("train_loss_bits_per_token"))
    return charts.Charts((unseen, training))


def _progress(found: Findings) -> report.Samples:
    moments = [line for line in found.ours.trained.log if line.get("samples")]
    return report.Samples(
        tuple(replace(judged(line["samples"][0]), label=f"after {line['step']} steps") for line in moments[::3][:3])
    )
