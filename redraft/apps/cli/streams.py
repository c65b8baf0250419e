"""Robust standard streams: they may be closed, full, abandoned by their reader, or limited to ASCII."""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress
from typing import TextIO

_MOST_BYTES = 64 * 2**20  # limit of stdin; more is probably a mistake, or endless
_ASCII = {  # similar ASCII characters, for streams that cannot print the original
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
    **{chr(dots): "." for dots in range(0x2801, 0x2900)},  # Braille patterns, used in plots
}


def prepare_streams() -> None:
    """Make the standard streams safe to use: replace closed ones, and never fail on a character they cannot encode.

    A closed stream is replaced by /dev/null, because the next file that is opened would otherwise get its number.
    """
    codecs.register_error("redraft", _to_ascii)
    closed = [descriptor for descriptor in range(3) if not _is_open(descriptor)]
    while closed and os.open(os.devnull, os.O_RDWR) != closed[-1]:  # the lowest free descriptor is used first
        pass
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), encoding="utf-8")  # descriptor 2 is now /dev/null
    if sys.stdout is None:
        raise ValueError(
            "stdout is closed, so there is nowhere to print the result; redirect it to a file or /dev/null"
        )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="redraft")


def detach_streams(*streams: TextIO) -> None:
    """Redirect streams that cannot be written to /dev/null, so that Python does not fail to flush them at exit."""
    for stream in streams:
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):  # the stream may have no file descriptor
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def stdin_lines() -> list[str]:
    """Return the non-blank lines of stdin, read as UTF-8 in any locale."""
    try:
        with open(0, "rb", closefd=False) as stdin:
            data = stdin.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"stdin cannot be read ({error.strerror}); give the text as an argument") from error
    if len(data) > _MOST_BYTES:
        raise ValueError(f"stdin has more than {_MOST_BYTES >> 20} MB; split it into several calls")
    lines = [decode_text(line, f"line {n} of stdin").strip("\r") for n, line in enumerate(data.split(b"\n"), 1)]
    return [line for line in lines if line.strip()]


def decode_text(data: bytes | str, what: str) -> str:
    """Decode bytes, or a command-line argument in any locale, as UTF-8; `what` names it in the error."""
    try:
        return (data if isinstance(data, bytes) else data.encode("utf-8", "surrogateescape")).decode("utf-8")
    except UnicodeError as error:
        raise ValueError(f"{what} is not UTF-8 (byte {error.start + 1}); convert it, for example with iconv") from error  # type: ignore[attr-defined]


def _to_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    """Error handler that replaces characters a stream cannot encode by similar ASCII ones or by escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    return "".join(_ASCII.get(c) or c.encode("ascii", "backslashreplace").decode() for c in characters), error.end


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
