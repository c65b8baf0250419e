"""Parts of speech of the built-in stories: every word of their grammar has exactly one, wherever it occurs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redraft.core.text.tokenizers import split_words
from redraft.training.data.corpora.stories import (
    _ANIMALS,
    _COLORS,
    _FRIENDS,
    _HEROES,
    _MOODS,
    _NEEDS,
    _PLACES,
    _SEASONS,
    _THINGS,
    _TRADES,
)

_TABLES = {
    "PROPN": (_HEROES, _FRIENDS),
    "NOUN": (_THINGS, _ANIMALS, _PLACES, _SEASONS, _TRADES),
    "ADJ": (_COLORS, _NEEDS, _MOODS),
}
_REST = {
    "PUNCT": ". ,",
    "DET": "a an the The A every some no That",
    "NUM": "One",
    "PRON": "She He she he her him it It they who more",
    "CCONJ": "and than",
    "ADP": "to about across among at behind beside by for in In of on over under with without like At After near",
    "ADV": "again alone Later Soon Not still so much less ever south less better all",
    "AUX": "was were",
    "PROPN": "Saturday Sunday",
    "VERB": "began belonged blowing brings brought climbed counted covered crossed cycled danced falling fed fell felt "
    "find finds flew flying followed forgot found gave heard help helped helps hummed hung hurried laughed made make "
    "makes moved picked sang shared slept smelled smile smiled thought threw took walked wandered watched went wished",
    "ADJ": "Fresh Small Wild Yellow big brave brown calm clay cold cool first flat fresh frozen good happier hot long "
    "lemon open pale pure ripe roasted round short single slow small soft strong sweet tall warm white wooden medium",
    "NOUN": "Bees Birds Mist Snow Swallows adventures afternoon air apple apples arch bag band bench bird birds boat "
    "boats book bowl bread bridge bunch cake candle care cherries chestnuts chocolate clock clouds clover crowd day "
    "dozen ducks eggs evening ferns flowers fountain friend friends gate geese gingerbread gloves grass ground hawk "
    "herbs home honey horse hours ice jar joy leaf leaves lemonade loaf map mint morning nets night oak paint pair "
    "pancakes path picture pier pigeons pine plums poems pond pot puddles pumpkin rain rock rolls roofs roses shell "
    "sky smoke snow socks song sound soup spoon stall stars stone stones story stream supper tea tree wax whales wind "
    "mood plot season length where",
}


def _tags() -> dict[str, str]:
    """Returns the tag of every word of the grammar."""
    listed = {word: tag for tag, words in _REST.items() for word in words.split()}
    named = {entry["name"][0]: tag for tag, tables in _TABLES.items() for table in tables for entry in table}
    return listed | named


STORY_TAGS: Mapping[str, str] = _tags()
_TAGS = tuple(sorted(set(STORY_TAGS.values())))


def tag_words(words: str | Sequence[str], lexicon: Mapping[str, str] = STORY_TAGS) -> tuple[str, ...]:
    """Returns the part of speech of each word and punctuation mark; "X" for words that are not in the lexicon."""
    return tuple(lexicon.get(word, "X") for word in (split_words(words) if isinstance(words, str) else words))
