"""What flags may say: checked before torch is loaded, so that a slip costs no waiting."""

from __future__ import annotations

from pathlib import Path

from redraft.write import MOST_SEED


def require_in_range(flag: str, value: float | None, least: float, most: float) -> None:
    """A number from `least` to `most`, if it is given at all; nan is none."""
    if value is not None and not least <= value <= most:
        raise ValueError(f"{flag} {_short(value)}: it must be from {least:,} to {most:,}")


def require_seed_flag(seed: int) -> None:
    if not 0 <= seed <= MOST_SEED:
        raise ValueError(f"--seed {_short(seed)}: it must be from 0 to 2^63 − 1")


def require_python(file: Path | None) -> None:
    """A file of the user's own, if one is given."""
    if file is not None and (file.suffix != ".py" or not is_file(file)):
        raise ValueError(f"{file} is not a Python file; give the path of an existing .py file")


def is_file(path: Path) -> bool:
    """False also for what can be no path: too long, or with a NUL."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _short(value: float) -> str:
    return str(value) if isinstance(value, float) or abs(value) < 10**30 else "of more than 30 digits"
