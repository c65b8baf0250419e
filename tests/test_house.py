"""The house checks itself: where randomness lives, and that public names are documented and annotated."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
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
    assert not re.search(
        r"\bimport pickle|torch\.load\(|trust_remote_code\s*=\s*True|(?<!\.)\b(eval|exec)\(", file.read_text()
    )


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


def test_help_needs_no_torch() -> None:
    code = (
        "import sys, redraft.cli\ntry:\n redraft.cli.main()\nexcept SystemExit: pass\nassert 'torch' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "check" in result.stdout


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = redraft.Nothing
