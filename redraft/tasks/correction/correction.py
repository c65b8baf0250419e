"""`correct`: what was meant by a text with errors, by Bayes: channel(observed | word) × model(word | both sides)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload
from weakref import WeakKeyDictionary

import torch

from redraft.core.text.tokenizers import CharTokenizer, WordTokenizer
from redraft.models.diffusion_lm import DiffusionLM, eval_mode
from redraft.tasks.arguments.aliases import settings_from
from redraft.tasks.arguments.rules import ArgumentError
from redraft.tasks.arguments.settings import CorrectSettings, require_texts
from redraft.tasks.correction.edit_channel import EditChannel
from redraft.tasks.correction.letters import _is_letter_channel, _letter_changes
from redraft.tasks.correction.lexicon import WORD, Lexicon
from redraft.tasks.correction.passes import _CorrectionPasses
from redraft.tasks.correction.scorers import _hole_scorer, _require_unconditional
from redraft.tasks.correction.suspects import _CandidateGenerator, _Replacement
from redraft.tasks.engine.model import ModelOrPath, TextModel, as_text_model
from redraft.tasks.engine.trace import count_calls
from redraft.training.data.sources import DataStats, InfiniteCorpus

_DOCUMENTS = 2000  # of an endless corpus, from which words are taken


@dataclass(frozen=True)
class WordChange:
    """A word that was changed."""

    start: int
    """Where it begins in the text that was given."""
    was: str
    """As it was given."""
    now: str
    """As it is now."""
    probability: float
    """How likely this is what was meant, given the text around it."""


@dataclass(frozen=True)
class CorrectionResult:
    """One text and what was changed in it."""

    text: str
    """The corrected text; everything outside of the changes is as it was given, byte for byte."""
    given: str
    """The text as it was given."""
    changes: tuple[WordChange, ...]
    """From left to right."""
    row: int = 0
    """The number of the text in its call."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, the text first."""
        changes = [vars(change) for change in self.changes]
        return {"text": self.text, "given": self.given, "changes": changes, "row": self.row}


@dataclass(frozen=True)
class CorrectionResults(Sequence[CorrectionResult]):
    """The texts of one call and what they cost; a sequence of `CorrectionResult`."""

    corrected: tuple[CorrectionResult, ...]
    nfe: float
    """Rows that the network read, per text."""
    seconds: float
    """Time spent on correcting; loading the model and its words is not in it."""
    noise: float
    """The share of wrong letters that was expected."""
    run: str = ""
    """The digest of the run or model."""

    @overload
    def __getitem__(self, index: int) -> CorrectionResult: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[CorrectionResult, ...]: ...

    def __getitem__(self, index: int | slice) -> CorrectionResult | tuple[CorrectionResult, ...]:
        return self.corrected[index]

    def __len__(self) -> int:
        return len(self.corrected)

    @property
    def texts(self) -> list[str]:
        return [each.text for each in self.corrected]

    def to_json(self) -> list[dict[str, Any]]:
        """One object per text, each with what the call cost."""
        cost = {"noise": self.noise, "run": self.run, "nfe": self.nfe, "seconds": self.seconds}
        return [each.to_json() | cost for each in self.corrected]


