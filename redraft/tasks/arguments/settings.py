"""The arguments of the verbs that write, once: Python, the command line and the server take these very fields.

Everything is checked when a value is made, without torch, so a slip costs no waiting. A message names an argument as
`name=value`, or as `name=…`; the command line turns these into its flags.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_type_hints

from tyro.conf import arg

from redraft.tasks.arguments.rules import ArgumentError, _as_tuple, _RuleSettings

MOST_SEED = 2**63 - 1  # random keys are int64: beyond it seeds would repeat
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
    """How help shows an argument that may be left out, and what happens then."""
    return arg(metavar=metavar, help_behavior_hint=f"(default: {otherwise})" if otherwise else "")


@dataclass(frozen=True)
class DecodingSettings(_RuleSettings):
    """How to write; all verbs that write share it."""

    n: Annotated[int, arg(name="rows", aliases=("--n",))] = 1
    """Number of texts per prompt."""
    sampler: SamplerName = "own"
    """How noise becomes text; own: the run's sampler. In Python also a sampler of yours."""
    steps: Annotated[int | None, optional_argument("INT", "the sampler's own")] = None
    """Sampling steps, for adaptive samplers (from threshold on) a maximum. Fewer is faster, but the text gets worse."""
    temperature: Annotated[float | None, optional_argument("FLOAT", "the sampler's own")] = None
    """1 samples from the model, less is sharper; 0 takes the likeliest token (not with ancestral and first-hitting)."""
    threshold: Annotated[float | None, optional_argument("FLOAT", "the sampler's own")] = None
    """For threshold and klass: how sure the model must be of a token to write it; above 1 one token at a time."""
    top_k: Annotated[int | None, optional_argument("INT", "all tokens")] = None
    """Sample only from the k likeliest tokens."""
    top_p: Annotated[float | None, optional_argument("FLOAT", "all tokens")] = None
    """Draw only from the fewest likeliest tokens that have this probability together (the nucleus)."""
    min_p: Annotated[float | None, optional_argument("FLOAT", "all tokens")] = None
    """Draw only tokens that have at least this share of the probability of the likeliest."""
    repetition_penalty: Annotated[float | None, optional_argument("FLOAT", "none")] = None
    """Tokens that the text has already get the power of it: above 1 they become less likely."""
    decode_block: Annotated[int | None, optional_argument("INT", "as the sampler has it")] = None
    """Write left to right in blocks of this many tokens (semi-autoregressive); for networks with full attention."""
    cache: CacheName = "own"
    """Of keys and values. exact: for networks that write in blocks, changes no text. prefix, dual: approximate ones for
    full attention with --decode-block, faster, but they may change the text."""
    refresh: Annotated[int | None, optional_argument("INT", "at the start of each block")] = None
    """For prefix and dual caches: reread the whole row after this many steps; 1 changes no text (dual: unless
    there is a rule)."""
    end_token: EndName = "free"
    """When a text may end. last: end tokens are written when nothing else is left, for confidence, margin and entropy;
    never: not at all, the text gets its full length. For models trained on rows that end tokens fill, as LLaDA."""
    alternatives: int = 0
    """Keep this many of the likeliest tokens for each written one, as they were when it was written (see --json)."""
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
            raise ArgumentError("refresh", f"refresh={self.refresh}: it is for approximate caches; use cache='dual'")
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
    """What `generate` takes besides the model and the prompts."""

    max_new_tokens: Annotated[
        int | None,
        arg(
            name="new",
            aliases=("--max-new-tokens",),
            metavar="INT",
            help_behavior_hint="(default: up to the length of the training rows)",
        ),
    ] = None
    """Number of tokens to write; the text may end before."""
    stop: Annotated[tuple[str, ...], arg(metavar="TEXT")] = ()
    """The text ends before the first of these strings; special tokens count as they are spelt."""
    source: Annotated[str | None, optional_argument("TEXT")] = None
    """What the text should answer, for models trained on pairs."""
    label: Annotated[str | None, optional_argument("NAME")] = None
    """The class of the text, for models trained on classes."""
    guidance: float = 1.0
    """How closely to follow label or source, else the prompt: 0 ignores it, 1 is as trained, more exaggerates it."""
    negative_prompt: Annotated[str | None, optional_argument("TEXT")] = None
    """With guidance above 1: a prompt to move away from, at most as long as the prompt; for models with mask noise."""
    draft: Annotated[str | None, optional_argument("DIR|FILE")] = None
    """For causal models: who proposes tokens that the model then reads several at a time. The directory of a drafter
    (redraft adapt --draft) or of a diffusion model with the same tokenizer; self: the model's own drafter; lookup: what
    followed the same words before; a file of texts (.txt, .jsonl), best the model's own: what followed them there. The
    text does not change."""
    draft_length: int = 8
    """Tokens per draft, at most; fewer are drafted where few are accepted."""
    draft_steps: int = 1
    """Passes of the drafting model per draft: more are slower, but more tokens are accepted."""
    accept: RuleName = "matched"
    """Which drafted tokens are accepted; all rules leave the model's probabilities as they are. matched and gumbel: the
    text is the same for every drafter; matched: also the same as without. token, block: for models that draft."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", _stop_strings(self.stop))
        super().__post_init__()
        _require_between("draft_length", self.draft_length, 1, 1024)
        _require_between("draft_steps", self.draft_steps, 1, 1024)
        if self.accept not in get_args(RuleName):
            raise ArgumentError("accept", f"accept={self.accept!r}: choose from {', '.join(get_args(RuleName))}")
        if self.max_new_tokens is not None and self.max_new_tokens < 1:
            raise ArgumentError(
                "max_new_tokens", f"max_new_tokens={shorten_number(self.max_new_tokens)}: write at least one token"
            )
        _require_between("guidance", self.guidance, 0, 1000)
        ruled = next((name for name in ("pattern", "schema", "required") if getattr(self, name)), None)
        if self.stop and ruled:
            raise ArgumentError("stop", f"stop=… might end a text before it obeys {ruled}=…; leave one of them out")


@dataclass(frozen=True)
class InfillSettings(DecodingSettings):
    """What `infill` takes besides the model and the templates."""

    room: int = 32
    """Maximum number of tokens in a hole of any length, [[*]]."""
    draws: int = 4
    """Noise levels by which the lengths of a hole [[*]] or [[2-6]] are compared; insertion models need none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_between("room", self.room, 1, MOST_ROWS)
        _require_between("draws", self.draws, 1, 4096)


