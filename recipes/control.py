"""What does control cost: parts of speech, attributes, lengths and patterns, on stories?

    redraft train ar_tiny
    redraft train diffusion_lm_tiny --steps 1800 --out runs/diffusion_lm
    redraft train mdlm_tagger_tiny --base story --steps 400 --out runs/mdlm_tagger
    redraft train ar_tagger_tiny --steps 600 --out runs/ar_tagger
    redraft train diffusion_lm_tagger_tiny --base runs/diffusion_lm --steps 400 --out runs/diffusion_lm_tagger
    python recipes/control.py stories --judge runs/ar_tiny --model story --model runs/mdlm_tagger …
    redraft train mdlm_attribute_tiny --base story --steps 400 --out runs/mdlm_mood      # or --data.topic who, where, …
    python recipes/control.py stories --judge runs/ar_tiny --wishes story --layer runs/mdlm_mood
    pip install textblob          # includes Brill's lexicon: 94,000 words of Brown and the Penn Treebank (MIT)
    python recipes/control.py lexicon TEXT.txt … --write lexicon.json

The targets are the parts of speech of held-out stories, from the grammar. Each model writes one text per target, guided
by a lexicon (x̂ is weighted by p(part of speech | word)^γ at each position) or also by a trained tagger: of noisy tokens
(first order), of noisy vectors (gradient control of Diffusion-LM), or of the future (FUDGE). "Demanded" forbids all
other words. A mask model writes the most certain positions first; its second curve is for random order. All methods
take about one network call per word. Fluency is exact: the fraction of texts that are stories of the embedded language,
and their log-probability per word. The judge's perplexity covers all texts. --wishes measures attributes, lengths,
keywords and patterns instead, by constraints and by guidance.

*lexicon* makes a lexicon for `redraft control --pos … --lexicon FILE.json`. Every word and punctuation mark of the
texts gets its most frequent part of speech, by the names of Universal Dependencies. It is looked up in Brill's lexicon,
first as spelled and then in lower case. Words that are not there get a tag from their form: digits, a capital, or an
ending.

Rows go to control.jsonl and control_wishes.jsonl; existing rows are not measured again. Training takes a
quarter of an hour of one core, measuring as long. Parts of speech of real text: recipes/pos.py.
Answer: docs/results/control.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from results_pages.tables import markdown
from rows import Part, Rows, cpu_timer, run_part, run_recipe

from redraft.apps import Chart, Curve, Svg, chart_picture
from redraft.core import Masked, split_words
from redraft.decoding import AnyOrder, FirstOrderClassifier, GuidedSampler, Unmask
from redraft.evaluation import ModelJudge, generative_perplexity
from redraft.models import AttributeClassifier
from redraft.tasks import ControlRequest, ControlSettings, TextModel, control, open_model
from redraft.tasks.controlled.controlled import plan_control
from redraft.training import (
    STORY_LANGUAGE,
    split_seed,
    tag_words,
)

# --- lexicon ---

UNIVERSAL = {  # Penn → Universal; the longest beginning counts
    "NN": "NOUN",
    "NNP": "PROPN",
    "VB": "VERB",
    "MD": "AUX",
    "JJ": "ADJ",
    "RB": "ADV",
    "RP": "ADP",
    "IN": "ADP",
    "TO": "ADP",
    "DT": "DET",
    "PDT": "DET",
    "WDT": "PRON",
    "PRP": "PRON",
    "WP": "PRON",
    "WRB": "ADV",
    "EX": "PRON",
    "CC": "CCONJ",
    "CD": "NUM",
    "UH": "INTJ",
    "POS": "PART",
    "FW": "X",
    "SYM": "SYM",
    "$": "SYM",
}
ENDINGS = {"friendly": "ADJ", "ly": "ADV", "ing": "VERB", "ed": "VERB", "ful": "ADJ", "ous": "ADJ", "able": "ADJ"}


def penn(lines: Iterable[str]) -> dict[str, str]:
    """Brill's list, "word TAG" to a line → word → Universal part of speech."""
    pairs = (line.split() for line in lines if not line.startswith(";;;"))
    return {pair[0]: universal(pair[1]) for pair in pairs if len(pair) == 2}


def universal(tag: str) -> str:
    known = [name for name in UNIVERSAL if tag.startswith(name)]
    return UNIVERSAL[max(known, key=len)] if known else "PUNCT"


