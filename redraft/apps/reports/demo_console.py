"""The demo as it is told in the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from redraft.apps.reports import page
from redraft.apps.reports.findings import _SHOWN, _DemoResults, _DemoTexts
from redraft.apps.reports.page import _Sample
from redraft.apps.reports.watch import Frame, display, styled
from redraft.models.diffusion_lm import DiffusionLM
from redraft.training.runs import metrics


def _print_heading(console: Console, title: str, note: str) -> None:
    """A stage of the demo."""
    console.print(Text.assemble("\n", (title, "bold"), ("  " + note, "dim")))


def _print_figures(console: Console, found: _DemoResults) -> None:
    """Both models beside the truth."""
    for name, scores, exact in (("masked diffusion", found.ours, "at most "), ("left to right", found.baseline, "")):
        console.print(
            f"{name:>18}: {exact}{scores.likelihood.bits_per_char:.4f} bits per character, "
            f"{metrics.format_excess(*scores.excess)}; {scores.grammar.share:.0%} of its stories are right",
            highlight=False,
        )
    console.print(f"{'the truth':>18}: {found.truth:.4f} bits per character of the same stories", highlight=False)


def _print_texts(console: Console, pieces: _DemoTexts, model: DiffusionLM) -> None:
    """What the model wrote, and one story being written."""
    console.print("Stories; dim from the first word on that cannot stand there:\n", style="italic")
    for story in pieces.stories:
        console.print(_styled(story), end="\n\n")
    console.print("Gaps filled in stories that it has not seen:\n", style="italic")
    for infill in pieces.infills:
        console.print(styled(Frame(0, infill.tokens)), end="\n\n")
    console.print("One story from noise to text:\n", style="italic")
    if not console.quiet:
        # where nothing can be redrawn, print some of the steps as lines
        thin = 1 if console.is_terminal else max(1, len(pieces.canvases) // _SHOWN)
        display(pieces.canvases[::-thin][::-1], model, console=console)
    if console.is_terminal:
        console.print(pieces.frames[-1].text, highlight=False, markup=False)


def _styled(story: _Sample) -> Text:
    """✓ with the true log-probability, or ✗; then the text, dimmed from its first error on."""
    if story.whole:
        return Text.assemble(("✓ ", "bold green"), (page._format_number(f"{story.bits:.1f} bits  "), "dim"), story.text)
    return Text.assemble(("✗ ", "bold red"), story.text[: story.right], (story.text[story.right :], "dim"))


def _print_next_steps(console: Console, out: Path, commands: Iterable[page.Command]) -> None:
    """Where the report is, and what to try next."""
    _print_heading(console, "Done", f"open {out / 'report.html'} in a browser, and go on:")
    for command in commands:
        line = Text.assemble(("# " + command.purpose + "\n", "dim"), command.line)
        console.print(line, soft_wrap=True)
