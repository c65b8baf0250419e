"""The command line: verbs, each a frozen dataclass whose fields are its flags. Torch is imported when a verb runs.

Exit codes: 0 well done; 1 a law or a job failed; 2 the input is wrong, and one line says what to do; 130 interrupted
(Ctrl-C); 143 ended by SIGTERM.
Results go to stdout (`--json`: one object per line), progress and errors to stderr.
"""

from __future__ import annotations

import os
import sys

from redraft.apps.cli.arguments import name_flags, parse_verb
from redraft.apps.cli.commands.adapt import AdaptModel
from redraft.apps.cli.commands.correct import CorrectTexts
from redraft.apps.cli.commands.exchange import Export, Import
from redraft.apps.cli.commands.measure.check import Check, Demo, Doctor
from redraft.apps.cli.commands.measure.compare import Compare
from redraft.apps.cli.commands.measure.eval import Eval
from redraft.apps.cli.commands.measure.levels import Levels
from redraft.apps.cli.commands.measure.noise import Noise
from redraft.apps.cli.commands.measure.picture import Picture
from redraft.apps.cli.commands.measure.probe import Probe
from redraft.apps.cli.commands.report import ReportRun
from redraft.apps.cli.commands.serve import Play, Serve
from redraft.apps.cli.commands.show import Show
from redraft.apps.cli.commands.train import Train
from redraft.apps.cli.commands.write import Choose, Control, Generate, Infill, Rewrite, ScoreTexts
from redraft.apps.cli.output import print_error
from redraft.apps.cli.streams import detach_streams, prepare_streams
from redraft.apps.cli.user_code import user_code_location

VERBS = {
    "demo": Demo,
    "train": Train,
    "adapt": AdaptModel,
    "eval": Eval,
    "compare": Compare,
    "generate": Generate,
    "infill": Infill,
    "rewrite": Rewrite,
    "control": Control,
    "choose": Choose,
    "correct": CorrectTexts,
    "score": ScoreTexts,
    "serve": Serve,
    "play": Play,
    "levels": Levels,
    "noise": Noise,
    "picture": Picture,
    "probe": Probe,
    "show": Show,
    "report": ReportRun,
    "import": Import,
    "export": Export,
    "check": Check,
    "doctor": Doctor,
}
_WRITING = {"generate", "infill", "rewrite", "control", "choose", "correct", "score"}  # errors name arguments


def main(argv: list[str] | None = None) -> None:
    """Runs one verb; errors that a user can mend end in one line and exit code 2."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        prepare_streams()
        parse_verb(VERBS, argv)()
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:  # the reader has enough, say `head`
        detach_streams(sys.stdout, sys.stderr)
        raise SystemExit(0) from None
    except (Exception, SystemExit) as error:
        code, said = _judged(error)
        rank = os.environ.get("RANK", "0")
        where = "redraft" if rank == "0" else f"redraft, worker {rank}"
        said = name_flags(said) if argv[:1] and argv[0] in _WRITING else said
        print_error(f"{where}: {_line(said)}")
        if sys.stdout is not None:
            detach_streams(sys.stdout)  # perhaps it is this that is full
        raise SystemExit(code) from None


def _line(said: str) -> str:
    """One line, in which a word or a name of a million letters leaves room for the rest."""
    words = (word if len(word) <= 200 else f"{word[:60]}…{word[-20:]}" for word in said.split())
    line = " ".join(words)
    return line if len(line) <= 1000 else f"{line[:700]} … {line[-200:]}"


def _judged(error: Exception | SystemExit) -> tuple[int, str]:
    """The exit code of an error, and what to say of it; one that is neither the user's nor the training's is a bug."""
    if isinstance(error, ValueError):
        return 2, str(error)
    if isinstance(error, OSError):
        place, reason = error.filename or "the output", error.strerror or error
        return 2, f"{place}: {reason}; check the path, its permissions and the space on the disk"
    if isinstance(error, MemoryError) or "not enough memory" in str(error) or "out of memory" in str(error):
        return 2, "not enough memory for this; ask for less at a time: fewer or shorter texts, a smaller model"
    if (place := user_code_location(error)) is not None:
        return 2, f"{place}: {type(error).__name__}: {error}"
    if isinstance(error, RuntimeError):
        from redraft.models.checkpoints.reader import CheckpointError
        from redraft.training.state import TrainingError

        if isinstance(error, CheckpointError | TrainingError):
            return 1 if isinstance(error, TrainingError) else 2, str(error)
    raise error
