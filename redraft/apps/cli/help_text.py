"""The text of --help, made from the tables of verbs and arguments."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

from redraft.apps.cli.parsing import Option, verb_arguments
from redraft.tasks.arguments.setting import REQUIRED, Argument

_METAVARS = {int: "INT", float: "FLOAT", Path: "PATH", str: "TEXT"}
_GROUPS = ("Arguments", "Options", "Run", "Text", "Sampling", "Constraints", "Guidance", "Speed", "Output", "Model")
_WIDEST = 100  # columns; longer lines are hard to read
_LONGEST_CHOICES = 48  # characters; longer lists of choices are put into the sentence


def overview(about: str, groups: Mapping[str, Mapping[str, type[Any]]], end: str) -> str:
    """The text of `redraft --help`: the verbs by group, each with its first sentence."""
    width = max(len(name) for verbs in groups.values() for name in verbs) + 4
    lines = ["usage: redraft VERB [arguments] [options]", "", *_paragraphs(about)]
    for group, verbs in groups.items():
        lines += ["", f"{group}:"]
        lines += [f"  {name:<{width - 2}}{_summary(kind)}" for name, kind in verbs.items()]
    lines += [
        "",
        "Options:",
        f"  {'-h, --help':<{width - 2}}Show this list.",
        f"  {'--version':<{width - 2}}Show the version.",
    ]
    return _wrapped(lines, indent=" " * width) + _wrapped(["", *end.splitlines()], indent=" " * 7)


def _verb_help(name: str, kind: type[Any], *, everything: bool = False) -> str:
    """The text of `redraft VERB --help`; with `everything`, it includes the options that are rarely used."""
    options = [Option.of(argument) for argument in verb_arguments(kind)]
    usage = " ".join(["usage: redraft", name, *(_usage(option.argument) for option in options if not option.flags)])
    lines = [f"{usage} [options]", "", *_paragraphs(inspect.cleandoc(kind.__doc__ or ""))]
    hidden = [] if everything else [option for option in options if option.argument.setting.rare]
    lines += _option_lines([option for option in options if option not in hidden])
    lines += ["", "  -h, --help", f"      {'Show all options.' if everything else 'Show the common options.'}"]
    if hidden:
        lines += ["  --help-all", f"      Also show {len(hidden)} options that are rarely needed."]
    return _wrapped(lines)


def _settings_help(prog: str, about: str, options: Sequence[Option], *, everything: bool = False) -> str:
    """The text of `redraft train PRESET --help`: the settings of a preset, by group."""
    shown = [option for option in options if everything or not option.argument.setting.rare]
    lines = [
        f"usage: {prog} [options]",
        "",
        about,
        *_option_lines(shown),
        "",
        "  -h, --help",
        "      Show these settings.",
    ]
    lines += [] if everything else ["  --help-all", "      Also show the settings that are given as JSON."]
    return _wrapped(lines)


def _option_lines(options: Sequence[Option]) -> Iterator[str]:
    """Yield the lines that describe options, by group."""
    for group in dict.fromkeys((*_GROUPS, *map(_group, options))):
        members = [option for option in options if _group(option) == group]
        if members:
            yield from ("", f"{group}:")
        for option in members:
            yield f"  {heading(option)}"
            if sentence := sentence_of(option.argument):
                yield f"      {sentence}"


def _group(option: Option) -> str:
    return option.argument.setting.group if option.flags else "Arguments"


def _summary(kind: type[Any]) -> str:
    return inspect.cleandoc(kind.__doc__ or "").partition("\n")[0]


def _usage(argument: Argument) -> str:
    return argument.flag if argument.default is REQUIRED else f"[{argument.flag}]"


def heading(option: Option) -> str:
    """Return the flags of an option and the placeholder of its value."""
    argument = option.argument
    if not option.flags:
        return _usage(argument)
    value = "" if option.is_switch else _metavar(argument)
    if argument.count == 0 and not argument.setting.repeats:
        value = f"{value.removesuffix('...')} ..."
    return f"{', '.join(option.flags)} {' '.join([value] * (argument.count or 1))}".rstrip()


def _metavar(argument: Argument) -> str:
    choices = "|".join(map(str, argument.choices))
    if choices and not argument.setting.metavar:
        return choices if len(choices) <= _LONGEST_CHOICES else "NAME"
    return argument.setting.metavar or _METAVARS.get(argument.kind, "")


def sentence_of(argument: Argument) -> str:
    """What an argument does, its choices if there are many, and its default."""
    names = f" One of {', '.join(argument.choices)}." if _metavar(argument) == "NAME" and argument.choices else ""
    default = _default(argument)
    return f"{argument.setting.about}{names}{f' [default: {default}]' if default else ''}".strip()


def _default(argument: Argument) -> str:
    if argument.setting.otherwise:
        return argument.setting.otherwise
    if argument.default is REQUIRED:
        return "" if argument.setting.positional else "none; it must be given"
    if argument.kind is bool or argument.default in (None, (), ""):
        return ""
    many = isinstance(argument.default, tuple)
    return " ".join(map(str, argument.default)) if many else str(argument.default)


def _paragraphs(text: str) -> Iterator[str]:
    """Yield each paragraph as one line, with blank lines between them."""
    for index, paragraph in enumerate(text.split("\n\n")):
        yield from ([""] if index else [])
        yield " ".join(paragraph.split())


def _wrapped(lines: Iterable[str], indent: str = "") -> str:
    """Wrap each line to the width of the terminal; continuation lines keep its indentation, or get `indent`."""
    columns = max(min(get_terminal_size().columns - 1, _WIDEST), 12)
    deepest = "" if columns < 40 else None  # too narrow for columns
    wrapped = []
    for line in lines:
        own = line[: len(line) - len(line.lstrip())]
        below = deepest if deepest is not None else (indent if own and indent else own)
        wrapped.append(
            textwrap.fill(line, columns, subsequent_indent=below, break_long_words=False, break_on_hyphens=False)
        )
    return "\n".join(wrapped) + "\n"
