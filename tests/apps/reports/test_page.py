"""The page of a run: sound HTML, nothing from outside, everything escaped, and in a browser it plays."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from redraft.apps import (
    Frame,
    Token,
)
from redraft.apps.reports import charts, page as report, pictures
from redraft.apps.reports.charts import Chart, Curve, Point, _Bar, _Bars, _Charts
from redraft.apps.reports.page import (
    Command,
    _Commands,
    _DataTable,
    _Element,
    _Figure,
    _Figures,
    _FilledText,
    _FilledTexts,
    _Playback,
    _Sample,
    _Samples,
    _Section,
    _token_spans,
)
from redraft.apps.reports.watch import _TokenState
from redraft.core.text.tokenizers import MASK_GLYPH

VOID = {"meta", "input"}
SVG = "{http://www.w3.org/2000/svg}"
EVIL = "</script><script>alert(\"x\")</script> & 'quoted'"


class Balance(HTMLParser):
    """Notes every tag, and complains of one that is not closed in its turn."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)


def frame(step: int, *tokens: tuple[int, str, _TokenState]) -> Frame:
    return Frame(step, tuple(Token(text, state, position) for position, text, state in tokens))


def writing() -> tuple[Frame, ...]:
    """A given word, two words in any order, and an end token in the fourth place."""
    hidden = MASK_GLYPH
    return (
        frame(
            0, (0, "The", "given"), (1, f" {hidden}", "noise"), (2, f" {hidden}", "noise"), (3, f" {hidden}", "noise")
        ),
        frame(1, (0, "The", "given"), (1, f" {hidden}", "noise"), (2, " sang", "new"), (3, f" {hidden}", "noise")),
        frame(2, (0, "The", "given"), (1, f" {hidden}", "noise"), (2, " sang", "settled")),
        frame(3, (0, "The", "given"), (1, " band", "new"), (2, " sang", "settled")),
    )


def page_of(*blocks: _Element) -> str:
    return report._render_page("A title", "A summary", [_Section("A section", blocks, "A note")], "A footer")


def test_a_page_is_one_sound_file_with_nothing_from_outside(tmp_path: Path) -> None:
    file = report._write_page(
        tmp_path / "new" / "report.html", "A title", "A summary", [_Section("One", (_Playback(writing()),))]
    )
    page = file.read_text("utf-8")
    found = Balance(page)
    assert {"A title", "A summary", "One"} <= set(found.words)
    assert not {"link", "img", "iframe", "object"} & set(found.tags)
    outside = re.findall(r"https?://[^\"' )]+|\bsrc=|@import|url\(", page)
    assert set(outside) <= {"http://www.w3.org/2000/svg"}
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


@pytest.mark.parametrize(
    "block",
    [
        _Figures((_Figure(EVIL, EVIL, EVIL),)),
        _DataTable((EVIL, EVIL), ((EVIL, EVIL),)),
        _Bars((_Bar(EVIL, 0.3, EVIL),), EVIL),
        _Commands((Command(EVIL, EVIL),)),
        _Charts((Chart(EVIL, EVIL, EVIL, (Curve.through(EVIL, ((1, 2.0), (2, 1.0))),), (EVIL, 0.5), y_log=True),)),
        _Samples((_Sample(EVIL, -math.inf, 3, EVIL), _Sample(EVIL))),
        _FilledTexts((_FilledText((Token(EVIL, "given", 0), Token(EVIL, "new", 1)), _Sample(EVIL), (EVIL,)),)),
        _Playback((frame(0, (0, MASK_GLYPH, "noise")), frame(1, (0, EVIL, "new")))),
    ],
    ids=lambda block: type(block).__name__,
)
def test_everything_from_outside_is_escaped(block: _Element) -> None:
    plain, evil = Balance(page_of()), Balance(page_of(block))
    assert evil.tags.count("script") == plain.tags.count("script") + isinstance(block, _Playback)
    assert "alert" in evil.text
    title = Balance(report._render_page(EVIL, EVIL, [_Section(EVIL, (), EVIL)], EVIL))
    assert title.tags == plain.tags
    assert title.text.count(EVIL) == 6  # twice the title


def test_numbers_are_there() -> None:
    table = _DataTable(("", "ours"), (("steps", "1,024"),))
    found = Balance(page_of(_Figures((_Figure("bits", "0.371", "at most"),)), table)).text
    assert all(word in found for word in ("bits", "0.371", "at most", "ours", "steps", "1,024"))


