"""Parsing of the command line with tyro; errors are reduced to one line."""

from __future__ import annotations

import io
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from functools import reduce
from importlib.metadata import version
from operator import or_
from shutil import get_terminal_size
from typing import Annotated, Any, Protocol, get_args

import tyro
from tyro.conf import AvoidSubcommands, FlagCreatePairsOff, SuppressFixed
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

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
_HELP = ("-h", "--help")
_ABOUT = """Train, evaluate and run diffusion language models.

Start with `redraft demo`, or with `redraft train mdlm_tiny` and then
`redraft generate runs/mdlm_tiny --watch`. `redraft VERB --help` lists the flags
of a verb, `redraft --version` prints the version.

Results go to stdout, progress and errors to stderr. Exit codes:
  0    success
  1    a law or a training failed
  2    wrong input; one line says what to do
  130  interrupted by Ctrl-C
  143  ended by SIGTERM; training has saved a checkpoint first"""
_NARROW, _WIDE = 48, 200  # columns; in a narrower terminal tyro's boxes would leave one character per line
_FRAME = "╭╮╰╯│─| "
_PLAIN_ERRORS = {  # patterns in tyro's errors → plain English
    r"^Error parsing (?!-)\S+: ": "",  # errors of a dataclass already name the field
    r"^Error parsing ": "",
    r"invalid literal for int\(\) with base 10: (.*)": r"\1 is not a whole number",
    r"no type matching \{None\}\|INT could be instantiated from \[(.*?)\]\..*": r"\1 is not a whole number",
    r"no type matching \{None\}\|FLOAT could be instantiated from \[(.*?)\]\..*": r"\1 is not a number",
    r"Exceeds the limit.*": "this number has too many digits",
    r"could not convert string to float: (.*)": r"\1 is not a number",
    r"^invalid choice (\S+) for argument '(\S+)'. Expected one of \((.*)\).*": r"\2 \1: choose from \3",
    r"^Unrecognized options: ([^\s,]+).*": r"\1 is not an option of this command (a typo?)",
    r"^Missing value for argument '(\S+)'.*": r"\1 needs a value",
    r"^Missing from .*?: (\S+).*": r"\1 is missing",
}

# flags that are not named after their argument
_FLAGS = {"pinned": "--pin", "attributes": "--attribute"}

Flag = Annotated[bool, tyro.conf.arg(help_behavior_hint="")]  # a switch; its help does not say "(default: False)"


class _Verb(Protocol):
    """A parsed command; calling it runs it."""

    def __call__(self) -> None: ...


def parse_verb(verbs: Mapping[str, type[Any]], argv: Sequence[str]) -> _Verb:
    """Parse a command line; prints help and exits if it asks for help."""
    name, *rest = argv = [*argv[1:2], "--help"] if argv[:1] in ([], ["help"]) else argv
    if name == "--version":
        print(f"redraft {version('redraft')}")
        raise SystemExit(0)
    if name.startswith("-"):
        return _parse(_any_of(verbs), argv, "redraft", _ABOUT)
    if name not in verbs:
        raise ValueError(f"there is no command {name!r}; {suggest(name, verbs)}")
    if name == "train" and rest and rest[0] not in _HELP:
        return _parse_train(verbs[name], rest)
    return _parse(verbs[name], rest, f"redraft {name}")


def _any_of(verbs: Mapping[str, type[Any]]) -> Any:
    """Return the union of the verbs as subcommands, for `redraft --help`."""
    about = {name: (verb.__doc__ or "").partition("\n")[0] for name, verb in verbs.items()}
    subcommands = [Annotated[verb, tyro.conf.subcommand(n, description=about[n])] for n, verb in verbs.items()]
    return reduce(or_, subcommands)


def _parse_train(verb: type[Any], argv: Sequence[str]) -> _Verb:
    """Parse the flags of `train` itself; the others, and --help, wait until the preset is loaded."""
    if argv[0].startswith("-"):
        raise ValueError(f"{argv[0]} comes before the preset; write redraft train PRESET {argv[0]} …")
    words, help_words = ([word for word in argv if (word in _HELP) == is_help] for is_help in (False, True))
    train, settings = _parse(verb, words, "redraft train", return_unknown_args=True)
    return replace(train, settings=(*settings, *help_words))


