"""What a call wrote: one value that Python returns, the command line prints and a server sends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Literal, overload

from redraft.core.text.tokenizers import Tokenizer, token_texts
from redraft.tasks.engine.given_text import GivenText

_StopReason = Literal["end", "length", "stop"]
_CacheKind = Literal["none", "exact", "approximate"]
_Exactness = Literal["free", "matches", "steps", "model"]


@dataclass(frozen=True)
class TextResult:
    """One text: its tokens from the start token to the end token, and how each of them came about."""

    text: str
    """The whole text, given parts included."""
    tokens: tuple[int, ...]
    """Ids of the text."""
    given: tuple[bool, ...]
    """Which of the tokens were given; in a rewritten text also those that stayed."""
    confidence: tuple[float | None, ...]
    """The probability that the model gave each token when it was written; None for given ones, and where it is not
    tracked."""
    step: tuple[int | None, ...]
    """When each token took its final value: 1 for those written first in this text, 2 for the next … ; 0 if given.
    None where nothing is committed token by token (models of vectors)."""
    stop: _StopReason
    """end: the text ended by itself; stop: at a stop string; length: there was no more room."""
    row: int = 0
    """The number of the text in its call."""
    prompt: str | None = None
    """The prompt or template it was written for."""
    alternatives: tuple[tuple[tuple[str, float], ...] | None, ...] = ()
    """The likeliest tokens and their probabilities when each token was written, "" for the end of the text; None for
    given ones. Nothing unless they were asked for."""
    tokenizer: Tokenizer | None = field(default=None, repr=False, compare=False)
    given_text: GivenText | None = field(default=None, repr=False, compare=False)

    def with_given_text(self, verbatim: GivenText | None) -> TextResult:
        """The same, with given text as it was given."""
        if verbatim is None:
            return self
        return replace(self, text=verbatim.text(self.tokens, self.given), given_text=verbatim)

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """What each token adds to the text: all of them together are the text."""
        if self.tokenizer is None:
            return ()
        given = self.given_text
        whole = (
            token_texts(self.tokenizer, list(self.tokens))
            if given is None
            else given.token_texts(self.tokens, self.given)
        )
        ends = [min(end, len(self.text)) for end in accumulate(map(len, whole), initial=0)]
        return tuple(piece[: hi - lo] for piece, (lo, hi) in zip(whole, pairwise(ends), strict=True))  # cut by a stop

    @property
    def new(self) -> str:
        """What was written, without the given parts; several holes one after the other."""
        return "".join(piece for piece, given in zip(self.pieces, self.given, strict=True) if not given)

    @property
    def fills(self) -> tuple[str, ...]:
        """What was written into each hole of a template; none where there was no template."""
        return () if self.given_text is None else self.given_text.hole_texts(self.tokens, self.given)

    def to_json(self) -> dict[str, Any]:
        """Plain values, the text first."""
        first: dict[str, Any] = {"text": self.text, "prompt": self.prompt, "row": self.row, "stop": self.stop}
        first |= {} if self.given_text is None else {"fills": list(self.fills)}
        each = {"tokens": self.tokens, "pieces": self.pieces, "given": self.given, "step": self.step}
        confidence = [None if c is None else round(c, 6) for c in self.confidence]
        last = {"alternatives": list(self.alternatives)} if self.alternatives else {}
        return first | {name: list(values) for name, values in each.items()} | {"confidence": confidence} | last


@dataclass(frozen=True)
class TextResults(Sequence[TextResult]):
    """The texts of one call and what they cost; a sequence of `TextResult`."""

    written: tuple[TextResult, ...]
    nfe: float
    """Network calls per text."""
    seconds: float
    """Time spent on writing; loading the model and composing the canvas are not in it."""
    new_tokens: int
    """Generated tokens: no given tokens, no padding, nothing from a text's end token on."""
    seed: int = 0
    """The seed of the call."""
    sampler: str = ""
    """The sampler, with all its settings."""
    run: str = ""
    """The digest of the run or model."""
    cache: _CacheKind = "none"
    """exact: a cache of keys and values that changes no text; approximate: a faster one that may; none."""
    notes: tuple[str, ...] = ()
    """What a user should know: settings that were cut down, lengths the model was not trained on."""
    exactness: _Exactness = "free"
    """free: no rule; matches: every text obeys the rule; steps: and each step draws exactly from the network's
    prediction, position by position, given the rule; model: from the model's p(text | rule), by particles."""
    acceptance: float | None = None
    """With a draft: the share of the drafted tokens that was accepted."""
    tokens_per_round: float | None = None
    """With a draft: tokens written per pass of the model."""

    @overload
    def __getitem__(self, index: int) -> TextResult: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[TextResult, ...]: ...

    def __getitem__(self, index: int | slice) -> TextResult | tuple[TextResult, ...]:
        return self.written[index]

    def __len__(self) -> int:
        return len(self.written)

    @property
    def texts(self) -> list[str]:
        return [each.text for each in self.written]

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens alone."""
        return self.new_tokens / self.seconds if self.seconds else 0.0

    def to_json(self) -> list[dict[str, Any]]:
        """One object per text, each with what the call cost."""
        cost = {"seed": self.seed, "run": self.run, "nfe": self.nfe, "sampler": self.sampler, "cache": self.cache}
        cost |= {"exactness": self.exactness}
        if self.tokens_per_round is not None:
            cost |= {"acceptance": self.acceptance, "tokens_per_round": self.tokens_per_round}
        cost |= {"seconds": self.seconds, "new_tokens": self.new_tokens, "tokens_per_second": self.tokens_per_second}
        return [each.to_json() | cost for each in self.written]

    @classmethod
    def joined(cls, parts: Iterable[TextResults]) -> TextResults:
        """Several parts of one call as one."""
        first, *rest = parts = list(parts)
        if not rest:
            return first
        written = tuple(each for part in parts for each in part.written)
        calls, seconds = sum(part.nfe * len(part) for part in parts), sum(part.seconds for part in parts)
        tokens = sum(part.new_tokens for part in parts)
        same = (first.seed, first.sampler, first.run, first.cache, first.notes, first.exactness)
        drafts = (parts[-1].acceptance, parts[-1].tokens_per_round)  # counted from the first part on
        return cls(written, calls / max(1, len(written)), seconds, tokens, *same, *drafts)


@dataclass(frozen=True)
class PartialText:
    """A text that is being written, after one more step."""

    row: int
    """The number of the text in its call."""
    committed: str
    """The beginning of the text that can no longer change: safe to send to somebody who cannot take words back."""
    tentative: str
    """The rest as it stands: it may change, and masked tokens are shown as such."""
    written: TextResult | None = None
    """The finished text; None while it is being written."""
