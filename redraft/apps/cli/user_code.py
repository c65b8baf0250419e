"""Python files of the user: importing them by path, and finding the line of theirs that raised an error."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

_IMPORTED: set[str] = set()  # paths of the user's files that were imported


def _load_function(spec: str) -> Callable[..., Any]:
    """Return the function that "file.py:function" names."""
    path, _, name = spec.rpartition(":")
    if not path or not name:
        raise ValueError(f"{spec!r} does not name a function; write file.py:function")
    module = load_module(path)
    function = vars(module).get(name)
    if not callable(function):
        names = [n for n, f in vars(module).items() if callable(f) and getattr(f, "__module__", "") == module.__name__]
        raise ValueError(f"{path} has no function {name!r}; it has: {', '.join(names) or 'none'}")
    return function


def _load_object(spec: str) -> Any:
    """Return what "file.py:NAME" names; a class or a function is called."""
    path, _, name = spec.rpartition(":")
    value = vars(load_module(path)).get(name)
    if value is None:
        raise ValueError(f"{path} has no {name!r}; name a class, a function or an object of this file")
    if not inspect.isclass(value) and not inspect.isfunction(value):
        return value
    try:
        return value()
    except Exception as error:
        raise ValueError(f"{spec} raised {type(error).__name__}: {error}") from error


def load_module(path: str | Path) -> ModuleType:
    """Import a Python file by its path. A file is trusted because the user names it on the command line.

    The module has the name of the file. Saved configs refer to its classes by this name, and `trust` takes it.
    """
    file, name = Path(path).resolve(), Path(path).stem
    if file.suffix != ".py" or not file.is_file():
        raise ValueError(f"{path} is not a Python file; give the path of an existing .py file")
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) == str(file):
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not name.isidentifier() or name in sys.modules or _is_taken(name, file):
        raise ValueError(
            f"{path} cannot be imported as module {name!r}: the name is taken or is not a Python name; rename the file"
        )
    _IMPORTED.add(str(file))
    sys.modules[name] = module = importlib.util.module_from_spec(spec)  # dataclasses look up their module here
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        location = f"{path}, line {line}" if (line := _error_line(error, file)) else str(path)
        raise ValueError(f"{location}: {type(error).__name__}: {error}") from error
    return module


def _is_taken(name: str, file: Path) -> bool:
    """Whether `import name` would import something other than the file."""
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin != str(file)


def user_code_location(error: BaseException) -> str | None:
    """Return the innermost line of the user's files that an error came through, as "file.py, line 7"; None if none."""
    frames = traceback.extract_tb(error.__traceback__)
    locations = [f"{frame.filename}, line {frame.lineno}" for frame in frames if frame.filename in _IMPORTED]
    return locations[-1] if locations else None


def _error_line(error: BaseException, file: Path) -> int | None:
    """Return the line of the file at which importing it failed."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    return lines[-1] if lines else getattr(error, "lineno", None)  # a syntax error has no frame in the file


def require_python_file(file: Path | None) -> None:
    """Raise if a file is given and is not an existing Python file."""
    if file is not None and (file.suffix != ".py" or not _is_file(file)):
        raise ValueError(f"{file} is not a Python file; give the path of an existing .py file")


def _is_file(path: Path) -> bool:
    """Whether the path is a file; False if it is too long for a path or has a NUL character."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
