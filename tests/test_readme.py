"""Every command and every Python block of the README and the guides runs as it stands.

Nothing stands in for anything: where a command takes minutes, its own public flags shorten it, and the demo measures
few stories. All but the first are run within this process, where torch is loaded already.
"""

from __future__ import annotations

import doctest
import fcntl
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import pytest
from conftest import redraft_here

from redraft.apps.reports import findings
from redraft.core import split_words, train_bpe
from redraft.training import STORY_LANGUAGE
from redraft.training.data.corpora.grammar import (
    _Alternatives,
    _Option,
    _PartialStory,
    _Phrase,
    _Traversal,
)

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
MAKE = ("make", "--no-print-directory", "-n")  # make names its directory when another make has called it
SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
PYCON = re.compile(r"^```pycon\n(.*?)^```", re.DOTALL | re.MULTILINE)
PROOFS = ("redraft check", "redraft check examples/typo.py")
PAGES = [README, *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "templates")]
PLACES = ("docs", "guides", "results")  # pages of concepts and methods show commands that train for minutes
GUIDES = [page for page in PAGES[1:] if page.parent.name in PLACES and SHELL.search(page.read_text("utf-8"))]

SMALL_NETWORK = ["--model.network.width", "16", "--model.network.layers", "1", "--model.network.heads", "2"]
SMALL = {
    "levels": ["--levels", "3", "--rows", "4"],
    "demo": ["--minutes", "0.002"],
    "train": [*SMALL_NETWORK, "--steps", "2", "--batch", "2", "--eval-rows", "2", "--samples", "1", "--quiet"],
    "generate": ["--steps", "4", "--new", "12"],
    "infill": ["--steps", "4"],
    "rewrite": ["--steps", "4"],
    "control": ["--steps", "4"],
    "choose": [],
    "correct": [],
    "audit": ["--rows", "20000", "--resolution", "0.5"],
    "eval": ["--rows", "2", "--draws", "1", "--samples", "1"],
    "compare": [
        "--steps",
        "1",
        "--seeds",
        "1",
        "--rows",
        "2",
        "--draws",
        "1",
        "--samples",
        "1",
        "--write-steps",
        "2",
        "--quiet",
    ],
    "picture": [],
    "probe": ["--train", "8", "--test", "8"],
    "show": [],
    "report": ["--rows", "2", "--draws", "1", "--samples", "1"],
    "doctor": [],
    "import": [],
    "export": [],
}


def commands(page: Path) -> list[str]:
    return [line for block in SHELL.findall(page.read_text("utf-8")) for line in block.splitlines() if line]


(TORCHRUN,) = (line for line in commands(README) if line.startswith("torchrun"))


def run(words: list[str], where: Path) -> subprocess.CompletedProcess[str]:
    """A program of this environment, as its user would start it."""
    program = Path(sys.executable).parent / words[0]
    found = subprocess.run([program, *words[1:]], cwd=where, capture_output=True, text=True, timeout=560)
    assert found.returncode == 0, f"{shlex.join(words)}\n{found.stdout}\n{found.stderr}"
    return found


def assert_runs(words: list[str], where: Path) -> str:
    """A command as its user would give it, within this process; what it prints."""
    found = redraft_here(*words[1:], where=where)
    assert found.returncode == 0, f"{shlex.join(words)}\n{found.stdout}\n{found.stderr}"
    return found.stdout


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that `make demo` leaves after a few steps; made once, whichever worker comes first."""
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "demo"
    place.mkdir(exist_ok=True)
    recipe = subprocess.run([*MAKE, "demo"], cwd=ROOT, check=True, capture_output=True, text=True)
    program, *words = shlex.split(recipe.stdout.splitlines()[-1])
    assert program.endswith("/redraft"), recipe.stdout
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "runs" / "demo" / "report.html").exists():
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(findings, "_HELD_OUT", 4)
                patch.setattr(findings, "_WRITTEN", 4)
                assert_runs(["redraft", *words, *SMALL["demo"]], place)
    return place


@pytest.fixture
def home(demo: Path, tmp_path: Path, published: Callable[..., None]) -> Path:
    """A directory with all that a reader is told to have: the demo's run, published models, texts, a tokenizer."""
    published(tmp_path / "models" / "mdlm")
    published(tmp_path / "models" / "llama", "llama")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shutil.copytree(demo / "runs", tmp_path / "runs")
    texts = [f"It was the {number}th day of a long and windy year." for number in range(200)]
    (tmp_path / "my_texts").mkdir()
    (tmp_path / "my_texts" / "days.txt").write_text("\n\n".join(texts))
    (tmp_path / "tokenizer.json").write_text(train_bpe(texts, 300).definition)
    return tmp_path


