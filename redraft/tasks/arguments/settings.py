"""Settings of all tasks, defined once for Python, the command line and the server.

Settings are checked when they are created, before torch is imported, so typos fail fast. Messages name an argument as
`name=value` or `name=…`, which the command line turns into its flags.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_type_hints

from tyro.conf import arg

from redraft.tasks.arguments.rules import ArgumentError, _as_tuple, _RuleSettings

MOST_SEED = 2**63 - 1  # random keys are int64; larger seeds would repeat
MOST_ROWS = 10**9
SamplerName = Literal[
    "own",
    "ancestral",
    "first-hitting",
    "any-order",
    "demanded-first",
    "left-to-right",
    "confidence",
    "margin",
    "entropy",
    "threshold",
    "frechet",
    "entropy-bound",
    "klass",
    "revoke",
]
CacheName = Literal["own", "none", "exact", "prefix", "dual"]
EndName = Literal["free", "last", "never"]
RuleName = Literal["matched", "gumbel", "token", "block", "point"]


def optional_argument(metavar: str, otherwise: str = "") -> Any:
    """How --help shows an optional argument: its metavar, and what is used `otherwise`."""
    return arg(metavar=metavar, help_behavior_hint=f"(default: {otherwise})" if otherwise else "")


@dataclass(frozen=True)
class DecodingSettings(_RuleSettings):
    """Settings that all generating tasks share."""

    n: Annotated[int, arg(name="rows", aliases=("--n",))] = 1
    """Number of texts per prompt."""
    sampler: SamplerName = "own"
    """Sampler by name; own: the one of the run. In Python also a sampler object."""
    steps: Annotated[int | None, optional_argument("INT", "the sampler's own")] = None
    """Sampling steps; a maximum for adaptive samplers (threshold, frechet, entropy-bound, klass, revoke). Fewer is
    faster, but the text gets worse."""
    temperature: Annotated[float | None, optional_argument("FLOAT", "the sampler's own")] = None
    """1 samples from the model, lower is sharper; 0 takes the most likely token (not for ancestral, first-hitting)."""
    threshold: Annotated[float | None, optional_argument("FLOAT", "the sampler's own")] = None
    """For threshold and klass: minimum confidence to write a token; above 1 writes one token at a time."""
    top_k: Annotated[int | None, optional_argument("INT", "all tokens")] = None
    """Sample only from the k most likely tokens."""
    top_p: Annotated[float | None, optional_argument("FLOAT", "all tokens")] = None
    """Nucleus sampling: sample from the smallest set of tokens whose probabilities add up to this."""
    min_p: Annotated[float | None, optional_argument("FLOAT", "all tokens")] = None
    """Drop tokens less likely than this fraction of the most likely one."""
    repetition_penalty: Annotated[float | None, optional_argument("FLOAT", "none")] = None
    """Penalty for tokens already in the text; above 1 makes repeats less likely."""
    decode_block: Annotated[int | None, optional_argument("INT", "the sampler's own")] = None
    """Write left to right in blocks of this many tokens (semi-autoregressive); for networks with full attention."""
    cache: CacheName = "own"
    """Key–value cache. exact: for block-causal models, faster, same text. prefix, dual: approximate caches for full
    attention with --decode-block, faster, but the text may change."""
    refresh: Annotated[int | None, optional_argument("INT", "at the start of each block")] = None
    """For prefix and dual caches: recompute the whole row after this many steps; 1 gives the same text as no cache
    (for dual only without rules)."""
    end_token: EndName = "free"
    """When the text may end, for models trained on rows filled up with end tokens, such as LLaDA. last: write end
    tokens only when nothing else is left (samplers confidence, margin, entropy). never: always use the full length."""
    alternatives: int = 0
    """Record this many of the most likely tokens for each written token, at the time it was written (see --json)."""
    seed: int = 0
    """The same seed gives the same text."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_types(self)
        _require_between("alternatives", self.alternatives, 0, 20)
        _require_between("refresh", self.refresh, 1, MOST_ROWS)
        if self.end_token not in get_args(EndName):
            names = ", ".join(map(repr, get_args(EndName)))
            raise ArgumentError("end_token", f"end_token={self.end_token!r}: choose from {names}")
        if self.cache not in get_args(CacheName):
            names = ", ".join(map(repr, get_args(CacheName)))
            raise ArgumentError("cache", f"cache={self.cache!r}: choose from {names}")
        if self.refresh is not None and self.cache not in ("prefix", "dual"):
            raise ArgumentError("refresh", f"refresh={self.refresh}: it needs an approximate cache; use cache='dual'")
        _require_between("n", self.n, 1, MOST_ROWS)
        _require_between("temperature", self.temperature, 0, 1_000_000)
        _require_between("threshold", self.threshold, 0, 1_000_000)
        _require_between("top_k", self.top_k, 1, MOST_ROWS)
        _require_between("top_p", self.top_p, 1e-9, 1)
        _require_between("min_p", self.min_p, 0, 1)
        _require_between("repetition_penalty", self.repetition_penalty, 1e-6, 1_000_000)
        _require_between("decode_block", self.decode_block, 1, MOST_ROWS)
        _require_seed(self.seed)
        if isinstance(self.sampler, str) and self.sampler not in get_args(SamplerName):
            raise ArgumentError(
                "sampler", f"sampler={self.sampler!r}: choose from {', '.join(map(repr, get_args(SamplerName)))}"
            )
        if self.steps is not None and self.steps < 1:
            raise ArgumentError("steps", f"steps={shorten_number(self.steps)}: a sampler needs at least one step")


