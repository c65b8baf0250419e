"""stdin, stdout and stderr as they may be: closed, full, left by their reader, or unable to print more than ASCII."""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress
from typing import TextIO

_MOST_BYTES = 64 * 2**20  # of stdin; more would be a mistake, or endless
_ALIKE = {
    **dict.fromkeys("╭╮╰╯┌┐└┘├┤┬┴┼", "+"),
    **dict.fromkeys("─━–—−", "-"),
    **dict.fromkeys("│┃", "|"),
    "•": "*",
    "·": "*",
    "×": "x",
    "±": "+-",
    "≤": "<=",
    "≥": ">=",
    "→": "->",
    "…": "...",
    "▒": "#",
    "↵": "|",
    "✓": "+",
    "✗": "x",
    "\u2800": " ",
    "“": '"',
    "”": '"',
    "‘": "'",
    "’": "'",
    **{chr(dots): "." for dots in range(0x2801, 0x2900)},  # Braille, of curves
}


def prepare_streams() -> None:
    """Before a verb begins: no character ends it, and no file that it opens is taken for a stream that was closed."""
    codecs.register_error("redraft", _alike)
    gone = [number for number in range(3) if not _is_open(number)]
    while gone and os.open(os.devnull, os.O_RDWR) != gone[-1]:  # the lowest free number is given first
        pass
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), encoding="utf-8")  # nothing, from now on
    if sys.stdout is None:
        raise ValueError("stdout is closed, so the result has nowhere to go; send it to a file, or to /dev/null")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="redraft")


def detach_streams(*streams: TextIO) -> None:
    """What a stream does not take is dropped, so that Python does not try, and fail, to write it at its end."""
    for stream in streams:
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):  # no real stream
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def stdin_lines() -> list[str]:
    """The lines of stdin that are not blank, in UTF-8 whatever the locale."""
    try:
        with open(0, "rb", closefd=False) as stdin:
            data = stdin.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"stdin cannot be read ({error.strerror}); give the text as an argument") from error
    if len(data) > _MOST_BYTES:
        raise ValueError(f"stdin gave more than {_MOST_BYTES >> 20} MB; split it into several calls")
    lines = [decode_text(line, f"line {n} of stdin").strip("\r") for n, line in enumerate(data.split(b"\n"), 1)]
    return [line for line in lines if line.strip()]


def decode_text(given: bytes | str, what: str) -> str:
    """Given text, which must be UTF-8; an argument is so too, where the locale knows ASCII alone."""
    try:
        return (given if isinstance(given, bytes) else given.encode("utf-8", "surrogateescape")).decode("utf-8")
    except UnicodeError as error:
        raise ValueError(f"{what} is not UTF-8 (byte {error.start + 1}); convert it, say with iconv") from error  # type: ignore[attr-defined]


def _alike(error: UnicodeError) -> tuple[str | bytes, int]:
    """What a stream cannot print, as what looks like it, or as its number."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return "".join(_ALIKE.get(c) or c.encode("ascii", "backslashreplace").decode() for c in wrong), error.end


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