def lexicon(words: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """The part of speech of every word."""
    return {word: _kind(word, known) for word in sorted(set(words))}


def _kind(word: str, known: Mapping[str, str]) -> str:
    if not any(letter.isalnum() for letter in word):
        return "PUNCT"
    if word in known or word.lower() in known:
        return known.get(word) or known[word.lower()]
    if any(letter.isdigit() for letter in word):
        return "NUM"
    ending = next((kind for end, kind in ENDINGS.items() if word.endswith(end)), "NOUN")
    return "PROPN" if word[0].isupper() else ending


def brill() -> dict[str, str]:
    """The list that comes with textblob, read as a file: nothing of the package runs."""
    package = importlib.util.find_spec("textblob")
    if package is None or package.origin is None:
        raise SystemExit("the lexicon needs textblob; pip install textblob")
    return penn((Path(package.origin).parent / "en" / "en-lexicon.txt").read_text("utf-8").splitlines())


def lexicon_main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, nargs="+", help="text files")
    parser.add_argument("--write", type=Path, required=True, help="the file to write")
    args = parser.parse_args(argv)
    words = (word for path in args.text for word in split_words(path.read_text("utf-8")))
    tags = lexicon(words, brill())
    args.write.write_text(json.dumps(tags, ensure_ascii=False, indent=0) + "\n", "utf-8")
    print(f"{args.write}: {len(tags):,} words")


# --- control ---

SCALES: Mapping[str, dict[str, Any]] = {
    "free": {"scale": 0.0},
    "γ = 0.5": {"scale": 0.5},
    "γ = 1": {"scale": 1.0},
    "γ = 2": {"scale": 2.0},
    "demanded": {},
}


def measured(model: TextModel, judge: Path, options: dict[str, Any], count: int) -> dict[str, Any]:
    """Measures one text for the parts of speech of each held-out story."""
    stories = [STORY_LANGUAGE.text(split_seed(0, "test"), index) for index in range(count)]
    kept, texts = written(model, judge, [tag_words(story) for story in stories], options)
    true = [STORY_LANGUAGE.log_prob(text) for text in texts]
    inside = [log_p / len(split_words(text)) for log_p, text in zip(true, texts, strict=True) if log_p > -math.inf]
    nats = -sum(inside) / len(inside) if inside else None
    return {**kept, **_share("grammatical", len(inside), count), "true_nats_per_word": nats, "example": texts[0]}


def written(
    model: TextModel,
    judge: Path,
    wanted: Sequence[tuple[str, ...]],
    options: dict[str, Any],
) -> tuple[dict[str, Any], list[str]]:
    """One text for each sequence of parts of speech: how well they are kept, what it costs, and the texts."""
    count = len(wanted)
    with cpu_timer() as clock:
        records = [control(model, pos=" ".join(tags), seed=i, **options) for i, tags in enumerate(wanted)]
    texts = [record[0].text for record in records]
    right = [
        sum(a == b for a, b in zip(tag_words(text), tags, strict=False)) / len(tags)
        for text, tags in zip(texts, wanted, strict=True)
    ]
    figures = {
        "run": model.name,
        "step": model.step,
        "targets": count,
        "success": sum(right) / count,
        "success_stderr": math.sqrt(sum((share - sum(right) / count) ** 2 for share in right)) / count,
        **_share("all_right", sum(share == 1 for share in right), count),
        "perplexity": generative_perplexity(texts, ModelJudge(open_model(judge).lm)).perplexity,
        "nfe": sum(record.nfe for record in records) / count,
        "seconds_per_text": clock.seconds / count,
    }
    return figures, texts


def _share(name: str, hits: int, count: int) -> dict[str, float]:
    """A share and its standard error."""
    share = hits / count
    return {name: share, f"{name}_stderr": math.sqrt(share * (1 - share) / count)}


# --- attributes, lengths, keywords, patterns ---

WISHES: Mapping[str, list[dict[str, Any]]] = {
    "who": [{"attributes": (f"who={name}",)} for name in ("Anna", "Ben", "Felix", "Zoe", "Mara")],
    "where": [{"attributes": (f"where={place}",)} for place in ("lake", "park", "beach", "farm", "hill")],
    "mood": [{"attributes": (f"mood={mood}",)} for mood in ("sad", "bored", "lonely", "tired", "worried")],
    "season": [{"attributes": (f"season={season}",)} for season in ("spring", "summer", "autumn", "winter")],
    "length": [{"length": length} for length in (55, 61, 67)],  # no other lengths occur in stories
    "keyword": [{"required": (word,)} for word in ("lantern", "goose", "whales", "stones")],
    "pattern": [{"pattern": f"One {season} .*"} for season in ("spring", "autumn")],
}

