"""`score`: how likely a model finds given texts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch

from redraft.core.batch import Batch
from redraft.core.processes.masked import Masked
from redraft.tasks.arguments.aliases import settings_from
from redraft.tasks.arguments.settings import ScoreSettings, require_texts
from redraft.tasks.engine.model import ModelOrPath, TextModel, as_text_model
from redraft.tasks.engine.sampler_choice import batch_size
from redraft.tasks.engine.trace import count_calls
from redraft.training.data.framing import pad_rows
from redraft.training.heldout import NATS_PER_BIT, Likelihood, likelihood


@dataclass(frozen=True)
class ScoreResult:
    """How likely one text is."""

    text: str
    """The text as it was given."""
    bits: float
    """−log2 p of the whole text, its end included: exactly, or at most this."""
    stderr: float
    """Standard error of the bits, by the draws; 0 where they are exact."""
    tokens: int
    """Tokens that were scored, the end token included."""
    row: int = 0
    """The number of the text in its call."""

    @property
    def bits_per_token(self) -> float:
        return self.bits / max(1, self.tokens)

    @property
    def bits_per_char(self) -> float:
        return self.bits / max(1, len(self.text))


@dataclass(frozen=True)
class ScoreResults(Sequence[ScoreResult]):
    """How likely a model finds some texts, and what it cost to know; a sequence of `ScoreResult`."""

    scored: tuple[ScoreResult, ...]
    exact: bool
    """True: −log p itself, of a model that writes one token after the other; False: an upper bound, by `draws`."""
    nfe: float
    """Network calls per text."""
    seconds: float
    """Time spent on scoring."""
    seed: int = 0
    """The seed of the call."""
    run: str = ""
    """The digest of the run or model."""

    @overload
    def __getitem__(self, index: int) -> ScoreResult: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[ScoreResult, ...]: ...

    def __getitem__(self, index: int | slice) -> ScoreResult | tuple[ScoreResult, ...]:
        return self.scored[index]

    def __len__(self) -> int:
        return len(self.scored)

    @property
    def bits_per_token(self) -> float:
        """Over all texts."""
        return sum(each.bits for each in self) / max(1, sum(each.tokens for each in self))

    @property
    def bits_per_char(self) -> float:
        """Over all texts."""
        return sum(each.bits for each in self) / max(1, sum(len(each.text) for each in self))

    def to_json(self) -> list[dict[str, Any]]:
        """One object per text, each with what the call cost."""
        cost = {"exact": self.exact, "seed": self.seed, "run": self.run, "nfe": self.nfe, "seconds": self.seconds}
        return [_plain(each) | cost for each in self]


def _plain(each: ScoreResult) -> dict[str, Any]:
    first = {"text": each.text, "row": each.row, "bits": each.bits, "stderr": each.stderr, "tokens": each.tokens}
    return first | {"bits_per_token": each.bits_per_token, "bits_per_char": each.bits_per_char}


def score(model: ModelOrPath, texts: str | Sequence[str], **options: Any) -> ScoreResults:
    """How many bits each text has under the model: exactly for models that write token by token, else an upper bound.

    model: a trained model, or the directory of one. A directory knows how its rows were framed in training.
    texts: a text, or a list of them, each of them whole: its end is scored too.
    options: the fields of `ScoreSettings`, by name: draws, seed.
    """
    asked, it = settings_from(ScoreSettings, options), as_text_model(model)
    found = require_texts("texts", texts)
    _require_free(it)
    rows = [it.encode_row(text) for text in found]
    size = batch_size(it, None, max(map(len, rows)))
    batches = [_batch(it, rows[i : i + size], i) for i in range(0, len(rows), size)]
    clock = time.perf_counter()
    with count_calls(it.lm) as counted:
        bits = likelihood(it.lm, batches, draws=asked.draws, seed=asked.seed, texts=found)
    seconds = time.perf_counter() - clock
    exact = it.lm.block == 1 and isinstance(it.lm.process, Masked)
    return ScoreResults(_each(found, bits), exact, counted.rows / len(rows), seconds, asked.seed, it.name)


def _each(texts: Sequence[str], found: Likelihood) -> tuple[ScoreResult, ...]:
    bits, errors = (found.row_nats / NATS_PER_BIT).tolist(), (found.row_variance.sqrt() / NATS_PER_BIT).tolist()
    values = zip(texts, bits, errors, found.row_tokens.tolist(), strict=True)
    return tuple(ScoreResult(text, value, error, count, row) for row, (text, value, error, count) in enumerate(values))


def _require_free(it: TextModel) -> None:
    """Models that need a source or a class have no likelihood without one."""
    if it.needs_source or (it.classes and not it.condition_optional):
        raise ValueError("this model needs a source or a class, which score does not take; use redraft.likelihood")


def _batch(it: TextModel, rows: Sequence[list[int]], first: int) -> Batch:
    """Rows side by side; row i draws from the key (seed, number of the text)."""
    vocab = it.lm.config.vocab
    tokens, pad = pad_rows(rows, max(map(len, rows)), vocab)
    given = torch.arange(tokens.shape[1]) < int(vocab.bos is not None and rows[0][0] == vocab.bos)
    sample = torch.arange(first, first + len(rows))
    return Batch(tokens, ~pad & ~given, pad if bool(pad.any()) else None, sample, first, first + len(rows))
