"""Text ↔ canvas: templates with holes become rows of ids, finished rows become text again. No weights are involved."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from redraft.core.canvas import Canvas, Context
from redraft.core.processes.base import Process
from redraft.core.processes.insertion import Insertion
from redraft.core.text.tokenizers import Tokenizer
from redraft.core.vocab import Vocab


@dataclass(frozen=True)
class VariableHole:
    """A hole of any length up to a limit, for insertion models."""

    most: int

    def __post_init__(self) -> None:
        if self.most < 0:
            raise ValueError(f"UpTo({self.most}); a hole has room for 0 tokens or more")


_TextOrIds: TypeAlias = str | tuple[int, ...]  # text, or the ids of one
TemplatePiece: TypeAlias = (
    _TextOrIds | int | VariableHole
)  # something given, a hole of exactly n tokens, a hole of any length
_BLANK, _ROOM, _EMPTY = -1, -2, -3  # in a sketch: a token to be written, room for one that may come, padding


def inserts_tokens(process: Process) -> bool:
    """Whether a process inserts tokens into gaps, which have no place in the row yet."""
    return isinstance(process, Insertion)


def make_hole(process: Process, size: int) -> int | VariableHole:
    """A hole that the process can fill: of exactly `size` tokens, or of at most `size` if it inserts them."""
    return VariableHole(size) if inserts_tokens(process) else size


def _parse_template(template: str, room: int) -> list[TemplatePiece]:
    """ "a [[3]] b [[*]]" → ["a ", 3, " b ", UpTo(room)]"""
    found: list[TemplatePiece] = []
    for i, part in enumerate(re.split(r"\[\[([^\[\]]*)\]\]", template)):
        if i % 2 == 0:
            found.append(part)
        elif part.isdecimal() and int(part) > 0:
            found.append(int(part))
        elif part == "*":
            found.append(VariableHole(room))
        else:
            raise ValueError(f"the hole [[{part}]] has no length; write [[n]] for n tokens, say [[3]], or [[*]]")
    return found


def _require_rows(rows: Sequence[Sequence[TemplatePiece]], sources: Sequence[_TextOrIds] | None) -> None:
    """Raises unless there are rows, with one source each or none at all."""
    if not rows or any(isinstance(piece, int) and piece < 0 for row in rows for piece in row):
        raise ValueError("a canvas needs at least one row, and no hole can have a negative length")
    if sources is not None and len(sources) != len(rows):
        raise ValueError(f"{len(sources)} sources for {len(rows)} rows; give one for each")


@dataclass(frozen=True)
class _CanvasBuilder:
    """Lays out canvases of token ids for one process and tokenizer."""

    process: Process
    tokenizer: Tokenizer
    positions: int | None  # how long a row may become; None: no limit

    @property
    def vocab(self) -> Vocab:
        return self.process.vocab

    def canvas(
        self, rows: Sequence[Sequence[TemplatePiece]], prefixes: Sequence[_TextOrIds] | None, device: torch.device
    ) -> Canvas:
        """Rows of pieces, padded to the same length. A prefix is a source that stands before the start token."""
        ids, doors = zip(*map(self._sketch, rows, prefixes or [""] * len(rows)), strict=True)
        z, _ = _padded(ids, _EMPTY, device)
        pad, sized_hole = (z == _EMPTY) | (z == _ROOM), z == _BLANK
        fixed = ~sized_hole & (z != _ROOM)
        z = z.masked_fill(pad, self.vocab.filler).masked_fill(sized_hole, self.vocab.mask or 0)
        inside = sized_hole & ((fixed & ~pad).flip(-1).cumsum(-1).flip(-1) > 0)
        shown = inserts_tokens(self.process) or bool(inside.any())
        canvas = Canvas(z, fixed, Context(pad=pad if bool(pad.any()) else None, inside=inside if shown else None))
        if not inserts_tokens(self.process):
            return canvas
        gaps = [[gap in row for gap in range(z.shape[1] + 1)] for row in doors]
        return replace(canvas, open=torch.tensor(gaps, device=device))

    def ids(self, given: _TextOrIds) -> list[int]:
        return self.tokenizer.encode(given) if isinstance(given, str) else list(given)

    def sources(self, texts: Sequence[_TextOrIds], device: torch.device) -> tuple[Tensor, Tensor]:
        """(B, C) ids for the encoder and their padding, framed as `EncoderRows` frames them in training."""
        if self.vocab.eos is None:
            raise ValueError("reading a source needs a tokenizer with an end token; give DiffusionLM one")
        return _padded([[*self.ids(text), self.vocab.eos] for text in texts], self.vocab.filler, device)

    def _sketch(self, row: Sequence[TemplatePiece], prefix: _TextOrIds) -> tuple[list[int], set[int]]:
        """The ids of a row and its open gaps; the room that the gaps share comes last."""
        if prefix and self.vocab.bos is None:
            raise ValueError("this model cannot read sources: it has neither an encoder nor a start token to end one")
        start = None if row and isinstance(row[0], tuple) else self.vocab.bos  # ids say themselves how they begin
        ids = self.ids(prefix) + ([] if start is None else [start])
        doors: set[int] = set()
        room = 0
        for piece in row:
            if not isinstance(piece, VariableHole):
                ids += [_BLANK] * piece if isinstance(piece, int) else self.ids(piece)
            elif inserts_tokens(self.process):
                doors, room = doors | {len(ids)}, room + piece.most
            else:
                raise ValueError(
                    "a hole of any length needs an insertion model such as flex_tiny, this one has "
                    f"{type(self.process).__name__}; write [[n]] for n tokens, say [[3]]"
                )
        if self.positions is not None:
            room = min(room, self.positions - 1 - len(ids))  # the end of the row takes one position
        return ids + [_ROOM] * room, doors


def _prompt_mask(canvas: Canvas, vocab: Vocab) -> Tensor:
    """(B, L) bool: fixed tokens other than padding and the start token, which a codec writes itself."""
    given = canvas.fixed if vocab.bos is None else canvas.fixed & (canvas.z != vocab.bos)
    return given if canvas.context.pad is None else given & ~canvas.context.pad


def text_positions(canvas: Canvas, vocab: Vocab, row: int) -> list[int]:
    """The places of a row between the start token, which ends a source, and the next end token; no padding.

    Decoded vectors may have an end token before given text; that one is ignored.
    """
    pad = canvas.context.pad
    there = torch.ones_like(canvas.fixed[row]) if pad is None else ~pad[row]
    places = there.nonzero().flatten().tolist()
    ids, fixed = canvas.z[row][there].tolist(), canvas.fixed[row][there].tolist()
    given = [i for i, token in enumerate(ids) if fixed[i] and token not in vocab.ends]
    begin = ids.index(vocab.bos) + 1 if vocab.bos in ids else 0
    inner = max([begin, *(i + 1 for i in given)])
    end = ids.index(vocab.eos, inner) if vocab.eos in ids[inner:] else len(ids)
    return places[begin:end]


def _require_labels(label: Tensor | None, classes: int) -> Tensor | None:
    """The labels, all of them in range: an id out of range would silently mean "no class"."""
    if label is not None and bool((label < 0).any() | (label >= classes).any()):
        raise ValueError(
            f"labels from {int(label.min())} to {int(label.max())} for a network that knows {classes} classes, "
            "counted from 0; give others, or set TransformerConfig(classes=how many)"
        )
    return label


def _padded(rows: Sequence[list[int]], filler: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(B, L) ids and bool padding: shorter rows end in the filler."""
    width = max(map(len, rows))
    ids = torch.tensor([row + [filler] * (width - len(row)) for row in rows], dtype=torch.int64, device=device)
    lengths = torch.tensor([[len(row)] for row in rows], device=device)
    return ids, torch.arange(width, device=device) >= lengths