def small(words: list[str]) -> list[str]:
    """A command with little to do; a comparison has one budget, so that its minutes go."""
    budget = words.index("--minutes") if words[1] == "compare" and "--minutes" in words else len(words)
    few = SMALL[words[1]]
    return [*words[:budget], *words[budget + 2 :], *(few[:2] if "--schema" in words else few)]  # JSON needs its room


def assert_told(words: list[str], out: str) -> None:
    assert out.strip(), f"{words} says nothing"
    if "--schema" in words:
        schema = json.loads((ROOT / words[words.index("--schema") + 1]).read_text("utf-8"))
        checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        assert [checker.is_valid(json.loads(line)) for line in out.splitlines()] == [True] * 5
    if words[1] == "infill":
        given = [part.strip() for part in re.split(r"\[\[.*?\]\]", next(word for word in words if "[[" in word))]
        for text in [json.loads(line)["text"] for line in out.splitlines()] if "--json" in words else out.splitlines():
            assert re.fullmatch(".*".join(map(re.escape, given)), text.strip()), "what is given stays"


def test_the_readme_is_short() -> None:
    """The first result stands within 60 words, and every line is readable where it is not rendered."""
    text = README.read_text("utf-8")
    lines = text.splitlines()
    assert len(lines) <= 90
    assert len(text.split()) <= 700
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []
    before = text.partition("```console")[0]
    assert len(SHELL.sub("", before).split()) <= 60


def test_readme_prints_what_it_shows(tmp_path: Path) -> None:
    """Three lines of shell, then three of Python: what follows each is what it prints."""
    text = README.read_text("utf-8")
    (shown,) = CONSOLE.findall(text)
    commands = re.findall(r"^\$ (redraft .*)\n((?:[^$\n].*\n)+)", shown, re.MULTILINE)
    assert len(commands) == 3
    assert sum(map(len, map("".join, commands))) + 3 * len("$ \n") == len(shown), "nothing else is shown"
    for command, printed in commands:
        assert assert_runs(shlex.split(command), tmp_path) == printed
    (python,) = PYCON.findall(text)
    session = doctest.DocTestParser().get_examples(python)
    assert len(session) == 3
    test = doctest.DocTest(session, {}, "README.md", str(README), 0, None)
    assert doctest.DocTestRunner().run(test) == (0, 3)


def test_commands_run(home: Path) -> None:
    """The README's: the first is a process of its own, as a user starts it."""
    asked = [words for words in map(shlex.split, commands(README)) if words[0] == "redraft"]
    found = run(small(asked[0]), home)
    assert "Traceback" not in found.stderr
    assert_told(asked[0], found.stdout)
    for words in asked[1:]:
        assert_told(words, assert_runs(small(words), home))


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_commands_of_guides_run(page: Path, home: Path) -> None:
    for words in filter(_runs_here, map(shlex.split, commands(page))):
        assert_told(words, assert_runs(small(words), home))


def _runs_here(words: list[str]) -> bool:
    """Not what another test runs."""
    if words[0] == "python":
        assert words[1].startswith("recipes/"), "tests/recipes/test_recipes.py runs recipes"
    elif words[0] in ("pip", "hf", "docker"):
        pass  # they need a network or a daemon; tests/test_install.py and test_packaging.py hold them against the files
    elif words[0] != "redraft":
        assert shlex.join(words) == TORCHRUN, f"teach this test {words}"
    elif words[1] == "check":
        assert shlex.join(words) in PROOFS
    else:
        return True
    return False


