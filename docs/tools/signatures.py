"""Writes the parts of pages that come from the code: `make docs`.

A page shows the source of a class or function without bodies and docstrings in a block with its name:

    ```py title="redraft.Canvas"
    …
    ```

Such blocks are marked `py`. A table of the settings of a command has its name at the top:

    | `redraft rewrite` | Python | meaning |

It lists what this task has besides the settings of all that write (`docs/settings.md`). Blocks marked `python` are
examples, which tests/test_docs.py runs. The list of methods in `docs/methods/README.md` has the title and the first
sentence of each page in that folder.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from operator import attrgetter
from pathlib import Path
from textwrap import dedent
from typing import Any

import redraft
from redraft.apps.cli.help_text import heading, sentence_of
from redraft.apps.cli.parsing import Option
from redraft.tasks.arguments import settings
from redraft.tasks.arguments.setting import arguments_of

FOLDER = Path(__file__).parents[1]
METHODS = FOLDER / "methods" / "README.md"
SIGNATURE = re.compile(r'^(```py title="redraft\.([\w.]+)"\n).*?(?=^```$)', re.DOTALL | re.MULTILINE)
LIST = re.compile(r"(?:^- \[.*\n)+", re.MULTILINE)

SETTINGS = {
    "all that write": settings.DecodingSettings,
    "`redraft generate`": settings.GenerationSettings,
    "`redraft infill`": settings.InfillSettings,
    "`redraft rewrite`": settings.RewriteSettings,
    "`redraft control`": settings.ControlSettings,
    "`redraft score`": settings.ScoreSettings,
    "`redraft correct`": settings.CorrectSettings,
}
TABLE = re.compile(r"^(\| (.+) \| Python \| meaning \|\n\|---\|---\|---\|\n)(?:\|.*\n)*", re.MULTILINE)


def pages() -> dict[Path, str]:
    """Return the current text of every page with a generated part."""
    files = (page for page in FOLDER.rglob("*.md") if page.parent.name != "templates")
    texts = {page: page.read_text("utf-8") for page in files}
    renewed = {page: TABLE.sub(_table, SIGNATURE.sub(_renewed, text)) for page, text in texts.items()}
    generated = {page: text for page, text in renewed.items() if SIGNATURE.search(text) or TABLE.search(text)}
    return {**generated, METHODS: LIST.sub(lambda _: methods(), texts[METHODS], count=1)}


def _renewed(match: re.Match[str]) -> str:
    return f"{match[1]}{outline(attrgetter(match[2])(redraft))}\n"


def _table(match: re.Match[str]) -> str:
    """A row for each setting of a task, without those that it shares with others."""
    kind = SETTINGS[match[2]]
    bases: tuple[type[Any], ...] = kind.__bases__ if kind is not settings.DecodingSettings else ()
    shared = {argument.name for base in bases if is_dataclass(base) for argument in arguments_of(base)}
    own = [argument for argument in arguments_of(kind) if argument.name not in shared]
    return match[1] + "".join(_row(Option.of(argument)) for argument in own)


def _row(option: Option) -> str:
    cells = f"`{heading(option)}`", f"`{option.argument.name}`", sentence_of(option.argument)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def methods() -> str:
    """One line per method: its title, a link, and its first sentence."""
    files = [file for file in sorted(METHODS.parent.glob("*.md")) if file != METHODS]
    return "\n".join(map(_entry, files)) + "\n"


def _entry(file: Path) -> str:
    title, about, *_ = file.read_text("utf-8").split("\n\n")
    sentence = re.split(r"(?<=\.) (?=[A-Z(])", " ".join(about.split()))[0]
    return f"- [{title.removeprefix('# ')}]({file.name}): {sentence}"


def outline(thing: type | object) -> str:
    """Return the source of a class or function without bodies, docstrings and private names."""
    source = dedent(inspect.getsource(thing))  # type: ignore[arg-type]
    return "\n".join(_outline(ast.parse(source).body[0], source.splitlines()))


def _outline(node: ast.stmt, lines: list[str]) -> Iterator[str]:
    if isinstance(node, ast.AnnAssign) and not _private(node.target):
        yield from lines[node.lineno - 1 : node.end_lineno]
    elif isinstance(node, ast.FunctionDef | ast.ClassDef) and not _private(node):
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        body = node.body[0].lineno
        header = lines[first - 1 : max(body - 1, node.lineno)]
        inside = list(_inside(node, lines))
        yield from header if inside or header[-1].endswith("...") else [*header[:-1], f"{header[-1]} ..."]
        yield from inside


def _inside(node: ast.FunctionDef | ast.ClassDef, lines: list[str]) -> Iterator[str]:
    """Yield the fields and the methods."""
    before = node.body[0]
    for child in node.body if isinstance(node, ast.ClassDef) else []:
        if part := list(_outline(child, lines)):
            yield from part if type(child) is type(before) is ast.AnnAssign or child is node.body[0] else ["", *part]
            before = child


def _private(node: ast.expr | ast.stmt) -> bool:
    name = node.id if isinstance(node, ast.Name) else getattr(node, "name", "")
    return name.startswith("_") and name not in ("__call__", "__init__")


def main() -> None:
    for page, text in pages().items():
        page.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
