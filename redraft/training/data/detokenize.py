"""Detokenization of benchmarks, which are distributed as tokens separated by spaces.

These are the rules with which MDLM and its predecessors report zero-shot perplexity, so results are comparable. They
remove spaces before punctuation and inside brackets and quotes; wikitext's @-@ becomes a hyphen, PTB's N becomes 1 and
its <unk> a question mark. Each benchmark has its own rules; other text is unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from redraft.training.data.sources import Corpus, DataStats, Split

_Rule: TypeAlias = tuple[str, str]  # a pattern and its replacement

_ENCLOSED: tuple[_Rule, ...] = (
    (r"\(\s*([^)]*?)\s*\)", r"(\1)"),
    (r"\[\s*([^\]]*?)\s*\]", r"[\1]"),
    (r"\{\s*([^}]*?)\s*\}", r"{\1}"),
    (r'"\s*([^"]*?)\s*"', r'"\1"'),
    (r"'\s*([^']*?)\s*'", r"'\1'"),
)
_WIKITEXT: tuple[_Rule, ...] = (
    (r"s '", "s'"),
    (r" @([-,.])@ ", r"\1"),
    (r" ([:;.!?,]) ", r"\1 "),
    *_ENCLOSED,
    (r"(?<==) (?==)", ""),
    (r" ° ", "°"),
    (r" ?\n ?", "\n"),
    (r" N ", " 1 "),
    (r" 's", "'s"),
)
_PTB: tuple[_Rule, ...] = (
    (r" 's", "'s"),
    (r"s ' ", "s' "),
    (r" n't", "n't"),
    (r" ?\n ?", "\n"),
    (r"\\/", "/"),
    (r" N(?= )", " 1"),
    (r"([$#]) 1", r"\g<1>1"),
    (r"<unk>", "?"),
)
_LM1B: tuple[_Rule, ...] = (
    (r"(https?) : / / ", r"\1://"),
    (r" '(\w+)", r"'\1"),
    (r" (\w+) \.( |$)", r" \1.\2"),
    (r" ([?!])( |$)", r"\1\2"),
    (r" ([,:;]) ", r"\1 "),
    (r" / ", "/"),
    (r'" ([^"]+) "', r'"\1"'),
    (r"' ([^']+) '", r"'\1'"),
    (r"\( ([^()]+) \)", r"(\1)"),
    (r"\[ ([^\[\]]+) \]", r"[\1]"),
    (r"([$£]) ", r"\1"),
)
_LAMBADA: tuple[_Rule, ...] = ((r"[“”]", '"'), (r"\A\s*|\s*\Z", ""))
_DETOKENIZERS: dict[str, tuple[_Rule, ...]] = {
    "ptb": _PTB,
    "wikitext": _WIKITEXT,
    "lm1b": _LM1B,
    "lambada": _LAMBADA,
    "scientific_papers": (*_WIKITEXT, *_LM1B),
}


def detokenizer_for(name: str) -> str | None:
    """Returns the rules whose name is a prefix of this name of a benchmark; None if there are none."""
    return next((rules for rules in _DETOKENIZERS if name.lower().startswith(rules)), None)


def detokenize_text(text: str, rules: str) -> str:
    """Detokenizes a text by the rules of a benchmark, applied in order."""
    for pattern, replacement in _DETOKENIZERS[rules]:
        text = re.sub(pattern, replacement, text)
    return text


@dataclass(frozen=True)
class DetokenizedCorpus:
    """A corpus whose documents are detokenized by the rules of a benchmark."""

    corpus: Corpus
    rules: str

    def __post_init__(self) -> None:
        if self.rules not in _DETOKENIZERS:
            raise ValueError(f"rules={self.rules!r} is not known; use one of {', '.join(_DETOKENIZERS)}")

    def documents(self, split: Split, tally: DataStats) -> Iterator[str]:
        """Yields the documents of one split."""
        return (detokenize_text(document, self.rules) for document in self.corpus.documents(split, tally))
