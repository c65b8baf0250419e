"""Settings of all tasks, defined once for Python, the command line and the server.

Settings are checked when they are created, before torch is imported, so typos fail fast. Messages name an argument as
`name=value` or `name=…`, which the command line turns into its flags.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from redraft.decoding.registry import SAMPLER_NAMES, SOLVER_NAMES
from redraft.tasks.arguments.rules import _read_words, _RuleSettings
from redraft.tasks.arguments.setting import MOST_SEED, ArgumentError, Checked, _show_value, _texts_of, setting

_MOST_ROWS = 10**9
_CacheName = Literal["own", "none", "exact", "prefix", "dual"]
_EndName = Literal["free", "last", "never"]
_RuleName = Literal["matched", "gumbel", "token", "block", "point"]


def _read_stop_strings(name: str, given: Any) -> tuple[str, ...]:
    """One string or a list of strings as a tuple. Raises if one is empty, because it would end every text at once."""
    if (texts := _texts_of(given)) is None or not all(texts):
        raise ArgumentError(name, f"{name}={_show_value(given)}: give one text or a list of them, none of them empty")
    return texts


def _read_logit_bias(name: str, given: Any) -> str | None:
    """A mapping from ids to numbers, or its JSON text, as JSON text; None if it is empty."""
    try:
        biases = json.loads(given) if isinstance(given, str) else given
        pairs = {int(token): float(value) for token, value in (biases or {}).items()}
        if any(int(token) < 0 or not abs(value) <= 100 for token, value in pairs.items()):
            raise ValueError
    except (AttributeError, TypeError, ValueError, RecursionError):
        message = 'give ids of tokens with numbers from -100 to 100, such as {"42": -100}'
        raise ArgumentError(name, f"{name}={_show_value(given)}: {message}") from None
    return json.dumps(pairs) if pairs else None


@dataclass(frozen=True)
class DecodingSettings(_RuleSettings):
    """Settings that all generating tasks share."""

    n: int = setting(
        1, "Number of texts per prompt.", least=1, most=_MOST_ROWS, flag="--n", aliases=("--rows",), group="Text"
    )
    sampler: str = setting(
        "own",
        "Sampler by name; own: the one of the run. In Python also a sampler or a pick, on the command line also one of "
        f"your own: file.py:NAME. For models of vectors: {', '.join(SOLVER_NAMES)}.",
        choices=("own", *SAMPLER_NAMES, *SOLVER_NAMES),
        hints={
            "greedy": "sampler=confidence temperature=0",
            "argmax": "sampler=confidence temperature=0",
            "random": "sampler=any-order",
            "ddpm": "sampler=ancestral",
            "low_confidence": "sampler=confidence",
            "default": "sampler=own",
        },
        objects=True,
        group="Sampling",
    )
    steps: int | None = setting(
        None,
        "Sampling steps; a maximum for adaptive samplers (threshold, frechet, entropy-bound, klass, revoke). "
        "Fewer is faster, but the text gets worse.",
        least=1,
        most=1_000_000,
        otherwise="the sampler's own",
        group="Sampling",
    )
    temperature: float | None = setting(
        None,
        "1 samples from the model, lower is sharper; 0 takes the most likely token (not for ancestral, first-hitting).",
        least=0,
        most=1_000_000,
        otherwise="the sampler's own",
        group="Sampling",
    )
    threshold: float | None = setting(
        None,
        "For threshold and klass: minimum confidence to write a token; above 1 writes one token at a time.",
        least=0,
        most=1_000_000,
        otherwise="the sampler's own",
        group="Sampling",
        rare=True,
    )
    top_k: int | None = setting(
        None,
        "Sample only from the k most likely tokens.",
        least=1,
        most=_MOST_ROWS,
        otherwise="all tokens",
        group="Sampling",
    )
    top_p: float | None = setting(
        None,
        "Nucleus sampling: sample from the smallest set of tokens whose probabilities add up to this.",
        above=0,
        most=1,
        otherwise="all tokens",
        group="Sampling",
    )
    min_p: float | None = setting(
        None,
        "Drop tokens less likely than this fraction of the most likely one.",
        least=0,
        most=1,
        otherwise="all tokens",
        group="Sampling",
        rare=True,
    )
    repetition_penalty: float | None = setting(
        None,
        "Penalty for tokens already in the text; above 1 makes repeats less likely.",
        above=0,
        most=1_000_000,
        otherwise="none",
        group="Sampling",
        rare=True,
    )
    frequency_penalty: float | None = setting(
        None,
        "Subtract this from a token's logit for each time it was already written; the prompt does not count. A step "
        "that writes several tokens counts only those of earlier steps.",
        least=-2,
        most=2,
        otherwise="none",
        group="Sampling",
        rare=True,
    )
    presence_penalty: float | None = setting(
        None,
        "Subtract this from a token's logit if it was already written; the prompt does not count.",
        least=-2,
        most=2,
        otherwise="none",
        group="Sampling",
        rare=True,
    )
    logit_bias: str | None = setting(
        None,
        'Values to add to the logits, by token id: {"42": -100}. From -100 (never) to 100 (almost always).',
        metavar="JSON",
        mapping=True,
        otherwise="none",
        read=_read_logit_bias,
        group="Sampling",
        rare=True,
    )
    decode_block: int | None = setting(
        None,
        "Write left to right in blocks of this many tokens (semi-autoregressive); for networks with full attention.",
        least=1,
        most=_MOST_ROWS,
        otherwise="the sampler's own",
        group="Speed",
    )
    window: int | None = setting(
        None,
        "Texts longer than the training rows: write this many tokens, keep the last of them as context, go on. At most "
        "the length of the training rows; steps then count per window.",
        least=2,
        most=_MOST_ROWS,
        otherwise="the whole text at once",
        group="Text",
    )
    stride: int | None = setting(
        None,
        "With --window: number of new tokens per window; the rest is context.",
        least=1,
        most=_MOST_ROWS,
        otherwise="half of the window",
        group="Text",
    )
    cache: _CacheName = setting(
        "own",
        "Key–value cache. exact: for block-causal models, faster, same text. prefix, dual: approximate caches "
        "for full attention with --decode-block, faster, but the text may change.",
        group="Speed",
    )
    refresh: int | None = setting(
        None,
        "For prefix and dual caches: recompute the whole row after this many steps; 1 gives the same text as "
        "no cache (for dual only without rules).",
        least=1,
        most=_MOST_ROWS,
        otherwise="at the start of each block",
        group="Speed",
        rare=True,
    )
    end_token: _EndName = setting(
        "free",
        "When the text may end, for models trained on rows filled up with end tokens, such as LLaDA. last: "
        "write end tokens only when nothing else is left (samplers confidence, margin, entropy). never: "
        "always use the full length.",
        group="Text",
    )
    alternatives: int = setting(
        0,
        "Record this many of the most likely tokens for each written token, at the time it was written (see --json).",
        least=0,
        most=20,
        group="Output",
        rare=True,
    )
    seed: int = setting(0, "The same seed gives the same text.", least=-MOST_SEED, most=MOST_SEED, group="Text")

    @property
    def token_biases(self) -> tuple[tuple[int, float], ...]:
        """The ids of `logit_bias` with their values."""
        return tuple((int(token), value) for token, value in json.loads(self.logit_bias or "{}").items())

    def _require_agreement(self) -> None:
        if self.refresh is not None and self.cache not in ("prefix", "dual"):
            raise ArgumentError("refresh", f"refresh={self.refresh}: it needs an approximate cache; use cache='dual'")
        if self.stride is not None and not (self.window is not None and self.stride <= self.window):
            raise ArgumentError("stride", f"stride={self.stride}: it must be at most window=…; give a larger window")
        if self.window is not None and (self.frequency_penalty or self.presence_penalty):
            raise ArgumentError(
                "window", f"window={self.window}: penalties count the whole text; leave one of them out"
            )
        if self.window is not None and self.ruled:
            raise ArgumentError("window", f"window={self.window}: rules apply to whole texts; leave window=… out")


@dataclass(frozen=True)
class GenerationSettings(DecodingSettings):
    """Settings of `generate`."""

    max_new_tokens: int | None = setting(
        None,
        "Number of tokens to write; the text may end earlier.",
        otherwise="up to the length of the training rows; 64 for models of other projects, 256 for a chat reply",
        least=1,
        aliases=("--new",),
        group="Text",
    )
    chat: bool = setting(
        False,
        "The prompt is a message, and the text the reply to it, for models with a chat template, such as smol.",
        group="Text",
    )
    stop: tuple[str, ...] = setting(
        (),
        "Stop strings: the text ends before the first of them. Special tokens are matched by their names.",
        metavar="TEXT",
        read=_read_stop_strings,
        group="Text",
    )
    source: str | None = setting(None, "The text to answer, for models trained on pairs.", metavar="TEXT", group="Text")
    label: str | None = setting(
        None, "The class of the text, for models trained on classes.", metavar="NAME", group="Text"
    )
    guidance: float = setting(
        1.0,
        "Classifier-free guidance by label, source or else prompt: 0 ignores it, 1 is as trained, more exaggerates it.",
        least=0,
        most=1000,
        group="Guidance",
    )
    negative_prompt: str | None = setting(
        None,
        "A prompt to move away from, at most as long as the prompt. Needs guidance above 1 and a model with "
        "mask noise.",
        metavar="TEXT",
        group="Guidance",
    )
    draft: str | None = setting(
        None,
        "Drafter for speculative decoding of causal models: the directory of a drafter (redraft adapt "
        "--draft) or of a diffusion model with the same tokenizer; self: the model's own drafter; lookup: "
        "copy what followed the same words earlier in the text; a file of texts (.txt, .jsonl), ideally the "
        "model's own: copy what followed them there. The output distribution does not change.",
        metavar="DIR|FILE",
        group="Speed",
    )
    draft_length: int = setting(
        8,
        "Maximum number of tokens per draft; drafts get shorter if few tokens are accepted.",
        least=1,
        most=1024,
        group="Speed",
    )
    draft_steps: int = setting(
        1,
        "Passes of a diffusion drafter per draft. More are slower, but more tokens are accepted.",
        least=1,
        most=1024,
        group="Speed",
        rare=True,
    )
    accept: _RuleName = setting(
        "matched",
        "Which drafted tokens are accepted. No rule changes the output distribution. matched: the same text "
        "as without a draft. gumbel: the same text for every drafter. token, block: for drafters that give "
        "probabilities.",
        group="Speed",
        rare=True,
    )

    def _require_agreement(self) -> None:
        super()._require_agreement()
        ruled = next((name for name in ("pattern", "schema", "required") if getattr(self, name)), None)
        if self.stop and ruled:
            raise ArgumentError("stop", f"stop=… could end a text before it satisfies {ruled}=…; leave one of them out")


@dataclass(frozen=True)
class InfillSettings(DecodingSettings):
    """Settings of `infill`."""

    room: int = setting(
        32, "Maximum number of tokens in a hole of unspecified length, [[*]].", least=1, most=_MOST_ROWS, group="Text"
    )
    draws: int = setting(
        4,
        "Noise draws to compare lengths of a hole [[*]] or [[2-6]]; not used by insertion models.",
        least=1,
        most=4096,
        group="Text",
    )


@dataclass(frozen=True)
class RewriteSettings(DecodingSettings):
    """Settings of `rewrite`."""

    strength: float | None = setting(
        None,
        "How much of the text to rewrite: the time to which it is noised, from 0 (nothing) to 1 (all of it).",
        above=0,
        most=1,
        otherwise="0.5",
        group="Text",
    )
    pinned: tuple[str, ...] = setting(
        (), "Words of the text to keep unchanged.", metavar="WORD", read=_read_words, flag="--pin", group="Text"
    )
    candidates: int = setting(
        1, "Candidates per result; the minimum-Bayes-risk one is kept.", least=1, most=10_000, group="Text"
    )


@dataclass(frozen=True)
class ControlSettings(DecodingSettings):
    """Settings of `control`."""

    pos: str | None = setting(
        None,
        'Part of speech of every word, e.g. "DET ADJ NOUN VERB"; * matches any. Also fixes the number of words.',
        metavar="TAGS",
        group="Text",
    )
    length: int | None = setting(None, "Number of tokens of the text.", least=1, most=_MOST_ROWS, group="Text")
    attributes: tuple[str, ...] = setting(
        (),
        "Attributes of the text, by names and values of the training data, e.g. mood=sad where=lake.",
        metavar="NAME=VALUE",
        read=_read_words,
        flag="--attribute",
        group="Text",
    )
    scale: float | None = setting(
        None,
        "Use guidance of this strength γ instead of hard constraints on parts of speech or the attribute; 1 "
        "is Bayes' rule.",
        least=0,
        most=1000,
        otherwise="hard constraints",
        group="Guidance",
    )
    lexicon: str | None = setting(
        None,
        "JSON object that gives the part of speech of every word.",
        otherwise="the one of the corpus",
        metavar="FILE.json",
        group="Text",
        rare=True,
    )
    classifier: str | None = setting(
        None,
        "Directory of a tagger of noisy text, trained for this model (mdlm_tagger_tiny …), that guides "
        "toward parts of speech.",
        otherwise="the model's own, if it has one",
        metavar="DIR",
        group="Guidance",
        rare=True,
    )


@dataclass(frozen=True)
class ScoreSettings(Checked):
    """Settings of `score`."""

    draws: int = setting(
        4,
        "Noise draws per text. More give a smaller error; not used by autoregressive models.",
        least=1,
        most=4096,
        group="Text",
    )
    seed: int = setting(0, "Seed of the noise.", least=0, most=MOST_SEED, group="Text")


@dataclass(frozen=True)
class CorrectSettings(Checked):
    """Settings of `correct`."""

    noise: float = setting(0.02, "Expected fraction of wrong characters.", above=0, most=0.5, group="Text")
    keep: tuple[str, ...] = setting(
        (),
        "Words that are never changed, whether in upper or lower case.",
        metavar="WORD",
        read=_read_words,
        group="Text",
    )
    names: bool = setting(False, "Also correct names, that is, capitalized words within a sentence.", group="Text")
    confidence: float = setting(
        0.5, "Minimum probability that a replacement is what was meant.", least=0, most=1, group="Text"
    )

    @property
    def kept(self) -> frozenset[str]:
        """The words of `keep` in lower case."""
        return frozenset(word.lower() for word in self.keep)


def require_texts(name: str, texts: str | Sequence[str]) -> list[str]:
    """One text or several as a list. Raises if it is empty or holds anything but strings."""
    if (listed := _texts_of(texts) or _texts_of([*texts])) is None:
        raise ArgumentError(name, f"{name}={texts!r:.60}: give a text or a list of texts")
    if not listed:
        raise ArgumentError(name, f"{name}=[]: give at least one text")
    return [*listed]


Prompt: TypeAlias = str | tuple[int, ...]  # the beginning of a text, or its ids


def require_prompts(name: str, prompts: Any) -> list[Prompt]:
    """One prompt or several as a list; each is a text or a list of ids."""
    listed = [prompts] if isinstance(prompts, str) or _is_ids(prompts) else [*prompts]
    if any(map(_is_ids, listed)) and all(isinstance(prompt, str) or _is_ids(prompt) for prompt in listed):
        return [prompt if isinstance(prompt, str) else tuple(prompt) for prompt in listed]
    return [*require_texts(name, prompts)]


def _is_ids(given: Any) -> bool:
    """Whether a value is a list of ids, with at least one."""
    return isinstance(given, list | tuple) and bool(given) and all(type(token) is int for token in given)