@dataclass(frozen=True)
class GenerationSettings(DecodingSettings):
    """Settings of `generate`."""

    max_new_tokens: Annotated[
        int | None,
        arg(
            name="new",
            aliases=("--max-new-tokens",),
            metavar="INT",
            help_behavior_hint="(default: up to the length of the training rows)",
        ),
    ] = None
    """Number of tokens to write; the text may end earlier."""
    stop: Annotated[tuple[str, ...], arg(metavar="TEXT")] = ()
    """Stop strings: the text ends before the first of them. Special tokens are matched by their names."""
    source: Annotated[str | None, optional_argument("TEXT")] = None
    """The text to answer, for models trained on pairs."""
    label: Annotated[str | None, optional_argument("NAME")] = None
    """The class of the text, for models trained on classes."""
    guidance: float = 1.0
    """Classifier-free guidance by label, source or else prompt: 0 ignores it, 1 is as trained, more exaggerates it."""
    negative_prompt: Annotated[str | None, optional_argument("TEXT")] = None
    """A prompt to move away from, at most as long as the prompt. Needs guidance above 1 and a model with mask noise."""
    draft: Annotated[str | None, optional_argument("DIR|FILE")] = None
    """Drafter for speculative decoding of causal models: the directory of a drafter (redraft adapt --draft) or of a
    diffusion model with the same tokenizer; self: the model's own drafter; lookup: copy what followed the same words
    earlier in the text; a file of texts (.txt, .jsonl), ideally the model's own: copy what followed them there. The
    output distribution does not change."""
    draft_length: int = 8
    """Maximum number of tokens per draft; drafts get shorter if few tokens are accepted."""
    draft_steps: int = 1
    """Passes of a diffusion drafter per draft. More are slower, but more tokens are accepted."""
    accept: RuleName = "matched"
    """Which drafted tokens are accepted. No rule changes the output distribution. matched: the same text as without a
    draft. gumbel: the same text for every drafter. token, block: for drafters that give probabilities."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", _stop_strings(self.stop))
        super().__post_init__()
        _require_between("draft_length", self.draft_length, 1, 1024)
        _require_between("draft_steps", self.draft_steps, 1, 1024)
        if self.accept not in get_args(RuleName):
            raise ArgumentError("accept", f"accept={self.accept!r}: choose from {', '.join(get_args(RuleName))}")
        if self.max_new_tokens is not None and self.max_new_tokens < 1:
            raise ArgumentError(
                "max_new_tokens", f"max_new_tokens={shorten_number(self.max_new_tokens)}: it must be at least 1"
            )
        _require_between("guidance", self.guidance, 0, 1000)
        ruled = next((name for name in ("pattern", "schema", "required") if getattr(self, name)), None)
        if self.stop and ruled:
            raise ArgumentError("stop", f"stop=… could end a text before it satisfies {ruled}=…; leave one of them out")


@dataclass(frozen=True)
class InfillSettings(DecodingSettings):
    """Settings of `infill`."""

    room: int = 32
    """Maximum number of tokens in a hole of any length, [[*]]."""
    draws: int = 4
    """Noise draws to compare lengths of a hole [[*]] or [[2-6]]; not used by insertion models."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_between("room", self.room, 1, MOST_ROWS)
        _require_between("draws", self.draws, 1, 4096)


@dataclass(frozen=True)
class RewriteSettings(DecodingSettings):
    """Settings of `rewrite`."""

    strength: Annotated[float | None, optional_argument("FLOAT", "0.5")] = None
    """How much of the text to rewrite: the time to which it is noised, from 0 (nothing) to 1 (all of it)."""
    pinned: Annotated[tuple[str, ...], arg(name="pin", metavar="WORD")] = ()
    """Words of the text to keep unchanged."""
    candidates: int = 1
    """Candidates per result; the minimum-Bayes-risk one is kept."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "pinned", _as_tuple("pinned", self.pinned))
        super().__post_init__()
        _require_between("strength", self.strength, 1e-6, 1)
        _require_between("candidates", self.candidates, 1, 10_000)


@dataclass(frozen=True)
class ControlSettings(DecodingSettings):
    """Settings of `control`."""

    pos: Annotated[str | None, optional_argument("TAGS")] = None
    """Part of speech of every word, e.g. "DET ADJ NOUN VERB"; * matches any. Also fixes the number of words."""
    length: Annotated[int | None, optional_argument("INT")] = None
    """Number of tokens of the text."""
    attributes: Annotated[tuple[str, ...], arg(name="attribute", metavar="NAME=VALUE")] = ()
    """Attributes of the text, by names and values of the training data, e.g. mood=sad where=lake."""
    scale: Annotated[float | None, optional_argument("FLOAT", "hard constraints")] = None
    """Use guidance of this strength γ instead of hard constraints on parts of speech or the attribute; 1 is Bayes'
    rule."""
    lexicon: Annotated[str | None, optional_argument("FILE.json", "the one of the corpus")] = None
    """JSON object that gives the part of speech of every word."""
    classifier: Annotated[str | None, optional_argument("DIR", "the model's own, if it has one")] = None
    """Directory of a tagger of noisy text, trained for this model (mdlm_tagger_tiny …), that guides towards parts of
    speech."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", _as_tuple("attributes", self.attributes))
        super().__post_init__()
        _require_between("length", self.length, 1, MOST_ROWS)
        _require_between("scale", self.scale, 0, 1000)


