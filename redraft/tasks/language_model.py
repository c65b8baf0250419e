"""`load`: a language model as one object, whose methods are the tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload

import torch

from redraft.models.cpu_weights import WeightFormat
from redraft.tasks.choice.choice import ChoiceResults, choose
from redraft.tasks.controlled.controlled import control
from redraft.tasks.correction.correction import CorrectionResults, correct
from redraft.tasks.correction.edit_channel import EditChannel
from redraft.tasks.correction.lexicon import Lexicon
from redraft.tasks.engine.model import TextModel, open_model
from redraft.tasks.engine.result import PartialText, TextResults
from redraft.tasks.generation import generate
from redraft.tasks.infilling.infilling import infill
from redraft.tasks.rewriting import rewrite
from redraft.tasks.scoring import ScoreResults, score
from redraft.training.runs.loading import export


class LanguageModel(TextModel):
    """A trained model with the tasks as methods. Each calls the function of the same name, which lists its options.

    `model.lm` is the network with its process, the `DiffusionLM` that samplers, laws and training work with.
    """

    @overload
    def generate(
        self, prompts: str | Sequence[str] = ..., *, stream: Literal[False] = ..., **options: Any
    ) -> TextResults: ...

    @overload
    def generate(
        self, prompts: str | Sequence[str] = ..., *, stream: Literal[True], **options: Any
    ) -> Iterator[PartialText]: ...

    def generate(
        self, prompts: str | Sequence[str] = "", *, stream: bool = False, **options: Any
    ) -> TextResults | Iterator[PartialText]:
        """Texts that begin with the prompts: `redraft.generate`."""
        if stream:
            return generate(self, prompts, stream=True, **options)
        return generate(self, prompts, **options)

    @overload
    def infill(
        self, templates: str | Sequence[str], *, stream: Literal[False] = ..., **options: Any
    ) -> TextResults: ...

    @overload
    def infill(
        self, templates: str | Sequence[str], *, stream: Literal[True], **options: Any
    ) -> Iterator[PartialText]: ...

    def infill(
        self, templates: str | Sequence[str], *, stream: bool = False, **options: Any
    ) -> TextResults | Iterator[PartialText]:
        """Templates with their holes filled: `redraft.infill`."""
        if stream:
            return infill(self, templates, stream=True, **options)
        return infill(self, templates, **options)

    def choose(self, templates: str | Sequence[str], answers: Sequence[str] | Sequence[Sequence[str]]) -> ChoiceResults:
        """The probability of each answer in the holes [[?]]: `redraft.choose`."""
        return choose(self, templates, answers)

    def correct(
        self,
        texts: str | Sequence[str],
        *,
        words: Lexicon | Mapping[str, float] | Iterable[str] | None = None,
        channel: EditChannel | None = None,
        **options: Any,
    ) -> CorrectionResults:
        """Texts with their spelling corrected: `redraft.correct`."""
        return correct(self, texts, words=words, channel=channel, **options)

    def rewrite(self, texts: str | Sequence[str], **options: Any) -> TextResults:
        """Texts edited in place, or answered by a model of pairs: `redraft.rewrite`."""
        return rewrite(self, texts, **options)

    def control(self, **options: Any) -> TextResults:
        """Texts with given parts of speech, length, attributes or words: `redraft.control`."""
        return control(self, **options)

    def score(self, texts: str | Sequence[str], **options: Any) -> ScoreResults:
        """How likely texts are, in bits: `redraft.score`."""
        return score(self, texts, **options)

    def save(self, path: str | Path, card: str = "") -> Path:
        """Write config, tokenizer and weights to a directory that `redraft.load` reads; `card` is its README.md."""
        return export(path, self.lm, self.run, card)


def load(
    path: str | Path,
    device: str | torch.device = "auto",
    trust: tuple[str, ...] = (),
    *,
    dtype: torch.dtype | None = None,
    mask: int | str | None = None,
    attention: str | None = None,
    weights: WeightFormat | None = None,
) -> LanguageModel:
    """Load a model, ready to generate, infill, choose, correct, rewrite, control and score.

    `redraft.training.load` loads the `DiffusionLM` alone; here it is `model.lm`.

    Args:
        path: a model that ships with Redraft (story, smol); the directory of a run (its newest intact checkpoint is
            loaded, or the best one if held-out bits have risen since), of a checkpoint, of an exported model, or of
            another project's checkpoint; or hf:org/name, which is downloaded from the Hugging Face hub
        device: auto (the best one), cpu, cuda, cuda:1 or mps
        trust: names of external modules whose classes the config may use
        dtype: dtype of the weights; None for float32
        mask: mask token of another project's model, as an id or a string, if its files do not name it
        attention: causal, full or block:SIZE, for another project's model whose files do not say it
        weights: weight format of a causal model on a CPU: fp16, int8, onnx or packed; None keeps them as they are
    """
    opened = open_model(path, trust, device=device, dtype=dtype, mask=mask, attention=attention, weights=weights)
    return LanguageModel(opened.lm, opened.run, opened.step, opened.path)
