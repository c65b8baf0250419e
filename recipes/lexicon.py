"""Makes a lexicon of parts of speech for real text, for `redraft control --pos … --lexicon FILE.json`.

    pip install textblob          # includes Brill's lexicon: 94,000 words of Brown and the Penn Treebank (MIT)
    python recipes/lexicon.py TEXT.txt … --write lexicon.json

Every word and punctuation mark of the texts gets its most frequent part of speech, by the names of Universal
Dependencies. It is looked up in Brill's lexicon, first as spelled and then in lower case. Words that are not there get
a tag from their form: digits, a capital, or an ending.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rows import run_recipe

from redraft.core import split_words

UNIVERSAL = {  # Penn → Universal; the longest beginning counts
    "NN": "NOUN",
    "NNP": "PROPN",
    "VB": "VERB",
    "MD": "AUX",
    "JJ": "ADJ",
    "RB": "ADV",
    "RP": "ADP",
    "IN": "ADP",
    "TO": "ADP",
    "DT": "DET",
    "PDT": "DET",
    "WDT": "PRON",
    "PRP": "PRON",
    "WP": "PRON",
    "WRB": "ADV",
    "EX": "PRON",
    "CC": "CCONJ",
    "CD": "NUM",
    "UH": "INTJ",
    "POS": "PART",
    "FW": "X",
    "SYM": "SYM",
    "$": "SYM",
}
ENDINGS = {"friendly": "ADJ", "ly": "ADV", "ing": "VERB", "ed": "VERB", "ful": "ADJ", "ous": "ADJ", "able": "ADJ"}


def penn(lines: Iterable[str]) -> dict[str, str]:
    """Brill's list, "word TAG" to a line → word → Universal part of speech."""
    pairs = (line.split() for line in lines if not line.startswith(";;;"))
    return {pair[0]: universal(pair[1]) for pair in pairs if len(pair) == 2}


def universal(tag: str) -> str:
    known = [name for name in UNIVERSAL if tag.startswith(name)]
    return UNIVERSAL[max(known, key=len)] if known else "PUNCT"


def lexicon(words: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """The part of speech of every word."""
    return {word: _kind(word, known) for word in sorted(set(words))}


def _kind(word: str, known: Mapping[str, str]) -> str:
    if not any(letter.isalnum() for letter in word):
        return "PUNCT"
    if word in known or word.lower() in known:
        return known.get(word) or known[word.lower()]
    if any(letter.isdigit() for letter in word):
        return "NUM"
    ending = next((kind for end, kind in ENDINGS.items() if word.endswith(end)), "NOUN")
    return "PROPN" if word[0].isupper() else ending


def brill() -> dict[str, str]:
    """The list that comes with textblob, read as a file: nothing of the package runs."""
    package = importlib.util.find_spec("textblob")
    if package is None or package.origin is None:
        raise SystemExit("the lexicon needs textblob; pip install textblob")
    return penn((Path(package.origin).parent / "en" / "en-lexicon.txt").read_text("utf-8").splitlines())


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, nargs="+", help="text files")
    parser.add_argument("--write", type=Path, required=True, help="the file to write")
    args = parser.parse_args(argv)
    words = (word for path in args.text for word in split_words(path.read_text("utf-8")))
    tags = lexicon(words, brill())
    args.write.write_text(json.dumps(tags, ensure_ascii=False, indent=0) + "\n", "utf-8")
    print(f"{args.write}: {len(tags):,} words")


if __name__ == "__main__":
    run_recipe(main)
