"""Names that other projects use for Redraft's arguments: one table for Python and the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, TypeVar

from redraft.tasks.arguments.setting import Argument, ArgumentError, Setting, argument_of

_S = TypeVar("_S")


@dataclass(frozen=True)
class _ArgumentAlias:
    """The argument that a name of another project stands for, and the conversion of its value."""

    name: str
    project: str
    convert: Callable[[str, Any], Any] = lambda _, value: value


def _rename_value(**names: str) -> Callable[[str, Any], str]:
    """Converts a value of the other project to Redraft's name for it."""
    given_as = Setting("")
    return lambda alias, given: names[Argument(alias, given_as, str, tuple(names), False, None, None).check(given)]


def _switch(on: str) -> Callable[[str, Any], str]:
    """Converts True to `on` and False to "free"."""
    return lambda alias, given: on if argument_of(alias, Setting(""), bool, None).check(given) else "free"


def _guidance_scale(alias: str, given: Any) -> float:
    """Converts LLaDA's scale w, which is 0 without guidance, to γ = w + 1, which is 1 without guidance."""
    scale: float = argument_of(alias, Setting("", least=-1, most=999), float, None).check(given)
    return scale + 1


ALIASES: Mapping[str, _ArgumentAlias] = {
    "max_tokens": _ArgumentAlias("max_new_tokens", "OpenAI, vLLM"),
    "num_return_sequences": _ArgumentAlias("n", "transformers"),
    "stop_strings": _ArgumentAlias("stop", "transformers"),
    "gen_length": _ArgumentAlias("max_new_tokens", "LLaDA"),
    "block_length": _ArgumentAlias("decode_block", "LLaDA"),
    "block_size": _ArgumentAlias("decode_block", "SGLang, dllm"),
    "remasking": _ArgumentAlias("sampler", "LLaDA", _rename_value(low_confidence="confidence", random="any-order")),
    "cfg_scale": _ArgumentAlias("guidance", "LLaDA", _guidance_scale),
    "alg": _ArgumentAlias(
        "sampler",
        "Dream",
        _rename_value(origin="ancestral", maskgit_plus="confidence", topk_margin="margin", entropy="entropy"),
    ),
    "logits_eos_inf": _ArgumentAlias("end_token", "LLaDA", _switch("never")),
    "confidence_eos_eot_inf": _ArgumentAlias("end_token", "LLaDA", _switch("last")),
    "guided_regex": _ArgumentAlias("pattern", "vLLM"),
    "regex": _ArgumentAlias("pattern", "SGLang"),
    "guided_json": _ArgumentAlias("schema", "vLLM"),
    "json_schema": _ArgumentAlias("schema", "SGLang"),
    "diffusion_max_steps": _ArgumentAlias("steps", "vLLM"),
    "max_denoising_steps": _ArgumentAlias("steps", "vLLM"),
}
_UNSUPPORTED_NAMES: Mapping[str, str] = {  # name → what to do instead
    "alg_temp": "the unmasking order is not sampled here; leave it out, or use sampler='any-order'",
    "diffusion_seed_canvas": "write the canvas as a text with holes and call infill",
    "diffusion_pinned": "given text is always kept; write holes [[n]] where it may change and call infill",
    "diffusion_read_only": "call score for the probability of an unchanged text",
    "diffusion_constrained": "leave it out",
}


def settings_from(kind: type[_S], options: Mapping[str, Any]) -> _S:
    """Builds settings from keyword arguments, by Redraft's names or those of other projects; raises on duplicates."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    given_as: dict[str, str] = {}
    for given, value in options.items():
        alias = ALIASES.get(given)
        name = given if alias is None or given in names else alias.name
        if name not in names:
            raise ArgumentError(given, f"{given}=… is not an argument here; {_advice(given, names)}")
        if name in given_as:
            raise ArgumentError(given, f"{given_as[name]}=… and {given}=… mean the same; give one of them")
        given_as[name] = given
        values[name] = value if name == given or alias is None else alias.convert(given, value)
    return kind(**values)


def _advice(given: str, names: list[str]) -> str:
    if given in _UNSUPPORTED_NAMES:
        return _UNSUPPORTED_NAMES[given]
    close = get_close_matches(given, names, n=2, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"choose from {', '.join(names)}"
