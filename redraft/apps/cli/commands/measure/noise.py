"""`redraft noise`: the forward process, shown on a text."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from redraft.apps.cli.model_flags import ModelFlags
from redraft.apps.cli.output import emit, print_note, require_svg
from redraft.apps.cli.streams import decode_text
from redraft.tasks.arguments.setting import MOST_SEED, REQUIRED, Checked, setting

if TYPE_CHECKING:
    from redraft.apps.reports.noising import NoisyText
    from redraft.tasks.engine.model import TextModel


@dataclass(frozen=True)
class Noise(Checked):
    """Show what a model's forward process does to a text, from time 0 (clean) to 1 (noise).

    All times share their random numbers, so a token that is masked stays masked. Noisy vectors are decoded to text.
    """

    model: Path = setting(
        REQUIRED,
        "Directory of a run, a checkpoint or an exported model, or a model that ships with Redraft (story, smol). "
        "A codec alone is enough.",
        metavar="MODEL",
        positional=True,
    )
    text: str | None = setting(
        None, "The text to noise.", otherwise="a held-out text of the run", metavar="[TEXT]", positional=True
    )
    times: int = setting(6, "Number of times, evenly spaced from 0 to 1.", least=2, most=1000)
    seed: int = setting(0, "Seed of the noise.", least=0, most=MOST_SEED)
    strip: Path | None = setting(None, "Draw the noisy texts as a picture.", metavar="FILE.svg", group="Output")
    json: bool = setting(
        False, "Print a JSON object per time: the fraction of unchanged tokens, and the text.", group="Output"
    )
    model_flags: ModelFlags = ModelFlags()

    def _require_agreement(self) -> None:
        require_svg("--strip", self.strip)
        if self.text is not None and not decode_text(self.text, "the text given").strip():
            raise ValueError("the text given is empty; give a few words, or leave it out for a text of the run")

    def __call__(self) -> None:
        from redraft.apps.cli.models import open_model
        from redraft.apps.reports.noising import noise_text
        from redraft.apps.reports.pictures import strip

        model = open_model(self.model, self.model_flags, codec=True)
        times = [i / (self.times - 1) for i in range(self.times)]
        if self.text is not None:
            model.token_count(self.text)  # raises if the tokenizer does not know a word
        texts = noise_text(model.lm, self.text or self._held_out_text(model), times, self.seed)
        for noisy in texts:
            self._print(noisy)
        if self.strip is not None:
            self.strip.write_text(strip(texts), "utf-8")
            print_note(f"{self.strip}: the text at {self.times} times")

    def _held_out_text(self, model: TextModel) -> str:
        """Return the text of the first held-out row of the run."""
        from redraft.training.data.loader import first_batches, load_rows

        run = model.run
        if run is None:
            raise ValueError(f'{self.model} has no run with texts; give one: redraft noise {self.model} "some words"')
        (row,) = first_batches(load_rows(run.data, "valid", run.tokenizer, run.framing), 1)
        return run.tokenizer.decode(row.tokens[0][row.learn[0]].tolist())

    def _print(self, noisy: NoisyText) -> None:
        """Print one line; in a terminal noise is dimmed."""
        line = f"t {noisy.t:.2f}  {noisy.kept:4.0%} kept  "
        if self.json or not sys.stdout.isatty():
            record = {"t": noisy.t, "kept": noisy.kept, "text": noisy.frame.text}
            emit(record, self.json, line + noisy.frame.text.replace("\n", "↵"))
            return
        from rich.console import Console

        from redraft.apps.reports.watch import styled

        Console(highlight=False).print(line, end="")
        Console(highlight=False).print(styled(noisy.frame), soft_wrap=True)
