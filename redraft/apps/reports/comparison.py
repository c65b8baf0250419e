"""The page of a comparison: the bits, texts and costs of several methods trained under one budget."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from redraft.apps.reports import charts, page
from redraft.apps.reports.page import _judged_sample, _Section
from redraft.training.data.registry import corpus_of_class

_VECTORS = " Models of vectors are measured here at the end of their diffusion chain, far above the bound of the bars."
_SIDE_BY_SIDE = 3  # texts shown of each method
_SeedSpread: TypeAlias = Mapping[str, float | None]  # keys mean, between (seeds), within (a seed)
_Summary: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class ComparisonData:
    """The content of the page that compares methods."""

    rows: Sequence[Mapping[str, Any]]
    summaries: Sequence[_Summary]  # best first
    budget: str
    planned: int  # number of rows once the comparison is complete
    commands: tuple[page.Command, ...]
    by_minutes: bool  # True to draw curves over minutes of training instead of steps

    @property
    def names(self) -> list[str]:
        return [summary["method"] for summary in self.summaries]

    @property
    def unit(self) -> str:
        return str(self.summaries[0]["bits_of"])

    @property
    def texts(self) -> list[str]:
        """Names of the corpora that methods are measured on."""
        return list(dict.fromkeys(summary["text"] for summary in self.summaries))

    def of(self, method: str) -> list[Mapping[str, Any]]:
        """The rows of one method."""
        return [row for row in self.rows if row["method"] == method]


def write_comparison(data: ComparisonData, out: Path) -> Path:
    """Writes the page to `out` and returns that path."""
    count, seeds = len(data.names), max(len(summary["seeds"]) for summary in data.summaries)
    introduction = (
        f"{count} method{'s' * (count > 1)}, {data.budget} of training each, "
        f"{seeds} seed{'s' * (seeds > 1)}. All are measured on the same held-out text and write equally many texts."
    )
    if len(data.rows) < data.planned:
        introduction += (
            f" So far {len(data.rows)} of {data.planned} rows are measured; run the same command to continue."
        )
    row = data.rows[0]
    footer = f"{row['machine']}; {row['commit']}. The figures are in rows.jsonl and compare.json, by redraft compare."
    return page._write_page(out, _title(data), introduction, _sections(data), footer)


def _title(data: ComparisonData) -> str:
    return " against ".join(data.names) if len(data.names) < 3 else f"{len(data.names)} methods, one budget"


def _sections(data: ComparisonData) -> Iterator[_Section]:
    yield _Section("", (_headline(data),))
    yield _Section("Held-out text", (_bars(data), _table(data)), _bits_note(data))
    if cost_charts := list(_cost_charts(data)):
        yield _Section(
            "Quality against cost",
            (charts._Charts(tuple(cost_charts)),),
            "Each point is one number of sampling steps; whiskers are one standard error, between and within seeds. "
            "Network calls are per text; seconds are measured on one core in batches of 64.",
        )
    if curves := _learning(data):
        yield _Section(
            "Learning",
            (curves,),
            "Each curve is one seed, measured during training on 64 rows of the valid split, outside the budget."
            + (_VECTORS if any("end" in row for row in data.rows) else ""),
        )
    yield _Section("Generated texts", tuple(_samples(data)), "The first texts of the first seed, not selected.")
    if written := _written_table(data):
        yield _Section("All generated texts", (written,), "Errors: between seeds, then within a seed.")
    yield _Section("Reproduce", (page._Commands(data.commands),))


def _bits_note(data: ComparisonData) -> str:
    note = (
        f"Bars show {data.unit}: an upper bound, exact for left-to-right models. The first error is between seeds, the "
        "second within a seed (other rows and noise). Whiskers combine both."
    )
    if len(data.texts) > 1:
        note += f" Bits on different corpora cannot be compared, and this page has {' and '.join(data.texts)}."
    return note


def _headline(data: ComparisonData) -> page._Figures:
    best = data.summaries[0]
    figures = [
        page._Figure("lowest bits", best["method"], f"{_with_errors(best['bits'], '.4f')} {data.unit}"),
        page._Figure("training runs", f"{len(data.rows)}", f"{data.budget} each{_stages_note(data)}"),
    ]
    checked = [summary for summary in data.summaries if "share" in summary["written"]["own"]]
    if checked:
        top = max(checked, key=lambda summary: float(summary["written"]["own"]["share"]["mean"]))
        correct = top["written"]["own"]["share"]
        name, note = (top["method"], f"{_percent(correct)} of its texts") if correct["mean"] else ("none yet", _NONE)
        figures.insert(1, page._Figure("most correct texts", name, note))
    cheapest = min(data.summaries, key=lambda summary: float(summary["written"]["own"]["seconds_per_sample"]["mean"]))
    seconds = cheapest["written"]["own"]["seconds_per_sample"]["mean"]
    figures.append(
        page._Figure("cheapest text", cheapest["method"], f"{seconds:.3g} s on one core, with its own sampler")
    )
    return page._Figures(tuple(figures))


_NONE = "no method wrote a correct text; a larger budget may help"


def _stages_note(data: ComparisonData) -> str:
    """Notes that the budget includes earlier stages; empty if no method has any."""
    return ", codecs and bases included" if any(len(row.get("stages", ())) > 1 for row in data.rows) else ""


def _bars(data: ComparisonData) -> charts._Bars:
    def bar(summary: _Summary) -> charts._Bar:
        bits = summary["bits"]
        parts = [f"seeds ± {bits['between']:.4f}"] if bits["between"] is not None else ["one seed"]
        parts += [f"within ± {bits['within']:.4f}"] if bits["within"] is not None else []
        return charts._Bar(summary["method"], float(bits["mean"]), ", ".join(parts), _combined_error(bits))

    return charts._Bars(tuple(map(bar, data.summaries)), "")


def _table(data: ComparisonData) -> page._DataTable:
    head = ("method", "noise", "weights", "training steps", "bits/char", "reconstructed by codec")
    has_codec = any("reconstruction" in summary for summary in data.summaries)
    rows = tuple(
        (
            summary["method"],
            summary["process"],
            f"{summary['parameters'] / 1e6:.2f} M",
            _range(summary["steps"]),
            _with_errors(summary["bits_per_char"], ".4f"),
            *((_percent(summary["reconstruction"]) if "reconstruction" in summary else "–",) if has_codec else ()),
        )
        for summary in data.summaries
    )
    return page._DataTable(head if has_codec else head[:-1], rows)


def _cost_charts(data: ComparisonData) -> Iterator[charts.Chart]:
    """Yields charts of quality against network calls and seconds: correct texts, and the judge's perplexity.

    A measure that is missing or zero everywhere is left out.
    """
    kinds = {
        "share": ("Correct texts", "%", 100.0, False),
        "generative_perplexity": ("Judge's perplexity", "perplexity", 1.0, True),
    }
    axes = {"nfe": "network calls", "seconds_per_sample": "seconds on one core"}
    for kind, (title, unit, factor, log) in kinds.items():
        if any(
            point[kind]["mean"] for summary in data.summaries for point in summary["written"].values() if kind in point
        ):
            for axis, x in axes.items():
                curves = tuple(_cost_curve(summary, kind, axis, factor) for summary in data.summaries)
                yield charts.Chart(f"{title} against {x}", x, unit, curves, x_log=True, y_log=log, top=5.0)


def _cost_curve(summary: _Summary, kind: str, axis: str, factor: float) -> charts.Curve:
    points = sorted(
        (float(point[axis]["mean"]), factor * float(point[kind]["mean"]), factor * _combined_error(point[kind]))
        for point in summary["written"].values()
        if kind in point
    )
    return charts.Curve(summary["method"], tuple(charts.Point(x, y, error) for x, y, error in points))


def _learning(data: ComparisonData) -> charts._Charts | None:
    curves = [curve for name in data.names for curve in _curves(data, name)]
    if not any(len(curve.points) > 1 for curve in curves):
        return None
    x = "CPU minutes" if data.by_minutes else "step"
    return charts._Charts((charts.Chart("Held-out text", x, data.unit, tuple(curves), y_log=True),))


def _curves(data: ComparisonData, name: str) -> list[charts.Curve]:
    return [charts.Curve.through(name, _points(row, data.by_minutes)) for row in data.of(name)]


def _points(row: Mapping[str, Any], by_minutes: bool) -> Iterator[tuple[float, float]]:
    """Yields (step or minutes, bits). Minutes include earlier stages, so a codec shifts the curve to the right."""
    minutes = [stage["minutes"] for stage in row["stages"]]
    for step, bits in row["curve"]:
        if not by_minutes:
            yield step, bits
        elif None not in minutes:
            yield sum(minutes[:-1]) + minutes[-1] * step / row["steps"], bits


def _samples(data: ComparisonData) -> Iterator[page._Samples]:
    """Yields the first text of every method side by side, then the second of each, and so on."""
    firsts = [(name, data.of(name)[0]) for name in data.names]
    for i in range(_SIDE_BY_SIDE):
        shown = (replace(_sample(row, row["texts"][i]), label=name) for name, row in firsts if i < len(row["texts"]))
        if texts := tuple(shown):
            yield page._Samples(texts, narrow=True)


def _sample(row: Mapping[str, Any], text: str) -> page._Sample:
    return _judged_sample(text, corpus_of_class(row["text"]))


def _written_table(data: ComparisonData) -> page._DataTable:
    names = {
        "share": ("correct", lambda f: _percent(f)),
        "attributes": ("attributes", lambda f: _percent(f)),
        "generative_perplexity": ("judge's perplexity", lambda f: _with_errors(f, ".1f")),
        "unigram_entropy": ("entropy of words, nats", lambda f: f"{f['mean']:.2f}"),
        "nfe": ("network calls", lambda f: f"{f['mean']:.1f}"),
        "seconds_per_sample": ("seconds on one core", lambda f: f"{f['mean']:.3g}"),
    }
    points = [(summary, name, point) for summary in data.summaries for name, point in summary["written"].items()]
    columns = {key: column for key, column in names.items() if any(key in point for _, _, point in points)}
    rows = (
        (
            f"{summary['method']}, {'own sampler' if name == 'own' else f'{name} steps'}",
            *(show(point[key]) if key in point else "–" for key, (_, show) in columns.items()),
        )
        for summary, name, point in points
    )
    return page._DataTable(("", *(title for title, _ in columns.values())), tuple(rows))


# --- figures and their errors ---


def _combined_error(figure: _SeedSpread) -> float:
    """Combines the errors between and within seeds, treated as independent."""
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
