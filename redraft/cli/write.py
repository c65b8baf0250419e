"""`redraft generate` and `redraft infill`: a trained model writes."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from string import punctuation
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg

from redraft.cli.arguments import Flag, nearest, optional
from redraft.cli.output import emit, note

if TYPE_CHECKING:
    from redraft.cli.models import Opened
    from redraft.evaluate import Generated
    from redraft.model import UpTo
    from redraft.samplers.base import Sampler
    from redraft.types import Canvas

_HOLE = re.compile(r"\[\[(.*?)\]\]")


@dataclass(frozen=True)
class Writing:
    """How to write."""

    rows: int = 1
    """Texts for each prompt."""
    sampler: Literal["own", "ancestral", "first-hitting", "any-order", "confidence", "margin", "entropy"] = "own"
    """How noise becomes text; own: as the run has it."""
    steps: Annotated[int | None, optional("INT", "as many as the sampler has")] = None
    """Of the sampler: fewer of them, a faster and a worse text."""
    temperature: Annotated[float | None, optional("FLOAT", "that of the sampler")] = None
    """Of confidence, margin and entropy: 0 takes the likeliest token, 1 draws from the model."""
    seed: int = 0
    """The same seed gives the same text."""
    watch: Flag = False
    """Show the first text being written, on stderr."""
    json: Flag = False
    """One JSON object per text."""
    trust: Annotated[Path | None, optional("FILE.py")] = None
    """A Python file of your own whose classes the model is made of."""

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError(f"--rows {self.rows}: one text at least")

    def write(
        self,
        it: Opened,
        prompts: Sequence[str],
        canvas: Canvas,
        size: int | None = None,
        guidance: float = 1.0,
    ) -> None:
        """Fills a canvas of `rows` rows for each prompt; what stands after `size` tokens is not told."""
        from redraft.cli.models import Beginning, choose_sampler
        from redraft.guidance import ClassifierFree, Guided

        sampler = choose_sampler(it, self.sampler, self.steps, self.temperature)
        if guidance != 1:
            sampler = Guided(sampler, ClassifierFree(guidance, none=it.model.config.network.classes))
        found = self._generate(it, sampler if size is None else Beginning(sampler, size), canvas)
        for row, text in enumerate(found.texts):
            record = {"text": text, "prompt": prompts[row // self.rows], "row": row, "seed": self.seed, "run": it.name}
            emit(record | {"nfe": found.nfe, "sampler": str(sampler)}, self.json, text)
        speed = "" if self.watch else f", {found.tokens_per_second:,.0f} tokens/s"
        note(f"{found.tokens} tokens by {sampler}: {found.nfe:.1f} network calls per text{speed}")

    def _generate(self, it: Opened, sampler: Sampler, canvas: Canvas) -> Generated:
        from rich.console import Console

        from redraft.evaluate import generate
        from redraft.watch import Watched

        console = Console(stderr=True)
        if self.watch:
            return generate(it.model, Watched(sampler, it.model, console), canvas, seed=self.seed)
        with console.status(f"writing {len(canvas.z)} texts"):
            return generate(it.model, sampler, canvas, seed=self.seed)


@dataclass(frozen=True)
class Generate:
    """Write texts, from nothing or from the beginnings that are given."""

    model: Annotated[Positional[Path], arg(metavar="DIR")]
    """The directory of a run, of one of its checkpoints, or of an exported model."""
    prompt: Annotated[Positional[str | None], optional("[PROMPT]")] = None
    """How the text begins; - or a pipe: a beginning on each line of stdin."""
    source: Annotated[str | None, optional("TEXT")] = None
    """What the text is to answer, for models that learnt pairs: attributes of a story, a story to be summed up."""
    label: Annotated[str | None, optional("NAME")] = None
    """Of which class the text is to be, for models that learnt classes."""
    guidance: float = 1.0
    """How much is made of --label or --source: 0 forgets it, 1 obeys it, more exaggerates it."""
    new: Annotated[int | None, optional("INT", "up to the length of the training's rows")] = None
    """Tokens to write."""
    writing: OmitArgPrefixes[Writing] = Writing()

    def __post_init__(self) -> None:
        if self.new is not None and self.new < 1:
            raise ValueError(f"--new {self.new}: one token at least is to be written")

    def __call__(self) -> None:
        prompts = _prompts(self.prompt) or [""]
        from redraft.cli.models import opened  # torch is loaded when the words are right

        it = opened(self.model, self.writing.trust)
        self._require_source(it)
        label = self._class(it)
        holes = {prompt: self._room(it, prompt) for prompt in prompts}
        rows = [[prompt, holes[prompt]] for prompt in prompts for _ in range(self.writing.rows)]
        canvas = it.model.compose(rows, None if self.source is None else [self.source] * len(rows))
        canvas = canvas if label is None else it.model.labelled(canvas, label)
        self._require_comparison(it, canvas)
        self.writing.write(it, prompts, canvas, guidance=self.guidance)

    def _class(self, it: Opened) -> int | None:
        """The number of the class that is asked for; none is needed if the network has learnt to do without."""
        classes = _classes(it)
        if self.label is None:
            if classes and not _compares(it):
                raise ValueError(f"this model writes texts of a class; give one with --label: {', '.join(classes)}")
            return None
        if self.label not in classes:
            advice = nearest(self.label, classes) if classes else "it has learnt texts without classes"
            raise ValueError(f"this model knows no class {self.label!r}; {advice}")
        return classes.index(self.label)

    def _require_comparison(self, it: Opened, canvas: Canvas) -> None:
        """Guidance compares what is said with a condition and without: there must be one, and both must be learnt."""
        if self.guidance == 1:
            return
        if canvas.context.cond is None and canvas.context.label is None:
            raise ValueError("--guidance needs a condition: a --label, or a --source that an encoder reads")
        if not _compares(it):
            raise ValueError(
                "--guidance compares with and without the condition, and this model has always been told it; leave it "
                "out, or train with --objective.untold 0.1"
            )

    def _require_source(self, it: Opened) -> None:
        """A model that answers needs something to answer, and others cannot be told anything."""
        asked = it.run.framing.asked if it.run is not None else it.model.encoder is not None
        asked = asked and not _classes(it)
        if asked and self.source is None:
            raise ValueError(f'this model answers a source; give one: redraft generate {it.path} --source "TEXT"')
        if self.source is not None and it.run is not None and not asked:
            raise ValueError("this model has learnt texts, not answers: it reads no --source; begin the text instead")

    def _room(self, it: Opened, prompt: str) -> int | UpTo:
        """How many tokens to write after a prompt; insertion writes at most so many."""
        from redraft.model import UpTo
        from redraft.processes.insertion import Insertion

        size = self._size(it, prompt)
        return UpTo(size) if isinstance(it.model.process, Insertion) else size

    def _size(self, it: Opened, prompt: str) -> int:
        used = _used(it, prompt)
        if self.source is not None:
            read = _used(it, self.source)  # also sees to it that every word is known
            used += read - 1 if it.model.encoder is None else 0  # in the row, without a start sign of its own
        if it.run is None:
            if self.new is None:
                raise ValueError("no run says how long the texts of this model are; say how many tokens: --new 100")
            return self.new
        length = it.run.framing.length
        if self.new is None and used >= length:
            raise ValueError(
                f"the prompt fills the {length} tokens of a row; shorten it, or say how many more: --new 20"
            )
        if self.new is not None and used + self.new > length and it.run.model.network.positions is None:
            note(f"{used + self.new} tokens are more than the {length} of the rows that this model has learnt from")
        return length - used if self.new is None else self.new


@dataclass(frozen=True)
class Infill:
    """Fill the holes of a text: "She opened the [[6]] and [[3]]." has one of six tokens and one of three.

    A model that has only seen whole rows, and sees what comes after, also writes how the text may go on; that is not
    shown, unless the text ends with a hole for it.
    """

    model: Annotated[Positional[Path], arg(metavar="DIR")]
    """The directory of a run, of one of its checkpoints, or of an exported model."""
    template: Annotated[Positional[str | None], optional("TEMPLATE")] = None
    """Text with holes; - or a pipe: a template on each line of stdin."""
    room: int = 32
    """The most tokens that a hole of any length, [[*]], may take; for models of insertion."""
    writing: OmitArgPrefixes[Writing] = Writing()

    def __call__(self) -> None:
        if not (templates := _prompts(self.template)):
            raise ValueError('give a text with holes: redraft infill DIR "She opened the [[6]] and [[3]]."')
        for template in templates:
            _require_holes(template)
        from redraft.cli.models import opened  # torch is loaded when the words are right

        it = opened(self.model, self.writing.trust)
        for template in templates:
            _used(it, _HOLE.sub(" ", template))
        for template in templates:
            self._fill(it, template)

    def _fill(self, it: Opened, template: str) -> None:
        size = it.model.infill(template, room=self.room).z.shape[1]
        rest = (it.always or 0) - size
        whole = f"{template}[[{rest}]]" if rest > 0 else template
        canvas = it.model.infill(whole, rows=self.writing.rows, room=self.room)
        self.writing.write(it, [template], canvas, size if rest > 0 else None)


def _classes(it: Opened) -> tuple[str, ...]:
    """The names of the classes that a model knows, in their order; where no run names them, their numbers."""
    from redraft.pairs import Classified

    data = None if it.run is None else it.run.data
    known = range(it.model.config.network.classes or 0)
    return data.classes if known and isinstance(data, Classified) else tuple(map(str, known))


def _compares(it: Opened) -> bool:
    """Whether the network has learnt to do without its condition, as far as a run tells."""
    from redraft.objectives import Objective

    return it.run is None or not isinstance(it.run.objective, Objective) or it.run.objective.untold > 0


def _prompts(given: str | None) -> list[str]:
    """What is given, or the lines of stdin that are not blank."""
    if given is None and not _piped():
        return []
    if given not in (None, "-"):
        return [given]
    filled = [line.strip("\r\n") for line in sys.stdin if line.strip()]
    if given == "-" and not filled:
        raise ValueError("stdin gave no line of text; write one line for each text, or give it as an argument")
    return filled


def _piped() -> bool:
    """Whether stdin is a pipe or a file; not if it is a terminal, nothing, or closed."""
    try:
        kind = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISREG(kind)


def _require_holes(template: str) -> None:
    if not _HOLE.search(template):
        raise ValueError(f"{template!r:.60} has no hole; write [[n]] where n tokens are missing, say [[3]]")


def _used(it: Opened, text: str) -> int:
    """How many tokens a given text has, start sign included; every word of it must be known."""
    from redraft.text import UNKNOWN, Words

    tokenizer = it.model.tokenizer
    if tokenizer is None:
        raise ValueError(f"{it.path} has no tokenizer, so it can neither read nor write text; put tokenizer.json there")
    strange = [word for word in text.split() if UNKNOWN in map(tokenizer.piece, tokenizer.encode(word))]
    if strange:
        words = [word.strip(punctuation) or word for word in strange]
        known = tokenizer.words if isinstance(tokenizer, Words) else ()
        close = [match for word in words for match in get_close_matches(word, known, n=2)]
        advice = f"say {', '.join(close)}" if close else "`redraft generate` without a prompt shows words that it knows"
        raise ValueError(f"this model does not know {', '.join(map(repr, words))}; use its words, {advice}")
    return len(tokenizer.encode(text)) + (it.model.config.vocab.bos is not None)
