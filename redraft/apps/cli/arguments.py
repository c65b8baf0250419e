"""Arguments to values, by tyro; what it objects to becomes one line."""

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

DATA = "|".join((*CORPUS_NAMES, "PATH..."))  # what --data takes
_HELP = ("-h", "--help")
_ABOUT = """Diffusion language models: train them, measure them, let them write.

Start with `redraft demo`, or with `redraft train mdlm_tiny` and then
`redraft generate runs/mdlm_tiny --watch`. `redraft VERB --help` lists the flags
of a verb, `redraft --version` prints the version.

Results go to stdout, progress and errors to stderr. Exit codes:
  0    done
  1    a law or a training failed
  2    wrong input; one line says what to do
  130  interrupted by Ctrl-C
  143  ended by SIGTERM; training has saved a checkpoint first"""
_NARROW, _WIDE = 48, 200  # columns: boxes of narrower help would leave one letter per line
_FRAME = "╭╮╰╯│─| "
_PLAINER = {
    r"^Error parsing (?!-)\S+: ": "",  # what a dataclass says names its field
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

# where a flag is not called like its argument
_FLAGS = {"n": "--rows", "max_new_tokens": "--new", "pinned": "--pin", "attributes": "--attribute"}

Flag = Annotated[bool, tyro.conf.arg(help_behavior_hint="")]  # no "(default: False)" behind every one of them


class _Verb(Protocol):
    """What a command line asks for, ready to be done."""

    def __call__(self) -> None: ...


def parse_verb(verbs: Mapping[str, type[Any]], argv: Sequence[str]) -> _Verb:
    """The verb of a command line, or help about all of them."""
    name, *rest = argv = [*argv[1:2], "--help"] if argv[:1] in ([], ["help"]) else argv
    if name == "--version":
        print(f"redraft {version('redraft')}")
        raise SystemExit(0)
    if name.startswith("-"):
        return _tyro(_any_of(verbs), argv, "redraft", _ABOUT)
    if name not in verbs:
        raise ValueError(f"there is no command {name!r}; {suggest(name, verbs)}")
    if name == "train" and rest and rest[0] not in _HELP:
        return _parse_train(verbs[name], rest)
    return _tyro(verbs[name], rest, f"redraft {name}")


def _any_of(verbs: Mapping[str, type[Any]]) -> Any:
    about = {name: (kind.__doc__ or "").partition("\n")[0] for name, kind in verbs.items()}
    named = [Annotated[kind, tyro.conf.subcommand(n, description=about[n])] for n, kind in verbs.items()]
    return reduce(or_, named)


def _parse_train(kind: type[Any], argv: Sequence[str]) -> _Verb:
    """Every setting of a preset is a flag, help for them too: what is not known yet waits until the preset is."""
    if argv[0].startswith("-"):
        raise ValueError(f"{argv[0]} comes before the preset; write redraft train PRESET {argv[0]} …")
    words, asked = ([word for word in argv if (word in _HELP) == is_help] for is_help in (False, True))
    own, settings = _tyro(kind, words, "redraft train", return_unknown_args=True)
    return replace(own, settings=(*settings, *asked))


def parse_settings(value: Any, argv: Sequence[str], prog: str, about: str, whole: tuple[type, ...]) -> Any:
    """A frozen dataclass, with those of its fields replaced, at any depth, that a command line names.

    Values of the types `whole` have no flags: a part of them changed would not fit the rest. Fields that a protocol
    annotates have the flags of the value they hold.
    """
    registry = ConstructorRegistry()

    @registry.struct_rule
    def rule(info: StructTypeInfo) -> StructConstructorSpec | None:
        if isinstance(info.default, whole):
            return StructConstructorSpec(lambda: info.default, ())
        choices = get_args(info.type) or (info.type,)
        if not any(getattr(c, "_is_protocol", False) for c in choices) or not is_dataclass(kind := type(info.default)):
            return None
        held = StructFieldSpec("value", Annotated[kind, tyro.conf.arg(name="")], info.default)  # type: ignore[arg-type]
        return StructConstructorSpec(lambda value: value, (held,))

    return _tyro(type(value), argv, prog, about, default=value, registry=registry)


def name_flags(said: str) -> str:
    """What `redraft.tasks` says about arguments, in words of the command line: name=5 is --name 5, name=… is --name."""
    kinds = (GenerationSettings, InfillSettings, RewriteSettings, ControlSettings, CorrectSettings, ScoreSettings)
    names = "|".join({field.name for kind in kinds for field in fields(kind)})
    return re.sub(rf"(?<![\w.(-])({names})=(…?)", _flag, said)


def _flag(found: re.Match[str]) -> str:
    flag = _FLAGS.get(found[1]) or f"--{found[1].replace('_', '-')}"
    return flag if found[2] else f"{flag} "


def suggest(name: str, known: Iterable[str]) -> str:
    """Advice to somebody who gave a name that is none of those known."""
    known = list(known)
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"


def _tyro(kind: Any, argv: Sequence[str], prog: str, about: str | None = None, **more: Any) -> Any:
    """tyro.cli, of which help goes to stdout as ever and an objection becomes a ValueError."""
    complaint, help_text = io.StringIO(), io.StringIO()
    config = (FlagCreatePairsOff, AvoidSubcommands, SuppressFixed)
    columns = get_terminal_size().columns
    drawn = columns >= _NARROW and any(word in argv for word in _HELP)  # an objection must not be broken into lines
    try:
        with redirect_stderr(complaint), nullcontext() if drawn else redirect_stdout(help_text), _columns(drawn):
            return tyro.cli(kind, args=argv, prog=prog, description=about, config=config, **more)
    except SystemExit as end:
        if end.code == 2:
            raise ValueError(f"{_line(complaint.getvalue())} (see {prog} --help)") from None
        sys.stdout.write(_narrowed(help_text.getvalue(), columns))
        raise


@contextmanager
def _columns(as_they_are: bool) -> Iterator[None]:
    """For a while the terminal is as wide as any line."""
    before = os.environ.get("COLUMNS")
    try:
        if not as_they_are:
            os.environ["COLUMNS"] = str(_WIDE)
        yield
    finally:
        if not as_they_are:
            os.environ.pop("COLUMNS")
            os.environ.update({} if before is None else {"COLUMNS": before})


def _narrowed(drawn: str, columns: int) -> str:
    """Help without its frames, each entry wrapped on its own."""
    lines = (" ".join(line.strip(_FRAME).split()) for line in drawn.splitlines() if not set(line) <= {"-"} or not line)
    width = max(columns - 1, 12)
    wrapped = (textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False) for line in lines)
    return "".join(f"{line}\n" for line in wrapped)


def _line(box: str) -> str:
    """What tyro draws as a box, as one line: its first section, and the option that was perhaps meant."""
    rows = [row.strip("|│ ") for row in box.splitlines()[1:-1]]
    sections = re.split(r"^[-─]{3,}$", "\n".join(rows), flags=re.MULTILINE)
    said = " ".join(next(filter(str.strip, sections), box).split())
    for pattern, plain in _PLAINER.items():
        said = re.sub(pattern, plain, said)
    meant = re.search(r"Perhaps you meant:\s+(-\S+)", "".join(sections[1:]))
    return f"{said.rstrip('.')}; did you mean {meant[1].rstrip(',')}?" if meant else said.rstrip(".")
