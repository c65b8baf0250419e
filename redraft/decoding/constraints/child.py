"""Run as a script of its own: regular expressions and JSON schemas become automata on bytes, here and nowhere else.

Compiling cannot be interrupted and knows no limit: 23 characters can keep it busy for minutes. So it happens in this
process, which is killed when its time is up, and which has little memory. It imports neither redraft nor torch.
"""

import array
import json
import resource
import sys

# The library stops at the first match it prefers: of `a|ab` it would never accept "ab". Behind this character, which
# ends every text and stands in none, there is nothing to prefer.
_END = "\U0010ffff"


def _main() -> None:
    """stdin: one JSON object; stdout: a line of JSON, then the edges (state, byte, next state) as 32-bit integers."""
    asked = json.load(sys.stdin.buffer)
    limit = asked["megabytes"] << 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        edges, said = _compiled(asked)
    except MemoryError:
        edges, said = array.array("i"), {"error": "large"}
    except Exception as error:
        edges, said = array.array("i"), {"error": " ".join(str(error).split())}
    sys.stdout.buffer.write(json.dumps(said).encode() + b"\n" + edges.tobytes())


def _compiled(asked: dict) -> tuple[array.array, dict]:
    """The edges of an automaton whose texts all end with _END, its first state and its final ones."""
    from outlines_core import Index, Vocabulary

    regex = asked["regex"] if "regex" in asked else _from_schema(asked["schema"])
    vocabulary = Vocabulary(256, {bytes([byte]): [byte] for byte in range(256)})
    Index(regex, vocabulary)  # alone first: brackets that close ours must be an error
    index = Index(f"(?:{regex}){_END}", vocabulary)
    edges = array.array("i")
    for state, row in index.get_transitions().items():
        for byte, after in row.items():
            if byte < 256:
                edges.extend((state, byte, after))
    return edges, {"start": index.get_initial_state(), "final": sorted(index.get_final_states())}


def _from_schema(schema: str) -> str:
    from outlines_core.json_schema import build_regex_from_schema

    return build_regex_from_schema(schema)


if __name__ == "__main__":
    _main()
