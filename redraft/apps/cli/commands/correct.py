"""`redraft correct`: a thin layer over `redraft.tasks.correct`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import OmitArgPrefixes, Positional, arg

from redraft.apps.cli.arguments import Flag
from redraft.apps.cli.commands.write import _prompts
from redraft.apps.cli.model_flags import ModelFlags
from redraft.apps.cli.output import emit, print_note
from redraft.apps.cli.progress import Progress
from redraft.apps.cli.streams import decode_text
from redraft.tasks.arguments.settings import CorrectSettings, optional_argument

if TYPE_CHECKING:
    from redraft.tasks.correction.correction import CorrectionResult, CorrectionResults
    from redraft.tasks.correction.lexicon import Lexicon
    from redraft.tasks.engine.model import TextModel

_TOGETHER = 256  # texts that are corrected in one call
_COLORS = "\x1b[9;31m{}\x1b[0m", "\x1b[32m{}\x1b[0m"  # struck out in red, green
_MARKS = "[-{}-]", "{{+{}+}}"


@dataclass(frozen=True)
class CorrectTexts:
    """Correct the spelling of texts: the likeliest words, by how words are misspelt and by the text around them.

    Everything else stays as it is, byte for byte. Digits and names are safe: words with a digit in them, and words with
    a capital inside of a sentence unless --names.
    """

    model: Annotated[Positional[Path], arg(metavar="DIR")]
    """Directory of a run, a checkpoint or an exported model."""
    text: Annotated[Positional[str | None], optional_argument("TEXT")] = None
    """The text; with - or a pipe, one text per line of stdin."""
    settings: OmitArgPrefixes[CorrectSettings] = CorrectSettings()
    words: Annotated[Path | None, optional_argument("FILE", "the model's own words, or those of its training data")] = (
        None
    )
    """A text file whose words are known, each as frequent as it is there."""
    diff: Flag = False
    """Show what was changed: in colour on a terminal, else as [-was-]{+now+}."""
    json: Flag = False
    """One JSON object per text: the text, and each change with its probability."""
    opening: OmitArgPrefixes[ModelFlags] = ModelFlags()

    def __post_init__(self) -> None:
        for word in self.settings.keep:
            decode_text(word, "--keep")
        if self.diff and self.json:
            raise ValueError("--diff and --json: choose one; the JSON object has all changes")

    def __call__(self) -> None:
        if not (texts := _prompts(self.text)):
            raise ValueError('give a text: redraft correct DIR "One spirng day, Anna wlaked to the graden."')
        from redraft.apps.cli.models import open_model  # torch is loaded when the words are right
        from redraft.tasks.correction.correction import known_lexicon

        counts = None if self.words is None else _counted(self.words)
        it = open_model(self.model, self.opening)
        known = None if counts is None else known_lexicon(it, counts)
        changes, calls, seconds = 0, 0.0, 0.0
        with Progress("texts corrected", len(texts)) as progress:
            for found in self._some(it, texts, known):
                progress.advance(len(found))
                with progress.silent():
                    self._print(found)
                changes += sum(len(each.changes) for each in found)
                calls, seconds = calls + found.nfe * len(found), seconds + found.seconds
        print_note(
            f"{changes} changes in {len(texts)} texts; {calls / len(texts):.1f} rows read per text, {seconds:.1f} s"
        )

    def _some(self, it: TextModel, texts: list[str], known: Lexicon | None) -> Iterator[CorrectionResults]:
        from redraft.tasks.correction.correction import correct

        for begin in range(0, len(texts), _TOGETHER):
            yield correct(it, texts[begin : begin + _TOGETHER], words=known, **vars(self.settings))

    def _print(self, found: CorrectionResults) -> None:
        for each, record in zip(found, found.to_json(), strict=True):
            emit(record, self.json, format_diff(each, wants_color()) if self.diff else each.text)


def _counted(file: Path) -> Mapping[str, float]:
    """The words of a file, and how often each is there."""
    from redraft.tasks.correction.lexicon import Lexicon

    try:
        counts = Lexicon.of([file.read_text("utf-8")]).counts
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"--words {file}: the file cannot be read ({said})") from None
    if not counts:
        raise ValueError(f"--words {file}: the file has no words")
    return counts


def wants_color() -> bool:
    """Whether stdout is a terminal that wants colours."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def format_diff(each: CorrectionResult, colours: bool) -> str:
    """The given text with its changes: what was, then what is."""
    was, now = _COLORS if colours else _MARKS
    pieces, at = [], 0
    for change in each.changes:
        pieces += [each.given[at : change.start], was.format(change.was), now.format(change.now)]
        at = change.start + len(change.was)
    return "".join([*pieces, each.given[at:]])
