"""Text of benchmarks as people write it: such sets come as tokens with blanks between them.

The rules are those by which MDLM and its predecessors report zero-shot perplexity, so figures can be compared: blanks
before punctuation and inside brackets and quotes go, wikitext's @-@ is a hyphen again, PTB's N is a 1 and its <unk> a
question mark. Each set has its own; text of another name stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from redraft.training.data.sources import Corpus, DataStats, Split

_Rule: TypeAlias = tuple[str, str]  # a pattern, and what stands for it

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
DETOKENIZERS: dict[str, tuple[_Rule, ...]] = {
    "ptb": _PTB,
    "wikitext": _WIKITEXT,
    "lm1b": _LM1B,
    "lambada": _LAMBADA,
    "scientific_papers": (*_WIKITEXT, *_LM1B),
}


def detokenizer_for(name: str) -> str | None:
    """The detokeniser for a set of this name: that whose name it begins with; None if there is none."""
    return next((rules for rules in DETOKENIZERS if name.lower().startswith(rules)), None)


def detokenize_text(text: str, rules: str) -> str:
    """The text as people write it, by the rules of a set, one after the other."""
    for pattern, written in DETOKENIZERS[rules]:
        text = re.sub(pattern, written, text)
    return text


@dataclass(frozen=True)
class DetokenizedCorpus:
    """A corpus whose documents are put back into the form that people write."""

    corpus: Corpus
    rules: str

    def __post_init__(self) -> None:
        if self.rules not in DETOKENIZERS:
            raise ValueError(f"there are no rules {self.rules!r}; there are {', '.join(DETOKENIZERS)}")

    def documents(self, split: Split, tally: DataStats) -> Iterator[str]:
        """The documents of one split."""
        return (detokenize_text(document, self.rules) for document in self.corpus.documents(split, tally))
