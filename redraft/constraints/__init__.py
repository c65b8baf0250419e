"""Rules that a text must obey, exactly: patterns, JSON schemas, words, lengths, choices."""

from redraft.constraints.constrained import Conditioned, Constrained
from redraft.constraints.dfa import TooLarge
from redraft.constraints.marks import AllMarked, Marked, constrain, hole, lengths, numbered_holes
from redraft.constraints.rules import (
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
