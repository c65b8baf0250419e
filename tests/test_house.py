"""The house checks itself: where randomness lives, its sizes and doors, public names: one home, documented."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import redraft

PACKAGE = Path(redraft.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
DRAWS = re.compile(
    r"torch\.(rand|randn|randint|randperm|multinomial|bernoulli|poisson|normal)\w*\("
    r"|\.(multinomial|bernoulli_|exponential_|uniform_|random_)\(|np\.random\.(?!Philox)|^import random|F\.dropout"
)


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_all_draws_are_in_ops(file: Path) -> None:
    """Weights start from torch's seeded generator (`normal_` in the network); everything else draws through ops.Rng."""
    if file.name != "ops.py":
        found = [line for line in file.read_text().splitlines() if DRAWS.search(line)]
        assert found == []


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_no_unsafe_loading(file: Path) -> None:
    unsafe = r"\bimport pickle|torch\.load\((?![^)\n]*weights_only=True)|trust_remote_code\s*=\s*True"
    assert not re.search(unsafe + r"|(?<!\.)\b(eval|exec)\(", file.read_text())


@pytest.mark.parametrize("name", redraft.__all__)
def test_public_names_are_documented_and_annotated(name: str) -> None:
    thing = getattr(redraft, name)
    assert inspect.getdoc(thing)
    if inspect.isfunction(thing):
        assert "return" in thing.__annotations__


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_modules_say_what_they_are(file: Path) -> None:
    text = file.read_text()
    assert not text or ast.get_docstring(ast.parse(text))


MOST_FILES, MOST_LINES, LONGEST_FUNCTION = 8, 450, 50
INNER = {
    "redraft.models.checkpoints.lock": {"LOCK_FILE"},
    "redraft.apps.reports.demo": {"demo"},
}  # a door cannot offer two things named demo


def test_few_files_lie_beside_the_rooms() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= MOST_FILES


def test_no_file_is_too_long() -> None:
    """No file of data is longer either; if one must be, it is named here."""
    assert [str(f.relative_to(PACKAGE)) for f in FILES if len(f.read_text().splitlines()) > MOST_LINES] == []


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_no_function_is_too_long(file: Path) -> None:
    functions = (n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.FunctionDef))
    assert [f.name for f in functions if (f.end_lineno or 0) - f.lineno + 1 > LONGEST_FUNCTION] == []


def past_the_door(code: str, room: str) -> list[str]:
    """What a file of some room imports from inside another room, not from its door; private names may."""
    found: list[str] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module or "", alias.name) for alias in node.names]
        else:
            continue
        inside = [(m, n) for m, n in names if m.startswith("redraft.") and m.count(".") > 1 and m.split(".")[1] != room]
        found += [f"{m}: {n}" for m, n in inside if not n.startswith("_") and n not in INNER.get(m, set())]
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_rooms_are_entered_by_their_doors(file: Path) -> None:
    assert past_the_door(file.read_text(), file.relative_to(PACKAGE).parts[0]) == []


def test_a_way_past_the_door_is_noticed() -> None:
    code = "from redraft.training.runs import load\nfrom redraft.training.runs.run import load, _described\nimport redraft.training.runs.run\n"
    assert past_the_door(code, "cli") == ["redraft.training.runs.run: load", "redraft.training.runs.run: "]
    assert past_the_door(code, "runs") == []


SHARED = {"laws", "built_in", "main"}  # every kind of law offers the first two (laws/proof), every program a main


def homes(files: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Public names that several files define, and these files; `files` are paths and their code."""
    found: dict[str, set[str]] = defaultdict(set)
    for path, code in files:
        for node in ast.parse(code).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found[node.name].add(path)
            for target in getattr(node, "targets", [getattr(node, "target", None)]):
                for name in ast.walk(target) if isinstance(target, ast.Name | ast.Tuple) else ():
                    if isinstance(name, ast.Name):
                        found[name.id].add(path)
    return {name: sorted(paths) for name, paths in found.items() if len(paths) > 1 and name[0] != "_"}


def test_a_public_name_has_one_home() -> None:
    found = homes([(str(f.relative_to(PACKAGE)), f.read_text()) for f in FILES])
    assert {name: paths for name, paths in found.items() if name not in SHARED} == {}


def test_a_second_home_is_noticed() -> None:
    code = "class Row: ...\nA, B = 1, 2\nX: int = 3\ndef f(): g = 1\n_T = 0\nif A:\n    g = 2\n"
    assert homes([("a.py", code), ("b.py", code), ("c.py", "g = 1")]) == {
        name: ["a.py", "b.py"] for name in ("Row", "A", "B", "X", "f")
    }


def in_tree(page: str) -> dict[str, set[str]]:
    """The words that the tree of docs/design.md has for each room."""
    tree = page[page.index("redraft/\n  types.py") : page.index("*One fact, one field.*")]
    found: dict[str, set[str]] = {}
    for line in tree.splitlines()[1:]:
        if begin := re.match(r" +(\w+)/ ", line):
            room = begin[1]
        if "/" in line or line.startswith("      "):
            found.setdefault(room, set()).update(re.findall(r"\w+", line))
    return found


def test_the_tree_of_the_design_names_every_file() -> None:
    tree = in_tree((PACKAGE.parent / "docs" / "design.md").read_text())
    missing = [f for f in FILES if f.parent != PACKAGE and f.stem[0] != "_" and f.stem not in tree[f.parent.name]]
    assert [str(f.relative_to(PACKAGE)) for f in missing] == []


BANNER = re.compile(r"^ *#.*(-{4,}|={4,}|#{4,})", re.MULTILINE)


def test_section_banners_have_one_style() -> None:
    """`# --- a few words ---`"""
    assert [str(f.relative_to(PACKAGE)) for f in FILES if BANNER.search(f.read_text())] == []


def test_help_needs_no_torch() -> None:
    code = "import sys, redraft.apps.cli\ntry:\n redraft.apps.cli.main()\nexcept SystemExit: pass\nassert 'torch' not in sys.modules"
    result = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "check" in result.stdout


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = redraft.Nothing
