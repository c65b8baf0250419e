"""Spelling: errors and how to make them, known words, and how likely one comes out as another."""

from redraft.spelling.channel import EDITS, EditChannel
from redraft.spelling.errors import ERROR_KINDS, Corrupted, ErrorKind, Errors
from redraft.spelling.human import half_of, human_errors
from redraft.spelling.lexicon import LETTERS, LONGEST, WORD, Lexicon, encoded
