"""The playground in Chromium, against a real server with the model that comes with the package."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from redraft.shipped import STORY, shipped_folder
from tests.serve.served import Server, serving

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="NO CHROMIUM: the playground was not tested")
PAGES = Path(__file__).parents[2] / "redraft" / "serve" / "page"


@pytest.fixture(scope="module")
def served() -> Iterator[Server]:
    with serving(shipped_folder(STORY)) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser: Browser, served: Server) -> Iterator[Page]:
    """The page, ready; at the end no request has left the server's origin, and no script has failed."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    found, wrong, outside = context.new_page(), [], []
    found.on("pageerror", lambda error: wrong.append(str(error)))
    found.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    found.on("request", lambda r: None if r.url.startswith((served.url, "blob:")) else outside.append(r.url))
    found.goto(served.url)
    found.wait_for_selector("body[data-ready]")
    yield found
    context.close()
    assert (wrong, outside) == ([], [])


def write(page: Page, text: str) -> str:
    page.fill("#text", text)
    page.click("#go")
    return finished(page)


def finished(page: Page) -> str:
    """The text, once it is there."""
    page.wait_for_selector("#export:not([hidden])", timeout=60_000)
    return page.inner_text("#written .canvas").strip()


def test_it_writes_and_fills_holes(page: Page) -> None:
    assert write(page, "One winter day,").startswith("One winter day,")
    text = write(page, "One spring day, [[4]] walked to the [[1]].")
    assert re.fullmatch(r"One spring day, .+ walked to the .+\.", text)
    assert page.locator("#written .token.given").count() == 8
    page.hover("#written .token:not(.given) >> nth=0")
    assert re.search(r"written at step \d+, [\d.]+ % sure", page.inner_text("#written .tip"))


def test_time_can_be_scrubbed(page: Page) -> None:
    whole = write(page, "One winter day,")
    slider = page.locator("#written input[type=range]")
    slider.fill("0")
    assert page.locator("#written .token.noise").count() > 20
    assert page.inner_text("#written output").startswith("step 0 of 64")
    slider.fill(slider.get_attribute("max") or "")
    assert page.inner_text("#written .canvas").strip() == whole
    page.click("#written .time button")
    assert page.get_attribute("#written .time button", "aria-label") == "Pause"


def test_a_selection_is_rewritten_and_pinned_words_stay(page: Page) -> None:
    before = write(page, "One spring day, [[4]] walked to the [[1]].")
    page.evaluate(
        """() => { const all = [...document.querySelectorAll("#written .token")], range = document.createRange();
        range.setStartBefore(all[4]); range.setEndAfter(all[7]);
        getSelection().removeAllRanges(); getSelection().addRange(range); }"""
    )
    page.click("#again")
    page.wait_for_selector("#export[hidden]", state="attached")
    after = finished(page)
    assert after.split(" walked ")[1] == before.split(" walked ")[1]
    assert after.startswith("One spring day, ")
    page.click("#written .token >> nth=0")
    assert page.locator("#written .token.pinned").count() == 1
    page.fill("#strength", "1")
    page.click("#redraft")
    page.wait_for_selector("#export[hidden]", state="attached")
    assert finished(page).startswith("One ")
    assert page.locator("#written .token.given").count() == 1


def test_it_corrects_and_chooses(page: Page) -> None:
    page.click("#tab-correct")
    page.click("#correct-form button")
    page.wait_for_selector("#corrected ins")
    assert page.locator("#corrected ins").all_inner_texts() == ["spring", "felt", "walked", "the garden"]
    page.click("#tab-choose")
    page.click("#choose-form button")
    page.wait_for_selector("#chosen meter")
    shares = [float(text.removesuffix(" %")) for text in page.locator("#chosen output").all_inner_texts()]
    assert len(shares) == 3
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=0.2)