@dataclass(frozen=True)
class ScoreSettings:
    """Settings of `score`."""

    draws: int = 4
    """Noise draws per text. More give a smaller error; not used by autoregressive models."""
    seed: int = 0
    """Seed of the noise."""

    def __post_init__(self) -> None:
        _require_types(self)
        _require_between("draws", self.draws, 1, 4096)
        _require_seed(self.seed)


@dataclass(frozen=True)
class CorrectSettings:
    """Settings of `correct`."""

    noise: float = 0.02
    """Expected fraction of wrong characters."""
    keep: Annotated[tuple[str, ...], arg(metavar="WORD")] = ()
    """Words that are never changed, whether in upper or lower case."""
    names: Annotated[bool, arg(help_behavior_hint="")] = False
    """Also correct names, that is, capitalized words within a sentence."""
    confidence: float = 0.5
    """Minimum probability that a replacement is what was meant."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", _as_tuple("keep", self.keep))
        _require_types(self)
        if not isinstance(self.names, bool):
            raise ArgumentError("names", f"names={self.names!r:.60}: it must be true or false")
        _require_between("noise", self.noise, 1e-6, 0.5)
        _require_between("confidence", self.confidence, 0, 1)

    @property
    def kept(self) -> frozenset[str]:
        """The words of `keep` in lower case."""
        return frozenset(word.lower() for word in self.keep)


def _require_types(settings: Any) -> None:
    """Raises unless every field of the settings has its declared type, which neither Python nor JSON ensures."""
    for name, hint in get_type_hints(type(settings)).items():
        value, types = getattr(settings, name), tuple(t for t in (get_args(hint) or (hint,)) if t in _TYPE_NAMES)
        if isinstance(value, tuple):  # a tuple of words, which was checked before
            continue
        if value is None or not types or (isinstance(value, types) and not isinstance(value, bool)):
            continue
        if not (float in types and isinstance(value, int) and not isinstance(value, bool)):
            raise ArgumentError(name, f"{name}={value!r:.60}: it must be {_TYPE_NAMES[types[0]]}")


def _stop_strings(given: Any) -> tuple[str, ...]:
    """One string or a list of strings as a tuple. Raises if one is empty, because it would end every text at once."""
    texts = (given,) if isinstance(given, str) else () if given is None else given
    if not isinstance(texts, tuple | list) or not all(isinstance(text, str) and text for text in texts):
        raise ArgumentError("stop", f"stop={given!r:.60}: give one text or a list of them, none of them empty")
    return tuple(texts)


_TYPE_NAMES: dict[Any, str] = {int: "a whole number", float: "a number", str: "a text"}


def _require_between(name: str, value: float | None, least: float, most: float) -> None:
    """Raises unless the value is None or a number from `least` to `most`."""
    if value is not None and (error := range_error(value, least, most)):
        raise ArgumentError(name, f"{name}={shorten_number(value)}: {error}")


def range_error(value: float, least: float, most: float) -> str | None:
    """The error message for a number outside the range; None if it is inside."""
    if isinstance(value, float) and not math.isfinite(value):
        return "it must be a finite number"
    return None if least <= value <= most else f"it must be from {least:,} to {most:,}"


def _require_seed(seed: int) -> None:
    if error := seed_error(seed):
        raise ArgumentError("seed", f"seed={shorten_number(seed)}: {error}")


def seed_error(seed: int) -> str | None:
    """The error message for a seed outside the range; None if it is inside."""
    return None if 0 <= seed <= MOST_SEED else "it must be from 0 to 2^63 − 1"


def shorten_number(value: float) -> str:
    """A number as text, unless it has too many digits for a message."""
    return str(value) if isinstance(value, float) or abs(value) < 10**30 else "of more than 30 digits"


def require_texts(name: str, texts: str | Sequence[str]) -> list[str]:
    """One text or several as a list. Raises if it is empty or holds anything but strings."""
    listed = [texts] if isinstance(texts, str) else list(texts)
    if not listed:
        raise ArgumentError(name, f"{name}=[]: give at least one text")
    for text in listed:
        if not isinstance(text, str):
            raise ArgumentError(name, f"{name}=…: {type(text).__name__} is not a text; give strings")
    return listed