def test_bars_show_what_differs_and_how_sure_that_is() -> None:
    found = _Bars((_Bar("a", 0.5, error=0.3), _Bar("b", 0.2, error=0.4), _Bar("c", -0.1)), "bits").html()
    widths = [float(width) for width in re.findall(r'"length" style="width:([\d.]+)%', found)]
    assert widths == pytest.approx([62.5, 25, 0])
    whiskers = re.findall(r'"error" style="left:([\d.]+)%;width:([\d.]+)%', found)
    assert [(float(left), float(width)) for left, width in whiskers] == [(25, 75), (0, 75), (0, 0)]
    assert "0.5000 ± 0.3000 bits" in found


def test_a_chart_is_drawn_to_scale() -> None:
    curve = Curve("a", (Point(0, 4.0), Point(50, 2.0, error=1.0), Point(100, 1.0)))
    chart = Chart("Loss", "step", "bits", (curve,), ("entropy", 0.5), y_log=True)
    root = ElementTree.fromstring(charts.chart_picture([chart]))
    (line,) = root.iter(f"{SVG}polyline")
    xs, ys = zip(*(map(float, point.split(",")) for point in line.attrib["points"].split()), strict=True)
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert ys[1] - ys[0] == pytest.approx(ys[2] - ys[1], abs=0.2)  # logarithmic: halves are equally far
    limit = next(float(e.attrib["y1"]) for e in root.iter(f"{SVG}line") if e.attrib["class"] == "limit")
    (whisker,) = (e.attrib["d"] for e in root.iter(f"{SVG}path") if e.attrib["class"] == "whisker")
    assert whisker.endswith(f"V{ys[2]:.1f}"), "one standard error below 2 is 1"
    assert limit - ys[2] == pytest.approx(ys[2] - ys[1], abs=0.2)
    assert max(*ys, limit) <= chart.HEIGHT - chart.BOTTOM
    assert min(ys) >= chart.TOP
    spoken = root.attrib["aria-label"]
    assert spoken == "Loss: bits over step. a ends at 1.000; entropy: 0.500"


def test_a_chart_without_points_or_with_a_loss_of_zero_is_drawn() -> None:
    curves = (Curve("none", ()), Curve.through("zero", ((1, 0.0),)))
    Balance(page_of(_Charts((Chart("Loss", "step", "bits", curves, y_log=True),))))


def test_ticks_are_round() -> None:
    assert charts._ticks(680) == [0, 200, 400, 600]
    assert charts._ticks(0.9) == [0, 0.2, 0.4, 0.6, 0.8]
    assert charts._ticks(1) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert charts._log_ticks(0.15, 7) == [0.2, 0.5, 1, 2, 5]
    assert charts._log_ticks(0.166, 0.19) == [0.17, 0.175, 0.18, 0.185, 0.19], "never one alone"


@pytest.mark.parametrize("steps", [1, 9, 150, 2000, 20000])
@pytest.mark.parametrize("low", [0.0002, 0.17, 4.1])
def test_every_axis_has_ticks_inside_the_picture(steps: int, low: float) -> None:
    chart = Chart("Loss", "step", "bits", (Curve.through("a", ((1, 1.05 * low), (steps, low))),), y_log=True)
    svg = ElementTree.fromstring(charts.chart_picture([chart]))
    labels = [e for e in svg.iter(f"{SVG}text") if e.attrib.get("class") == "middle"]
    assert len(labels) >= 3
    wide = 7.5 * len(labels[-1].text or "")  # about
    assert float(labels[-1].attrib["x"]) + wide / 2 <= chart.width
    heights = [e for e in svg.iter(f"{SVG}text") if e.attrib.get("class") == "end tick"]
    assert len(heights) >= 3
    assert all(float(e.attrib["x"]) - 7.5 * len(e.text or "") >= -4 for e in heights)


def test_time_as_one_says_it() -> None:
    assert [report._format_duration(s) for s in (0.25, 59.94, 60, 231.6)] == [
        "0.2 s",
        "59.9 s",
        "1 min 0 s",
        "3 min 52 s",
    ]


def test_samples_show_the_first_wrong_word() -> None:
    right = _Sample("Anna sang.", -12.34, 10).html()
    assert "✓ grammatical" in right
    assert "−12.3\N{NO-BREAK SPACE}bits" in right
    assert "<mark" not in right
    wrong = _Sample("Anna the sang.", -math.inf, len("Anna")).html()
    assert 'Anna <mark class="wrong">the</mark><s> sang.</s>' in wrong
    assert "correct for 1 word, but “the” cannot follow" in wrong
    first = _Sample("the Anna.", -math.inf, 0).html()
    assert '<mark class="wrong">the</mark><s> Anna.</s>' in first
    assert "</b> no text begins with “the”" in first
    assert "correct for 2 words, but it does not end" in _Sample("Anna sang", -math.inf, 9).html()
    unknown = _Sample("Anna sang.").html()
    assert "verdict" not in unknown
    assert "Anna sang." in unknown


