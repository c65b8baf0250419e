"""Choice: how likely each of a few answers is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.tasks.choice.choice import Choices, Chosen, choose

__getattr__, __dir__, __all__ = attach(__name__)
