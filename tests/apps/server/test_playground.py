"""The playground in Chromium, against a real server with the model that comes with the package."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Page, Route, sync_playwright

from redraft.apps.cli import main
from redraft.decoding.registry import SAMPLER_NAMES, SOLVER_NAMES
from redraft.models.shipped import STORY, shipped_folder
from tests.apps.server.served import Server, serving

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="NO CHROMIUM: the playground was not tested")
PAGES = Path(__file__).parents[3] / "redraft" / "apps" / "server" / "playground"
TABS = ("write", "correct", "choose", "structured", "compare", "noise")


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
    found.on(
        "console",
        lambda said: wrong.append(said.text) if said.type == "error" and "load resource" not in said.text else None,
    )
    found.on("request", lambda r: None if r.url.startswith((served.url, "blob:")) else outside.append(r.url))
    found.goto(served.url)
    found.wait_for_selector("body[data-ready]")
    yield found
    context.close()
    assert (wrong, outside) == ([], [])


def write(page: Page, text: str) -> str:
    page.fill("#text", text)
    page.fill("#steps", "12")
    page.click("#go")
    return finished(page)


def finished(page: Page) -> str:
    """The text, once it is there."""
    page.wait_for_selector("#written[aria-busy=false]", timeout=60_000)
    page.wait_for_selector("#redraft:enabled")
    return page.inner_text("#written .canvas").strip()


def test_it_writes_and_fills_holes(page: Page) -> None:
    assert write(page, "One winter day,").startswith("One winter day,")
    text = write(page, "One spring day, [[4]] walked to the [[1]].")
    assert re.fullmatch(r"One spring day, .+ walked to the .+\.", text)
    assert page.locator("#written .token.given").count() == 8
    assert text in page.inner_text("#announcer")
    numbers = page.inner_text("#written .numbers")
    assert re.search(r"network calls|tokens per second|× autoregressive", numbers)


def test_a_token_tells_when_it_was_written_and_what_else_was_likely(page: Page) -> None:
    page.select_option("#sampler", "confidence")
    write(page, "One spring day, [[4]] walked to the [[1]].")
    token = page.locator("#written .token:not(.given)").first
    token.hover()
    tip = page.locator("#written .tip")
    assert re.search(r"written at step \d+, confidence [\d.]+ %", tip.inner_text())
    shares = [float(text.removesuffix(" %")) for text in tip.locator(".share").all_inner_texts()]
    assert len(shares) == 5
    assert shares == sorted(shares, reverse=True)
    assert tip.locator(".chosen").inner_text() == token.inner_text()
    page.keyboard.press("Escape")
    page.hover("#written .numbers")
    assert page.locator("#written path.entropy").get_attribute("d")


def test_time_can_be_scrubbed(page: Page) -> None:
    whole = write(page, "One winter day,")
    slider = page.locator("#written input[type=range]")
    slider.fill("0")
    assert page.locator("#written .token.noise").count() > 20
    assert page.inner_text("#written .time output").startswith("step 0 of 12")
    before = page.locator("#written .paper").bounding_box()
    slider.fill(slider.get_attribute("max") or "")
    assert page.inner_text("#written .canvas").strip() == whole
    after = page.locator("#written .paper").bounding_box()
    assert before is not None
    assert after is not None
    assert abs(after["height"] - before["height"]) < 45  # hidden words are as wide as they will be: a line at most
    play = page.locator("#written .time button")
    play.click()
    assert play.get_attribute("aria-label") == "Pause"


def test_a_selection_is_rewritten(page: Page) -> None:
    before = write(page, "One spring day, [[4]] walked to the [[1]].")
    assert page.locator("#again").is_disabled()
    page.evaluate(
        """() => { const all = [...document.querySelectorAll("#written .token")], range = document.createRange();
        range.setStartBefore(all[4]); range.setEndAfter(all[7]);
        getSelection().removeAllRanges(); getSelection().addRange(range); }"""
    )
    page.click("#again:enabled")
    after = finished(page)
    assert after.split(" walked ")[1] == before.split(" walked ")[1]
    assert after.startswith("One spring day, ")
    assert page.locator("#written .token.given").count() == len(re.findall(r"\w+|[.,]", before)) - 4


def test_a_text_of_ones_own_is_edited_in_place_and_pinned_words_stay(page: Page) -> None:
    mine = "One spring day, Anna felt sad and walked to the garden."
    page.fill("#text", mine)
    page.click("#edit-it")
    assert finished(page) == mine
    page.click("#written .token:text-is('Anna')")
    assert page.inner_text("#pins") == "Pinned: Anna."
    page.fill("#strength", "1")
    with page.expect_request("**/trace") as sent:
        page.click("#redraft")
    asked = sent.value.post_data_json["diffusion"]
    assert (asked["start_text"], asked["strength"], asked["pinned"]) == (mine, 1, ["Anna"])
    text = finished(page)
    assert text != mine
    assert text.split()[3] == "Anna"


def test_wishes_and_rules(page: Page) -> None:
    page.fill("#text", "")
    page.click("#control summary")
    page.select_option("#attributes select[name=mood]", "sad")
    page.fill("#required", "kite")
    page.fill("#steps", "8")
    page.click("#go")
    text = finished(page)
    assert " sad" in text
    assert "kite" in text
    assert "constraints hold" in page.inner_text("#written .numbers")
    page.fill("#guidance", "2")
    assert page.inner_text("#guidance-is") == "2.0"


def test_it_corrects_and_chooses(page: Page) -> None:
    page.click("#tab-correct")
    page.click("#correct-form .main")
    page.wait_for_selector("#corrected .shares")
    assert page.locator("#corrected .text ins").all_inner_texts() == ["spring", "felt", "walked", "the garden"]
    page.click("#tab-choose")
    page.click("#choose-form .main")
    page.wait_for_selector("#chosen .shares")
    shares = [float(text.removesuffix(" %")) for text in page.locator("#chosen .share").all_inner_texts()]
    assert len(shares) == 3
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=0.2)


def verdicts(page: Page) -> tuple[str, str]:
    """What the page says about the text with the rule and the one without it."""
    page.wait_for_selector("#ruled .verdict, #ruled .error")
    page.wait_for_selector("#unruled .verdict, #unruled .error")
    return page.inner_text("#ruled p:last-child"), page.inner_text("#unruled p:last-child")


def test_a_rule_is_obeyed_and_a_text_without_it_breaks_it(page: Page) -> None:
    page.click("#tab-structured")
    page.click("#structured-form .main")
    assert verdicts(page) == ("✓ Obeys the rule.", "✗ Breaks the rule: it does not match the pattern.")
    assert re.fullmatch(page.input_value("#rule"), page.inner_text("#ruled .text"))
    page.fill("#rule-prompt", "One winter day,")
    page.fill("#rule", '{"enum": [1')
    page.click("#structured-form .main")
    assert "The schema is not JSON" in page.inner_text("#ruled .error")
    page.fill("#rule", '{"type": "object"}')
    page.click("#structured-form .main")
    page.wait_for_selector("#ruled .error:has-text('vocabulary')")
    assert verdicts(page)[1] == "✗ Breaks the rule: it is not JSON."


def test_examples_make_sense_for_the_model(browser: Browser, served: Server) -> None:
    """The examples follow the chosen model; typed text stays."""
    context = browser.new_context()
    page = context.new_page()

    def three(route: Route) -> None:
        (story,) = json.loads(route.fetch().text())["data"]
        english = {**story, "id": "english", "diffusion": {**story["diffusion"], "attributes": {}, "length": None}}
        own = {**story, "id": "own", "diffusion": {**story["diffusion"], "attributes": {}}}
        route.fulfill(json={"data": [english, story, own]})

    page.route("**/v1/models", three)
    page.goto(served.url)
    page.wait_for_selector("body[data-ready]")
    assert page.input_value("#text") == "She opened the [[1]] and left."
    assert page.input_value("#wrong") == "I relly like teh weather tody."
    assert json.loads(page.input_value("#rule"))["type"] == "object"
    page.click("#tab-choose")
    page.fill("#question", "Is it [[?]]?")
    page.select_option("#model", "story")
    assert page.input_value("#text") == "One winter day,"
    assert "The end first" in page.inner_text("#examples")
    page.select_option("#model", "own")
    assert page.input_value("#text") == ""
    assert page.input_value("#question") == "Is it [[?]]?"
    assert "Anna" not in page.inner_text("#examples") + page.input_value("#rule") + page.input_value("#wrong")
    context.close()


def test_rivals_write_on_one_clock(page: Page) -> None:
    page.click("#tab-compare")
    page.click("#more")
    page.locator("#rivals .rival").nth(1).locator("button").click()
    for steps in page.locator("#rivals input").all():
        steps.fill("6")
    page.click("#compare-form .main")
    page.wait_for_function(
        "() => document.querySelectorAll('#race .note').length === 2 && "
        "[...document.querySelectorAll('#race .note')].every(n => n.textContent.includes('calls'))"
    )
    texts = page.locator("#race .text").all_inner_texts()
    assert all(text.startswith("One winter day,") for text in texts)
    page.fill("#race-clock", "0")
    assert page.inner_text("#race-is") == "0.00 s"
    assert page.locator("#race .token:not(.noise):not(.given)").count() == 0


def test_noise_by_hand_and_undone(page: Page) -> None:
    page.click("#tab-noise")
    clean = page.input_value("#clean")
    page.fill("#t", "0")
    page.wait_for_function("clean => document.getElementById('noised').textContent === clean", arg=clean)
    page.fill("#t", "1")
    page.wait_for_selector("#noised .noise")
    page.wait_for_function("() => !document.querySelector('#noised .token:not(.noise)')")
    page.fill("#t", "0.3")
    page.click("#undo")
    page.wait_for_selector("#undone .numbers >> text=network calls")
    page.select_option("#kind", "typo")
    page.fill("#t", "1")
    assert page.locator("#noised .replaced").count() > 10
    assert page.locator("#undo").is_disabled()


def test_what_was_written_can_be_taken_along(page: Page, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = write(page, "One winter day,")
    commands = {}
    for kind in ("python", "curl", "shell"):
        page.click(f"[data-copy={kind}]")
        commands[kind] = page.inner_text("#command")
    assert main(shlex.split(commands["shell"])[1:]) in (0, None)
    assert text in " ".join(capsys.readouterr().out.split())
    exec(commands["python"], {})
    assert capsys.readouterr().out.strip() == text
    answered = json.loads(subprocess.check_output([*shlex.split(commands["curl"]), "--silent"]))
    assert text.endswith(answered["choices"][0]["text"].strip())
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
    other.fill("input", "0")
    assert other.locator("span.noise").count() > 20
    other.close()


def test_errors_are_told_in_one_line(page: Page, served: Server) -> None:
    page.fill("#text", "Zebra <img src=x onerror=alert(1)> [[2]]")
    page.click("#go")
    page.wait_for_selector("#written .message.error")
    assert "does not know" in page.inner_text("#written .message")
    assert page.locator("#written img").count() == 0
    busy: list[int] = []

    def once(route: Route) -> None:
        busy.append(1)
        if len(busy) > 1:
            route.continue_()
        else:
            route.fulfill(status=429, headers={"Retry-After": "1"}, json={"error": {"message": "busy"}})

    page.route("**/v1/diffusion/trace", once)
    page.fill("#text", "One winter day,")
    page.click("#go")
    page.wait_for_selector("#written .message >> text=busy")
    finished(page)
    page.unroute("**/v1/diffusion/trace")
    page.route("**/v1/**", lambda route: route.abort())
    page.click("#tab-choose")
    page.click("#choose-form .main")
    page.wait_for_selector("#chosen .error")
    assert page.inner_text("#chosen") == "The server does not respond. Is redraft still running?"


def test_keys_suffice(page: Page) -> None:
    page.focus("#tab-write")
    for name in (*TABS[1:], TABS[0]):
        page.keyboard.press("ArrowRight")
        assert page.locator(f"#{name}").is_visible()
        assert page.locator("[role=tabpanel]:visible").count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "text"
    page.keyboard.press("Control+a")
    page.keyboard.type("One spring day, [[4]] walked to the [[1]].")
    page.keyboard.press("Control+Enter")
    before = finished(page)
    page.focus("#written .token[tabindex='0']")
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight", "Shift+ArrowRight"):
        page.keyboard.press(key)
    assert page.locator("#written .tip").is_visible()
    assert page.locator("#written .token.marked").count() == 2
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    assert page.locator("#written .token.pinned").count() == 1
    page.focus("#again")
    page.keyboard.press("Enter")
    after = finished(page)
    assert after.split()[:3] == before.split()[:3]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_is_wide_enough_and_everything_has_a_name(browser: Browser, served: Server, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(served.url)
    page.wait_for_selector("body[data-ready]")
    for name in TABS:
        page.click(f"#tab-{name}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        box = page.locator(f"#tab-{name}").bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390, "every tab can be seen"
    unnamed = page.evaluate(
        """[...document.querySelectorAll("input, select, textarea, button, [role=img]")].filter(e =>
        !(e.labels && e.labels.length) && !e.ariaLabel && !e.textContent.trim()).map(e => e.outerHTML)"""
    )
    assert unnamed == []
    assert lowest_contrast(page) >= 4.5
    context.close()


def lowest_contrast(page: Page) -> float:
    """Of the colors that text has, on paper and on cards (WCAG)."""
    texts, grounds = ("ink", "quiet", "first", "second", "third", "wrong", "given"), ("paper", "card")
    script = "name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()"
    light = {name: luminance(page.evaluate(script, name)) for name in (*texts, *grounds, "on-first")}
    pairs = [*((text, ground) for text in texts for ground in grounds), ("on-first", "first")]
    ordered = (sorted((light[a], light[b])) for a, b in pairs)
    return min((bright + 0.05) / (dark + 0.05) for dark, bright in ordered)


def luminance(color: str) -> float:
    shares = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in shares)
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_inserted_tokens_are_told_from_those_that_moved(page: Page) -> None:
    found = page.evaluate(
        """async () => { const { seen } = await import("/frames.js"), frame = (step, pieces) => (
        { step, pieces, given: pieces.map((piece) => piece === "One") });
        const first = seen(frame(0, ["One", " day", "."]), null, true);
        const { tokens } = seen(frame(4, ["One", " cold", " day", null, "."]), first, true);
        return tokens.map(({ look, inserted }) => [look, inserted]); }"""
    )
    assert found == [["given", False], ["new", True], ["settled", False], ["noise", True], ["settled", False]]


def test_text_only_ever_becomes_text() -> None:
    """No script of the page builds HTML from strings, or names another origin; it knows the samplers that there are."""
    for file in PAGES.glob("*.js"):
        code = file.read_text("utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", code), file.name
    for file in PAGES.iterdir():
        assert not re.search(r"https?://(?!www\.w3\.org)", file.read_text("utf-8")), file.name
    names = re.search(r"SAMPLERS = (\[.*?\]);", (PAGES / "main.js").read_text("utf-8"))
    assert names is not None
    assert sorted(json.loads(names[1])) == sorted(["own", *SAMPLER_NAMES, *SOLVER_NAMES])


def test_html_of_a_model_is_inert(browser: Browser, served: Server) -> None:
    """A server whose model writes tags: they are shown as they are, and the policy would stop their scripts."""
    with urlopen(served.url) as found:
        assert found.headers["Content-Security-Policy"] == "default-src 'self'; frame-ancestors 'none'"
    page = browser.new_page()
    nasty = "<img src=x onerror=document.title='hit'>"
    frame = {"type": "frame", "row": 0, "step": 1, "pieces": [nasty], "given": [False], "confidence": [0.5]}
    told = {"alternatives": [{"at": 0, "top": [[nasty, 0.5]], "entropy": 1.0}]}
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
    body = "\n".join(map(json.dumps, (frame | told, done))) + "\n"
    page.route("**/v1/diffusion/trace", lambda route: route.fulfill(body=body, content_type="application/x-ndjson"))
    page.goto(served.url)
    page.wait_for_selector("body[data-ready]")
    page.click("#go")
    finished(page)
    page.hover("#written .token")
    assert nasty in page.inner_text("#written .tip li")
    assert nasty in page.inner_text("#written .canvas")
    assert page.locator("#written img").count() == 0
    assert page.title() == "Redraft playground"
    page.close()