def correct(
    model: ModelOrPath,
    texts: str | Sequence[str],
    *,
    words: Lexicon | Mapping[str, float] | Iterable[str] | None = None,
    channel: EditChannel | None = None,
    **options: Any,
) -> CorrectionResults:
    """What was meant by texts with errors: the likeliest words, by channel(observed | word) × model(word | both sides).

    model: a trained model of mask, uniform or hybrid noise, or an autoregressive one, or the directory of one.
    texts: a text, or a list of them.
    words: known words, with counts if they are a mapping or a `Lexicon`; None: the model's own, else those of its data.
    channel: how words become misspellings; None: as learnt from people.
    options: the fields of `CorrectSettings`, by name: noise, keep, names, confidence.

    A model of letters whose noise replaces letters (uniform, hybrid, one of your own) is its own channel, unless
    `words` are given: x̂ · q_t(z | x) replaces letters and needs no list of words. For all others the channel is
    `EditChannel`: letters may be missing, doubled or swapped, and spaces lost; candidates are known words of n − 2 …
    n + 2 letters for a spelling of n.
    """
    settings, text_model = settings_from(CorrectSettings, options), as_text_model(model)
    _require_unconditional(text_model)
    found, own = require_texts("texts", texts), words is None and _is_letter_channel(text_model)
    ask = None if own else _hole_scorer(text_model, settings.noise)
    lexicon = Lexicon({}) if own else known_lexicon(text_model, words)
    alphabet = frozenset(text_model.tokenizer.alphabet) if isinstance(text_model.tokenizer, CharTokenizer) else None
    speller = _CandidateGenerator(
        lexicon, channel or EditChannel.standard(), settings.noise, settings.kept, settings.names, alphabet
    )
    clock = time.perf_counter()
    with count_calls(text_model.lm) as counted, eval_mode(text_model.lm), torch.no_grad():
        if ask is None:
            changes = _letter_changes(text_model, speller, found, settings.confidence)
        else:
            changes = _CorrectionPasses(text_model, speller, ask, settings.confidence)(found)
    rows = tuple(_corrected(text, each, row) for row, (text, each) in enumerate(zip(found, changes, strict=True)))
    return CorrectionResults(
        rows, counted.rows / len(found), time.perf_counter() - clock, settings.noise, text_model.name
    )


def _corrected(text: str, changes: Sequence[_Replacement], row: int) -> CorrectionResult:
    pieces, at = [], 0
    for start, was, now, _ in changes:
        pieces += [text[at:start], now]
        at = start + len(was)
    return CorrectionResult("".join([*pieces, text[at:]]), text, tuple(WordChange(*each) for each in changes), row)


# --- the words that a model knows ---

_LEXICONS: WeakKeyDictionary[DiffusionLM, Lexicon] = WeakKeyDictionary()


def known_lexicon(model: TextModel, words: Lexicon | Mapping[str, float] | Iterable[str] | None = None) -> Lexicon:
    """The words that are given; else those that the model itself can write, else those of its training data."""
    if isinstance(words, Lexicon):
        return words
    if words is not None:
        return _given(model, words)
    if model.lm not in _LEXICONS:
        _LEXICONS[model.lm] = _own_words(model) if isinstance(model.tokenizer, WordTokenizer) else _read_words(model)
    return _LEXICONS[model.lm]


def _given(model: TextModel, words: Mapping[str, float] | Iterable[str]) -> Lexicon:
    counts: dict[str, float] = dict(words) if isinstance(words, Mapping) else dict(Counter(words))
    if not counts or not all(isinstance(word, str) and count > 0 for word, count in counts.items()):
        raise ArgumentError("words", "words=…: give at least one word, and no count of zero or below")
    own = model.tokenizer.words if isinstance(model.tokenizer, WordTokenizer) else ()
    return Lexicon({**{word: 1.0 for word in own if WORD.fullmatch(word)}, **counts})


def _own_words(model: TextModel) -> Lexicon:
    """The vocabulary, each word as frequent as the model finds it where it knows nothing: x̂ of a hidden row."""
    assert isinstance(model.tokenizer, WordTokenizer)
    length = model.run.framing.length if model.run is not None else model.lm.config.network.positions or 32
    canvas = model.lm.compose([[length]])
    t = torch.ones(1, 1, dtype=torch.float64, device=canvas.z.device)
    with eval_mode(model.lm), torch.no_grad():
        share = model.lm(canvas.z, canvas.time(t), canvas.context).at(~canvas.fixed).double().exp().mean(0)
    shares = zip(model.tokenizer.words, share.tolist(), strict=False)
    return Lexicon({word: 1e6 * p + 1e-3 for word, p in shares if WORD.fullmatch(word)})


def _read_words(model: TextModel) -> Lexicon:
    if model.run is None:
        raise ArgumentError(
            "words", f"words=…: {model.display_name} has no run that names its data; give a list of known words"
        )
    data, tally = model.run.data, DataStats()
    if isinstance(data, InfiniteCorpus):
        return Lexicon.of(data.document("train", index) for index in range(_DOCUMENTS))
    return Lexicon.of(data.documents("train", tally))
