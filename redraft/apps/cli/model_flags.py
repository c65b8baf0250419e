"""Flags for loading a model: what its files do not say, and whether your code may run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from redraft.apps.cli.user_code import require_python_file
from redraft.core.hardware.device import DEVICES, is_device_name
from redraft.models.shipped import SMOL, STORY
from redraft.tasks.arguments.setting import REQUIRED, ArgumentError, Checked, setting


def model_setting(default: Any = None, otherwise: str = f"{SMOL} for English if it is installed, else {STORY}") -> Any:
    """The argument that names a model; None for a default that depends on the text."""
    about = (
        "Directory of a run, a checkpoint or an exported model, or a model that ships with Redraft: "
        f"{', '.join((STORY, SMOL))}."
    )
    if default is REQUIRED:
        return setting(default, about, metavar="MODEL", positional=True)
    return setting(default, about, otherwise="" if default else otherwise, metavar="[MODEL]", positional=True)


def _read_device(name: str, value: object) -> object:
    if not is_device_name(value):
        raise ArgumentError(name, f"{name}={value!s:.40}: it must be {DEVICES}")
    return value


def device_setting() -> Any:
    """The argument that names a device."""
    about = "Device to compute on; auto is a GPU if there is one."
    return setting("auto", about, metavar="auto|cpu|cuda|cuda:N|mps", group="Model", read=_read_device)


@dataclass(frozen=True)
class ModelFlags(Checked):
    """How to load a model."""

    device: str = device_setting()
    mask: str | None = setting(
        None,
        "The mask token of another project's model, if its files do not name it.",
        otherwise="from its files",
        metavar="ID|TOKEN",
        group="Model",
        rare=True,
    )
    attention: str | None = setting(
        None,
        "The attention mask of another project's model, if its files do not name it.",
        otherwise="from its files",
        metavar="causal|full|block:SIZE",
        group="Model",
        rare=True,
    )
    trust: Path | None = setting(
        None,
        "Your Python file with classes that the model uses; its code is run.",
        metavar="FILE.py",
        group="Model",
        rare=True,
    )
    weights: Literal["own", "fp16", "int8", "onnx", "packed"] = setting(
        "own",
        "CPU weight format for causal models; own: as stored. fp16: 2 bytes per weight, fast and without a "
        "measurable loss. onnx: 1 byte per weight, run by onnxruntime, the fastest, with a small loss; needs "
        "redraft[fast]. int8: the same in torch alone. packed: fp32, fast for several rows. In all of them drafting "
        "never changes the output.",
        group="Model",
        rare=True,
    )

    def _require_agreement(self) -> None:
        require_python_file(self.trust)
        require_attention(self.attention)
        if self.mask is not None and not self.mask.strip():
            raise ValueError("--mask is empty; give the id of the mask token, or the token itself")


def require_attention(attention: str | None) -> None:
    if attention is not None and not re.fullmatch(r"causal|full|block:[1-9]\d{0,6}", attention):
        raise ValueError(f"--attention {attention:.40}: it must be causal, full or block:SIZE, such as block:32")
