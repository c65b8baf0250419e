"""What flags may say: checked before torch is loaded, so that a slip costs no waiting."""

from __future__ import annotations

from pathlib import Path

from redraft.tasks.arguments.settings import range_error, seed_error, shorten_number


def require_in_range(flag: str, value: float | None, least: float, most: float) -> None:
    """A number from `least` to `most`, if it is given at all."""
    if value is not None and (wrong := range_error(value, least, most)):
        raise ValueError(f"{flag} {shorten_number(value)}: {wrong}")


def require_seed_flag(seed: int) -> None:
    if wrong := seed_error(seed):
        raise ValueError(f"--seed {shorten_number(seed)}: {wrong}")


def require_python_file(file: Path | None) -> None:
    """A file of the user's own, if one is given."""
    if file is not None and (file.suffix != ".py" or not _is_file(file)):
        raise ValueError(f"{file} is not a Python file; give the path of an existing .py file")


def _is_file(path: Path) -> bool:
    """False also for what can be no path: too long, or with a NUL."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def require_svg(flag: str, file: Path | None) -> None:
    """A picture to be, in a directory that exists, if one is asked for."""
    if file is not None and (file.suffix != ".svg" or file.is_dir() or not file.absolute().parent.is_dir()):
        raise ValueError(f"{flag} {file!s:.80}: give the path of an .svg file in a directory that exists")
