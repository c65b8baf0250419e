from .correction import (
    Change as Change,
    Corrected as Corrected,
    Corrections as Corrections,
    correct as correct,
    known_words as known_words,
)
from .edit_channel import EDITS as EDITS, EditChannel as EditChannel
from .human_errors import half_of as half_of, human_errors as human_errors
from .lexicon import (
    LETTERS as LETTERS,
    LONGEST_WORD as LONGEST_WORD,
    WORD as WORD,
    Lexicon as Lexicon,
    encoded as encoded,
)
from .misspellings import (
    ERROR_KINDS as ERROR_KINDS,
    Corrupted as Corrupted,
    ErrorKind as ErrorKind,
    SpellingErrors as SpellingErrors,
)
