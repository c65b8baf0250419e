"""The command line: verbs, each a frozen dataclass whose fields are its flags. Torch is imported when a verb runs.

Exit codes: 0 well done; 1 a law or a job failed; 2 the input is wrong, and one line says what to do; 130 interrupted.
Results go to stdout (`--json`: one object per line), progress and errors to stderr.
"""

from __future__ import annotations

import os
import sys

from redraft.cli.arguments import parse_verb
from redraft.cli.doctor import Doctor
from redraft.cli.eval import Eval
from redraft.cli.levels import Levels
from redraft.cli.prove import Check, Demo
from redraft.cli.show import Show
from redraft.cli.train import Train
from redraft.cli.write import Generate, Infill

VERBS = {
    "demo": Demo,
    "train": Train,
    "eval": Eval,
    "generate": Generate,
    "infill": Infill,
    "levels": Levels,
    "show": Show,
    "check": Check,
    "doctor": Doctor,
}


def main(argv: list[str] | None = None) -> None:
    """Runs one verb; errors that a user can mend end in one line and exit code 2."""
    try:
        parse_verb(VERBS, sys.argv[1:] if argv is None else argv)()
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:  # the reader has enough, say `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except (ValueError, OSError, RuntimeError) as error:
        code, said = _judged(error)
        rank = os.environ.get("RANK", "0")
        where = "redraft" if rank == "0" else f"redraft, worker {rank}"
        print(f"{where}: {' '.join(said.split())}", file=sys.stderr)
        raise SystemExit(code) from None


def _judged(error: Exception) -> tuple[int, str]:
    """The exit code of an error, and what to say of it; one that is neither the user's nor the training's is a bug."""
    if isinstance(error, ValueError):
        return 2, str(error)
    if isinstance(error, OSError):
        place, reason = error.filename or "the system", error.strerror or error
        return 2, f"{place}: {reason}; check the path, its permissions and the space on the disk"
    from redraft.checkpoint import CheckpointError
    from redraft.train import TrainingError

    if not isinstance(error, CheckpointError | TrainingError):
        raise error
    return 1 if isinstance(error, TrainingError) else 2, str(error)
