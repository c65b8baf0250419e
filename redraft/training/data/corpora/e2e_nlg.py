"""The E2E challenge: a sentence about a restaurant from its attributes, and a check of which attributes it mentions.

A source is "name[The Eagle], food[French], familyFriendly[no]" (Novikova et al. 2017). People phrase the same value in
many ways and leave some out. `slot_coverage` knows the usual phrases; measure the human sentences, too, for comparison.
"""

from __future__ import annotations

import re
from pathlib import Path

from redraft.training.data.annotations import SourceCoverage
from redraft.training.data.pairs import CsvPairs

_SLOT = re.compile(r"([\w ]+)\[([^\]]*)\]")
_FAMILY = r"famil\w*|child\w*|kids?\b|all ages"
_UNFRIENDLY = rf"\b(?:no|not|non|isn|aren|doesn|don|without|never|adults?)\b[^.]*(?:{_FAMILY})|adults?\b|unfriendly"
_LOW, _HIGH = r"cheap|low|inexpensive|affordable|budget", r"high|expensive|pricey|costly|upscale"
_PHRASES = {  # (attribute, value) → pattern of its phrases; other values must appear literally
    ("eatType", "coffee shop"): r"coffee|caf[eé]",
    ("eatType", "restaurant"): r"restaurant|place|venue|eatery|establishment|dining|serv|food",
    ("food", "Fast food"): r"fast[- ]?foods?",
    ("food", "English"): r"english|british|traditional",
    ("priceRange", "cheap"): _LOW,
    ("priceRange", "less than £20"): rf"(?:less|under|below|lower|cheaper|up to)[^.]*20|{_LOW}",
    ("priceRange", "moderate"): r"moderate|mid|average|reasonabl|medium|fair",
    ("priceRange", "£20-25"): r"20|moderate|mid",
    ("priceRange", "high"): _HIGH,
    ("priceRange", "more than £30"): rf"(?:more|over|above|least|start|exceed)[^.]*30|30 (?:and|or) |{_HIGH}",
    ("customer rating", "low"): r"low|poor|bad|1|one\b|not (?:very )?(?:good|high|well)",
    ("customer rating", "average"): r"average|moderate|mid|medium|decent|3|three|ok",
    ("customer rating", "high"): r"high|excellent|great|good|well|top|5|five",
    ("customer rating", "1 out of 5"): r"\b(?:1|one)\b|low|poor",
    ("customer rating", "3 out of 5"): r"\b(?:3|three)\b|average",
    ("customer rating", "5 out of 5"): r"\b(?:5|five)\b|high|excellent|perfect|top",
    ("area", "city centre"): r"cent(?:re|er)|city|downtown|central",
    ("area", "riverside"): r"river",
    ("familyFriendly", "yes"): _FAMILY,
    ("familyFriendly", "no"): _UNFRIENDLY,
}


def e2e_corpus(folder: str | Path) -> CsvPairs:
    """Returns the corpus of a folder with the three files of the challenge."""
    train, valid, test = (str(Path(folder) / name) for name in ("trainset.csv", "devset.csv", "testset_w_refs.csv"))
    return CsvPairs((train,), (valid,), (test,))


def _parse_slots(source: str) -> dict[str, str]:
    """Parses a source: "name[The Eagle], food[French]" → {"name": "The Eagle", "food": "French"}."""
    slots = {name.strip(): value for name, value in _SLOT.findall(source)}
    if not slots:
        raise ValueError(f"{source!r:.60} has no attributes; write them as name[The Eagle], food[French]")
    return slots


def slot_coverage(source: str, text: str) -> SourceCoverage:
    """Returns the fraction of the attributes that a text mentions, and whether it mentions all of them."""
    mentioned = [_mentions(text, name, value) for name, value in _parse_slots(source).items()]
    return SourceCoverage(sum(mentioned) / len(mentioned), float(all(mentioned)))


def _mentions(text: str, name: str, value: str) -> bool:
    """Whether the text mentions this value of an attribute."""
    words = re.sub(r"\s+", " ", text)
    if (name, value) == ("familyFriendly", "yes") and re.search(_UNFRIENDLY, words, re.IGNORECASE):
        return False
    pattern = _PHRASES.get((name, value), re.escape(value))
    return re.search(pattern, words, re.IGNORECASE) is not None
