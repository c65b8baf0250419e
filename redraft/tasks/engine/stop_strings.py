"""Stop strings: a text ends before the first one it contains, and decoding stops there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import torch
from torch import Tensor

from redraft.core.canvas import Canvas
from redraft.core.text.tokenizers import Tokenizer, token_texts
from redraft.tasks.engine.result import TextResult


@dataclass(frozen=True)
class StopStrings:
    """Ends a text (`Constraints.stop_strings`) once its generated part contains one of these; prompts do not count.

    Special tokens are matched by their names: "<|eot_id|>" ends a text at that token, although the token is not shown.
    """

    texts: tuple[str, ...]
    tokenizer: Tokenizer

    def __call__(self, z: Tensor, fixed: Tensor, written: Tensor) -> Tensor:
        """(B, L) bool: the columns after the first stop string of each row."""
        rows = zip(z.tolist(), fixed.tolist(), written.tolist(), strict=True)
        size = torch.tensor([self._size(*row) for row in rows], device=z.device)
        return torch.arange(z.shape[1], device=z.device) >= size[:, None]

    def _size(self, ids: list[int], fixed: list[bool], written: list[bool]) -> int:
        """Number of columns up to the end of the first stop string; all columns if there is none yet."""
        begin = sum(1 for _ in takewhile(bool, fixed))
        mask = self.tokenizer.vocab.mask
        finished = takewhile(lambda at: written[at] and ids[at] != mask, range(begin, len(ids)))
        count = self.token_count(ids[begin : begin + sum(1 for _ in finished)], ids[:begin])
        return len(ids) if count is None else begin + count

    def token_count(self, new: Sequence[int], given: Sequence[int] = ()) -> int | None:
        """Number of tokens of `new`, which follow `given`, up to the end of the first stop string; None without one."""
        begin = len(self.spell(given))

        def has_stop(size: int) -> bool:
            text = self.spell([*given, *new[:size]])[begin:]
            return any(stop in text for stop in self.texts)

        low, high = 1, len(new)
        if not has_stop(high):
            return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if has_stop(middle) else (middle + 1, high)
        return low

    def find(self, text: str) -> int | None:
        """Index at which the first stop string of a text begins; None without one."""
        return min((index for stop in self.texts if (index := text.find(stop)) >= 0), default=None)

    def safe_prefix(self, text: str) -> str:
        """The text before the first stop string, without an ending that may still become one."""
        if (index := self.find(text)) is not None:
            return text[:index]
        possible = (
            n for stop in self.texts for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])
        )
        return text[: len(text) - max(possible, default=0)]

    def spell(self, ids: Sequence[int]) -> str:
        """The text of ids, with special tokens spelled out."""
        text, plain = "", list[int]()
        for token in ids:
            if (special := self.tokenizer.special_text(token)) is None:
                plain.append(token)
            else:
                text, plain = text + self.tokenizer.decode(plain) + special, []
        return text + self.tokenizer.decode(plain)

    def truncate(self, result: TextResult) -> TextResult:
        """The result up to the first stop string; a token that begins before it is kept."""
        begin = sum(1 for _ in takewhile(bool, result.given))
        count = self.token_count(result.tokens[begin:], result.tokens[:begin])
        if count is None:
            return result
        size, text = self._before(result.tokens[begin:][:count], result.pieces[begin:][:count])
        names = ("tokens", "given", "confidence", "step", "alternatives")
        shortened = {name: getattr(result, name)[: begin + size] for name in names}
        return replace(result, text="".join(result.pieces[:begin]) + text, stop="stop", **shortened)

    def text_before(self, new: Sequence[int], given: Sequence[int] = ()) -> str:
        """The text of `new`, which follows `given`, up to the first stop string; special tokens are not shown."""
        count = self.token_count(new, given)
        text = self.tokenizer.decode(list(new[:count]))
        if count is None or (index := self.find(text)) is not None:
            return text if count is None else text[:index]
        pieces = token_texts(self.tokenizer, [*given, *new[:count]])[len(given) :]
        return self.tokenizer.decode(list(new[: self._before(new[:count], pieces)[0]]))

    def _before(self, tokens: Sequence[int], pieces: Sequence[str]) -> tuple[int, str]:
        """Number of tokens that begin before the first stop string, and the text before it."""
        spelled = [self.tokenizer.special_text(token) or piece for token, piece in zip(tokens, pieces, strict=True)]
        left = self.find("".join(spelled)) or 0
        size, text = 0, ""
        for piece, shown in zip(spelled, pieces, strict=True):
            if left <= 0:
                break
            size, text, left = size + 1, text + shown[:left], left - len(piece)
        return size, text


def with_stop_strings(canvas: Canvas, texts: tuple[str, ...], tokenizer: Tokenizer) -> Canvas:
    """The canvas with these stop strings."""
    return canvas.with_constraints(stop_strings=StopStrings(texts, tokenizer)) if texts else canvas
