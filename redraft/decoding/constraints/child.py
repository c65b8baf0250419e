"""A script that compiles regular expressions to automata on bytes, in a process of its own.

Compilation cannot be interrupted and has no limits: a pattern of 23 characters can take minutes. So it runs in this
process, which has limited memory and is killed after a timeout. It imports neither redraft nor torch.
"""

import array
import json
import sys

try:
    import resource
except ImportError:  # Windows: no limit of memory; the timeout holds all the same
    resource = None  # type: ignore[assignment]

# The library stops at its preferred match: for `a|ab` it would never accept "ab". This character, which occurs in no
# text, is appended to every text, so that only the whole text can match.
_END = "\U0010ffff"


def _main() -> None:
    """Read a JSON object from stdin; write a line of JSON, then edges (state, byte, next state) as int32, to stdout."""
    request = json.load(sys.stdin.buffer)
    if resource is not None:
        limit = request["megabytes"] << 20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        edges, reply = _compile(request)
    except MemoryError:
        edges, reply = array.array("i"), {"error": "large"}
    except Exception as error:
        edges, reply = array.array("i"), {"error": " ".join(str(error).split())}
    sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n" + edges.tobytes())


def _compile(request: dict) -> tuple[array.array, dict]:
    """Return the edges of an automaton of texts that end with _END, and its start state and final states."""
    from outlines_core import Index, Vocabulary

    regex = request["regex"]
    vocabulary = Vocabulary(256, {bytes([byte]): [byte] for byte in range(256)})
    Index(regex, vocabulary)  # compiled alone first, so that a ")" that would close our group is an error
    index = Index(f"(?:{regex}){_END}", vocabulary)
    edges = array.array("i")
    for state, row in index.get_transitions().items():
        for byte, after in row.items():
            if byte < 256:
                edges.extend((state, byte, after))
    return edges, {"start": index.get_initial_state(), "final": sorted(index.get_final_states())}


if __name__ == "__main__":
    _main()
