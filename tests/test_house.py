"""The house checks itself: where randomness lives, its storeys and doors, public names: one home, documented."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import redraft

PACKAGE = Path(redraft.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
STOREYS = ("core", "models", "decoding", "training", "tasks", "evaluation", "apps")
MOST_ENTRIES, MOST_FILES, MOST_NAMES, LONGEST_FUNCTION = 9, 14, 60, 50


def matching(pattern: str, *, besides: str = "") -> list[str]:
    """Lines of the package that match a pattern, but for those of one file."""
    found = re.compile(pattern)
    files = [file for file in FILES if str(file.relative_to(PACKAGE)) != besides]
    lines = ((file, line) for file in files for line in file.read_text().splitlines())
    return [f"{file.relative_to(PACKAGE)}: {line}" for file, line in lines if found.search(line)]


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_all_draws_are_in_one_file() -> None:
    """Weights start from torch's seeded generator (`normal_` in the network); everything else draws through an Rng."""
    draws = (
        r"torch\.(rand|randn|randint|randperm|multinomial|bernoulli|poisson|normal)\w*\("
        r"|\.(multinomial|bernoulli_|exponential_|uniform_|random_)\(|np\.random\.(?!Philox)|^import random|F\.dropout"
    )
    assert matching(draws, besides="core/ops.py") == []
    assert all("dropout" in line for line in matching(draws)), "ops has dropout alone, which torch seeds"


def test_one_file_calls_attention_kernels_and_nobody_changes_a_network_from_outside() -> None:
    kernel = r"scaled_dot_product_attention\(|flex_attention\(\w|softmax\(.*\) @ "
    assert matching(kernel, besides="models/networks/attention.py") == []
    assert matching(kernel) != []
    assert matching(r"\bnetwork\.\w+(\.\w+)* (=|\+=) ") == []
    assert len((PACKAGE / "models/networks/transformer.py").read_text().splitlines()) <= 250


def test_no_unsafe_loading() -> None:
    unsafe = r"\bimport pickle|torch\.load\((?![^)\n]*weights_only=True)|trust_remote_code\s*=\s*True"
    assert matching(unsafe + r"|(?<!\.)\b(eval|exec)\(") == []


def test_public_names_are_documented_and_annotated() -> None:
    things = {name: getattr(redraft, name) for name in redraft.__all__}
    assert [name for name, thing in things.items() if not inspect.getdoc(thing)] == []
    unannotated = (n for n, f in things.items() if inspect.isfunction(f) and "return" not in f.__annotations__)
    assert list(unannotated) == []


def test_modules_say_what_they_are() -> None:
    assert [f for f in FILES if not ast.get_docstring(ast.parse(f.read_text()))] == []


def test_the_tree_can_be_held_in_the_head() -> None:
    entries = [e.name for e in PACKAGE.iterdir() if e.name not in ("__pycache__", ".mypy_cache")]
    assert len(entries) <= MOST_ENTRIES, entries
    assert {e for e in entries if (PACKAGE / e).is_dir()} == set(STOREYS)
    folders = {file.parent for file in FILES}
    assert [str(f) for f in folders if len(list(f.glob("*.py"))) > MOST_FILES] == []
    assert [storey for storey in STOREYS if not (PACKAGE / storey / "README.md").is_file()] == []


def test_no_function_is_too_long() -> None:
    long = (f.name for file in FILES for f in functions(ast.parse(file.read_text())) if f.end_lineno - f.lineno >= 50)
    assert list(long) == []


# --- objects answer for themselves ---

TREES = {str(file.relative_to(PACKAGE)): ast.parse(file.read_text()) for file in FILES}
CLASS_DEFS = [node for tree in TREES.values() for node in tree.body if isinstance(node, ast.ClassDef)]
DOORS_OF_PROCESSES = (  # where noise is chosen, or a formula is for one kind of it
    *("core/processes/", "decoding/", "evaluation/laws/", "models/heads.py"),
    *("tasks/correction/scorers.py", "training/runs/run.py"),
)


def derived(base: str) -> set[str]:
    """A class and all that derive from it, by name."""
    names, size = {base}, 0
    while len(names) > size:
        size = len(names)
        names |= {each.name for each in CLASS_DEFS for b in each.bases if ast.unparse(b).split("[")[0] in names}
    return names


