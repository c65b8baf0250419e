"""Parses the command line of a verb by the table of its arguments. The classes of the settings check the values.

This is written by hand rather than with argparse, which takes the value of a misspelled flag for a positional argument
and does not allow flags between two optional positional arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path
from typing import Any

from redraft.apps.cli.user_code import _load_object
from redraft.tasks.arguments.aliases import ALIASES
from redraft.tasks.arguments.setting import REQUIRED, Argument, arguments_of, nested_settings

_CUSTOMARY = {  # usual names elsewhere → flag here
    "epochs": "--steps (a step is one --batch)",
    "num-epochs": "--steps (a step is one --batch)",
    "max-steps": "--steps",
    "max-iters": "--steps",
    "lr": "--optimizer.lr",
    "learning-rate": "--optimizer.lr",
    "batch-size": "--batch",
    "block-size": "--length",
    "context-length": "--length",
    "output-dir": "--out",
    "dataset": "--data",
    "gpu": "--device cuda",
    "max-length": "--max-new-tokens",
    "num-samples": "--n",
    "verbose": "--watch",
}
_NUMBER = re.compile(r"-(\d|\.\d|inf|nan)")
_Values = dict[str, Any]  # argument → value


class _UsageError(ValueError):
    """A command line that does not fit the table of arguments."""


def verb_arguments(kind: type[Any]) -> Iterator[Argument]:
    """Yield the arguments of a verb and of the settings nested in it."""
    yield from arguments_of(kind)
    for nested in nested_settings(kind).values():
        yield from verb_arguments(nested)


@dataclass(frozen=True)
class Option:
    """An argument of a command, with the flags that set it."""

    argument: Argument
    flags: tuple[str, ...]  # empty for a positional argument

    @classmethod
    def of(cls, argument: Argument) -> Option:
        """The flags of an argument; a switch that is on by default gets a flag that turns it off."""
        if argument.setting.positional:
            return cls(argument, ())
        flag = argument.flag
        if argument.kind is bool and argument.default is True:
            flag = f"--no-{flag.removeprefix('--')}"
        return cls(argument, (flag, *argument.setting.aliases))

    @property
    def is_switch(self) -> bool:
        """Whether the flag takes no value."""
        return self.argument.kind is bool

    def take(self, flag: str, words: list[str]) -> Any:
        """Take the value of a flag from the front of the remaining words."""
        if self.is_switch:
            return not self.argument.default
        count = self.argument.count
        most = 1 if count is None or self.argument.setting.repeats else count or len(words)
        taken = 0
        while taken < min(most, len(words)) and not _is_flag(words[taken]):
            taken += 1
        if not taken:
            raise _UsageError(f"{flag} needs a value")
        values = [self.convert(word) for word in words[:taken]]
        del words[:taken]
        return values[0] if count is None else tuple(values)

    def convert(self, word: str) -> Any:
        """Convert a word to the argument's type; a word that cannot be converted is returned and fails the check."""
        if self.argument.kind is Path:
            return Path(word)
        if self.argument.setting.objects and ".py:" in word:
            return _load_object(word)
        if self.argument.kind not in (int, float):
            return word
        if self.argument.optional and word == "None":
            return None
        try:
            return self.argument.kind(word)
        except ValueError:
            return word


def _is_flag(word: str) -> bool:
    """Whether a word is a flag rather than a value, which may be a negative number, "-" or a text with spaces."""
    return word.startswith("-") and len(word) > 1 and " " not in word and not _NUMBER.match(word)


def _parse_words(kind: type[Any], words: Sequence[str], *, rest: str | None = None) -> Any:
    """Create a verb from its command line. Unknown flags with their values go to the field `rest`, if it is named."""
    options = [Option.of(argument) for argument in verb_arguments(kind)]
    values, unknown = _read(options, words, rest is not None)
    if missing := [option for option in options if _required(option.argument) and option.argument.name not in values]:
        raise _UsageError(f"{missing[0].argument.flag} is missing")
    return _build(kind, values | ({rest: tuple(unknown)} if rest is not None else {}))


def _required(argument: Argument) -> bool:
    return argument.default is REQUIRED and argument.count != 0


