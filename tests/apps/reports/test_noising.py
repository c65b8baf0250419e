"""The forward process as a strip: what is kept, what is hidden, and where it stands; and the strip of writing."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from redraft.apps import noise_text, strip
from redraft.apps.cli import main
from redraft.core import Insertion
from redraft.core.text.tokenizers import MASK_GLYPH
from redraft.models import DiffusionLM
from redraft.training import presets
from redraft.training.runs import variations

SVG = "{http://www.w3.org/2000/svg}"
TEXT = "One spring day, Clara felt bored and walked to the lake."
TIMES = (0.0, 0.3, 0.6, 1.0)


def model(name: str) -> DiffusionLM:
    run = presets.PRESETS[name]()
    return DiffusionLM(run.model, run.tokenizer)


@pytest.mark.parametrize("name", ["mdlm_tiny", "udlm_tiny", "gidd_tiny", "flex_tiny", "d3pm_tiny", "diffusion_lm_tiny"])
def test_a_text_becomes_noise(name: str) -> None:
    found = noise_text(model(name), TEXT, TIMES)
    assert [noisy.t for noisy in found] == list(TIMES)
    assert (found[0].kept, found[0].frame.text) == (1.0, TEXT)
    assert found[0].kept >= found[1].kept >= found[2].kept >= found[3].kept
    assert found[3].kept < 0.2
    assert noise_text(model(name), TEXT, TIMES, seed=1) != found


def test_what_is_hidden_stays_hidden_and_in_its_place() -> None:
    found = noise_text(model("mdlm_tiny"), TEXT, TIMES)
    hidden = [{token.position for token in noisy.frame.tokens if MASK_GLYPH in token.text} for noisy in found]
    assert hidden[0] < hidden[1] < hidden[2] < hidden[3]
    assert [1 - len(places) / 13 for places in hidden] == pytest.approx([noisy.kept for noisy in found])


def test_words_that_are_left_of_an_insertion_keep_their_places() -> None:
    run = presets.flex_tiny()
    together = variations.with_model(
        run, process=Insertion(run.model.vocab)
    )  # where words stand beside what is missing
    clean, noisy = noise_text(DiffusionLM(together.model, together.tokenizer), TEXT, (0.0, 0.5))
    words = {token.position: token.text.strip() for token in clean.frame.tokens}
    left = [token for token in noisy.frame.tokens if token.state == "settled"]
    assert 0 < len(left) < len(words)
    assert all(words[token.position] == token.text.strip() for token in left)
    assert len({token.position for token in noisy.frame.tokens}) < len(words), "some are missing"


def test_latents_are_decoded_whatever_they_say() -> None:
    found = noise_text(model("ld4tg_tiny"), TEXT, TIMES)
    assert all(0 <= noisy.kept <= 1 for noisy in found)


def test_the_strip_begins_with_the_text() -> None:
    drawn = ElementTree.fromstring(strip(noise_text(model("mdlm_tiny"), TEXT, TIMES)))
    first, *_, last = drawn.findall(f"{SVG}g")
    name, *words = ["".join(text.itertext()) for text in first.findall(f"{SVG}text")]
    assert (name, len(words)) == ("t = 0.00", 13)
    assert (len(last.findall(f"{SVG}text")), len(last.findall(f"{SVG}rect"))) == (1, 13)
    assert drawn.attrib["aria-label"] == TEXT


@pytest.mark.parametrize(
    ("text", "times", "message"), [("", (0.5,), "the text is empty"), (TEXT, (2.0,), "every time must be from 0")]
)
def test_wrong_noise_is_refused(text: str, times: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        noise_text(model("mdlm_tiny"), text, times)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "mdlm_tiny"
    few = ["--steps", "2", "--batch", "2", "--eval-rows", "2", "--samples", "1", "--quiet", "--precision", "fp32"]
    main(["train", "mdlm_tiny", *few, "--out", str(out)])
    return out


def test_the_command(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "noise.svg"
    main(["noise", str(trained), TEXT, "--strip", str(file)])
    lines = capsys.readouterr().out.splitlines()
    assert [line[:18] for line in (lines[0], lines[-1])] == ["t 0.00  100% kept ", "t 1.00    0% kept "]
    assert lines[0].endswith(TEXT)
    assert len(lines) == 6
    assert file.read_text("utf-8") == strip(noise_text(model("mdlm_tiny"), TEXT, [i / 5 for i in range(6)]))
    main(["noise", str(trained), "--times", "2", "--json"])
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["t"], first["kept"], last["kept"]) == (0.0, 1.0, 0.0)
    assert first["text"].startswith("One ")


def test_a_text_being_written_is_drawn(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "writing.svg"
    main(["generate", str(trained), "One spring day,", "--new", "6", "--steps", "4", "--strip", str(file)])
    text = capsys.readouterr().out.strip()
    drawn = ElementTree.fromstring(file.read_text("utf-8"))
    assert drawn.attrib["aria-label"].strip() == text
    assert "".join(drawn.findall(f"{SVG}g")[-1][0].itertext()) == "step 4"


WRONG = {
    "no svg": (["--strip", "noise.png"], "--strip noise.png: give the path of an .svg file"),
    "no folder": (["--strip", "nowhere/noise.svg"], "--strip nowhere/noise.svg: give the path"),
    "one time": (["--times", "1"], "--times 1: "),
    "no text": (["  "], "the text given is empty"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_words_end_in_one_line(name: str, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, message = WRONG[name]
    with pytest.raises(SystemExit) as end:
        main(["noise", str(trained), *words])
    assert end.value.code == 2
    said = capsys.readouterr().err.strip()
    assert message in said
    assert len(said.splitlines()) == 1
