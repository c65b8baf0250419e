"""Arrays and generators in the user's own framework: torch, NumPy, or any that follows the array API standard."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any, get_type_hints

import numpy as np
import torch
from numpy.random import Generator, Philox
from torch import Tensor
from torch.utils.dlpack import from_dlpack


def _to_tensor(array: Any, what: str) -> Tensor:
    """Return a torch tensor of any array, by DLPack or `__array__`."""
    if isinstance(array, Tensor):
        return array.detach()
    if hasattr(array, "__dlpack__") and not isinstance(array, np.ndarray):
        with suppress(BufferError, RuntimeError, TypeError, ValueError):  # then by `__array__`
            return from_dlpack(array).cpu()
    try:
        return torch.as_tensor(np.asarray(array))
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{what} must be an array of numbers; got {type(array).__name__} ({reason})") from error


def _array_like(value: Tensor, array: Any) -> Any:
    """Return `value` as the same kind of array as `array`."""
    if isinstance(array, Tensor):
        return value.float() if value.is_floating_point() else value
    values = value.detach().numpy()
    space = getattr(array, "__array_namespace__", None)
    return values if space is None or isinstance(array, np.ndarray) else space().asarray(values)


def _generator_for(function: Callable[..., Any], seed: int) -> tuple[Any, Callable[[Tensor], Any]]:
    """Return the generator that a function expects, and the conversion of x to its kind of array.

    The annotation of its argument `rng` decides: a generator of NumPy gets NumPy arrays, everything else torch's.
    """
    torch.manual_seed(seed)  # for code that draws without the generator
    if _wants_numpy(function):
        return Generator(Philox(seed)), lambda x: x.numpy()
    generator = torch.Generator()
    generator.manual_seed(seed)
    return generator, lambda x: x


def _wants_numpy(function: Callable[..., Any]) -> bool:
    """Whether the argument `rng` is annotated with a class of NumPy."""
    try:
        hint = get_type_hints(function).get("rng")
    except Exception:  # an annotation that cannot be evaluated: read it as text
        hint = None
    text = str(hint or inspect.signature(function).parameters["rng"].annotation)
    return "numpy" in text or text.startswith("np.")
