"""Frames of a text as it is written, one per canvas of the sampler, and their live display in a terminal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from redraft.core.canvas import Canvas
from redraft.core.text.tokenizers import token_texts
from redraft.core.vocab import Vocab
from redraft.models.diffusion_lm import DiffusionLM

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


_TokenState = Literal["given", "noise", "new", "settled"]
_STYLES: dict[_TokenState, str] = {"given": "cyan", "noise": "dim", "new": "bold green", "settled": ""}


@dataclass(frozen=True)
class Token:
    """One token of a canvas: its part of the text, white space included, and its state.

    given    part of the prompt
    noise    still masked; if the process has no masks, any token of the first canvas
    new      written since the previous canvas
    settled  unchanged since the previous canvas
    """

    text: str
    state: _TokenState
    position: int  # column of the canvas


@dataclass(frozen=True)
class Frame:
    """One row of one canvas of a sampler; frame 0 shows the canvas it starts from."""

    step: int
    tokens: tuple[Token, ...]

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)


def frames(canvases: Iterable[Canvas], model: DiffusionLM, row: int = 0) -> Iterator[Frame]:
    """Yields a frame for every canvas of a sampler.

    Start, end and padding tokens are left out, and after an end token only noise is shown. The token texts of a frame
    concatenate to its text.
    """
    if model.tokenizer is None:
        raise ValueError("this model has no tokenizer; give DiffusionLM one to see its text")
    vocab = model.config.vocab
    given: list[bool] = []
    before: list[int | None] = []
    for step, canvas in enumerate(map(model.to_tokens, canvases)):
        now = canvas.z[row].tolist()
        if step == 0 or canvas.open is not None:  # later, samplers also fix finished tokens
            given = canvas.fixed[row].tolist()
        before = _previous_ids(before, now, vocab.mask) if canvas.open is not None else before or [None] * len(now)
        states = [_state(*ids, mask=vocab.mask) for ids in zip(now, before, given, strict=True)]
        shown = _shown(now, states, vocab, None if canvas.context.pad is None else canvas.context.pad[row].tolist())
        texts = token_texts(model.tokenizer, [now[i] for i in shown])
        yield Frame(step, tuple(Token(text, states[i], i) for text, i in zip(texts, shown, strict=True)))
        before = now


def _previous_ids(before: list[int | None], now: list[int], mask: int | None) -> list[int | None]:
    """Returns the previous id of each token that insertion moved; -1 if it is new. Written tokens stay in order."""
    left = deque(token for token in before if token != mask)
    return [left.popleft() if left and left[0] == token else -1 for token in now]


def _state(now: int, before: int | None, given: bool, mask: int | None) -> _TokenState:
    if given:
        return "given"
    if before is None or now == mask:
        return "noise"
    return "settled" if now == before else "new"


def _shown(now: list[int], states: list[_TokenState], vocab: Vocab, pad: list[bool] | None) -> list[int]:
    """Returns the positions to show: no start, end or padding tokens, and after the first end token only noise."""
    specials = {vocab.bos, vocab.eos, vocab.pad}
    ends = [i for i, token in enumerate(now) if token == vocab.eos and states[i] in ("new", "settled")]
    end = ends[0] if ends else len(now)
    text = [i for i in range(len(now)) if now[i] not in specials and not (pad and pad[i])]
    return [i for i in text if i < end or states[i] == "noise"]


def display(
    canvases: Iterable[Canvas], model: DiffusionLM, *, console: Console, delay: float = 0.05, row: int = 0
) -> Canvas:
    """Shows one row while a sampler writes it, and returns the finished canvas.

    In a terminal the text is redrawn in place, at least `delay` seconds per change: masked positions are dim, new
    tokens highlighted, and given text has its own color. Elsewhere every change is one plain line.
    """
    newest: deque[Canvas] = deque(maxlen=1)
    changes = _changes(frames(_record_newest(canvases, newest), model, row))
    if console.is_terminal:
        _draw(changes, console, delay)
    else:
        for frame in changes:
            console.print(_plain(frame), soft_wrap=True, markup=False, highlight=False)
    return newest[0]


def _record_newest(canvases: Iterable[Canvas], newest: deque[Canvas]) -> Iterator[Canvas]:
    for canvas in canvases:
        newest.append(canvas)
        yield canvas


def _changes(all_frames: Iterable[Frame]) -> Iterator[Frame]:
    """Yields only frames whose text has changed, so new tokens stay highlighted until the next change."""
    text = None
    for frame in all_frames:
        if frame.text != text:
            yield frame
        text = frame.text


def _draw(changes: Iterable[Frame], console: Console, delay: float) -> None:
    """Redraws in place and clears the display at the end, since the caller then prints the text."""
    from rich.live import Live

    with Live(console=console, auto_refresh=False, transient=True) as live:
        for frame in changes:
            live.update(styled(frame), refresh=True)
            time.sleep(delay)


def styled(frame: Frame) -> Text:
    """Returns the text of a frame in colors that show token states."""
    from rich.text import Text

    return Text.assemble(*((token.text, _STYLES[token.state]) for token in frame.tokens))


def _plain(frame: Frame) -> str:
    return frame.text.replace("\n", "↵")
