"""Streaming: partial texts during decoding, split into a prefix that is final and a rest that may change."""

from __future__ import annotations

from itertools import takewhile

from redraft.core.canvas import Canvas
from redraft.decoding.samplers.base import Sampler
from redraft.models.canvas_builder import text_positions
from redraft.tasks.engine.given_text import GivenText
from redraft.tasks.engine.model import TextModel
from redraft.tasks.engine.result import PartialText
from redraft.tasks.engine.stop_strings import StopStrings


class StreamView:
    """Turns canvases of a decoding loop into partial texts; `first` is the index of row 0 in the call."""

    def __init__(self, model: TextModel, sampler: Sampler, first: int, given_text: GivenText | None = None) -> None:
        self._tokenizer, self._vocab, self._lm = model.tokenizer, model.lm.config.vocab, model.lm
        self._first, self._given_text = first, given_text
        self._committed = dict[int, str]()  # row → text already reported as final
        self._final = sampler.writes_once and model.lm.process.fills_masks

    def partial_text(self, canvas: Canvas, row: int) -> PartialText:
        """The text of a row so far; call it with every canvas, in order."""
        canvas = self._lm.to_tokens(canvas)
        positions = text_positions(canvas, self._vocab, row)
        ids, given = canvas.z[row, positions].tolist(), canvas.fixed[row, positions].tolist()
        count = 0
        if self._final:
            count = ids.index(self._vocab.mask) if self._vocab.mask in ids else len(ids)
        whole, before = self._text(ids, given, len(ids)), self._committed.get(row, "")
        # some bytes of the last character may still be missing
        text = self._text(ids, given, count).rstrip("\N{REPLACEMENT CHARACTER}")
        if isinstance(ending := canvas.context.constraints.stop_strings, StopStrings):
            whole, text = self._until(ending, whole, text, ids, given)
        if text.startswith(before) and whole.startswith(text):
            self._committed[row] = before = text
        return PartialText(self._first + row, before, whole[len(before) :])

    def _text(self, ids: list[int], given: list[bool], count: int) -> str:
        """The first `count` tokens as text, with given parts unchanged."""
        if self._given_text is None:
            return self._tokenizer.decode(ids[:count])
        if count == len(ids):
            return self._given_text.text(ids, given)
        return "".join(self._given_text.token_texts(ids, given)[:count])

    def _until(self, ending: StopStrings, whole: str, text: str, ids: list[int], given: list[bool]) -> tuple[str, str]:
        """Both texts up to the first stop string; an ending that may become one is not committed yet."""
        first = sum(1 for _ in takewhile(bool, given))
        begin = len(self._text(ids, given, first))
        if (count := ending.token_count(ids[first:], ids[:first])) is not None:
            whole = self._text(ids[: first + count], given[: first + count], first + count)
            text = text[: len(whole)]
        return whole[:begin] + whole[begin:][: ending.find(whole[begin:])], text[:begin] + ending.safe_prefix(
            text[begin:]
        )
