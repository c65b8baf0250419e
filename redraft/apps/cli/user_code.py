"""A user's own Python files: imported by path, and blamed by line when they fail."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

_IMPORTED: set[str] = set()  # files of the user's own


def _load_function(spec: str) -> Callable[..., Any]:
    """The function of a user's file, from "file.py:function"."""
    path, _, name = spec.rpartition(":")
    if not path or not name:
        raise ValueError(f"{spec!r} does not name a function; write file.py:function")
    module = load_module(path)
    function = vars(module).get(name)
    if not callable(function):
        own = [n for n, f in vars(module).items() if callable(f) and getattr(f, "__module__", "") == module.__name__]
        raise ValueError(f"{path} has no function {name!r}; it has: {', '.join(own) or 'none'}")
    return function


def load_module(path: str | Path) -> ModuleType:
    """Import a Python file by its path. Naming it on the command line is what makes it trusted.

    The module is called as the file is: saved configs name its classes so, and `trust` takes that name.
    """
    file, name = Path(path).resolve(), Path(path).stem
    if file.suffix != ".py" or not file.is_file():
        raise ValueError(f"{path} is not a Python file; give the path of an existing .py file")
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) == str(file):
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not name.isidentifier() or name in sys.modules or _taken(name, file):
        raise ValueError(f"{path} cannot be the module {name!r}: taken, or no Python name; rename the file")
    _IMPORTED.add(str(file))
    sys.modules[name] = module = importlib.util.module_from_spec(spec)  # dataclasses look up their module there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        where = f"{path}, line {line}" if (line := _line(error, file)) else str(path)
        raise ValueError(f"{where}: {type(error).__name__}: {error}") from error
    return module


def _taken(name: str, file: Path) -> bool:
    """Whether `import name` would find something else than the file."""
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin != str(file)


def user_code_location(error: BaseException) -> str | None:
    """ "file.py, line 7" if an error came through a file that `load_module` imported: the last such line."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename}, line {frame.lineno}" for frame in frames if frame.filename in _IMPORTED]
    return places[-1] if places else None


def _line(error: BaseException, file: Path) -> int | None:
    """The line of the file at which importing it failed."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    return lines[-1] if lines else getattr(error, "lineno", None)  # a syntax error has no frame in the file
