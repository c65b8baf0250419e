"""The page of a comparison: methods under one budget, against the truth, their price and each other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from redraft.apps.reports import charts, page
from redraft.apps.reports.page import _Section
from redraft.apps.reports.samples import _judged_sample
from redraft.training.data.registry import corpus_of_class

_VECTORS = " Models of vectors are read there at the end of their whole diffusion, far above the bound of the bars."
_SIDE_BY_SIDE = 3  # texts of each method
_SeedSpread: TypeAlias = Mapping[str, float | None]  # mean, between, within
_Summary: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class ComparisonData:
    """What the page is made of."""

    rows: Sequence[Mapping[str, Any]]
    summaries: Sequence[_Summary]  # best first
    budget: str
    planned: int  # rows when all is done
    commands: tuple[page.Command, ...]
    by_minutes: bool  # the curves are drawn over minutes of training, not over steps

    @property
    def names(self) -> list[str]:
        return [each["method"] for each in self.summaries]

    @property
    def unit(self) -> str:
        return str(self.summaries[0]["bits_of"])

    @property
    def texts(self) -> list[str]:
        """The texts that methods are measured on."""
        return list(dict.fromkeys(each["text"] for each in self.summaries))

    def of(self, method: str) -> list[Mapping[str, Any]]:
        return [row for row in self.rows if row["method"] == method]


def write_comparison(told: ComparisonData, out: Path) -> Path:
    """Writes the page to a file, and returns the file."""
    count, seeds = len(told.names), max(len(each["seeds"]) for each in told.summaries)
    summary = (
        f"{count} method{'s' * (count > 1)}, {told.budget} of training each, "
        f"{seeds} seed{'s' * (seeds > 1)}. All of them read the same unseen text and write as many texts."
    )
    if len(told.rows) < told.planned:
        summary += f" So far {len(told.rows)} of {told.planned} rows are measured; the same command goes on."
    row = told.rows[0]
    footer = f"{row['machine']}; {row['commit']}. The figures are in rows.jsonl and compare.json, by redraft compare."
    return page._write_page(out, _title(told), summary, _sections(told), footer)


def _title(told: ComparisonData) -> str:
    return " against ".join(told.names) if len(told.names) < 3 else f"{len(told.names)} methods, one budget"


def _sections(told: ComparisonData) -> Iterator[_Section]:
    yield _Section("", (_headline(told),))
    yield _Section("Unseen text", (_bars(told), _table(told)), _bits_note(told))
    if drawn := list(_prices(told)):
        yield _Section(
            "Quality against its price",
            (charts._Charts(tuple(drawn)),),
            "Each point is a number of sampling steps; whiskers are one standard error, between seeds and within. "
            "Network calls are counted per text, seconds are those of one core in batches of 64.",
        )
    if curves := _learning(told):
        yield _Section(
            "Learning",
            (curves,),
            "A curve is a seed. Measured on 64 rows of the valid split on the way, which the budget does not count."
            + (_VECTORS if any("end" in row for row in told.rows) else ""),
        )
    yield _Section("What they write", tuple(_samples(told)), "The first texts of the first seed, not chosen.")
    if written := _written_table(told):
        yield _Section("All that was written", (written,), "Errors: between seeds, within a seed.")
    yield _Section("The same again", (page._Commands(told.commands),))


def _bits_note(told: ComparisonData) -> str:
    note = (
        f"A bar is {told.unit}, at most (left to right: exactly). The first error is that between seeds, the second "
        "that within one: other rows and other noise. Whiskers join both."
    )
    if len(told.texts) > 1:
        note += f" Bits of different texts cannot be compared, and here are {' and '.join(told.texts)}."
    return note


def _headline(told: ComparisonData) -> page._Figures:
    best = told.summaries[0]
    figures = [
        page._Figure("lowest bits", best["method"], f"{_with_errors(best['bits'], '.4f')} {told.unit}"),
        page._Figure("trainings", f"{len(told.rows)}", f"{told.budget} each{_before(told)}"),
    ]
    right = [each for each in told.summaries if "share" in each["written"]["own"]]
    if right:
        most = max(right, key=lambda each: float(each["written"]["own"]["share"]["mean"]))
        share = most["written"]["own"]["share"]
        name, note = (most["method"], f"{_percent(share)} of its texts") if share["mean"] else ("none yet", _NONE)
        figures.insert(1, page._Figure("most right", name, note))
    cheapest = min(told.summaries, key=lambda each: float(each["written"]["own"]["seconds_per_sample"]["mean"]))
    seconds = cheapest["written"]["own"]["seconds_per_sample"]["mean"]
    figures.append(page._Figure("cheapest text", cheapest["method"], f"{seconds:.3g} s of a core, by its own sampler"))
    return page._Figures(tuple(figures))


_NONE = "no text of any method is right; a larger budget may help"


def _before(told: ComparisonData) -> str:
    """A word about stages that come first, where there are some."""
    return ", codecs and bases included" if any(len(row.get("stages", ())) > 1 for row in told.rows) else ""


def _bars(told: ComparisonData) -> charts._Bars:
    def bar(each: _Summary) -> charts._Bar:
        bits = each["bits"]
        parts = [f"seeds ± {bits['between']:.4f}"] if bits["between"] is not None else ["one seed"]
        parts += [f"within ± {bits['within']:.4f}"] if bits["within"] is not None else []
        return charts._Bar(each["method"], float(bits["mean"]), ", ".join(parts), _joined(bits))

    return charts._Bars(tuple(map(bar, told.summaries)), "")


def _table(told: ComparisonData) -> page._DataTable:
    head = ("method", "noise", "weights", "training steps", "bits/char", "codec and back")
    survive = any("reconstruction" in each for each in told.summaries)
    rows = tuple(
        (
            each["method"],
            each["process"],
            f"{each['parameters'] / 1e6:.2f} M",
            _range(each["steps"]),
            _with_errors(each["bits_per_char"], ".4f"),
            *((_percent(each["reconstruction"]) if "reconstruction" in each else "–",) if survive else ()),
        )
        for each in told.summaries
    )
    return page._DataTable(head if survive else head[:-1], rows)


def _prices(told: ComparisonData) -> Iterator[charts._Chart]:
    """Quality over network calls and over seconds: right texts, or where nobody can tell, what a judge says.

    Where no text is right there is nothing to see.
    """
    kinds = {
        "share": ("Right texts", "%", 100.0, False),
        "generative_perplexity": ("The judge", "perplexity", 1.0, True),
    }
    axes = {"nfe": "network calls", "seconds_per_sample": "seconds of a core"}
    for kind, (title, unit, factor, log) in kinds.items():
        if any(point[kind]["mean"] for each in told.summaries for point in each["written"].values() if kind in point):
            for axis, x in axes.items():
                curves = tuple(_price(each, kind, axis, factor) for each in told.summaries)
                yield charts._Chart(f"{title} against {x}", x, unit, curves, x_log=True, y_log=log, top=5.0)


def _price(each: _Summary, kind: str, axis: str, factor: float) -> charts._Curve:
    found = sorted(
        (float(point[axis]["mean"]), factor * float(point[kind]["mean"]), factor * _joined(point[kind]))
        for point in each["written"].values()
        if kind in point
    )
    return charts._Curve(each["method"], tuple((x, y) for x, y, _ in found), tuple(error for _, _, error in found))


def _learning(told: ComparisonData) -> charts._Charts | None:
    curves = [curve for name in told.names for curve in _curves(told, name)]
    if not any(len(curve.points) > 1 for curve in curves):
        return None
    x = "CPU minutes" if told.by_minutes else "step"
    return charts._Charts((charts._Chart("Held-out text", x, told.unit, tuple(curves)),))


def _curves(told: ComparisonData, name: str) -> list[charts._Curve]:
    return [charts._Curve(name, tuple(_points(row, told.by_minutes))) for row in told.of(name)]


def _points(row: Mapping[str, Any], by_minutes: bool) -> Iterator[tuple[float, float]]:
    """Minutes count from the first stage on: a codec that was trained before moves the curve to the right."""
    spent = [stage["minutes"] for stage in row["stages"]]
    for step, bits in row["curve"]:
        if not by_minutes:
            yield step, bits
        elif None not in spent:
            yield sum(spent[:-1]) + spent[-1] * step / row["steps"], bits


def _samples(told: ComparisonData) -> Iterator[page._Samples]:
    """The first text of every method side by side, then the second of each, and so on."""
    firsts = [(name, told.of(name)[0]) for name in told.names]
    for i in range(_SIDE_BY_SIDE):
        shown = (replace(_sample(row, row["texts"][i]), label=name) for name, row in firsts if i < len(row["texts"]))
        if texts := tuple(shown):
            yield page._Samples(texts, narrow=True)


def _sample(row: Mapping[str, Any], text: str) -> page._Sample:
    return _judged_sample(text, corpus_of_class(row["text"]))


def _written_table(told: ComparisonData) -> page._DataTable:
    names = {
        "share": ("right", lambda f: _percent(f)),
        "attributes": ("attributes", lambda f: _percent(f)),
        "generative_perplexity": ("judge's perplexity", lambda f: _with_errors(f, ".1f")),
        "unigram_entropy": ("entropy of words, nats", lambda f: f"{f['mean']:.2f}"),
        "nfe": ("network calls", lambda f: f"{f['mean']:.1f}"),
        "seconds_per_sample": ("seconds of a core", lambda f: f"{f['mean']:.3g}"),
    }
    points = [(each, name, point) for each in told.summaries for name, point in each["written"].items()]
    kept = {key: told_as for key, told_as in names.items() if any(key in point for _, _, point in points)}
    rows = (
        (
            f"{each['method']}, {'own sampler' if name == 'own' else f'{name} steps'}",
            *(show(point[key]) if key in point else "–" for key, (_, show) in kept.items()),
        )
        for each, name, point in points
    )
    return page._DataTable(("", *(title for title, _ in kept.values())), tuple(rows))


# --- figures and their errors ---


def _joined(figure: _SeedSpread) -> float:
    """The error between seeds and the one within, as if they were independent."""
    return math.hypot(figure["between"] or 0.0, figure["within"] or 0.0)


def _with_errors(figure: _SeedSpread, form: str) -> str:
    errors = (figure[key] for key in ("between", "within"))
    return page._format_number(f"{figure['mean']:{form}}") + "".join(f" ± {e:{form}}" for e in errors if e is not None)


def _percent(figure: _SeedSpread) -> str:
    scaled = {key: None if value is None else 100 * value for key, value in figure.items()}
    return f"{_with_errors(scaled, '.0f')} %" if figure["mean"] else "0 %"


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
