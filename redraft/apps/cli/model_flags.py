"""Flags for loading a model: what its files do not say, and whether your code may run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from redraft.apps.cli.checks import require_python_file
from redraft.tasks.arguments.settings import optional_argument


@dataclass(frozen=True)
class ModelFlags:
    """How to load a model."""

    mask: Annotated[str | None, optional_argument("ID|TOKEN", "from its files")] = None
    """The mask token of another project's model, if its files do not name it."""
    attention: Annotated[str | None, optional_argument("causal|full|block:SIZE", "from its files")] = None
    """The attention mask of another project's model, if its files do not name it."""
    trust: Annotated[Path | None, optional_argument("FILE.py")] = None
    """Your Python file with classes that the model uses; its code is run."""
    weights: Literal["own", "int8", "packed"] = "own"
    """CPU weight format for causal models; own: as stored. int8: 1 byte per weight, fastest without a drafter. packed:
    fp32 in a layout that is best with a drafter. In both formats drafting never changes the output."""

    def __post_init__(self) -> None:
        require_python_file(self.trust)
        require_attention(self.attention)
        if self.mask is not None and not self.mask.strip():
            raise ValueError("--mask is empty; give the id of the mask token, or the token itself")


def require_attention(attention: str | None) -> None:
    if attention is not None and not re.fullmatch(r"causal|full|block:[1-9]\d{0,6}", attention):
        raise ValueError(f"--attention {attention:.40}: it must be causal, full or block:SIZE, such as block:32")
