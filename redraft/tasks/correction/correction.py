"""`correct`: spelling correction by Bayes' rule, channel(observed | word) × model(word | context)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from redraft.core.text.shading import changes_html
from redraft.models.causal_base import causal_base, is_adapted
from redraft.models.diffusion_lm import DiffusionLM, eval_mode
from redraft.tasks.arguments.aliases import settings_from
from redraft.tasks.arguments.setting import ArgumentError
from redraft.tasks.arguments.settings import CorrectSettings, require_texts
from redraft.tasks.correction.edit_channel import EditChannel
from redraft.tasks.correction.english.candidates import _WordCandidates
from redraft.tasks.correction.english.correction import _CausalCorrection
from redraft.tasks.correction.english.language import require_language
from redraft.tasks.correction.english.reader import _CausalReader
from redraft.tasks.correction.english.words import english_lexicon
from redraft.tasks.correction.letters import _is_letter_channel, _letter_changes
from redraft.tasks.correction.lexicon import WORD, Lexicon
from redraft.tasks.correction.passes import _CorrectionPasses
from redraft.tasks.correction.scorers import _hole_scorer, _require_unconditional
from redraft.tasks.correction.suspects import _CandidateGenerator, _Replacement
from redraft.tasks.engine.model import ModelOrPath, TextModel, as_text_model
from redraft.tasks.engine.result import Results
from redraft.tasks.engine.trace import count_calls
from redraft.training.data.sources import DataStats, InfiniteCorpus

_DOCUMENTS = 2000  # documents of an infinite corpus that provide the known words


@dataclass(frozen=True)
class WordChange:
    """A replaced word."""

    start: int
    """Index of its first character in the given text."""
    was: str
    """The word as given."""
    now: str
    """The replacement of the word."""
    probability: float
    """Probability of the replacement given the text around it."""
    reason: str = ""
    """Why it is more likely than the word as given, in words."""


@dataclass(frozen=True)
class CorrectionResult:
    """One corrected text and its changes."""

    text: str
    """The corrected text; everything outside the changes is identical to the given text."""
    given: str
    """The text as given."""
    changes: tuple[WordChange, ...]
    """The changes, from left to right."""
    row: int = 0
    """Index of the text in the call."""

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """The given text in a notebook, with its changes marked."""
        return changes_html(self.given, [(c.start, c.was, c.now, c.probability) for c in self.changes])

    def to_json(self) -> dict[str, Any]:
        """A JSON object that begins with the text."""
        changes = [
            {
                "start": c.start,
                "original": c.was,
                "replacement": c.now,
                "probability": c.probability,
                "reason": c.reason,
            }
            for c in self.changes
        ]
        return {"text": self.text, "input": self.given, "changes": changes, "index": self.row}


@dataclass(frozen=True)
class CorrectionResults(Results[CorrectionResult]):
    """The texts of one call and their cost; a sequence of `CorrectionResult`."""

    nfe: float
    """Rows passed through the network, per text."""
    seconds: float
    """Correction time, without loading the model and its words."""
    noise: float
    """Expected fraction of wrong characters."""
    run: str = ""
    """Digest of the run, or of the model if it has none."""

    @property
    def texts(self) -> list[str]:
        """The corrected texts alone."""
        return [result.text for result in self]

    def to_json(self) -> list[dict[str, Any]]:
        """One object per text, each with the cost of the call."""
        cost = {"noise": self.noise, "run": self.run, "nfe": self.nfe, "seconds": self.seconds}
        return [result.to_json() | cost for result in self]


def correct(
    model: ModelOrPath,
    texts: str | Sequence[str],
    *,
    words: Lexicon | Mapping[str, float] | Iterable[str] | None = None,
    channel: EditChannel | None = None,
    **options: Any,
) -> CorrectionResults:
    """Correct spelling errors: choose the most likely words by channel(observed | word) × model(word | context).

    A character model whose noise replaces characters (uniform, hybrid, or a custom process) is its own channel, unless
    `words` are given: x̂ · q_t(z | x) corrects single characters without a list of words. For all other models the
    channel is `EditChannel`, in which letters may be missing, doubled or swapped and spaces may be lost. Candidates for
    a spelling of n letters are then known words of n − 2 … n + 2 letters. An adapted causal model, such as smol, reads
    a sentence once without its adapter and looks closer only at suspicious words.

    Args:
        model: a trained model with mask, uniform or hybrid noise, or an autoregressive one, or its directory
        texts: a text, or a list of them
        words: known words, with counts if they are a mapping or a `Lexicon`; by default the model's vocabulary if it
            has one of words, else the words of its training data, or English ones for an adapted causal model
        channel: how words become misspellings; by default `EditChannel.standard()`
        options: the fields of `CorrectSettings`, by name: noise, keep, names, confidence
    """
    settings, text_model = settings_from(CorrectSettings, options), as_text_model(model)
    _require_unconditional(text_model)
    inputs, edits = require_texts("texts", texts), channel or EditChannel.standard()
    own_channel = words is None and _is_letter_channel(text_model)
    lexicon = Lexicon({}) if own_channel else known_lexicon(text_model, words)
    if not own_channel:
        require_language(lexicon, inputs, text_model.display_name)
    corrector = _corrector(text_model, lexicon, edits, settings, own_channel)
    clock = time.perf_counter()
    with count_calls(corrector.lm) as counted, eval_mode(corrector.lm), torch.no_grad():
        changes = corrector(inputs)
    pairs = zip(inputs, changes, strict=True)
    rows = tuple(_apply_changes(text, text_changes, row) for row, (text, text_changes) in enumerate(pairs))
    return CorrectionResults(
        rows, counted.rows / len(inputs), time.perf_counter() - clock, settings.noise, text_model.name
    )


class _Corrector(NamedTuple):
    """Finds the changes of texts, and the model that it runs."""

    lm: DiffusionLM
    changes: Callable[[Sequence[str]], list[list[_Replacement]]]

    def __call__(self, texts: Sequence[str]) -> list[list[_Replacement]]:
        return self.changes(texts)


def _corrector(
    model: TextModel, lexicon: Lexicon, channel: EditChannel, settings: CorrectSettings, own_channel: bool
) -> _Corrector:
    """The method for a model: its own channel, a causal model that reads a sentence once, or hole by hole."""
    noise, confidence = settings.noise, settings.confidence
    if is_adapted(model.lm) and (start := model.tokenizer.id_of("<|endoftext|>")) is not None:
        reader = _CausalReader(causal_base(model.lm), model.tokenizer, start)
        words = _WordCandidates(lexicon, channel, noise, settings.kept, settings.names)
        return _Corrector(reader.lm, _CausalCorrection(reader, words, confidence))
    alphabet = frozenset(model.tokenizer.letters) or None
    generator = _CandidateGenerator(lexicon, channel, noise, settings.kept, settings.names, alphabet)
    if own_channel:
        return _Corrector(model.lm, lambda texts: _letter_changes(model, generator, texts, confidence))
    return _Corrector(model.lm, _CorrectionPasses(model, generator, _hole_scorer(model, noise), confidence))


def _apply_changes(text: str, changes: Sequence[_Replacement], row: int) -> CorrectionResult:
    pieces, end = [], 0
    for start, was, now, *_ in changes:
        pieces += [text[end:start], now]
        end = start + len(was)
    return CorrectionResult("".join([*pieces, text[end:]]), text, tuple(WordChange(*each) for each in changes), row)


# --- the words that a model knows ---

_LEXICONS: WeakKeyDictionary[DiffusionLM, Lexicon] = WeakKeyDictionary()


def known_lexicon(model: TextModel, words: Lexicon | Mapping[str, float] | Iterable[str] | None = None) -> Lexicon:
    """The given words; by default the model's word vocabulary, or else the words of its training data."""
    if isinstance(words, Lexicon):
        return words
    if words is not None:
        return _given_words(model, words)
    if model.lm not in _LEXICONS:
        _LEXICONS[model.lm] = _own_words(model)
    return _LEXICONS[model.lm]


