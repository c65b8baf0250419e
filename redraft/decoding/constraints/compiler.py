"""Compiles regular expressions to automata on bytes, in a child process with a timeout."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from redraft.decoding.constraints.child import _END
from redraft.decoding.constraints.dfa import _MAX_STATES, AutomatonTooLarge, _Dfa, _minimize

_SECONDS = 10.0  # timeout of the child process
_MEGABYTES = 1024  # memory limit of the child process
_MAX_CHARACTERS = 20_000  # of a pattern, encoded as JSON
_SIMPLER = "use a simpler one, with smaller counts {m,n}"


def _compile_regex(regex: str, seconds: float = _SECONDS) -> _Dfa:
    """Compile a regular expression that must match the whole text (Rust's syntax; no look-around or backreferences)."""
    return _compile(json.dumps({"regex": _strip_anchors(regex)}), f"the pattern {_shorten(regex)}", seconds)


def _strip_anchors(regex: str) -> str:
    """Remove ^ and $ from the ends: the whole text is matched anyway, and the library does not support anchors."""
    regex = regex.removeprefix("^")
    backslashes = len(regex) - len(regex.removesuffix("$").rstrip("\\")) - 1  # before the dollar sign
    return regex.removesuffix("$") if backslashes % 2 == 0 else regex


def _shorten(text: str) -> str:
    return repr(text) if len(text) <= 60 else f"{text[:57]!r}…"


@lru_cache(256)
def _compile(request: str, name: str, seconds: float) -> _Dfa:
    """Compile a JSON request for the child; `name` describes the pattern in errors."""
    if len(request) > _MAX_CHARACTERS:
        raise AutomatonTooLarge(
            f"{name} has {len(request):,} characters; {_SIMPLER}, at most {_MAX_CHARACTERS:,} characters"
        )
    if importlib.util.find_spec("outlines_core") is None:
        raise ValueError("patterns need an extra package: pip install 'redraft[patterns]'")
    reply, edges = _run_child(request, name, seconds)
    if "error" in reply:
        raise _explain(reply["error"], name)
    automaton = _minimize(_without_end(edges, reply["start"], reply["final"], name))
    if automaton.empty:
        raise ValueError(f"{name} matches no text at all; check what it intersects or excludes")
    return automaton


def _run_child(request: str, name: str, seconds: float) -> tuple[dict, NDArray[np.int32]]:
    """Run the child process; returns its JSON reply and the edges (n, 3)."""
    command = [sys.executable, "-P", str(Path(__file__).with_name("child.py"))]
    stdin = json.dumps(json.loads(request) | {"megabytes": _MEGABYTES}).encode()
    try:
        child = subprocess.run(command, input=stdin, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise AutomatonTooLarge(f"{name} takes more than {seconds:g} seconds to compile; {_SIMPLER}") from None
    head, _, tail = child.stdout.partition(b"\n")
    if not head:  # the library aborts if it runs out of memory
        raise AutomatonTooLarge(f"{name} takes more than {_MEGABYTES} MB to compile; {_SIMPLER}")
    return json.loads(head), np.frombuffer(tail, np.int32).reshape(-1, 3)


def _explain(message: str, name: str) -> ValueError:
    """Turn an error message of the library into an error that says what to do."""
    if message == "large":
        return AutomatonTooLarge(f"{name} takes more than {_MEGABYTES} MB to compile; {_SIMPLER}")
    if "word boundaries" in message:
        return ValueError(f"{name} has \\b, which depends on neighboring text; write the space itself, or use Required")
    if "start state" in message:
        return ValueError(f"{name} has ^ or $ inside; leave them out, the whole text is matched anyway")
    if "building NFA" in message:
        return ValueError(
            f"{name} cannot be read: unbalanced brackets, or look-around or a backreference, which are not supported"
        )
    if "Found no transitions" in message:
        return ValueError(f"{name} matches no text at all; check what it intersects or excludes")
    return ValueError(f"{name} cannot be read: {message[:200]}")


def _without_end(edges: NDArray[np.int32], start: int, final: list[int], name: str) -> _Dfa:
    """Build the automaton without _END: a state is final if _END leads from it to a final state."""
    states = np.unique(np.concatenate([[start], edges[:, 0], edges[:, 2], final]))
    if len(states) > 4 * _MAX_STATES:
        raise AutomatonTooLarge(f"{name} has {len(states):,} states; {_SIMPLER}")
    ids = np.concatenate([[start], states[states != start]])  # the start state becomes state 0
    order = np.argsort(ids)
    table = np.full((len(ids), 256), -1, np.int32)
    source, target = (order[np.searchsorted(ids[order], edges[:, side])] for side in (0, 2))
    table[source, edges[:, 1]] = target
    table, accepted = np.vstack([table, np.full((1, 256), -1)]), np.isin(np.append(ids, -1), final)
    after = np.arange(len(ids))
    for byte in _END.encode():
        after = table[after, byte]  # index −1 is the last row, which leads nowhere
    return _Dfa(table[:-1].astype(np.int32), accepted[after] & (after >= 0))