@dataclass(frozen=True)
class RewriteSettings(DecodingSettings):
    """What `rewrite` takes besides the model and the texts."""

    strength: Annotated[float | None, optional_argument("FLOAT", "0.5")] = None
    """How much of the text to write again, from 0 (nothing) to 1 (all of it): the time to which it is noised."""
    pinned: Annotated[tuple[str, ...], arg(name="pin", metavar="WORD")] = ()
    """Words of the text that stay as they are."""
    candidates: int = 1
    """Texts to choose each result from: the one most like all of them (minimum Bayes risk)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "pinned", _as_tuple("pinned", self.pinned))
        super().__post_init__()
        _require_between("strength", self.strength, 1e-6, 1)
        _require_between("candidates", self.candidates, 1, 10_000)


@dataclass(frozen=True)
class ControlSettings(DecodingSettings):
    """What `control` takes besides the model."""

    pos: Annotated[str | None, optional_argument("TAGS")] = None
    """Part of speech of every word, say "DET ADJ NOUN VERB"; * for any. The text has just as many words."""
    length: Annotated[int | None, optional_argument("INT")] = None
    """Number of tokens of the text."""
    attributes: Annotated[tuple[str, ...], arg(name="attribute", metavar="NAME=VALUE")] = ()
    """Attributes of the text, by the names and values of the training data, say mood=sad where=lake."""
    scale: Annotated[float | None, optional_argument("FLOAT", "wishes are demanded")] = None
    """Guide instead of demanding: how strongly parts of speech or the attribute weigh (γ; 1 is Bayes' rule)."""
    lexicon: Annotated[str | None, optional_argument("FILE.json", "that of the corpus")] = None
    """The part of speech of every word, as a JSON object."""
    classifier: Annotated[str | None, optional_argument("DIR", "the model's own, if it has one")] = None
    """A tagger of noisy text that guides towards parts of speech, trained beside this model (mdlm_tagger_tiny …)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", _as_tuple("attributes", self.attributes))
        super().__post_init__()
        _require_between("length", self.length, 1, MOST_ROWS)
        _require_between("scale", self.scale, 0, 1000)


@dataclass(frozen=True)
class ScoreSettings:
    """What `score` takes besides the model and the texts."""

    draws: int = 4
    """Noise levels per text. More give a smaller error; models that write token by token need none."""
    seed: int = 0
    """Seed of the noise."""

    def __post_init__(self) -> None:
        _require_types(self)
        _require_between("draws", self.draws, 1, 4096)
        _require_seed(self.seed)


@dataclass(frozen=True)
class CorrectSettings:
    """What `correct` takes besides the model, the texts and the known words."""

    noise: float = 0.02
    """How much to distrust the text: the share of letters that are expected to be wrong."""
    keep: Annotated[tuple[str, ...], arg(metavar="WORD")] = ()
    """Words that are never changed, in any case."""
    names: Annotated[bool, arg(help_behavior_hint="")] = False
    """Change names, too: words with a capital inside of a sentence."""
    confidence: float = 0.5
    """Change a word only if the new one is at least this likely to be what was meant."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", _as_tuple("keep", self.keep))
        _require_types(self)
        if not isinstance(self.names, bool):
            raise ArgumentError("names", f"names={self.names!r:.60}: it must be true or false")
        _require_between("noise", self.noise, 1e-6, 0.5)
        _require_between("confidence", self.confidence, 0, 1)

    @property
    def kept(self) -> frozenset[str]:
        """The words to keep, in lower case."""
        return frozenset(word.lower() for word in self.keep)


