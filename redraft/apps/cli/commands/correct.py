"""`redraft correct`, a thin layer over `redraft.tasks.correct`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from redraft.apps.cli.commands.write import _model_and_text, _prompts
from redraft.apps.cli.model_flags import ModelFlags, model_setting
from redraft.apps.cli.output import emit, print_note
from redraft.apps.cli.streams import decode_text
from redraft.models.shipped import INSTALL_SMOL, SMOL, has_smol
from redraft.tasks.arguments.setting import Checked, setting
from redraft.tasks.arguments.settings import CorrectSettings
from redraft.training.progress import Progress

if TYPE_CHECKING:
    from redraft.tasks.correction.correction import CorrectionResult, CorrectionResults
    from redraft.tasks.correction.lexicon import Lexicon
    from redraft.tasks.engine.model import TextModel

_BATCH = 256  # texts corrected in one call
_COLORS = "\x1b[9;31m{}\x1b[0m", "\x1b[32m{}\x1b[0m"  # struck through in red; green
_MARKS = "[-{}-]", "{{+{}+}}"


@dataclass(frozen=True)
class CorrectTexts(Checked):
    """Correct spelling: weigh how words are misspelled against the surrounding text.

    Everything else is kept byte for byte. So are words with a digit and, unless --names is given, capitalized words
    within a sentence. Texts in a language that the model does not know are refused.
    """

    model: str | None = model_setting(otherwise=f"{SMOL}, for English")
    text: str | None = setting(
        None, "The text; with - or a pipe, one text per line of stdin.", metavar="TEXT", positional=True
    )
    settings: CorrectSettings = CorrectSettings()
    words: Path | None = setting(
        None,
        "A text file with the known words; their frequencies are taken from it too.",
        otherwise=f"the model's own words, or those of its training data; English ones for {SMOL}",
        metavar="FILE",
        group="Text",
    )
    diff: bool = setting(False, "Show the changes, in color on a terminal, else as [-old-]{+new+}.", group="Output")
    explain: bool = setting(False, "Also say on stderr why each word was changed.", group="Output")
    json: bool = setting(
        False,
        "Print a JSON object per text: the text, and each change with its probability and reason.",
        group="Output",
    )
    model_flags: ModelFlags = ModelFlags()

    def _require_agreement(self) -> None:
        for word in self.settings.keep:
            decode_text(word, "--keep")
        if self.diff and self.json:
            raise ValueError("--diff and --json cannot be combined; the JSON object already has all changes")

    def __call__(self) -> None:
        name, text = _model_and_text(self.model, self.text)
        if not (texts := _prompts(text)):
            raise ValueError('give a text: redraft correct "One spirng day, Anna wlaked to the graden."')
        if name is None and not has_smol():
            raise ValueError(f"English needs {SMOL}: {INSTALL_SMOL}; or name a model: redraft correct DIR TEXT")
        from redraft.apps.cli.models import open_model  # imports torch, so only after the flags have been checked
        from redraft.tasks.correction.correction import known_lexicon

        counts = None if self.words is None else _count_words(self.words)
        model = open_model(name or SMOL, self.model_flags)
        lexicon = None if counts is None else known_lexicon(model, counts)
        changes, calls, seconds = 0, 0.0, 0.0
        with Progress("texts corrected", len(texts)) as progress:
            for results in self._correct_batches(model, texts, lexicon):
                progress.advance(len(results))
                with progress.paused():
                    self._print(results)
                changes += sum(len(result.changes) for result in results)
                calls, seconds = calls + results.nfe * len(results), seconds + results.seconds
        count = f"{changes} change{'s' * (changes != 1)} in {len(texts)} text{'s' * (len(texts) != 1)}"
        print_note(f"{count}; {calls / len(texts):.1f} network rows per text, {seconds:.1f} s")

    def _correct_batches(
        self, model: TextModel, texts: list[str], lexicon: Lexicon | None
    ) -> Iterator[CorrectionResults]:
        from redraft.tasks.correction.correction import correct

        for start in range(0, len(texts), _BATCH):
            yield correct(model, texts[start : start + _BATCH], words=lexicon, **vars(self.settings))

    def _print(self, results: CorrectionResults) -> None:
        for result, record in zip(results, results.to_json(), strict=True):
            emit(record, self.json, _format_diff(result, _wants_color()) if self.diff else result.text)
            for change in result.changes if self.explain else ():
                print_note(f"{change.was} → {change.now} ({change.probability:.1%}): {change.reason}")


def _count_words(file: Path) -> Mapping[str, float]:
    """Return the words of a file with their counts."""
    from redraft.tasks.correction.lexicon import Lexicon

    try:
        counts = Lexicon.of([file.read_text("utf-8")]).counts
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"--words {file}: the file cannot be read ({reason})") from None
    if not counts:
        raise ValueError(f"--words {file}: the file has no words; give a file of text")
    return counts


def _wants_color() -> bool:
    """Whether stdout is a terminal and the user has not turned colors off."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _format_diff(result: CorrectionResult, color: bool) -> str:
    """Return the input text with each change as the old and the new words, in color or marked by brackets."""
    old, new = _COLORS if color else _MARKS
    pieces, end = [], 0
    for change in result.changes:
        pieces += [result.given[end : change.start], old.format(change.was), new.format(change.now)]
        end = change.start + len(change.was)
    return "".join([*pieces, result.given[end:]])
