"""`score`: the probability of texts under a model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from redraft.core.batch import Batch, BatchOrigin
from redraft.core.text.shading import table_html
from redraft.tasks.arguments.aliases import settings_from
from redraft.tasks.arguments.settings import ScoreSettings, require_texts
from redraft.tasks.causal_writing import _without_adapter
from redraft.tasks.engine.model import ModelOrPath, TextModel, as_text_model
from redraft.tasks.engine.result import Results
from redraft.tasks.engine.sampler_choice import batch_size
from redraft.tasks.engine.trace import count_calls
from redraft.training.data.framing import pad_rows
from redraft.training.heldout import NATS_PER_BIT, Likelihood, likelihood


@dataclass(frozen=True)
class ScoreResult:
    """The probability of one text, in bits."""

    text: str
    """The text as given."""
    bits: float
    """−log2 p of the whole text including its end, or an upper bound of it (see `ScoreResults.exact`)."""
    stderr: float
    """Standard error of the bits over the draws; 0 if they are exact."""
    tokens: int
    """Number of scored tokens, including the end token."""
    row: int = 0
    """Index of the text in the call."""

    def __str__(self) -> str:
        error = f" ± {self.stderr:.2f}" if self.stderr else ""
        return f"{self.bits:.2f}{error} bits, {self.bits_per_char:.3f} per character: {self.text}"

    def _repr_html_(self) -> str:
        """A table in a notebook."""
        figures = (f"{self.bits:.2f} ± {self.stderr:.2f}", f"{self.bits_per_token:.3f}", f"{self.bits_per_char:.3f}")
        return table_html(("text", "bits", "per token", "per character"), [(self.text, *figures)])

    @property
    def bits_per_token(self) -> float:
        """Bits divided by scored tokens."""
        return self.bits / max(1, self.tokens)

    @property
    def bits_per_char(self) -> float:
        """Bits divided by characters."""
        return self.bits / max(1, len(self.text))


@dataclass(frozen=True)
class ScoreResults(Results[ScoreResult]):
    """The scores of one call and their cost; a sequence of `ScoreResult`."""

    exact: bool
    """True if bits are −log2 p itself (autoregressive models); False if they estimate an upper bound from draws."""
    nfe: float
    """Network calls per text."""
    seconds: float
    """Scoring time, without loading the model."""
    seed: int = 0
    """The seed of the call."""
    run: str = ""
    """Digest of the run, or of the model if it has none."""

    @property
    def bits_per_token(self) -> float:
        """Mean over all tokens of all texts."""
        return sum(result.bits for result in self) / max(1, sum(result.tokens for result in self))

    @property
    def bits_per_char(self) -> float:
        """Mean over all characters of all texts."""
        return sum(result.bits for result in self) / max(1, sum(len(result.text) for result in self))

    def to_json(self) -> list[dict[str, Any]]:
        """One object per text, each with the cost of the call."""
        cost = {"is_exact": self.exact, "seed": self.seed, "run_digest": self.run}
        cost |= {"nfe": self.nfe, "seconds": self.seconds}
        return [_result_json(result) | cost for result in self]


def _result_json(result: ScoreResult) -> dict[str, Any]:
    names = ("bits", "stderr", "tokens", "bits_per_token", "bits_per_char")
    return {"text": result.text, "index": result.row} | {name: getattr(result, name) for name in names}


def score(model: ModelOrPath, texts: str | Sequence[str], **options: Any) -> ScoreResults:
    """Score texts in bits, −log2 p: exactly for autoregressive models, as an upper bound for others.

    A causal model adapted to fill holes, such as smol, scores exactly, without its adapter.

    Args:
        model: a trained model, or its directory, which also says how rows were framed in training
        texts: a whole text, or a list of them; the end of each text is scored too
        options: the fields of `ScoreSettings`, by name: draws, seed
    """
    settings, text_model = settings_from(ScoreSettings, options), _without_adapter(as_text_model(model))
    texts = require_texts("texts", texts)
    _require_unconditional(text_model)
    rows = [text_model.encode_row(text) for text in texts]
    size = batch_size(text_model, None, max(map(len, rows)))
    batches = [_batch(text_model, rows[i : i + size], i) for i in range(0, len(rows), size)]
    clock = time.perf_counter()
    with count_calls(text_model.lm) as counted:
        result = likelihood(text_model.lm, batches, draws=settings.draws, seed=settings.seed, texts=texts)
    seconds, nfe = time.perf_counter() - clock, counted.rows / len(rows)
    exact = text_model.lm.block == 1 and text_model.lm.process.fills_masks
    return ScoreResults(_text_scores(texts, result), exact, nfe, seconds, settings.seed, text_model.name)


def _text_scores(texts: Sequence[str], result: Likelihood) -> tuple[ScoreResult, ...]:
    bits, errors = (result.row_nats / NATS_PER_BIT).tolist(), (result.row_variance.sqrt() / NATS_PER_BIT).tolist()
    values = zip(texts, bits, errors, result.row_tokens.tolist(), strict=True)
    return tuple(ScoreResult(text, value, error, count, row) for row, (text, value, error, count) in enumerate(values))


def _require_unconditional(model: TextModel) -> None:
    """Raises for models that need a source or a class, because they have no likelihood without one."""
    if model.needs_source or (model.classes and not model.condition_optional):
        raise ValueError("this model needs a source or a class, which score does not take; use redraft.likelihood")


def _batch(model: TextModel, rows: Sequence[list[int]], first: int) -> Batch:
    """A padded batch; row i draws from the key (seed, first + i)."""
    vocab = model.lm.config.vocab
    tokens, pad = pad_rows(rows, max(map(len, rows)), vocab)
    given = torch.arange(tokens.shape[1]) < int(vocab.bos is not None and rows[0][0] == vocab.bos)
    origin = BatchOrigin(torch.arange(first, first + len(rows)), first, first + len(rows))
    return Batch(tokens, ~pad & ~given, pad if bool(pad.any()) else None, origin=origin)
