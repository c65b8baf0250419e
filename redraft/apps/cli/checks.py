"""Validation of flags, done before torch is imported so that typos fail fast."""

from __future__ import annotations

from pathlib import Path


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


def require_svg(flag: str, file: Path | None) -> None:
    """Raise if a file is given and is not the path of an .svg file in an existing directory."""
    if file is not None and (file.suffix != ".svg" or file.is_dir() or not file.absolute().parent.is_dir()):
        raise ValueError(f"{flag} {file!s:.80}: give the path of an .svg file in an existing directory")
