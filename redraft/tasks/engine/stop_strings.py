"""Stop strings: texts that end a text. It is cut before them, and nothing after them is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import torch
from torch import Tensor

from redraft.core.canvas import Canvas
from redraft.core.text.tokenizers import HubTokenizer, Tokenizer, token_texts
from redraft.tasks.engine.result import TextResult


@dataclass(frozen=True)
class StopStrings:
    """Ends texts (`Context.ending`) as soon as they contain one of some strings; given beginnings do not count.

    Special tokens count as they are spelt: "<|eot_id|>" ends a text at that token, though no text shows it.
    """

    texts: tuple[str, ...]
    tokenizer: Tokenizer

    def __call__(self, z: Tensor, fixed: Tensor, written: Tensor) -> Tensor:
        rows = zip(z.tolist(), fixed.tolist(), written.tolist(), strict=True)
        size = torch.tensor([self._size(*row) for row in rows], device=z.device)
        return torch.arange(z.shape[1], device=z.device) >= size[:, None]

    def _size(self, ids: list[int], fixed: list[bool], written: list[bool]) -> int:
        """How many columns a row has up to the end of the first stop string; all of them if there is none yet."""
        begin = sum(1 for _ in takewhile(bool, fixed))
        mask = self.tokenizer.vocab.mask
        known = takewhile(lambda at: written[at] and ids[at] != mask, range(begin, len(ids)))
        count = self.token_count(ids[begin : begin + sum(1 for _ in known)], ids[:begin])
        return len(ids) if count is None else begin + count

    def token_count(self, new: Sequence[int], given: Sequence[int] = ()) -> int | None:
        """How many tokens after the given ones it takes to spell a stop string; None: none is spelt."""
        begin = len(self.spell(given))

        def found(size: int) -> bool:
            text = self.spell([*given, *new[:size]])[begin:]
            return any(stop in text for stop in self.texts)

        low, high = 1, len(new)
        if not found(high):
            return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if found(middle) else (middle + 1, high)
        return low

    def find(self, text: str) -> int | None:
        """Where the first stop string of a text begins."""
        return min((place for stop in self.texts if (place := text.find(stop)) >= 0), default=None)

    def safe_prefix(self, text: str) -> str:
        """The text before the first stop string, and before an end that may become one."""
        if (place := self.find(text)) is not None:
            return text[:place]
        held = (
            n for stop in self.texts for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])
        )
        return text[: len(text) - max(held, default=0)]

    def spell(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens spelt out."""
        found, plain = "", list[int]()
        for token in ids:
            if (special := self._special(token)) is None:
                plain.append(token)
            else:
                found, plain = found + self.tokenizer.decode(plain) + special, []
        return found + self.tokenizer.decode(plain)

    def _special(self, token: int) -> str | None:
        hub = self.tokenizer
        return hub.token_of(token) if isinstance(hub, HubTokenizer) and hub.is_special(token) else None

    def truncate(self, written: TextResult) -> TextResult:
        """What was written, up to the first stop string; a token that is cut apart stays."""
        begin = sum(1 for _ in takewhile(bool, written.given))
        count = self.token_count(written.tokens[begin:], written.tokens[:begin])
        if count is None:
            return written
        kept, text = self._before(written.tokens[begin:][:count], written.pieces[begin:][:count])
        names = ("tokens", "given", "confidence", "step", "alternatives")
        each = {name: getattr(written, name)[: begin + kept] for name in names}
        return replace(written, text="".join(written.pieces[:begin]) + text, stop="stop", **each)

    def text_before(self, new: Sequence[int], given: Sequence[int] = ()) -> str:
        """The text of the tokens after the given ones, up to the first stop string; special tokens are not shown."""
        count = self.token_count(new, given)
        text = self.tokenizer.decode(list(new[:count]))
        if count is None or (place := self.find(text)) is not None:
            return text if count is None else text[:place]
        pieces = token_texts(self.tokenizer, [*given, *new[:count]])[len(given) :]
        return self.tokenizer.decode(list(new[: self._before(new[:count], pieces)[0]]))

    def _before(self, tokens: Sequence[int], pieces: Sequence[str]) -> tuple[int, str]:
        """How many tokens begin before the first stop string, and the text before it."""
        spelt = [self._special(token) or piece for token, piece in zip(tokens, pieces, strict=True)]
        left = self.find("".join(spelt)) or 0
        kept, text = 0, ""
        for piece, shown in zip(spelt, pieces, strict=True):
            if left <= 0:
                break
            kept, text, left = kept + 1, text + shown[:left], left - len(piece)
        return kept, text


def with_stop_strings(canvas: Canvas, texts: tuple[str, ...], tokenizer: Tokenizer) -> Canvas:
    """The canvas, on which texts end at these strings."""
    return replace(canvas, context=replace(canvas.context, ending=StopStrings(texts, tokenizer))) if texts else canvas