def test_infills_tell_given_from_written() -> None:
    tokens = tuple(
        Token(text, state, i)
        for i, (text, state) in enumerate([("She", "given"), (" took", "settled"), (" a", "new"), (" kite", "given")])
    )
    found = _FilledText(tokens, _Sample("She took a kite", -math.inf, 15), ("found the",)).html()
    assert 'She <mark class="written">took a</mark> kite' in found
    assert "Original: “found the”" in found


def test_stretches_join_steps_that_look_the_same() -> None:
    columns = [[(s.lo, s.hi, s.token and s.token.state) for s in column] for column in _token_spans(writing())]
    assert columns == [
        [(0, 4, "given")],
        [(0, 3, "noise"), (3, 4, "new")],
        [(0, 1, "noise"), (1, 2, "new"), (2, 4, "settled")],
        [(0, 2, "noise"), (2, 4, None)],
    ]


def test_the_strip_has_a_cell_for_every_stretch_and_the_words_to_read() -> None:
    found = _Playback(writing()).html()
    assert found.count("<rect") == 7
    assert "<title>step 3: band</title>" in found
    assert "<title>step 0: not yet written</title>" in found
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', found).group(1))  # type: ignore[union-attr]
    assert data["columns"][1] == [[0, "noise", ""], [3, "new", "band"]]
    assert data["columns"][3] == [[0, "noise", ""], [2, "gone", ""]]
    assert 'The</span> <span class="new">band</span> <span class="settled">sang</span>' in found


def drawn(picture: str) -> list[tuple[list[str], int, int]]:
    """Of each frame the words, the bars of what is not yet written, and the marks of what is new."""
    groups = ElementTree.fromstring(picture).iter(f"{SVG}g")
    return [
        (
            [text.text or "" for text in group.iter(f"{SVG}text")],
            sum(rect.attrib["class"] == "noise" for rect in group.iter(f"{SVG}rect")),
            sum(rect.attrib["class"] == "mark" for rect in group.iter(f"{SVG}rect")),
        )
        for group in groups
    ]


def test_a_picture_shows_noise_becoming_text() -> None:
    assert drawn(pictures.picture(writing())) == [
        (["step 0", "The"], 3, 0),
        (["step 1", "The", "sang"], 2, 1),
        (["step 2", "The", "sang"], 1, 0),
        (["step 3", "The", "band", "sang"], 0, 1),
    ]
    first, last = drawn(pictures.picture(writing(), shown=2))
    assert first[0] == ["step 0", "The"]
    assert last == (["step 3", "The", "band", "sang"], 0, 2), "new since the frame that is shown before"


def test_places_in_a_picture_do_not_move() -> None:
    text = "word " * 60
    tokens = [(i, "word" if i == 0 else " word") for i in range(60)]
    first = frame(0, *((i, MASK_GLYPH if i == 0 else f" {MASK_GLYPH}", "noise") for i, _ in tokens))
    last = frame(1, *((i, word, "new") for i, word in tokens))
    groups = ElementTree.fromstring(pictures.picture([first, last])).findall(f"{SVG}g")
    bars = [(r.attrib["x"], int(r.attrib["y"]) - 3) for r in groups[0].iter(f"{SVG}rect")]
    words = [(t.attrib["x"], int(t.attrib["y"]) - 15) for t in groups[1].iter(f"{SVG}text")][1:]
    assert bars == words
    assert len({y for _, y in words}) == math.ceil(len(text) / 92)


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine to open the page in")
def test_the_page_plays_in_a_browser(tmp_path: Path) -> None:
    """The script shows the controls and the last step; after a click on the strip at its top, the first one."""
    click = """<script>addEventListener("load", () => {
      const strip = document.querySelector(".strip svg"), box = strip.getBoundingClientRect();
      document.body.dataset.last = document.querySelector(".canvas").innerHTML;
      document.body.dataset.hidden = document.querySelector(".controls").hidden;
      strip.dispatchEvent(new MouseEvent("click", { clientX: box.x + 1, clientY: box.y + 1 }));
    });</script>"""
    file = report._write_page(tmp_path / "report.html", "A title", "", [_Section("One", (_Playback(writing()),))])
    file.write_text(file.read_text("utf-8").replace("</body>", f"{click}</body>"), "utf-8")
    command = [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom", file.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert 'data-hidden="false"' in dom
    assert '<span class="new">band</span>' in unescape(dom), "as it stood before the click"
    assert "<output>step 0</output>" in dom
    assert '<span class="given">The</span> <span class="noise">band</span> <span class="noise">sang</span>' in dom
    assert f'<span class="noise">{MASK_GLYPH}</span>' in dom
