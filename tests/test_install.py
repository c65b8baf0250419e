"""What the pages say about installing and downloading agrees with the files: these commands need a network."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands(program: str) -> list[list[str]]:
    """All lines of all pages that call a program."""
    blocks = (block for page in PAGES for block in SHELL.findall(page.read_text("utf-8")))
    return [shlex.split(line) for block in blocks for line in block.splitlines() if line.startswith(f"{program} ")]


def test_pip_installs_torch_first_and_pinned() -> None:
    (pin,) = (line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    first, *rest = commands("pip")
    assert first == ["pip", "install", pin]
    for command in rest:
        assert command[:2] == ["pip", "install"]
        if command[2] != pin:
            assert command[2:4] == ["--constraint", "constraints.txt"], "else pip may take another torch"
            assert re.fullmatch(r"\.(\[[\w,]+\])?", command[-1]), "from a checkout"


def test_extras_that_are_named_exist() -> None:
    named = {
        extra for words in commands("pip") for found in re.findall(r"\[(.*)\]", words[-1]) for extra in found.split(",")
    }
    assert named <= EXTRAS.keys()
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    table = dict(re.findall(r"^\| `(\w+)` \| (\S+?),? ", page, re.MULTILINE))
    assert table.keys() == EXTRAS.keys(), "every extra has a line in the table"
    for extra, package in table.items():
        assert any(need.startswith(package) for need in EXTRAS[extra]), f"{extra} brings no {package}"


def test_what_is_downloaded_is_what_the_page_loads() -> None:
    page = (ROOT / "docs" / "guides" / "published-models.md").read_text("utf-8")
    for command in commands("hf"):
        assert command[:2] == ["hf", "download"]
        assert command[-2] == "--local-dir"
        assert f'redraft.load("{command[-1]}")' in page
    repositories = [command[2] for command in commands("hf") if "/" in command[2]]
    assert repositories
    assert all(f"`{name}` |" in page for name in repositories)
