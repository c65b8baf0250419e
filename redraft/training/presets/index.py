"""The index of all presets, built from the files in this folder so that no name is listed twice.

A preset is a public function that returns a `Run` and can be called without arguments. Tiny presets learn the built-in
stories in minutes on a CPU. Published presets have the hyperparameters of their papers; they read the tokenizer from
a file, such as GPT-2's `tokenizer.json`, and the data from files or a hub. Presets are listed in file order.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, isfunction, signature
from types import ModuleType

from redraft.training.presets import chat, latents, small, tiny, tokens, vectors
from redraft.training.runs.run import Run

_Presets = tuple[Callable[..., Run], ...]


def _presets(module: ModuleType) -> _Presets:
    """Return the presets that a module defines, in file order."""
    functions = (f for f in vars(module).values() if isfunction(f) and f.__module__ == module.__name__)
    return tuple(filter(_is_preset, functions))


def _is_preset(function: Callable[..., object]) -> bool:
    sig = signature(function, eval_str=True)
    has_defaults = all(p.default is not Parameter.empty for p in sig.parameters.values())
    return has_defaults and sig.return_annotation is Run and not function.__name__.startswith("_")


def _is_tiny(preset: Callable[..., Run]) -> bool:
    return "_tiny" in preset.__name__


def _tiny_presets(module: ModuleType) -> _Presets:
    return tuple(filter(_is_tiny, _presets(module)))


def _published_presets(module: ModuleType) -> _Presets:
    return tuple(f for f in _presets(module) if not _is_tiny(f))


PURPOSES: dict[str, _Presets] = {
    "Tiny (minutes on a laptop, built-in stories): noise on tokens": _tiny_presets(tiny),
    "Tiny: chat fine-tuning with a chat template": _tiny_presets(chat),
    "Tiny: Gaussian noise on word vectors": _tiny_presets(vectors),
    "Tiny: Gaussian noise on latents; train the codec first": _tiny_presets(latents),
    "Small (half an hour on a laptop, your own text)": _presets(small),
    "Published sizes (for GPUs): noise on tokens": _published_presets(tokens),
    "Published sizes: Gaussian noise on word vectors": _published_presets(vectors),
    "Published sizes: Gaussian noise on latents; train the codec first": _published_presets(latents),
}
PRESETS: dict[str, Callable[..., Run]] = {f.__name__: f for functions in PURPOSES.values() for f in functions}
TINY: dict[str, Callable[[], Run]] = {name: f for name, f in PRESETS.items() if _is_tiny(f)}
PUBLISHED: dict[str, Callable[..., Run]] = {name: f for name, f in PRESETS.items() if name not in TINY}
