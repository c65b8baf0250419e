"""Spelling: errors and how to make them, known words, and how likely one comes out as another."""

from redraft.spelling.channel import EDITS, EditChannel
from redraft.spelling.errors import ERROR_KINDS, Corrupted, ErrorKind, SpellingErrors
from redraft.spelling.human import half_of, human_errors
from redraft.spelling.lexicon import LETTERS, LONGEST_WORD, WORD, Lexicon, encoded
