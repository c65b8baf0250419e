"""`redraft probe`: how well classes of texts can be predicted from a network's hidden states."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from redraft.apps.cli.arguments import suggest
from redraft.apps.cli.model_flags import ModelFlags, model_setting
from redraft.apps.cli.output import emit
from redraft.tasks.arguments.setting import REQUIRED, Checked, setting
from redraft.training.data.registry import CORPUS_NAMES

if TYPE_CHECKING:
    from redraft.evaluation.probing import ProbeResult
    from redraft.tasks.engine.model import TextModel
    from redraft.training.data.sources import Corpus, InfiniteCorpus


@dataclass(frozen=True)
class Probe(Checked):
    """Measure how well a linear layer predicts the class of a text from a model's hidden states.

    The hidden states of the clean text are averaged over its tokens. With --tune the network is fine-tuned as well.
    Only for models of tokens.
    """

    model: Path = model_setting(REQUIRED)
    topic: str | None = setting(
        None, "Attribute of the corpus to predict.", otherwise="the corpus's choice", metavar="NAME"
    )
    data: str | None = setting(
        None,
        "A corpus with attributes, or a file of texts with classes, one JSON object per line. Every 20th line "
        "is held out for the test.",
        otherwise="the run's",
        metavar="|".join((*CORPUS_NAMES, "FILE.jsonl")),
    )
    text: str = setting("text", "JSON field of the text.")
    label: str = setting("label", "JSON field of the class.")
    train: int = setting(512, "Number of texts to train on.", least=2, most=1_000_000)
    test: int = setting(512, "Number of held-out texts to test on.", least=2, most=1_000_000)
    first: int | None = setting(
        None,
        "Read only this many tokens at the start of each text; the class must then be predicted from the beginning.",
        least=1,
        most=1_000_000,
        otherwise="all",
    )
    last: int | None = setting(
        None,
        "Read only this many tokens at the end of each text; the class must then be inferred from the end.",
        least=1,
        most=1_000_000,
        otherwise="all",
    )
    tune: int = setting(
        0,
        "Fine-tune the whole network for this many steps too; 0 trains only the linear layer.",
        least=0,
        most=1_000_000,
    )
    json: bool = setting(
        False, "Print a JSON object for the linear probe, and one for the fine-tuned network.", group="Output"
    )
    model_flags: ModelFlags = ModelFlags()

    def _require_agreement(self) -> None:
        if self.first is not None and self.last is not None:
            raise ValueError("--first and --last read different ends of a text; give one of them")

    def __call__(self) -> None:
        from redraft.apps.cli.models import open_model
        from redraft.evaluation.probing import linear_probe, tuned_probe, window_batch
        from redraft.training.data.loader import first_batches, load_rows
        from redraft.training.data.pair_framing import LabeledRows

        model = open_model(self.model, self.model_flags)
        run, lm = model.run, model.lm
        length = run.framing.length if run is not None else lm.config.network.positions or 512
        framing = LabeledRows(length, fill_with_eos=run is not None and not run.framing.padded)
        data = self._labeled_texts(model)
        train, test = (
            [window_batch(batch, lm.config.vocab, self.first, self.last) for batch in first_batches(rows, count, 32)]
            for rows, count in (
                (load_rows(data, "train", model.tokenizer, framing), self.train),
                (load_rows(data, "test", model.tokenizer, framing), self.test),
            )
        )
        self._print("linear", linear_probe(lm, train, test))
        if self.tune:
            self._print("tuned", tuned_probe(lm, train, test, self.tune))

    def _labeled_texts(self, model: TextModel) -> Corpus | InfiniteCorpus:
        """Return the texts of --data, or of the run's corpus, with their classes."""
        import json

        from redraft.training.data.pairs import JsonlClasses
        from redraft.training.data.registry import named_corpus
        from redraft.training.data.sources import DataStats

        if self.data is None:
            return self._labeled_by_attribute(None if model.run is None else model.run.data)
        if self.data in CORPUS_NAMES:
            return self._labeled_by_attribute(named_corpus(self.data))
        lines = Path(self.data).read_text("utf-8").splitlines()
        classes = {str(value[self.label]) for line in lines if self.label in (value := json.loads(line or "{}"))}
        if len(classes) < 2:
            raise ValueError(
                f"{self.data}: the field {self.label!r} has {len(classes)} different values; a probe needs at least "
                "two classes"
            )
        data = JsonlClasses((self.data,), classes=tuple(sorted(classes)), label=self.label, field=self.text)
        next(data.documents("train", DataStats()))  # raises if a line is not as expected
        return data

    def _labeled_by_attribute(self, data: object) -> Corpus | InfiniteCorpus:
        """Return the texts of a corpus with an attribute as their class."""
        from redraft.training.data.annotations import as_annotated

        corpus = as_annotated(data)
        if self.topic is not None and (attributes := corpus.attributes()) and self.topic not in attributes:
            raise ValueError(f"--topic {self.topic:.40}: {suggest(self.topic, attributes)}")
        if (labeled := corpus.classified(self.topic)) is None:
            raise ValueError(f"{self.model}: its corpus has no classes; give texts with classes: --data FILE.jsonl")
        return labeled

    def _print(self, method: str, result: ProbeResult) -> None:
        record = {"way": method, **asdict(result), "accuracy_stderr": result.accuracy_stderr}
        line = f"{method}: {result.accuracy:.1%} ± {result.accuracy_stderr:.1%} of {result.rows} texts correct"
        emit(record, self.json, f"{line}, {result.classes} classes, most common class {result.majority:.1%}")
