"""Controlled generation: texts of given parts of speech, length, attributes and words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.tasks.controlled.controlled import Wishes, control, controlling

__getattr__, __dir__, __all__ = attach(__name__)