def parse_settings(value: Any, argv: Sequence[str], prog: str, about: str, whole: tuple[type, ...]) -> Any:
    """Replace the fields of a frozen dataclass, at any depth, that a command line names.

    A field annotated with a protocol gets the flags of its current value. Values of the types `whole` get no flags,
    because changing one of their fields alone would make them inconsistent.
    """
    registry = ConstructorRegistry()

    @registry.struct_rule
    def rule(info: StructTypeInfo) -> StructConstructorSpec | None:
        if isinstance(info.default, whole):
            return StructConstructorSpec(lambda: info.default, ())
        choices = get_args(info.type) or (info.type,)
        if not any(getattr(c, "_is_protocol", False) for c in choices) or not is_dataclass(kind := type(info.default)):
            return None
        field = StructFieldSpec("value", Annotated[kind, tyro.conf.arg(name="")], info.default)  # type: ignore[arg-type]
        return StructConstructorSpec(lambda value: value, (field,))

    return _parse(type(value), argv, prog, about, default=value, registry=registry)


def name_flags(message: str) -> str:
    """Replace the argument names in a message of `redraft.tasks` by flags: name=5 by --name 5, name=… by --name."""
    kinds = (GenerationSettings, InfillSettings, RewriteSettings, ControlSettings, CorrectSettings, ScoreSettings)
    names = "|".join({field.name for kind in kinds for field in fields(kind)})
    return re.sub(rf"(?<![\w.(-])({names})=(…?)", _flag, message)


def _flag(match: re.Match[str]) -> str:
    flag = _FLAGS.get(match[1]) or f"--{match[1].replace('_', '-')}"
    return flag if match[2] else f"{flag} "


def suggest(name: str, names: Iterable[str]) -> str:
    """Suggest the closest valid names for a misspelled one, or list all names."""
    names = list(names)
    close = get_close_matches(name, names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(names)}"


def _parse(kind: Any, argv: Sequence[str], prog: str, about: str | None = None, **more: Any) -> Any:
    """Call tyro.cli; help goes to stdout, and errors become a ValueError."""
    error_box, help_text = io.StringIO(), io.StringIO()
    config = (FlagCreatePairsOff, AvoidSubcommands, SuppressFixed)
    columns = get_terminal_size().columns
    boxed_help = columns >= _NARROW and any(word in argv for word in _HELP)
    try:
        with redirect_stderr(error_box), nullcontext() if boxed_help else _plain_output(help_text):
            return tyro.cli(kind, args=argv, prog=prog, description=about, config=config, **more)
    except SystemExit as end:
        if end.code == 2:
            raise ValueError(f"{_error_line(error_box.getvalue())} (see {prog} --help)") from None
        sys.stdout.write(_unboxed(help_text.getvalue(), columns))
        raise


@contextmanager
def _plain_output(help_text: io.StringIO) -> Iterator[None]:
    """Redirect stdout, and pretend that the terminal is wide, so that tyro does not break lines that we parse."""
    columns = os.environ.get("COLUMNS")
    try:
        os.environ["COLUMNS"] = str(_WIDE)
        with redirect_stdout(help_text):
            yield
    finally:
        os.environ.pop("COLUMNS")
        os.environ.update({} if columns is None else {"COLUMNS": columns})


def _unboxed(help_text: str, columns: int) -> str:
    """Return tyro's help without its boxes, with each entry wrapped to the width of the terminal."""
    rows = (row for row in help_text.splitlines() if not set(row) <= {"-"} or not row)
    lines = (" ".join(row.strip(_FRAME).split()) for row in rows)
    width = max(columns - 1, 12)
    wrapped = (textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False) for line in lines)
    return "".join(f"{line}\n" for line in wrapped)


def _error_line(box: str) -> str:
    """Return the first section of tyro's error box as one line, with the option that the user may have meant."""
    rows = [row.strip("|│ ") for row in box.splitlines()[1:-1]]
    sections = re.split(r"^[-─]{3,}$", "\n".join(rows), flags=re.MULTILINE)
    message = " ".join(next(filter(str.strip, sections), box).split())
    for pattern, plain in _PLAIN_ERRORS.items():
        message = re.sub(pattern, plain, message)
    similar = re.search(r"Perhaps you meant:\s+(-\S+)", "".join(sections[1:]))
    return f"{message.rstrip('.')}; did you mean {similar[1].rstrip(',')}?" if similar else message.rstrip(".")