def _own_words(model: TextModel) -> Lexicon:
    if model.tokenizer.known_words:
        return _vocabulary_words(model)
    return english_lexicon() if is_adapted(model.lm) and model.run is None else _read_words(model)


def _given_words(model: TextModel, words: Mapping[str, float] | Iterable[str]) -> Lexicon:
    counts: dict[str, float] = dict(words) if isinstance(words, Mapping) else dict(Counter(words))
    if not counts or not all(isinstance(word, str) and count > 0 for word, count in counts.items()):
        raise ArgumentError("words", "words=…: give at least one word; all counts must be above zero")
    return Lexicon({**{word: 1.0 for word in model.tokenizer.known_words if WORD.fullmatch(word)}, **counts})


def _vocabulary_words(model: TextModel) -> Lexicon:
    """The vocabulary, with frequencies from x̂ on a fully masked row."""
    length = model.run.framing.length if model.run is not None else model.lm.config.network.positions or 32
    canvas = model.lm.compose([[length]])
    t = torch.ones(1, 1, dtype=torch.float64, device=canvas.z.device)
    with eval_mode(model.lm), torch.no_grad():
        pred = model.lm.predict(canvas.z, canvas.time(t), canvas.context)
        probabilities = pred.at(~canvas.fixed).double().exp().mean(0)
    pairs = zip(model.tokenizer.known_words, probabilities.tolist(), strict=False)
    return Lexicon({word: 1e6 * p + 1e-3 for word, p in pairs if WORD.fullmatch(word)})


def _read_words(model: TextModel) -> Lexicon:
    """Counts the words of the model's training data."""
    if model.run is None:
        raise ArgumentError(
            "words", f"words=…: {model.display_name} has no run that names its data; give a list of known words"
        )
    data, stats = model.run.data, DataStats()
    if isinstance(data, InfiniteCorpus):
        return Lexicon.of(data.document("train", index) for index in range(_DOCUMENTS))
    return Lexicon.of(data.documents("train", stats))
