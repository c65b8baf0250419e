"""Results of decoding: the values that Python returns, the command line prints and the server sends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Literal, Protocol, TypeVar, overload

from redraft.core.text.shading import shaded_html
from redraft.core.text.tokenizers import Tokenizer, token_texts
from redraft.decoding.constraints.rules import Json
from redraft.decoding.samplers.base import CacheKind, RuleExactness
from redraft.tasks.engine.given_text import GivenText


class _Displayed(Protocol):
    """A result that a notebook can show."""

    def _repr_html_(self) -> str: ...


_T = TypeVar("_T", bound=_Displayed)
_StopReason = Literal["end", "length", "stop"]
_Exactness = Literal["free"] | RuleExactness


@dataclass(frozen=True)
class TextResult:
    """One text and its tokens, without start and end token: which were given, and when the others were written."""

    text: str
    """The whole text, including given parts."""
    tokens: tuple[int, ...]
    """Ids of the text."""
    given: tuple[bool, ...]
    """True for tokens that were given; in a rewritten text also for tokens that never changed."""
    confidence: tuple[float | None, ...]
    """Probability of each token when it was written; None for given tokens, or if the sampler does not track it."""
    step: tuple[int | None, ...]
    """Step at which each token took its final value, counted from 1 within this text; 0 for given tokens. None for
    models of vectors, which do not commit single tokens."""
    stop: _StopReason
    """Why the text ended. end: by itself; stop: at a stop string; length: no room was left."""
    row: int = 0
    """Index of the text among all texts of the call."""
    prompt: str | None = None
    """The prompt or template."""
    alternatives: tuple[tuple[tuple[str, float], ...] | None, ...] = ()
    """Most likely tokens with their probabilities when each token was written ("" ends the text); None for given
    tokens. Empty unless requested with alternatives=…."""
    tokenizer: Tokenizer | None = field(default=None, repr=False, compare=False)
    given_text: GivenText | None = field(default=None, repr=False, compare=False)
    schemas: tuple[Json | None, ...] = field(default=(), repr=False, compare=False)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """The text in a notebook; tokens that were written with little confidence are shaded."""
        pieces = self.pieces or (self.text,)
        known = self.confidence if self.pieces else (None,)
        return shaded_html(zip(pieces, known, self.given if self.pieces else (False,), strict=True))

    def with_given_text(self, given_text: GivenText | None) -> TextResult:
        """A copy in which given parts are spelled exactly as given."""
        if given_text is None:
            return self
        return replace(self, text=given_text.text(self.tokens, self.given), given_text=given_text)

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """The text of each token; joined, they are the whole text."""
        if self.tokenizer is None:
            return ()
        if self.given_text is None:
            pieces: Sequence[str] = token_texts(self.tokenizer, list(self.tokens))
        else:
            pieces = self.given_text.token_texts(self.tokens, self.given)
        # a stop string may have cut the text within a token
        ends = [min(end, len(self.text)) for end in accumulate(map(len, pieces), initial=0)]
        return tuple(piece[: hi - lo] for piece, (lo, hi) in zip(pieces, pairwise(ends), strict=True))

    @property
    def new(self) -> str:
        """The generated text without given parts; several holes are joined."""
        return "".join(piece for piece, given in zip(self.pieces, self.given, strict=True) if not given)

    @property
    def fills(self) -> tuple[str, ...]:
        """The text in each hole of the template; empty without a template."""
        return () if self.given_text is None else self.given_text.hole_texts(self.tokens, self.given)

    @property
    def value(self) -> Any:
        """The JSON that was written under a schema, parsed: of the class that the schema was made from, or plain data.

        With holes a tuple with the value of each. None without a schema.
        """
        if not any(self.schemas):
            return None
        texts = (self.new,) if self.given_text is None else self.fills
        values = [schema and schema.parse(text) for schema, text in zip(self.schemas, texts, strict=False)]
        return values[0] if self.given_text is None else tuple(values)

    def to_json(self) -> dict[str, Any]:
        """A JSON object that begins with the text."""
        first: dict[str, Any] = {"text": self.text, "prompt": self.prompt, "index": self.row, "stop": self.stop}
        first |= {} if self.given_text is None else {"hole_texts": list(self.fills)}
        by_token = {
            "tokens": self.tokens,
            "token_texts": self.pieces,
            "is_prompt": self.given,
            "written_at_step": self.step,
        }
        confidence = [None if c is None else round(c, 6) for c in self.confidence]
        last = {"alternatives": list(self.alternatives)} if self.alternatives else {}
        return first | {name: list(values) for name, values in by_token.items()} | {"confidence": confidence} | last


@dataclass(frozen=True)
class Results(Sequence[_T]):
    """The results of one call, in order; subclasses add the cost of the call and its settings."""

    results: tuple[_T, ...]

    def __str__(self) -> str:
        """The results as text, with an empty line between texts of several lines."""
        texts = [str(result) for result in self]
        return ("\n\n" if any("\n" in text for text in texts) else "\n").join(texts)

    def _repr_html_(self) -> str:
        """The results in a notebook, one after another."""
        return "".join(result._repr_html_() for result in self)

    @overload
    def __getitem__(self, index: int) -> _T: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[_T, ...]: ...

    def __getitem__(self, index: int | slice) -> _T | tuple[_T, ...]:
        return self.results[index]

    def __len__(self) -> int:
        return len(self.results)


@dataclass(frozen=True)
class TextResults(Results[TextResult]):
    """The texts of one call and their cost; a sequence of `TextResult`."""

    nfe: float
    """Network calls per text."""
    seconds: float
    """Decoding time, without loading the model and composing the canvas."""
    new_tokens: int
    """Number of generated tokens, without given tokens, padding, end tokens and anything after them."""
    seed: int = 0
    """The seed of the call."""
    sampler: str = ""
    """The sampler with all its settings."""
    run: str = ""
    """Digest of the run, or of the model if it has none."""
    cache: CacheKind = "none"
    """Key–value cache. exact: changes no text; approximate: faster, but may change the text; none: no cache."""
    notes: tuple[str, ...] = ()
    """Notes for the user, such as settings that were reduced or lengths the model was not trained on."""
    exactness: _Exactness = "free"
    """How texts obey the rules. free: there are none; matches: every text obeys; steps: also, each step samples exactly
    from the network's prediction at each position given the rule; model: samples p(text | rule) by particles."""
    acceptance: float | None = None
    """Fraction of drafted tokens that were accepted; None without a draft."""
    tokens_per_round: float | None = None
    """Tokens written per pass of the model; None without a draft."""

    @property
    def texts(self) -> list[str]:
        """The texts alone."""
        return [result.text for result in self]

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens per second of decoding; 0 if no time was measured."""
        return self.new_tokens / self.seconds if self.seconds else 0.0

    def to_json(self) -> list[dict[str, Any]]:
        """One object per text, each with the cost of the call."""
        cost = {"seed": self.seed, "run": self.run, "nfe": self.nfe, "sampler": self.sampler, "cache": self.cache}
        cost |= {"exactness": self.exactness}
        if self.tokens_per_round is not None:
            cost |= {"draft_acceptance": self.acceptance, "tokens_per_pass": self.tokens_per_round}
        cost |= {"seconds": self.seconds, "new_tokens": self.new_tokens, "tokens_per_second": self.tokens_per_second}
        return [result.to_json() | cost for result in self]

    @classmethod
    def joined(cls, parts: Iterable[TextResults]) -> TextResults:
        """Joins the parts of one call."""
        first, *rest = parts = list(parts)
        if not rest:
            return first
        written = tuple(result for part in parts for result in part)
        calls, seconds = sum(part.nfe * len(part) for part in parts), sum(part.seconds for part in parts)
        tokens = sum(part.new_tokens for part in parts)
        settings = (first.seed, first.sampler, first.run, first.cache, first.notes, first.exactness)
        drafts = (parts[-1].acceptance, parts[-1].tokens_per_round)  # the last part counts all parts before it
        return cls(written, calls / max(1, len(written)), seconds, tokens, *settings, *drafts)


@dataclass(frozen=True)
class PartialText:
    """An unfinished text after one more step."""

    row: int
    """Index of the text among all texts of the call."""
    committed: str
    """The prefix that can no longer change, safe to stream to a client."""
    tentative: str
    """The rest, which may still change; masked tokens are shown as masks."""
    written: TextResult | None = None
    """The finished text; None until decoding ends."""