@pytest.mark.parametrize("command", PROOFS)
def test_the_proof_holds(command: str) -> None:
    """All laws, whole and as they are: this is what the README calls the proof."""
    laws = assert_runs(shlex.split(command), ROOT).splitlines()
    said = re.findall(r"checks (\d+) laws", README.read_text("utf-8"))
    assert len(laws) >= 20 if "examples/" in command else [str(len(laws))] == said
    assert [law for law in laws if not law.startswith("ok  ")] == []
    exact = [map(float, found) for law in laws for found in re.findall(r"± (\S+), integrated to (\S+)", law)]
    assert len(exact) >= 7
    assert max(error / tolerance for tolerance, error in exact) < 0.2


def test_the_proofs_are_named() -> None:
    """The README says how many laws there are; a guide shows how to check a process of one's own."""
    assert f"`{PROOFS[0]}`" in README.read_text("utf-8")
    assert PROOFS[1] in commands(ROOT / "docs" / "guides" / "extend.md")


def test_many_workers_run(home: Path) -> None:
    """The line for many GPUs, with two workers of one thread each, on text that needs no network."""
    words = TORCHRUN.split()
    assert words[:4] == ["torchrun", "--standalone", "--nproc-per-node", "8"]
    small = [*SMALL["train"], "--data", "my_texts/days.txt", "--length", "16"]
    found = run([*words[:3], "2", *words[4:], *small], home)
    assert [line.count("bits per character") for line in found.stdout.splitlines()] == [1], "the first worker reports"


def test_commands_are_found() -> None:
    assert {" ".join(words.split()[:2]) for words in commands(README)} == {
        *("pip install", "redraft train", "redraft generate", "torchrun --standalone")
    }
    assert len(GUIDES) >= 4


def test_targets_are_there() -> None:
    """What the README says `make` can do; `make test` checks what it says, and runs this."""
    named = set(re.findall(r"`make ([\w-]+)`", README.read_text("utf-8")))
    assert named == {"demo", "test"}
    for target in named:
        subprocess.run([*MAKE, target], cwd=ROOT, check=True, capture_output=True)
    recipe = subprocess.run([*MAKE, "test"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert all(tool in recipe for tool in ("ruff check", "ruff format --check", "lint-imports", "mypy", "pytest"))


# --- the templates that are printed ---


class Fits(_Traversal):
    """Looks for a story that begins with a template; None is a hole of one word."""

    def __init__(self, template: list[str | None]) -> None:
        self.template, self.found = template, False

    def options(self, choice: _Alternatives) -> tuple[_Option, ...]:
        return choice.options

    def accepts(self, told: _PartialStory, words: _Phrase) -> bool:
        asked = self.template[len(told.words) :]
        fits = all(ask in (None, word) for ask, word in zip(asked, words, strict=False))
        self.found = self.found or (fits and len(words) >= len(asked))
        return fits and not self.found


def can_be_filled(template: str) -> bool:
    return any(_fits(variant) for variant in _variants(template))


def _variants(template: str) -> Iterator[list[str | None]]:
    """Holes of any length have from one to a dozen words; so have holes with answers to choose from."""
    template = template.replace("[[?]]", "[[*]]")
    if found := re.search(r"\[\[(?:\*|(\d+)-(\d+))\]\]", template):
        for size in range(int(found[1] or 1), int(found[2] or 12) + 1):
            yield from _variants(template[: found.start()] + f"[[{size}]]" + template[found.end() :])
        return
    words: list[str | None] = []
    for i, part in enumerate(re.split(r"\[\[(\d+)\]\]", template)):
        words += [None] * int(part) if i % 2 else split_words(part)
    yield words


def _fits(template: list[str | None]) -> bool:
    guide = Fits(template)
    STORY_LANGUAGE.tale.expand(_PartialStory(), guide)
    return guide.found


def test_holes_of_stories_can_be_filled() -> None:
    """Every template of README and pages that begins as a story does: as many words as its holes have do fit."""
    printed = [
        (page.name, template)
        for page in PAGES
        for template in re.findall(r'"(One [^"\n]*\[\[[^"\n]*)"', page.read_text("utf-8"))
    ]
    assert len(printed) >= 6
    assert [where for where in printed if not can_be_filled(where[1])] == []
    assert not can_be_filled("One spring day, [[2]] walked to the [[1]]."), "a name and a verb are not enough"
