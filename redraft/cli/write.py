"""`redraft generate` and `redraft infill`: a trained model writes."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from string import punctuation
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg

from redraft.cli.arguments import Flag, nearest, optional
from redraft.cli.limits import MOST_ROWS, require_between, require_finite, require_python, require_seed
from redraft.cli.output import emit, note
from redraft.cli.progress import Progress
from redraft.cli.streams import stdin_lines, text

if TYPE_CHECKING:
    from redraft.cli.models import Opened
    from redraft.samplers import Sampler
    from redraft.types import Canvas
    from redraft.write import Generated

_HOLE = re.compile(r"\[\[([^\[\]]*)\]\]")


@dataclass(frozen=True)
class Writing:
    """How to write."""

    rows: int = 1
    """Number of texts per prompt."""
    sampler: Literal["own", "ancestral", "first-hitting", "any-order", "confidence", "margin", "entropy"] = "own"
    """How noise becomes text; own: the run's sampler."""
    steps: Annotated[int | None, optional("INT", "the sampler's own")] = None
    """Sampling steps. Fewer is faster, but the text gets worse."""
    temperature: Annotated[float | None, optional("FLOAT", "the sampler's own")] = None
    """For confidence, margin and entropy: 0 takes the likeliest token, 1 samples from the model."""
    seed: int = 0
    """The same seed gives the same text."""
    watch: Flag = False
    """Show the first text being written, on stderr."""
    json: Flag = False
    """One JSON object per text."""
    trust: Annotated[Path | None, optional("FILE.py")] = None
    """Your Python file with the classes that the model uses; its code is run."""

    def __post_init__(self) -> None:
        require_between("--rows", self.rows, 1, MOST_ROWS)
        require_finite("--temperature", self.temperature)
        require_between("--temperature", self.temperature, 0, 1_000_000)
        require_seed(self.seed)
        require_python(self.trust)
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"--steps {self.steps}: a sampler needs at least one step")

    def plan(self, it: Opened, order: Order, guidance: float = 1.0) -> Plan:
        """How an order will be carried out; refuses what is too long, before anything is built."""
        from redraft.cli.models import batch_size, choose_sampler
        from redraft.guidance import ClassifierFree
        from redraft.samplers import Guided

        sampler = choose_sampler(it, self.sampler, self.steps, self.temperature, order.hidden)
        batch = batch_size(it, sampler, order.length, order.room)
        if guidance != 1:
            sampler = Guided(sampler, ClassifierFree(guidance, none=it.model.config.network.classes))
        return Plan(order, sampler, batch)

    def write(self, it: Opened, plan: Plan) -> None:
        """Fills `rows` rows for each prompt, some at a time, and prints each text when it is there."""
        total = self.rows * len(plan.order.prompts)
        tokens, calls, seconds = 0, 0.0, 0.0
        with Progress("texts written", total) as progress:
            for begin in range(0, total, plan.batch):
                found = self._some(it, plan, range(begin, min(begin + plan.batch, total)), progress)
                tokens, seconds = tokens + found.tokens, seconds + found.seconds
                calls += found.nfe * len(found.texts)
        speed = "" if self.watch else f", {tokens / seconds:,.0f} tokens/s"
        note(f"{tokens} tokens by {plan.sampler}: {calls / total:.1f} network calls per text{speed}")

    def _some(self, it: Opened, plan: Plan, rows: range, progress: Progress) -> Generated:
        """Texts of some rows, told as they would be among all."""
        from rich.console import Console

        from redraft.cli.models import Beginning, Counted
        from redraft.show import Watched
        from redraft.write import generate

        order, sampler = plan.order, plan.sampler
        prompts = [order.prompts[row // self.rows] for row in rows]
        shown: Sampler = sampler if order.size is None else Beginning(sampler, order.size)
        watched = self.watch and rows.start == 0
        shown = Watched(shown, it.model, Console(stderr=True)) if watched else Counted(shown, progress)
        with progress.silent() if watched else nullcontext():
            found = generate(it.model, shown, order.compose(prompts), seed=self.seed, first=rows.start)
        progress.advance(len(rows))
        with progress.silent():
            for row, prompt, text in zip(rows, prompts, found.texts, strict=True):
                record = {"text": text, "prompt": prompt, "row": row, "seed": self.seed, "run": it.name}
                emit(record | {"nfe": found.nfe, "sampler": str(sampler)}, self.json, text)
        return found


@dataclass(frozen=True)
class Order:
    """What is to be written, before anything of its size is built."""

    prompts: Sequence[str]
    compose: Callable[[Sequence[str]], Canvas]  # a row for each of some prompts
    length: int  # of the longest row, in tokens
    hidden: int  # the most tokens that a row has to get
    size: int | None = None  # tokens after the first `size` are not printed
    room: int = 0  # what holes of any length may take besides


@dataclass(frozen=True)
class Plan:
    """An order, the sampler that carries it out, and how many rows it writes at a time."""

    order: Order
    sampler: Sampler
    batch: int


@dataclass(frozen=True)
class Generate:
    """Write texts, from scratch or from given beginnings."""

    model: Annotated[Positional[Path], arg(metavar="DIR")]
    """Directory of a run, a checkpoint or an exported model."""
    prompt: Annotated[Positional[str | None], optional("[PROMPT]")] = None
    """The beginning of the text; with - or a pipe, one beginning per line of stdin."""
    source: Annotated[str | None, optional("TEXT")] = None
    """What the text should answer, for models trained on pairs: attributes of a story, or a story to summarise."""
    label: Annotated[str | None, optional("NAME")] = None
    """The class of the text, for models trained on classes."""
    guidance: float = 1.0
    """How closely to follow --label or --source: 0 ignores it, 1 follows it as trained, more exaggerates it."""
    new: Annotated[int | None, optional("INT", "up to the length of the training rows")] = None
    """Number of tokens to write."""
    writing: OmitArgPrefixes[Writing] = Writing()

    def __post_init__(self) -> None:
        if self.new is not None and self.new < 1:
            raise ValueError(f"--new {self.new}: write at least one token")
        require_finite("--guidance", self.guidance)
        require_between("--guidance", self.guidance, 0, 1000)
        for flag, given in (("--source", self.source), ("--label", self.label)):
            text(given or "", flag)

    def __call__(self) -> None:
        prompts = _prompts(self.prompt) or [""]
        from redraft.cli.models import opened  # torch is loaded when the words are right
        from redraft.model import grows, hole

        it = opened(self.model, self.writing.trust)
        self._require_source(it)
        label = self._class(it)
        self._require_comparison(it, label)
        asked = self._asked(it)
        used = {prompt: _used(it, prompt) + asked for prompt in prompts}
        holes = {prompt: self._size(it, used[prompt]) for prompt in used}
        length, most = max(used[prompt] + holes[prompt] for prompt in used), max(holes.values())

        def compose(some: Sequence[str]) -> Canvas:
            rows = [[prompt, hole(it.model.process, holes[prompt])] for prompt in some]
            canvas = it.model.compose(rows, None if self.source is None else [self.source] * len(rows))
            return canvas if label is None else it.model.labelled(canvas, label)

        if grows(it.model.process):
            order = Order(prompts, compose, max(used.values()), most, room=most)
        else:
            order = Order(prompts, compose, length, most)
        plan = self.writing.plan(it, order, self.guidance)
        self._warn(it, length)
        self.writing.write(it, plan)

    def _class(self, it: Opened) -> int | None:
        """The number of the class that is asked for; none is needed if the network has learnt to do without."""
        classes = _classes(it)
        if self.label is None:
            if classes and not _compares(it):
                raise ValueError(f"this model writes texts of a class; give one with --label: {', '.join(classes)}")
            return None
        if self.label not in classes:
            advice = nearest(self.label, classes) if classes else "it was trained without classes"
            raise ValueError(f"this model has no class {self.label!r}; {advice}")
        return classes.index(self.label)

    def _require_comparison(self, it: Opened, label: int | None) -> None:
        """Guidance compares what is said with a condition and without: there must be one, and both must be learnt."""
        if self.guidance == 1:
            return
        if label is None and (self.source is None or it.model.encoder is None):
            raise ValueError("--guidance needs a condition: a --label, or a --source that an encoder reads")
        if not _compares(it):
            raise ValueError(
                "--guidance compares with and without the condition, but this model was never trained without it; "
                "leave it out, or train with --objective.drop-condition 0.1"
            )

    def _require_source(self, it: Opened) -> None:
        """A model that answers needs something to answer, and others cannot be told anything."""
        asked = it.run.framing.asked if it.run is not None else it.model.encoder is not None
        asked = asked and not _classes(it)
        if asked and self.source is None:
            raise ValueError(
                f'this model needs a source to answer; give one: redraft generate {it.path} --source "TEXT"'
            )
        if self.source is not None and it.run is not None and not asked:
            raise ValueError("this model was not trained to answer a --source; give the beginning of the text instead")

    def _asked(self, it: Opened) -> int:
        """How many tokens of a row the source takes; every word of it must be known."""
        if self.source is None:
            return 0
        read = _used(it, self.source)
        return read - 1 if it.model.encoder is None else 0  # in the row, without a start token of its own

    def _size(self, it: Opened, used: int) -> int:
        """How many tokens to write where so many are given."""
        if self.new is not None:
            return self.new
        if it.run is None:
            raise ValueError("this model has no run that gives the length of its texts; set it, for example --new 100")
        length = it.run.framing.length
        if used >= length:
            raise ValueError(
                f"the prompt fills all {length} tokens of a row; shorten it, or ask for more tokens: --new 20"
            )
        return length - used

    def _warn(self, it: Opened, length: int) -> None:
        """A network that counts no positions takes rows of any length, but it has not learnt from such ones."""
        if it.run is None or it.run.model.network.positions is not None or length <= it.run.framing.length:
            return
        note(f"{length} tokens are more than the {it.run.framing.length} of the rows this model was trained on")


@dataclass(frozen=True)
class Infill:
    """Fill the holes of a text: "She opened the [[6]] and [[3]]." has one of six tokens and one of three.

    A model trained on whole rows also writes a continuation, because it looks at the text that follows. The
    continuation is only shown if the template ends with a hole for it.
    """

    model: Annotated[Positional[Path], arg(metavar="DIR")]
    """Directory of a run, a checkpoint or an exported model."""
    template: Annotated[Positional[str | None], optional("TEMPLATE")] = None
    """Text with holes; with - or a pipe, one template per line of stdin."""
    room: int = 32
    """Maximum number of tokens in a hole of any length, [[*]]; for insertion models."""
    writing: OmitArgPrefixes[Writing] = Writing()

    def __post_init__(self) -> None:
        require_between("--room", self.room, 1, MOST_ROWS)

    def __call__(self) -> None:
        if not (templates := _prompts(self.template)):
            raise ValueError('give a text with holes: redraft infill DIR "She opened the [[6]] and [[3]]."')
        for template in templates:
            _require_holes(template)
        from redraft.cli.models import opened  # torch is loaded when the words are right

        it = opened(self.model, self.writing.trust)
        if it.model.encoder is not None or (it.run is not None and it.run.framing.asked and not _classes(it)):
            raise ValueError("this model answers sources and cannot fill holes; use redraft generate DIR --source TEXT")
        plans = [self.writing.plan(it, self._order(it, template)) for template in templates]
        for plan in plans:
            self.writing.write(it, plan)

    def _order(self, it: Opened, template: str) -> Order:
        _used(it, _HOLE.sub(" ", template))  # every word is known
        given = [_used(it, part) for part in _HOLE.split(template)[::2]]
        found = _HOLE.findall(template)
        holes, room = [int(hole) for hole in found if hole != "*"], self.room * found.count("*")
        size = sum(given) - (len(given) - 1) * (it.model.config.vocab.bos is not None) + sum(holes)
        rest = max(0, (it.always or 0) - size - room)
        whole = f"{template}[[{rest}]]" if rest else template

        def compose(some: Sequence[str]) -> Canvas:
            return it.model.infill(whole, rows=len(some), room=self.room)

        return Order([template], compose, size + rest, sum(holes) + rest + room, size if rest else None, room)


def _classes(it: Opened) -> tuple[str, ...]:
    """The names of the classes that a model knows, in their order; where no run names them, their numbers."""
    from redraft.data import Classified

    data = None if it.run is None else it.run.data
    known = range(it.model.config.network.classes or 0)
    return data.classes if known and isinstance(data, Classified) else tuple(map(str, known))


def _compares(it: Opened) -> bool:
    """Whether the network has learnt to do without its condition, as far as a run tells."""
    from redraft.objectives import Objective

    return it.run is None or not isinstance(it.run.objective, Objective) or it.run.objective.drop_condition > 0


def _prompts(given: str | None) -> list[str]:
    """What is given, or the lines of stdin that are not blank."""
    if given is None and not _piped():
        return []
    if given is not None and given != "-":
        return [text(given, "the text given")]
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


def _require_holes(template: str) -> None:
    holes = _HOLE.findall(template)
    if not holes:
        raise ValueError(f"{template!r:.60} has no hole; write [[n]] where n tokens are missing, say [[3]]")
    for hole in holes:
        if hole != "*" and not (hole.isdecimal() and int(hole[:999])):
            raise ValueError(f"the hole [[{hole}]] has no length; write [[n]] for n tokens, say [[3]], or [[*]]")
        if hole != "*" and len(hole) > 9:
            raise ValueError(f"the hole [[{hole}]] is too long; a hole has some tokens, say [[3]]")


def _used(it: Opened, text: str) -> int:
    """How many tokens a given text has, start token included; every word of it must be known."""
    from redraft.text import UNKNOWN, Words

    tokenizer = it.model.tokenizer
    if tokenizer is None:
        raise ValueError(f"{it.path} has no tokenizer, so it can neither read nor write text; put tokenizer.json there")
    strange = [word for word in dict.fromkeys(text.split()) if UNKNOWN in map(tokenizer.piece, tokenizer.encode(word))]
    if strange:
        words = [word.strip(punctuation) or word for word in strange[:5]]
        more = f" and {len(strange) - 5} more words" if len(strange) > 5 else ""
        known = tokenizer.words if isinstance(tokenizer, Words) else ()
        close = [match for word in words for match in get_close_matches(word, known, n=2)]
        advice = f"say {', '.join(close)}" if close else "`redraft generate` without a prompt shows words that it knows"
        raise ValueError(f"this model does not know {', '.join(map(repr, words))}{more}; use its words, {advice}")
    return len(tokenizer.encode(text)) + (it.model.config.vocab.bos is not None)
