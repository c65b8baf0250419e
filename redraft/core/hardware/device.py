"""Devices by name. Imports torch only when a device is looked for, so that the command line can check names first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

DEVICES = "auto, cpu, cuda, cuda:1 (or another number) or mps"
_NAME = re.compile(r"auto|cpu|mps|cuda(:\d{1,3})?")


def is_device_name(name: object) -> bool:
    """Whether some machine may have a device of this name."""
    return _NAME.fullmatch(str(name)) is not None


def best_device(place: int = 0) -> torch.device:
    """The fastest kind of device available; `place` is the index among several GPUs."""
    import torch

    if torch.cuda.is_available():
        return torch.device("cuda", place)
    return torch.device("mps") if torch.backends.mps.is_available() else torch.device("cpu")


def find_device(name: str | torch.device = "auto", place: int = 0) -> torch.device:
    """The device that a name stands for: auto, cpu, cuda, cuda:1 or mps. Raises if this machine does not have it.

    auto is the fastest kind of device available; `place` is the index of a GPU whose name has none.
    """
    import torch

    if not is_device_name(name):
        raise ValueError(f"there is no device {name!s:.40}; it must be {DEVICES}")
    if name == "auto":
        return best_device(place)
    device = torch.device(name)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ValueError(f"the device {name} cannot be used: torch finds no Apple GPU here; choose auto or cpu")
    if device.type != "cuda":
        return device
    device = torch.device("cuda", place if device.index is None else device.index)
    count = torch.cuda.device_count()
    if count <= device.index:
        available = f"only {count} GPUs, numbered from 0," if count else "no CUDA GPU"
        raise ValueError(f"the device {name} cannot be used: torch finds {available} here; choose auto or cpu")
    return device