def _require_types(value: Any) -> None:
    """Raises unless every field of a dataclass has its type: Python and JSON let anything through."""
    for name, hint in get_type_hints(type(value)).items():
        given, kinds = getattr(value, name), tuple(k for k in (get_args(hint) or (hint,)) if k in _WORDS)
        if isinstance(given, tuple):  # of words, which were looked at before
            continue
        if given is None or not kinds or (isinstance(given, kinds) and not isinstance(given, bool)):
            continue
        if not (float in kinds and isinstance(given, int) and not isinstance(given, bool)):
            raise ArgumentError(name, f"{name}={given!r:.60}: it must be {_WORDS[kinds[0]]}")


def _stop_strings(given: Any) -> tuple[str, ...]:
    """One string, or a list of them; none is empty, for an empty one would end every text at once."""
    texts = (given,) if isinstance(given, str) else () if given is None else given
    if not isinstance(texts, tuple | list) or not all(isinstance(text, str) and text for text in texts):
        raise ArgumentError("stop", f"stop={given!r:.60}: give one text or a list of them, none of them empty")
    return tuple(texts)


_WORDS: dict[Any, str] = {int: "a whole number", float: "a number", str: "a text"}


def _require_between(name: str, value: float | None, least: float, most: float) -> None:
    """A number from `least` to `most`, if it is given at all."""
    if value is not None and (wrong := range_error(value, least, most)):
        raise ArgumentError(name, f"{name}={shorten_number(value)}: {wrong}")


def range_error(value: float, least: float, most: float) -> str | None:
    """What a number must be, if it is not; None: it lies in the range."""
    if isinstance(value, float) and not math.isfinite(value):
        return "it must be a finite number"
    return None if least <= value <= most else f"it must be from {least:,} to {most:,}"


def _require_seed(seed: int) -> None:
    if wrong := seed_error(seed):
        raise ArgumentError("seed", f"seed={shorten_number(seed)}: {wrong}")


def seed_error(seed: int) -> str | None:
    return None if 0 <= seed <= MOST_SEED else "it must be from 0 to 2^63 − 1"


def shorten_number(value: float) -> str:
    """A number as a message can hold it."""
    return str(value) if isinstance(value, float) or abs(value) < 10**30 else "of more than 30 digits"


def require_texts(name: str, texts: str | Sequence[str]) -> list[str]:
    """The texts as a list, which must not be empty."""
    found = [texts] if isinstance(texts, str) else list(texts)
    if not found:
        raise ArgumentError(name, f"{name}=[]: give at least one text")
    for text in found:
        if not isinstance(text, str):
            raise ArgumentError(name, f"{name}=…: {type(text).__name__} is not a text; give strings")
    return found