def _build(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """Create a verb, and the settings nested in it, from the values of all its arguments."""
    nested = {name: _build(inner, values) for name, inner in nested_settings(kind).items()}
    names = [argument.name for argument in arguments_of(kind)]
    own = {name: values[name] for name in names if name in values}
    own |= {a.name: () for a in arguments_of(kind) if a.default is REQUIRED and a.name not in values}
    others = {name: value for name, value in values.items() if name in kind.__dataclass_fields__ and name not in own}
    return kind(**own, **nested, **others)


def _read_words_of(options: Sequence[Option], words: Sequence[str]) -> dict[str, Any]:
    """Read the words of a command line that has only these options: argument → value."""
    return _read(options, words, allow_unknown=False)[0]


def _read(options: Sequence[Option], words: Sequence[str], allow_unknown: bool) -> tuple[_Values, list[str]]:
    """Read the words of a command line; also returns the unknown ones."""
    by_flag = {flag: option for option in options for flag in option.flags}
    positional = [option for option in options if not option.flags]
    values: _Values = {}
    unknown: list[str] = []
    left, only_values = list(words), False
    while left:
        word = left.pop(0)
        if word == "--" and not only_values:
            only_values = True
        elif only_values or not _is_flag(word):
            _put_positional(positional, word, values)
        else:
            flag, equals, value = word.partition("=")
            option = by_flag.get(flag.replace("_", "-"))
            if option is not None:
                _put(option, flag, [value] if equals else left, values, alone=bool(equals))
            elif allow_unknown:
                unknown += [word, *_values_of(left)]
            else:
                raise _UsageError(_unknown_option(flag, by_flag))
    return values, unknown


def _put(option: Option, flag: str, words: list[str], values: _Values, *, alone: bool) -> None:
    """Store the value of a flag; a flag that may be repeated collects all its values."""
    name = option.argument.name
    if alone and option.is_switch:
        raise _UsageError(f"{flag} takes no value")
    value = (
        (option.convert(words[0]) if option.argument.count is None else (option.convert(words[0]),))
        if alone
        else (option.take(flag, words))
    )
    values[name] = (*values.get(name, ()), *value) if option.argument.setting.repeats else value


def _put_positional(positional: Sequence[Option], word: str, values: _Values) -> None:
    for option in positional:
        name, many = option.argument.name, option.argument.count == 0
        if many or name not in values:
            values[name] = (*values.get(name, ()), option.convert(word)) if many else option.convert(word)
            return
    raise _UsageError(f"{word} is not an option of this command (a typo?)")


def _values_of(words: list[str]) -> Iterator[str]:
    """Take the words up to the next flag."""
    while words and not _is_flag(words[0]):
        yield words.pop(0)


def _unknown_option(flag: str, flags: Iterable[str]) -> str:
    """The message for a flag that does not exist, with the flag that the user may have meant."""
    meant = _meant(flag, list(flags))
    hint = f"; did you mean {meant}?" if meant else ""
    return f"{flag} is not an option of this command (a typo?){hint}"


def _meant(flag: str, flags: Sequence[str]) -> str:
    """The flag that a wrong one stands for: another project's name, the end of a longer name, or a typo; "" if none."""
    name = flag.lstrip("-").replace("_", "-")
    own = f"--{ALIASES[python].name.replace('_', '-')}" if (python := name.replace("-", "_")) in ALIASES else ""
    for candidate in (_CUSTOMARY.get(name, ""), own):
        if candidate and all(word.strip("()") in flags for word in candidate.split() if word.startswith("--")):
            return candidate
    ends = [known for known in flags if known.endswith((f".{name}", f".{name.replace('-', '_')}"))]
    return min(ends, key=len) if ends else next(iter(_closest(flag, flags)), "")


def _closest(name: str, names: Iterable[str]) -> list[str]:
    """The names that a misspelled one is nearest to, the nearest first; empty if none is near."""
    bare = {known.lstrip("-"): known for known in names}
    close = get_close_matches(given := name.lstrip("-"), bare, n=3, cutoff=0.6)
    ratios = [SequenceMatcher(None, given, known).ratio() for known in close]
    return [bare[known] for known, ratio in zip(close, ratios, strict=True) if ratio > max(ratios) - 0.1]
