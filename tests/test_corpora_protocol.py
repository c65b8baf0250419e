"""The storeys above training ask any corpus what it knows; none of them knows the embedded ones."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
import torch

import redraft
from redraft.apps.cli import main
from redraft.apps.reports.page import _judged_sample
from redraft.apps.server.worker import _model_info
from redraft.core import WordTokenizer
from redraft.evaluation import grammar_score
from redraft.evaluation.comparison.measurement import write_and_judge
from redraft.models import DiffusionLM, TaggerConfig
from redraft.tasks import ArgumentError, ControlRequest, ControlSettings, TextModel, control
from redraft.training import (
    CORPUS_NAMES,
    STORY_LANGUAGE,
    AnnotatedCorpus,
    DocumentRows,
    Judgment,
    Pair,
    Programs,
    Run,
    SourceCoverage,
    Split,
    StoryClasses,
    StoryCorpus,
    StorySummaries,
    as_annotated,
    mean_coverage,
    named_corpus,
    presets,
)
from redraft.training.data.registry import (
    corpus_of_class,
)
from redraft.training.runs import variations

PACKAGE = Path(redraft.__file__).parent

# --- no word of the embedded corpora outside their folders ---

AT_HOME = (
    "training/data/corpora/",
    "training/presets/",
    "training/__init__.py",  # lists the names of the storey
    "training/data/registry.py",  # reads the names of corpora from their folder
    "models/shipped/",
    "apps/reports/demo",
    "apps/reports/findings.py",  # of the demo
)
TOY = re.compile(r"(?<!hi)stor(y|ies)|restaurant|e2e|\bsotu\b|GaussianMixtureCorpus|data\.corpora\b", re.IGNORECASE)
# the model that is called so
SHIPPED = re.compile(r'\bSTORY\b|"story"|\|story\||\bor story, the model|\(story, smol\)')


def toy_words(path: str, text: str) -> list[str]:
    """Lines of a file that know an embedded corpus."""
    lines = () if path.startswith(AT_HOME) else text.splitlines()
    return [f"{path}: {line.strip()}" for line in lines if TOY.search(SHIPPED.sub("", line))]


def test_no_storey_above_knows_the_embedded_corpora() -> None:
    files = (file for kind in ("*.py", "*.js", "*.html") for file in PACKAGE.rglob(kind))
    found = [line for file in files for line in toy_words(str(file.relative_to(PACKAGE)), file.read_text("utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "from redraft.training.data.corpora.points import Points",
        "if isinstance(run.data, StoryCorpus):",
        "tags = STORY_TAGS",
        "it tells stories",
        "e2e_corpus(folder)",
    ],
)
def test_such_a_word_is_noticed(line: str) -> None:
    assert toy_words("apps/server/worker.py", line)
    assert not toy_words("training/presets/tiny.py", line)


# --- a corpus of somebody else ---

SKY = ("clear", "cloudy")
LEXICON = {"clear": "ADJ", "cloudy": "ADJ", "Monday": "NOUN", "Friday": "NOUN", "was": "VERB", "shone": "VERB"}
TEXTS = tuple(f"{day} {rest}" for day in ("Monday", "Friday") for rest in ("was clear", "was cloudy", "shone clear"))


@dataclass(frozen=True)
class Weather(AnnotatedCorpus):
    """Three words about a day."""

    def document(self, split: Split, index: int) -> str:
        return TEXTS[index % len(TEXTS)]

    def pair(self, split: Split, index: int) -> Pair:
        return Pair(self.document(split, index).split()[-1], self.document(split, index))

    def attributes(self) -> Mapping[str, tuple[str, ...]]:
        return {"sky": SKY, "glow": ("shine",)}

    def keyword(self, attribute: str, value: str) -> str:
        return "shone" if value == "shine" else value

    def classified(self, attribute: str | None = None) -> WeatherClasses:
        return WeatherClasses()

    def tags(self) -> Mapping[str, str]:
        return LEXICON

    def check(self, source: str, text: str) -> SourceCoverage:
        right = float(text.endswith(source))
        return SourceCoverage(right, right)

    def judge(self, text: str) -> Judgment:
        right = max(n for n in range(len(text) + 1) if any(known.startswith(text[:n]) for known in TEXTS))
        return Judgment(-math.log(len(TEXTS)) if text in TEXTS else -math.inf, right)


@dataclass(frozen=True)
class WeatherClasses(Weather):
    """The sky is the class."""

    @property
    def classes(self) -> tuple[str, ...]:
        return SKY


@dataclass(frozen=True)
class Numbers:
    """A corpus that has nothing to say."""

    def document(self, split: Split, index: int) -> str:
        return " ".join(islice(("Monday", "Friday", "was"), index % 3 + 1))


@cache
def learned(data: Weather | Numbers) -> TextModel:
    """A model with fresh weights, and its run."""
    tokenizer = WordTokenizer(tuple(LEXICON), ("eos", "pad", "mask"))
    run: Run = variations._shrunken(presets.mdlm_tiny())
    run = replace(run.with_tokenizer(tokenizer), data=data, framing=DocumentRows(4, fill_with_eos=True))
    torch.manual_seed(0)
    return TextModel(DiffusionLM(run.model, tokenizer).eval(), run)


def test_its_attributes_can_be_asked_for() -> None:
    model = learned(Weather())
    (text,) = control(model, attributes=["sky=cloudy", "glow=shine"], length=3)
    assert {"cloudy", "shone"} <= set(text.text.split())
    asked = ControlRequest(model, ControlSettings(attributes=("sky=cloudy", "glow=shine")))
    assert asked.fulfillment("Monday shone cloudy") == {"sky": 1.0, "glow": 1.0}
    assert asked.fulfillment("cloudy clear shone") == {"sky": 0.0, "glow": 1.0}  # two skies show none
    with pytest.raises(ArgumentError, match="have no attribute 'mood'; choose from sky, glow"):
        control(model, attributes="mood=sad")
    with pytest.raises(ArgumentError, match="sky=green: choose from clear, cloudy"):
        control(model, attributes="sky=green")


def test_its_parts_of_speech_can_be_asked_for() -> None:
    (text,) = control(learned(Weather()), pos="NOUN VERB ADJ")
    assert [LEXICON[word] for word in text.text.split()] == ["NOUN", "VERB", "ADJ"]
    run = learned(Weather()).run
    assert run is not None
    kinds = variations.with_tagger(run, "runs/weather").model.part(TaggerConfig)
    assert kinds is not None
    assert {"NOUN", "VERB", "ADJ"} <= set(kinds.names)


def test_the_server_tells_its_attributes() -> None:
    told = _model_info("weather", learned(Weather()))["attributes"]
    assert told == {"sky": ["clear", "cloudy"], "glow": ["shine"]}


def test_it_is_probed_by_its_attributes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("redraft.apps.cli.models.open_model", lambda *_: learned(Weather()))
    main(["probe", "weather", "--topic", "sky", "--train", "24", "--test", "12", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["classes"], found["rows"]) == (2, 12)
    with pytest.raises(SystemExit):
        main(["probe", "weather", "--topic", "mood"])
    assert "--topic mood" in capsys.readouterr().err


def test_it_judges_what_is_written() -> None:
    model = learned(Weather())
    assert model.run is not None
    figures, record = write_and_judge(model.lm, model.run, model.run.sampler, 6)
    assert figures["share"] == sum(text in TEXTS for text in record.texts) / 6
    assert {"attributes", "all_attributes"} <= figures.keys()
    assert _judged_sample("Monday was green", Weather()).right == len("Monday was ")
    score = grammar_score([TEXTS[0], "Monday"], Weather())
    assert (score.share, score.bits) == (0.5, pytest.approx(-math.log2(len(TEXTS))))


# --- a corpus that has nothing to say ---


def test_a_corpus_without_annotations_counts_as_silent() -> None:
    known = as_annotated(Numbers())
    assert (known.attributes(), known.tags(), known.words(), known.classified()) == ({}, None, (), None)
    assert (known.check("a", "b"), known.judge("a"), known.recognize("a")) == (None, None, {})
    assert mean_coverage(Numbers(), ["a"], ["b"]) is None
    assert _model_info("numbers", learned(Numbers()))["attributes"] == {}
    assert _judged_sample("Monday", Numbers()).bits is None
    with pytest.raises(ValueError, match="does not know the true probabilities"):
        grammar_score(["Monday"], known)


def test_other_wishes_are_still_obeyed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    model = learned(Numbers())
    assert "was" in control(model, length=2, required="was")[0].text
    assert len(control(model, pos="* *")[0].tokens) == 2
    with pytest.raises(ArgumentError, match="give lexicon="):
        control(model, pos="NOUN VERB")
    with pytest.raises(ArgumentError, match="have no attribute 'sky'; choose from none"):
        control(model, attributes="sky=clear")
    assert model.run is not None
    with pytest.raises(ValueError, match="give a lexicon"):
        variations.with_tagger(model.run, "runs/numbers")
    with pytest.raises(ValueError, match="Numbers has no classes"):
        variations.with_classes(model.run, Numbers())
    monkeypatch.setattr("redraft.apps.cli.models.open_model", lambda *_: model)
    with pytest.raises(SystemExit):
        main(["probe", "numbers"])
    assert "--data FILE.jsonl" in capsys.readouterr().err


# --- the embedded ones ---


def test_corpora_have_names() -> None:
    assert set(CORPUS_NAMES) == {"stories", "sotu"}
    for name in CORPUS_NAMES:
        made = named_corpus(name)
        assert type(corpus_of_class(type(made).__name__)) is type(made)
    assert corpus_of_class("TextFiles") is None


def test_what_the_stories_know() -> None:
    data = StoryCorpus(seed=3)
    assert data.attributes()["plot"] == ("find", "help", "make")
    assert [data.keyword("plot", value) for value in ("find", "help", "make")] == ["found", "helped", "made"]
    assert data.keyword("mood", "sad") == "sad"
    assert data.classified() == StoryClasses("mood", seed=3)
    assert as_annotated(StorySummaries()).attributes() == {}  # a summary is no story
    for index in range(20):
        text = data.document("test", index)
        assert data.judge(text) == (STORY_LANGUAGE.log_prob(text), len(text))
        assert data.recognize(text) == STORY_LANGUAGE.story(*_origin(data, index)).attributes
        broken = text.replace(". ", ". The ", 1)
        assert text[: data.judge(broken).right].count(".") == STORY_LANGUAGE.grammatical_prefix(broken) == 1


def _origin(data: StoryCorpus, index: int) -> tuple[int, int]:
    return redraft.training.split_seed(data.seed, "test"), index


def test_a_program_is_right_up_to_its_first_wrong_statement() -> None:
    data = Programs()
    text = data.document("test", 0)
    assert data.judge(text) == (data.log_prob(text), len(text))
    first, second, *rest = text.split("; ")
    wrong = "; ".join([first, f"z{second[1:]}", *rest])
    assert data.judge(wrong) == (-math.inf, len(first) + 2)
