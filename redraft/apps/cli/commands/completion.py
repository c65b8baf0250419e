"""`redraft completion`: scripts that complete verbs and flags in a shell, made from the same tables as --help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from redraft.apps.cli.parsing import Option, verb_arguments
from redraft.tasks.arguments.setting import REQUIRED, Checked, setting

_BASH = """_redraft() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" flags=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{verbs}" -- "$word")); return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$word")) ;;
    *) COMPREPLY=($(compgen -f -- "$word")) ;;
  esac
}}
complete -o filenames -F _redraft redraft
"""
_ZSH = """#compdef redraft
_redraft() {{
  local -a flags
  if (( CURRENT == 2 )); then compadd -- {verbs}; return; fi
  case "${{words[2]}}" in
{cases}
  esac
  if [[ "${{words[CURRENT]}}" == -* ]]; then compadd -- $flags; else _files; fi
}}
compdef _redraft redraft
"""


@dataclass(frozen=True)
class Completion(Checked):
    """Print a script that completes commands and options in your shell.

    bash: eval "$(redraft completion bash)" in ~/.bashrc. zsh: the same with zsh in ~/.zshrc, after compinit.
    fish: redraft completion fish > ~/.config/fish/completions/redraft.fish
    """

    shell: Literal["bash", "zsh", "fish"] = setting(REQUIRED, "The shell.", metavar="bash|zsh|fish", positional=True)

    def __call__(self) -> None:
        flags = dict(_flags())
        verbs = " ".join(flags)
        if self.shell == "fish":
            print("\n".join(_fish(flags)))
        elif self.shell == "bash":
            cases = "\n".join(f'    {verb}) flags="{" ".join(words)}" ;;' for verb, words in flags.items())
            print(_BASH.format(verbs=verbs, cases=cases), end="")
        else:
            cases = "\n".join(f"    {verb}) flags=({' '.join(words)}) ;;" for verb, words in flags.items())
            print(_ZSH.format(verbs=verbs, cases=cases), end="")


def _flags() -> Iterator[tuple[str, list[str]]]:
    """Yield each verb with its flags."""
    from redraft.apps.cli import VERBS

    for verb, kind in VERBS.items():
        options = map(Option.of, verb_arguments(kind))
        yield verb, [*(flag for option in options for flag in option.flags), "--help"]


def _fish(flags: dict[str, list[str]]) -> Iterator[str]:
    yield f'complete -c redraft -n __fish_use_subcommand -f -a "{" ".join(flags)}"'
    for verb, words in flags.items():
        for word in words:
            yield f'complete -c redraft -n "__fish_seen_subcommand_from {verb}" -l {word.removeprefix("--")}'
