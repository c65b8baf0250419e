"""The wheel: built, installed into a fresh environment, used outside the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

import redraft

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def run(*command: str | Path, where: Path) -> str:
    """What a program prints; nothing of this checkout is on its path."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    found = subprocess.run(command, cwd=where, env=clean, capture_output=True, text=True, timeout=500)
    assert found.returncode == 0, f"{command}\n{found.stdout}\n{found.stderr}"
    return found.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the sources: what an earlier build left in the checkout must not get into it."""
    place = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place)
    shutil.copytree(ROOT / "redraft", place / "redraft", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir"]
    run(*pip, place / "dist", place, where=place)
    (built,) = (place / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin of an environment with this wheel. What it depends on is borrowed from ours, which saves a download."""
    place = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", "--without-pip", place / "env", where=place)
    python = place / "env" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index"]
    run(*install, wheel, where=place)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", where=place).strip())
    # a path in a .pth file: packages there are found, but its own .pth files, our editable checkout, are not read
    ours = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "borrowed.pth").write_text("\n".join(sorted(ours)))
    return python.parent


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A directory with the example and nothing else."""
    (tmp_path / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "typo.py", tmp_path / "examples")
    return tmp_path


def test_the_wheel_holds_the_package_and_its_license(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
        (text,) = (archive.read(name).decode() for name in names if name.endswith("/LICENSE"))
    package = {str(file.relative_to(ROOT)) for file in (ROOT / "redraft").rglob("*") if file.is_file()}
    package = {name for name in package if "__pycache__" not in name}
    assert {name for name in names if ".dist-info/" not in name} == package, "style sheets and scripts included"
    assert any(not name.endswith(".py") for name in package)
    assert text == (ROOT / "LICENSE").read_text("utf-8")
    assert "License-Expression: Apache-2.0" in metadata


def test_it_is_the_wheel_that_runs(programs: Path, elsewhere: Path) -> None:
    say = "import redraft, redraft.apps.cli; print(redraft.__file__)"
    assert Path(run(programs / "python", "-c", say, where=elsewhere).strip()).is_relative_to(programs.parent)
    assert run(programs / "redraft", "--version", where=elsewhere).split() == ["redraft", redraft.__version__]
    assert "mdlm_tiny" in run(programs / "redraft", "show", where=elsewhere)


def test_it_trains_and_writes(programs: Path, elsewhere: Path) -> None:
    small = ["--model.network.width", "16", "--model.network.layers", "1", "--model.network.heads", "2"]
    few = ["--steps", "2", "--batch", "2", "--eval-rows", "2", "--samples", "1", "--quiet"]
    told = run(programs / "redraft", "train", "mdlm_tiny", "--out", "runs/two", *small, *few, where=elsewhere)
    assert "bits per character" in told
    assert run(programs / "redraft", "generate", "runs/two", "--steps", "2", "--new", "4", where=elsewhere).strip()


def test_it_proves_the_example(programs: Path, elsewhere: Path) -> None:
    laws = run(programs / "redraft", "check", "examples/typo.py", where=elsewhere).splitlines()
    assert len(laws) >= 20
    assert all(law.startswith("ok  ") for law in laws)
