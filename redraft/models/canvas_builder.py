"""Build canvases from prompts and templates with holes, and find the text of finished rows. No weights are needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from redraft.core.canvas import Canvas, Constraints, Context
from redraft.core.processes.base import Process
from redraft.core.text.tokenizers import Tokenizer
from redraft.core.vocab import Vocab


@dataclass(frozen=True)
class VariableHole:
    """A hole of any length up to a limit, for insertion models."""

    most: int  # maximum number of tokens

    def __post_init__(self) -> None:
        if self.most < 0:
            raise ValueError(f"VariableHole({self.most}); the maximum length must be 0 or more")


_TextOrIds: TypeAlias = str | tuple[int, ...]  # text, or its ids
TemplatePiece: TypeAlias = _TextOrIds | int | VariableHole  # given text, a hole of n tokens, or one of any length
_BLANK, _ROOM, _EMPTY = -1, -2, -3  # stand-ins for ids: a token to write, room for an inserted token, padding


def make_hole(process: Process, size: int) -> int | VariableHole:
    """A hole that the process can fill: of exactly `size` tokens, or of at most `size` for insertion."""
    return VariableHole(size) if process.grows else size


def _parse_template(template: str, room: int) -> list[TemplatePiece]:
    """Split a template into pieces: "a [[3]] b [[*]]" → ["a ", 3, " b ", VariableHole(room)]."""
    pieces: list[TemplatePiece] = []
    for i, part in enumerate(re.split(r"\[\[([^\[\]]*)\]\]", template)):
        if i % 2 == 0:
            pieces.append(part)
        elif part.isdecimal() and int(part) > 0:
            pieces.append(int(part))
        elif part == "*":
            pieces.append(VariableHole(room))
        else:
            raise ValueError(f"the hole [[{part}]] has no length; write [[n]] for n tokens, say [[3]], or [[*]]")
    return pieces


def _require_rows(rows: Sequence[Sequence[TemplatePiece]], sources: Sequence[_TextOrIds] | None) -> None:
    """Raise unless there is at least one row, with valid holes, and sources are absent or one per row."""
    if not rows or any(isinstance(piece, int) and piece < 0 for row in rows for piece in row):
        raise ValueError("a canvas needs at least one row, and holes of 0 or more tokens; change the template")
    if sources is not None and len(sources) != len(rows):
        raise ValueError(f"{len(sources)} sources for {len(rows)} rows; give one per row")


@dataclass(frozen=True)
class _CanvasBuilder:
    """Lays out canvases of token ids for one process and tokenizer."""

    process: Process
    tokenizer: Tokenizer
    positions: int | None  # maximum length of a row; None for no limit

    @property
    def vocab(self) -> Vocab:
        return self.process.vocab

    def canvas(
        self, rows: Sequence[Sequence[TemplatePiece]], prefixes: Sequence[_TextOrIds] | None, device: torch.device
    ) -> Canvas:
        """A canvas of these rows, padded to the same length; a prefix is a source, placed before the start token."""
        ids, open_gaps = zip(*map(self._lay_out, rows, prefixes or [""] * len(rows)), strict=True)
        z, _ = _pad_rows(ids, _EMPTY, device)
        pad, blank = (z == _EMPTY) | (z == _ROOM), z == _BLANK
        fixed = ~blank & (z != _ROOM)
        z = z.masked_fill(pad, self.vocab.filler).masked_fill(blank, self.vocab.mask or 0)
        no_end = blank & ((fixed & ~pad).flip(-1).cumsum(-1).flip(-1) > 0)
        any_hole = self.process.grows or bool(no_end.any())
        canvas = Canvas(
            z,
            fixed,
            Context(
                pad if bool(pad.any()) else None, constraints=Constraints(no_end_token=no_end if any_hole else None)
            ),
        )
        if not self.process.grows:
            return canvas
        is_open = [[gap in row_gaps for gap in range(z.shape[1] + 1)] for row_gaps in open_gaps]
        return replace(canvas, open=torch.tensor(is_open, device=device))

    def ids(self, text: _TextOrIds) -> list[int]:
        """The ids of a text, or the given ids themselves."""
        return self.tokenizer.encode(text) if isinstance(text, str) else list(text)

    def sources(self, texts: Sequence[_TextOrIds], device: torch.device) -> tuple[Tensor, Tensor]:
        """(B, C) ids for the encoder and their padding, framed as `EncoderRows` frames them in training."""
        if self.vocab.eos is None:
            raise ValueError("reading a source needs a tokenizer with an end token; give DiffusionLM one")
        return _pad_rows([[*self.ids(text), self.vocab.eos] for text in texts], self.vocab.filler, device)

    def _lay_out(self, row: Sequence[TemplatePiece], prefix: _TextOrIds) -> tuple[list[int], set[int]]:
        """The ids of a row, with stand-ins for holes, and its open gaps; room for inserted tokens comes last."""
        if prefix and self.vocab.bos is None:
            raise ValueError(
                "this model cannot read sources: it has neither an encoder nor a start token to separate a source from "
                "the text; leave the sources out"
            )
        start = None if row and isinstance(row[0], tuple) else self.vocab.bos  # given ids include their own start token
        ids = self.ids(prefix) + ([] if start is None else [start])
        open_gaps: set[int] = set()
        room = 0
        for piece in row:
            if not isinstance(piece, VariableHole):
                ids += [_BLANK] * piece if isinstance(piece, int) else self.ids(piece)
            elif self.process.grows:
                open_gaps, room = open_gaps | {len(ids)}, room + piece.most
            else:
                raise ValueError(
                    "a hole of any length needs an insertion model such as flex_tiny, but this model uses "
                    f"{type(self.process).__name__}; write [[n]] for n tokens, say [[3]]"
                )
        if self.positions is not None:
            room = min(room, self.positions - 1 - len(ids))  # the end of the row takes one position
        return ids + [_ROOM] * room, open_gaps


def _prompt_mask(canvas: Canvas, vocab: Vocab) -> Tensor:
    """(B, L) bool: fixed tokens other than padding and the start token, which a codec can write itself."""
    prompt = canvas.fixed if vocab.bos is None else canvas.fixed & (canvas.z != vocab.bos)
    return prompt if canvas.context.pad is None else prompt & ~canvas.context.pad


def text_positions(canvas: Canvas, vocab: Vocab, row: int) -> list[int]:
    """The columns of a row's text: after the start token (a source may precede it) and up to the first end token.

    Padding is skipped. An end token before given text is ignored; decoded vectors may contain one.
    """
    pad = canvas.context.pad
    not_pad = torch.ones_like(canvas.fixed[row]) if pad is None else ~pad[row]
    columns = not_pad.nonzero().flatten().tolist()
    ids, fixed = canvas.z[row][not_pad].tolist(), canvas.fixed[row][not_pad].tolist()
    given = [i for i, token in enumerate(ids) if fixed[i] and token not in vocab.ends]
    begin = ids.index(vocab.bos) + 1 if vocab.bos in ids else 0
    after_given = max([begin, *(i + 1 for i in given)])
    end = ids.index(vocab.eos, after_given) if vocab.eos in ids[after_given:] else len(ids)
    return columns[begin:end]


def _require_labels(label: Tensor | None, classes: int) -> Tensor | None:
    """Return the labels; raise if one is out of range, since it would silently mean "no class"."""
    if label is not None and bool((label < 0).any() | (label >= classes).any()):
        raise ValueError(
            f"labels from {int(label.min())} to {int(label.max())} for a network with {classes} classes, counted from "
            "0; use labels in range, or set TransformerConfig.classes"
        )
    return label


def _row_labels(label: int | Sequence[int] | None, z: Tensor, classes: int) -> Tensor | None:
    """(B,) a label for each row of z, from one for all or one per row."""
    if label is None:
        return None
    labels = [label] * len(z) if isinstance(label, int) else list(label)
    if len(labels) != len(z):
        raise ValueError(f"{len(labels)} labels for {len(z)} rows; give one per row, or one for all")
    return _require_labels(torch.tensor(labels, device=z.device), classes)


def _pad_rows(rows: Sequence[list[int]], filler: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(B, L) ids and (B, L) bool padding; shorter rows are padded with the filler at the end."""
    width = max(map(len, rows))
    ids = torch.tensor([row + [filler] * (width - len(row)) for row in rows], dtype=torch.int64, device=device)
    lengths = torch.tensor([[len(row)] for row in rows], device=device)
    return ids, torch.arange(width, device=device) >= lengths
