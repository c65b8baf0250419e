"""From the words of a command line to a verb, and from messages about arguments to messages about flags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol

from redraft.apps.cli.help_text import _verb_help
from redraft.apps.cli.parsing import _closest, _is_flag, _parse_words, _unknown_option, _UsageError
from redraft.tasks.arguments.setting import Argument, arguments_of
from redraft.tasks.arguments.settings import (
    ControlSettings,
    CorrectSettings,
    GenerationSettings,
    InfillSettings,
    RewriteSettings,
    ScoreSettings,
)
from redraft.training.data.registry import CORPUS_NAMES

DATA = "|".join((*CORPUS_NAMES, "PATH..."))  # metavar of --data
HELP = ("-h", "--help", "--help-all")
_TASK_SETTINGS = (GenerationSettings, InfillSettings, RewriteSettings, ControlSettings, CorrectSettings, ScoreSettings)


class _Verb(Protocol):
    """A parsed command; calling it runs it."""

    def __call__(self) -> None: ...


def parse_verb(verbs: Mapping[str, type[Any]], argv: Sequence[str]) -> _Verb:
    """Parse a command line; prints help and exits if it asks for help."""
    name, *words = [*argv[1:2], "--help"] if argv[0] == "help" else argv
    if name.startswith("-"):
        raise _UsageError(f"{_unknown_option(name, ('--help', '--version'))} (see redraft --help)")
    if name not in verbs:
        raise _UsageError(f"there is no command {name!r}; {suggest(name, verbs)}")
    kind = verbs[name]
    rest = getattr(kind, "unknown_flags", None)  # the field for flags that the verb itself interprets
    if rest is not None and words and _is_flag(words[0]) and words[0] not in HELP:
        raise _UsageError(f"{words[0]} comes before the preset; write redraft train PRESET {words[0]} …")
    asks_for_help = [word for word in words[: words.index("--") if "--" in words else None] if word in HELP]
    if asks_for_help and (rest is None or words[0] in HELP):
        print(_verb_help(name, kind, everything="--help-all" in asks_for_help), end="", flush=True)
        raise SystemExit(0)
    try:
        verb: _Verb = _parse_words(kind, words, rest=rest)
    except _UsageError as error:
        raise _UsageError(f"{error} (see redraft {name} --help)") from None
    return verb


def name_flags(message: str, arguments: Iterable[Argument] = ()) -> str:
    """Replace the names of arguments in a message by their flags: name=5 by --name 5, name=… by --name.

    The arguments are those of all tasks, and further ones that are given.
    """
    flags = {argument.name: argument.flag for argument in chain(*map(arguments_of, _TASK_SETTINGS), arguments)}

    def flag(match: re.Match[str]) -> str:
        return flags[match[1]] if match[2] else f"{flags[match[1]]} "

    return re.sub(rf"(?<![\w.(-])({'|'.join(flags)})=(…?)", flag, message)


def suggest(name: str, names: Iterable[str]) -> str:
    """Suggest the closest valid names for a misspelled one, or list all names."""
    names = list(names)
    close = _closest(name, names)
    return f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(names)}"