DEMANDS: Mapping[str, dict[str, Any]] = {
    "demanded": {},  # required words are written first
    "demanded in any order": {"sampler": "any-order", "steps": 68},
}
GUIDED = {  # γ of the attribute classifier
    "γ = 1": 1.0,
    "γ = 2": 2.0,
    "γ = 0.5": 0.5,
    "γ = 4": 4.0,
    "γ = 1, first order": 1.0,
}


def fulfilled(model: TextModel, judge: Path, wishes: Sequence[dict[str, Any]], count: int) -> dict[str, Any]:
    """Measures texts with each of these conditions: the fraction that fulfills it, and fluency."""
    texts, met = [], []
    with cpu_timer() as clock:
        for seed, wish in enumerate(wishes):
            settings = ControlSettings(**wish, n=-(-count // len(wishes)), seed=seed)
            judged, results = ControlRequest(model, settings), plan_control(model, settings).results()
            texts += [each.text for each in results]
            met += [_met(judged, wish, each.text) for each in results]
    inside = [log_p / len(split_words(t)) for t in texts if (log_p := STORY_LANGUAGE.log_prob(t)) > -math.inf]
    return {
        "run": model.name,
        "texts": len(texts),
        **_share("success", sum(met), len(met)),
        **_share("grammatical", len(inside), len(texts)),
        "true_nats_per_word": -sum(inside) / len(inside) if inside else None,
        "perplexity": generative_perplexity(texts, ModelJudge(open_model(judge).lm)).perplexity,
        "seconds_per_text": clock.seconds / len(texts),
        "example": texts[0],
    }


def _met(judged: ControlRequest, wish: Mapping[str, Any], text: str) -> bool:
    if "pattern" in wish:
        return re.fullmatch(wish["pattern"], text) is not None
    return all(share == 1 for share in judged.fulfillment(text).values())


# --- the picture ---


def drawn(rows: Mapping[str, Mapping[str, Any]]) -> Svg:
    """Fluency against success, a curve over γ for each model."""
    curves = (
        Curve.through(spoken, ((100 * rows[name]["success"], 100 * rows[name]["grammatical"]) for name in names))
        for model, spoken in NAMES.items()
        if (names := [f"{model}, {way}" for way in SCALES if f"{model}, {way}" in rows])
    )
    title = "Parts of speech: control against fluency, one point per strength of control"
    x, y = "right parts of speech, %", "right stories, %"
    ticks = (80, 85, 90, 95, 100)
    return chart_picture([Chart(title, x, y, tuple(curves), x_range=(80, 100), x_ticks=ticks, top=100, width=680)])


# --- tables ---

NAMES = {  # directory → its label in the table
    "story": "token diffusion, lexicon",
    "story in any order": "token diffusion, lexicon, random order",
    "mdlm_tagger": "token diffusion, tagger of noisy tokens",
    "diffusion_lm": "Diffusion-LM, lexicon",
    "diffusion_lm_tagger": "Diffusion-LM, gradient control",
    "ar_tiny": "autoregressive, lexicon (FUDGE, present word)",
    "ar_tagger": "autoregressive, look-ahead (FUDGE)",
}


def tabled(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The table of all methods on the stories."""
    heads = ("method", "control", "tags right", "whole sequences", "stories", "nats", "judge", "calls", "CPU s")
    names = (((label, way), f"{model}, {way}") for model, label in NAMES.items() for way in SCALES)
    lines = ([*labels, *_kept(row), *_fluent(row), *_cost(row)] for labels, name in names if (row := rows.get(name)))
    return markdown(heads, lines)


def wished(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The table of attributes, lengths, words and patterns, with all methods."""
    order = [f"{wish}, {way}" for wish in ("none", *WISHES) for way in ("free", *DEMANDS, *sorted(GUIDED))]
    named = [(name.split(", ", 1), rows[name]) for name in order if name in rows]
    heads = ("condition", "method", "fulfilled", "stories", "nats per word of stories", "judge", "CPU s")
    return markdown(
        heads,
        [[*name, _percent(row, "success"), *_fluent(row), f"{row['seconds_per_text']:.1f}"] for name, row in named],
    )


def _kept(row: Mapping[str, Any]) -> list[str]:
    return [f"{100 * row['success']:.1f} ± {100 * row['success_stderr']:.1f} %", _percent(row, "all_right")]


def _fluent(row: Mapping[str, Any]) -> list[str]:
    true = row["true_nats_per_word"]
    return [_percent(row, "grammatical"), "–" if true is None else f"{true:.2f}", f"{row['perplexity']:.2f}"]


def _cost(row: Mapping[str, Any]) -> list[str]:
    return [f"{row['nfe']:.0f}", f"{row['seconds_per_text']:.1f}"]


def _percent(row: Mapping[str, Any], name: str) -> str:
    count, share = row.get("targets") or row["texts"], row[name]
    return f"{100 * share:.0f} ± {100 * math.sqrt(share * (1 - share) / count):.0f} %"


def tables(results: Path) -> dict[str, str]:
    rows, wishes = (Rows(results / f"{name}.jsonl").read() for name in ("control", "control_wishes"))
    return {"control": tabled(rows), "wishes": wished(wishes)}


def pictures(results: Path) -> dict[str, Svg]:
    return {"control": drawn(Rows(results / "control.jsonl").read())}


def measure(models: Sequence[Path], judge: Path, targets: int, results: Path) -> None:
    rows = Rows(results / "control.jsonl")
    for way in ("γ = 1", "demanded", "γ = 2", "γ = 0.5", "free"):
        for path in models:
            model = open_model(path)
            if "tagger" in model.lm.parts and way == "free":
                continue  # as without the tagger
            loose = isinstance(model.lm.process, Masked) and model.lm.block is None and "tagger" not in model.lm.parts
            orders: dict[str, dict[str, Any]] = {"": {}}
            if loose:
                orders[" in any order"] = {"sampler": "any-order", "steps": 68}
            for order, more in orders.items():
                row = partial(measured, model, judge, {**SCALES[way], **more}, targets)
                rows.add(f"{path.name}{order}, {way}", row)


def measure_wishes(model: Path, judge: Path, texts: int, results: Path) -> None:
    rows, loaded = Rows(results / "control_wishes.jsonl"), open_model(model)
    rows.add("none, free", partial(fulfilled, loaded, judge, [{"banned": ("xylophone",)}], texts))
    for name, wishes in WISHES.items():
        for way, more in DEMANDS.items():
            demanded = [wish | more for wish in wishes]
            rows.add(f"{name}, {way}", partial(fulfilled, loaded, judge, demanded, texts))


def measure_guided(layers: Sequence[Path], judge: Path, texts: int, results: Path) -> None:
    """The attribute that each layer was trained on, over γ, in any order and as many steps as there are words."""
    rows = Rows(results / "control_wishes.jsonl")
    for path, (way, scale) in ((path, way) for way in GUIDED.items() for path in layers):
        model = open_model(path)
        assert model.run is not None
        topic, names = str(getattr(model.run.data, "topic", "")), getattr(model.run.data, "classes", ())
        if topic not in WISHES:
            raise SystemExit(f"{path} has no classifier of {', '.join(WISHES)}; train mdlm_attribute_tiny")
        conditions = [wish | {"scale": scale, "sampler": "any-order", "steps": 68} for wish in WISHES[topic]]
        if "first order" in way:
            conditions = [wish | _first_order(model, names.index(_value(wish)), scale) for wish in WISHES[topic]]
        rows.add(f"{topic}, {way}", partial(fulfilled, model, judge, conditions, texts))


def _first_order(model: TextModel, label: int, scale: float) -> dict[str, Any]:
    """Guidance by one gradient for all words, instead of trying each word."""
    log_prob = model.lm.part(AttributeClassifier).log_prob(label)
    sampler = GuidedSampler(Unmask(68, AnyOrder()), FirstOrderClassifier(log_prob, scale))
    return {"sampler": sampler, "scale": 0.0}  # nothing else guides


def _value(wish: Mapping[str, Any]) -> str:
    return str(wish["attributes"][0].partition("=")[2])


def stories_main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, action="append", default=[], help="a trained word model; repeatable")
    parser.add_argument("--wishes", type=Path, help="a trained model, to measure attributes, lengths and words")
    parser.add_argument("--layer", type=Path, action="append", default=[], help="a model with an attribute classifier")
    parser.add_argument("--judge", type=Path, help="a trained causal model")
    parser.add_argument("--targets", type=int, default=40)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args(argv)
    measure(options.model, options.judge, options.targets, options.results)
    if options.wishes is not None:
        measure_wishes(options.wishes, options.judge, options.targets, options.results)
    measure_guided(options.layer, options.judge, options.targets, options.results)


# --- the parts ---


PARTS: Mapping[str, Part] = {
    "stories": stories_main,
    "lexicon": lexicon_main,
}


def main(argv: Sequence[str] | None = None) -> None:
    run_part(PARTS, argv, __doc__)


if __name__ == "__main__":
    run_recipe(main)
