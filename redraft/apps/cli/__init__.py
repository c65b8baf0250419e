"""The command line. Each verb is a frozen dataclass whose fields are its flags; torch is imported when a verb runs.

Exit codes: 0 success; 1 a law or a training failed; 2 wrong input, and one line says what to do; 130 interrupted by
Ctrl-C; 143 ended by SIGTERM.
Results go to stdout (with `--json`, one object per line), progress and errors to stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from redraft.apps.cli.arguments import HELP, name_flags, parse_verb
from redraft.apps.cli.commands.adapt import AdaptModel
from redraft.apps.cli.commands.completion import Completion
from redraft.apps.cli.commands.correct import CorrectTexts
from redraft.apps.cli.commands.exchange import Export, Import
from redraft.apps.cli.commands.measure.audit import Audit
from redraft.apps.cli.commands.measure.check import Check, Demo, Doctor
from redraft.apps.cli.commands.measure.compare import Compare
from redraft.apps.cli.commands.measure.eval import Eval
from redraft.apps.cli.commands.measure.levels import Levels
from redraft.apps.cli.commands.measure.noise import Noise
from redraft.apps.cli.commands.measure.picture import Picture
from redraft.apps.cli.commands.measure.probe import Probe
from redraft.apps.cli.commands.models import Models
from redraft.apps.cli.commands.report import ReportRun
from redraft.apps.cli.commands.serve import Play, Serve
from redraft.apps.cli.commands.show import Show
from redraft.apps.cli.commands.train import Train
from redraft.apps.cli.commands.write import Choose, Control, Generate, Infill, Rewrite, ScoreTexts
from redraft.apps.cli.help_text import overview
from redraft.apps.cli.output import print_error
from redraft.apps.cli.parsing import verb_arguments
from redraft.apps.cli.streams import detach_streams, prepare_streams
from redraft.apps.cli.user_code import user_code_location
from redraft.core.version import __version__
from redraft.tasks.arguments.setting import ArgumentError

VERB_GROUPS: Mapping[str, Mapping[str, type[Any]]] = {
    "Start": {"demo": Demo, "play": Play, "doctor": Doctor, "completion": Completion},
    "Write": {
        "generate": Generate,
        "infill": Infill,
        "rewrite": Rewrite,
        "control": Control,
        "choose": Choose,
        "correct": CorrectTexts,
        "score": ScoreTexts,
    },
    "Train": {"train": Train, "adapt": AdaptModel, "import": Import, "export": Export},
    "Measure": {"eval": Eval, "compare": Compare, "probe": Probe, "levels": Levels, "check": Check, "audit": Audit},
    "Serve": {"serve": Serve},
    "Look inside": {"models": Models, "show": Show, "report": ReportRun, "noise": Noise, "picture": Picture},
}
VERBS = {name: verb for verbs in VERB_GROUPS.values() for name, verb in verbs.items()}
_ABOUT = """Train, evaluate and run diffusion language models.

Start with `redraft demo`, or with `redraft generate --watch`. `redraft VERB --help`
lists the options of a verb, `redraft --version` prints the version."""
_EXIT_CODES = """Results go to stdout, progress and errors to stderr. Exit codes:
  0    success
  1    a law or a training failed
  2    wrong input; one line says what to do
  130  interrupted by Ctrl-C
  143  ended by SIGTERM; training has saved a checkpoint first
"""


def main(argv: list[str] | None = None) -> None:
    """Run one verb. Errors that a user can fix print one line and exit with code 2."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        prepare_streams()
        _answer_about(argv)
        parse_verb(VERBS, argv)()
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:  # the reader of stdout has closed it, as `head` does
        detach_streams(sys.stdout, sys.stderr)
        raise SystemExit(0) from None
    except (Exception, SystemExit) as error:
        code, message = _exit_code_and_message(error)
        rank = os.environ.get("RANK", "0")
        program = "redraft" if rank == "0" else f"redraft, worker {rank}"
        if argv[:1] and (argv[0] in VERB_GROUPS["Write"] or isinstance(error, ArgumentError)):
            message = name_flags(message, verb_arguments(VERBS[argv[0]]))
        print_error(f"{program}: {_shorten(message)}")
        if sys.stdout is not None:
            detach_streams(sys.stdout)  # the error may be that stdout is full
        raise SystemExit(code) from None


def _answer_about(argv: Sequence[str]) -> None:
    """Print the list of verbs, or the version, if the command line asks for it."""
    if argv in ([], ["help"]) or (argv[0] in HELP):
        print(overview(_ABOUT, VERB_GROUPS, _EXIT_CODES), end="", flush=True)
    elif argv[0] == "--version":
        print(f"redraft {__version__}", flush=True)
    else:
        return
    raise SystemExit(0)


def _shorten(message: str) -> str:
    """Put a message on one line, with very long words and a very long line shortened."""
    words = (word if len(word) <= 200 else f"{word[:60]}…{word[-20:]}" for word in message.split())
    line = " ".join(words)
    return line if len(line) <= 1000 else f"{line[:700]} … {line[-200:]}"


def _exit_code_and_message(error: Exception | SystemExit) -> tuple[int, str]:
    """Return the exit code and the message for an error of the user or of a training; raise any other, a bug."""
    if isinstance(error, ValueError):
        return 2, str(error)
    if isinstance(error, OSError):
        path, reason = error.filename or "the output", error.strerror or error
        return 2, f"{path}: {reason}; check the path, its permissions and the free disk space"
    if isinstance(error, MemoryError) or "not enough memory" in str(error) or "out of memory" in str(error):
        return 2, "not enough memory; use fewer or shorter texts at a time, or a smaller model"
    if (location := user_code_location(error)) is not None:
        return 2, f"{location}: {type(error).__name__}: {error}"
    if isinstance(error, RuntimeError):
        from redraft.models.checkpoints.reader import CheckpointError
        from redraft.training.state import TrainingError

        if isinstance(error, CheckpointError | TrainingError):
            return 1 if isinstance(error, TrainingError) else 2, str(error)
    raise error
