"""Regular expressions and JSON schemas → automata on bytes, in a child that is killed if it takes too long."""

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
from redraft.decoding.constraints.dfa import _MOST_STATES, AutomatonTooLarge, _Dfa, _minimize

_SECONDS = 10.0  # then the child is killed
_MEGABYTES = 1024  # of the child
_LONGEST = 20_000  # characters of a pattern or a schema
_SIMPLER = "use a simpler one, with smaller counts {m,n}"


def _compile_regex(regex: str, seconds: float = _SECONDS) -> _Dfa:
    """The texts that a regular expression matches as a whole (Rust's syntax: no look-around, no backreferences)."""
    return _compiled(json.dumps({"regex": _unanchored(regex)}), f"the pattern {_shown(regex)}", seconds)


def _compile_schema(schema: str, seconds: float = _SECONDS) -> _Dfa:
    """The JSON texts of a schema, on one line, keys in the order of the schema."""
    return _compiled(json.dumps({"schema": schema}), f"the JSON schema {_shown(schema)}", seconds)


def _unanchored(regex: str) -> str:
    """The whole text is matched anyway, and the library knows no anchors."""
    regex = regex.removeprefix("^")
    escaped = len(regex) - len(regex.removesuffix("$").rstrip("\\")) - 1  # backslashes before the dollar
    return regex.removesuffix("$") if escaped % 2 == 0 else regex


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 60 else f"{text[:57]!r}…"


@lru_cache(256)
def _compiled(asked: str, name: str, seconds: float) -> _Dfa:
    if len(asked) > _LONGEST:
        raise AutomatonTooLarge(f"{name} has {len(asked):,} characters; {_SIMPLER}, at most {_LONGEST:,} characters")
    if importlib.util.find_spec("outlines_core") is None:
        raise ValueError("patterns and JSON schemas need one more package: pip install 'redraft[patterns]'")
    said, edges = _said_by_child(asked, name, seconds)
    if "error" in said:
        raise _error(said["error"], name)
    found = _minimize(_open_ended(edges, said["start"], said["final"], name))
    if found.empty:
        raise ValueError(f"{name} matches no text at all; check what it intersects or excludes")
    return found


def _said_by_child(asked: str, name: str, seconds: float) -> tuple[dict, NDArray[np.int32]]:
    command = [sys.executable, "-P", str(Path(__file__).with_name("child.py"))]
    request = json.dumps(json.loads(asked) | {"megabytes": _MEGABYTES}).encode()
    try:
        ended = subprocess.run(command, input=request, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise AutomatonTooLarge(f"{name} takes more than {seconds:g} seconds to compile; {_SIMPLER}") from None
    head, _, tail = ended.stdout.partition(b"\n")
    if not head:  # memory ran out inside the library, which aborts
        raise AutomatonTooLarge(f"{name} takes more than {_MEGABYTES} MB to compile; {_SIMPLER}")
    return json.loads(head), np.frombuffer(tail, np.int32).reshape(-1, 3)


def _error(said: str, name: str) -> ValueError:
    """What the library says, in one line that helps."""
    if said == "large":
        return AutomatonTooLarge(f"{name} takes more than {_MEGABYTES} MB to compile; {_SIMPLER}")
    if "word boundaries" in said:
        return ValueError(f"{name} has \\b, which needs to see neighbouring text; spell the space out, or use Required")
    if "start state" in said:
        return ValueError(f"{name} has ^ or $ inside; leave them out, since the whole text is matched anyway")
    if "building NFA" in said:
        return ValueError(
            f"{name} cannot be read: brackets that do not match, or look-around or a backreference, which automata "
            "do not have"
        )
    if "Found no transitions" in said:
        return ValueError(f"{name} matches no text at all; check what it intersects or excludes")
    return ValueError(f"{name} cannot be read: {said[:200]}")


def _open_ended(edges: NDArray[np.int32], start: int, final: list[int], name: str) -> _Dfa:
    """The automaton without END: states from which END leads to a final state are final."""
    states = np.unique(np.concatenate([[start], edges[:, 0], edges[:, 2], final]))
    if len(states) > 4 * _MOST_STATES:
        raise AutomatonTooLarge(f"{name} has {len(states):,} states; {_SIMPLER}")
    ids = np.concatenate([[start], states[states != start]])  # the first state is state 0
    order = np.argsort(ids)
    table = np.full((len(ids), 256), -1, np.int32)
    source, target = (order[np.searchsorted(ids[order], edges[:, side])] for side in (0, 2))
    table[source, edges[:, 1]] = target
    table, accepted = np.vstack([table, np.full((1, 256), -1)]), np.isin(np.append(ids, -1), final)
    at = np.arange(len(ids))
    for byte in _END.encode():
        at = table[at, byte]  # −1 is the last row
    return _Dfa(table[:-1].astype(np.int32), accepted[at] & (at >= 0))
