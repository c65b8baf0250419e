"""Rules that a text must obey, exactly: patterns, JSON schemas, words, lengths, choices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.decoding.constraints.constrained import Conditioned, Constrained
    from redraft.decoding.constraints.dfa import TooLarge
    from redraft.decoding.constraints.placement import AllMarked, Marked, constrain, hole, lengths, numbered_holes
    from redraft.decoding.constraints.rules import (
        AllOf,
        AnyOf,
        Banned,
        Json,
        Length,
        OneOf,
        Regex,
        Required,
        Rule,
        Spaced,
        TextRule,
        compiled,
    )

__getattr__, __dir__, __all__ = attach(__name__)
