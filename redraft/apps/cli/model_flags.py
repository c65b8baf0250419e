"""What to know about a model before it is opened: what its files do not say, and whose code it may run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from redraft.apps.cli.checks import require_python_file
from redraft.tasks.arguments.settings import optional_argument


@dataclass(frozen=True)
class ModelFlags:
    """How to open a model."""

    mask: Annotated[str | None, optional_argument("ID|TOKEN", "what its files say")] = None
    """The mask token of another project's model, if its files do not name it."""
    attention: Annotated[str | None, optional_argument("causal|full|block:SIZE", "what its files say")] = None
    """Which tokens see which in another project's model, if its files do not say it."""
    trust: Annotated[Path | None, optional_argument("FILE.py")] = None
    """Your Python file with the classes that the model uses; its code is run."""
    weights: Literal["own", "int8", "packed"] = "own"
    """For causal models on a CPU. int8: one byte per number, the fastest plain writing. packed: fp32, laid out so that
    several tokens cost little more than one, for drafts. With both a draft changes no bit of the text."""

    def __post_init__(self) -> None:
        require_python_file(self.trust)
        require_attention(self.attention)
        if self.mask is not None and not self.mask.strip():
            raise ValueError("--mask is empty; give the id of the mask token, or its spelling")


def require_attention(attention: str | None) -> None:
    if attention is not None and not re.fullmatch(r"causal|full|block:[1-9]\d{0,6}", attention):
        raise ValueError(f"--attention {attention:.40}: it must be causal, full or block:SIZE, say block:32")
