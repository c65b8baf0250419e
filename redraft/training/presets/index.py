"""The index of presets, read from the rooms: no name is written twice.

A preset is a public function of a room that returns a `Run` and needs no argument. The tiny ones learn the embedded
stories in minutes on a CPU. The published ones carry their papers' hyperparameters; they read their tokenizer from a
file of the user's, say `tokenizer.json` of GPT-2, and their data from files or a hub. Within a purpose they are listed
in the order of their file.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, isfunction, signature
from types import ModuleType

from redraft.training.presets import chat, latents, small, tiny, tokens, vectors
from redraft.training.runs.run import Run

_Presets = tuple[Callable[..., Run], ...]


def _presets(room: ModuleType) -> _Presets:
    """The presets that a room defines, in the order of its file."""
    return tuple(f for f in vars(room).values() if isfunction(f) and f.__module__ == room.__name__ and _is_preset(f))


def _is_preset(function: Callable[..., object]) -> bool:
    form = signature(function, eval_str=True)
    ready = all(p.default is not Parameter.empty for p in form.parameters.values())
    return ready and form.return_annotation is Run and not function.__name__.startswith("_")


def _is_tiny(preset: Callable[..., Run]) -> bool:
    return "_tiny" in preset.__name__


def _tiny(room: ModuleType) -> _Presets:
    return tuple(filter(_is_tiny, _presets(room)))


def _published(room: ModuleType) -> _Presets:
    return tuple(f for f in _presets(room) if not _is_tiny(f))


PURPOSES: dict[str, _Presets] = {
    "Minutes on a laptop, on the embedded stories: noise of tokens": _tiny(tiny),
    "The same: questions and answers by a chat template": _tiny(chat),
    "The same: Gaussian noise of word vectors": _tiny(vectors),
    "The same: Gaussian noise of latents, each after its codec": _tiny(latents),
    "Half an hour on a laptop, on text of your own": _presets(small),
    "Published sizes, for GPUs: noise of tokens": _published(tokens),
    "Published sizes: Gaussian noise of word vectors": _published(vectors),
    "Published sizes: Gaussian noise of latents, each after its codec": _published(latents),
}
PRESETS: dict[str, Callable[..., Run]] = {f.__name__: f for functions in PURPOSES.values() for f in functions}
TINY: dict[str, Callable[[], Run]] = {name: f for name, f in PRESETS.items() if _is_tiny(f)}
PUBLISHED: dict[str, Callable[..., Run]] = {name: f for name, f in PRESETS.items() if name not in TINY}
