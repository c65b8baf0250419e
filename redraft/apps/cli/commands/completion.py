"""`redraft completion`: scripts that complete verbs, flags and choices in a shell, from the same tables as --help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from redraft.apps.cli.parsing import Option, verb_arguments
from redraft.models.shipped import NAMES
from redraft.tasks.arguments.setting import REQUIRED, Checked, setting

_BASH = """_redraft() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" flags="" words="" choices=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{verbs}" -- "$word")); return
  fi
  case "${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD-1]}}" in
{choices}
  esac
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$word")) ;;
    *) if [ -n "$choices" ]; then COMPREPLY=($(compgen -W "$choices" -- "$word"))
       else COMPREPLY=($(compgen -W "$words" -- "$word") $(compgen -f -- "$word")); fi ;;
  esac
}}
complete -o filenames -F _redraft redraft
"""
_ZSH = """#compdef redraft
_redraft() {{
  local -a flags names choices
  if (( CURRENT == 2 )); then compadd -- {verbs}; return; fi
  case "${{words[2]}} ${{words[CURRENT-1]}}" in
{choices}
  esac
  case "${{words[2]}}" in
{cases}
  esac
  if [[ "${{words[CURRENT]}}" == -* ]]; then compadd -- $flags
  elif (( $#choices )); then compadd -- $choices
  else compadd -- $names; _files; fi
}}
compdef _redraft redraft
"""


@dataclass(frozen=True)
class Completion(Checked):
    """Print a script that completes commands, options and their choices in your shell.

    Put eval "$(redraft completion bash)" into ~/.bashrc, or the same with zsh into ~/.zshrc, after compinit.

    Put redraft completion fish | source into ~/.config/fish/config.fish.
    """

    shell: Literal["bash", "zsh", "fish"] = setting(REQUIRED, "The shell.", metavar="bash|zsh|fish", positional=True)

    def __call__(self) -> None:
        verbs = list(_verbs())
        if self.shell == "fish":
            print("\n".join(_fish(verbs)))
            return
        script, array, words = (_BASH, '"{}"', "words") if self.shell == "bash" else (_ZSH, "({})", "names")

        def assign(name: str, values: tuple[str, ...]) -> str:
            return f"{name}={array.format(' '.join(values))}"

        cases = [f"    {verb.name}) {assign('flags', verb.flags)}; {assign(words, verb.words)} ;;" for verb in verbs]
        choices = [
            f'    "{verb.name} {flag}") {assign("choices", values)} ;;'
            for verb in verbs
            for flag, values in verb.choices.items()
        ]
        names = " ".join(verb.name for verb in verbs)
        print(script.format(verbs=names, cases="\n".join(cases), choices="\n".join(choices)), end="")


class _CompletedVerb(NamedTuple):
    """The words that can follow a verb."""

    name: str
    flags: tuple[str, ...]
    choices: dict[str, tuple[str, ...]]  # flag → its choices
    words: tuple[str, ...]  # positional words, besides files


def _verbs() -> Iterator[_CompletedVerb]:
    from redraft.apps.cli import VERBS

    for name, kind in VERBS.items():
        options = list(map(Option.of, verb_arguments(kind)))
        flags = (*(flag for option in options for flag in option.flags), "--help", "--help-all")
        choices = {
            flag: tuple(map(str, option.argument.choices))
            for option in options
            for flag in option.flags
            if option.argument.choices and not option.is_switch
        }
        yield _CompletedVerb(name, flags, choices, tuple(dict.fromkeys(_positional_words(options))))


def _positional_words(options: list[Option]) -> Iterator[str]:
    for option in options:
        if not option.flags:
            yield from map(str, option.argument.choices)
            yield from NAMES if option.argument.name in ("model", "models") else ()


def _fish(verbs: list[_CompletedVerb]) -> Iterator[str]:
    names = " ".join(verb.name for verb in verbs)
    yield f'complete -c redraft -n __fish_use_subcommand -f -a "{names}"'
    for verb in verbs:
        rule = f'complete -c redraft -n "__fish_seen_subcommand_from {verb.name}"'
        for flag in verb.flags:
            values = verb.choices.get(flag)
            yield f"{rule} -l {flag.removeprefix('--')}" + (f' -x -a "{" ".join(values)}"' if values else "")
        if verb.words:
            yield f'{rule} -a "{" ".join(verb.words)}"'