def test_rivals_write_on_one_clock(page: Page) -> None:
    page.click("#tab-compare")
    page.click("#more")
    page.click("#compare-form .main")
    page.wait_for_function(
        "() => document.querySelectorAll('#race .note').length === 3 && "
        "[...document.querySelectorAll('#race .note')].every(n => n.textContent.includes('calls'))"
    )
    texts = page.locator("#race .text").all_inner_texts()
    assert all(text.startswith("One winter day,") for text in texts)
    page.fill("#race-clock", "0")
    assert page.inner_text("#race-is") == "0.00 s"


def test_noise_by_hand(page: Page) -> None:
    page.click("#tab-noise")
    page.fill("#t", "0")
    assert page.inner_text("#noised") == page.input_value("#clean")
    page.fill("#t", "1")
    assert page.locator("#noised .noise").count() == len(page.input_value("#clean").split())


def test_what_was_written_can_be_taken_along(page: Page, tmp_path: Path) -> None:
    text = write(page, "One winter day,")
    for kind, said in (
        ("python", "redraft.generate("),
        ("curl", "curl http://127.0.0.1"),
        ("shell", "redraft generate"),
    ):
        page.click(f"[data-copy={kind}]")
        assert said in page.inner_text("#command")
    saved = {}
    for kind in ("json", "html", "gif"):
        with page.expect_download() as download:
            page.click(f"[data-save={kind}]")
        saved[kind] = Path(download.value.path()).read_bytes()
    assert json.loads(saved["json"])["record"]["texts"][0]["text"].strip() == text
    assert saved["gif"].startswith(b"GIF89a")
    (tmp_path / "writing.html").write_bytes(saved["html"])
    other = page.context.new_page()
    other.goto((tmp_path / "writing.html").as_uri())
    assert other.inner_text("p").strip() == text
    other.close()


def test_errors_are_told_in_one_line(page: Page) -> None:
    page.fill("#text", "Zebra <img src=x onerror=alert(1)> [[2]]")
    page.click("#go")
    page.wait_for_selector("#written .tip.error")
    assert "does not know" in page.inner_text("#written .tip")
    assert page.locator("#written img").count() == 0


def test_keys_suffice_and_a_phone_is_wide_enough(page: Page) -> None:
    page.focus("#tab-write")
    for name in ("correct", "choose", "compare", "noise", "write"):
        page.keyboard.press("ArrowRight")
        assert page.locator(f"#{name}").is_visible()
        assert page.locator("[role=tabpanel]:visible").count() == 1
    page.focus("#text")
    page.keyboard.press("Control+Enter")
    finished(page)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input, select, textarea')].filter(e => !e.labels.length && !e.ariaLabel).length"
    )
    assert unnamed == 0


def test_text_only_ever_becomes_text() -> None:
    """No script of the page builds HTML from strings, or names another origin."""
    for file in PAGES.glob("*.js"):
        code = file.read_text("utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", code), file.name
    for file in PAGES.iterdir():
        assert not re.search(r"https?://(?!www\.w3\.org)", file.read_text("utf-8")), file.name


def test_html_of_a_model_is_inert(browser: Browser, served: Server) -> None:
    """A server whose model writes tags: they are shown as they are."""
    page = browser.new_page()
    nasty = "<img src=x onerror=document.title='hit'>"
    frame = {"type": "frame", "row": 0, "step": 1, "pieces": [nasty], "given": [False], "confidence": [0.5]}
    done = {
        "type": "done",
        "texts": [{"text": nasty}],
        "nfe": 1,
        "seconds": 1,
        "new_tokens": 1,
        "seed": 0,
        "exactness": "free",
        "cache": "none",
        "notes": [nasty],
    }
    body = "\n".join(map(json.dumps, (frame, done))) + "\n"
    page.route("**/v1/diffusion/trace", lambda route: route.fulfill(body=body, content_type="application/x-ndjson"))
    page.goto(served.url)
    page.wait_for_selector("body[data-ready]")
    page.click("#go")
    finished(page)
    assert nasty in page.inner_text("#written .canvas")
    assert page.locator("#written img").count() == 0
    assert page.title() == "Redraft playground"
    page.close()
