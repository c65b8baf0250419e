"""`redraft probe`: what the states of a network know about a text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import OmitArgPrefixes, Positional, arg

from redraft.apps.cli.arguments import Flag, suggest
from redraft.apps.cli.checks import require_in_range
from redraft.apps.cli.model_flags import ModelFlags
from redraft.apps.cli.output import emit
from redraft.tasks.arguments.settings import optional_argument
from redraft.training.data.registry import CORPUS_NAMES

if TYPE_CHECKING:
    from redraft.evaluation.probing import ProbeResult
    from redraft.tasks.engine.model import TextModel
    from redraft.training.data.sources import Corpus, InfiniteCorpus


@dataclass(frozen=True)
class Probe:
    """Measure how well the classes of texts can be read off a model's states, linearly and after fine-tuning.

    The states of a clean text, averaged over its tokens, go into one linear layer; models of tokens only.
    """

    model: Annotated[Positional[Path], arg(metavar="DIR")]
    """Directory of a run, a checkpoint or an exported model."""
    topic: Annotated[str | None, optional_argument("NAME", "the corpus's choice")] = None
    """The attribute to tell, one of those that the corpus knows."""
    data: Annotated[str | None, optional_argument("|".join((*CORPUS_NAMES, "FILE.jsonl")), "the run's")] = None
    """A corpus with attributes, or texts with classes, one JSON object per line; every 20th is held out for the
    test."""
    text: str = "text"
    """The field of a line that holds the text."""
    label: str = "label"
    """The field of a line that names the class."""
    train: int = 512
    """Texts to learn from."""
    test: int = 512
    """Held-out texts to measure on."""
    first: Annotated[int | None, optional_argument("INT", "all")] = None
    """Read only this many tokens of each text: classes must then be foreseen."""
    last: Annotated[int | None, optional_argument("INT", "all")] = None
    """Read only this many tokens, the last ones: classes must then be inferred from what follows."""
    tune: int = 0
    """Also train the whole network for so many steps; 0: only the linear layer."""
    json: Flag = False
    """Print one JSON object per way."""
    opening: OmitArgPrefixes[ModelFlags] = ModelFlags()

    def __post_init__(self) -> None:
        require_in_range("--train", self.train, 2, 1_000_000)
        require_in_range("--test", self.test, 2, 1_000_000)
        require_in_range("--first", self.first, 1, 1_000_000)
        require_in_range("--last", self.last, 1, 1_000_000)
        require_in_range("--tune", self.tune, 0, 1_000_000)
        if self.first is not None and self.last is not None:
            raise ValueError("--first and --last read different ends of a text; give one of them")

    def __call__(self) -> None:
        from redraft.apps.cli.models import open_model
        from redraft.evaluation.probing import linear_probe, tuned_probe, window_batch
        from redraft.training.data.loader import first_batches, load_rows
        from redraft.training.data.pair_framing import LabeledRows

        it = open_model(self.model, self.opening)
        length = it.run.framing.length if it.run is not None else it.lm.config.network.positions or 512
        framing, data = LabeledRows(length, tail=it.run is not None and not it.run.framing.padded), self._classes(it)
        train, test = (
            [window_batch(batch, it.lm.config.vocab, self.first, self.last) for batch in first_batches(rows, count, 32)]
            for rows, count in (
                (load_rows(data, "train", it.tokenizer, framing), self.train),
                (load_rows(data, "test", it.tokenizer, framing), self.test),
            )
        )
        self._print("linear", linear_probe(it.lm, train, test))
        if self.tune:
            self._print("tuned", tuned_probe(it.lm, train, test, self.tune))

    def _classes(self, it: TextModel) -> Corpus | InfiniteCorpus:
        import json

        from redraft.training.data.pairs import JsonlClasses
        from redraft.training.data.registry import named_corpus
        from redraft.training.data.sources import DataStats

        if self.data is None:
            return self._by_attribute(None if it.run is None else it.run.data)
        if self.data in CORPUS_NAMES:
            return self._by_attribute(named_corpus(self.data))
        lines = Path(self.data).read_text("utf-8").splitlines()
        found = {str(value[self.label]) for line in lines if self.label in (value := json.loads(line or "{}"))}
        if len(found) < 2:
            raise ValueError(f"{self.data}: a probe tells classes apart, and {self.label!r} has {len(found)} of them")
        data = JsonlClasses((self.data,), classes=tuple(sorted(found)), label=self.label, field=self.text)
        next(data.documents("train", DataStats()))
        return data

    def _by_attribute(self, data: object) -> Corpus | InfiniteCorpus:
        from redraft.training.data.annotations import as_annotated

        corpus = as_annotated(data)
        if self.topic is not None and (known := corpus.attributes()) and self.topic not in known:
            raise ValueError(f"--topic {self.topic:.40}: {suggest(self.topic, known)}")
        if (classes := corpus.classified(self.topic)) is None:
            raise ValueError(f"{self.model}: its corpus has no classes; give texts with some: --data FILE.jsonl")
        return classes

    def _print(self, way: str, found: ProbeResult) -> None:
        record = {"way": way, **asdict(found), "accuracy_stderr": found.accuracy_stderr}
        line = f"{way}: {found.accuracy:.1%} ± {found.accuracy_stderr:.1%} of {found.rows} texts right"
        emit(record, self.json, f"{line}, {found.classes} classes, the commonest {found.majority:.1%}")
