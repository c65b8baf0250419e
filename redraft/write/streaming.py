"""Streaming: texts while they are being written, and how much of each can no longer change."""

from __future__ import annotations

from collections.abc import Iterator

from redraft.model import text_places
from redraft.processes import Masked
from redraft.samplers import (
    Ancestral,
    AnyOrder,
    Blocks,
    ConfidenceThreshold,
    EntropyBound,
    FirstHitting,
    FrechetProfile,
    Guided,
    Klass,
    LeftToRight,
    Ranked,
    Strides,
    Unmask,
)
from redraft.types import Canvas
from redraft.write.filling import Writing
from redraft.write.models import Opened
from redraft.write.plan import Beginning, Plan, layers
from redraft.write.record import Draft

_WRITE_ONCE = (Ancestral, Beginning, Blocks, FirstHitting, Guided, Strides, Unmask)  # a token they wrote stays
_NEVER_AGAIN = (AnyOrder, ConfidenceThreshold, EntropyBound, FrechetProfile, Klass, LeftToRight, Ranked)


def drafts(plan: Plan) -> Iterator[Draft]:
    """A draft for each text that changed in a step; the last one of each text brings it finished."""
    for writing in plan.writings():
        view = View(plan.it, writing)
        said: dict[int, tuple[str, str]] = {}
        for canvas in writing:
            for row in range(len(canvas.z)):
                draft = view.draft(canvas, row)
                if (draft.committed, draft.tentative) != said.get(row):
                    said[row] = (draft.committed, draft.tentative)
                    yield draft
        for written in plan.finished(writing):
            yield Draft(written.row, written.text, "", written)


class View:
    """How the rows of a writing look to a reader."""

    def __init__(self, it: Opened, writing: Writing) -> None:
        self._tokenizer, self._vocab, self._model = it.tokenizer, it.model.config.vocab, it.model
        self._first, self._said = writing.first, dict[int, str]()
        parts = list(layers(writing.sampler))
        once = all(isinstance(part, _WRITE_ONCE) for part in parts)
        once &= all(isinstance(part.pick, _NEVER_AGAIN) for part in parts if isinstance(part, Unmask))
        self._final = once and type(it.model.process) is Masked

    def draft(self, canvas: Canvas, row: int) -> Draft:
        canvas = self._model.to_tokens(canvas)
        ids = canvas.z[row, text_places(canvas, self._vocab, row)].tolist()
        count = 0
        if self._final:
            count = ids.index(self._vocab.mask) if self._vocab.mask in ids else len(ids)
        whole, before = self._tokenizer.decode(ids), self._said.get(row, "")
        # of a last character perhaps only some bytes are there
        text = self._tokenizer.decode(ids[:count]).rstrip("\N{REPLACEMENT CHARACTER}")
        if text.startswith(before) and whole.startswith(text):
            self._said[row] = before = text
        return Draft(self._first + row, before, whole[len(before) :])
