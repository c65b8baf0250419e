"""Names that other projects use for our arguments: one table, for Python and for the server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, TypeVar

from redraft.tasks.arguments.rules import ArgumentError
from redraft.tasks.arguments.settings import _require_between

_S = TypeVar("_S")


@dataclass(frozen=True)
class _ArgumentAlias:
    """Another name of an argument: whose it is, and how its value becomes ours."""

    name: str
    of: str
    value: Callable[[str, Any], Any] = lambda _, value: value


def _named(**names: str) -> Callable[[str, Any], str]:
    """One of a few words for one of ours."""

    def value(alias: str, given: Any) -> str:
        if not isinstance(given, str) or given not in names:
            raise ArgumentError(alias, f"{alias}={given!r}: choose from {', '.join(map(repr, names))}")
        return names[given]

    return value


def _switched(on: str) -> Callable[[str, Any], str]:
    """True for one of our words, False for "free"."""

    def value(alias: str, given: Any) -> str:
        if not isinstance(given, bool):
            raise ArgumentError(alias, f"{alias}={given!r}: it must be True or False")
        return on if given else "free"

    return value


def _scale(alias: str, given: Any) -> float:
    """LLaDA's scale w is 0 for no guidance, ours γ is 1: γ = w + 1."""
    if not isinstance(given, int | float) or isinstance(given, bool):
        raise ArgumentError(alias, f"{alias}={given!r}: it must be a number")
    _require_between(alias, given, -1, 999)
    return given + 1


ALIASES: Mapping[str, _ArgumentAlias] = {
    "max_tokens": _ArgumentAlias("max_new_tokens", "OpenAI, vLLM"),
    "num_return_sequences": _ArgumentAlias("n", "transformers"),
    "stop_strings": _ArgumentAlias("stop", "transformers"),
    "gen_length": _ArgumentAlias("max_new_tokens", "LLaDA"),
    "block_length": _ArgumentAlias("decode_block", "LLaDA"),
    "block_size": _ArgumentAlias("decode_block", "SGLang, dllm"),
    "remasking": _ArgumentAlias("sampler", "LLaDA", _named(low_confidence="confidence", random="any-order")),
    "cfg_scale": _ArgumentAlias("guidance", "LLaDA", _scale),
    "alg": _ArgumentAlias(
        "sampler",
        "Dream",
        _named(origin="ancestral", maskgit_plus="confidence", topk_margin="margin", entropy="entropy"),
    ),
    "logits_eos_inf": _ArgumentAlias("end_token", "LLaDA", _switched("never")),
    "confidence_eos_eot_inf": _ArgumentAlias("end_token", "LLaDA", _switched("last")),
    "guided_regex": _ArgumentAlias("pattern", "vLLM"),
    "regex": _ArgumentAlias("pattern", "SGLang"),
    "guided_json": _ArgumentAlias(
        "schema", "vLLM", lambda _, given: given if isinstance(given, str) else json.dumps(given)
    ),
    "json_schema": _ArgumentAlias("schema", "SGLang"),
    "diffusion_max_steps": _ArgumentAlias("steps", "vLLM"),
    "max_denoising_steps": _ArgumentAlias("steps", "vLLM"),
}
_UNSUPPORTED_NAMES: Mapping[str, str] = {  # names that are known, and what to do instead
    "alg_temp": "the order of writing is not drawn here; leave it out, or use sampler='any-order'",
    "diffusion_seed_canvas": "write the canvas as a text with holes and call infill",
    "diffusion_pinned": "given text is always kept; write holes [[n]] where it may change and call infill",
    "diffusion_read_only": "call score for probabilities of a text that stays as it is",
    "diffusion_constrained": "leave it out",
}


def settings_from(kind: type[_S], options: Mapping[str, Any]) -> _S:
    """The settings that keyword arguments name, by our names or by those of others; each may be named once."""
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    found: dict[str, Any] = {}
    told: dict[str, str] = {}
    for given, value in options.items():
        alias = ALIASES.get(given)
        name = given if alias is None or given in known else alias.name
        if name not in known:
            raise ArgumentError(given, f"{given}=… is not an argument here; {_advice(given, known)}")
        if name in told:
            raise ArgumentError(given, f"{told[name]}=… and {given}=… mean the same; give one of them")
        told[name] = given
        found[name] = value if name == given or alias is None else alias.value(given, value)
    return kind(**found)


def _advice(given: str, known: list[str]) -> str:
    if given in _UNSUPPORTED_NAMES:
        return _UNSUPPORTED_NAMES[given]
    close = get_close_matches(given, known, n=2, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"
