"""Every module imports, and a lock is only a warning, on systems without `fcntl` and `resource`, such as Windows."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from redraft.decoding.constraints import child
from redraft.models.checkpoints import lock

CODE = """
import builtins, importlib, pkgutil, sys

real, refused = builtins.__import__, []

def guarded(name, globals=None, *rest):
    if name in ("fcntl", "resource") and str((globals or {}).get("__name__")).startswith("redraft"):
        refused.append(name)
        raise ImportError(f"there is no {name} here")
    return real(name, globals, *rest)

builtins.__import__ = guarded
import redraft

names = [m.name for m in pkgutil.walk_packages(redraft.__path__, "redraft.") if not m.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(len(names), *sorted(set(refused)))
"""


def test_every_module_imports_without_the_modules_of_unix() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", CODE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-800:]
    count, *refused = done.stdout.split()
    assert int(count) > 400
    assert refused == ["fcntl", "resource"]


def test_without_locks_there_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lock, "fcntl", None)
    with caplog.at_level(logging.WARNING), lock.exclusive_lock(tmp_path):
        assert "let only one process write there" in caplog.text
    assert (tmp_path / lock.LOCK_FILE).read_text().startswith("process ")


def test_patterns_compile_without_limits_of_memory() -> None:
    request = b'{"regex": "ab?", "megabytes": 64}'
    code = "import sys; sys.modules['resource'] = None; import runpy; runpy.run_path(sys.argv[1], run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code, child.__file__], input=request, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b'{"start": ')
