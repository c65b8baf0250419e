"""Correction: spelling errors as a noisy channel, and a model of the text around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.tasks.correction.correction import Change, Corrected, Corrections, correct, known_words
    from redraft.tasks.correction.edit_channel import EDITS, EditChannel
    from redraft.tasks.correction.human_errors import half_of, human_errors
    from redraft.tasks.correction.lexicon import LETTERS, LONGEST_WORD, WORD, Lexicon, encoded
    from redraft.tasks.correction.misspellings import ERROR_KINDS, Corrupted, ErrorKind, SpellingErrors

__getattr__, __dir__, __all__ = attach(__name__)