def type_tests(tree: ast.AST, kinds: set[str]) -> list[str]:
    """Tests whether an object has one of these classes."""
    nodes = [*ast.walk(tree)]
    calls = [n for n in nodes if isinstance(n, ast.Call) and ast.unparse(n.func) in ("isinstance", "issubclass")]
    tests = [*(n.args[1] for n in calls), *(n.cls for n in nodes if isinstance(n, ast.MatchClass))]
    tests += [n for n in nodes if isinstance(n, ast.Compare) and "type(" in ast.unparse(n)]
    names = lambda test: {each.id for each in ast.walk(test) if isinstance(each, ast.Name)}  # noqa: E731
    return [ast.unparse(test) for test in tests if names(test) & kinds]


def type_tests_outside(folders: tuple[str, ...], *bases: str) -> list[str]:
    kinds = set[str]().union(*map(derived, bases))
    trees = ((path, tree) for path, tree in TREES.items() if not path.startswith(folders))
    return [f"{path}: {test}" for path, tree in trees for test in type_tests(tree, kinds)]


def test_no_caller_tests_the_class_of_a_sampler_pick_or_process() -> None:
    samplers = derived("Sampler")
    assert {"Unmask", "Blocks", "GuidedSampler"} <= samplers
    assert type_tests_outside(("decoding/", "evaluation/laws/"), "Sampler", "Pick", "Guidance") == []
    assert type_tests_outside(DOORS_OF_PROCESSES, "Process") == []


def test_a_type_test_is_noticed() -> None:
    code = "isinstance(x, Blocks | int)\ntype(x) is Blocks\nisinstance(x, str)\nmatch x:\n    case Blocks(): pass"
    assert len(type_tests(ast.parse(code), {"Blocks"})) == 3


# --- imports ---


def imported(code: str) -> list[tuple[str, str]]:
    """Modules of the package that a file imports from, and the names."""
    nodes = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom))
    return [(n.module, a.name) for n in nodes if (n.module or "").startswith("redraft") for a in n.names]


def through_doors(code: str) -> list[str]:
    """Names that are imported from a storey instead of the file that defines them; modules may be."""
    doors = ("redraft", *(f"redraft.{storey}" for storey in STOREYS))
    path = lambda module, name: PACKAGE.parent / module.replace(".", "/") / name  # noqa: E731
    names = ((m, n) for m, n in imported(code) if m in doors)
    return [f"{m}: {n}" for m, n in names if not (path(m, n).is_dir() or path(m, f"{n}.py").is_file())]


def test_the_package_imports_from_the_file_that_defines_a_name() -> None:
    doors = {PACKAGE / "__init__.py", *(PACKAGE / storey / "__init__.py" for storey in STOREYS)}
    assert {str(f): wrong for f in FILES if f not in doors and (wrong := through_doors(f.read_text()))} == {}


def test_an_import_through_a_door_is_noticed() -> None:
    code = "from redraft.core import ops, Linear\nfrom redraft.core.ops import nll\nfrom redraft import Run, core\n"
    assert through_doors(code) == ["redraft.core: Linear", "redraft: Run"]


def test_doors_offer_what_they_list() -> None:
    for door in ("redraft", *(f"redraft.{storey}" for storey in STOREYS), "redraft.training.presets"):
        module = import_module(door)
        assert [name for name in module.__all__ if not hasattr(module, name)] == []
        assert set(module.__all__) <= set(dir(module))
    assert len(redraft.__all__) <= MOST_NAMES


SHARED = {
    "laws",
    "built_in",
    "main",
    "FORMATS",
    "EXPORTS",
}  # each kind of law, program or family of formats has its own


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


@pytest.mark.parametrize("storey", STOREYS)
def test_a_public_name_has_one_home_in_its_storey(storey: str) -> None:
    """Configs name a class by its storey."""
    files = [f for f in (PACKAGE / storey).rglob("*.py") if f.name != "__init__.py"]
    found = homes([(str(f.relative_to(PACKAGE)), f.read_text()) for f in files])
    assert {name: paths for name, paths in found.items() if name not in SHARED} == {}


def test_a_second_home_is_noticed() -> None:
    code = "class Row: ...\nA, B = 1, 2\nX: int = 3\ndef f(): g = 1\n_T = 0\nif A:\n    g = 2\n"
    assert homes([("a.py", code), ("b.py", code), ("c.py", "g = 1")]) == {
        name: ["a.py", "b.py"] for name in ("Row", "A", "B", "X", "f")
    }


def test_section_banners_have_one_style() -> None:
    """`# --- a few words ---`"""
    assert matching(r"^ *#.*(-{4,}|={4,}|#{4,})") == []


def test_help_needs_no_torch() -> None:
    code = "import sys, redraft.apps.cli as c\ntry: c.main()\nexcept SystemExit: assert 'torch' not in sys.modules"
    result = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "check" in result.stdout


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = redraft.Nothing
